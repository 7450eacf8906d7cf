"""Hand many coins that are the same everywhere to a kernel as one array.

Each array among the arguments of a kernel costs compile time, the more the more there are: 200 of
them take 6 seconds for a kernel that does nothing. So where there are many such coins, kernels take
the weights of their variables (heads and tails, in the order of the machine) in `W_packed`, and add
counts to `C_packed`, a row for each table of counts; this module goes between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gecasmo.kernels.machine import Machine
from gecasmo.kernels.machine_code import Kernel
from gecasmo.kernels.plan import Plan


class Packing:
    """What is packed among the arguments of a kernel; `n_first` of them precede the weights."""

    def __init__(self, machine: Machine, plan: Plan, n_first: int, is_counting: bool) -> None:
        self.n_coins = len(plan.coins)
        self.packed = plan.packed
        packed = set(plan.packed)
        self.kept = [coin for coin in range(self.n_coins) if coin not in packed]
        self.n_first = n_first
        self.is_counting = is_counting
        variables = machine.variables
        self.cells = [
            (variables[number].coin, variables[number].row or 0)
            for number in packed_variables(machine, plan)
        ]

    def arguments(self, given: Sequence[Any]) -> list[Any]:
        """The arguments as the kernel takes them."""
        before, weights, more = self._cut(given, self.n_first)
        packed = [weights[coin][side, row] for coin, row in self.cells for side in (0, 1)]
        ours = [*before, *(weights[coin] for coin in self.kept), np.array([*packed, 1.0])]
        if not self.is_counting:
            return [*ours, *more]
        _, counts, more = self._cut(more, 0)
        _, shifts, more = self._cut(more, 0)
        shift = min(shifts[coin] for coin in self.packed)
        n_tables = max(((given[1] - 1) >> shift) - (given[0] >> shift) + 1, 1)
        return [
            *[*ours, *(counts[coin] for coin in self.kept), np.zeros((n_tables, len(packed) + 1))],
            *[*(shifts[coin] for coin in self.kept), shift, *more],
        ]

    def around(self, kernel: Kernel) -> Kernel:
        """The kernel as its callers know it."""

        def call(*given: Any) -> None:
            ours = self.arguments(given)
            kernel(*ours)
            if self.is_counting:
                self._add(given, ours)

        return call

    def _add(self, given: Sequence[Any], ours: Sequence[Any]) -> None:
        """Add the counts of packed coins to their tables. Nobody else writes to these meanwhile: a
        table belongs to the buckets of one call."""
        _, counts, more = self._cut(given[self.n_first + self.n_coins :], 0)
        shifts = more[: self.n_coins]
        at = self.n_first + len(self.kept) + 1
        found, shift = ours[at + len(self.kept)], ours[at + 2 * len(self.kept) + 1]
        tables = np.arange(len(found)) + (given[0] >> shift)
        for place, (coin, row) in enumerate(self.cells):
            own = found[:, 2 * place : 2 * place + 2]
            further = shifts[coin] - shift
            if further or len(own) != len(counts[coin]):
                np.add.at(counts[coin][:, :, row], tables >> further, own)
            else:
                counts[coin][:, :, row] += own

    def _cut(self, given: Sequence[Any], first: int) -> tuple[Sequence[Any], ...]:
        last = first + self.n_coins
        return given[:first], given[first:last], given[last:]


def packed_variables(machine: Machine, plan: Plan) -> list[int]:
    """The variables of coins that are packed, in order."""
    packed = set(plan.packed)
    return [number for number, one in enumerate(machine.variables) if one.coin in packed]
