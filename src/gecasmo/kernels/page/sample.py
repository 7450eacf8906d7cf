"""A random edge at every result: simulated users, or hidden paths given all that was shown."""

from __future__ import annotations

from gecasmo.kernels.page.frame import PageKernel

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


class Sample(PageKernel):
    lifted = True

    def source(self) -> str:
        """Write the kernel that makes up clicks."""
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


class Stories(PageKernel):
    def source(self) -> str:
        """Write the kernel that draws hidden paths of pages whose clicks are known."""
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
