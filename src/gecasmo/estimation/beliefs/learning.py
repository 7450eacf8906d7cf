"""Learn the priors of tables from the log, and sum up what is believed of every row.

EM climbs first, under vague priors: it finds the neighbourhood. From there shared coins, priors and
rows go on together (`joint.py`), on the pages of some queries if there are many. In the end every
row of the log gets its posterior mean, and every number its error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.estimation.beliefs.errors import Errors
from gecasmo.estimation.beliefs.joint import Joint, RowCoin, Shared
from gecasmo.estimation.beliefs.regression import Regression
from gecasmo.estimation.information import small_ties, tuned, with_errors
from gecasmo.estimation.problem import Evaluation, Problem
from gecasmo.forms import Fixed, Table
from gecasmo.forms.priors import Design

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# One row says nothing of what is usual.
_FEWEST_ROWS = 2
# Priors are learned from the pages of some queries if there are many more.
PAGES = 50_000


class Beliefs:
    """What can be learned about the rows of a problem's tables.

    `typical` has, by coin, what the priors of rows depend on (see `Empirical`).
    """

    def __init__(
        self, problem: Problem, typical: Mapping[str, dict[str, pl.Series]] | None = None
    ) -> None:
        self.problem = problem
        plans = problem.expectation.encoded.plan.coins
        self.tables: list[int] = []
        self.designs: dict[int, Design] = {}
        for number, coin in enumerate(problem.coins):
            if not isinstance(coin.form, Table) or plans[number].scope == "global":
                continue
            self.tables.append(number)
            prior = coin.form.learned_prior(coin.rows.keys)
            if prior is not None and len(coin.rows) >= _FEWEST_ROWS:
                own = (typical or {}).get(coin.name, {})
                self.designs[number] = Design.of(coin.rows, prior, own)

    @property
    def learns(self) -> bool:
        """Whether there is a prior to be learned."""
        return bool(self.designs)

    def learn(self, best: Evaluation) -> list[Any]:
        """The states under learned priors, with shared coins that go with them."""
        self.joint = self._joint(best)
        self.joint.climb()
        return list(self.joint.states)

    def _joint(self, best: Evaluation) -> Joint:
        coins = []
        for number in self.row_coins(best):
            regression = None
            if number in self.designs:
                design, state = self.designs[number], best.states[number]
                priors = state.priors or design.vague()
                regression = Regression(design, priors)
            coins.append(RowCoin(number, regression))
        n_buckets, factor = self.problem.expectation.sample(PAGES)
        return Joint(self.problem, best.states, coins, n_buckets, factor)

    def row_coins(self, best: Evaluation) -> list[int]:
        """Coins with rows by query or document, with many rows, or with a prior that is learned;
        others are shared by pages."""
        few = {tie[0] for tie in small_ties(self.problem, best.states)}
        found = []
        for number in self.tables:
            keys = self.problem.coins[number].rows.keys
            is_common = number in few and not {"query", "doc"} & set(keys)
            if number in self.designs or not is_common:
                found.append(number)
        return found

    # -- other forms ---------------------------------------------------------------------------
    def held(self, best: Evaluation) -> bool:
        """Whether there are forms that only EM can move."""
        rows = set(self.row_coins(best))
        shared = Shared.of(self.problem, best.states, rows)
        moved = rows.union(*shared.ties)
        return any(
            number not in moved and len(coin.rows) and not isinstance(coin.form, Fixed)
            for number, coin in enumerate(self.problem.coins)
        )

    def tuned(self, best: Evaluation) -> list[Any] | None:
        """The states with better priors of forms that tune their own, or None if all are
        content."""
        return tuned(self.problem, best)

    def with_errors(self, best: Evaluation, polish: bool) -> Evaluation:
        """The end of a fit, with the covariance of coefficients where forms can hold one."""
        return with_errors(self.problem, best, polish)

    # -- what is believed in the end -----------------------------------------------------------
    def summed_up(self, best: Evaluation) -> Evaluation:
        """The posterior mean and standard deviation of every row; counts belong to these means.

        Tables with pseudo-counts of the user's own keep their probabilities and only get spreads.
        """
        joint = self._joint(best)
        joint.climb()
        states = list(joint.states)
        for coin in joint.coins:
            states[coin.number] = coin.believed(self.problem, states[coin.number])
        errors = Errors(self.problem, joint.shared, joint.regressions(), joint.covariance)
        rows = [coin.number for coin in joint.coins]
        return errors.widened(self.problem.evaluate(states), joint.held, joint.factor, rows)
