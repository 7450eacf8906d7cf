"""The E-step of a machine with many edges: loops over matrices, see `cells`.

Backward first: `x` is the weight of everything shown from a result on, by state before it. Then
forward: `y` is how likely each state is together with all that was shown above, over how likely the
page is. Products of both are posteriors. Counts of coins that are the same everywhere are added up
by cell, and go to the coins once a bucket.

A small matrix with few holes is gone through in blocks of columns whose sums stay in registers; all
others by runs of cells and what is left of them. Source and time to compile do not grow with the
number of states. A page that is too unlikely is left to the scaled kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from gecasmo.kernels.e_step.cells import Cell, HubRange, Kind, depths, matrix
from gecasmo.kernels.e_step.scaled import LITERALS
from gecasmo.kernels.e_step.text import SMALLEST_PAGE, e_step_arguments
from gecasmo.kernels.loads import Loads
from gecasmo.kernels.machine import Machine, MachineEdge
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.text import EdgeTable, Text, array

# Up to so many states, blocks are faster than runs.
MOST_STATES = 24
WIDEST_BLOCK = 8
# Of this share of a matrix at least there must be cells for blocks.
_FILLED = 0.4
# If more kinds of observations use coins of their own, all coins are fetched at every result.
_MOST_BRANCHES = 4


Places = dict[Cell, int]


def looped_source(machine: Machine, plan: Plan) -> str:
    """Source of the E-step for a machine with many edges."""
    return Looped(machine, plan).source()


class Looped:
    """Writes the E-step."""

    def __init__(self, machine: Machine, plan: Plan) -> None:
        self.machine = machine
        self.plan = plan
        self.loads = Loads(machine, plan)
        self._order_states()
        self.matrices = [
            matrix([self._renumbered(edge, number) for edge in edges], machine, plan)
            for number, step in enumerate(machine.steps())
            for edges in step.edges
        ]
        self.n_states = max(max(step.n_sources, step.n_targets) for step in machine.steps())
        self.in_blocks = self._fit_blocks()
        n_blocks = -(-self.n_states // WIDEST_BLOCK)
        self.width = -(-self.n_states // n_blocks)
        self.n_columns = n_blocks * self.width
        self.n_sources = max(1, *(len(one.sources) for one in self.matrices))
        self.n_targets = max(1, *(len(one.targets) for one in self.matrices))
        self.n_products = max(1, *(len(one.products) for one in self.matrices))
        self.counts_sources = any(hub.product for one in self.matrices for hub in one.sources)
        self.counts_targets = any(hub.product for one in self.matrices for hub in one.targets)

    def _fit_blocks(self) -> bool:
        """Whether there are few states, with one product of coins each before a result, and with
        most of the edges that there could be."""
        filled = sum(len(one.cells) for one in self.matrices)
        room = self.n_states * sum(len(one.targets) for one in self.matrices)
        if self.n_states > MOST_STATES or filled < _FILLED * room:
            return False
        return all(len({hub.state for hub in m.sources}) == len(m.sources) for m in self.matrices)

    def _order_states(self) -> None:
        """States that can be reached sooner come first, so that those that can be reached after so
        many results are the first few."""
        depth = depths(self.machine)
        order = sorted(range(len(depth)), key=lambda state: depth[state])
        self.place_of = {state: place for place, state in enumerate(order)}
        self.reach = [sum(d <= n for d in depth) for n in range(max(depth) + 1)]
        n_closing = len(self.machine.closing)
        self.initial = EdgeTable(
            "INITIAL",
            [
                [e._replace(target=self.place_of[e.target]) for e in edges]
                if length >= n_closing
                else edges
                for length, edges in enumerate(self.machine.initial)
            ],
            unrolled=False,
        )

    def _renumbered(self, edge: MachineEdge, number: int) -> MachineEdge:
        """An edge of a step; the last closing one leads from states of the body."""
        n_closing = len(self.machine.closing)
        if number >= n_closing - 1:
            edge = edge._replace(source=self.place_of[edge.source])
        if number == n_closing:
            edge = edge._replace(target=self.place_of[edge.target])
        return edge

    # -- constants -----------------------------------------------------------------------------
    def _constants(self, text: Text) -> None:
        matrices = self.matrices
        nothing = self.loads.n_slots
        products = [product for one in matrices for product in one.products]
        self.n_factors = max(1, *map(len, products))
        text(array("PRODUCT", _firsts(len(one.products) for one in matrices)))
        for factor in range(self.n_factors):
            slots = [p[factor] if factor < len(p) else nothing for p in products]
            text(array(f"FACTOR{factor}", slots, "uint64"))
        places = self._block_cells(text) if self.in_blocks else self._run_cells(text)
        flows = [
            (place, slots, times)
            for one, own in zip(matrices, places, strict=True)
            for cell, place in own.items()
            for slots, times in one.cells[cell]
        ]
        text(array("FLOW_CELL", [place for place, _, _ in flows]))
        text(array("FLOW_TIMES", [times for _, _, times in flows], "float64"))
        text(array("FLOW_LITERAL", _firsts(len(slots) for _, slots, _ in flows)))
        text(array("FLOW_SLOT", [slot for _, slots, _ in flows for slot in slots]))
        text(array("REACH", self.reach))
        self.n_flows = len(flows)
        self.has_flows = any(slots for _, slots, _ in flows)

    def _block_cells(self, text: Text) -> list[Places]:
        """Where cells are kept if there is room for all: those into one hub together."""
        products: list[int] = []
        for one in self.matrices:
            found = {hub.state: one.products.index(hub.product) for hub in one.sources}
            products += [found.get(state, 0) for state in range(self.n_columns)]
        targets = [(one, hub) for one in self.matrices for hub in one.targets]
        firsts = _firsts(len(one.targets) for one in self.matrices)
        text(array("TARGET", firsts))
        # Unsigned, or else each place would be checked for its sign.
        text(array("SOURCE_PRODUCT", products, "uint64"))
        text(array("TARGET_PRODUCT", [m.products.index(h.product) for m, h in targets], "uint64"))
        text(array("TARGET_STATE", [hub.state for _, hub in targets], "uint64"))
        text("index = np.uint64")
        text(*(f"P{place} = index({place})" for place in range(self.width)))
        self.n_cells = firsts[-1] * self.n_columns
        return [
            {
                cell: (first + cell.target) * self.n_columns + one.sources[cell.source].state
                for cell in one.cells
            }
            for first, one in zip(firsts, self.matrices, strict=False)
        ]

    def _run_cells(self, text: Text) -> list[Places]:
        """Where cells are kept run after run."""
        for name, hubs in (("SOURCE", "sources"), ("TARGET", "targets")):
            listed = [one.segments(getattr(one, hubs)) for one in self.matrices]
            text(array(name, _firsts(map(len, listed))))
            for number, field in enumerate(HubRange._fields):
                values = [segment[number] for segments in listed for segment in segments]
                text(array(f"{name}_{field.upper()}", values))
        places: list[Places] = []
        runs: dict[Kind, list[list[tuple[int, ...]]]] = {}
        self.n_cells = 0
        for one in self.matrices:
            own: Places = {}
            for kind, own_runs in one.runs().items():
                found: list[tuple[int, ...]] = []
                for cells in own_runs:
                    source, target = cells[0]
                    state = one.sources[source].state
                    found.append((self.n_cells, source, target, state, len(cells)))
                    own |= {cell: self.n_cells + place for place, cell in enumerate(cells)}
                    self.n_cells += len(cells)
                runs.setdefault(kind, []).append(found)
            places.append(own)
        for kind, lists in runs.items():
            text(array(kind.upper(), _firsts(map(len, lists))))
            flat = [run for own_runs in lists for run in own_runs]
            for number, field in enumerate(("CELL", "FROM", "TO", "STATE", "LENGTH")):
                text(array(f"{kind.upper()}_{field}", [run[number] for run in flat]))
        return places

    # -- frame ---------------------------------------------------------------------------------
    def source(self) -> str:
        """Write the whole kernel."""
        text = Text()
        text("import math", "", "import numpy as np", "")
        self._constants(text)
        text(*self.initial.constants(), *self.loads.constants(), "", "")
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
        return str(text)

    def _begin(self, text: Text) -> None:
        self.loads.everywhere(text)
        text(f"n = np.zeros({self.loads.n_slots + 1})")
        text(f"x = np.zeros({self.n_columns})", f"y = np.zeros({self.n_columns})")
        text(f"r = np.zeros((max_length, {self.n_products}))")  # products of coins
        text(
            f"h = np.zeros((max_length, {max(self.n_targets, self.n_states)}))"
        )  # target hubs, weighed
        text(
            f"z = np.zeros((max_length, {max(self.n_sources, self.n_columns)}))"
        )  # what follows source hubs
        text(
            f"a = np.zeros({self.n_sources})", f"g = np.zeros({max(self.n_targets, self.n_states)})"
        )
        text(f"cells = np.zeros({self.n_cells})", f"chances = np.empty({self.n_flows})")
        with text.block(f"for f in range({self.n_flows}):"):
            text("chance = FLOW_TIMES[f]")
            with text.block("for j in range(FLOW_LITERAL[f], FLOW_LITERAL[f + 1]):"):
                text("chance *= v[FLOW_SLOT[j]]")
            text("chances[f] = chance", "cells[FLOW_CELL[f]] += chance")
        if self.has_flows:
            text(f"flows = np.zeros({self.n_cells})")

    def _end_bucket(self, text: Text) -> None:
        if self.has_flows:
            with text.block(f"for f in range({self.n_flows}):"):
                text("p = flows[FLOW_CELL[f]] * chances[f]")
                with text.block("for j in range(FLOW_LITERAL[f], FLOW_LITERAL[f + 1]):"):
                    text("n[FLOW_SLOT[j]] += p")
            with text.block(f"for f in range({self.n_cells}):"):
                text("flows[f] = 0.0")
        self.loads.flush(text, "global")
        text("log_likelihood[bucket] += total")

    def _page(self, text: Text) -> None:
        with text.block("if weight[i] == 0.0:"):
            text("continue")
        text("base = obs_start[i]", "row = row_start[i]", "length = obs_start[i + 1] - base")
        with text.block("if length == 0:"):
            text("continue")
        self.loads.page(text)
        self._backward(text)
        self._start(text)
        self._forward(text)
        self.loads.flush(text, "page")

    def _selector(self, text: Text) -> None:
        """Which matrix a result has; of a long page, how many states can be there."""
        n_closing = len(self.machine.closing)
        text(f"step = min(length - t - 1, {n_closing}) * {self.machine.n_observations}")
        text("o = obs[base + t]", "step += o")
        if self.in_blocks:  # they are for few states
            return
        text(f"reach = ahead = {self.n_states}")
        with text.block(f"if length - t > {n_closing}:"):
            text(f"reach = REACH[min(t, {len(self.reach) - 1})]")
            text(f"ahead = REACH[min(t + 1, {len(self.reach) - 1})]")

    def _segments(self, text: Text, name: str, *lines: str) -> None:
        """Write lines for every hub of a side, j + e, with state s + e and product w."""
        with text.block(f"for k in range({name}[step], {name}[step + 1]):"):
            text(f"w = r[t, {name}_PRODUCT[k]]", f"s = {name}_STATE[k]", f"j = {name}_HUB[k]")
            with text.block(f"for e in range({self._length(name)}):"):
                text(*lines)

    def _length(self, name: str) -> str:
        """How many hubs of segment k can be there."""
        return f"min({name}_LENGTH[k], {'reach' if name == 'SOURCE' else 'ahead'} - s)"

    # -- backward ------------------------------------------------------------------------------
    def _backward(self, text: Text) -> None:
        with text.block(f"for s in range({self.n_states}):"):
            text("x[s] = 1.0")
        with text.block("for t in range(length - 1, -1, -1):"):
            self._selector(text)
            self._by_observation(text, self._fetch)
            text("j = PRODUCT[step]")
            with text.block("for k in range(PRODUCT[step + 1] - j):"):
                factors = [f"v[FACTOR{factor}[j + k]]" for factor in range(self.n_factors)]
                text(f"r[t, k] = {' * '.join(factors)}")
            if self.in_blocks:
                self._multiply_blocks(text)
            else:
                self._multiply_runs(text)

    def _begin_blocks(self, text: Text) -> None:
        text("hub = TARGET[step]", "n_hubs = TARGET[step + 1] - hub", "to = index(hub)")

    def _multiply_blocks(self, text: Text) -> None:
        """Sums of cells times target hubs, which stay in registers."""
        places = range(self.width)
        is_one = self.n_columns == self.width
        weigh = (
            "w = r[t, TARGET_PRODUCT[to + index(j)]] * x[TARGET_STATE[to + index(j)]]",
            "h[t, j] = w",
        )
        self._begin_blocks(text)
        if not is_one:
            with text.block("for j in range(n_hubs):"):
                text(*weigh)
        with text.block(f"for b in range(0, {self.n_columns}, {self.width}):"):
            text(*(f"z{place} = 0.0" for place in places))
            text(f"c = index(hub * {self.n_columns} + b)")
            with text.block("for j in range(n_hubs):"):
                text(*(weigh if is_one else ["w = h[t, j]"]))
                text(*(f"z{place} += cells[c + P{place}] * w" for place in places))
                text(f"c += index({self.n_columns})")
            text(f"m = index(step * {self.n_columns} + b)")
            for place in places:
                product = f"r[t, SOURCE_PRODUCT[m + P{place}]] * " if self.counts_sources else ""
                text(f"x[b + {place}] = {product}z{place}")
                if self.counts_sources:
                    text(f"z[t, b + {place}] = z{place}")

    def _multiply_runs(self, text: Text) -> None:
        self._segments(text, "TARGET", "h[t, j + e] = w * x[s + e]")
        with text.block(f"for j in range({self.n_sources}):"):
            text("z[t, j] = 0.0")
        with self._each_run(text, "COLUMN"):
            text("w = h[t, d]")
            with text.block("for e in range(m):"):
                text("z[t, j + e] += cells[c + e] * w")
        with self._each_run(text, "DIAGONAL"):
            with text.block("for e in range(m):"):
                text("z[t, j + e] += cells[c + e] * h[t, d + e]")
        with self._each_single(text):
            text("z[t, SINGLE_FROM[k]] += cells[SINGLE_CELL[k]] * h[t, SINGLE_TO[k]]")
        with text.block("for s in range(reach):"):
            text("x[s] = 0.0")
        self._segments(text, "SOURCE", "x[s + e] += w * z[t, j + e]")

    @contextmanager
    def _each_run(self, text: Text, name: str) -> Iterator[None]:
        """Write a loop over runs: m cells from c on, source hubs from j, target hubs from d on."""
        with text.block(f"for k in range({name}[step], {name}[step + 1]):"):
            text(f"m = max(min({name}_LENGTH[k], reach - {name}_STATE[k]), 0)")
            text(f"c = {name}_CELL[k]", f"j = {name}_FROM[k]", f"d = {name}_TO[k]")
            yield

    @contextmanager
    def _each_single(self, text: Text) -> Iterator[None]:
        """Write a loop over cells that are in no run."""
        with text.block("for k in range(SINGLE[step], SINGLE[step + 1]):"):
            with text.block("if SINGLE_STATE[k] >= reach:"):
                text("break")
            yield

    # -- coins of a result -------------------------------------------------------------------------
    def _by_observation(self, text: Text, emit: Callable[[Text, list[int]], None]) -> None:
        """Write what `emit` says of the slots that a result uses, where that depends on what was
        shown under a condition."""
        n_observations = self.machine.n_observations
        used: dict[tuple[int, ...], list[int]] = {}
        for observation in range(n_observations):
            matrices = self.matrices[observation::n_observations]
            slots = sorted({s for one in matrices for p in one.products for s in p})
            used.setdefault(tuple(self._of_results(slots)), []).append(observation)
        if len(used) > _MOST_BRANCHES:
            used = {tuple(sorted({slot for slots in used for slot in slots})): []}
        keyword = "if"
        for number, (own, observations) in enumerate(used.items()):
            if len(used) == 1:
                emit(text, list(own))
                break
            tests = " or ".join(f"o == {observation}" for observation in observations)
            is_last = number == len(used) - 1
            with text.block("else:" if is_last else f"{keyword} {tests}:"):
                emit(text, list(own))
            keyword = "elif"

    def _of_results(self, slots: Iterable[int]) -> list[int]:
        return [s for s in slots if self.plan.scope(self.machine, s // 2) == "result"]

    def _places(self, text: Text, slots: list[int], emit: Callable[[int, int, str], None]) -> None:
        """Write row numbers once, and what `emit` says of a slot, its coin and its row number."""
        for lag in sorted({self.machine.variables[slot // 2].lag for slot in slots}):
            here = [slot for slot in slots if self.machine.variables[slot // 2].lag == lag]
            with text.block("if t > 0:" if lag else "if True:"):
                names: dict[str, str] = {}
                for slot in here:
                    coin = self.machine.variables[slot // 2].coin
                    row = self.loads.row(coin, lag)
                    if row not in names:
                        names[row] = f"k{len(names)}"
                        text(f"{names[row]} = np.uint64({row})")
                for slot in here:
                    coin = self.machine.variables[slot // 2].coin
                    emit(slot, coin, names[self.loads.row(coin, lag)])

    def _fetch(self, text: Text, slots: list[int]) -> None:
        self._places(text, slots, lambda s, c, k: text(f"v[{s}] = W{c}[{s % 2}, {k}]"))

    def _flush(self, text: Text, slots: list[int]) -> None:
        self._places(
            text, slots, lambda s, c, k: text(f"c{c}[{s % 2}, {k}] += n[{s}]", f"n[{s}] = 0.0")
        )

    # -- start ---------------------------------------------------------------------------------
    def _start(self, text: Text) -> None:
        text(f"start = min(length, {len(self.machine.initial) - 1})", "p = 0.0")
        self.initial.emit(text, "start", "p += {weight} * x[{target}]")
        with text.block(f"if p < {SMALLEST_PAGE}:"):
            text("careful[i] = 1", "continue")
        text("q = weight[i]", "total += q * math.log(p)", "p = q / p")
        with text.block(f"for s in range({self.n_states}):"):
            text("y[s] = 0.0")
        self.initial.emit(
            text,
            "start",
            "y[{target}] += {weight} * p",
            "chance *= x[{target}] * p",
            LITERALS.format(table="INITIAL"),
            "    n[INITIAL_SLOT[j]] += chance",
        )

    # -- forward -------------------------------------------------------------------------------
    def _forward(self, text: Text) -> None:
        with text.block("for t in range(length):"):
            self._selector(text)
            if self.in_blocks:
                self._spread_blocks(text)
            else:
                self._spread_runs(text)
            if self.counts_sources or self.counts_targets:
                self._by_observation(text, self._flush)

    def _count(self, text: Text, name: str, posterior: str) -> None:
        """Add up the posteriors of hubs, and count the coins of their products."""
        with text.block(f"for k in range({name}[step], {name}[step + 1]):"):
            text(f"d = PRODUCT[step] + {name}_PRODUCT[k]")
            with text.block(f"if FACTOR0[d] == {self.loads.n_slots}:"):
                text("continue")
            text(f"s = {name}_STATE[k]", f"j = {name}_HUB[k]", "p = 0.0")
            with text.block(f"for e in range({self._length(name)}):"):
                text(f"p += {posterior}")
            for factor in range(self.n_factors):
                text(f"n[FACTOR{factor}[d]] += p")

    def _spread_blocks(self, text: Text) -> None:
        """Where states lead, with counts on the way."""
        places = range(self.width)
        is_one = self.n_columns == self.width
        self._begin_blocks(text)
        text("d = index(PRODUCT[step])")
        if not is_one:
            with text.block("for j in range(n_hubs):"):
                text("g[j] = 0.0")
        with text.block(f"for b in range(0, {self.n_columns}, {self.width}):"):
            text(f"m = index(step * {self.n_columns} + b)")
            for place in places:
                product = f"r[t, SOURCE_PRODUCT[m + P{place}]] * " if self.counts_sources else ""
                text(f"z{place} = {product}y[b + {place}]", f"y[b + {place}] = 0.0")
                if self.counts_sources:
                    text(f"p = z{place} * z[t, b + {place}]")
                    self._count_factors(text, f"SOURCE_PRODUCT[m + P{place}]")
            text(f"c = index(hub * {self.n_columns} + b)")
            with text.block("for j in range(n_hubs):"):
                text("w = h[t, j]")
                if self.has_flows:
                    text(*(f"flows[c + P{place}] += z{place} * w" for place in places))
                text(f"u = {_tree([f'cells[c + P{place}] * z{place}' for place in places])}")
                text(f"c += index({self.n_columns})")
                if is_one:
                    self._arrive(text)
                else:
                    text("g[j] += u")
        if not is_one:
            with text.block("for j in range(n_hubs):"):
                text("u = g[j]", "w = h[t, j]")
                self._arrive(text)

    def _arrive(self, text: Text) -> None:
        """Target hub j is reached by u; w is the weight of what follows it."""
        text("m = TARGET_PRODUCT[to + index(j)]")
        text("y[TARGET_STATE[to + index(j)]] += r[t, m] * u")
        if self.counts_targets:
            text("p = u * w")
            self._count_factors(text, "m")

    def _count_factors(self, text: Text, product: str) -> None:
        """Count the coins of a product p times."""
        for factor in range(self.n_factors):
            text(f"n[FACTOR{factor}[d + {product}]] += p")

    def _spread_runs(self, text: Text) -> None:
        self._segments(text, "SOURCE", "a[j + e] = w * y[s + e]")
        with text.block(f"for j in range({self.n_targets}):"):
            text("g[j] = 0.0")
        with self._each_run(text, "COLUMN"):
            if self.has_flows:
                text("w = h[t, d]")
                with text.block("for e in range(m):"):
                    text("flows[c + e] += a[j + e] * w")
            text("z0 = z1 = z2 = z3 = 0.0")
            with text.block("for b in range(m >> 2):"):
                text("e = 4 * b")
                for place in range(4):
                    text(f"z{place} += cells[c + e + {place}] * a[j + e + {place}]")
            with text.block("for e in range(m - (m & 3), m):"):
                text("z0 += cells[c + e] * a[j + e]")
            text("g[d] += (z0 + z1) + (z2 + z3)")
        with self._each_run(text, "DIAGONAL"):
            with text.block("for e in range(m):"):
                text("g[d + e] += cells[c + e] * a[j + e]")
            if self.has_flows:
                with text.block("for e in range(m):"):
                    text("flows[c + e] += a[j + e] * h[t, d + e]")
        with self._each_single(text):
            text("c = SINGLE_CELL[k]", "w = a[SINGLE_FROM[k]]", "d = SINGLE_TO[k]")
            text("g[d] += cells[c] * w")
            if self.has_flows:
                text("flows[c] += w * h[t, d]")
        with text.block(f"for s in range({self.n_states}):"):
            text("y[s] = 0.0")
        self._segments(text, "TARGET", "y[s + e] += w * g[j + e]")
        if self.counts_sources or self.counts_targets:
            self._count(text, "SOURCE", "a[j + e] * z[t, j + e]")
            self._count(text, "TARGET", "g[j + e] * h[t, j + e]")


def _firsts(lengths: Iterable[int]) -> list[int]:
    """Where lists begin that follow each other, and where the last one ends."""
    firsts = [0]
    for length in lengths:
        firsts.append(firsts[-1] + length)
    return firsts


def _tree(terms: list[str]) -> str:
    """A sum whose terms need not wait for each other."""
    while len(terms) > 1:
        terms = [
            f"({terms[k]} + {terms[k + 1]})" if k + 1 < len(terms) else terms[k]
            for k in range(0, len(terms), 2)
        ]
    return terms[0]
