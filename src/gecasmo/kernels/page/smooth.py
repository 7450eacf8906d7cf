"""Per result: was it reached, and which coins were flipped and came up heads?"""

from __future__ import annotations

from gecasmo.compiler.automaton import Automaton, Edge
from gecasmo.kernels.machine import Machine
from gecasmo.kernels.page.frame import PageKernel
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.text import EdgeTable, Text, array


class Smooth(PageKernel):
    def __init__(self, machine: Machine, plan: Plan, automaton: Automaton) -> None:
        super().__init__(machine, plan)
        self.automaton = automaton

    def source(self) -> str:
        """Write the kernel for what probably happened at each result."""
        n_coins = self.machine.n_coins
        text = self.text(
            "smooth",
            ["reached", "flipped", "heads", "start_flipped", "start_heads"],
            [self.shown, self.any, self.initial],
        )
        text(*_coin_constants("FLIP", self.automaton, self.automaton.edges))
        away = [edge.is_away for edge in self.automaton.edges]
        if any(away):
            text(array("AWAY", away))
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
        is_here = f"{{source}} != {gone}"
        if any(edge.is_away for edge in self.automaton.edges):
            is_here += " and not AWAY[{edge}]"
        table.emit(
            text,
            selector,
            "if a[t, {source}] > 0.0:",
            "    x = a[t, {source}] * ({weight} * b[{target}] / z)",
            f"    if {is_here}:",
            "        reached[base + t] += x",
            "    for j in range(FLIP_FIRST[{edge}], FLIP_FIRST[{edge} + 1]):",
            "        flipped[base + t - FLIP_LAG[j], FLIP_COIN[j]] += x",
            "        heads[base + t - FLIP_LAG[j], FLIP_COIN[j]] += x * FLIP_HEADS[j]",
        )


def _coin_constants(name: str, automaton: Automaton, edges: tuple[Edge, ...]) -> list[str]:
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
