"""Kernels that draw one hidden path of every page, given its signals, and count how coins fell.

They take what an E-step takes and give what it gives, but counts of paths that were drawn instead
of expected counts, which is all that a Gibbs sampler wants of them. A page of weight 3 is drawn
three times.

Where there is one live state, that is the E-step with posteriors divided at random. Else backward
first, as the E-step of several states does; then a path is drawn forward, so that only one state is
followed. Random numbers are hashes of a key and of the page (SplitMix64), so that the same paths
are drawn on any number of threads.
"""

from __future__ import annotations

from typing import Any

from gecasmo.kernels.e_step.chain import Chain
from gecasmo.kernels.e_step.live import Live, can_be_live_source
from gecasmo.kernels.e_step.scaled import LITERALS, Scaled
from gecasmo.kernels.e_step.text import SMALLEST_PAGE, is_small, product
from gecasmo.kernels.machine import Machine, MachineEdge, MachineLiteral, Step
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.text import Text

_CONSTANTS = (
    "GOLDEN = np.uint64(0x9E3779B97F4A7C15)",
    "FIRST = np.uint64(0xBF58476D1CE4E5B9)",
    "SECOND = np.uint64(0x94D049BB133111EB)",
    "S11, S27, S30, S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)",
)


def draw_source(machine: Machine, plan: Plan) -> str:
    """Source of the kernel that draws paths: the fastest shape that fits the machine."""
    if not is_small(machine):
        return scaled_draw_source(machine, plan)
    if can_be_live_source(machine):
        return _LiveDraw(machine, plan).source()
    return _ChainDraw(machine, plan).source()


def scaled_draw_source(machine: Machine, plan: Plan) -> str:
    """Source of the kernel that draws paths of any page of any machine."""
    return _ScaledDraw(machine, plan).source()


def _begin_stream(text: Text) -> None:
    """Begin the random numbers of page i."""
    text("stream = key ^ (np.uint64(i) * GOLDEN)")
    _next(text)
    text("stream = bits")


def _next(text: Text) -> None:
    text("stream += GOLDEN", "bits = (stream ^ (stream >> S30)) * FIRST")
    text("bits = (bits ^ (bits >> S27)) * SECOND", "bits = bits ^ (bits >> S31)")


def _uniform(text: Text, name: str = "u") -> None:
    """Draw a number from 0 to below 1."""
    _next(text)
    text(f"{name} = float(bits >> S11) * 1.1102230246251565e-16")


class _LiveDraw(Live):
    name = "draw"
    more = ("key",)

    def imports(self) -> None:
        super().imports()
        self.text(*_CONSTANTS, "", "")

    def begin_division(self) -> None:
        _begin_stream(self.text)

    def divide(self, posterior: str, names: list[str], shares: list[str]) -> None:
        """Write how each of so many users goes one way or another."""
        text = self.text
        for place in range(len(names) - 1):
            text(f"g{place} = {f'g{place - 1} + ' if place else ''}{shares[place]}")
        for name in names:
            text(f"{name} = 0.0")
        with text.block(f"for copy in range(int({posterior})):"):
            _uniform(text, "v")
            for place, name in enumerate(names):
                keyword = "if" if place == 0 else "elif"
                is_last = place == len(names) - 1
                with text.block("else:" if is_last else f"{keyword} v < g{place}:"):
                    text(f"{name} += 1.0")

    def end_if_gone(self) -> None:
        with self.text.block("if u == 0.0:"):
            self.text("break")


class _ChainDraw(Chain):
    name = "draw"
    more = ("key",)

    def source(self) -> str:
        text = self.text
        self.imports()
        text(*_CONSTANTS, "", "")
        n_starts = max(map(len, self.machine.initial))
        with text.block(self.header()):
            self.fetch_global()
            text(f"share = np.empty((max_length, {self.n_shares()}))")
            text(f"begin = np.empty({n_starts})")
            with text.block("for bucket in range(first, last):"):
                self.begin_bucket()
                with text.block("for i in range(bucket_start[bucket], bucket_start[bucket + 1]):"):
                    self.begin_page()
                    self.backward()
                    self.by_length(self._share_start)
                    _begin_stream(text)
                    with text.block("for copy in range(int(q)):"):
                        self.by_length(self._draw_start)
                        self._draw_path()
                    self.flush_counts("page")
                self.end_bucket()
        return str(text)

    def _share_start(self, edges: tuple[MachineEdge, ...], step: Step) -> None:
        text = self.text
        for place, edge in enumerate(edges):
            below = "quiet" if edge.target == step.silent_source else f"x{edge.target}"
            factors = [*self.values(edge.literals, edge.multiplicity), below]
            text(f"begin[{place}] = {product(factors)}")
        places = range(len(edges))
        text(f"p = {' + '.join(f'begin[{place}]' for place in places)}")
        with text.block(f"if p < {SMALLEST_PAGE}:"):
            text("careful[i] = 1", "continue")
        if len(edges) > 1:
            for place in places:
                text(f"begin[{place}] /= p")
        self.add_likelihood("p")

    def _draw_start(self, edges: tuple[MachineEdge, ...], step: Step) -> None:
        shares = [f"begin[{place}]" for place in range(len(edges))]
        self._pick(
            shares, [(list(edge.literals), edge.target) for edge in edges], step.silent_source
        )

    def _draw_path(self) -> None:
        """One result after the other, until the end or a state that stays silent: s = -1."""
        text = self.text
        n_closing = len(self.machine.closing)
        end = f"length - {n_closing}" if n_closing else "length"
        with text.block(f"for t in range({end}):"):
            with text.block("if s < 0:"):
                text("break")
            self._draw_step(self.machine.body)
        for distance in range(n_closing, 0, -1):
            with text.block(f"if s >= 0 and length >= {distance}:"):
                text(f"t = length - {distance}")
                self._draw_step(self.machine.closing[distance - 1])

    def _draw_step(self, step: Step) -> None:
        self.text("o = obs[base + index(t)]")
        self.branch(range(self.machine.n_observations), lambda o: self._draw_edge(step, o))

    def _draw_edge(self, step: Step, observation: int) -> None:
        text = self.text
        groups = self.groups(step, observation)
        if not groups:
            text("s = -1")
        for number, (state, group, slot) in enumerate(groups):
            is_last = number == len(groups) - 1
            keyword = "if" if number == 0 else "elif"
            header = "else:" if is_last and number else f"{keyword} s == {state}:"
            with text.block("if True:" if len(groups) == 1 else header):
                self.fetch_rows(group.literals())
                for literal in group.common:
                    self.count(literal, "1.0")
                shares = [f"share[index(t), {slot + place}]" for place in range(len(group.edges))]
                ways = [
                    (rest, edge.target) for rest, edge in zip(group.rests, group.edges, strict=True)
                ]
                self._pick(shares, ways, step.silent_target)

    def _pick(
        self, shares: list[str], ways: list[tuple[list[MachineLiteral], int]], silent: int | None
    ) -> None:
        """Draw one of some ways, count its literals and go to its state."""
        text = self.text
        if len(ways) > 1:
            _uniform(text)
        for place, (literals, target) in enumerate(ways):
            is_last = place == len(ways) - 1
            keyword = "if" if place == 0 else "elif"
            header = "else:" if is_last else f"{keyword} u < {' + '.join(shares[: place + 1])}:"
            with text.block("if True:" if len(ways) == 1 else header):
                self.count_all((literal, "1.0") for literal in literals)
                text(f"s = {-1 if target == silent else target}")


class _ScaledDraw(Scaled):
    name = "draw"
    more = ("key",)

    def constants(self) -> list[str]:
        return list(_CONSTANTS)

    def backward(self, text: Text) -> None:
        """Write the draw of a path, from its end to its start."""
        text("q = weight[i]", "total += q * page")
        _begin_stream(text)
        with text.block("for copy in range(int(q)):"):
            _uniform(text)
            text("s = 0", "reached = 0.0", "done = False")
            with text.block(f"for k in range({self.n_states}):"):
                with text.block("if a[length, k] > 0.0 and not done:"):
                    text("reached += a[length, k]", "s = k", "done = u < reached")
            with text.block("for t in range(length - 1, -1, -1):"):
                self.selector(text)
                self.loads.result(text)
                self._pick(text, self.edges, "step", "a[t, {source}] / scale[t] * {weight}")
                with text.block(LITERALS.format(table="EDGES").replace("[e", "[picked")):
                    text("n[EDGES_SLOT[j]] += 1.0")
                self.loads.flush(text, "result")
                text("s = EDGES_SOURCE[picked]")
            self._pick(text, self.initial, "start", "{weight}")
            with text.block(LITERALS.format(table="INITIAL").replace("[e", "[picked")):
                text("n[INITIAL_SLOT[j]] += 1.0")

    def _pick(self, text: Text, table: Any, selector: str, weight: str) -> None:
        """Draw the edge by which state s was reached."""
        text("mass = 0.0")
        table.emit(text, selector, "if {target} == s:", f"    mass += {weight}")
        _uniform(text)
        text("u *= mass", "reached = 0.0", "picked = 0", "done = False")
        table.emit(
            text,
            selector,
            "if {target} == s and not done:",
            f"    x = {weight}",
            "    if x > 0.0:",
            "        reached += x",
            "        picked = e",
            "        done = u < reached",
        )
