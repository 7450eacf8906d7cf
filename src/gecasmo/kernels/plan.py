"""Where a coin's row number comes from, as far as a kernel has to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from gecasmo.kernels.machine import Machine

Scope = Literal["global", "page", "result"]


class CoinPlan(NamedTuple):
    """How the row of one coin is found.

    `codes` is the number of the array of row numbers that the coin reads. With `history`, rows
    depend on the clicks of the page as well as on the page; pages that show the same results
    share all other arrays.
    """

    scope: Scope
    codes: int = -1
    history: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The coins of a model, in the order of its parameters."""

    coins: tuple[CoinPlan, ...]

    @property
    def n_codes(self) -> int:
        return 1 + max((coin.codes for coin in self.coins), default=-1)

    def scope(self, machine: Machine, variable: int) -> Scope:
        coin, _, row = machine.variables[variable]
        return "global" if row is not None else self.coins[coin].scope

    def codes_arguments(self) -> list[str]:
        return [f"codes{number}" for number in range(self.n_codes)]

    def weight_arguments(self) -> list[str]:
        return [f"W{number}" for number in range(len(self.coins))]
