"""Play one page in every way it can go, and add up.

A *story* is a plain function that plays one whole page: it flips coins by calling
`flip(coin, row) -> bool`, may say `flip.look(t)` when result t (from 0) is looked at and
`flip.see(column, density)` when a number is seen there, and returns
what each result showed, as a tuple of frozensets of signals. The oracle runs it again under every
outcome of its flips; everything a click model can be asked is then a sum over a list.

This module imports nothing of the library that it judges.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tracing import untraced

Row = Hashable
Signals = tuple[frozenset, ...]
Story = Callable[[Any], Signals]
Probability = Callable[[str, Row], float]


class Fall(NamedTuple):
    """One flip of a story: which coin, which row, how it came up, at which result."""

    coin: str
    row: Row
    heads: bool
    place: int | None  # None: before the first result


class Seen(NamedTuple):
    """A number that a story lets be seen: at which result, in which column, spread how."""

    place: int | None
    column: str
    density: str


@dataclass(frozen=True)
class Told:
    """One way the page can go."""

    probability: float
    signals: Signals
    falls: tuple[Fall, ...]
    looked: frozenset
    seen: tuple[Seen, ...] = ()


class _Flipper:
    """Repeats a recorded path, then takes heads for everything new."""

    def __init__(self, path: list[bool], probability: Probability) -> None:
        self.path = path
        self.probability = probability
        self.falls: list[Fall] = []
        self.looked: set[int] = set()
        self.place: int | None = None
        self.weight = 1.0
        self.seen: list[Seen] = []

    def see(self, column: str, density: str) -> None:
        self.seen.append(Seen(self.place, column, density))

    def look(self, place: int) -> None:
        self.place = place
        self.looked.add(place)

    def __call__(self, coin: str, row: Row = ()) -> bool:
        number = len(self.falls)
        theta = self.probability(coin, row)
        if number == len(self.path):
            self.path.append(theta > 0)  # a side of probability 0 is never taken
        heads = self.path[number]
        self.weight *= theta if heads else 1 - theta
        self.falls.append(Fall(coin, row, heads, self.place))
        return heads

    def can_fall_tails(self, number: int) -> bool:
        fall = self.falls[number]
        return fall.heads and self.probability(fall.coin, fall.row) < 1


@untraced
def every_story(story: Story, probability: Probability, limit: int = 200_000) -> list[Told]:
    """All stories of positive probability."""
    told: list[Told] = []
    path: list[bool] = []
    while True:
        flip = _Flipper(list(path), probability)
        signals = tuple(map(frozenset, story(flip)))
        told.append(
            Told(
                flip.weight,
                signals,
                tuple(flip.falls),
                frozenset(flip.looked),
                tuple(flip.seen),
            )
        )
        if len(told) > limit:
            raise RuntimeError(f"more than {limit:,} stories")
        path = flip.path
        number = len(path) - 1
        while number >= 0 and not flip.can_fall_tails(number):
            number -= 1
        if number < 0:
            return told
        path = [*path[:number], False]


class Oracle:
    """Answers about one page."""

    def __init__(self, story: Story, probability: Probability) -> None:
        self.probability = probability
        self.stories = every_story(story, probability)
        self.n_results = len(self.stories[0].signals)
        self.patterns: dict[Signals, float] = defaultdict(float)
        for told in self.stories:
            self.patterns[told.signals] += told.probability
        self.patterns = dict(self.patterns)

    def likelihood(self, shown: Signals) -> float:
        return self.patterns.get(shown, 0.0)

    def total(self) -> float:
        """The sum over all patterns; must be 1."""
        return math.fsum(self.patterns.values())

    def prefix(self, shown: Signals) -> float:
        """The probability that the first results show this."""
        length = len(shown)
        return math.fsum(p for s, p in self.patterns.items() if s[:length] == shown)

    def conditional_click(self, shown: Signals, place: int) -> float:
        """P(click at `place` | everything shown above it)."""
        above = shown[:place]
        clicked = math.fsum(
            p for s, p in self.patterns.items() if s[:place] == above and "click" in s[place]
        )
        return clicked / self.prefix(above)

    def conditional_shown(self, shown: Signals, place: int) -> float:
        """P(what was shown at `place` | everything shown above it)."""
        return self.prefix(shown[: place + 1]) / self.prefix(shown[:place])

    def marginal_click(self, place: int) -> float:
        return math.fsum(p for s, p in self.patterns.items() if "click" in s[place])

    def _given(self, shown: Signals) -> list[tuple[float, Told]]:
        total = self.likelihood(shown)
        return [(t.probability / total, t) for t in self.stories if t.signals == shown]

    def counts(self, shown: Signals) -> dict[tuple[str, Row], list[float]]:
        """Expected [heads, tails] of every row, counting every flip of the program."""
        counts: dict[tuple[str, Row], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for share, told in self._given(shown):
            for fall in told.falls:
                counts[fall.coin, fall.row][0 if fall.heads else 1] += share
        return dict(counts)

    def score(self, shown: Signals) -> dict[tuple[str, Row], float]:
        """heads (1 - theta) - tails theta per row; the same for every augmentation."""
        return {
            (coin, row): heads * (1 - self.probability(coin, row))
            - tails * self.probability(coin, row)
            for (coin, row), (heads, tails) in self.counts(shown).items()
        }

    def reached(self, shown: Signals, place: int) -> float:
        """P(the result was looked at | the whole page)."""
        return math.fsum(share for share, told in self._given(shown) if place in told.looked)

    def coin(self, shown: Signals, name: str, place: int | None) -> tuple[float, float]:
        """P(flipped at least once there), P(came up heads at least once there), given the page."""
        flipped = heads = 0.0
        for share, told in self._given(shown):
            here = [f.heads for f in told.falls if f.coin == name and f.place == place]
            flipped += share * bool(here)
            heads += share * any(here)
        return flipped, heads

    def best(self, shown: Signals) -> float:
        """The probability of the most likely story that shows this."""
        return max((t.probability for t in self.stories if t.signals == shown), default=0.0)

    def matching(
        self, shown: Signals, columns: list[dict[str, Any]], start: dict[str, Any]
    ) -> float:
        """The largest probability among stories that fall as told, result by result.

        `columns[t]` has "reached" and per coin the sides in order ("heads tails", or None).
        """
        return max(
            (
                t.probability
                for t in self.stories
                if t.signals == shown and _fits(t, columns, start)
            ),
            default=0.0,
        )


def _fits(told: Told, columns: list[dict[str, Any]], start: dict[str, Any]) -> bool:
    for place, wanted in (*enumerate(columns), (None, start)):
        for name, sides in wanted.items():
            if name == "reached":
                if bool(sides) != (place in told.looked):
                    return False
            elif _sides(told, name, place) != sides:
                return False
    return True


def _sides(told: Told, coin: str, place: int | None) -> str | None:
    fell = [
        "heads" if f.heads else "tails" for f in told.falls if (f.coin, f.place) == (coin, place)
    ]
    return " ".join(fell) or None


def told_as(told: Told, coins: list[str]) -> tuple[Any, ...]:
    """A story as a hashable: per result whether it was looked at, and how every coin fell."""
    places = [None, *range(len(told.signals))]
    return tuple(
        (place in told.looked, *(_sides(told, coin, place) for coin in coins)) for place in places
    )


class Floored(NamedTuple):
    """A page of which impossible observations are not looked at."""

    shown: list[float]  # probability of what was shown, 0 where it was impossible
    click: list[float]
    missing: list[bool]
    stories: list[tuple[float, Told]]  # those left over, weighed


def filter_floored(oracle: Oracle, shown: Signals) -> Floored:
    """Go down the page; an observation of probability 0 is passed over as if not made."""
    left = [(told.probability, told) for told in oracle.stories]
    answer = Floored([], [], [], [])
    for place, signals in enumerate(shown):
        total = math.fsum(p for p, _ in left)
        fitting = [(p, told) for p, told in left if told.signals[place] == signals]
        clicked = math.fsum(p for p, told in left if "click" in told.signals[place])
        answer.shown.append(math.fsum(p for p, _ in fitting) / total)
        answer.click.append(clicked / total)
        answer.missing.append(not fitting)
        left = fitting or left
    total = math.fsum(p for p, _ in left)
    answer.stories.extend((p / total, told) for p, told in left)
    return answer


def floored_counts(floored: Floored) -> dict[tuple[str, Row], list[float]]:
    """Expected [heads, tails], where results that were not looked at are missing data."""
    counts: dict[tuple[str, Row], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for share, told in floored.stories:
        for fall in told.falls:
            counts[fall.coin, fall.row][0 if fall.heads else 1] += share
    return dict(counts)


# Numbers by result and column; what was not recorded is not there.
Numbers = dict[tuple[int, str], float]


def seen_as(told: Told, numbers: Numbers, density: Callable[[str, float], float]) -> float:
    """The density of numbers under a story: 0 where it shows nothing to have them from."""
    weight = 1.0
    left = dict(numbers)
    for place, column, name in told.seen:
        value = left.pop((place or 0, column), None)
        if value is not None:
            weight *= density(name, value)
    return 0.0 if left else weight


def given_numbers(
    stories: list[Told],
    shown: Signals,
    numbers: Numbers,
    density: Callable[[str, float], float],
    length: int | None = None,
) -> list[tuple[float, Told]]:
    """The stories that show this down to some result, weighed with the numbers seen there."""
    length = len(shown) if length is None else length
    above = {key: value for key, value in numbers.items() if key[0] < length}
    found = []
    for told in stories:
        if told.signals[:length] == shown[:length]:
            part = [seen for seen in told.seen if (seen.place or 0) < length]
            weight = seen_as(Told(1.0, (), (), frozenset(), tuple(part)), above, density)
            found.append((told.probability * weight, told))
    return found
