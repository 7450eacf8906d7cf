"""Write indented source text, and the two ways of going through a list of edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gecasmo.kernels.machine import MachineEdge

# Above this many edges the source loops over constant arrays instead of spelling them out. More
# would still run faster, but compiling takes its time: an E-step of several states took 3 s for 23
# edges, 14 s for 83 and 39 s for 203.
MAX_UNROLLED_EDGES = 64

# A step less likely than this is done again, scaled up; a state less likely is never reached.
SMALLEST_STEP = 1e-150
SMALLEST_STATE = 2.3e-308


class Text:
    """Lines of source with indentation."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def __call__(self, *lines: str) -> None:
        for line in lines:
            self._lines.append("    " * self._depth + line if line else "")

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Write a header, and indent what is written inside of the `with` statement."""
        self(header)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self("pass")
        self._depth -= 1

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


def product(factors: Sequence[str]) -> str:
    return " * ".join(factors) or "1.0"


def number(value: float) -> str:
    """A number of ours as source text, exact."""
    return repr(float(value))


def array(name: str, values: Sequence[float], dtype: str = "int64") -> str:
    """A constant array; never empty, so that its type is always known."""
    listed = [repr(float(v)) if dtype == "float64" else str(int(v)) for v in values]
    return f"{name} = np.array([{', '.join(listed or ['0'])}], dtype=np.{dtype})"


class EdgeTable:
    """Lists of edges, one per value of a selector, as unrolled branches or as a loop.

    A template is lines of source with the fields {source}, {target}, {weight}, {edge} (the
    number of the edge in the automaton) and {click} (1 if the edge shows a click).
    """

    def __init__(
        self, name: str, lists: Sequence[Sequence[MachineEdge]], unrolled: bool | None = None
    ) -> None:
        self.name = name
        self.lists = lists
        n_edges = sum(map(len, lists))
        self.unrolled = n_edges <= MAX_UNROLLED_EDGES if unrolled is None else unrolled

    def constants(self) -> list[str]:
        """The constant arrays that a loop needs; nothing if edges are spelt out."""
        if self.unrolled:
            return []
        edges = [edge for edges in self.lists for edge in edges]
        firsts, literal_firsts, slots = [0], [0], []
        for listed in self.lists:
            firsts.append(firsts[-1] + len(listed))
        for edge in edges:
            slots += [2 * literal.variable + literal.heads for literal in edge.literals]
            literal_firsts.append(len(slots))
        name = self.name
        return [
            array(f"{name}_FIRST", firsts),
            array(f"{name}_SOURCE", [edge.source for edge in edges]),
            array(f"{name}_TARGET", [edge.target for edge in edges]),
            array(f"{name}_TIMES", [edge.multiplicity for edge in edges], "float64"),
            array(f"{name}_EDGE", [edge.number for edge in edges]),
            array(f"{name}_CLICK", ["click" in edge.symbol for edge in edges]),
            array(f"{name}_LITERAL", literal_firsts),
            array(f"{name}_SLOT", slots),
        ]

    def emit(self, text: Text, selector: str | None, *template: str) -> None:
        """Write the template for every edge that the selector picks (None: the only list)."""
        if self.unrolled:
            self._emit_unrolled(text, selector, template)
        else:
            self._emit_loop(text, selector or "0", template)

    def _emit_unrolled(self, text: Text, selector: str | None, template: Sequence[str]) -> None:
        keyword = "if"
        for value, edges in enumerate(self.lists):
            if not edges:
                continue
            if selector is None:
                self._emit_edges(text, edges, template)
                continue
            with text.block(f"{keyword} {selector} == {value}:"):
                self._emit_edges(text, edges, template)
            keyword = "elif"

    def _emit_edges(
        self, text: Text, edges: Sequence[MachineEdge], template: Sequence[str]
    ) -> None:
        for edge in edges:
            factors = [f"v[{2 * literal.variable + literal.heads}]" for literal in edge.literals]
            if edge.multiplicity != 1:
                factors.insert(0, number(edge.multiplicity))
            for line in template:
                text(
                    line.format(
                        source=edge.source,
                        target=edge.target,
                        weight=product(factors),
                        edge=edge.number,
                        click=int("click" in edge.symbol),
                    )
                )

    def _emit_loop(self, text: Text, selector: str, template: Sequence[str]) -> None:
        name = self.name
        with text.block(f"for e in range({name}_FIRST[{selector}], {name}_FIRST[{selector} + 1]):"):
            text(f"chance = {name}_TIMES[e]")
            with text.block(f"for j in range({name}_LITERAL[e], {name}_LITERAL[e + 1]):"):
                text(f"chance *= v[{name}_SLOT[j]]")
            for line in template:
                text(
                    line.format(
                        source=f"{name}_SOURCE[e]",
                        target=f"{name}_TARGET[e]",
                        weight="chance",
                        edge=f"{name}_EDGE[e]",
                        click=f"{name}_CLICK[e]",
                    )
                )
