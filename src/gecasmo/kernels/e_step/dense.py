"""Steps of a machine whose states mostly lead to all others: products of matrices and vectors.

Each is a sum of rows of a matrix, eight at a time, which compilers turn into instructions for
several numbers at once if they do not know how long rows are. Counts by cell wait for the end of a
page and are then a product of two matrices: what comes from above by result, and from below.
Matrices of several observations are often the same but for their hubs, and then are one.
"""

from __future__ import annotations

from gecasmo.kernels.e_step.cells import Cell, Flow, Matrix
from gecasmo.kernels.e_step.looped import Looped, firsts, place_array
from gecasmo.kernels.machine import Machine
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.text import Text

# Of this share of a matrix at least there must be cells.
_FILLED = 0.4
_MOST_CELLS = 1 << 20
# Rows that are added in one loop; and results.
_ROWS = 8
_RESULTS = 5

_Group = tuple[int, tuple[tuple[Cell, tuple[Flow, ...]], ...]]


def is_dense(matrices: list[Matrix]) -> bool:
    """Whether matrices have few holes."""
    shown = [one for one in matrices if one.cells]
    filled = sum(len(one.cells) for one in shown)
    room = sum(len({cell.source for cell in one.cells}) * len(one.hubs) for one in shown)
    most = max((len(one.rows) * len(one.hubs) for one in shown), default=0)
    return filled >= _FILLED * room and most * len(shown) <= _MOST_CELLS


class Dense(Looped):
    """Writes the E-step with loops over rows of matrices."""

    def __init__(self, machine: Machine, plan: Plan) -> None:
        super().__init__(machine, plan)
        self.n_rows = self.stride = _filled_up(self.n_states)
        self.weighs_rows = any(product for one in self.matrices for product in one.rows)
        self.sources = "x" if self.weighs_rows else "a"
        self.all_states = self.place(self.stride)

    def constants(self, text: Text) -> None:
        """Matrices after each other, their rows and hubs filled up to multiples of eight."""
        self.n_hubs = _filled_up(max(1, *(len(one.hubs) for one in self.matrices)))
        groups: dict[_Group, int] = {}
        own_groups = []
        for one in self.matrices:
            cells = tuple((cell, tuple(flows)) for cell, flows in one.cells.items())
            own_groups.append(groups.setdefault((len(one.hubs), cells), len(groups)))
        for (_, listed), group in groups.items():
            for cell, flows in listed:
                place = (group * self.n_rows + cell.source) * self.n_hubs + cell.target
                self.flows += [(place, flow) for flow in flows]
        self.n_groups = len(groups)
        self.n_cells = self.n_groups * self.n_rows * self.n_hubs
        text(place_array("GROUP", own_groups))
        text(place_array("WIDTH", [_filled_up(n_hubs) for n_hubs, _ in groups]))
        products: list[int] = []
        for one in self.matrices:
            own = [one.place(product) for product in one.rows]
            products += own + [0] * (self.n_rows - len(own))
        text(place_array("ROW_PRODUCT", products))
        hubs = [(one, hub) for one in self.matrices for hub in one.hubs]
        text(place_array("HUB", firsts(len(one.hubs) for one in self.matrices)))
        text(place_array("HUB_STATE", [hub.state for _, hub in hubs]))
        text(place_array("HUB_PRODUCT", [one.place(hub.product) for one, hub in hubs]))

    def room(self, text: Text) -> None:
        """Vectors by result, with one of zeros behind them; the matrices, turned."""
        if self.weighs_rows:
            text(f"x = np.zeros((max_length + 1) * {self.n_rows})", f"z = np.zeros({self.n_rows})")
        for name in "gh":
            text(f"{name} = np.zeros((max_length + 1) * {self.n_hubs})")
        text(f"turned = np.zeros({self.n_cells})")
        text(f"when = np.zeros(max_length + {_RESULTS}, np.uint64)")
        with text.block(f"for one in range({self.n_groups}):"):
            with text.block(f"for i in range({self.n_rows}):"):
                with text.block(f"for j in range({self.n_hubs}):"):
                    text(
                        f"turned[(one * {self.n_hubs} + j) * {self.n_rows} + i] = "
                        f"cells[(one * {self.n_rows} + i) * {self.n_hubs} + j]"
                    )

    def _places_here(self, text: Text) -> None:
        """Write where the vectors of a result are, and its matrix."""
        text(f"right = index(t * {self.n_hubs})")
        if self.weighs_rows:
            text(f"line = index(step * {self.n_rows})")
        text("hub = HUB[step]", "group = GROUP[step]")
        text("n_hubs = HUB[step + 1] - hub", "width = WIDTH[group]")
        text(f"own = group * {self.place(self.n_rows * self.n_hubs)}")

    def forward(self, text: Text) -> None:
        """States, weighed by rows, times the matrix, weighed by hubs."""
        self._places_here(text)
        text(f"eights = (reach + {self.place(_ROWS - 1)}) // {self.place(_ROWS)}")
        if self.weighs_rows:
            with text.block(f"for s in range({self.place(self.n_rows)}):"):
                text("x[before + s] = 0.0")
            with text.block("for s in range(reach):"):
                text("x[before + s] = a[before + s] * r[at + ROW_PRODUCT[line + s]]")
        with text.block(f"for u in range({self.place(self.n_hubs)}):"):
            text("g[right + u] = 0.0")
        self._add_rows(
            text, "eights", "g", "right", "cells", self.sources, "before", self.n_hubs, "width"
        )
        with text.block("for u in range(n_hubs):"):
            text("k = hub + u")
            text("a[after + HUB_STATE[k]] += r[at + HUB_PRODUCT[k]] * g[right + u]")

    def backward(self, text: Text) -> None:
        """What is below, weighed by hubs, times the turned matrix, weighed by rows."""
        self._places_here(text)
        with text.block("for u in range(n_hubs):"):
            text("k = hub + u", "d = HUB_PRODUCT[k]")
            text("w = r[at + d] * b[after + HUB_STATE[k]]")
            text("h[right + u] = w", "m[d] += g[right + u] * w")
        if len({len(one.hubs) for one in self.matrices if one.hubs}) > 1:
            with text.block("for u in range(n_hubs, width):"):
                text("h[right + u] = 0.0")
        target, place = ("z", "nowhere") if self.weighs_rows else ("b", "before")
        three = self.place(3)
        text(f"tall = (reach + {three}) & ~{three}")
        if self.weighs_rows:
            text(f"nowhere = {self.place(0)}")
        with text.block(f"for s in range({self.place(self.n_rows)}):"):
            text(f"{target}[{place} + s] = 0.0")
        text(f"eights = width // {self.place(_ROWS)}")
        self._add_rows(text, "eights", target, place, "turned", "h", "right", self.n_rows, "tall")
        if not self.weighs_rows:
            return
        with text.block("for s in range(reach):"):
            text("d = ROW_PRODUCT[line + s]")
            text("b[before + s] = r[at + d] * z[s]", "m[d] += x[before + s] * z[s]")

    def _add_rows(
        self,
        text: Text,
        n_eights: str,
        to: str,
        to_at: str,
        matrix: str,
        weights: str,
        weights_at: str,
        stride: int,
        length: str,
    ) -> None:
        """Write the sum of the first rows of this step's matrix, each with its weight."""
        with text.block(f"for eight in range({n_eights}):"):
            text(
                f"k = {self.place(_ROWS)} * eight",
                f"l0 = own + k * {self.place(stride)}",
                f"k += {weights_at}",
            )
            for place in range(_ROWS):
                if place:
                    text(f"l{place} = l{place - 1} + {self.place(stride)}")
                text(f"w{place} = {weights}[k + {self.place(place)}]")
            with text.block(f"for c in range({length}):"):
                terms = [f"{matrix}[l{place} + c] * w{place}" for place in range(_ROWS)]
                text(f"{to}[{to_at} + c] += {_sum(terms)}")

    def after_page(self, text: Text) -> None:
        """Counts by cell, some results at a time."""
        if not self.has_flows:
            return
        with text.block(f"for one in range({self.n_groups}):"):
            text("n_when = 0")
            with text.block("for t in range(length):"):
                distance = f"min(length - t - 1, {self.n_closing})"
                text(f"step = {distance} * {self.machine.n_observations} + np.int64(obs[base + t])")
                with text.block("if GROUP[step] == one:"):
                    text("when[n_when] = t", "n_when += 1")
            with text.block(f"for j in range(n_when, n_when + {_RESULTS - 1}):"):
                text("when[j] = max_length")  # zeros
            text("width = WIDTH[one]")
            with text.block(f"for state in range({self.n_states}):"):
                text(f"own = index((one * {self.n_rows} + state) * {self.n_hubs})")
                text("s = index(state)")
                with text.block(f"for quarter in range((n_when + {_RESULTS - 1}) // {_RESULTS}):"):
                    for place in range(_RESULTS):
                        text(
                            f"k = when[{_RESULTS} * quarter + {place}]",
                            f"l{place} = k * {self.place(self.n_hubs)}",
                        )
                        text(f"w{place} = {self.sources}[k * {self.place(self.n_rows)} + s]")
                    with text.block("for c in range(width):"):
                        terms = [f"h[l{place} + c] * w{place}" for place in range(_RESULTS)]
                        text(f"flows[own + c] += {_sum(terms)}")


def _sum(terms: list[str]) -> str:
    """A sum whose terms need not wait for each other."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return f"({_sum(terms[:half])} + {_sum(terms[half:])})"


def _filled_up(number: int) -> int:
    """The next multiple of the rows that are added at once."""
    return -(-number // _ROWS) * _ROWS
