"""A free table: every row has a probability of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.match import key_hashes, match, values_by_key
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.forms import saved
from gecasmo.forms.fixed import NUMBERS
from gecasmo.forms.form import Bools, Floats, Form, Posterior, as_key
from gecasmo.forms.logits import expit, logit
from gecasmo.forms.priors import Empirical, Priors
from gecasmo.forms.table_state import (
    TableState,
    beta_draws,
    drawn_inside,
    posterior_evidence,
    state_from_data,
    state_to_data,
)
from gecasmo.kernels.static import row_sweeps
from gecasmo.kernels.static.row_steps import NEARLY_ONE

if TYPE_CHECKING:
    from gecasmo.forms.drawn_rows import Moved
    from gecasmo.forms.memory import Memory
    from gecasmo.forms.parted_table import PartedTable

    TableRows: TypeAlias = TableState | PartedTable  # in memory, or in files

# What is believed of rows: mean, spread if that is known, and what it rests on.
Believed = tuple[Floats, Floats | None, NDArray[np.str_]]
_EVERYTHING = "everything"  # all that a learned prior can depend on, in files
NOT_IDENTIFIED = "not identified"
# The deviation of a probability of which hardly anything is known; that of one which may be
# anything between 0 and 1 is 0.29.
_ANYTHING = 0.24


class Table(Form):
    """One free probability per row, drawn towards what is usual for rows like it.

    Parameters
    ----------
    *by : str
        Other key columns than those that the model declares, as `key`: `Table("doc")`. In a `Sum`,
        the columns whose levels have effects.
    pseudo_counts : (a, b), optional
        Heads and tails added to what is expected: a row answers
        (heads + a) / (heads + tails + a + b), and a row without counts a / (a + b). With (0, 0)
        such a row keeps its start value. (1, 1) unless the prior is learned.
    prior : "empirical" or Empirical(...), optional
        Learn the prior from the log instead. By default so for rows by query or document.
    start : float
        The probability of every row before the first iteration.
    fixed : dict
        Rows that are given, not estimated: `{1: 1.0}`, or `{(1, 0): 1.0}` for two keys.
    key : str or tuple of str
        The same as `by`; `()` is one row for all.
    """

    row_by_row = True
    has_posterior = True

    def __init__(
        self,
        *by: Any,
        pseudo_counts: tuple[float, float] | None = None,
        start: float = 0.5,
        fixed: Mapping[Any, float] | None = None,
        key: str | tuple[str, ...] | None = None,
        prior: str | Empirical | None = None,
    ) -> None:
        if len(by) == 1 and isinstance(by[0], tuple) and pseudo_counts is None:
            pseudo_counts, by = by[0], ()  # as it used to be written
        odd = [name for name in by if not isinstance(name, str)]
        if odd:
            raise ModelError(
                f'Table({odd[0]!r}): columns are named by texts, such as Table("doc").'
            )
        if by and key is not None:
            raise ModelError(f"Table({by[0]!r}, key={key!r}): columns once will do.")
        if pseudo_counts is not None and prior is not None:
            raise ModelError("Table(): give pseudo_counts, or a prior that is learned; not both.")
        if not 0 < start < 1:
            raise ModelError(f"start={start!r} must lie strictly between 0 and 1.")
        self.pseudo_counts = as_pseudo_counts(pseudo_counts)
        self.is_default = pseudo_counts is None and prior is None
        self.prior = _as_prior(prior)
        self.start = float(start)
        self.fixed = dict(fixed or {})
        self.key = as_key(by or key)

    def options(self) -> dict[str, Any]:
        is_learned = self.is_default or self.prior is not None
        is_plain = self.prior is not None and self.prior.by is None
        return {
            "by": self.key or (),
            **super().options(),
            "key": None if self.key else self.key,
            "pseudo_counts": None if is_learned else self.pseudo_counts,
            "fixed": self.fixed or None,
            "prior": "empirical" if is_plain else self.prior,
        }

    @property
    def otherwise(self) -> float:
        """The answer for a row that was never seen, as long as nothing is learned."""
        a, b = self.pseudo_counts
        return a / (a + b) if a + b > 0 else self.start

    def learned_prior(self, keys: Sequence[str]) -> Empirical | None:
        if self.is_default and ("query" in keys or "doc" in keys):
            return Empirical()
        return self.prior

    def begin(self, rows: Rows, generator: np.random.Generator | None) -> TableState:
        probability = np.full(len(rows), self.start)
        if generator is not None:
            # Coins must differ from each other for mixture components to part; rows barely.
            logit = np.log(self.start / (1 - self.start)) + generator.normal()
            probability = expit(logit + 0.1 * _noise(rows, int(generator.integers(2**63))))
        is_fixed = None
        if self.fixed:
            given, is_fixed = self._fixed_rows(rows)
            probability = np.where(is_fixed, given, probability)
        return TableState(rows, probability, self.otherwise, is_fixed, pseudo=self.pseudo_counts)

    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: TableState) -> TableState:
        if row_sweeps.is_large(len(rows)):
            return self.moved_to(
                previous,
                row_sweeps.fitted(
                    heads, tails, previous.pseudo, previous.is_fixed, previous.probability
                ),
            )
        a, b = previous.pseudo
        total = heads + tails + (a + b)
        probability = np.divide(heads + a, total, out=previous.probability.copy(), where=total > 0)
        # No row is certain that has shown both sides, whatever is lost in adding up.
        most = np.where(tails + b > 0, NEARLY_ONE, 1.0)
        probability = np.where(total > 0, np.minimum(probability, most), probability)
        if previous.is_fixed is not None:
            probability = np.where(previous.is_fixed, previous.probability, probability)
        return self.moved_to(previous, probability)

    def moved_to(self, state: TableState, probability: Floats) -> TableState:
        """Give rows other probabilities; the posteriors of the old ones are gone."""
        return replace(state, probability=probability, spread=None, centre=None)

    def predict(self, state: TableRows, rows: Rows) -> Floats:
        answer: Floats = state.ask(self._predict, rows)
        return answer

    def _predict(self, state: TableState, rows: Rows) -> Floats:
        if rows is state.rows:
            return state.probability
        found = self.places(state, rows)
        seen = found >= 0
        answer = np.full(len(rows), state.otherwise)
        if state.priors is not None and not seen.all():
            answer = state.priors.of_unseen(rows)[1]
        answer[seen] = state.probability[found[seen]]
        if self.fixed and not seen.all():
            given, is_fixed = self._fixed_rows(rows)
            answer = np.where(is_fixed & ~seen, given, answer)
        return answer

    def known(self, state: TableRows, rows: Rows) -> Bools:
        known: Bools = state.ask(self._known, rows)
        return known

    def _known(self, state: TableState, rows: Rows) -> Bools:
        if rows is state.rows or state.is_constant:
            return np.ones(len(rows), bool)
        return self.places(state, rows) >= 0

    def penalty(self, state: TableRows) -> float:
        return sum(self._penalty(part) for part, _ in state.parts())

    def _penalty(self, state: TableState) -> float:
        if row_sweeps.is_large(len(state.probability)):
            return row_sweeps.penalty(state.probability, state.pseudo, state.is_fixed)
        free = slice(None) if state.is_fixed is None else ~state.is_fixed
        p = state.probability[free]
        total = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            for counts, logs in zip(state.pseudo, (np.log(p), np.log1p(-p)), strict=True):
                own = counts[free] if isinstance(counts, np.ndarray) else counts
                total += float(np.where(own > 0, own * logs, 0.0).sum())
        return total

    def with_prior(self, state: TableState, priors: Priors, pseudo: Floats) -> TableState:
        """Give the state learned priors, which are worth these heads and tails of each row."""
        mean = pseudo[0] / pseudo.sum(axis=0)
        otherwise = float(mean.mean()) if len(mean) else self.otherwise
        return replace(state, priors=priors, pseudo=pseudo, otherwise=otherwise, spread=None)

    def with_posterior(self, state: TableState, mean: Floats, spread: Floats) -> TableState:
        """Give the state posterior means and standard deviations of its rows."""
        mean = np.clip(mean, 1e-300, NEARLY_ONE)  # by a prior nothing is certain
        if state.is_fixed is not None:
            mean = np.where(state.is_fixed, state.probability, mean)
            spread = np.where(state.is_fixed, 0.0, spread)
        probability = state.probability if state.priors is None else mean
        state = replace(state, probability=probability, centre=mean, spread=spread)
        return replace(state, evidence=posterior_evidence(state, mean, spread))

    def trainable(self, state: TableState, rows: Rows) -> Any:
        from gecasmo.forms.trainable import TrainableTable

        return TrainableTable(self, state)

    def memory(self, state: TableState, counts: Floats, decay: float) -> Memory:
        from gecasmo.forms.memory import TableMemory

        return TableMemory(self, state, counts, decay)

    def unseen(self, state: TableRows, rows: Rows) -> Believed:
        """Tell the prior of rows that the fit had no part of: mean, spread, and what that rests
        on."""
        believed: Believed = state.ask(self._unseen, rows)
        return believed

    def _unseen(self, state: TableState, rows: Rows) -> Believed:
        if state.priors is not None:
            pseudo, mean, told = state.priors.of_unseen(rows)
            return mean, np.sqrt(mean * (1 - mean) / (pseudo.sum(axis=0) + 1)), told
        mean = np.full(len(rows), state.otherwise)
        if state.is_constant:
            return mean, None, np.full(len(rows), "given")
        a, b = state.pseudo
        spread = np.sqrt(mean * (1 - mean) / (float(a) + float(b) + 1))
        return mean, spread, np.full(len(rows), "prior")

    def is_same_everywhere(self, state: TableRows) -> bool:
        return isinstance(state, TableState) and state.is_constant

    def summary(self, state: TableRows) -> str:
        return state.summary()

    def remarks(self, state: TableRows, heads: Floats, tails: Floats) -> list[str]:
        n_idle, first = (0, None) if state.has_prior else state.idle(heads + tails)
        if not n_idle:
            return []
        return [
            f"{n_idle:,} of {state.n_rows:,} rows were never flipped and, without "
            f"pseudo-counts, keep their start value {self.start:g} (first: {first})"
        ]

    def vector(self, state: TableState) -> Floats:
        if row_sweeps.is_large(len(state.probability)):
            return row_sweeps.logits(state.probability)
        return logit(state.probability)

    def score(self, state: TableState, rows: Rows, heads: Floats, tails: Floats) -> Floats:
        a, b = state.pseudo
        slope: Floats = heads + a - (heads + tails + a + b) * state.probability
        return slope if state.is_fixed is None else np.where(state.is_fixed, 0.0, slope)

    def from_vector(self, state: TableState, vector: Floats) -> TableState:
        probability = expit(vector)
        if state.is_fixed is not None:
            probability = np.where(state.is_fixed, state.probability, probability)
        return self.moved_to(state, probability)

    def to_frame(self, state: TableRows) -> pl.DataFrame:
        state = self.whole(state)
        column = pl.Series("probability", state.probability)
        return pl.DataFrame([*state.rows.frame.get_columns(), column])

    def to_data(self, state: TableState) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
        data, frames = state_to_data(state)
        prior: Any = self.prior
        if prior is not None:
            prior = _EVERYTHING if prior.by is None else list(prior.by)
        return {
            "pseudo_counts": list(self.pseudo_counts),
            "start": self.start,
            "key": None if self.key is None else list(self.key),
            "fixed": list(map(list, _as_items(self.fixed))),
            "is_default": self.is_default,
            "prior": prior,
            **data,
        }, frames

    @classmethod
    def from_data(
        cls, data: dict[str, Any], frames: dict[str, pl.DataFrame]
    ) -> tuple[Table, TableState]:
        prior = data.get("prior")
        is_free = prior is not None or data.get("is_default", False)
        counts = as_pseudo_counts(data["pseudo_counts"])  # checked also where a prior takes over
        form = cls(
            pseudo_counts=None if is_free else counts,
            start=data["start"],
            fixed={
                tuple(key): saved.number(value, "A row that is given", least=0, most=1)
                for key, value in data["fixed"]
            },
            key=None if data["key"] is None else tuple(data["key"]),
            prior=None if prior is None else Empirical(None if prior == _EVERYTHING else prior),
        )
        return form, state_from_data(data, frames, form.pseudo_counts)

    @property
    def is_split(self) -> bool:
        # What derives from a table may look at all rows.
        return type(self) is Table

    def in_files(self, state: TableRows) -> PartedTable | None:
        return state.in_files

    def whole(self, state: TableRows) -> TableState:
        return state.whole()[0]

    def starting_at(self, state: TableState, rows: Rows, probability: Floats) -> TableState:
        if state.is_fixed is not None:
            probability = np.where(state.is_fixed, state.probability, probability)
        return replace(state, probability=probability)

    def is_swept(self, *states: TableState) -> bool:
        # What derives from a table may have a vector of its own.
        return type(self) is Table and all(
            state.in_files is None and row_sweeps.is_large(state.n_rows) for state in states
        )

    def posterior(
        self, state: TableState, rows: Rows, probability: Floats, counts: Floats | None
    ) -> Posterior:
        """Tell how sure it is of rows, also of those that no fit has seen."""
        n, keys = len(rows), rows.keys
        found = self.places(state, rows) if keys else np.zeros(n, np.int64)
        seen = found >= 0
        trials, spread, centre = np.zeros(n), np.full(n, np.nan), probability.copy()
        if counts is not None:
            trials[seen] = counts.sum(axis=0)[found[seen]]
        if state.is_constant:
            return Posterior(trials, centre, spread, np.full(n, "given"))
        if state.spread is not None and state.centre is not None:
            spread[seen] = state.spread[found[seen]]
            centre[seen] = state.centre[found[seen]]
        _, unseen_spread, rests_on = self.unseen(state, rows)
        if unseen_spread is not None:
            spread[~seen] = unseen_spread[~seen]
        is_fixed = np.zeros(n, bool)
        if state.is_fixed is not None:
            is_fixed[seen] = state.is_fixed[found[seen]]
        is_fixed |= self.given_rows(rows)  # also of rows that the log never showed
        spread[is_fixed] = 0.0
        told = np.where(trials > 0, ", ".join(keys) or "all", rests_on)
        if state.spread is not None:
            # Flipped, and still nothing tells how it came up.
            told = np.where((trials > 0) & is_open(keys, spread), NOT_IDENTIFIED, told)
        if counts is None:  # the user's own numbers
            is_fixed |= seen
            spread[seen] = np.nan
        return Posterior(trials, centre, spread, np.where(is_fixed, "given", told))

    def possible(
        self,
        state: TableState,
        rows: Rows,
        found: Posterior,
        n_draws: int,
        seed: tuple[int, ...],
        shared: Mapping[str, Floats],
    ) -> tuple[Floats, Floats]:
        """Tell means and deviations of rows, `[row, draw]`, with slopes of learned priors drawn."""
        mean, spread = (
            np.array(own) for own in super().possible(state, rows, found, n_draws, seed, shared)
        )
        if state.priors is None or state.evidence is None:
            return mean, spread
        from gecasmo.forms.drawn_rows import DrawnSlopes, drawn_rows, drawn_unseen

        slopes = DrawnSlopes.of(state.priors, n_draws, seed)
        places = self.places(state, rows)
        unsure = found.spread > 0  # what is given is certain
        seen, unseen = np.flatnonzero((places >= 0) & unsure), np.flatnonzero((places < 0) & unsure)
        chosen = pl.Series(unseen)
        others = Rows(rows.keys, [rows.frame[key].gather(chosen) for key in rows.keys], len(unseen))
        for some, (heads, tails) in (
            (seen, drawn_rows(state, places[seen], slopes, shared)),
            (unseen, drawn_unseen(state.priors, others, slopes)),
        ):
            total = heads + tails
            mean[some] = heads / total
            spread[some] = np.sqrt(heads * tails / (total + 1)) / total
        return mean, spread

    def drawn(self, state: TableState, rng: np.random.Generator) -> TableState:
        if state.spread is None:
            return state
        mean = state.probability if state.centre is None else state.centre
        drawn = beta_draws(mean, np.nan_to_num(state.spread), rng)
        return replace(state, probability=drawn)

    def drawn_along(self, state: TableState, rng: np.random.Generator, moved: Moved) -> TableState:
        if state.spread is None or state.evidence is None:
            return self.drawn(state, rng)
        from gecasmo.forms.drawn_rows import moved_rows

        drawn = np.array(state.probability if state.centre is None else state.centre)
        unsure = np.flatnonzero((state.spread > 0) & (drawn > 0) & (drawn < 1))
        heads, tails = moved_rows(state, unsure, moved) / moved.scatter
        drawn[unsure] = drawn_inside(heads, tails, rng)
        return replace(state, probability=drawn)

    def prior_strength(self, state: TableState) -> float:
        # A learned prior has its own for each row, all of about the same strength.
        return float(np.mean(np.sum(np.asarray(state.pseudo, float), axis=0)))

    def given(self, values: Any, keys: tuple[str, ...], coin: str) -> TableState:
        keys = self.key if self.key is not None else keys
        if isinstance(values, NUMBERS) and not isinstance(values, bool):
            if not 0 <= values <= 1:
                raise ModelError(f"{coin}={values!r} is not a probability.")
            n_rows = 0 if keys else 1
            empty = [pl.Series(key, [], dtype=pl.Null) for key in keys]
            probability = np.full(n_rows, float(values))
            rows = Rows(keys, empty, n_rows)
            return TableState(rows, probability, float(values), is_constant=True)
        frame = values_by_key(values, keys, coin)
        rows = Rows(keys, [frame[key] for key in keys], len(frame))
        return TableState(rows, frame["probability"].to_numpy(), self.otherwise)

    def places(self, state: TableState, rows: Rows) -> NDArray[np.int64]:
        if not rows.keys:
            return np.zeros(len(rows), np.int64) if len(state.rows) else np.full(len(rows), -1)
        if not len(state.rows):
            return np.full(len(rows), -1, np.int64)
        return match(rows.frame, state.rows.frame, rows.keys)

    def has_given(self, state: TableRows) -> bool:
        return state.has_given

    def given_rows(self, rows: Rows) -> Bools:
        if not self.fixed or not rows.keys:
            return np.zeros(len(rows), bool)
        return self._fixed_rows(rows)[1]

    def _fixed_rows(self, rows: Rows) -> tuple[Floats, NDArray[np.bool_]]:
        if not rows.keys:
            raise ModelError("A coin without key has one row: use Fixed(value) to give it.")
        given = values_by_key(self.fixed, rows.keys, "fixed")
        found = match(rows.frame, given, rows.keys)
        values = given["probability"].to_numpy()
        return np.where(found >= 0, values[found], 0.5), found >= 0


def is_open(keys: Sequence[str], spread: Floats) -> NDArray[np.bool_]:
    """Which rows of a coin that all pages share may be nearly anything."""
    is_global = not {"query", "doc"} & set(keys)
    return np.full(spread.shape, is_global) & ~(spread < _ANYTHING)


def _noise(rows: Rows, salt: int) -> Floats:
    """Draw a normal number for every row, which depends on its key and not on its place."""
    from scipy.special import ndtri  # not at the top: importing gecasmo stays light

    frame = rows.frame if rows.keys else pl.DataFrame({"": np.arange(len(rows))})
    by_chance = (key_hashes(frame, salt) >> np.uint64(11)) / 2.0**53
    noise: Floats = ndtri(np.clip(by_chance, 1e-12, 1 - 1e-12))
    return noise


def as_pseudo_counts(given: Any) -> tuple[float, float]:
    """Check that heads and tails are two numbers."""
    if given is None:
        return (1.0, 1.0)
    try:
        a, b = map(float, given)
    except (TypeError, ValueError):
        raise ModelError(f"pseudo_counts are two numbers (heads, tails), not {given!r}.") from None
    if not (0 <= a < np.inf and 0 <= b < np.inf):
        raise ModelError(f"pseudo_counts must not be negative: {given!r}.")
    return a, b


def _as_prior(given: Any) -> Empirical | None:
    if given is None or isinstance(given, Empirical):
        return given
    if given == "empirical":
        return Empirical()
    raise ModelError(f"Table(prior={given!r}): 'empirical' or Empirical(by=...) is wanted.")


def _as_items(fixed: Mapping[Any, float]) -> list[tuple[list[Any], float]]:
    """Keys as lists of plain values, which JSON can hold."""
    items = []
    for key, value in fixed.items():
        parts = key if isinstance(key, tuple) else (key,)
        plain = [part.item() if isinstance(part, np.generic) else part for part in parts]
        odd = [part for part in plain if not isinstance(part, (str, int, float, bool))]
        if odd:
            raise SavedModelError(
                f"fixed={{{key!r}: ...}} cannot be saved: {type(odd[0]).__name__} has no place in "
                "JSON. Use texts or numbers as ids."
            )
        items.append((plain, float(value)))
    return items
