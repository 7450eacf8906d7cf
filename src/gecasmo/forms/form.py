"""What a form is: a way to give every row of a coin a probability.

A form is a choice of the user and never changes; what is learned lives in a state, a separate
value. `rows` are the distinct keys of the coin: `rows.frame` has the key columns, and
`rows.features(form.columns)` what the form asked for.

All that the library wants to know of a form it asks the form itself, never its class. Three methods
have to be written; every other one has a default here, which means "no" or "nothing", and what a
form is able to do follows from the methods that it has of its own. `docs/forms.md` shows how to
write one, and `gecasmo.testing.check_form` checks it.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.forms.logits import logit

if TYPE_CHECKING:
    from gecasmo.forms.drawn_rows import Moved
    from gecasmo.forms.memory import Memory
    from gecasmo.forms.parted_table import PartedTable
    from gecasmo.forms.priors import Empirical

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FormState = Any  # each form has a state type of its own
Parts = Mapping[str, pl.DataFrame | bytes]  # what a saved form consists of beside JSON


@dataclass(frozen=True)
class Posterior:
    """What is known of some rows: the expected flips behind each, its posterior mean and standard
    deviation (NaN where nobody knows), and in a word what that rests on."""

    trials: Floats
    mean: Floats
    spread: Floats
    rests_on: NDArray[np.str_]


class Form(ABC):
    """A way to give every row of a coin a probability.

    A class that derives from it is known by its name to files of models, or by another one:
    `class Falling(Form, name="shop.Falling")`.

    Attributes
    ----------
    key : tuple of str or None
        Replaces the key that the model declares.
    columns : tuple of str
        The feature columns that it reads. Without a `key`, rows are then the distinct combinations
        of these columns; with `by_declared_key`, those of the declared key. Coins with the same
        form that reads columns share one state.
    missing : str
        "raise", or anything else if nulls in these columns are welcome.
    fixed : mapping
        Rows that are given, by key.
    row_by_row : bool
        Every row has a probability of its own, free or given, and says nothing of other rows. The
        vector, if there is one, has the logit of each row.
    has_posterior : bool
        Its states are `TableState`: rows have a prior that can be learned, and posteriors.
    prior : Empirical or None
        The prior that the user wants to be learned.
    learns_prior : bool
        `tuned` finds a better prior of its own once EM has converged.
    link : "logit" or "probit"
        What of the probabilities is linear in the vector, if there is one.
    reads_pages : bool
        Its rows are shown results, and it looks at the pages that they are on, `rows.pages`: at
        all results, and at the clicks above each. Without pages each row is one of its own.
    is_joint : bool
        Coins that share it each have a part of its state: `fit_together` and `score_together` get
        the counts of each, and `probabilities` the coin that is meant.
    """

    key: tuple[str, ...] | None = None
    columns: tuple[str, ...] = ()
    missing: str = "raise"
    by_declared_key: bool = False
    fixed: Mapping[Any, float] = MappingProxyType({})
    row_by_row: bool = False
    has_posterior: bool = False
    prior: Empirical | None = None
    learns_prior: bool = False
    link: str = "logit"
    reads_pages: bool = False
    is_joint: bool = False
    name_in_files: ClassVar[str]

    def __init_subclass__(cls, name: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.name_in_files = cls.__name__ if name is None else name
        _register(cls)

    # -- as it is written ----------------------------------------------------------------------
    def options(self) -> dict[str, Any]:
        """Tell what the form was made with, by the names of its parameters; those that it keeps
        under another name are left out."""
        names = _parameters(type(self))
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], *first: Any) -> Self:
        """Make a form with such options, as JSON keeps them, after the `first` parameters."""
        named = {}
        for name, parameter in list(_parameters(cls).items())[len(first) :]:
            value = tuple(options[name]) if isinstance(options[name], list) else options[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                first += value
            elif parameter.default is parameter.empty:
                first += (value,)
            else:
                named[name] = value
        return cls(*first, **named)

    def __repr__(self) -> str:
        options, parameters = self.options(), _parameters(type(self))
        if options.keys() != parameters.keys():  # a form of one's own that calls them otherwise
            return super().__repr__()
        shown: list[str] = []
        for name, parameter in parameters.items():
            value = options[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                shown += map(repr, value)
            elif parameter.default is parameter.empty:
                shown.append(_written(value))
            elif _written(value) != _written(parameter.default):
                is_one = name == "key" and len(value) == 1
                shown.append(f"{name}={_written(value[0] if is_one else value)}")
        return f"{type(self).__name__}({', '.join(shown)})"

    # -- what every form does ------------------------------------------------------------------
    @abstractmethod
    def begin(self, rows: Rows, generator: np.random.Generator | None) -> FormState:
        """Make the state before the first M-step; with a generator, a random one near it."""

    @abstractmethod
    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: FormState) -> FormState:
        """Make the M-step: maximise sum(heads log p + tails log(1 - p)) + penalty over the rows.

        It never loses; if nothing can be gained it returns `previous` itself, which stays as it is.
        """

    @abstractmethod
    def predict(self, state: FormState, rows: Rows) -> Floats:
        """Tell the probability of each row, also of rows never seen."""

    def probabilities(self, state: FormState, rows: Rows, coin: str) -> Floats:
        """Ask `predict`, and look at what a form from elsewhere answers before compiled code reads
        it: a number from 0 to 1 for each row."""
        answer = self.predict(state, rows)
        if type(self).__module__.startswith("gecasmo."):
            return np.ascontiguousarray(answer, dtype=np.float64)
        told, n_rows = f"The form {self!r} of '{coin}' answers", len(rows)
        found = np.asarray(answer)
        if found.dtype.kind not in "fiub":
            raise ModelError(f"{told} with {found.dtype}; numbers from 0 to 1 are wanted.")
        if found.shape != (n_rows,):
            raise ModelError(f"{told} {n_rows:,} rows with an array of shape {found.shape}.")
        wrong = ~((found >= 0) & (found <= 1))
        if wrong.any():
            raise ModelError(
                f"{told} {int(wrong.sum()):,} rows with something that is no probability (first: "
                f"{found[wrong][0]:g})."
            )
        # A copy, which stays as it is whatever the form does with its own.
        return np.array(found, dtype=np.float64)

    def log_scale(self, state: FormState, rows: Rows) -> Floats | None:
        """Tell by which factor, as a logarithm, the weights of each row are too small for all coins
        that share the form; None where they are probabilities as they are."""
        return None

    def weights(self, state: FormState, rows: Rows) -> Floats | None:
        """Tell what tails and heads of each row weigh, `[side, row]`, where that does not add up to
        one; None where it is 1 - p and p."""
        return None

    def known(self, state: FormState, rows: Rows) -> Bools:
        """Tell which rows the fit has something to say about, beyond what it says of all."""
        return np.ones(len(rows), bool)

    def is_same_everywhere(self, state: FormState) -> bool:
        """Tell whether one number is meant for all rows there are, whatever their key."""
        return False

    def penalty(self, state: FormState) -> float:
        """Tell what the form adds to the objective: the logarithm of its prior."""
        return 0.0

    def keys(self, declared: tuple[str, ...], features: pl.DataFrame | None) -> tuple[str, ...]:
        """Tell the key columns in force for a coin with this form.

        Its own key, if it has one. A form with columns has a row per combination of these; of
        columns that a frame of features supplies, per key of that frame.
        """
        if self.key is not None:
            return tuple(self.key)
        if self.constant is not None:
            return ()
        if not self.columns or self.by_declared_key:
            return declared
        if features is None:
            return tuple(self.columns)
        others = [name for name in features.columns if name not in self.columns]
        by = [name for name in declared if name in others] or others
        return (*by, *(name for name in self.columns if name not in features.columns))

    @property
    def constant(self) -> float | None:
        """The probability that all rows are given, so that one row will do."""
        return None

    @property
    def allows_missing(self) -> bool:
        """Whether nulls in its columns are welcome."""
        return self.missing != "raise"

    def _has_own(self, *methods: str) -> bool:
        """Whether these methods are more than the defaults of this class."""
        return all(getattr(type(self), name) is not getattr(Form, name) for name in methods)

    # -- for people ----------------------------------------------------------------------------
    def to_frame(self, state: FormState) -> pl.DataFrame:
        """Show what was learned. With a column `probability` it has a line per row of the fit, in
        their order, and `model.parameters` adds expected heads and tails."""
        return pl.DataFrame({"form": [repr(self)]})

    def kept_features(self, state: FormState) -> Mapping[str, pl.Series]:
        """Give the features of the rows that `to_frame` lists, if the state keeps them."""
        return {}

    def summary(self, state: FormState) -> str:
        """Say in a few words what was learned, for `print(model)`."""
        frame = self.to_frame(state)
        if "probability" not in frame.columns:
            return f"{len(frame):,} lines of parameters"
        if len(frame) == 1:
            return f"= {frame['probability'][0]:.4f}"
        mean: Any = frame["probability"].mean()
        return f"{len(frame):,} rows, mean {mean:.4f}" if len(frame) else ""

    def remarks(self, state: FormState, heads: Floats, tails: Floats) -> list[str]:
        """Say what a user should know about a finished fit."""
        return []

    def coefficients(self, state: FormState) -> pl.DataFrame | None:
        """Show coefficients, for `model.coefficients`; None if it has none."""
        return None

    def posterior(
        self, state: FormState, rows: Rows, probability: Floats, counts: Floats | None
    ) -> Posterior:
        """Tell how sure it is of rows, whose probabilities are known already; by default it does
        not tell. `counts` are expected tails and heads of the rows of the fit, if there was one."""
        n = len(rows)
        own = "features" if self.columns else ", ".join(rows.keys) or "all"
        rests_on = np.full(n, own)
        return Posterior(np.zeros(n), probability, np.full(n, np.nan), rests_on)

    def possible(
        self,
        state: FormState,
        rows: Rows,
        found: Posterior,
        n_draws: int,
        seed: tuple[int, ...],
        shared: Mapping[str, Floats],
    ) -> tuple[Floats, Floats]:
        """Tell means and deviations of rows as they might be, `[row, draw]`, when what rows have in
        common is drawn: numbers of this form by the seed, and logits of global coins as `shared`
        has them, less those that were found, `[row of the coin, draw]`. `found` is what is believed
        of rows over all draws. By default each row errs for itself."""
        shape = len(rows), n_draws
        return (
            np.broadcast_to(found.mean[:, None], shape),
            np.broadcast_to(found.spread[:, None], shape),
        )

    def places(self, state: FormState, rows: Rows) -> NDArray[np.int64] | None:
        """Tell where rows stand among those of a state with a probability for each, -1 for rows
        that are not there; None if it has no such list."""
        return None

    def drawn(self, state: FormState, rng: np.random.Generator) -> FormState:
        """Draw a state from the posterior; the same one if it has none."""
        return state

    def drawn_along(self, state: FormState, rng: np.random.Generator, moved: Moved) -> FormState:
        """Draw a state from the posterior when what rows have in common has moved."""
        return self.drawn(state, rng)

    # -- in files ------------------------------------------------------------------------------
    @property
    def can_be_saved(self) -> bool:
        """Whether its class says itself how it is saved, and no other has its name. What a parent
        writes may not be all that there is to know."""
        own = vars(type(self)).keys() >= {"to_data", "from_data"}
        return own and _classes.get(self.name_in_files) == [type(self)]

    def to_data(self, state: FormState) -> tuple[dict[str, Any], Parts]:
        """Describe the form and its state by JSON, frames and bytes, to be saved."""
        raise SavedModelError(f"The form {self!r} has no data format.")

    @classmethod
    def from_data(cls, data: dict[str, Any], parts: Any) -> tuple[Form, FormState]:
        """Make the form and the state that `to_data` described; nothing in it may be run."""
        raise SavedModelError(f"The form {cls.name_in_files} has no data format.")

    def in_files(self, state: FormState) -> PartedTable | None:
        """Give the state as one whose rows are in files, if they are."""
        return None

    def whole(self, state: FormState) -> FormState:
        """Give the state with all rows in memory."""
        return state

    @property
    def is_split(self) -> bool:
        """Whether rows by query are fitted and kept part by part where a log is in parts."""
        return False

    # -- from other fits and other logs --------------------------------------------------------
    def adopted(self, state: FormState, rows: Rows) -> FormState | None:
        """Make a state for a fit on these rows from that of an earlier fit of such a form with the
        same columns; None if there is no better way than by its probabilities."""
        return None

    def starting_at(self, state: FormState, rows: Rows, probability: Floats) -> FormState:
        """Bring a state that was just begun as close to probabilities of its rows as it comes."""
        near = self.fit(rows, probability, 1 - probability, state)
        errors = [
            float(np.abs(np.asarray(self.predict(it, rows)) - probability).sum())
            for it in (near, state)
        ]
        return near if errors[0] <= errors[1] else state

    def memory(self, state: FormState, counts: Floats, decay: float) -> Memory | None:
        """Tell what an update goes on from; None if it cannot be updated. See forms/memory.py."""
        return None

    # -- numbers that are given ----------------------------------------------------------------
    @property
    def takes_values(self) -> bool:
        """Whether a state can be made of numbers that the user knows."""
        return self._has_own("given")

    def given(self, values: Any, keys: tuple[str, ...], coin: str) -> FormState:
        """Make a state from numbers that the user knows: one for all rows, or by key."""
        raise ModelError(f"The form {self!r} of '{coin}' takes no values.")

    def given_together(self, values: Mapping[str, Any]) -> FormState:
        """Make a state from what the user knows of each coin; asked of forms that are joint."""
        raise NotImplementedError

    def given_rows(self, rows: Rows) -> Bools:
        """Tell which rows the user has given, so that no fit moves them."""
        return np.zeros(len(rows), bool)

    def has_given(self, state: FormState) -> bool:
        """Whether some probability of a state was given."""
        return False

    # -- priors --------------------------------------------------------------------------------
    def learned_prior(self, keys: Sequence[str]) -> Empirical | None:
        """Tell the prior to be learned for rows by these keys, if one is."""
        return None

    def prior_strength(self, state: FormState) -> float:
        """Tell how many flips the prior of a row is worth, on average."""
        return 0.0

    def tuned(
        self, state: FormState, rows: Rows, heads: Floats, tails: Floats, information: Floats
    ) -> FormState:
        """Give the state a better prior, or return the very same one; `information` is that on the
        logit of each row. Asked of forms with `learns_prior`."""
        return state

    def column_of(self, coin: str) -> str | None:
        """Tell the column of numbers that a coin is the density of; None if it is flipped."""
        return None

    # -- several coins -------------------------------------------------------------------------
    def fit_together(
        self, rows: Rows, counts: Mapping[str, Floats], previous: FormState
    ) -> FormState:
        """Make the M-step with expected tails and heads by coin; asked of forms that are joint."""
        raise NotImplementedError

    def invented(self, generator: np.random.Generator, log: pl.DataFrame) -> FormState:
        """Make up a state, to check a model with; asked of forms that are joint."""
        raise NotImplementedError

    def score_together(self, state: FormState, rows: Rows, counts: Mapping[str, Floats]) -> Floats:
        """Differentiate the M-step's objective by the vector, likewise."""
        raise NotImplementedError

    # -- a vector ------------------------------------------------------------------------------
    @property
    def has_vector(self) -> bool:
        """Whether logits (or probits) are linear in a vector, which acceleration can
        extrapolate."""
        return self._has_own("vector", "from_vector")

    def vector(self, state: FormState) -> Floats:
        """Give the numbers that logits are linear in."""
        raise NotImplementedError

    def from_vector(self, state: FormState, vector: Floats) -> FormState:
        """Make the state with another vector."""
        raise NotImplementedError

    def logits(self, state: FormState, rows: Rows) -> Floats:
        """Tell the logit of every row."""
        return logit(self.predict(state, rows))

    def is_swept(self, *states: FormState) -> bool:
        """Whether these are tables so large that their rows are swept by kernels, not moved by
        their vector."""
        return False

    def moved_to(self, state: FormState, probability: Floats) -> FormState:
        """Give the rows of a state that is swept other probabilities."""
        raise NotImplementedError

    @property
    def has_score(self) -> bool:
        """Whether it can be differentiated by its vector."""
        return self.has_vector and self._has_own("score")

    def score(self, state: FormState, rows: Rows, heads: Floats, tails: Floats) -> Floats:
        """Differentiate the M-step's objective by the vector."""
        raise NotImplementedError

    # -- how sure rows are ---------------------------------------------------------------------
    @property
    def has_beliefs(self) -> bool:
        """Whether its states can be told how uncertain each row is beyond its coefficients."""
        return self._has_own("believed")

    def believed(
        self, state: FormState, rows: Rows, heads: Floats, tails: Floats, information: Floats
    ) -> FormState:
        """Give the state, at the end of a fit, what the log says of each row, in expected heads and
        tails; `information` is that on the logit of each row."""
        return state

    def own_effects(self, state: FormState) -> tuple[Floats, Floats, float] | None:
        """Tell mean and variance of the effect of each row of the fit that features do not explain,
        and how much these differ; None if it has none."""
        return None

    def logit_deviation(self, state: FormState, rows: Rows) -> Floats | None:
        """Tell how uncertain coefficients make the logit of each row: its standard deviation, NaN
        where nobody knows; None if it has no errors."""
        return None

    # -- errors of coefficients ----------------------------------------------------------------
    @property
    def has_errors(self) -> bool:
        """Whether its states can be told how uncertain the coefficients are."""
        return self._has_own("informed", "information", "n_coefficients")

    def n_coefficients(self, state: FormState) -> int:
        """Count the coefficients."""
        return 0

    def informed(
        self, state: FormState, covariance: Floats, is_exact: bool, unknown: Floats
    ) -> FormState:
        """Give the state the covariance of its coefficients; `unknown` has a column for each
        direction that the data say nothing about."""
        return state

    def information(self, state: FormState, rows: Rows, weight: Floats) -> Floats:
        """Tell the information on the coefficients if that on the logit of each row is `weight`."""
        raise NotImplementedError

    def squares(self, state: FormState, rows: Rows, weight: Floats) -> Floats:
        """Tell the information on each entry of the vector by itself, likewise."""
        return weight

    # -- other ways to learn -------------------------------------------------------------------
    @property
    def has_design(self) -> bool:
        """Whether its logits are a design matrix times its vector, so that a `Sum` can put the
        levels of tables beside its columns."""
        return self._has_own("design", "precision", "moved")

    def design(self, state: FormState, rows: Rows) -> Any:
        """Give the design of rows, a `forms.features.DesignMatrix`."""
        raise NotImplementedError

    def precision(self, n: int) -> Floats:
        """Tell the precision of the prior of each number of the vector."""
        raise NotImplementedError

    def moved(self, previous: FormState, solution: Any) -> FormState:
        """Make the state from where a regression ended, a `forms.linear.Optimum`."""
        raise NotImplementedError

    @property
    def takes_offsets(self) -> bool:
        """Whether it can stand inside a `Sum` without tables, though it has no design."""
        return self._has_own("fit_around", "logits")

    def fit_around(
        self,
        rows: Rows,
        heads: Floats,
        tails: Floats,
        previous: FormState,
        offsets: Floats,
        variance: float,
    ) -> tuple[FormState, Floats]:
        """Make the M-step of a sum: a state, and an offset per row with a prior variance."""
        raise NotImplementedError

    def trainable(self, state: FormState, rows: Rows) -> Any:
        """Make what `Gradient` moves, a `forms.trainable.Trainable`; None if it has no gradient."""
        return None


# Classes by the name that files know them by. Two of one name are no matter until one is saved.
_classes: dict[str, list[type[Form]]] = {}


def _register(form: type[Form]) -> None:
    """Make a class known to files; one that is defined again, as in a notebook, is replaced."""
    named = _classes.setdefault(form.name_in_files, [])
    place = (form.__module__, form.__qualname__)
    named[:] = [other for other in named if (other.__module__, other.__qualname__) != place]
    # Nobody takes the name of a form of this package.
    if not any(other.__module__.startswith("gecasmo.") for other in named):
        named.append(form)


def form_named(name: str) -> type[Form]:
    """Find the class of a saved form."""
    named = _classes.get(name, [])
    if not named:
        raise SavedModelError(
            f"The form {name!r} is not known to this version. If it is one of your own, import it "
            "first."
        )
    if len(named) > 1:
        listed = ", ".join(f"{form.__module__}.{form.__qualname__}" for form in named)
        raise SavedModelError(
            f"Several forms are called {name!r}: {listed}. Give one of them another name: class "
            f'{named[-1].__name__}(Form, name="...").'
        )
    return named[0]


def _parameters(form: type[Form]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(form).parameters


def _written(value: Any) -> str:
    """Write a value as a user would: short numbers, functions and networks by their name."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple) and value and all(isinstance(it, float) for it in value):
        return f"({', '.join(map(_written, value))})"
    if hasattr(value, "state_dict"):
        return type(value).__name__
    name = getattr(value, "__name__", None)
    return repr(value) if isinstance(value, str) else name or " ".join(repr(value).split())


def as_key(key: str | tuple[str, ...] | list[str] | None) -> tuple[str, ...] | None:
    """Check a key given as one name or as several."""
    from gecasmo.language.parameter import check_keys

    if key is None:
        return None
    return check_keys((key,) if isinstance(key, str) else tuple(key))


def as_columns(columns: Sequence[Any], form: str) -> tuple[str, ...]:
    """Check names of feature columns: at least one, each once."""
    from gecasmo.language.parameter import check_keys

    odd = [column for column in columns if not isinstance(column, str)]
    if odd or not columns:
        shown = f", not {odd[0]!r}" if odd else ""
        raise ModelError(f'{form} takes the names of columns, such as {form}("price"){shown}.')
    if "result" in columns:
        raise ModelError(
            f"{form}: 'result' numbers the shown results, so it is a key and no feature. A column "
            "of the log with that name has to be renamed."
        )
    return check_keys(tuple(columns))
