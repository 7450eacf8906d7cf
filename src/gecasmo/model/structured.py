"""What a model is made of: an automaton, a form for each coin and, once fitted, their states.

Instead of a fit a user may know the probabilities; what is given becomes forms and states here.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import polars as pl

from gecasmo.compiler import Automaton
from gecasmo.compiler.hide import hide
from gecasmo.compiler.symmetry import is_exchangeable
from gecasmo.encoding import EncodedLog, Wanted, encode
from gecasmo.encoding.observations import (
    LAST_CLICK,
    check_observed,
    observed_columns,
    unrecorded_signals,
)
from gecasmo.errors import ClickLogError, ModelError, NotFittedError, extra
from gecasmo.forks import refuse_lost_fork
from gecasmo.forms import Fixed, Form, FormState, Table
from gecasmo.forms.fixed import NUMBERS
from gecasmo.kernels.library import (
    COUNTING_KERNELS,
    FULL_KERNELS,
    LIFTED_KERNELS,
    Library,
    Structure,
)
from gecasmo.kernels.plan import Plan
from gecasmo.language import HISTORY_KEYS, POSITION_KEYS
from gecasmo.logs import ClickLog
from gecasmo.logs.views import View, ViewedLog, as_view
from gecasmo.model.log_parts import in_memory

if TYPE_CHECKING:
    from gecasmo.estimation.draws import Draws
    from gecasmo.estimation.shared_errors import SharedErrors
    from gecasmo.model.fit import FitReport

Augmentation = Literal["minimal", "full"]

# What every log has, or a log can be made without.
_COMMON_COLUMNS = ("session", "query", "doc", LAST_CLICK, "click", *POSITION_KEYS, *HISTORY_KEYS)


class Needs(NamedTuple):
    """The columns that a model needs of a log beyond sessions, queries, documents, ranks and
    clicks: what it explains (yes or no, null where not recorded), what it asks (yes or no), and
    what its coins are keyed by; and the numbers that users are seen through (null where not
    recorded). What its view makes of a log is not needed; what it is made of is:
    of several columns in a tuple, one."""

    signals: tuple[str, ...]
    guards: tuple[str, ...]
    keys: tuple[str, ...]
    view: tuple[tuple[str, ...], ...] = ()
    numbers: tuple[str, ...] = ()


class StructuredModel:
    """All of a `Model` but the questions it answers."""

    relevance: tuple[str, ...] = ()
    view: str | View = "pages"  # in which order a log is read

    def __init__(
        self,
        name: str,
        declared_keys: Mapping[str, tuple[str, ...]],
        forms: Mapping[str, Form | float],
        program: str = "",
    ) -> None:
        self.name = name
        self.declared_keys = dict(declared_keys)
        self.program = program
        self.forms: dict[str, Form] = self._check_forms(forms)
        self.states_: dict[str, FormState] | None = None
        self.report_: FitReport | None = None
        self.features_: dict[str, pl.DataFrame] = {}
        self.pairs_: pl.DataFrame | None = None  # of the fit, where forms on features need them
        self.draws_: Draws | None = None  # from the posterior, of a fit by Gibbs
        self.errors_: SharedErrors | None = None  # of what pages share, of other fits
        self.kept_: Any = None  # the folder that rows in files are read from
        self._structures: tuple[Structure, Structure] | None = None
        self._libraries: dict[tuple[Plan, bool], Library] = {}

    def _check_forms(self, forms: Mapping[str, Form | float]) -> dict[str, Form]:
        self._check_names(forms)
        checked: dict[str, Form] = {}
        for coin in self.declared_keys:
            given = forms.get(coin, Table())
            form: Any = given
            if isinstance(given, NUMBERS) and not isinstance(given, bool):
                form = Fixed(given)
            if not isinstance(form, Form):
                raise ModelError(
                    f"{self.name}({coin}={form!r}): a form is wanted, such as Table(), "
                    "Table(key='doc') or Fixed(0.9); one of your own derives from gecasmo.Form."
                )
            checked[coin] = form
        return checked

    def _check_names(self, coins: Iterable[str]) -> None:
        unknown = [name for name in coins if name not in self.declared_keys]
        if unknown:
            raise ModelError(
                f"{self.name} has no coin '{unknown[0]}'. Its coins are: "
                f"{', '.join(self.declared_keys)}."
            )

    # -- structure -----------------------------------------------------------------------------
    def _trace(self) -> Automaton:
        raise NotImplementedError

    @property
    def structure(self) -> Structure:
        """The automaton that answers run on, with all that follows from it."""
        return self._both_structures()[0]

    @property
    def counting_structure(self) -> Structure:
        """The automaton that fits run on: it also sees signals which tell of clicks below."""
        return self._both_structures()[1]

    def _both_structures(self) -> tuple[Structure, Structure]:
        if self._structures is None:
            counting = Structure(self._trace())
            visible = hide(counting.traced, (LAST_CLICK,))
            answers = counting if visible is counting.traced else Structure(visible)
            self._structures = (answers, counting)
        return self._structures

    @property
    def automaton(self) -> Automaton:
        """The automaton with the fewest states and flips that has the model's likelihood."""
        return self.counting_structure.minimal.body

    @property
    def traced_automaton(self) -> Automaton:
        """The automaton with every flip that the program makes."""
        return self.counting_structure.traced

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """The key columns in force: those of the form where it names some, else the declared."""
        return {
            coin: form.keys(self.declared_keys[coin], self.features_.get(coin))
            for coin, form in self.forms.items()
        }

    @property
    def needs(self) -> Needs:
        """The columns that this model needs of a log, beyond those that every log has."""
        traced = self.traced_automaton
        numbered = traced.numbered_rows()
        coins = [coin for coin in self.forms if coin not in {*numbered, *dict(traced.observes)}]
        by_key = (key for coin in coins for key in self.keys[coin])
        wanted = (traced.signals, traced.guard_columns(), dict.fromkeys(by_key))
        view = as_view(self.view)
        there = (*_COMMON_COLUMNS, *view.guards, *view.keys, *view.signals)
        found = [tuple(name for name in names if name not in there) for names in wanted]
        return Needs(found[0], found[1], found[2], view.needs, traced.observed_columns())

    @property
    def is_exchangeable(self) -> bool:
        """Whether a fit from equal values would never tell parts of the model apart."""
        keys = self.keys
        kinds = {
            # What is given moves neither with others nor away from them.
            coin: coin if form.constant is not None else (keys[coin], repr(form))
            for coin, form in self.forms.items()
        }
        return is_exchangeable(self.structure.traced, kinds)

    def answer_keys(self, columns: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The keys that answers need of a log with these columns: a coin that has one given number
        for all rows does without those that are not there."""
        found = {*columns, *POSITION_KEYS, *HISTORY_KEYS}
        keys = self.keys
        for coin, state in (self.states_ or {}).items():
            if self.forms[coin].is_same_everywhere(state):
                keys[coin] = tuple(key for key in keys[coin] if key in found)
        return keys

    @property
    def page_readers(self) -> list[str]:
        """The coins whose forms look at whole pages, and so at the clicks above a result."""
        return [coin for coin, form in self.forms.items() if form.reads_pages]

    def wanted(self) -> dict[str, Wanted]:
        """The feature columns that forms read; coins that share a form share the entry."""
        by_form: dict[int, Wanted] = {}
        wanted = {}
        for coin, form in self.forms.items():
            if not form.columns:
                continue
            if id(form) not in by_form:
                frame = self.features_.get(coin)
                by_form[id(form)] = Wanted(
                    form.columns, form.allows_missing, frame, form.reads_pages
                )
            wanted[coin] = by_form[id(form)]
        return wanted

    def with_features(self, **frames: Any) -> Self:
        """A copy that reads features of these coins from data frames, found by their key.

        Each frame has the key columns of the coin's rows and the columns that its form reads; what
        it lacks of these comes from the log. A frame for one coin serves all that share its form.
        """
        self._check_names(frames)
        twin = self.copy()
        for coin, given in frames.items():
            frame = as_frame(given, coin)
            if not self.forms[coin].columns:
                raise ModelError(
                    f"{self.name}: the form {self.forms[coin]!r} of '{coin}' reads no features."
                )
            for other, form in self.forms.items():
                if form is not self.forms[coin]:
                    continue
                if other in frames and frames[other] is not given:
                    raise ModelError(
                        f"{self.name}: '{coin}' and '{other}' share a form, so they have one frame "
                        "of features, not two."
                    )
                twin.features_[other] = frame
        return twin

    def library(self, plan: Plan, counting: bool = False) -> Library:
        """The kernels for a plan, of the automaton that answers or of the one that counts."""
        structure = self.counting_structure if counting else self.structure
        key = (plan, structure is self.structure)
        if key not in self._libraries:
            self._libraries[key] = Library(structure.of_log(plan.unrecorded, plan.observed), plan)
        return self._libraries[key]

    @property
    def foreseen(self) -> list[str]:
        """The keys of coins that tell of what users do later."""
        told = as_view(self.view).foreseen
        return [key for keys in self.keys.values() for key in keys if key in told]

    def viewed(self, log: ClickLog) -> ClickLog:
        """The log in the order in which this model reads it."""
        return as_view(self.view).apply(log)

    def encode(
        self,
        log: ClickLog,
        kernel: str,
        augmentation: Augmentation = "minimal",
        with_missing: bool = False,
        counting: bool | None = None,
        **options: Any,
    ) -> EncodedLog:
        """The log as the arrays that a kernel of this model reads, in the order of its view."""
        refuse_lost_fork()
        given = in_memory(log)
        log = self.viewed(given)
        if isinstance(log, ViewedLog) and log is not given and options.get("missing") is not None:
            options["missing"] = options["missing"][log.rows]
        if augmentation not in ("minimal", "full"):
            raise ModelError(f"augmentation={augmentation!r}: choose 'minimal' or 'full'.")
        if counting is None:
            counting = kernel in COUNTING_KERNELS
        structure = self.counting_structure if counting else self.structure
        if kernel in FULL_KERNELS:
            augmentation = "full"
        observed = self._observed(log, kernel)
        structure = structure.of_log(unrecorded_signals(log, structure.traced), observed)
        machine = structure.machine(augmentation, with_missing)
        keys = self.keys if kernel in COUNTING_KERNELS else self.answer_keys(log.columns)
        wanted = self.wanted()
        if self.page_readers and (isinstance(log, ViewedLog) or as_view(self.view).name != "pages"):
            raise ModelError(
                f"The form of '{self.page_readers[0]}' reads pages from the top, and {self.name} "
                f"has the view '{as_view(self.view).name}'."
            )
        for coin, column in structure.traced.observes:
            if column not in (observed or ()):
                # Nobody looks at it: one row will do, and weighs 1.
                keys[coin] = ()
                wanted.pop(coin)
        if observed:
            check_observed(log, structure.traced)
        options |= {"wanted": wanted, "observed": observed}
        return encode(log, structure.traced, machine, keys, **options)

    def _observed(self, log: ClickLog, kernel: str) -> tuple[str, ...] | None:
        """The numbers that a kernel looks at in a log; None if the model has none, or where
        nothing at all is looked at."""
        automaton = self.counting_structure.traced
        if not automaton.observes or kernel in LIFTED_KERNELS:
            return None
        for coin, column in automaton.observes:
            if column in log.columns:
                form: Any = self.forms[coin]
                form.check(log.column(column))
            elif kernel in COUNTING_KERNELS:
                raise ClickLogError(
                    f"The model observes '{column}', and the log has no such column.\n"
                    f"  It has: {', '.join(log.columns)}."
                )
        return observed_columns(log, automaton)

    # -- states ----------------------------------------------------------------------------------
    @property
    def is_fitted(self) -> bool:
        """Whether the model has probabilities, by a fit or by hand."""
        return self.states_ is not None

    def states(self, whole: bool = True) -> dict[str, FormState]:
        """The state of every coin's form.

        Tables whose rows are in files are read into memory, unless `whole=False`.
        """
        refuse_lost_fork()
        if self.states_ is None:
            raise NotFittedError(
                f"This {self.name} has no probabilities yet: fit it with .fit(log), or give them "
                f"with {self.name}.with_values(...)."
            )
        if not whole:
            return self.states_
        found = {coin: self.forms[coin].whole(state) for coin, state in self.states_.items()}
        is_read = any(found[coin] is not state for coin, state in self.states_.items())
        return found if is_read else self.states_

    @property
    def history(self) -> pl.DataFrame:
        """Iteration, objective, log-likelihood, seconds and round of the fit.

        Priors that are learned change from round to round; objectives are only comparable within
        one.
        """
        from gecasmo.estimation import Record

        records = [] if self.report_ is None else self.report_.history
        columns = list(zip(*records, strict=True)) or [()] * len(Record._fields)
        types = (pl.Int64, pl.Float64, pl.Float64, pl.Float64, pl.Int64)
        return pl.DataFrame(
            {
                name: pl.Series(column, dtype=dtype)
                for name, column, dtype in zip(Record._fields, columns, types, strict=True)
            }
        )

    def copy(self) -> Self:
        """An independent model with the same forms and the same fit."""
        twin = copying.copy(self)
        twin._structures = self._structures
        twin.forms = dict(self.forms)
        twin.states_ = None if self.states_ is None else dict(self.states_)
        twin.features_ = dict(self.features_)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        # Kernels are of this process; another one finds them in the cache, or makes its own.
        return {**self.__dict__, "_structures": None, "_libraries": {}}

    # -- as scikit-learn asks ------------------------------------------------------------------
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The form of each coin; with `deep` also the options of forms, as `coin__option`."""
        params: dict[str, Any] = dict(self.forms)
        for coin, form in self.forms.items() if deep else ():
            params |= {f"{coin}__{name}": value for name, value in form.options().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Give coins other forms, or forms other options: `attraction__pseudo_counts=(1, 3)`.

        The model is not fitted afterwards. Coins that share a form still do.
        """
        whole = {name: value for name, value in params.items() if name in self.forms}
        forms = self._check_forms({**self.forms, **whole})
        for name in params.keys() - whole.keys():
            coin, _, option = name.partition("__")
            self._check_names([coin])
            before = forms[coin]
            if option not in before.options():
                raise ModelError(
                    f"{self.name}: the form {before!r} of '{coin}' has no option '{option}'. It "
                    f"has: {', '.join(before.options())}."
                )
            after = before.from_options({**before.options(), option: params[name]})
            forms = {other: after if form is before else form for other, form in forms.items()}
        self.forms = forms
        self.states_ = self.report_ = self.pairs_ = self.draws_ = self.errors_ = None
        return self

    def __sklearn_clone__(self) -> Self:
        twin = self.copy()
        twin.forms = copying.deepcopy(self.forms)  # at once: coins that share a form still do
        twin.states_ = twin.report_ = twin.kept_ = twin.pairs_ = None
        twin.draws_ = twin.errors_ = None
        return twin

    def __sklearn_tags__(self) -> Any:
        utils = extra("sklearn.utils", "This question")
        return utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            input_tags=utils.InputTags(two_d_array=False, string=True, allow_nan=True),
        )


def as_frame(given: Any, coin: str) -> pl.DataFrame:
    """A data frame of any kind as a Polars one."""
    if isinstance(given, pl.DataFrame):
        return given
    if isinstance(given, pl.LazyFrame):
        return given.collect()
    if not isinstance(given, Mapping) and not hasattr(given, "__arrow_c_stream__"):
        raise ModelError(
            f"A data frame is wanted for '{coin}' (Polars, pandas, PyArrow or a dictionary of "
            f"columns), not {type(given).__name__}."
        )
    return pl.DataFrame(given)


def split_forms(
    name: str, values: Mapping[str, Any], coins: Iterable[str]
) -> tuple[dict[str, Form], dict[str, Any]]:
    """The tables that come with some of the values, and the values themselves."""
    coins = list(coins)
    missing = [coin for coin in coins if coin not in values]
    if missing:
        raise ModelError(f"{name}.with_values lacks {', '.join(missing)}.")
    unknown = [coin for coin in values if coin not in coins]
    if unknown:
        raise ModelError(f"{name} has no coin '{unknown[0]}'. Its coins are: {', '.join(coins)}.")
    forms: dict[str, Form] = {}
    plain: dict[str, Any] = {}
    for coin, value in values.items():
        plain[coin] = value
        if isinstance(value, tuple):
            if len(value) != 2 or not (isinstance(value[0], Form) and value[0].takes_values):
                raise ModelError(
                    f"{coin}={value!r}: give a number, a dictionary by key, a frame, or a table "
                    "with its values, such as (Table(key='doc'), {'d7': 0.3})."
                )
            forms[coin], plain[coin] = value
        if isinstance(plain[coin], Form) and plain[coin].constant is not None:
            plain[coin] = plain[coin].constant
    return forms, plain


def given_states(
    forms: Mapping[str, Form], keys: Mapping[str, tuple[str, ...]], values: Mapping[str, Any]
) -> dict[str, FormState]:
    """The states of forms that hold these values."""
    states: dict[str, FormState] = {}
    for coin, form in forms.items():
        if not form.is_joint:
            states[coin] = form.given(values[coin], keys[coin], coin)
        elif coin not in states:
            own = [other for other in forms if forms[other] is form]
            states |= dict.fromkeys(own, form.given_together({one: values[one] for one in own}))
    return {coin: states[coin] for coin in forms}
