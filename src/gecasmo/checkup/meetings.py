"""Which rows of two coins meet at results, and how that hangs together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecasmo.checkup.counting import rows_at_results, totals
from gecasmo.encoding import EncodedLog
from gecasmo.kernels.machine import Machine

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Meetings:
    """How the rows of two coins meet at results.

    `component[side][row]` is the part of the graph that a row is in, the largest first; -1 for a
    row that never meets one of the other coin.
    """

    coins: tuple[int, int]
    component: tuple[Integers, Integers]
    impressions: Floats  # of each component
    used: tuple[Floats, Floats]  # impressions of each row

    @property
    def n_components(self) -> int:
        return len(self.impressions)

    def members(self, side: int, component: int) -> Integers:
        """The rows of one side in a component, those with the most impressions first."""
        rows = np.flatnonzero(self.component[side] == component)
        return rows[np.argsort(-self.used[side][rows], kind="stable")]


def meet(encoded: EncodedLog, machine: Machine, first: int, second: int) -> Meetings:
    """Which rows of two coins meet at results, and how that hangs together."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    sizes = len(encoded.rows[first]), len(encoded.rows[second])
    weight = np.repeat(encoded.weight, np.diff(encoded.obs_start))
    rows = [rows_at_results(encoded, coin) for coin in (first, second)]
    lists: tuple[list[Integers], list[Integers]] = ([], [])
    weights = []
    for case, lags in _meeting_cases(machine, first, second):
        here = np.flatnonzero(_cases(machine)[encoded.obs] == case)
        for lag in lags:
            keep = here[_within(encoded, here) >= max(lag)]
            for side in (0, 1):
                lists[side].append(rows[side][keep - lag[side]])
            weights.append(weight[keep])
    pairs = [np.concatenate([np.zeros(0, np.int64), *found]) for found in lists]
    amount = np.concatenate([np.zeros(0), *weights])
    counted_pairs = amount > 0
    pairs, amount = [side[counted_pairs] for side in pairs], amount[counted_pairs]
    n_nodes = sum(sizes)
    graph = coo_array((amount, (pairs[0], pairs[1] + sizes[0])), shape=(n_nodes, n_nodes))
    _, label = connected_components(graph, directed=False)
    used = totals(pairs[0], amount, sizes[0]), totals(pairs[1], amount, sizes[1])
    impressions = totals(label[pairs[0]], amount, n_nodes)
    order = np.argsort(-impressions, kind="stable")
    order = order[impressions[order] > 0]
    number = np.full(max(n_nodes, 1), -1)
    number[order] = np.arange(len(order))
    component = number[label[: sizes[0]]], number[label[sizes[0] :]]
    return Meetings((first, second), component, impressions[order], used)


def _meeting_cases(
    machine: Machine, first: int, second: int
) -> list[tuple[int, set[tuple[int, int]]]]:
    """The kinds of results (by guards) at which both coins are flipped, with the lags of both."""
    found = []
    for case, edges in enumerate(machine.edges_by_class):
        lags = set()
        for edge in edges:
            variables = [machine.variables[literal.variable] for literal in edge.literals]
            lags |= {
                (a.lag, b.lag)
                for a in variables
                if a.coin == first
                for b in variables
                if b.coin == second
            }
        if lags:
            found.append((case, lags))
    return found


def _cases(machine: Machine) -> Integers:
    return np.array([observation.case for observation in machine.observations], np.int64)


def _within(encoded: EncodedLog, places: Integers) -> Integers:
    """The place of results on their page, from 0."""
    page = np.searchsorted(encoded.obs_start, places, side="right") - 1
    return places - encoded.obs_start[page]
