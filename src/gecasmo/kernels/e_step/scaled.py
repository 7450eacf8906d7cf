"""The E-step as a scaled forward-backward pass: plain, for any machine and any page length.

`careful[i]` says which pages to do; everything else leaves them alone.
"""

from __future__ import annotations

from gecasmo.kernels.e_step.text import e_step_arguments
from gecasmo.kernels.loads import Loads
from gecasmo.kernels.machine import Machine
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.text import SMALLEST_STATE, SMALLEST_STEP, EdgeTable, Text

LITERALS = "for j in range({table}_LITERAL[e], {table}_LITERAL[e + 1]):"


def scaled_source(machine: Machine, plan: Plan) -> str:
    """Source of the scaled E-step."""
    return Scaled(machine, plan).source()


class Scaled:
    """Writes the scaled E-step; also the first half of the kernel that draws paths."""

    name = "e_step"
    more: tuple[str, ...] = ()  # arguments beyond those of an E-step

    def __init__(self, machine: Machine, plan: Plan) -> None:
        self.machine = machine
        self.plan = plan
        self.loads = Loads(machine, plan)
        lists = [edges for step in machine.steps() for edges in step.edges]
        self.edges = EdgeTable("EDGES", lists, unrolled=False)
        self.initial = EdgeTable("INITIAL", machine.initial, unrolled=False)
        self.n_states = max(max(step.n_sources, step.n_targets) for step in machine.steps())

    def source(self) -> str:
        """Write the whole kernel."""
        text = Text()
        text("import math", "", "import numpy as np", "")
        text(*self.edges.constants(), *self.initial.constants(), *self.constants())
        text(*self.loads.constants())
        text("", "")
        arguments = [*e_step_arguments(self.plan, packed=True), *self.more]
        with text.block(f"def {self.name}({', '.join(arguments)}):"):
            self.loads.everywhere(text)
            text(f"n = np.zeros({max(self.loads.n_slots, 1)})")
            text(f"a = np.empty((max_length + 1, {self.n_states}))")
            text("scale = np.empty(max_length + 1)")
            text(f"b = np.empty({self.n_states})", f"y = np.empty({self.n_states})")
            with text.block("for bucket in range(first, last):"):
                self.loads.tables(text)
                text("total = 0.0", "impossible = 0")
                with text.block("for i in range(bucket_start[bucket], bucket_start[bucket + 1]):"):
                    self._page(text)
                self.loads.flush(text, "global")
                text("log_likelihood[bucket] += total", "n_impossible[bucket] += impossible")
        return str(text)

    def constants(self) -> list[str]:
        """More constants that the source needs."""
        return []

    def _page(self, text: Text) -> None:
        with text.block("if careful[i] == 0 or weight[i] == 0.0:"):
            text("continue")
        text("base = obs_start[i]", "row = row_start[i]", "length = obs_start[i + 1] - base")
        with text.block("if length == 0:"):
            text("continue")
        self.loads.page(text)
        self._forward(text)
        with text.block("if scale[length] <= 0.0:"):
            text("impossible += 1", "continue")
        self.backward(text)
        self.loads.flush(text, "page")

    def selector(self, text: Text) -> None:
        """Write which list of edges a result has."""
        n_closing = len(self.machine.closing)
        text("o = obs[base + t]")
        text(f"step = min(length - t - 1, {n_closing}) * {self.machine.n_observations} + o")

    def _forward(self, text: Text) -> None:
        states = f"for s in range({self.n_states}):"
        with text.block(states):
            text("a[0, s] = 0.0")
        text(f"start = min(length, {len(self.machine.initial) - 1})")
        self.initial.emit(text, "start", "a[0, {target}] += {weight}")
        text("page = 0.0", "scale[length] = 1.0")
        with text.block("for t in range(length):"):
            self.selector(text)
            self.loads.result(text)
            text("lift = 1.0", "lens = 1.0")
            with text.block("while True:"):
                with text.block(states):
                    text("a[t + 1, s] = 0.0")
                self.edges.emit(
                    text, "step", "a[t + 1, {target}] += a[t, {source}] * lens * {weight}"
                )
                text("z = 0.0")
                with text.block(states):
                    text("z += a[t + 1, s]")
                # Very unlikely: products may have underflowed, so look again through a lens.
                with text.block(f"if z > {SMALLEST_STEP} or z <= 0.0 or lift != 1.0:"):
                    text("break")
                text(f"lift = max(z, {SMALLEST_STATE})", "lens = 1.0 / lift")
            with text.block("if z <= 0.0:"):
                text("scale[length] = 0.0", "break")
            text("scale[t] = z * lift", "page += math.log(z) + math.log(lift)")
            with text.block(states):
                text("a[t + 1, s] /= z")
                # What is too small to be divided by is out of reach.
                with text.block(f"if a[t + 1, s] < {SMALLEST_STATE}:"):
                    text("a[t + 1, s] = 0.0")
        # The page's own log-likelihood is added only when its counts are.

    def backward(self, text: Text) -> None:
        """Write the way back, on which counts are made."""
        states = f"for s in range({self.n_states}):"
        text("q = weight[i]", "total += q * page")
        with text.block(states):
            text("b[s] = 1.0")
        with text.block("for t in range(length - 1, -1, -1):"):
            self.selector(text)
            self.loads.result(text)
            with text.block(states):
                text("y[s] = 0.0")
            self.edges.emit(
                text,
                "step",
                "if a[t, {source}] > 0.0:",  # else x may be infinite, and 0 times that no number
                "    x = {weight} * b[{target}] / scale[t]",
                "    y[{source}] += x",
                "    x *= q * a[t, {source}]",
                "    " + LITERALS.format(table="EDGES"),
                "        n[EDGES_SLOT[j]] += x",
            )
            self.loads.flush(text, "result")
            with text.block(states):
                text("b[s] = y[s]")
        text("z = 0.0")
        self.initial.emit(text, "start", "z += {weight} * b[{target}]")
        self.initial.emit(
            text,
            "start",
            "x = q * {weight} * b[{target}] / z",
            LITERALS.format(table="INITIAL"),
            "    n[INITIAL_SLOT[j]] += x",
        )
