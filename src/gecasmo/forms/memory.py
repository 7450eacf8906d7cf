"""What forms remember of logs that are gone, so that a new one can be merged in.

`form.memory(state, counts, decay)` makes such a memory. An update climbs the likelihood of the new
log plus what the memory says; see docs/updates.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.averages import EXPOSURE, IMPRESSIONS, PAGES, smoothed_share
from gecasmo.encoding.match import match
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms.densities import Densities, DensityState
from gecasmo.forms.families import Family
from gecasmo.forms.features import ByRows, FeatureCoding, learn_coding
from gecasmo.forms.fixed import Fixed
from gecasmo.forms.form import Floats, Form, FormState
from gecasmo.forms.linear import PastCoefficients
from gecasmo.forms.logistic import MOST_WITH_ERRORS, Logistic, LogisticState
from gecasmo.forms.priors import Priors
from gecasmo.forms.table import Table
from gecasmo.forms.table_state import TableState, capped, floor_of, prior_of, strength_of

Integers = NDArray[np.int64]


class Memory(ABC):
    """The past of one form, decayed, during one update.

    Attributes
    ----------
    form : the form that climbs
    is_learned : whether the prior was learned from logs
    """

    form: Form
    is_learned: bool = False

    @property
    def of_rows(self) -> TableMemory | None:
        """The past of a table, whose rows lean on coins that pages share; None of others."""
        return None

    @abstractmethod
    def begin(self, rows: Rows) -> FormState:
        """Make the state to climb from, on the rows of the new log, with the past as its prior."""

    @abstractmethod
    def merged(self, state: FormState, counts: Floats) -> tuple[FormState, Floats]:
        """Bring the end of the climb to old and new rows, with the expected tails and heads of
        these."""


class Union:
    """Old rows, and after them the rows that only a new log has.

    `found` has the place of each row of the new log among the old ones, or -1; `place` the place
    among all.
    """

    def __init__(self, old: Rows, new: Rows) -> None:
        self.old, self.new = old, new
        if "result" in new.keys:
            raise ModelError(
                "rows by 'result' are numbers of shown results, which mean nothing in another log"
            )
        if not new.keys:
            self.found = np.zeros(len(new), np.int64) if len(old) else np.full(len(new), -1)
        else:
            self.found = match(new.frame, old.frame, new.keys)
        self.is_new = self.found < 0
        fresh = len(old) + np.cumsum(self.is_new) - 1
        self.place: Integers = np.where(self.is_new, fresh, self.found)

    def rows(self) -> Rows:
        """Join them."""
        if not self.is_new.any():
            return self.old
        n = len(self.old) + int(self.is_new.sum())
        chosen = pl.Series(np.flatnonzero(self.is_new))
        columns = [
            joined_columns(self.old.frame[key], self.new.frame[key].gather(chosen))
            for key in self.new.keys
        ]
        return Rows(self.new.keys, columns, n)

    def widened(self, per_row: Any, otherwise: float) -> Any:
        """Make values of old rows values of all."""
        more = int(self.is_new.sum())
        fill = np.full((*per_row.shape[:-1], more), otherwise, dtype=per_row.dtype)
        return np.concatenate([per_row, fill], axis=-1)


def joined_columns(old: pl.Series, new: pl.Series) -> pl.Series:
    """Make one column of two; ids of one kind may come as different types."""
    textual = (pl.Categorical, pl.Enum)
    if old.dtype != new.dtype and (old.dtype in textual or new.dtype in textual):
        old, new = old.cast(pl.String), new.cast(pl.String)
    if old.dtype == pl.Null:
        old = old.cast(new.dtype)
    frames = [old.alias("").to_frame(), new.alias("").to_frame()]
    return pl.concat(frames, how="vertical_relaxed").to_series()


class FixedMemory(Memory):
    """The past of a probability that is given: how often it was flipped."""

    def __init__(self, form: Fixed, state: Rows, counts: Floats, decay: float) -> None:
        self.form, self.before, self.counts = form, state, decay * counts

    def begin(self, rows: Rows) -> Rows:
        self.union = Union(self.before, rows)
        return rows

    def merged(self, state: Rows, counts: Floats) -> tuple[Rows, Floats]:
        total: Floats = self.union.widened(self.counts, 0.0)
        total[:, self.union.place] += counts
        return self.union.rows(), total


class DensityMemory(Memory):
    """The past of densities: as many values as they had, decayed, spread as they were."""

    form: Densities

    def __init__(self, form: Densities, state: DensityState, decay: float) -> None:
        self.form, self.before, self.decay = form, state, decay

    def begin(self, rows: Rows) -> DensityState:
        begun, before = self.form.begin(rows, None), self.before
        if not before.is_known:
            return begun
        groups = dict.fromkeys([*before.by_key, *begun.by_key])
        past: dict[Any, Any] = {None: self._worth(before.families, before.n_values)}
        for group, n_values in before.n_by_key.items():
            past[group] = self._worth(before.by_key[group], n_values)
        return DensityState(
            before.families,
            before.common,
            dict.fromkeys(before.families, 0.0),
            False,
            {group: before.of(group) for group in groups},
            {group: dict.fromkeys(before.families, 0.0) for group in groups},
            past,
        )

    def _worth(
        self, families: Mapping[str, Family], n_values: Mapping[str, float]
    ) -> dict[str, tuple[Floats, Floats]]:
        """By coin, values at even steps of the logit of their share, and how many each stands for:
        sums over these are integrals, of anything smooth."""
        share = 1 / (1 + np.exp(-np.arange(-25.0, 25.2, 0.25)))
        weight = share * (1 - share)
        weight /= weight.sum()
        return {
            coin: (family.quantile(share), self.decay * n_values[coin] * weight)
            for coin, family in families.items()
            if n_values[coin] > 0
        }

    def merged(self, state: DensityState, counts: Floats) -> tuple[DensityState, Floats]:
        before = self.before
        if not before.is_known:
            return state, counts

        def both(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, float]:
            return {coin: self.decay * old.get(coin, 0.0) + n for coin, n in new.items()}

        n_by_key = {g: both(before.n_by_key.get(g, {}), own) for g, own in state.n_by_key.items()}
        n_values = both(before.n_values, state.n_values)
        return replace(state, n_values=n_values, n_by_key=n_by_key, past={}), counts


class LogisticMemory(Memory):
    """The `Memory` of a logistic regression.

    Columns keep the scales of the first fit, so that coefficients go on to mean the same; levels
    that are new come after the old ones.
    """

    form: Logistic

    def __init__(self, form: Logistic, state: LogisticState, decay: float) -> None:
        if state.covariance is None:
            raise ModelError(
                "a regression remembers its past by the covariance of its coefficients, and this "
                f"one has none (only up to {MOST_WITH_ERRORS:,} coefficients have)"
            )
        self.form, self.before, self.decay = form, state, decay

    def begin(self, rows: Rows) -> LogisticState:
        """Begin at the old coefficients, with the old logs as their prior."""
        state, form = self.before, self.form
        coding = _extended(state.coding, rows, form)
        place = _places(state.coding, coding, len(state.coefficients))
        n = int(form.intercept) + len(coding.numeric) + sum(coding.n_levels.values())
        coefficients, slope, information = np.zeros(n), np.zeros(n), np.zeros((n, n))
        coefficients[place] = state.coefficients
        # At the end of a fit the slope of the likelihood and that of the prior cancel out.
        prior = form.precision(len(state.coefficients))
        slope[place] = self.decay * prior * state.coefficients
        information[np.ix_(place, place)] = self.decay * self._information(prior)
        return LogisticState(
            coding, coefficients, past=PastCoefficients(coefficients, slope, information)
        )

    def merged(self, state: LogisticState, counts: Floats) -> tuple[LogisticState, Floats]:
        """Keep the coefficients, whose covariance knows of old and new, and counts of the new rows,
        since a regression keeps no rows."""
        return replace(state, past=None), counts

    def _information(self, prior: Floats) -> Floats:
        """Tell what the logs said: the inverse of the covariance, without the prior."""
        assert self.before.covariance is not None
        both = np.linalg.pinv(self.before.covariance, rcond=1e-12, hermitian=True)
        values, vectors = np.linalg.eigh(both - np.diag(prior))
        information: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return information


def _extended(old: FeatureCoding, rows: Rows, form: Logistic) -> FeatureCoding:
    """Add levels that only these rows have to a coding."""
    new = learn_coding(rows, form.columns, form.categorical, centre=form.intercept)
    if set(new.numeric) != set(old.numeric):
        odd = sorted(set(new.numeric) ^ set(old.numeric))
        raise ModelError(
            f"The column '{odd[0]}' of {form!r} is numeric in the fit or in the new log, and text "
            "in the other."
        )
    levels = {}
    for name, values in old.levels.items():
        found = new.levels[name]
        fresh = found.filter(pl.Series(old.level_numbers(found, name) < 0))
        levels[name] = pl.concat([values, fresh.cast(values.dtype)])
    constant = tuple(n for n in old.constant if n in old.numeric or len(levels[n]) == 1)
    return replace(old, levels=levels, constant=constant, _known=ByRows())


def _places(old: FeatureCoding, new: FeatureCoding, n_old: int) -> list[int]:
    """Tell where the old coefficients stand among those of the new coding."""
    first = n_old - sum(old.n_levels.values())
    place = list(range(first))
    starts = first + np.cumsum([0, *new.n_levels.values()])
    for (start, _), size in zip(pairwise(starts), old.n_levels.values(), strict=True):
        place += range(int(start), int(start) + size)
    return place


# A posterior can be wider than the prior, but some of that is always left.
_LEAST_SHARE = 0.01
_LEAST_LEFT = 0.1


@dataclass(frozen=True)
class RowPast:
    """The past of some rows, on top of a prior: `share` of the pseudo-counts of their prior is
    left, and `added` comes on top, both `[heads or tails, row]`.

    Hidden flips can make a posterior wider than the prior. That takes from the prior, whatever it
    is by now, and so a share of it; a number of flips taken away could be more than there are.
    """

    share: Floats
    added: Floats
    shift: Floats | None = None  # so many tails are heads by now, of each row

    @classmethod
    def of(cls, evidence: Floats, prior: Floats) -> RowPast:
        """Make the past that is worth such heads and tails beyond the prior it had then."""
        lost = np.maximum(-evidence, 0.0) / np.maximum(prior, 1e-300)
        return cls(np.clip(1 - lost, _LEAST_SHARE, 1.0), np.maximum(evidence, 0.0))

    def under(self, prior: Floats) -> Floats:
        """Tell heads and tails, those of a prior included."""
        left = self.share * prior
        if self.shift is None:
            return left + self.added
        moved = left + self.added + np.stack([self.shift, -self.shift])
        return np.maximum(moved, _LEAST_LEFT * left)

    def without(self, together: Floats) -> Floats:
        """Find the prior under which heads and tails are these."""
        moved = 0.0 if self.shift is None else np.stack([self.shift, -self.shift])
        prior: Floats = np.maximum(together - self.added - moved, 1e-9) / self.share
        return prior

    def at(self, rows: Integers) -> RowPast:
        """Choose that of some rows; -1 is a row without a past."""
        share = np.concatenate([self.share, np.ones((2, 1))], axis=1)[:, rows]
        added = np.concatenate([self.added, np.zeros((2, 1))], axis=1)[:, rows]
        shift = None if self.shift is None else np.append(self.shift, 0.0)[rows]
        return RowPast(share, added, shift)


def joined_typical(
    union: Union, rows: Rows, old: Mapping[str, Floats], new: Mapping[str, Floats], decay: float
) -> dict[str, Floats]:
    """Join what is typical of old and new `rows` in both logs, of which the old one has faded.

    Shown and possible pages add up; means are weighted by how often a row was shown.
    """
    if not old:
        return {}
    n_old, place = len(union.old), union.place
    shown, today = union.widened(decay * old[IMPRESSIONS], 0.0), np.zeros(len(rows))
    today[place] = new[IMPRESSIONS]
    together = shown + today
    found = {IMPRESSIONS: together}
    if PAGES in old:
        found[PAGES] = _pages(union, rows, decay * old[PAGES], new[PAGES])
    for name in old.keys() & new.keys() - found.keys():
        if name == EXPOSURE:
            found[name] = smoothed_share(together, found[PAGES])
            continue
        mean, fresh = union.widened(old[name], 0.0), np.zeros(len(rows))
        fresh[place] = new[name]
        # Rows that no page weighs anything for stay where the old log, or the new one, has them.
        still = np.where(np.arange(len(rows)) < n_old, mean, fresh)
        both = mean * shown + fresh * today
        found[name] = np.divide(both, together, out=still, where=together > 0)
    return found


def _pages(union: Union, rows: Rows, old: Floats, new: Floats) -> Floats:
    """Count the pages that could have shown a row: of its query, if that is part of the key."""
    query = np.zeros(len(rows), np.int64)
    if "query" in rows.keys:
        query = rows.frame["query"].rank("dense").to_numpy().astype(np.int64) - 1
    before, today = np.zeros((2, int(query.max(initial=0)) + 1))
    before[query[: len(old)]], today[query[union.place]] = old, new
    return (before + today)[query]


class TableMemory(Memory):
    """The `Memory` of a table."""

    form: Table

    def __init__(self, form: Table, state: TableState, counts: Floats, decay: float) -> None:
        if state.in_files is not None:
            raise ModelError("its rows are in files, which only a fit of the whole log writes")
        self.before, self.decay = state, decay
        self.counts = decay * counts
        self.is_learned = state.priors is not None
        self.priors, self.typical = state.priors, state.typical
        if state.priors is not None:
            _check(state.priors, state)
        self.original = form
        # Without learned priors the past is part of one that is given: nobody is to learn it.
        given = Table(
            pseudo_counts=form.pseudo_counts, start=form.start, fixed=form.fixed, key=form.key
        )
        self.form = form if self.is_learned else given
        self.past = decay * _evidence_of(state, counts)
        self.row_past = RowPast.of(self.past, prior_of(state))

    @property
    def of_rows(self) -> TableMemory:
        return self

    def begin(self, rows: Rows) -> TableState:
        """Begin where the past left the rows; new ones begin as their prior says."""
        begun = self.original.begin(rows, None)
        self.union = Union(self.before.rows, rows)
        self.rows = self.union.rows()
        self.prior = self._prior()
        pseudo = self.row_past.at(self.union.found).under(self.prior[:, self.union.place])
        known = np.asarray(self.original.predict(self.before, rows))
        # A row that was always heads may come up tails one day: nothing begins at the border.
        inside = (pseudo[0] + 0.5) / (pseudo.sum(axis=0) + 1.0)
        probability = np.where((known > 0) & (known < 1), known, inside)
        if begun.is_fixed is not None:
            probability = np.where(begun.is_fixed, begun.probability, probability)
        return replace(
            begun,
            probability=probability,
            otherwise=self.before.otherwise,
            pseudo=pseudo,
            priors=self.priors,
        )

    def lean(self, shift: Floats) -> None:
        """Let as many tails of each row be heads as global coins, where they are now, ask for."""
        shift = shift[: len(self.before.rows)]
        self.past = self.past + np.stack([shift, -shift])
        self.row_past = RowPast.of(self.past, prior_of(self.before))

    def conclude(self, priors: Priors, prior: Floats, typical: Mapping[str, Floats]) -> None:
        """Take in the learned priors of old and new rows, `[heads or tails, row]`."""
        self.priors, self.prior, self.typical = priors, prior, typical or None

    def merged(self, state: TableState, counts: Floats) -> tuple[TableState, Floats]:
        """Join old and new rows with all that is known of them."""
        total = self.union.widened(self.counts, 0.0)
        total[:, self.union.place] += counts
        evidence = self._evidence(state, counts)
        after = replace(
            state,
            rows=self.rows,
            priors=self.priors,
            typical=self.typical,
            otherwise=self._otherwise(),
            probability=self._probability(state, evidence),
            is_fixed=None if state.is_fixed is None else self.original.given_rows(self.rows),
            pseudo=self.prior if self.is_learned else self.original.pseudo_counts,
            evidence=evidence,
            spread=None,
            centre=None,
        )
        if state.spread is None:
            return after, total
        return self._with_spread(after, state), total

    # -- parts of it ---------------------------------------------------------------------------
    def _evidence(self, state: TableState, counts: Floats) -> Floats:
        """Add up heads and tails of all rows, from all logs."""
        everywhere = np.arange(len(self.rows))
        old = np.where(everywhere < len(self.before.rows), everywhere, -1)
        evidence: Floats = self.row_past.at(old).under(self.prior) - self.prior
        evidence[:, self.union.place] += _evidence_of(state, counts)
        return evidence

    def _prior(self) -> Floats:
        """Tell the prior of old and new rows, as it was before."""
        fresh = np.flatnonzero(self.union.is_new)
        if self.before.priors is None:
            pseudo = np.array(self.original.pseudo_counts)[:, None]
            return np.repeat(pseudo, len(self.rows), axis=1)
        new = self.union.new
        columns = [new.frame[key].gather(fresh) for key in new.keys]
        unseen = self.before.priors.of_unseen(Rows(new.keys, columns, len(fresh)))[0]
        return np.concatenate([prior_of(self.before), unseen], axis=1)

    def _otherwise(self) -> float:
        """Tell what unknown rows are."""
        if self.priors is None:
            return self.before.otherwise
        return float((self.prior[0] / self.prior.sum(axis=0)).mean())

    def _probability(self, state: TableState, evidence: Floats) -> Floats:
        """Put rows of the new log where the climb left them, others where the past does."""
        heads, tails = np.maximum(self.prior + evidence, 0.0)
        known: Floats = self.union.widened(self.before.probability, 0.5)
        np.divide(heads, heads + tails, out=known, where=heads + tails > 1e-9)
        if self.before.is_fixed is not None:
            given = self.before.is_fixed
            known[: len(given)][given] = self.before.probability[given]
        known[self.union.place] = state.probability
        return known

    def _with_spread(self, after: TableState, state: TableState) -> TableState:
        """Work out spreads from what the past and the new log are worth together."""
        assert state.centre is not None
        assert state.spread is not None
        place, before = self.union.place, self.before
        n = len(before.probability)
        prior = self.prior.sum(axis=0) + floor_of(after, self.prior)
        worth = np.zeros_like(prior)
        then = prior_of(before)
        known = _worth(before, then.sum(axis=0) + floor_of(before, then), self.past / self.decay)
        worth[:n] = self.decay * known
        strength = prior + worth
        centre = after.probability.copy()
        if before.centre is not None:  # of lopsided posteriors the mean is not the most likely
            centre[:n] += before.centre - before.probability
        centre[place] = state.centre
        centre = np.clip(centre, 0.0, 1.0)
        spread = np.sqrt(centre * (1 - centre) / (np.maximum(strength, 0.0) + 1))
        spread[place] = state.spread
        if after.is_fixed is not None:
            spread = np.where(after.is_fixed, 0.0, spread)
        return replace(after, spread=spread, centre=centre)


def _check(priors: Priors, state: TableState) -> None:
    """Say so if nothing tells what was typical of each row."""
    wanted = {smooth.name for smooth in priors.smooths}
    wanted |= {effect.name for effect in priors.effects} - set(state.rows.keys)
    missing = wanted - set(state.typical or {})
    if missing or (wanted and IMPRESSIONS not in (state.typical or {})):
        raise ModelError(
            f"its prior depends on {', '.join(sorted(missing or wanted))}, and this model has not "
            "kept what was typical of each row"
        )


def _evidence_of(state: TableState, counts: Floats) -> Floats:
    """Tell what a log says of each row; without spreads hidden flips are taken for seen ones."""
    if state.evidence is not None:
        return capped(state, state.evidence, counts)
    heads: Floats = counts[::-1]
    return heads if state.is_fixed is None else np.where(state.is_fixed, 0.0, heads)


def _worth(state: TableState, prior: Floats, evidence: Floats) -> Floats:
    """Tell the flips beyond the prior that the spread of rows stands for, at most the evidence."""
    most: Floats = evidence.sum(axis=0)
    if state.spread is None or state.centre is None:
        return most
    told = strength_of(state.centre, state.spread) - prior
    worth: Floats = np.minimum(np.where(np.isfinite(told), told, most), most)
    return worth
