"""The E-step of a machine with one live state and at most one silent one, edges spelt out.

Down to the last signal the user was certainly there, so every flip on the way is known or splits
on the spot; only below it is there a chain, from "still there" to "gone". The page falls into

    prefix   above the last signal: only edges from live to live
    last     the last signal
    tail     nothing is shown any more

Without a silent state there is no chain at all and the whole page is prefix.
"""

from __future__ import annotations

from gecasmo.kernels.e_step.text import SMALLEST_PAGE, EStepText, Group, product
from gecasmo.kernels.machine import Machine, MachineEdge, MachineLiteral, Step
from gecasmo.kernels.plan import Plan

# Added to a weight that may be 0 and else is far larger: cheaper than asking before dividing.
NOTHING = 1e-300


def can_be_live_source(machine: Machine) -> bool:
    """Whether the machine has this shape, with nothing to decide before the first result."""
    silent = machine.body.silent_source
    first, *others = machine.initial[-1]
    starts_live = not others and not first.literals and first.multiplicity == 1
    n_live = machine.n_states - (silent is not None)
    return n_live == 1 and len(machine.closing) <= 1 and starts_live and first.target != silent


def live_source(machine: Machine, plan: Plan) -> str:
    """Source of the E-step for one live state."""
    return Live(machine, plan).source()


class Live(EStepText):
    """Writes the E-step; also the kernel that draws paths, where it divides at random."""

    def source(self) -> str:
        """Write the whole kernel."""
        text = self.text
        silent = self.machine.body.silent_source
        self.imports()
        with text.block(self.header()):
            self.fetch_global()
            if silent is not None:
                text(f"share = np.empty((max_length, {self._n_shares()}))")
            with text.block("for bucket in range(first, last):"):
                self.begin_bucket()
                with text.block("for i in range(bucket_start[bucket], bucket_start[bucket + 1]):"):
                    self.begin_page()
                    self.begin_division()
                    if silent is None:
                        text("page = 1.0")
                        self._prefix("length")
                        self._add_page("length")
                    else:
                        self._page_with_tail()
                    self.flush_counts("page")
                self.end_bucket()
        return str(text)

    def _n_shares(self) -> int:
        return max(1, *(sum(map(len, step.edges)) for step in self.machine.steps()))

    # -- prefix --------------------------------------------------------------------------------
    def _prefix(self, end: str) -> None:
        """Count and multiply over results that were certainly looked at."""
        text = self.text
        with text.block(f"for t in range({end}):"):
            text("o = obs[base + index(t)]")
            self.branch(range(self.machine.n_observations), self._certain)

    def _certain(self, observation: int) -> None:
        text = self.text
        edges = self._live_edges(self.machine.body, observation, stay=True)
        if not edges:
            text("page = 0.0")
            return
        group = Group(edges)
        literals = group.literals()
        self.fetch_rows(literals)
        self.fetch_weights(literals)
        amounts: list[tuple[MachineLiteral, str]] = [(literal, "q") for literal in group.common]
        if len(edges) == 1:
            text(f"page *= {product(self.values(group.common, edges[0].multiplicity))}")
        else:
            amounts += self._split(group, "q", [None] * len(edges))
            text(f"page *= {product([*self.values(group.common), 'z'])}")
        self.count_all(amounts)

    def _split(
        self, group: Group, posterior: str, below: list[str | None]
    ) -> list[tuple[MachineLiteral, str]]:
        """Divide a posterior over the edges of a group, here and now."""
        text = self.text
        names = [f"f{place}" for place in range(len(group.edges))]
        for name, rest, edge, weight in zip(names, group.rests, group.edges, below, strict=True):
            factors = self.values(rest, edge.multiplicity) + ([weight] if weight else [])
            text(f"{name} = {product(factors)}")
        text(f"z = {' + '.join(names)}")
        text(f"r = 1.0 / (z + {NOTHING})")
        self.divide(posterior, names, [f"({name} * r)" for name in names])
        return [
            (literal, name)
            for name, rest in zip(names, group.rests, strict=True)
            for literal in rest
        ]

    def begin_division(self) -> None:
        """Write what comes before the first division of a page."""

    def divide(self, posterior: str, names: list[str], shares: list[str]) -> None:
        """Write how a posterior is divided over edges: what is called `names` afterwards."""
        text = self.text
        # The share first: rounded, it is at most one, so that no posterior becomes negative.
        if len(names) == 2:
            text(f"{names[0]} = {posterior} * {shares[0]}")
            text(f"{names[1]} = {posterior} - {names[0]}")
        else:
            for name, share in zip(names, shares, strict=True):
                text(f"{name} = {posterior} * {share}")

    def end_if_gone(self) -> None:
        """Write when the rest of a page need not be looked at."""

    def _add_page(self, end: str, tail: str = "") -> None:
        """Add the page's log-likelihood; sum logarithms only if the product is too small."""
        text = self.text
        with text.block(f"if page >= {SMALLEST_PAGE}:"):
            self.add_likelihood("page")
        with text.block("else:"):
            text(f"logs = math.log({tail})" if tail else "logs = 0.0")
            with text.block(f"for t in range({end}):"):
                text("o = obs[base + index(t)]")
                self.branch(range(self.machine.n_observations), self._log_factor)
                with text.block("if page <= 0.0:"):
                    text("impossible += 1", "logs = 0.0", "break")
                text("logs += math.log(page)")
            text("total += q * logs")

    def _log_factor(self, observation: int) -> None:
        text = self.text
        edges = self._live_edges(self.machine.body, observation, stay=True)
        if not edges:
            text("page = 0.0")
            return
        literals = [literal for edge in edges for literal in edge.literals]
        self.fetch_rows(literals)
        self.fetch_weights(literals)
        terms = [product(self.values(edge.literals, edge.multiplicity)) for edge in edges]
        text(f"page = {' + '.join(terms)}")

    # -- a page that can end early -------------------------------------------------------------
    def _page_with_tail(self) -> None:
        text = self.text
        machine = self.machine
        last_step = machine.closing[0] if machine.closing else machine.body
        quiet = range(machine.n_quiet)
        # Backward over the tail; where it stops is the last signal.
        text("t = length - 1", "o = obs[base + index(t)]", "x = 1.0")
        with text.block(f"if o < {machine.n_quiet}:"):
            self.branch(quiet, lambda o: self._weigh(last_step, o))
            text("t -= 1")
            with text.block("while t >= 0:"):
                text("o = obs[base + index(t)]")
                with text.block(f"if o >= {machine.n_quiet}:"):
                    text("break")
                self.branch(quiet, lambda o: self._weigh(machine.body, o))
                text("t -= 1")
        text("signal = t", "page = x", "u = q")
        with text.block("if signal < 0:"):
            self._leave_if_unlikely()
        if machine.closing:
            with text.block("elif signal == length - 1:"):
                self._last_signal(last_step)
        with text.block("else:"):
            self._last_signal(machine.body)
        text("tail = page")
        self._tail(last_step, quiet)
        self._prefix("signal")
        self._add_page("signal", "tail")

    def _tail(self, last_step: Step, quiet: range) -> None:
        """Forward below the last signal: `u` is the posterior of being there."""
        text = self.text
        with text.block("for t in range(signal + 1, length - 1):"):
            self.end_if_gone()
            text("o = obs[base + index(t)]")
            self.branch(quiet, lambda o: self._share(self.machine.body, o))
        with text.block("if signal < length - 1:"):
            text("t = length - 1", "o = obs[base + index(t)]")
            self.branch(quiet, lambda o: self._share(last_step, o))

    def _last_signal(self, step: Step) -> None:
        machine = self.machine
        self.text("o = obs[base + index(t)]")
        loud = range(machine.n_quiet, machine.n_observations)
        self.branch(loud, lambda o: self._divide_signal(step, o))

    def _divide_signal(self, step: Step, observation: int) -> None:
        """Weigh the page, divide `u` over the edges, count, and keep what stays."""
        text = self.text
        edges = self._live_edges(step, observation)
        group = Group(edges)
        self.fetch_rows(group.literals())
        self.fetch_weights(group.literals())
        names = [f"f{number}" for number in range(len(edges))]
        for name, rest, edge in zip(names, group.rests, edges, strict=True):
            factors = self.values(rest, edge.multiplicity) + self._below(step, edge)
            text(f"{name} = {product(factors)}")
        text(f"z = {' + '.join(names)}")
        text(f"page = {product([*self.values(group.common), 'z'])}")
        self._leave_if_unlikely()
        if len(edges) == 1:
            names = ["u"]
        else:
            text("r = 1.0 / z")
            self.divide("u", names, [f"({name} * r)" for name in names])
        self._count_shares(step, group, names)

    def _leave_if_unlikely(self) -> None:
        with self.text.block(f"if page < {SMALLEST_PAGE}:"):
            self.text("careful[i] = 1", "continue")

    def _live_edges(self, step: Step, observation: int, stay: bool = False) -> list[MachineEdge]:
        edges = [e for e in step.edges[observation] if e.source != step.silent_source]
        if stay:
            edges = [edge for edge in edges if edge.target != step.silent_target]
        return edges

    def _weigh(self, step: Step, observation: int) -> None:
        """One step backward: x becomes the weight of all from this result on."""
        text = self.text
        edges = self._live_edges(step, observation)
        if not edges:
            text("x = 0.0")
            return
        group = Group(edges)
        self.fetch_rows(group.literals())
        self.fetch_weights(group.literals())
        terms = [
            product(self.values(rest, edge.multiplicity) + self._below(step, edge))
            for rest, edge in zip(group.rests, edges, strict=True)
        ]
        if len(edges) == 1:
            factors = [
                *self.values(group.common, edges[0].multiplicity),
                *self._below(step, edges[0]),
            ]
            text(f"x = {product(factors)}")
            return
        for number, term in enumerate(terms):
            text(f"f{number} = {term}")
        text(f"z = {' + '.join(f'f{number}' for number in range(len(terms)))}")
        text(f"r = 1.0 / (z + {NOTHING})")
        for number in range(len(terms) - (len(terms) == 2)):
            text(f"share[index(t), {number}] = f{number} * r")
        text(f"x = {product([*self.values(group.common), 'z'])}")

    def _below(self, step: Step, edge: MachineEdge) -> list[str]:
        # Below the last signal a silent user weighs 1; at the end of the page so does everyone.
        return [] if edge.target == step.silent_target else ["x"]

    def _share(self, step: Step, observation: int) -> None:
        """One step forward: divide `u` over the edges, count, and keep what stays."""
        edges = self._live_edges(step, observation)
        if not edges:
            return
        group = Group(edges)
        names = ["u"]
        if len(edges) > 1:
            names = [f"f{number}" for number in range(len(edges))]
            self.divide("u", names, [f"share[index(t), {number}]" for number in range(len(edges))])
        self.fetch_rows(group.literals())
        self._count_shares(step, group, names)

    def _count_shares(self, step: Step, group: Group, names: list[str]) -> None:
        """Count the edges of a group by the posteriors called `names`; `u` is what stays."""
        amounts = [(literal, "u") for literal in group.common]
        for name, rest in zip(names, group.rests, strict=True):
            amounts += [(literal, name) for literal in rest]
        self.count_all(amounts)
        staying = [
            name
            for name, edge in zip(names, group.edges, strict=True)
            if edge.target != step.silent_target
        ]
        if staying != ["u"]:
            self.text(f"u = {' + '.join(staying) or '0.0'}")
