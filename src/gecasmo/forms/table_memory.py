"""The past of a table: heads and tails that the evidence on each row is worth, decayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.averages import IMPRESSIONS
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms.evidence import capped, floor_of, prior_of, strength_of
from gecasmo.forms.form import Floats
from gecasmo.forms.memory import Memory, Union
from gecasmo.forms.past import RowPast
from gecasmo.forms.priors import Priors
from gecasmo.forms.table import Table, TableState

Integers = NDArray[np.int64]


class TableMemory(Memory):
    """The `Memory` of a table."""

    form: Table

    def __init__(self, form: Table, state: TableState, counts: Floats, decay: float) -> None:
        if not isinstance(state, TableState):
            raise ModelError("its rows live in files, which only a fit of the whole log writes")
        self.before, self.decay = state, decay
        self.counts = decay * counts
        self.is_learned = state.priors is not None
        self.priors, self.typical = state.priors, state.typical
        if state.priors is not None:
            _check(state.priors, state)
        self.original = form
        # Without learned priors the past is part of one that is given: nobody is to learn it.
        given = Table(form.pseudo_counts, form.start, form.fixed, form.key)
        self.form = form if self.is_learned else given
        self.past = decay * _evidence_of(state, counts)
        self.row_past = RowPast.of(self.past, prior_of(state))

    @property
    def of_rows(self) -> TableMemory:
        return self

    def begin(self, rows: Rows) -> TableState:
        """Where the past left the rows; new ones begin as their prior says."""
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
        """Let as many tails of each row be heads as shared coins, where they are now, ask for."""
        shift = shift[: len(self.before.rows)]
        self.past = self.past + np.stack([shift, -shift])
        self.row_past = RowPast.of(self.past, prior_of(self.before))

    def conclude(self, priors: Priors, prior: Floats, typical: Mapping[str, Floats]) -> None:
        """Take in the learned priors of old and new rows, `[heads or tails, row]`."""
        self.priors, self.prior, self.typical = priors, prior, typical or None

    def merged(self, state: TableState, counts: Floats) -> tuple[TableState, Floats]:
        """Old and new rows with all that is known of them."""
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
        """Heads and tails of all rows, from all logs."""
        everywhere = np.arange(len(self.rows))
        old = np.where(everywhere < len(self.before.rows), everywhere, -1)
        evidence: Floats = self.row_past.at(old).under(self.prior) - self.prior
        evidence[:, self.union.place] += _evidence_of(state, counts)
        return evidence

    def _prior(self) -> Floats:
        """The prior of old and new rows, as it was before."""
        fresh = np.flatnonzero(self.union.is_new)
        if self.before.priors is None:
            pseudo = np.array(self.original.pseudo_counts)[:, None]
            return np.repeat(pseudo, len(self.rows), axis=1)
        new = self.union.new
        columns = [new.frame[key].gather(fresh) for key in new.keys]
        unseen = self.before.priors.of_unseen(Rows(new.keys, columns, len(fresh)))[0]
        return np.concatenate([prior_of(self.before), unseen], axis=1)

    def _otherwise(self) -> float:
        """What unknown rows are."""
        if self.priors is None:
            return self.before.otherwise
        return float((self.prior[0] / self.prior.sum(axis=0)).mean())

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

    def _with_spread(self, after: TableState, state: TableState) -> TableState:
        """Spreads from what the past and the new log are worth together."""
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
        if before.centre is not None:  # of lopsided beliefs the mean is not the most likely
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
    """What a log says of each row; without spreads hidden flips are taken for seen ones."""
    if state.evidence is not None:
        return capped(state, state.evidence, counts)
    heads: Floats = counts[::-1]
    return heads if state.is_fixed is None else np.where(state.is_fixed, 0.0, heads)


def _worth(state: TableState, prior: Floats, evidence: Floats) -> Floats:
    """The flips beyond the prior that the spread of rows stands for; at most the evidence."""
    most: Floats = evidence.sum(axis=0)
    if state.spread is None or state.centre is None:
        return most
    told = strength_of(state.centre, state.spread) - prior
    worth: Floats = np.minimum(np.where(np.isfinite(told), told, most), most)
    return worth
