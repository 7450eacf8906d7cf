"""A few of the pages of a log in parts, with everything about their queries, in memory.

What all queries have in common is learned from some of them: priors, and how sure shared coins
are. Since the sample has all pages of its queries, the rows of its local coins follow from the
sample alone once shared coins are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.beliefs.regression import Regression
from gecasmo.estimation.parts.problem import PartedEvaluation, Prior
from gecasmo.estimation.problem import Evaluation, Problem
from gecasmo.forms import FormState, TableState
from gecasmo.forms.priors import Design

Integers = NDArray[np.int64]

_MOST_STEPS = 200
_SETTLED = 1e-5


@dataclass
class Sample:
    """A sample of the pages.

    Parameters
    ----------
    problem : its pages as a problem of their own
    local : numbers of the local coins
    index : for each shared coin, the place of its rows here among all rows
    designs : what the learned priors of coins depend on, by number
    """

    problem: Problem
    local: Sequence[int]
    index: Mapping[int, Integers]
    designs: Mapping[int, Design]
    _last: dict[int, TableState] = field(default_factory=dict)

    def settled(self, best: PartedEvaluation) -> Evaluation:
        """The sample with shared coins as they are in a fit; local ones go where that puts them."""
        shared = iter(best.states.shared)
        states: list[FormState] = []
        begin = self.problem.begin(None)
        for number in range(len(self.problem.coins)):
            if number in self.local:
                state: Any = self._last.get(number, begin[number])
                states.append(self.with_prior(number, state, best.states.priors[number]))
            else:
                states.append(self.own_state(number, next(shared)))
        evaluation = self.problem.evaluate(states)
        for _ in range(_MOST_STEPS):
            following = list(evaluation.states)
            moved = 0.0
            for number in self.local:
                coin, state = self.problem.coins[number], evaluation.states[number]
                heads, tails = evaluation.counts.heads(number), evaluation.counts.tails(number)
                following[number] = coin.form.fit(coin.rows, heads, tails, state)
                change = np.abs(following[number].probability - state.probability)
                moved = max(moved, float(change.max(initial=0.0)))
            evaluation = self.problem.evaluate(following)
            if moved < _SETTLED:
                break
        self._last = {number: evaluation.states[number] for number in self.local}
        return evaluation

    def with_prior(self, number: int, state: TableState, prior: Prior) -> TableState:
        """The state of a local coin under a prior."""
        if isinstance(prior, tuple):
            return replace(state, pseudo=prior, priors=None)
        form: Any = self.problem.coins[number].form
        pseudo = Regression(self.designs[number], prior).pseudo()
        made: TableState = form.with_prior(state, prior, pseudo)
        return made

    def own_state(self, number: int, state: FormState) -> FormState:
        """The state of a shared coin, for the rows that are met here."""
        if not self.problem.coins[number].form.has_posterior:
            return state
        index, rows = self.index[number], self.problem.coins[number].rows
        pseudo: Any = state.pseudo
        if isinstance(pseudo, np.ndarray):
            pseudo = pseudo[:, index]
        return replace(
            state,
            rows=rows,
            probability=state.probability[index],
            is_fixed=None if state.is_fixed is None else state.is_fixed[index],
            pseudo=pseudo,
            spread=None,
            centre=None,
        )
