"""Write the figures down: a page for people, a line for machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.e_step import EStepResult
from benchmarks.logs import KINDS
from benchmarks.markdown import read_sections, sections_of
from benchmarks.sweeps import SweepResult, sweep_lines
from benchmarks.whole_fit import TOLERANCE, DefaultFitResult, FitResult
from benchmarks.zoo import ZooResult

RESULTS = Path(__file__).parent / "results"


@dataclass
class Figures:
    """Everything that a run of the benchmark found out."""

    machine: dict[str, Any]
    n_pages: int
    rounds: int
    logs: dict[str, dict[str, float]] = field(default_factory=dict)
    e_steps: list[EStepResult] = field(default_factory=list)
    default_fits: list[DefaultFitResult] = field(default_factory=list)
    fits: list[FitResult] = field(default_factory=list)
    first_fits: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    memory: dict[str, dict[str, float]] = field(default_factory=dict)
    sweeps: list[SweepResult] = field(default_factory=list)
    zoo: list[ZooResult] = field(default_factory=list)
    load_before: float = 0.0
    load_after: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        listed = ("e_steps", "default_fits", "fits")
        told = {name: [one.as_dict() for one in vars(self)[name]] for name in listed}
        tuples = {name: [one._asdict() for one in vars(self)[name]] for name in ("sweeps", "zoo")}
        return vars(self) | told | tuples


def write_report(figures: Figures, folder: Path = RESULTS) -> str:
    """Write `latest.md`, where sections that were not measured again stay, and add a line to
    `history.jsonl`; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    page = updated(folder / "latest.md", figures)
    (folder / "latest.md").write_text(page)
    with (folder / "history.jsonl").open("a") as file:
        file.write(json.dumps(figures.as_dict()) + "\n")
    return page


def updated(path: Path, figures: Figures) -> str:
    """The page with the sections of this run, and those of earlier ones that it does not have."""
    page = as_markdown(figures)
    new, old = sections_of(page), read_sections(path)
    if set(old) <= set(new):
        return page
    later = f"Measured later than other sections: {_circumstances(figures)}"
    old |= {title: f"{later}\n\n{text}" for title, text in new.items()}
    head = path.read_text(encoding="utf-8").split("\n## ")[0].strip()
    return "\n\n".join([head, *(f"## {title}\n\n{text}" for title, text in old.items())]) + "\n"


def _circumstances(figures: Figures) -> str:
    machine = figures.machine
    return (
        f"{machine['moment']}, commit {machine['commit']}, {machine['processor']} with "
        f"{machine['n_processors']} processors, Python {machine['python']}, "
        f"NumPy {machine['numpy']}, Numba {machine['numba']}. Processes that wanted a processor "
        f"before and at the end: {figures.load_before:.1f} and {figures.load_after:.1f}."
    )


def as_markdown(figures: Figures) -> str:
    parts = [
        "# Benchmark",
        "",
        f"{figures.n_pages:,} pages of 10 results, medians of {figures.rounds} interleaved rounds. "
        f"{_circumstances(figures)}",
        "",
        *_log_lines(figures),
        *_target_lines(figures.e_steps),
        *_e_step_lines(figures.e_steps),
        *sweep_lines(figures.sweeps),
        *_fit_lines(figures),
        *_first_fit_lines(figures),
        *_memory_lines(figures),
        *zoo_lines(figures.zoo),
    ]
    return "\n".join(parts) + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


def _log_lines(figures: Figures) -> list[str]:
    rows = [
        [
            kind,
            f"{one['distinct_share']:.4f}",
            f"{one['distinct_patterns_share']:.4f}",
            f"{one['clicks_per_page']:.2f}",
            f"{one['read_seconds']:.2f}",
        ]
        for kind, one in figures.logs.items()
    ]
    if not rows:
        return []
    header = ["log", "distinct pages", "distinct with clicks", "clicks a page", "read, s"]
    return ["## Logs", "", *_table(header, rows)]


def _target_lines(results: Sequence[EStepResult]) -> list[str]:
    chosen = [one for one in results if one.log == KINDS[0]]
    if not chosen:
        return []
    header = ["model", "hand, M pages/s", "generated", "ratio", "by best rounds", "target", ""]
    rows = [
        [
            one.model,
            _speed(one, "hand"),
            _speed(one, "kernel"),
            f"{one.ratio:.2f}",
            f"{one.best_ratio:.2f}",
            f"{one.target:g}",
            "reached" if one.ratio >= one.target else "**missed**",
        ]
        for one in chosen
    ]
    title = "## E-step: generated kernel against plain hand-written Numba"
    note = "One thread, unfolded, pages all distinct; higher is better."
    return [title, "", note, "", *_table(header, rows)]


def _e_step_lines(results: Sequence[EStepResult]) -> list[str]:
    if not results:
        return []
    contestants = {
        "hand": "hand Numba",
        "c": "hand C",
        "kernel": "generated kernel",
        "whole": "E-step, 1 thread",
        "two_threads": "2 threads",
        "folded": "folding allowed",
        "folded_two_threads": "... 2 threads",
        "streaming": "streaming limit",
    }
    rows = [
        [
            one.model,
            one.log,
            *(_speed(one, name) for name in contestants),
            f"{one.n_folded_pages / one.n_pages:.2f}",
            f"{one.bytes_per_page:.0f}",
        ]
        for one in results
    ]
    header = ["model", "log", *contestants.values(), "pages left", "bytes a page"]
    note = (
        "M pages/s. *E-step* is what EM calls: kernel, checks and copies. *Folding allowed*: equal "
        "pages become one where that halves them. *Streaming limit*: reading the same arrays once, "
        "on one thread. *Bytes a page*: the arrays of the encoded log."
    )
    return ["## E-step: all contestants", "", note, "", *_table(header, rows)]


def _speed(one: EStepResult, name: str) -> str:
    if name not in one.seconds:
        return "-"
    return f"{one.n_pages / one.seconds[name].median / 1e6:.1f}"


def _fit_lines(figures: Figures) -> list[str]:
    if not figures.fits:
        return []
    rows = [
        [
            one.model,
            one.log,
            one.method,
            f"{one.evaluations}" if one.is_there else f"more than {one.evaluations}",
            f"{one.em_seconds:.2f}",
            f"{one.seconds:.2f}",
            f"{1000 * one.seconds_per_evaluation:.0f}",
        ]
        for one in figures.fits
    ]
    header = ["model", "log", "method", "evaluations", "s of EM", "s from fit()", "ms each"]
    note = (
        f"Two threads. Until the objective per page is within {TOLERANCE:g} of the best that any "
        "run found; the last column is one evaluation with its share of M-step and acceleration."
    )
    lines = ["## Whole fit", "", note, "", *_table(header, rows)]
    rows = [
        [
            one.model,
            one.log,
            one.priors,
            f"{one.fit_seconds:.2f}",
            f"{one.encode_seconds:.2f}",
            f"{one.evaluations}",
            "" if one.gap_per_page is None else f"{one.gap_per_page:.1e}",
        ]
        for one in figures.default_fits
    ]
    header = [
        *["model", "log", "priors", "fit(log), s", "of it encoding", "evaluations"],
        "below limit a page",
    ]
    return [*lines, "`fit(log)`, kernels compiled:", "", *_table(header, rows)]


def _first_fit_lines(figures: Figures) -> list[str]:
    rows = [
        [model, name, *(f"{one[key]:.2f}" for key in ("import", "read", "first_fit"))]
        for model, runs in figures.first_fits.items()
        for name, one in runs.items()
    ]
    if not rows:
        return []
    header = ["model", "cache of kernels", "import, s", "read_log of 9 results", "first fit"]
    return ["## Compile time, in a new process", "", *_table(header, rows)]


def _memory_lines(figures: Figures) -> list[str]:
    rows = [
        [
            name,
            *(f"{one[key]:.0f}" for key in ("import_megabytes", "read_megabytes", "fit_megabytes")),
            *(f"{one[key]:.2f}" for key in ("read_seconds", "fit_seconds")),
        ]
        for name, one in figures.memory.items()
    ]
    if not rows:
        return []
    header = ["model, log", "after import, MB", "after read_log", "after fit", "read, s", "fit, s"]
    note = "Peak resident memory of a process that reads the log from a Parquet file and fits it."
    return ["## Peak memory", "", note, "", *_table(header, rows)]


def zoo_lines(results: Sequence[ZooResult]) -> list[str]:
    """The section about every model of the zoo."""
    if not results:
        return []
    rows = [
        [
            one.model,
            one.view,
            f"{one.n_states}",
            f"{one.n_edges}",
            f"{one.n_pages / one.seconds / 1e6:.3g}",
        ]
        for one in results
    ]
    header = ["model", "view", "states", "edges", "E-step, M pages/s"]
    note = (
        f"{results[0].n_pages:,} random pages of 10 results that have the columns a model needs, "
        "with its own clicks; seconds of the processor on one thread, nothing folded, best of all "
        "rounds. Edges are those of all observations. Of NCM and AttentiveNCM, whose coin has a "
        "row for each result, this is what the automaton takes, without their networks."
    )
    return ["## E-step of every model of the zoo", "", note, "", *_table(header, rows)]
