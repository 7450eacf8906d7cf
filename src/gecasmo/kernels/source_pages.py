"""Source of the kernels that answer questions page by page: filter, marginal, smooth, decode,
sample and stories (hidden paths drawn given the clicks).

All of them walk a page with arrays `a` (before the result) and `n` (after it) over states.
Filter and marginal spell the edges of small machines out; everything else loops over them.
"""

from __future__ import annotations

from gecasmo.compiler.automaton import Automaton
from gecasmo.kernels.loads import Loads
from gecasmo.kernels.machine import Machine
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.source_e_step_scaled import SMALLEST_STATE, SMALLEST_STEP
from gecasmo.kernels.text import EdgeTable, Text, array

_PAGE = ["first", "last", "obs_start", "row_start", "obs"]
_LIFT = ["ranks", "rank_size", "count_size"]


def page_arguments(plan: Plan, lifted: bool = False) -> list[str]:
    """The arguments that every page kernel begins with."""
    lift = _LIFT if lifted else []
    return [*_PAGE, *plan.codes_arguments(), *plan.weight_arguments(), *lift]


class _PageKernel:
    """What the kernels of this file share: header, page loop, fetching of weights."""

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
        text = Text()
        text("import numpy as np", "")
        for table in tables:
            text(*table.constants())
        text(array("CLASS", [o.case for o in self.machine.observations]), "", "")
        self.header = (
            f"def {name}({', '.join([*page_arguments(self.plan, self.lifted), *outputs])}):"
        )
        return text

    def start_page(self, text: Text) -> None:
        text("base = obs_start[i]", "row = row_start[i]", "length = obs_start[i + 1] - base")
        self.loads.page(text)

    def clear(self, text: Text, name: str = "n") -> None:
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


class _Filter(_PageKernel):
    unrolled = None

    def source(self) -> str:
        clicks = [[e for e in edges if "click" in e.symbol] for edges in self.any.lists]
        click_table = EdgeTable("CLICKS", clicks)
        text = self.text(
            "filter",
            ["probability", "click_probability"],
            [self.shown, self.any, self.initial, click_table],
        )
        with text.block(self.header):
            self.loads.everywhere(text)
            text(f"a = np.empty({self.n_states})", f"n = np.empty({self.n_states})")
            with text.block("for i in range(first, last):"):
                self.start_page(text)
                self.clear(text, "a")
                self.initial.emit(text, None, "a[{target}] += {weight}")
                with text.block("for t in range(length):"):
                    text("o = obs[base + t]", "kind = CLASS[o]")
                    self.loads.result(text)
                    text("click = 0.0")
                    click_table.emit(text, "kind", "click += a[{source}] * {weight}")
                    text("lift = 1.0")
                    with text.block("while True:"):
                        self.clear(text)
                        self.shown.emit(text, "o", "n[{target}] += a[{source}] * {weight}")
                        text("total = 0.0")
                        with text.block(f"for s in range({self.n_states}):"):
                            text("total += n[s]")
                        self.look_again(text, in_place=True)
                    text("probability[base + t] = total * lift")
                    text("click_probability[base + t] = click")
                    with text.block("if total <= 0.0:"):
                        # An impossible observation: go on as if it had not been looked at.
                        self.any.emit(text, "kind", "n[{target}] += a[{source}] * {weight}")
                        with text.block(f"for s in range({self.n_states}):"):
                            text("total += n[s]")
                    with text.block(f"for s in range({self.n_states}):"):
                        text("a[s] = n[s] / total")
        return str(text)


class _Marginal(_PageKernel):
    lifted = True
    unrolled = None

    def source(self) -> str:
        uses_last = self.loads.uses("last_click", "distance")
        uses_count = self.loads.uses("clicks_above")
        last, after_click = ("l", "t + 1") if uses_last else ("0", "0")
        count, one_more = ("c", "c + 1") if uses_count else ("0", "0")
        clicks = [[e for e in edges if "click" in e.symbol] for edges in self.any.lists]
        skips = [[e for e in edges if "click" not in e.symbol] for edges in self.any.lists]
        click_table, skip_table = EdgeTable("CLICKS", clicks), EdgeTable("SKIPS", skips)
        text = self.text("marginal", ["click_probability"], [click_table, skip_table, self.initial])
        sizes = f"({self.n_states}, size, counts)"
        with text.block(self.header):
            self.loads.everywhere(text)
            with text.block("for i in range(first, last):"):
                self.start_page(text)
                text(f"size = {'length + 1' if uses_last else '1'}")
                text(f"counts = {'length + 1' if uses_count else '1'}")
                text(f"a = np.zeros({sizes})", f"n = np.zeros({sizes})")
                self.initial.emit(text, None, "a[{target}, 0, 0] += {weight}")
                with text.block("for t in range(length):"):
                    text("kind = CLASS[obs[base + t]]")
                    self.loads.result(text)
                    text("click = 0.0", "n[:] = 0.0")
                    with text.block(f"for l in range({'t + 1' if uses_last else '1'}):"):
                        if uses_last:
                            text("above = ranks[row + l - 1] if l > 0 else 0")
                        with text.block(f"for c in range({'t + 1' if uses_count else '1'}):"):
                            self.loads.history(text)
                            skip_table.emit(
                                text,
                                "kind",
                                f"n[{{target}}, {last}, {count}] += "
                                f"a[{{source}}, {last}, {count}] * {{weight}}",
                            )
                            click_table.emit(
                                text,
                                "kind",
                                f"x = a[{{source}}, {last}, {count}] * {{weight}}",
                                f"n[{{target}}, {after_click}, {one_more}] += x",
                                "click += x",
                            )
                    text("click_probability[base + t] = click")
                    text("a, n = n, a")
        return str(text)


class _Smooth(_PageKernel):
    def __init__(self, machine: Machine, plan: Plan, automaton: Automaton) -> None:
        super().__init__(machine, plan)
        self.automaton = automaton

    def source(self) -> str:
        n_coins = self.machine.n_coins
        text = self.text(
            "smooth",
            ["reached", "flipped", "heads", "start_flipped", "start_heads"],
            [self.shown, self.any, self.initial],
        )
        text(*_coin_constants("FLIP", self.automaton, self.automaton.edges))
        text(*_coin_constants("START", self.automaton, self.automaton.initial), "", "")
        with text.block(self.header):
            self.loads.everywhere(text)
            text(f"b = np.empty({self.n_states})", f"n = np.empty({self.n_states})")
            with text.block("for i in range(first, last):"):
                self.start_page(text)
                self.scaled_forward(text)
                with text.block(f"for s in range({self.n_states}):"):
                    text("b[s] = 1.0")
                with text.block("for t in range(length - 1, -1, -1):"):
                    text("o = obs[base + t]")
                    self.loads.result(text)
                    self.clear(text)
                    text("z = 0.0")
                    selector, table = "o", self.shown
                    self._weigh(text, table, selector)
                    with text.block("if z <= 0.0:"):
                        text("kind = CLASS[o]")
                        self._weigh(text, self.any, "kind")
                        self._share(text, self.any, "kind", n_coins)
                    with text.block("else:"):
                        self._share(text, self.shown, "o", n_coins)
                    with text.block(f"for s in range({self.n_states}):"):
                        text("b[s] = n[s] / z")
                text("z = 0.0")
                self.initial.emit(text, None, "z += {weight} * b[{target}]")
                self.initial.emit(
                    text,
                    None,
                    "x = {weight} * b[{target}] / z",
                    "for j in range(START_FIRST[{edge}], START_FIRST[{edge} + 1]):",
                    "    start_flipped[i, START_COIN[j]] += x",
                    "    start_heads[i, START_COIN[j]] += x * START_HEADS[j]",
                )
        return str(text)

    def _weigh(self, text: Text, table: EdgeTable, selector: str) -> None:
        table.emit(
            text,
            selector,
            "if a[t, {source}] > 0.0:",  # else x may be infinite, and 0 times that no number
            "    x = {weight} * b[{target}]",
            "    n[{source}] += x",
            "    z += a[t, {source}] * x",
        )

    def _share(self, text: Text, table: EdgeTable, selector: str, n_coins: int) -> None:
        gone = -1 if self.automaton.gone is None else self.automaton.gone
        table.emit(
            text,
            selector,
            "if a[t, {source}] > 0.0:",
            "    x = a[t, {source}] * ({weight} * b[{target}] / z)",
            f"    if {{source}} != {gone}:",
            "        reached[base + t] += x",
            "    for j in range(FLIP_FIRST[{edge}], FLIP_FIRST[{edge} + 1]):",
            "        flipped[base + t - FLIP_LAG[j], FLIP_COIN[j]] += x",
            "        heads[base + t - FLIP_LAG[j], FLIP_COIN[j]] += x * FLIP_HEADS[j]",
        )


def _coin_constants(name: str, automaton: Automaton, edges: tuple) -> list[str]:  # type: ignore[type-arg]
    """Per edge: which coins were flipped, and which of them came up heads at least once."""
    numbers = {parameter: number for number, parameter in enumerate(automaton.parameters)}
    firsts, coins, heads, lags = [0], [], [], []
    for edge in edges:
        flips: dict[tuple[int, int], bool] = {}
        for literal in edge.literals:
            key = (numbers[literal.parameter], literal.lag)
            flips[key] = flips.get(key, False) or literal.heads
        for (coin, lag), came_up in flips.items():
            coins.append(coin)
            lags.append(lag)
            heads.append(came_up)
        firsts.append(len(coins))
    return [
        array(f"{name}_FIRST", firsts),
        array(f"{name}_COIN", coins),
        array(f"{name}_HEADS", heads, "float64"),
        array(f"{name}_LAG", lags),
    ]


class _Decode(_PageKernel):
    def source(self) -> str:
        text = self.text("decode", ["edge", "start_edge"], [self.shown, self.any, self.initial])
        states = f"for s in range({self.n_states}):"
        with text.block(self.header):
            self.loads.everywhere(text)
            text(f"a = np.empty({self.n_states})", f"n = np.empty({self.n_states})")
            text(f"start = np.empty({self.n_states}, dtype=np.int64)")
            with text.block("for i in range(first, last):"):
                self.start_page(text)
                text(f"came = np.empty((length, {self.n_states}), dtype=np.int64)")
                text(f"before = np.empty((length, {self.n_states}), dtype=np.int64)")
                self.clear(text, "a")
                self.initial.emit(
                    text,
                    None,
                    "if {weight} > a[{target}]:",
                    "    a[{target}] = {weight}",
                    "    start[{target}] = {edge}",
                )
                with text.block("for t in range(length):"):
                    text("o = obs[base + t]")
                    self.loads.result(text)
                    best = (
                        "x = a[{source}] * {weight}",
                        "if x > n[{target}]:",
                        "    n[{target}] = x",
                        "    came[t, {target}] = {edge}",
                        "    before[t, {target}] = {source}",
                    )
                    text("lift = 1.0")
                    with text.block("while True:"):
                        self.clear(text)
                        self.shown.emit(text, "o", *best)
                        text("total = 0.0")
                        with text.block(states):
                            text("total = max(total, n[s])")
                        self.look_again(text, in_place=True)
                    text("top = total")
                    with text.block("if top <= 0.0:"):
                        text("kind = CLASS[o]")
                        self.any.emit(text, "kind", *best)
                        with text.block(states):
                            text("top = max(top, n[s])")
                    with text.block(states):
                        text("a[s] = n[s] / top")
                text("s = 0")
                with text.block(f"for k in range({self.n_states}):"):
                    with text.block("if a[k] > a[s]:"):
                        text("s = k")
                with text.block("for t in range(length - 1, -1, -1):"):
                    text("edge[base + t] = came[t, s]", "s = before[t, s]")
                text("start_edge[i] = start[s]")
        return str(text)


# Takes the edge in which the running total passes u; the last possible one if rounding eats it.
_PICK = (
    "    total += x",
    "    if x > 0.0 and not done:",
    "        picked = {edge}",
    "        s = {next}",
    "        click = {click}",
    "        done = u < total",
)


def _pick(condition: str, weight: str, following: str) -> list[str]:
    lines = [f"if {condition}:", f"    x = {weight}"]
    return lines + [line.replace("{next}", following) for line in _PICK]


class _Sample(_PageKernel):
    lifted = True

    def source(self) -> str:
        text = self.text(
            "sample", ["uniform", "start_uniform", "edge", "start_edge"], [self.any, self.initial]
        )
        begin = ("total = 0.0", "picked = -1", "click = 0", "done = False")
        with text.block(self.header):
            self.loads.everywhere(text)
            with text.block("for i in range(first, last):"):
                self.start_page(text)
                text("u = start_uniform[i]", "s = -1", "above = 0", "c = 0", *begin)
                self.initial.emit(text, None, *_pick("not done", "{weight}", "{target}"))
                text("start_edge[i] = picked")
                with text.block("for t in range(length):"):
                    text("kind = CLASS[obs[base + t]]")
                    self.loads.result(text)
                    self.loads.history(text)
                    text("u = uniform[base + t]", "now = s", *begin)
                    self.any.emit(text, "kind", *_pick("now == {source}", "{weight}", "{target}"))
                    text("edge[base + t] = picked")
                    with text.block("if click == 1:"):
                        text("above = ranks[row + t]", "c += 1")
        return str(text)


class _Stories(_PageKernel):
    def source(self) -> str:
        text = self.text(
            "stories",
            ["uniform", "start_uniform", "end_uniform", "edge", "start_edge"],
            [self.shown, self.any, self.initial],
        )
        begin = ("total = 0.0", "picked = -1", "click = 0", "done = False")
        with text.block(self.header):
            self.loads.everywhere(text)
            with text.block("for i in range(first, last):"):
                self.start_page(text)
                self.scaled_forward(text)
                text("s = 0", "total = 0.0", "u = end_uniform[i]", "done = False")
                with text.block(f"for k in range({self.n_states}):"):
                    with text.block("if a[length, k] > 0.0 and not done:"):
                        text("total += a[length, k]", "s = k", "done = u < total")
                with text.block("for t in range(length - 1, -1, -1):"):
                    text("o = obs[base + t]", "kind = CLASS[o]")
                    self.loads.result(text)
                    text("now = s", *begin)
                    with text.block("if scale[t] > 0.0:"):
                        text("u = uniform[base + t] * a[t + 1, now]")
                        weight = "a[t, {source}] / scale[t] * {weight}"
                        self.shown.emit(text, "o", *_pick("now == {target}", weight, "{source}"))
                    with text.block("else:"):
                        text("u = uniform[base + t] * a[t + 1, now]")
                        weight = "a[t, {source}] * {weight}"
                        self.any.emit(text, "kind", *_pick("now == {target}", weight, "{source}"))
                    text("edge[base + t] = picked")
                text("now = s", *begin, "u = start_uniform[i] * a[0, now]")
                self.initial.emit(text, None, *_pick("now == {target}", "{weight}", "{target}"))
                text("start_edge[i] = picked")
        return str(text)


def filter_source(machine: Machine, plan: Plan) -> str:
    """P(what was shown | what was shown above), and P(click | the same)."""
    return _Filter(machine, plan).source()


def marginal_source(machine: Machine, plan: Plan) -> str:
    """P(click) with no click known; coins keyed by the history are lifted into the state."""
    return _Marginal(machine, plan).source()


def smooth_source(machine: Machine, plan: Plan, automaton: Automaton) -> str:
    """Per result: was it reached, and which coins were flipped and came up heads?"""
    return _Smooth(machine, plan, automaton).source()


def decode_source(machine: Machine, plan: Plan) -> str:
    """The most likely edge at every result."""
    return _Decode(machine, plan).source()


def sample_source(machine: Machine, plan: Plan) -> str:
    """A random edge at every result: simulated users."""
    return _Sample(machine, plan).source()


def stories_source(machine: Machine, plan: Plan) -> str:
    """A random hidden path given everything shown (forward filtering, backward sampling)."""
    return _Stories(machine, plan).source()
