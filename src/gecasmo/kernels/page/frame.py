"""What the page kernels share: header, page loop, fetching of weights, a scaled forward pass."""

from __future__ import annotations

from gecasmo.kernels.loads import Loads
from gecasmo.kernels.machine import Machine
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.text import SMALLEST_STATE, SMALLEST_STEP, EdgeTable, Text, array

_PAGE = ["first", "last", "obs_start", "row_start", "obs"]
_LIFT = ["ranks", "rank_size", "count_size"]


def page_arguments(plan: Plan, lifted: bool = False) -> list[str]:
    """The arguments that every page kernel begins with."""
    lift = _LIFT if lifted else []
    return [*_PAGE, *plan.codes_arguments(), *plan.coin_arguments("W", packed=True), *lift]


class PageKernel:
    """A kernel that walks pages with arrays over states: `a` before a result, `n` after it."""

    lifted = False
    # Kernels with much to say about each edge loop over them: spelt out they compile for long.
    unrolled: bool | None = False

    def __init__(self, machine: Machine, plan: Plan) -> None:
        self.machine = machine
        self.loads = Loads(machine, plan, self.lifted)
        self.plan = plan
        self.n_states = machine.n_states
        self.shown = EdgeTable("SHOWN", machine.body.edges, self.unrolled)
        self.any = EdgeTable("ANY", machine.edges_by_class, self.unrolled)
        self.initial = EdgeTable("INITIAL", [machine.initial[-1]], self.unrolled)

    def text(self, name: str, outputs: list[str], tables: list[EdgeTable]) -> Text:
        """Begin a source text: imports, edges as constants, and the header of the function."""
        text = Text()
        text("import numpy as np", "")
        for table in tables:
            text(*table.constants())
        text(*self.loads.constants())
        # Whoever does not look at a result does not look at its numbers either.
        unread = self.machine.unread
        text(array("CLASS", [unread[o.case] for o in self.machine.observations]), "", "")
        self.header = (
            f"def {name}({', '.join([*page_arguments(self.plan, self.lifted), *outputs])}):"
        )
        return text

    def start_page(self, text: Text) -> None:
        """Write what comes before the results of a page."""
        text("base = obs_start[i]", "row = row_start[i]", "length = obs_start[i + 1] - base")
        self.loads.page(text)

    def clear(self, text: Text, name: str = "n") -> None:
        """Write that a vector over states begins at 0."""
        with text.block(f"for s in range({self.n_states}):"):
            text(f"{name}[s] = 0.0")

    def scaled_forward(self, text: Text) -> None:
        """Fill a[t, s], the state before result t given what was shown above, and scale[t]."""
        text(f"a = np.empty((length + 1, {self.n_states}))", "scale = np.empty(length)")
        with text.block(f"for s in range({self.n_states}):"):
            text("a[0, s] = 0.0")
        self.initial.emit(text, None, "a[0, {target}] += {weight}")
        with text.block("for t in range(length):"):
            text("o = obs[base + t]")
            self.loads.result(text)
            text("lift = 1.0")
            with text.block("while True:"):
                with text.block(f"for s in range({self.n_states}):"):
                    text("a[t + 1, s] = 0.0")
                step = "a[t + 1, {target}] += a[t, {source}] / lift * {weight}"
                self.shown.emit(text, "o", step)
                text("total = 0.0")
                with text.block(f"for s in range({self.n_states}):"):
                    text("total += a[t + 1, s]")
                self.look_again(text)
            with text.block("if total <= 0.0:"):
                # As the filter does: go on as if this result had not been looked at.
                text("kind = CLASS[o]")
                self.any.emit(text, "kind", "a[t + 1, {target}] += a[t, {source}] * {weight}")
            text("scale[t] = total * lift", "total = 0.0")
            with text.block(f"for s in range({self.n_states}):"):
                text("total += a[t + 1, s]")
            with text.block(f"for s in range({self.n_states}):"):
                text("a[t + 1, s] /= total")
                # What is too small to be divided by is out of reach.
                with text.block(f"if a[t + 1, s] < {SMALLEST_STATE}:"):
                    text("a[t + 1, s] = 0.0")

    def look_again(self, text: Text, in_place: bool = False) -> None:
        """End a loop, unless products may have underflowed: then once more, scaled up."""
        with text.block(f"if total > {SMALLEST_STEP} or total <= 0.0 or lift != 1.0:"):
            text("break")
        text(f"lift = max(total, {SMALLEST_STATE})")
        if in_place:
            with text.block(f"for s in range({self.n_states}):"):
                text("a[s] /= lift")
