"""A part of a log, ready for passes: its own pages, its own rows of local coins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.problem import Problem
from gecasmo.forms import TableState

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass
class Part:
    """One part of a log.

    Parameters
    ----------
    number : its place among the parts
    problem : its pages as a problem of their own; the rows of its coins are those met here
    begin : where its local coins begin, with rows that are given; by number of the coin
    index : for each shared coin, the place of each of its rows here among all rows
    n_rows : for each shared coin, how many rows there are in all
    typical : for local coins whose prior depends on the row, what it depends on, by name
    """

    number: int
    problem: Problem
    begin: Mapping[int, TableState]
    index: Mapping[int, Integers]
    n_rows: Mapping[int, int]
    typical: Mapping[int, Mapping[str, Floats]] = field(default_factory=dict)


_KINDS = ("probability", "following", "centre", "spread", "worth", "heads", "tails")
_LEANS = "leans"


@dataclass(frozen=True)
class Point:
    """Where the local coins of one part stand, and where an EM step takes them; by coin.

    At the end of a fit also what is believed of each row: mean and standard deviation, the flips
    that all pages are worth with the prior, all else held, and the heads and tails of its prior;
    and how that leans on each shared table, by its number, `[its row, row]`.
    """

    probability: Mapping[int, Floats]
    following: Mapping[int, Floats]
    centre: Mapping[int, Floats] = field(default_factory=dict)
    spread: Mapping[int, Floats] = field(default_factory=dict)
    worth: Mapping[int, Floats] = field(default_factory=dict)
    heads: Mapping[int, Floats] = field(default_factory=dict)
    tails: Mapping[int, Floats] = field(default_factory=dict)
    leans: Mapping[int, Mapping[int, Floats]] = field(default_factory=dict)

    def arrays(self) -> dict[str, Floats]:
        """All arrays by name, as they are stored."""
        named: dict[str, Floats] = {}
        for kind in _KINDS:
            for coin, values in getattr(self, kind).items():
                named[f"{kind}{coin}"] = values
        for coin, leans in self.leans.items():
            for shared, lines in leans.items():
                named |= {f"{_LEANS}{coin}.{shared}.{n}": line for n, line in enumerate(lines)}
        return named

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> Point:
        """The point of such arrays."""
        kinds: dict[str, dict[int, Floats]] = {kind: {} for kind in _KINDS}
        leans: dict[int, dict[int, list[Floats]]] = {}
        for name, values in arrays.items():
            if name.startswith(_LEANS):
                coin, shared, _ = map(int, name.removeprefix(_LEANS).split("."))
                leans.setdefault(coin, {}).setdefault(shared, []).append(values)
                continue
            kind = next(k for k in kinds if name.startswith(k))
            kinds[kind][int(name.removeprefix(kind))] = values
        found = {
            coin: {shared: np.stack(lines) for shared, lines in own.items()}
            for coin, own in leans.items()
        }
        return cls(**kinds, leans=found)


Points = Mapping[str, Point]
