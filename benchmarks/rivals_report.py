"""The page of ratios: what `benchmarks.rivals` measured, in tables that fit a screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.markdown import seconds, short_size, table, times

NAMES = {
    "gecasmo-default": "gecasmo, `fit(log)`",
    "gecasmo-grouped": "gecasmo, priors by rank and exposure",
    "gecasmo-fixed": "gecasmo, fixed priors",
    "clax-best": "CLAX, best held out",
    "clax-fastest": "CLAX, fastest",
    "numba": "Numba EM by hand",
    "python": "pure-Python EM (ours)",
    "streaming": "streaming limit",
}
OURS = ("gecasmo-default", "gecasmo-grouped", "gecasmo-fixed")
# Seconds are better when few, pages a second when many.
Better = Callable[[float, float], float]
Figures = dict[str, Any]


def as_markdown(figures: Figures) -> str:
    page = _Page(figures)
    lines = [
        "# Benchmark: the rivals",
        "",
        *page.introduction(),
        *page.whole_fit(),
        *page.speed(),
        *page.held_out(),
        *page.start_up(),
        *page.memory(),
        *page.how(),
        *_elsewhere(),
    ]
    return "\n".join(lines) + "\n"


class _Page:
    def __init__(self, figures: Figures) -> None:
        self.figures, self.runs = figures, figures["runs"]
        self.models: list[str] = figures["models"]
        self.sizes: list[int] = figures["sizes"]

    def introduction(self) -> list[str]:
        machine, runs = self.figures["machine"], next(iter(self.runs.values()))
        versions = ", ".join(
            f"{name} {number}" for name, number in runs["clax-best"]["versions"].items()
        )
        load = f"{self.figures['load_before']:.1f} and {self.figures['load_after']:.1f}"
        return [
            f"{machine['moment']}, commit {machine['commit']}, {machine['processor']} with "
            f"{machine['n_processors']} processors, Python {machine['python']}, "
            f"NumPy {machine['numpy']}, Numba {machine['numba']}. CLAX: {versions}. Processes that "
            f"wanted a processor before and at the end: {load}. Made by `make rivals` in "
            f"{self.figures['minutes']:.0f} minutes.",
            "",
            "The log: pages of 10 results by a DBN, the first 80 % for training. *x CLAX* and "
            "*x Python*: how many times better than *CLAX, fastest* and than the pure-Python EM. "
            "A figure with ~ is not measured but extrapolated: what pure Python would take for the "
            "iterations that Numba EM needed, at its speed with 10,000 pages.",
            "",
        ]

    def whole_fit(self) -> list[str]:
        rows = self._rows(
            lambda run: run.get("seconds_to_limit"), lambda own, other: other / own, seconds
        )
        ends = self._listed("gecasmo-default", "fit_seconds", self.models)
        reads = self._listed("gecasmo-default", "read_seconds", self.models[:1])
        return [
            "## Whole fit: seconds until held-out log-likelihood is within 0.001 of the own limit",
            "",
            "Without importing and compiling. gecasmo: from fit() to its return, sorting and "
            "coding of the log included; the others get pairs that are numbered already.",
            "",
            *table(self._header("s"), rows),
            f"`fit(log)` as it stops by itself: {ends}. Reading the log from a Parquet "
            f"file before that: {reads}.",
            "",
        ]

    def speed(self) -> list[str]:
        rows = self._rows(
            lambda run: run.get("pages_per_second"),
            lambda own, other: own / other,
            lambda speed: f"{speed / 1e6:,.0f}" if speed >= 1e8 else f"{speed / 1e6:.3g}",
        )
        return [
            "## Speed: million pages per second and iteration",
            "",
            "For gecasmo an iteration is an evaluation with its share of M-step and acceleration, "
            "for CLAX an epoch. The streaming limit is reading row numbers, clicks and tables "
            "once, on one thread.",
            "",
            *table(self._header("M pages/s"), rows),
        ]

    def held_out(self) -> list[str]:
        header = [
            "",
            *(f"{model} {short_size(size)}" for model in self.models for size in self.sizes),
        ]
        rows = []
        for name in (
            "gecasmo-default",
            "gecasmo-grouped",
            "gecasmo-fixed",
            "clax-best",
            "clax-fastest",
            "numba",
        ):
            found = [
                self._run(model, size, name)["held_out"]
                for model in self.models
                for size in self.sizes
            ]
            label = "Numba and Python EM" if name == "numba" else NAMES[name]
            rows.append([label, *(f"{one:.4f}" for one in found)])
        truth = [
            f"{self.figures['truth'][str(size)]:.4f}" if model == "DBN" else ""
            for model in self.models
            for size in self.sizes
        ]
        return [
            "## Held-out log-likelihood a page",
            "",
            *table(header, [*rows, ["true parameters", *truth]]),
        ]

    def start_up(self) -> list[str]:
        rows = []
        largest = max(self.sizes)
        for model in self.models:
            for kind, one in self.figures["first_fits"][model].items():
                what = f"gecasmo, cache of kernels {'empty' if kind == 'cold' else 'filled'}"
                rows.append([model, what, f"{one['import']:.2f}", f"{one['first_fit']:.2f}"])
            for name in ("clax-best", "clax-fastest", "numba"):
                run = self._run(model, largest, name)
                took = [f"{run[key]:.2f}" for key in ("import_seconds", "first_seconds")]
                rows.append([model, NAMES[name], *took])
        header = ["model", "", "import, s", "first fit or compiling, s"]
        return [
            "## Start-up in a new process",
            "",
            "gecasmo: the first fit of nine results. CLAX: compiling of its training step, without "
            "that of its evaluation. Numba: the E-step.",
            "",
            *table(header, rows),
        ]

    def memory(self) -> list[str]:
        header = ["peak, MB (above import)"]
        header += [f"{model} {short_size(size)}" for model in self.models for size in self.sizes]
        rows = []
        for name in (
            "gecasmo-default",
            "gecasmo-grouped",
            "gecasmo-fixed",
            "clax-best",
            "numba",
            "python",
        ):
            row = [NAMES[name]]
            for model in self.models:
                for size in self.sizes:
                    run = self._run(model, size, name)
                    if not run:
                        row.append("")
                        continue
                    above = run["peak_megabytes"] - run["import_megabytes"]
                    row.append(f"{run['peak_megabytes']:,.0f} ({above:,.0f})")
            rows.append(row)
        return [
            "## Peak resident memory",
            "",
            "gecasmo: reading the log from a Parquet file and the fit; the others: loading it as "
            "arrays, held-out pages included, and the fit.",
            "",
            *table(header, rows),
        ]

    def how(self) -> list[str]:
        chosen = [
            f"{model} {short_size(size)} best {self._run(model, size, 'clax-best')['setting']}, "
            f"fastest {self._run(model, size, 'clax-fastest')['setting']}"
            for model in self.models
            for size in self.sizes
        ]
        settings = [
            f"{short_size(size)} pages: "
            + ", ".join(
                f"{name} `{text}`"
                for name, text in self.figures["clax_settings"][str(size)].items()
            )
            for size in self.sizes
        ]
        return [
            "## How each was run",
            "",
            "- gecasmo, `fit(log)`: learned priors, intervals for every row, two threads. The time "
            "to within 0.001 is that of `EM(tol=...)` just strict enough. Fixed priors: "
            "`Table(pseudo_counts=(1, 1))`, `intervals=False`, and `EM(max_iter=...)` just long "
            "enough.",
            "- CLAX: its models with their default parameters, AdamW. Three settings are tried on "
            "nine tenths of the training pages; the other tenth says which is best and which is "
            "fastest, and when to stop. These two then train on all training pages for as long; "
            "their limit is where they end. Only this training is timed. "
            + "; ".join(settings)
            + ". Chosen: "
            + "; ".join(chosen)
            + ". Batches are cut from arrays, which is faster than its own loaders.",
            "- Numba EM by hand: `hand_kernels.py` and a plain M-step, one thread, textbook EM "
            "from 1/2 with pseudo-counts (1, 1).",
            "- Pure-Python EM: the same algorithm in dictionaries and loops, written by us; "
            "nobody's library.",
            "",
        ]

    def _listed(self, name: str, key: str, models: Sequence[str]) -> str:
        return ", ".join(
            f"{model} {short_size(size)} {seconds(self._run(model, size, name)[key])} s"
            for model in models
            for size in self.sizes
        )

    def _run(self, model: str, size: int, name: str) -> Figures:
        found: Figures = self.runs[f"{model} {size}"].get(name, {})
        return found

    def _python(self, model: str, size: int) -> Figures:
        """Pure Python: measured at one size, elsewhere extrapolated."""
        measured = self._run(model, size, "python")
        everywhere = [self._run(model, one, "python") for one in self.sizes]
        known = next((run for run in everywhere if run), None)
        if measured or known is None:
            return measured
        other = self._run(model, size, "numba")
        speed = known["pages_per_second"]
        took = other["iterations_to_limit"] * other["n_pages"] / speed
        return {"pages_per_second": speed, "seconds_to_limit": took, "is_extrapolated": True}

    def _header(self, unit: str) -> list[str]:
        parts = [[f"{model}, {unit}", "x CLAX", "x Python"] for model in self.models]
        return ["pages", "", *(cell for part in parts for cell in part)]

    def _rows(
        self,
        figure: Callable[[Figures], float | None],
        ratio: Better,
        text: Callable[[float], str],
    ) -> Iterable[list[str]]:
        for size in self.sizes:
            for name, label in NAMES.items():
                cells: list[str] = []
                for model in self.models:
                    python = self._python(model, size)
                    run = python if name == "python" else self._run(model, size, name)
                    own = figure(run)
                    if own is None:
                        cells += ["", "", ""]
                        continue
                    about = "~" if run.get("is_extrapolated") else ""
                    cells.append(about + text(own))
                    clax = figure(self._run(model, size, "clax-fastest"))
                    cells.append("" if clax is None else about + times(ratio(own, clax)))
                    other = figure(python)
                    about = "~" if python.get("is_extrapolated") else ""
                    cells.append("" if other is None else about + times(ratio(own, other)))
                if any(cells):
                    yield [short_size(size), label, *cells]


def _elsewhere() -> list[str]:
    """Figures of others on the same log, taken for the design on a machine of the same kind."""
    header = ["", "pages/s and iteration, DBN / UBM", "whole fit, 800k pages", "held out, DBN"]
    rows = [
        ["PyClick, PyPy", "6k / 105k", "~6,500 s / ~386 s", "-2.859, -2.93, -"],
        ["ClickModels, PyPy", "46k / 301k", "~702 s / ~106 s", "-2.689, -2.757, -"],
        ["pyClickModels (C++)", "14.5k / -", "~1,641 s", "-2.959, -2.828, -"],
    ]
    return [
        "## Measured elsewhere",
        "",
        "Quoted from our design notes, not run here; the same log, another run. Held out at 8k, "
        "80k and 800k training pages; ~ is extrapolated there.",
        "",
        *table(header, rows),
    ]
