"""P(click) with no click known; coins keyed by the click history are lifted into the state."""

from __future__ import annotations

from gecasmo.kernels.page.frame import PageKernel
from gecasmo.kernels.text import EdgeTable


class Marginal(PageKernel):
    lifted = True
    unrolled = None

    def source(self) -> str:
        """Write the kernel that predicts clicks with none of them known."""
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
