"""The most likely edge at every result."""

from __future__ import annotations

from gecasmo.kernels.page.frame import PageKernel


class Decode(PageKernel):
    def source(self) -> str:
        """Write the kernel that finds the most likely path of a page."""
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
