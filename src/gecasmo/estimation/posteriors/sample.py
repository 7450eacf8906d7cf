"""A few of the pages of a log, with everything about their queries, in memory.

What all queries have in common is learned from some of them: priors, and how sure global coins
are. Since the sample has all pages of its queries, the rows of its local coins follow from the
sample alone once global coins are given. Of a log in memory the sample is all of it, and its rows
are where the fit has put them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.coins import Evaluated
from gecasmo.estimation.part import Part
from gecasmo.estimation.posteriors.regression import Regression
from gecasmo.estimation.tasks import Prior
from gecasmo.forms import FormState, TableState
from gecasmo.forms.priors import Design, Priors

Integers = NDArray[np.int64]

# Priors are learned from the pages of some queries if there are many more.
PAGES = 10_000
_MOST_STEPS = 200
_SETTLED = 1e-5


@dataclass
class SampledPages:
    """A sample of the pages.

    Parameters
    ----------
    part : its pages, with the rows of all coins
    local : numbers of the coins that are local to the parts of the log
    index : for each global coin, the place of its rows here among all rows
    is_all : whether these are all pages, and their rows those of the fit
    designs : what the learned priors of coins depend on, by number
    """

    part: Part
    local: Sequence[int] = ()
    index: Mapping[int, Integers] = field(default_factory=dict)
    is_all: bool = False
    designs: Mapping[int, Design] = field(default_factory=dict)
    _last: dict[int, TableState] = field(default_factory=dict)

    def settled(self, best: Evaluated) -> Evaluated:
        """The sample with global coins as they are in a fit; local ones go where that puts them."""
        if self.is_all:
            return best
        assert best.states.rows is not None or not self.local
        states: list[FormState] = []
        begin = self.part.begun(None)
        for number in range(len(self.part.coins)):
            if number in self.local and best.states.rows is not None:
                state: Any = self._last.get(number, begin[number])
                states.append(self.with_prior(number, state, best.states.rows.priors[number]))
            else:
                states.append(self.own_state(number, best.states[number]))
        evaluation = self.part.evaluate(states)
        for _ in range(_MOST_STEPS):
            following = list(evaluation.states)
            moved = 0.0
            for number in self.local:
                coin, state = self.part.coins[number], evaluation.states[number]
                heads, tails = evaluation.counts.heads(number), evaluation.counts.tails(number)
                following[number] = coin.form.fit(coin.rows, heads, tails, state)
                change = np.abs(following[number].probability - state.probability)
                moved = max(moved, float(change.max(initial=0.0)))
            evaluation = self.part.evaluate(following)
            if moved < _SETTLED:
                break
        self._last = {number: evaluation.states[number] for number in self.local}
        return evaluation

    def with_prior(self, number: int, state: TableState, prior: Prior) -> TableState:
        """The state of a local coin under a prior."""
        if not isinstance(prior, Priors):
            return replace(state, pseudo=prior or state.pseudo, priors=None)
        form: Any = self.part.coins[number].form
        pseudo = Regression(self.designs[number], prior).pseudo()
        made: TableState = form.with_prior(state, prior, pseudo)
        return made

    def places(self, number: int) -> Integers | slice:
        """The places of a global coin's rows here among all its rows."""
        return slice(None) if self.is_all else self.index[number]

    def own_state(self, number: int, state: FormState) -> FormState:
        """The state of a global coin, for the rows that are met here."""
        if self.is_all or not self.part.coins[number].form.has_posterior:
            return state
        index, rows = self.index[number], self.part.coins[number].rows
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
