"""A problem whose pages are in parts and whose rows are all in memory.

For methods that move all parameters at once, such as gradient descent: pages are streamed, and
memory grows with the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.minibatches import Batch, Batches
from gecasmo.estimation.parts.disk import DiskParts
from gecasmo.estimation.parts.part import Part
from gecasmo.estimation.parts.tasks import Recipe, Task
from gecasmo.estimation.problem import Coin, Evaluation, Problem
from gecasmo.forms import FormState


class GatheredProblem(Problem):
    """All coins are shared; the E-step runs over the parts."""

    def __init__(
        self, parts: DiskParts, coins: Sequence[Coin], n_pages: float, is_exchangeable: bool
    ) -> None:
        no_e_step: Any = None
        super().__init__(coins, no_e_step, n_pages, is_exchangeable)
        self.parts = parts
        sizes = [self._sizes(parts.part(number)) for number in parts.numbers]
        self._n_pages = [n for n, _, _ in sizes]
        self._weight = sum(weight for _, weight, _ in sizes)
        self._max_length = max(longest for _, _, longest in sizes)

    @staticmethod
    def _sizes(part: Part) -> tuple[int, float, int]:
        encoded = part.problem.expectation.encoded
        return encoded.n_pages, float(encoded.weight.sum()), encoded.max_length

    def evaluate(self, states: list[FormState], ahead: bool = False) -> Evaluation:
        """Run the E-step of all parts at these states."""
        weights = dict(enumerate(self.weights(states)))
        answer = self.parts.ask(Task(Recipe("begin"), "", weights, {}))
        counts = Counts(
            [answer.counts[number].table for number in range(len(self.coins))],
            answer.log_likelihood,
            answer.n_impossible,
        )
        log_likelihood = -np.inf if answer.n_impossible else answer.log_likelihood
        return Evaluation(states, counts, log_likelihood + self.penalty(states), log_likelihood)

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def encoded_weight(self) -> float:
        return self._weight

    def n_minibatches(self, size: int) -> int:
        return sum(max(1, -(-n // size)) for n in self._n_pages)

    def minibatches(self, size: int, generator: np.random.Generator) -> Iterator[Batch]:
        """All pages in batches, part after part; the order of parts and pages is drawn anew."""
        for number in generator.permutation(self.parts.numbers):
            part = self.parts.part(int(number))
            expectation = part.problem.expectation
            batches = Batches(expectation.encoded, size)
            for pages in batches.shuffled(generator):
                batch = batches.take(pages)
                used = [part.index[coin][own] for coin, own in enumerate(batch.used)]
                yield Batch(batch.encoded, used, expectation)
