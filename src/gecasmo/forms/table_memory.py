"""The past of a table: heads and tails that the evidence on each row is worth, decayed.

Everything here is row by row, but for groups of rows that share a prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms.evidence import floor_of, strength_of
from gecasmo.forms.memory import Integers, Union
from gecasmo.forms.priors import Grouping, Priors, group_rows
from gecasmo.forms.protocol import Floats
from gecasmo.forms.table import Table, TableState

# From fewer rows nobody tells how others would move.
_FEWEST = 50
# How far a learned prior may be from the best one, as in a fit.
_TOLERANCE = 0.02
# Better priors for heads and tails of rows, their groups, priors so far, and which are given.
Learn = Callable[[Floats, Integers, Priors, Any], Priors]


class TableMemory:
    """The `Memory` of a table."""

    def __init__(self, form: Table, state: TableState, counts: Floats, decay: float) -> None:
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
        self.past = self.counts[::-1] if state.evidence is None else decay * state.evidence
        if state.is_fixed is not None:
            self.past = np.where(state.is_fixed, 0.0, self.past)

    def begin(self, rows: Rows) -> TableState:
        """Where the past left the rows; new ones begin as their prior says."""
        begun = self.original.begin(rows, None)
        self.union = Union(self.before.rows, rows)
        self.rows = self.union.rows()
        self.priors, self.grouping = self._priors()
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
        """The state under the prior that old and new evidence speak for, or the very same one."""
        if self.priors is None or self.grouping is None:
            return state
        given = None if state.is_fixed is None else self.original.is_given(self.rows)
        after = learn(self._evidence(state, counts), self.grouping.number, self.priors, given)
        if after.is_close(self.priors, _TOLERANCE):
            return state
        self.priors = after
        self.prior = self._prior()
        otherwise = float(after.mean[self.grouping.number].mean())
        # Where the climb ended it begins again, under the new prior.
        return replace(
            state,
            pseudo=self._pseudo(),
            priors=after,
            otherwise=otherwise,
            spread=None,
            centre=None,
            evidence=None,
        )

    def known(self, state: TableState) -> Floats:
        """The information of the past on each row's logit."""
        known: Floats = self.union.of_old(self.past, 0.0).sum(axis=0)
        return np.maximum(known, 0.0) * state.probability * (1 - state.probability)

    def pull(self, state: TableState) -> Floats:
        """How the past pulls at where it stands itself: its slope by the logits of rows."""
        heads, tails = self._pseudo()
        slope = (heads + tails) * state.probability - heads
        return np.where(self._is_open(state), slope, 0.0)

    def moved(self, state: TableState, moves: Floats) -> TableState:
        """The state with the past, and with it the rows, moved by so much in their logits."""
        moves = np.where(self._is_open(state), moves, 0.0)
        from scipy.special import expit, logit

        unseen = self._moves_of_unseen(state.probability, moves)
        found = self.union.found[~self.union.is_new]
        unseen[found] = moves[~self.union.is_new]
        together = np.maximum(self.prior[:, : len(unseen)] + self.past, 1e-12)
        centre = expit(np.log(together[0] / together[1]) + unseen)
        strength = together.sum(axis=0)
        shifted = np.stack([strength * centre, strength * (1 - centre)])
        shifted -= self.prior[:, : len(unseen)]
        self.past = np.where(unseen != 0, shifted, self.past)
        inside = np.clip(state.probability, 1e-12, 1 - 1e-12)
        probability = np.where(moves != 0, expit(logit(inside) + moves), state.probability)
        return replace(state, probability=probability, pseudo=self._pseudo())

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
            probability=self._probability(state, evidence),
            is_fixed=None if state.is_fixed is None else self.original.is_given(self.rows),
            pseudo=self.prior if self.is_learned else self.original.pseudo_counts,
            grouping=self.grouping,
            evidence=evidence,
            spread=None,
            centre=None,
        )
        return (after if alone is None else self._with_spread(after, state, alone)), total

    # -- parts of it ---------------------------------------------------------------------------
    def _pseudo(self) -> Floats:
        """Prior and past of the rows of the new log."""
        past = self.union.of_old(self.past, 0.0)
        pseudo: Floats = np.maximum(self.prior[:, self.union.place] + past, 0.0)
        return pseudo

    def _is_open(self, state: TableState) -> NDArray[np.bool_]:
        """Rows of the new log that have a past, and are not given."""
        is_open: NDArray[np.bool_] = ~self.union.is_new
        return is_open if state.is_fixed is None else is_open & ~state.is_fixed

    def _moves_of_unseen(self, probability: Floats, moves: Floats) -> Floats:
        """How far old rows move: as rows of the new log that are as probable do."""
        n = len(self.before.probability)
        used = np.flatnonzero(moves)
        if len(used) < _FEWEST:
            return np.zeros(n)
        order = used[np.argsort(probability[used], kind="stable")]
        bins = np.array_split(order, min(20, len(order) // 10))
        at = [float(probability[b].mean()) for b in bins]
        usual = [float(np.median(moves[b])) for b in bins]
        found: Floats = np.interp(self.before.probability, at, usual)
        if self.before.is_fixed is not None:
            found = np.where(self.before.is_fixed, 0.0, found)
        return found

    def _evidence(self, state: TableState, counts: Floats) -> Floats:
        """Heads and tails of all rows, from all logs."""
        evidence: Floats = self.union.widened(self.past, 0.0)
        day = counts[::-1] if state.evidence is None else state.evidence
        evidence[:, self.union.place] += day
        return evidence

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

    def _with_spread(self, after: TableState, state: TableState, alone: TableState) -> TableState:
        """Spreads from what the past and the new log are worth together.

        Each is worth what it says with shared coins open too, and that adds up.
        """
        place, n = self.union.place, len(self.before.probability)
        prior = self.prior.sum(axis=0) + floor_of(after, self.prior)
        strength = prior.copy()
        strength[:n] += self.decay * self._worth(self.before, prior[:n], self.past / self.decay)
        strength[place] += self._worth(alone, prior[place], alone.evidence)
        centre = after.probability.copy()
        if state.centre is not None:
            centre[place] = state.centre
        spread = np.sqrt(centre * (1 - centre) / (np.maximum(strength, 0.0) + 1))
        if after.is_fixed is not None:
            spread = np.where(after.is_fixed, 0.0, spread)
        return replace(after, spread=spread, centre=centre)

    @staticmethod
    def _worth(state: TableState, prior: Floats, evidence: Any) -> Floats:
        """The flips beyond the prior that the spread of rows stands for; at most the evidence."""
        most = np.full(len(prior), np.inf) if evidence is None else evidence.sum(axis=0)
        if state.spread is None or state.centre is None:
            return np.where(np.isfinite(most), most, 0.0)
        told = strength_of(state.centre, state.spread) - prior
        worth: Floats = np.minimum(np.where(np.isfinite(told), told, most), most)
        return worth
