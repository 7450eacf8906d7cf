"""The edges of a machine as sparse matrices, for kernels that loop over them.

At a result, the weight of an edge is a product of three: coins that are the same everywhere, and
coins of this result, of which some are flipped by all edges of the state that it comes from.

    row     the edges from a state, with the product of coins of the result that all of them have
    hub     a state after the result, with the product of the coins of the result that are left
    cell    all edges of a row into a hub: one number for the whole log

So a step backward is: weigh the hubs, multiply by a matrix, weigh the rows. Of mood models, where
any mood may follow any other and then clicks in its own way, the matrix is that of moods, and
clicks are in the hubs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gecasmo.kernels.machine import Machine, MachineEdge, MachineLiteral
from gecasmo.kernels.plan import Plan

Product = tuple[int, ...]  # slots of `v`, see `loads`


class Hub(NamedTuple):
    state: int
    product: Product


class Cell(NamedTuple):
    source: int  # a state
    target: int  # place of a hub


class Flow(NamedTuple):
    """An edge of a cell: the coins that are the same everywhere, and how often it stands there."""

    slots: Product
    times: float


@dataclass
class Matrix:
    """The edges of one observation at one step."""

    products: list[Product]
    rows: list[Product]  # by state
    hubs: list[Hub]
    cells: dict[Cell, list[Flow]]

    def place(self, product: Product) -> int:
        """Where a product stands in the list."""
        return self.products.index(product)


def depths(machine: Machine) -> list[int]:
    """After how many results each state can be reached, of a page that is long enough."""
    found = {edge.target: 0 for edge in machine.initial[-1]}
    targets: dict[int, set[int]] = defaultdict(set)
    for edges in machine.body.edges:
        for edge in edges:
            targets[edge.source].add(edge.target)
    border = list(found)
    while border:
        ahead = sorted({t for s in border for t in targets[s]} - set(found))
        found |= dict.fromkeys(ahead, found[border[0]] + 1)
        border = ahead
    never = max(found.values()) + 1
    return [found.get(state, never) for state in range(machine.n_states)]


def matrix(edges: Sequence[MachineEdge], n_sources: int, machine: Machine, plan: Plan) -> Matrix:
    """The edges as a matrix."""

    def is_global(one: MachineLiteral) -> bool:
        return plan.scope(machine, one.variable) == "global"

    common: dict[int, Counter[MachineLiteral]] = {}
    for edge in edges:
        own = Counter(one for one in edge.literals if not is_global(one))
        common[edge.source] = common.get(edge.source, own) & own
    found: dict[tuple[int, Hub], list[Flow]] = {}
    for edge in edges:
        own = Counter(one for one in edge.literals if not is_global(one))
        hub = Hub(edge.target, _slots(own - common[edge.source]))
        everywhere = Counter(one for one in edge.literals if is_global(one))
        flow = Flow(_slots(everywhere), edge.multiplicity)
        found.setdefault((edge.source, hub), []).append(flow)
    hubs = sorted({hub for _, hub in found})
    places = {hub: place for place, hub in enumerate(hubs)}
    rows = [_slots(common.get(state, Counter())) for state in range(n_sources)]
    cells = {Cell(source, places[hub]): flows for (source, hub), flows in found.items()}
    products = sorted({*rows, *(hub.product for hub in hubs)})
    return Matrix(products, rows, hubs, dict(sorted(cells.items())))


def _slots(literals: Counter[MachineLiteral]) -> Product:
    return tuple(sorted(2 * one.variable + one.heads for one in literals.elements()))
