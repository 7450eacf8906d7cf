"""Where a coin's row number comes from, as far as a kernel has to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from gecasmo.compiler.automaton import Automaton
from gecasmo.compiler.hide import unrecorded
from gecasmo.kernels.machine import Machine
from gecasmo.language.parameter import HISTORY_KEYS

Scope = Literal["global", "page", "result"]

# More coins that are the same everywhere are handed to looping kernels in one array.
MOST_TABLES = 6


class CoinPlan(NamedTuple):
    """How the row of one coin is found.

    `codes` is the number of the array of row numbers that the coin reads. With `history`, rows
    depend on the clicks of the page as well as on the page; pages that show the same results
    share all other arrays. If it is `based`, the numbers of a page count from a row that is the
    page's own, and so may be small.
    """

    scope: Scope
    codes: int = -1
    history: tuple[str, ...] = ()
    based: bool = False


@dataclass(frozen=True)
class Plan:
    """The coins of a model, in the order of its parameters, and what a log has not recorded.

    `observed` are the columns of numbers that it has; None where nobody looks at any.
    """

    coins: tuple[CoinPlan, ...]
    unrecorded: tuple[str, ...] = ()
    observed: tuple[str, ...] | None = None

    @property
    def n_codes(self) -> int:
        """Number of arrays of row numbers: coins with the same key share one."""
        return 1 + max((coin.codes for coin in self.coins), default=-1)

    def scope(self, machine: Machine, variable: int) -> Scope:
        """Tell whether a variable has one value for the log, the page or the result."""
        coin, _, row = machine.variables[variable]
        return "global" if row is not None else self.coins[coin].scope

    @property
    def based(self) -> list[int]:
        """The arrays whose numbers count from a row of each page."""
        return sorted({coin.codes for coin in self.coins if coin.based})

    def with_based(self, arrays: Iterable[int]) -> Plan:
        """The same plan with these arrays, and no others, based."""
        listed = set(arrays)
        coins = tuple(coin._replace(based=coin.codes in listed) for coin in self.coins)
        return replace(self, coins=coins)

    def codes_arguments(self) -> list[str]:
        """Names of the arrays of row numbers, as kernels take them."""
        codes = [f"codes{number}" for number in range(self.n_codes)]
        return codes + [f"first_row{number}" for number in self.based]

    @cached_property  # whoever writes kernels asks for it at every coin
    def packed(self) -> tuple[int, ...]:
        """The coins that looping kernels take in one array, if they are many; see `packing`."""
        found = tuple(n for n, coin in enumerate(self.coins) if coin.scope == "global")
        return found if len(found) > MOST_TABLES else ()

    def coin_arguments(self, name: str, packed: bool = False) -> list[str]:
        """Names of what there is one of for each coin, such as its table of weights."""
        numbers = range(len(self.coins))
        if not (packed and self.packed):
            return [f"{name}{number}" for number in numbers]
        packed_ones = set(self.packed)
        return [f"{name}{n}" for n in numbers if n not in packed_ones] + [f"{name}_packed"]


class CodesPlan(NamedTuple):
    """One array of row numbers: a number per page or per result, for these key columns."""

    scope: Scope
    keys: tuple[str, ...]
    coin: str  # the first coin that reads it


def plan_of(
    keys: Mapping[str, tuple[str, ...]],
    automaton: Automaton,
    is_page_constant: Callable[[str], bool],
    lifted: bool = False,
    observed: tuple[str, ...] | None = None,
) -> tuple[Plan, list[CodesPlan]]:
    """Where each coin's rows come from, and the arrays of row numbers that this takes.

    `lifted` leaves the click history out of the row numbers; the kernel adds it. `observed` are the
    columns of numbers that the automaton was made for.
    """
    starting, numbered = automaton.start_parameters(), automaton.numbered_rows()
    arrays: dict[tuple[Scope, tuple[str, ...]], CodesPlan] = {}
    coins = []
    for coin, listed in keys.items():
        if not listed or coin in numbered:
            coins.append(CoinPlan("global"))
            continue
        history = tuple(key for key in listed if key in HISTORY_KEYS)
        used = tuple(key for key in listed if key not in history) if lifted else listed
        is_page = coin in starting or all(map(is_page_constant, listed))
        scope: Scope = "page" if is_page else "result"
        arrays.setdefault((scope, used), CodesPlan(scope, used, coin))
        coins.append(CoinPlan(scope, list(arrays).index((scope, used)), history))
    return Plan(tuple(coins), unrecorded(automaton), observed), list(arrays.values())
