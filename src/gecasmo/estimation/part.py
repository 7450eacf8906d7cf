"""A part of a log: its pages, the coins that they flip, and where the rows of these stand.

A log in memory is one part, a stored one has many. Everything that a fit asks of pages is a pure
function of a part (`passes.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.coins import Coin, Coins, Evaluated, States
from gecasmo.estimation.expectation import Expectation
from gecasmo.forms import FormState, TableState
from gecasmo.forms.priors import Design, Priors

if TYPE_CHECKING:
    from gecasmo.estimation.posteriors.past import Leaning, Past

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Part(Coins):
    """One part of a log.

    Parameters
    ----------
    coins : with the rows that are met here
    expectation : the E-step of its pages
    n_pages : what its pages weigh
    constant : log-likelihood of observations that were floored
    number : its place among the parts
    local : where its local coins begin, whose rows no other part has; by number of the coin
    index : for each other coin, the place of each of its rows here among all rows; None if these
        are all of them
    n_rows : for each of these coins, how many rows there are in all
    typical : for local coins whose prior depends on the row, what it depends on, by name
    """

    def __init__(
        self,
        coins: Sequence[Coin],
        expectation: Expectation,
        n_pages: float,
        constant: float = 0.0,
        number: int = 0,
        local: Mapping[int, TableState] | None = None,
        index: Mapping[int, Integers] | None = None,
        n_rows: Mapping[int, int] | None = None,
        typical: Mapping[int, Mapping[str, Floats]] | None = None,
    ) -> None:
        super().__init__(coins)
        self.expectation = expectation
        self.n_pages, self.constant, self.number = n_pages, constant, number
        self.local = dict(local or {})
        self.index, self.n_rows = dict(index or {}), dict(n_rows or {})
        self.typical = dict(typical or {})
        # Where one part is all there is, what else is known of its rows: designs of their priors,
        # what earlier logs have left of them, and how that leans on global coins.
        self.designs: Mapping[int, Design] = {}
        self.pasts: Mapping[int, Past] = {}
        self.leanings: Mapping[int, Leaning] = {}

    @property
    def shared(self) -> list[int]:
        """The numbers of the coins that other parts may have, too."""
        return [number for number in range(len(self.coins)) if number not in self.local]

    def placed(self, index: Mapping[int, Integers]) -> Part:
        """The part with the places of its rows among those of all parts."""
        found = copy.copy(self)
        found.index = dict(index)
        return found

    def with_coins(self, coins: Sequence[Coin]) -> Part:
        """The part with what else is known of its coins, such as the keys of their rows."""
        found = copy.copy(self)
        found.coins = list(coins)
        return found

    def with_rows(self, local: Mapping[int, TableState]) -> Part:
        """The part with the rows of these coins as its own."""
        found = copy.copy(self)
        found.local = dict(local)
        return found

    def evaluate(self, states: Sequence[FormState]) -> Evaluated:
        """Run the E-step at these states of all coins."""
        counts = self.expectation.run(self.weights(states))
        log_likelihood = -np.inf
        if not counts.n_impossible:
            log_likelihood = counts.log_likelihood + self.constant + self.left_out(states, counts)
        objective = log_likelihood + self.penalty(states)
        return Evaluated(States(list(states)), counts, objective, log_likelihood)


_KINDS = ("probability", "following", "centre", "spread", "worth", "heads", "tails")
_LEANS = "leans"


@dataclass(frozen=True)
class Point:
    """Where the local coins of one part stand, and where an EM step takes them; by coin.

    At the end of a fit also what is known of each row: mean and standard deviation, the flips
    that all pages are worth with the prior, all else held, and the heads and tails of its prior;
    and how that leans on each global table, by its number, `[its row, row]`. `priors` are those
    whose effects all rows of a part in memory had a say in, and are not stored.
    """

    probability: Mapping[int, Floats]
    following: Mapping[int, Floats] = field(default_factory=dict)
    centre: Mapping[int, Floats] = field(default_factory=dict)
    spread: Mapping[int, Floats] = field(default_factory=dict)
    worth: Mapping[int, Floats] = field(default_factory=dict)
    heads: Mapping[int, Floats] = field(default_factory=dict)
    tails: Mapping[int, Floats] = field(default_factory=dict)
    leans: Mapping[int, Mapping[int, Floats]] = field(default_factory=dict)
    priors: Mapping[int, Priors] = field(default_factory=dict)

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
            kind = next((k for k in kinds if name.startswith(k)), "")
            kinds[kind][int(name.removeprefix(kind))] = values
        found = {
            coin: {shared: np.stack(lines) for shared, lines in own.items()}
            for coin, own in leans.items()
        }
        return cls(leans=found, **kinds)  # type: ignore[arg-type]

    def check(self, n_rows: Mapping[int, int]) -> None:
        """Refuse, by a ValueError, a point of other rows than so many of each coin."""
        named = [(coin, len(v)) for kind in _KINDS for coin, v in getattr(self, kind).items()]
        for coin, leans in self.leans.items():
            named += [(coin, lines.shape[1]) for lines in leans.values()]
        if any(n_rows.get(coin) != n for coin, n in named):
            raise ValueError("it is of other rows")
        if any(v.dtype != float for kind in _KINDS for v in getattr(self, kind).values()):
            raise ValueError("its numbers are of another type")


Points = Mapping[str, Point]
