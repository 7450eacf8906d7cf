"""P(what was shown | what was shown above), and P(click | the same)."""

from __future__ import annotations

from gecasmo.kernels.page.frame import PageKernel
from gecasmo.kernels.text import EdgeTable


class Filter(PageKernel):
    unrolled = None

    def source(self) -> str:
        """Write the kernel that predicts each observation from those above it."""
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
