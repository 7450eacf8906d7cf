"""Steps of a machine whose states have few edges each: cell after cell.

Only states that can be there are looked at: of those that have been reached, the ones that what was
shown since has left.
"""

from __future__ import annotations

from gecasmo.kernels.e_step.looped import Looped, firsts, place_array
from gecasmo.kernels.text import Text


class Sparse(Looped):
    """Writes the E-step with loops over states and the cells of their rows."""

    def constants(self, text: Text) -> None:
        """Cells row after row, step after step."""
        lengths: list[int] = []
        products: list[int] = []
        hubs: list[tuple[int, int]] = []
        for one in self.matrices:
            products += [one.place(product) for product in one.rows]
            own = [0] * len(one.rows)
            for cell, flows in one.cells.items():  # sorted by row
                own[cell.source] += 1
                hub = one.hubs[cell.target]
                self.flows += [(len(hubs), flow) for flow in flows]
                hubs.append((hub.state, one.place(hub.product)))
            lengths += own
        self.n_cells = max(1, len(hubs))
        text(place_array("ROWS", firsts(len(one.rows) for one in self.matrices)))
        text(place_array("ROW", firsts(lengths)), place_array("ROW_PRODUCT", products))
        text(place_array("TO", [state for state, _ in hubs]))
        text(place_array("TO_PRODUCT", [product for _, product in hubs]))

    def forward(self, text: Text) -> None:
        """To each state that a row has a cell to."""
        text("first_row = ROWS[step]")
        with text.block("for s in range(reach):"):
            text("y = a[before + s]")
            with text.block("if y == 0.0:"):
                text("continue")
            text("k = first_row + s", "y *= r[at + ROW_PRODUCT[k]]")
            with text.block(f"for c in range(ROW[k], ROW[k + {self.place(1)}]):"):
                text("a[after + TO[c]] += y * r[at + TO_PRODUCT[c]] * cells[c]")

    def backward(self, text: Text) -> None:
        """From each of these states."""
        text("first_row = ROWS[step]")
        with text.block("for s in range(reach):"):
            text("y = a[before + s]")
            with text.block("if y == 0.0:"):
                text("b[before + s] = 0.0", "continue")
            text("k = first_row + s", "w = r[at + ROW_PRODUCT[k]]")
            text("y *= w", "z = 0.0")
            with text.block(f"for c in range(ROW[k], ROW[k + {self.place(1)}]):"):
                text("d = TO_PRODUCT[c]", "u = r[at + d] * b[after + TO[c]]", "x = cells[c] * u")
                text("z += x", "m[d] += y * x")
                if self.has_flows:
                    text("flows[c] += y * u")
            text("b[before + s] = w * z", "m[ROW_PRODUCT[k]] += y * z")
