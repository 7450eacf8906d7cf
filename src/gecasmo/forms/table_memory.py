"""The past of a table: heads and tails that the evidence on each row is worth, decayed.

Everything here is row by row, but for groups of rows that share a prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms.evidence import capped, floor_of, prior_of, strength_of
from gecasmo.forms.memory import Union
from gecasmo.forms.past import Past, RowPast
from gecasmo.forms.priors import Grouping, Priors, group_rows
from gecasmo.forms.protocol import Floats
from gecasmo.forms.table import Table, TableState

Integers = NDArray[np.int64]

# How far a learned prior may be from the best one, as in a fit.
_TOLERANCE = 0.02
# Better priors than those so far, for rows of the new log with these groups (-1: given) and past.
Learn = Callable[[Priors, Integers, Past], Priors]


class TableMemory:
    """The `Memory` of a table."""

    def __init__(self, form: Table, state: TableState, counts: Floats, decay: float) -> None:
        if not isinstance(state, TableState):
            raise ModelError("its rows live in files, which only a fit of the whole log writes")
        self.before, self.decay = state, decay
        self.counts = decay * counts
        self.is_learned = state.priors is not None
        self.by = form.learned_prior(state.rows.keys)
        typical = () if self.by is None else self.by.typical(state.rows.keys)
        if typical:
            raise ModelError(
                f"its prior depends on {', '.join(typical)}, and a model does not keep what was "
                "typical of each row"
            )
        self.original = form
        # A table whose prior is given, so that nobody learns it while the past is part of it.
        self.form = Table(form.pseudo_counts, form.start, form.fixed, form.key)
        self.past = decay * _evidence_of(state, counts)
        self.row_past = RowPast.of(self.past, prior_of(state))

    def begin(self, rows: Rows) -> TableState:
        """Where the past left the rows; new ones begin as their prior says."""
        begun = self.original.begin(rows, None)
        self.union = Union(self.before.rows, rows)
        self.rows = self.union.rows()
        self.priors, self.grouping = self._priors()
        self.first = self.priors
        self.prior = self._prior()
        pseudo = self._pseudo()
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
            grouping=self._grouping_of_new(),
        )

    def learned(self, state: TableState, counts: Floats, learn: Learn) -> TableState:
        """The state under the prior that the past and the new log speak for, or the very same."""
        if self.priors is None or self.grouping is None:
            return state
        group = self.grouping.number[self.union.place]
        if state.is_fixed is not None:
            group = np.where(state.is_fixed, -1, group)
        after = learn(self.priors, group, self._past_of_priors(state, counts))
        # Small moves count as well: they add up from day to day.
        self.priors = after
        self.prior = self._prior()
        if state.priors is not None and after.is_close(state.priors, _TOLERANCE):
            return state
        # Where the climb ended it begins again, under the new prior.
        return replace(
            state,
            pseudo=self._pseudo(),
            priors=after,
            otherwise=self._otherwise(),
            spread=None,
            centre=None,
            evidence=None,
        )

    def alone(self, state: TableState) -> TableState:
        """The prior without the past."""
        pseudo = self.prior[:, self.union.place]
        return replace(state, pseudo=pseudo, spread=None, centre=None, evidence=None)

    def merged(
        self, state: TableState, alone: TableState | None, counts: Floats
    ) -> tuple[TableState, Floats]:
        """Old and new rows with all that is known of them."""
        total = self.union.widened(self.counts, 0.0)
        total[:, self.union.place] += counts
        evidence = self._evidence(state, counts)
        after = replace(
            state,
            rows=self.rows,
            priors=self.priors,
            otherwise=self._otherwise(),
            probability=self._probability(state, evidence),
            is_fixed=None if state.is_fixed is None else self.original.is_given(self.rows),
            pseudo=self.prior if self.is_learned else self.original.pseudo_counts,
            grouping=self.grouping,
            evidence=evidence,
            spread=None,
            centre=None,
        )
        if alone is None:
            return after, total
        return self._with_spread(after, state, alone, _evidence_of(alone, counts)), total

    # -- parts of it ---------------------------------------------------------------------------
    def _pseudo(self) -> Floats:
        """Prior and past of the rows of the new log."""
        return self.row_past.at(self.union.found).under(self.prior[:, self.union.place])

    def _evidence(self, state: TableState, counts: Floats) -> Floats:
        """Heads and tails of all rows, from all logs."""
        everywhere = np.arange(len(self.rows))
        old = np.where(everywhere < len(self.before.rows), everywhere, -1)
        evidence: Floats = self.row_past.at(old).under(self.prior) - self.prior
        evidence[:, self.union.place] += _evidence_of(state, counts)
        return evidence

    def _past_of_priors(self, state: TableState, counts: Floats) -> Past:
        assert self.first is not None
        assert self.grouping is not None
        group, n_groups = self.grouping.number, self.grouping.n_groups
        old, new = group[: len(self.before.rows)], group[self.union.place]
        flips = _not_given(self.before, self.counts.sum(axis=0))
        today = _not_given(state, counts.sum(axis=0))
        ratio = np.bincount(old, flips, n_groups) / np.maximum(
            np.bincount(new, today, n_groups), 1e-9
        )
        return Past(self.first, self.past, old, ratio, self.row_past.at(self.union.found))

    def _priors(self) -> tuple[Priors | None, Grouping | None]:
        """The learned priors of old and new rows: a group keeps what it has learned."""
        before, grouping = self.before.priors, self.before.grouping
        if before is None or grouping is None or self.by is None:
            return None, None
        found = group_rows(self.rows, self.by, {})
        old = np.full(found.n_groups, -1, np.int64)
        old[found.number[: len(grouping.number)]] = grouping.number
        # What is last stands for groups that are new.
        logit = np.append(before.logit, before.mean_level.centre)[old]
        log_strength = np.append(before.log_strength, before.strength_level.centre)[old]
        return replace(before, logit=logit, log_strength=log_strength), found

    def _prior(self) -> Floats:
        if self.priors is None or self.grouping is None:
            return np.repeat(np.array(self.original.pseudo_counts)[:, None], len(self.rows), axis=1)
        return self.priors.pseudo_counts(self.grouping.number)

    def _otherwise(self) -> float:
        """What unknown rows are."""
        if self.priors is None or self.grouping is None:
            return self.before.otherwise
        return float(self.priors.mean[self.grouping.number].mean())

    def _grouping_of_new(self) -> Grouping | None:
        if self.grouping is None:
            return None
        return replace(self.grouping, number=self.grouping.number[self.union.place])

    def _probability(self, state: TableState, evidence: Floats) -> Floats:
        """Rows of the new log stand where the climb left them, others where the past does."""
        heads, tails = np.maximum(self.prior + evidence, 0.0)
        known: Floats = self.union.widened(self.before.probability, 0.5)
        np.divide(heads, heads + tails, out=known, where=heads + tails > 1e-9)
        if self.before.is_fixed is not None:
            given = self.before.is_fixed
            known[: len(given)][given] = self.before.probability[given]
        known[self.union.place] = state.probability
        return known

    def _with_spread(
        self, after: TableState, state: TableState, alone: TableState, day: Floats
    ) -> TableState:
        """Spreads from what the past and the new log are worth together."""
        place, before = self.union.place, self.before
        n = len(before.probability)
        prior = self.prior.sum(axis=0) + floor_of(after, self.prior)
        worth = np.zeros_like(prior)
        then = prior_of(before)
        known = _worth(before, then.sum(axis=0) + floor_of(before, then), self.past / self.decay)
        worth[:n] = self.decay * known
        held = self.union.of_old(self.past.sum(axis=0), 0.0)
        worth[place] = _together(worth[place], held, _worth(alone, prior[place], day))
        strength = prior + worth
        centre = after.probability.copy()
        if before.centre is not None:  # of lopsided beliefs the mean is not the most likely
            centre[:n] += before.centre - before.probability
        if state.centre is not None:
            centre[place] = state.centre
        centre = np.clip(centre, 0.0, 1.0)
        spread = np.sqrt(centre * (1 - centre) / (np.maximum(strength, 0.0) + 1))
        if after.is_fixed is not None:
            spread = np.where(after.is_fixed, 0.0, spread)
        return replace(after, spread=spread, centre=centre)


def _evidence_of(state: TableState, counts: Floats) -> Floats:
    """What a log says of each row; without spreads hidden flips are taken for seen ones."""
    if state.evidence is not None:
        return capped(state, state.evidence, counts)
    heads: Floats = counts[::-1]
    return heads if state.is_fixed is None else np.where(state.is_fixed, 0.0, heads)


def _not_given(state: TableState, flips: Floats) -> Floats:
    """Flips of rows that are estimated."""
    return flips if state.is_fixed is None else np.where(state.is_fixed, 0.0, flips)


def _worth(state: TableState, prior: Floats, evidence: Floats) -> Floats:
    """The flips beyond the prior that the spread of rows stands for; at most the evidence."""
    most: Floats = evidence.sum(axis=0)
    if state.spread is None or state.centre is None:
        return most
    told = strength_of(state.centre, state.spread) - prior
    worth: Floats = np.minimum(np.where(np.isfinite(told), told, most), most)
    return worth


def _together(past: Floats, held: Floats, day: Floats) -> Floats:
    """What the past and a new log are worth together, with shared coins open, in flips.

    Where the past is worth `past` but was held on to as if it were worth `held`, by the coin itself
    and by the rows that go with it, the new log moved the estimate by less than it should have, and
    the error of the past stays in it (docs/updates.md).
    """
    has_both = (past > 0) & (day > 0)
    a, b = np.where(has_both, past, 1.0), np.where(has_both, day, 1.0)
    gain = b / (b + np.maximum(2 * held - a, a))
    together: Floats = 1 / ((1 - gain) ** 2 / a + gain**2 / b)
    return np.where(has_both, together, past + day)
