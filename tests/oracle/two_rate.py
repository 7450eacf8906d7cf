"""The two-rate cascade in closed form: CM, DCM, SDBN, DBN and CCM (click-models.md, section 2).

Given examination: click with probability `attraction[t]`, then read on with `after_skip[t]` or
`after_click[t]`. Everything is O(T) and in plain numbers; logarithms where pages are long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class TwoRate:
    """One page of a cascade with its clicks."""

    attraction: Sequence[float]
    after_skip: Sequence[float]
    after_click: Sequence[float]
    clicks: Sequence[bool]

    def __post_init__(self) -> None:
        self.length = len(self.clicks)
        # No event after the last result.
        self.after_skip = [*list(self.after_skip)[: self.length - 1], 0.0]
        self.after_click = [*list(self.after_click)[: self.length - 1], 0.0]
        clicked = [t for t, click in enumerate(self.clicks) if click]
        self.last = clicked[-1] if clicked else -1  # the last click, from 0; -1 for none
        self.quiet = self._no_click_tail()

    def _no_click_tail(self) -> list[float]:
        """X_t = P(no click from t on | examined at t)."""
        quiet = [1.0] * (self.length + 1)
        for t in range(self.length - 1, -1, -1):
            go = self.after_skip[t]
            quiet[t] = (1 - self.attraction[t]) * (1 - go + go * quiet[t + 1])
        return quiet

    @property
    def after_last(self) -> float:
        """Z: P(no click below the last one | that click)."""
        go = self.after_click[self.last]
        return 1 - go + go * self.quiet[self.last + 1]

    def log_likelihood(self) -> float:
        if self.last < 0:
            return math.log(self.quiet[0])
        total = math.log(self.after_last)
        for t in range(self.last + 1):
            total += math.log(self.attraction[t] if self.clicks[t] else 1 - self.attraction[t])
        for t in range(self.last):
            total += math.log(self.after_click[t] if self.clicks[t] else self.after_skip[t])
        return total

    def likelihood(self) -> float:
        try:
            return math.exp(self.log_likelihood())
        except ValueError:  # the logarithm of 0
            return 0.0

    def conditional(self) -> list[float]:
        """P(click_t | clicks above)."""
        examined, answers = 1.0, []
        for t in range(self.length):
            alpha = self.attraction[t]
            answers.append(examined * alpha)
            if self.clicks[t]:
                examined = self.after_click[t]
            else:
                examined = self.after_skip[t] * examined * (1 - alpha) / (1 - examined * alpha)
        return answers

    def marginal(self) -> list[float]:
        """P(click_t)."""
        examined, answers = 1.0, []
        for t in range(self.length):
            alpha = self.attraction[t]
            answers.append(examined * alpha)
            examined *= (1 - alpha) * self.after_skip[t] + alpha * self.after_click[t]
        return answers

    def examination(self) -> list[float]:
        """P(examined at t | all clicks)."""
        posterior = [1.0] * self.length
        for t in range(max(self.last, 0) + (self.last >= 0), self.length):
            if t == 0:
                continue
            above = t - 1
            if above == self.last:
                go = self.after_click[above]
                posterior[t] = go * self.quiet[t] / self.after_last
            else:
                go = self.after_skip[above]
                posterior[t] = posterior[above] * go * self.quiet[t]
                posterior[t] /= 1 - go + go * self.quiet[t]
        return posterior

    def attraction_counts(self) -> list[tuple[float, float]]:
        """Heads and tails of attraction where it is flipped only when examined."""
        return [
            (1.0, 0.0) if click else (0.0, examined)
            for click, examined in zip(self.clicks, self.examination(), strict=True)
        ]


def dbn_counts(
    page: TwoRate, satisfaction: Sequence[float], continuation: float
) -> tuple[list[tuple[float, float]], tuple[float, float]]:
    """Satisfaction by result and continuation in all, closed at the last result."""
    gamma, last, length = continuation, page.last, page.length
    satisfied = [(0.0, 0.0)] * length
    success = trials = 0.0
    for t in range(last):
        success, trials = success + 1, trials + 1
        if page.clicks[t]:
            satisfied[t] = (0.0, 1.0)
    if 0 <= last < length - 1:
        sigma, z, quiet = satisfaction[last], page.after_last, page.quiet[last + 1]
        satisfied[last] = (sigma / z, 1 - sigma / z)
        success += (1 - sigma) * gamma * quiet / z
        trials += (1 - sigma) * (1 - gamma + gamma * quiet) / z
    examination = page.examination()
    for t in range(last + 1, length - 1):
        quiet = page.quiet[t + 1]
        success += examination[t] * gamma * quiet / (1 - gamma + gamma * quiet)
        trials += examination[t]
    return satisfied, (success, trials - success)


def ccm_second_flips(
    page: TwoRate, after_click: float, after_satisfaction: float
) -> list[tuple[float, float]]:
    """CCM's second flip of attraction, after each click; closed at the last result."""
    counts = [(0.0, 0.0)] * page.length
    for t in range(page.last + 1):
        if not page.clicks[t] or t == page.length - 1:
            continue
        alpha = page.attraction[t]
        if t < page.last:
            heads = after_satisfaction * alpha
            heads /= after_click * (1 - alpha) + after_satisfaction * alpha
        else:
            quiet = page.quiet[t + 1]
            heads = alpha * (1 - after_satisfaction + after_satisfaction * quiet) / page.after_last
        counts[t] = (heads, 1 - heads)
    return counts
