"""The edges of a machine as sparse matrices, for kernels that loop over them.

At a result, the weight of an edge is a product of three: coins that are the same everywhere, and
coins of this result, of which some belong to where the edge comes from and some to where it leads.

    source hub    a state before the result, with a product of coins of the result
    target hub    a state after it, with such a product
    cell          all edges from a source hub to a target hub: one number for the whole log

So a step backward is: weigh the target hubs, multiply by a matrix, weigh the source hubs. Of mood
models, where any mood may follow any other and then clicks in its own way, the matrix is that of
moods, and clicks are in the hubs.

Hubs are sorted by product and state, and those of one product and of consecutive states are a
segment; cells whose hubs are consecutive too are a run. Loops go over these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from gecasmo.kernels.machine import Machine, MachineEdge, MachineLiteral
from gecasmo.kernels.plan import Plan

Product = tuple[int, ...]  # slots of `v`, see `loads`
Kind = Literal["column", "diagonal", "single"]

# Shorter runs are not worth a loop of their own.
SHORTEST_RUN = 4


class Hub(NamedTuple):
    product: Product
    state: int


class Cell(NamedTuple):
    source: int  # places of hubs
    target: int


CellLines = dict[Cell, list[Cell]]


class HubRange(NamedTuple):
    """Consecutive hubs of one product: where they begin, with which state, and how many."""

    product: int
    hub: int
    state: int
    length: int


@dataclass
class Matrix:
    """The edges of one observation at one step."""

    products: list[Product]
    sources: list[Hub]
    targets: list[Hub]
    cells: dict[Cell, list[tuple[Product, float]]]

    def segments(self, hubs: Sequence[Hub]) -> list[HubRange]:
        """Which hubs can be gone through together."""
        places = {product: place for place, product in enumerate(self.products)}
        found: list[HubRange] = []
        for place, hub in enumerate(hubs):
            product = places[hub.product]
            if found:
                last = found[-1]
                if last.product == product and last.state + last.length == hub.state:
                    found[-1] = last._replace(length=last.length + 1)
                    continue
            found.append(HubRange(product, place, hub.state, 1))
        return found

    def runs(self) -> dict[Kind, list[list[Cell]]]:
        """Which cells can be gone through together, and how."""
        segment_of = {}
        for number, segment in enumerate(self.segments(self.sources)):
            for place in range(segment.length):
                segment_of[segment.hub + place] = number
        columns, diagonals = (self._lines(step, segment_of) for step in (0, 1))
        found: dict[Kind, list[list[Cell]]] = {"column": [], "diagonal": [], "single": []}
        kinds: tuple[tuple[Kind, CellLines], ...] = (("column", columns), ("diagonal", diagonals))
        for kind, lines in kinds:
            for line in {id(line): line for line in lines.values()}.values():
                # A cell belongs to the longer of the two lines that go through it.
                for is_column, part in groupby(
                    line, lambda cell: len(columns[cell]) >= len(diagonals[cell])
                ):
                    cells = list(part)
                    if is_column != (kind == "column"):
                        continue
                    if len(cells) >= SHORTEST_RUN:
                        found[kind].append(cells)
                    else:
                        found["single"] += [[cell] for cell in cells]
        found["single"].sort(key=lambda cells: (self.sources[cells[0].source].state, cells[0]))
        return found

    def _lines(self, step: int, segment_of: dict[int, int]) -> CellLines:
        """The line of cells that each is in, if each next target hub is so many further."""
        lines: CellLines = {}
        for cell in sorted(self.cells):
            before = Cell(cell.source - 1, cell.target - step)
            is_next = before in lines and segment_of[before.source] == segment_of[cell.source]
            lines[cell] = lines[before] if is_next else []
            lines[cell].append(cell)
        return lines


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


def matrix(edges: Sequence[MachineEdge], machine: Machine, plan: Plan) -> Matrix:
    """The edges as the smaller of two matrices: coins that all edges of a state have in common are
    taken out of their sum, by the states they come from or by those they lead to."""
    own = [
        [one for one in edge.literals if plan.scope(machine, one.variable) != "global"]
        for edge in edges
    ]
    options = []
    for end in ("source", "target"):
        common: dict[int, Counter[MachineLiteral]] = {}
        for edge, literals in zip(edges, own, strict=True):
            state = getattr(edge, end)
            common[state] = (
                common[state] & Counter(literals) if state in common else Counter(literals)
            )
        ends = []
        for edge, literals in zip(edges, own, strict=True):
            shared = common[getattr(edge, end)]
            rest = Counter(literals) - shared
            parts = (shared, rest) if end == "source" else (rest, shared)
            ends.append((Hub(_slots(parts[0]), edge.source), Hub(_slots(parts[1]), edge.target)))
        options.append(ends)
    chosen = min(options, key=lambda ends: len({a for a, _ in ends}) * len({b for _, b in ends}))
    sources, targets = (sorted({pair[side] for pair in chosen}) for side in (0, 1))
    source_of, target_of = ({hub: n for n, hub in enumerate(hubs)} for hubs in (sources, targets))
    cells: dict[Cell, list[tuple[Product, float]]] = {}
    for edge, (source, target) in zip(edges, chosen, strict=True):
        everywhere = Counter(
            one for one in edge.literals if plan.scope(machine, one.variable) == "global"
        )
        cell = Cell(source_of[source], target_of[target])
        cells.setdefault(cell, []).append((_slots(everywhere), edge.multiplicity))
    products = sorted({hub.product for hub in (*sources, *targets)})
    return Matrix(products, sources, targets, cells)


def _slots(literals: Counter[MachineLiteral]) -> Product:
    return tuple(sorted(2 * one.variable + one.heads for one in literals.elements()))
