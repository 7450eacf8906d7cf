"""The E-step of a machine with several live states, edges spelt out.

Backward first: y{s} is the weight of everything shown from this result on, given state s before
it; x{s} the same for the results below. Each edge's share of its state is stored. Then forward:
q{s} is the posterior of state s, and an edge's posterior is q{s} times its share, so no table is
read again and nothing is divided. A silent state is never walked: an edge into it weighs `quiet`,
which is 1 as long as nothing is shown below.
"""

from __future__ import annotations

from collections.abc import Callable

from gecasmo.kernels.e_step.text import SMALLEST_PAGE, EStepText, Group, product
from gecasmo.kernels.machine import Machine, MachineEdge, MachineLiteral, Step
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.text import number


def chain_source(machine: Machine, plan: Plan) -> str:
    """Source of the E-step for several live states."""
    return Chain(machine, plan).source()


class Chain(EStepText):
    """Writes the E-step; also the first half of the kernel that draws paths."""

    def source(self) -> str:
        """Write the whole kernel."""
        text = self.text
        self.imports()
        with text.block(self.header()):
            self.fetch_global()
            text(f"share = np.empty((max_length, {self.n_shares()}))")
            with text.block("for bucket in range(first, last):"):
                self.begin_bucket()
                with text.block("for i in range(bucket_start[bucket], bucket_start[bucket + 1]):"):
                    self.begin_page()
                    self.backward()
                    self._start()
                    self._forward()
                    self.flush_counts("page")
                self.end_bucket()
        return str(text)

    def n_shares(self) -> int:
        """How many shares of edges are kept at a result."""
        return max(1, *(sum(map(len, step.edges)) for step in self.machine.steps()))

    # -- backward ------------------------------------------------------------------------------
    def backward(self) -> None:
        """Write the way back: weights of states, and the share of each edge."""
        text = self.text
        text("quiet = 1.0")
        below = self.machine.closing[0] if self.machine.closing else self.machine.body
        for state in range(below.n_targets):
            if state != below.silent_target:
                text(f"x{state} = 1.0")
        text("t = length - 1")
        for step in self.machine.closing:
            with text.block("if t >= 0:"):
                self._step_backward(step)
                text("t -= 1")
        with text.block("while t >= 0:"):
            self._step_backward(self.machine.body)
            text("t -= 1")

    def _step_backward(self, step: Step) -> None:
        text = self.text
        text("o = obs[base + index(t)]")
        self.branch(range(self.machine.n_observations), lambda o: self._weigh(step, o))
        live = [s for s in range(step.n_sources) if s != step.silent_source]
        for state in live:
            text(f"x{state} = y{state}")

    def _weigh(self, step: Step, observation: int) -> None:
        text = self.text
        groups = self.groups(step, observation)
        literals = [literal for _, group, _ in groups for literal in group.literals()]
        self.fetch_rows(literals)
        self.fetch_weights(literals)
        found = {state for state, _, _ in groups}
        for state in range(step.n_sources):
            if state not in found and state != step.silent_source:
                text(f"y{state} = 0.0")
        for state, group, slot in groups:
            terms = [
                product([*self.values(rest, edge.multiplicity), self._below(step, edge)])
                for rest, edge in zip(group.rests, group.edges, strict=True)
            ]
            common = self.values(group.common)
            if len(terms) == 1:
                edge = group.edges[0]
                factors = [*self.values(group.common, edge.multiplicity), self._below(step, edge)]
                text(f"y{state} = {product(factors)}")
                continue
            for place, term in enumerate(terms):
                text(f"f{place} = {term}")
            text(f"z = {' + '.join(f'f{place}' for place in range(len(terms)))}")
            text("r = 1.0 / z if z > 0.0 else 0.0")
            stored = 1 if len(terms) == 2 else len(terms)
            for place in range(stored):
                text(f"share[index(t), {slot + place}] = f{place} * r")
            text(f"y{state} = {product([*common, 'z'])}")
        if observation >= self.machine.n_quiet:
            text("quiet = 0.0")

    def groups(self, step: Step, observation: int) -> list[tuple[int, Group, int]]:
        """The live states that can show this, with their edges and their place in `share`."""
        by_state: dict[int, list[MachineEdge]] = {}
        for edge in step.edges[observation]:
            if edge.source != step.silent_source:
                by_state.setdefault(edge.source, []).append(edge)
        groups, slot = [], 0
        for state, edges in by_state.items():
            groups.append((state, Group(edges), slot))
            slot += len(edges)
        return groups

    def _below(self, step: Step, edge: MachineEdge) -> str:
        return "quiet" if edge.target == step.silent_target else f"x{edge.target}"

    # -- start ---------------------------------------------------------------------------------
    def _start(self) -> None:
        """Weigh the start edges; leave the page to the scaled kernel if it is too unlikely."""
        self.by_length(self._weigh_start)

    def by_length(self, emit: Callable[[tuple[MachineEdge, ...], Step], None]) -> None:
        """Write what `emit` says of the start edges of pages of each length, under a condition."""
        text = self.text
        machine = self.machine
        n_closing = len(machine.closing)
        # Short pages know their states only up to the partition of their length.
        for length in range(1, n_closing + 1):
            step = machine.closing[length - 1]
            last = length == n_closing
            keyword = "if" if length == 1 else "elif"
            header = "else:" if last and length > 1 else f"{keyword} length == {length}:"
            if last and length == 1:
                header = "if True:"
            with text.block(header):
                emit(machine.initial[length], step)
        if not n_closing:
            emit(machine.initial[-1], machine.body)

    def _weigh_start(self, edges: tuple[MachineEdge, ...], step: Step) -> None:
        text = self.text
        terms = []
        for place, edge in enumerate(edges):
            below = "quiet" if edge.target == step.silent_source else f"x{edge.target}"
            factors = [*self.values(edge.literals, edge.multiplicity), below]
            text(f"s{place} = {product(factors)}")
            terms.append(f"s{place}")
        text(f"z = {' + '.join(terms)}")
        with text.block(f"if z < {SMALLEST_PAGE}:"):
            text("careful[i] = 1", "continue")
        text("r = q / z")
        amounts: list[tuple[MachineLiteral, str]] = []
        into: dict[int, list[str]] = {}
        for place, edge in enumerate(edges):
            text(f"s{place} *= r")
            amounts += [(literal, f"s{place}") for literal in edge.literals]
            into.setdefault(edge.target, []).append(f"s{place}")
        self.count_all(amounts)
        for state in range(step.n_sources):
            if state != step.silent_source:
                text(f"q{state} = {' + '.join(into.get(state, [number(0)]))}")
        self.add_likelihood("z")

    # -- forward -------------------------------------------------------------------------------
    def _forward(self) -> None:
        text = self.text
        n_closing = len(self.machine.closing)
        end = f"length - {n_closing}" if n_closing else "length"
        with text.block(f"for t in range({end}):"):
            self._step_forward(self.machine.body)
        for distance in range(n_closing, 0, -1):
            step = self.machine.closing[distance - 1]
            if distance == 1:
                text("t = length - 1")
                self._step_forward(step, is_last=True)
            else:
                with text.block(f"if length >= {distance}:"):
                    text(f"t = length - {distance}")
                    self._step_forward(step)

    def _step_forward(self, step: Step, is_last: bool = False) -> None:
        text = self.text
        text("o = obs[base + index(t)]")
        live = [s for s in range(step.n_targets) if s != step.silent_target]
        kept = [] if is_last else live
        self.branch(range(self.machine.n_observations), lambda o: self._share(step, o, kept))
        if not is_last:
            for state in live:
                text(f"q{state} = y{state}")

    def _share(self, step: Step, observation: int, live: list[int]) -> None:
        text = self.text
        groups = self.groups(step, observation)
        self.fetch_rows([literal for _, group, _ in groups for literal in group.literals()])
        into: dict[int, list[str]] = {state: [] for state in live}
        amounts: list[tuple[MachineLiteral, str]] = []
        for state, group, slot in groups:
            posterior = f"q{state}"
            amounts += [(literal, posterior) for literal in group.common]
            names = [posterior]
            if len(group.edges) > 1:
                names = [f"f{slot + place}" for place in range(len(group.edges))]
                for place in range(len(group.edges) - (len(group.edges) == 2)):
                    text(f"{names[place]} = {posterior} * share[index(t), {slot + place}]")
                if len(group.edges) == 2:
                    text(f"{names[1]} = {posterior} - {names[0]}")
            for name, rest, edge in zip(names, group.rests, group.edges, strict=True):
                amounts += [(literal, name) for literal in rest]
                if edge.target in into:
                    into[edge.target].append(name)
        self.count_all(amounts)
        for state in live:
            text(f"y{state} = {' + '.join(into[state]) or '0.0'}")
