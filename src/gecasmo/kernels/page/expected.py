"""What is to be expected of pages before anybody has clicked: events by result, and quiet pages.

As the marginal kernel does, this one walks over click histories where coins are keyed by them. It
runs on the automaton with all flips that a program makes, so that heads of any coin are events.
"""

from __future__ import annotations

from gecasmo.compiler.automaton import Automaton, Edge
from gecasmo.kernels.machine import Machine, MachineEdge
from gecasmo.kernels.page.frame import PageKernel
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.text import EdgeTable, Text, array


def event_names(automaton: Automaton) -> list[str]:
    """What kernels tell of each result, in order: signals, heads of coins, being looked at."""
    return [*automaton.signals, *automaton.parameters, "reached"]


class LiftedWalk(PageKernel):
    """A walk over all states and click histories, with the events of each edge."""

    lifted = True

    def __init__(self, machine: Machine, plan: Plan, automaton: Automaton) -> None:
        super().__init__(machine, plan)
        self.automaton = automaton
        self.uses_last = self.loads.uses("last_click", "distance")
        self.uses_count = self.loads.uses("clicks_above")
        edges = machine.edges_by_class
        self.clicks = EdgeTable("CLICKS", [[e for e in own if _clicks(e)] for own in edges], False)
        self.skips = EdgeTable(
            "SKIPS", [[e for e in own if not _clicks(e)] for own in edges], False
        )

    def begin(self, name: str, outputs: list[str]) -> Text:
        """Begin the source: constants of edges and of their events."""
        text = self.text(name, outputs, [self.clicks, self.skips, self.initial])
        text(*_events("EVENT", self.automaton, self.automaton.edges))
        text(*_events("START", self.automaton, self.automaton.initial), "", "")
        return text


def _clicks(edge: MachineEdge) -> bool:
    return "click" in edge.symbol


class Expected(LiftedWalk):
    def source(self) -> str:
        """Write the kernel: `told` gets the probability of events by result, `started` of heads
        before the first one by page, `quiet` that nothing of a page is clicked."""
        last, after_click = ("l", "t + 1") if self.uses_last else ("0", "0")
        count, one_more = ("c", "c + 1") if self.uses_count else ("0", "0")
        text = self.begin("expected", ["told", "started", "quiet"])
        sizes = f"({self.n_states}, size, counts)"
        here = f"[{{source}}, {last}, {count}]"
        tell = (
            "for j in range(EVENT_FIRST[{edge}], EVENT_FIRST[{edge} + 1]):",
            "    told[base + t - EVENT_LAG[j], EVENT_NAME[j]] += x",
        )
        with text.block(self.header):
            self.loads.everywhere(text)
            text(f"q = np.zeros({self.n_states})", f"r = np.zeros({self.n_states})")
            with text.block("for i in range(first, last):"):
                self.start_page(text)
                text(f"size = {'length + 1' if self.uses_last else '1'}")
                text(f"counts = {'length + 1' if self.uses_count else '1'}")
                text(f"a = np.zeros({sizes})", f"n = np.zeros({sizes})", "q[:] = 0.0")
                self.initial.emit(
                    text,
                    None,
                    "x = {weight}",
                    "a[{target}, 0, 0] += x",
                    "q[{target}] += x",
                    "for j in range(START_FIRST[{edge}], START_FIRST[{edge} + 1]):",
                    "    started[i, START_NAME[j]] += x",
                )
                with text.block("for t in range(length):"):
                    text("kind = CLASS[obs[base + t]]")
                    self.loads.result(text)
                    text("n[:] = 0.0", "r[:] = 0.0")
                    with text.block(f"for l in range({'t + 1' if self.uses_last else '1'}):"):
                        if self.uses_last:
                            text("above = ranks[row + l - 1] if l > 0 else 0")
                        with text.block(f"for c in range({'t + 1' if self.uses_count else '1'}):"):
                            self.loads.history(text)
                            self.skips.emit(
                                text,
                                "kind",
                                f"x = a{here} * {{weight}}",
                                f"n[{{target}}, {last}, {count}] += x",
                                "if l == 0 and c == 0:",
                                "    r[{target}] += q[{source}] * {weight}",
                                *tell,
                            )
                            self.clicks.emit(
                                text,
                                "kind",
                                f"x = a{here} * {{weight}}",
                                f"n[{{target}}, {after_click}, {one_more}] += x",
                                *tell,
                            )
                    text("a, n = n, a", "q, r = r, q")
                with text.block(f"for s in range({self.n_states}):"):
                    text("quiet[i] += q[s]")
        return str(text)


class PageChains(LiftedWalk):
    def source(self) -> str:
        """Write the kernel that tells what a result does to users, whoever comes to it.

        `begin[i]` is where users of a page are before its first result. For each result, click
        history h and state s, `skip` and `click` are probabilities of the states after it, and
        `reward` is what its events are worth at the prices of the result.
        """
        row = "l * counts + c"
        text = self.begin("chains", ["price", "begin", "skip", "click", "reward"])
        gain = (
            "worth = 0.0",
            "for j in range(EVENT_FIRST[{edge}], EVENT_FIRST[{edge} + 1]):",
            "    worth += price[base + t, EVENT_NAME[j]]",
            "reward[base + t, h, {source}] += {weight} * worth",
        )
        with text.block(self.header):
            self.loads.everywhere(text)
            text(f"counts = {'count_size' if self.uses_count else '1'}")
            with text.block("for i in range(first, last):"):
                self.start_page(text)
                self.initial.emit(text, None, "begin[i, {target}] += {weight}")
                with text.block("for t in range(length):"):
                    text("kind = CLASS[obs[base + t]]")
                    self.loads.result(text)
                    with text.block(f"for l in range({'t + 1' if self.uses_last else '1'}):"):
                        if self.uses_last:
                            text("above = ranks[row + l - 1] if l > 0 else 0")
                        with text.block(f"for c in range({'t + 1' if self.uses_count else '1'}):"):
                            self.loads.history(text)
                            text(f"h = {row}")
                            for table, name in ((self.skips, "skip"), (self.clicks, "click")):
                                table.emit(
                                    text,
                                    "kind",
                                    f"{name}[base + t, h, {{source}}, {{target}}] += {{weight}}",
                                    *gain,
                                )
        return str(text)


def _events(name: str, automaton: Automaton, edges: tuple[Edge, ...]) -> list[str]:
    """Per edge the events that it shows: numbers of `event_names`, and how far above they were."""
    numbers = {signal: number for number, signal in enumerate(automaton.signals)}
    n_signals = len(numbers)
    firsts, events, lags = [0], [], []
    for edge in edges:
        found = {(numbers[signal], 0) for signal in edge.symbol}
        coins = {coin: n_signals + k for k, coin in enumerate(automaton.parameters)}
        found |= {(coins[lit.parameter], lit.lag) for lit in edge.literals if lit.heads}
        if edge.source != automaton.gone and not edge.is_away and edges is automaton.edges:
            found.add((n_signals + len(coins), 0))
        for event, lag in sorted(found):
            events.append(event)
            lags.append(lag)
        firsts.append(len(events))
    return [
        array(f"{name}_FIRST", firsts),
        array(f"{name}_NAME", events),
        array(f"{name}_LAG", lags),
    ]
