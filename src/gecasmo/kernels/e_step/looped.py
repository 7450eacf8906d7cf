"""The E-step of a machine with many edges: loops over the cells of matrices, see `cells`.

Forward first: `a` is how likely each state is together with all that was shown above. Then
backward: `b` is the weight of what is shown from there on, over how likely the page is. Products of
both are posteriors. Counts of coins that are the same everywhere are added up by cell, and go to
the coins once a bucket.

What a step is differs: matrices with few holes are multiplied as such (`dense`), of others their
cells are gone through (`sparse`). Source and time to compile do not grow with the number of states.
A page that is too unlikely is left to the scaled kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from gecasmo.kernels.e_step.cells import Flow, Matrix, Product, depths, matrix
from gecasmo.kernels.e_step.scaled import LITERALS
from gecasmo.kernels.e_step.text import SMALLEST_PAGE, e_step_arguments
from gecasmo.kernels.loads import Loads
from gecasmo.kernels.machine import Machine, MachineEdge
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.text import EdgeTable, Text, array

# If more kinds of observations use coins of their own, all coins are fetched at every result.
_MOST_BRANCHES = 4


Products = tuple[Product, ...]
Kinds = dict[Products, list[int]]  # what is shown by products that matter then


def place_array(name: str, values: Iterable[int]) -> str:
    """A constant array of places: unsigned, or else each would be checked for its sign."""
    return array(name, list(values), "uint64")


def firsts(lengths: Iterable[int]) -> list[int]:
    """Where lists begin that follow each other, and where the last one ends."""
    found = [0]
    for length in lengths:
        found.append(found[-1] + length)
    return found


class Looped(ABC):
    """Writes the E-step, but for the steps over one result."""

    def __init__(self, machine: Machine, plan: Plan) -> None:
        self.machine = machine
        self.plan = plan
        self.loads = Loads(machine, plan)
        self.n_closing = len(machine.closing)
        self._order_states()
        self.matrices: list[Matrix] = [
            matrix([self._renumbered(e, number) for e in edges], step.n_sources, machine, plan)
            for number, step in enumerate(machine.steps())
            for edges in step.edges
        ]
        self.n_states = max(max(step.n_sources, step.n_targets) for step in machine.steps())
        self.stride = self.n_states  # of states in `a` and `b`, result by result
        self.all_states = "ahead"  # those that are to be set to 0 before anything is added
        self.kinds = self._share_products()
        self.n_products = max(map(len, self.kinds))
        self._places_used: set[int] = set()
        self.n_cells = 0
        self.flows: list[tuple[int, Flow]] = []  # with where their cells are

    @property
    def has_flows(self) -> bool:
        """Whether there are coins to be counted by cell."""
        return any(flow.slots for _, flow in self.flows)

    # -- what a step is ----------------------------------------------------------------------------
    @abstractmethod
    def constants(self, text: Text) -> None:
        """Write the constants of steps, and find `n_cells` and `flows`."""

    def room(self, text: Text) -> None:  # noqa: B027
        """Write the arrays that steps need."""

    @abstractmethod
    def forward(self, text: Text) -> None:
        """Write what makes the states after result t, at `a[after]`, of those before it."""

    @abstractmethod
    def backward(self, text: Text) -> None:
        """Write what makes `b[before]` of `b[after]`, and counts; those of products go to `m`."""

    def after_page(self, text: Text) -> None:  # noqa: B027
        """Write what is left to be done at the end of a page."""

    # -- constants -----------------------------------------------------------------------------
    def _order_states(self) -> None:
        """States that can be reached sooner come first, so that those that can be reached after so
        many results are the first few."""
        depth = depths(self.machine)
        order = sorted(range(len(depth)), key=lambda state: depth[state])
        self.place_of = {state: place for place, state in enumerate(order)}
        self.reach = [sum(d <= n for d in depth) for n in range(max(depth) + 1)]
        self.initial = EdgeTable(
            "INITIAL",
            [
                [e._replace(target=self.place_of[e.target]) for e in edges]
                if length >= self.n_closing
                else edges
                for length, edges in enumerate(self.machine.initial)
            ],
            unrolled=False,
        )

    def _renumbered(self, edge: MachineEdge, number: int) -> MachineEdge:
        """An edge of a step; the last closing one leads from states of the body."""
        if number >= self.n_closing - 1:
            edge = edge._replace(source=self.place_of[edge.source])
        if number == self.n_closing:
            edge = edge._replace(target=self.place_of[edge.target])
        return edge

    def _constants(self, text: Text) -> None:
        text("index = np.uint64")
        self.constants(text)
        flows = [flow for _, flow in self.flows]
        text(place_array("FLOW_CELL", [cell for cell, _ in self.flows]))
        text(array("FLOW_TIMES", [flow.times for flow in flows], "float64"))
        text(place_array("FLOW_LITERAL", firsts(len(flow.slots) for flow in flows)))
        text(place_array("FLOW_SLOT", [slot for flow in flows for slot in flow.slots]))
        self.n_flows = len(flows)
        steps = self.machine.steps()
        ends = [steps[0].n_targets, *(step.n_sources for step in steps)]
        text(place_array("REACH", self.reach), place_array("ENDS", ends))

    # -- frame ---------------------------------------------------------------------------------
    def source(self) -> str:
        """Write the whole kernel."""
        head, text = Text(), Text()
        head("import math", "", "import numpy as np", "")
        self._constants(head)
        head(*self.initial.constants(), *self.loads.constants())
        with text.block(f"def e_step({', '.join(e_step_arguments(self.plan, packed=True))}):"):
            self._begin(text)
            with text.block("for bucket in range(first, last):"):
                with text.block("if bucket_start[bucket] == bucket_start[bucket + 1]:"):
                    text("continue")
                self.loads.tables(text)
                text("total = 0.0")
                with text.block("for i in range(bucket_start[bucket], bucket_start[bucket + 1]):"):
                    self._page(text)
                self._end_bucket(text)
        head(*(f"U{number} = index({number})" for number in sorted(self._places_used)), "", "")
        return f"{head}{text}"

    def place(self, number: int) -> str:
        """A number that places are added to: a constant, since a call would take time to compile
        wherever it stands."""
        self._places_used.add(number)
        return f"U{number}"

    def _begin(self, text: Text) -> None:
        self.loads.everywhere(text)
        text(f"n = np.zeros({max(self.loads.n_slots, 1)})")
        for name in "ab":
            text(f"{name} = np.zeros((max_length + 1) * {self.stride})")
        # The first product is that of no coins.
        text(f"r = np.ones(max_length * {self.n_products})", f"m = np.zeros({self.n_products})")
        text(f"cells = np.zeros({self.n_cells})", f"chances = np.empty({self.n_flows})")
        with text.block(f"for flow in range({self.n_flows}):"):
            text("chance = FLOW_TIMES[flow]")
            with text.block("for slot in range(FLOW_LITERAL[flow], FLOW_LITERAL[flow + 1]):"):
                text("chance *= v[FLOW_SLOT[slot]]")
            text("chances[flow] = chance", "cells[FLOW_CELL[flow]] += chance")
        if self.has_flows:
            text(f"flows = np.zeros({self.n_cells})")
        self.room(text)

    def _end_bucket(self, text: Text) -> None:
        if self.has_flows:
            with text.block(f"for flow in range({self.n_flows}):"):
                text("p = flows[FLOW_CELL[flow]] * chances[flow]")
                with text.block("for slot in range(FLOW_LITERAL[flow], FLOW_LITERAL[flow + 1]):"):
                    text("n[FLOW_SLOT[slot]] += p")
            with text.block(f"for cell in range({self.n_cells}):"):
                text("flows[cell] = 0.0")
        self.loads.flush(text, "global")
        text("log_likelihood[bucket] += total")

    def _page(self, text: Text) -> None:
        with text.block("if weight[i] == 0.0:"):
            text("continue")
        text("base = obs_start[i]", "row = row_start[i]", "length = obs_start[i + 1] - base")
        with text.block("if length == 0:"):
            text("continue")
        self.loads.page(text)
        self._forward(text)
        with text.block(f"if p < {SMALLEST_PAGE}:"):
            text("careful[i] = 1", "continue")
        text("q = weight[i]", "total += q * math.log(p)", "q /= p")
        self._backward(text)
        self.initial.emit(
            text,
            "start",
            "chance *= b[{target}]",
            LITERALS.format(table="INITIAL"),
            "    n[INITIAL_SLOT[j]] += chance",
        )
        self.after_page(text)
        self.loads.flush(text, "page")

    def _reach(self, text: Text, name: str, t: str) -> None:
        """Write how many states there can be before result t."""
        with text.block(f"if length - {t} >= {self.n_closing}:"):
            text(f"{name} = REACH[min({t}, {len(self.reach) - 1})]")
        with text.block("else:"):
            text(f"{name} = ENDS[length - {t}]")

    @contextmanager
    def _result(self, text: Text, header: str) -> Iterator[None]:
        """Write a loop over results, with where their numbers are."""
        with text.block(header):
            text(f"before = index(t * {self.stride})")
            text(f"after = index((t + 1) * {self.stride})", f"at = index(t * {self.n_products})")
            text("o = np.int64(obs[base + t])")
            distance = f"min(length - t - 1, {self.n_closing})"
            text(f"step = {distance} * {self.machine.n_observations} + o")
            yield

    def _forward(self, text: Text) -> None:
        text(f"start = min(length, {len(self.machine.initial) - 1})")
        self._reach(text, "ahead", "0")
        with text.block(f"for s in range({self.all_states}):"):
            text("a[s] = 0.0")
        self.initial.emit(text, "start", "a[{target}] += {weight}")
        with self._result(text, "for t in range(length):"):
            self._by_observation(text, self._fetch)
            text("t1 = t + 1", "reach = ahead")
            self._reach(text, "ahead", "t1")
            with text.block(f"for s in range({self.all_states}):"):
                text("a[after + s] = 0.0")
            self.forward(text)
        text("p = 0.0", f"after = index(length * {self.stride})")
        with text.block("for s in range(ahead):"):
            text("p += a[after + s]")

    def _backward(self, text: Text) -> None:
        with text.block("for s in range(ahead):"):
            text("b[after + s] = q")
        with self._result(text, "for t in range(length - 1, -1, -1):"):
            self._reach(text, "reach", "t")
            self.backward(text)
            self._by_observation(text, self._flush)

    # -- coins of a result -------------------------------------------------------------------------
    def _share_products(self) -> Kinds:
        """Let all steps have the same products where the same is shown; returns these, with what is
        shown. If there are too many kinds, all have the same."""
        n_observations = self.machine.n_observations
        by_observation: list[set[Product]] = [
            {(), *(p for one in self.matrices[observation::n_observations] for p in one.products)}
            for observation in range(n_observations)
        ]
        kinds: Kinds = {}
        for observation, products in enumerate(by_observation):
            kinds.setdefault(tuple(sorted(products)), []).append(observation)
        if len(kinds) > _MOST_BRANCHES:
            every: set[Product] = set().union(*by_observation)
            kinds = {tuple(sorted(every)): list(range(n_observations))}
        for shared, observations in kinds.items():
            for observation in observations:
                for one in self.matrices[observation::n_observations]:
                    one.products = list(shared)
        return kinds

    def _by_observation(self, text: Text, emit: Callable[[Text, Products], None]) -> None:
        """Write what `emit` says of products, under conditions on what was shown."""
        keyword = "if"
        for number, (products, observations) in enumerate(self.kinds.items()):
            if len(self.kinds) == 1:
                emit(text, products)
                break
            tests = " or ".join(f"o == {observation}" for observation in observations)
            is_last = number == len(self.kinds) - 1
            with text.block("else:" if is_last else f"{keyword} {tests}:"):
                emit(text, products)
            keyword = "elif"

    def _is_of_result(self, slot: int) -> bool:
        return self.plan.scope(self.machine, slot // 2) == "result"

    def _places(
        self, text: Text, products: Products, emit: Callable[[int, int, str], None]
    ) -> None:
        """Write row numbers once, and what `emit` says of a slot, its coin and its row number."""
        slots = sorted({s for product in products for s in product if self._is_of_result(s)})
        for lag in sorted({self.machine.variables[slot // 2].lag for slot in slots}):
            here = [slot for slot in slots if self.machine.variables[slot // 2].lag == lag]
            with text.block("if t > 0:" if lag else "if True:"):
                names: dict[str, str] = {}
                for slot in here:
                    coin = self.machine.variables[slot // 2].coin
                    row = self.loads.row(coin, lag)
                    if row not in names:
                        names[row] = f"k{len(names)}"
                        text(f"{names[row]} = index({row})")
                for slot in here:
                    coin = self.machine.variables[slot // 2].coin
                    emit(slot, coin, names[self.loads.row(coin, lag)])

    def _fetch(self, text: Text, products: Products) -> None:
        """Write the products of coins of this result."""
        lagged = {s for p in products for s in p if self.machine.variables[s // 2].lag}
        text(*(f"v{slot} = 0.0" for slot in sorted(lagged)))
        self._places(text, products, lambda s, c, k: text(f"v{s} = W{c}[{s % 2}, {k}]"))
        for place, product in enumerate(products):
            factors = [f"v{s}" if self._is_of_result(s) else f"v[{s}]" for s in product]
            if factors:
                text(f"r[at + {self.place(place)}] = {' * '.join(factors)}")

    def _flush(self, text: Text, products: Products) -> None:
        """Write their counts."""
        told: dict[int, list[str]] = {}
        for place, product in enumerate(products):
            for slot in product:
                told.setdefault(slot, []).append(f"m[{place}]")
        for slot, terms in told.items():
            if not self._is_of_result(slot):
                text(f"n[{slot}] += {' + '.join(terms)}")
        self._places(
            text, products, lambda s, c, k: text(f"c{c}[{s % 2}, {k}] += {' + '.join(told[s])}")
        )
        with text.block(f"for d in range({len(products)}):"):
            text("m[d] = 0.0")
