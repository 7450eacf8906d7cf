"""The page of `benchmarks.scale`: what stages took, how that grows, what a billion would take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.markdown import seconds, short_size, table

BILLION = 1_000_000_000
MILLION = 1_000_000
Figures = dict[str, Any]


def as_markdown(figures: Figures) -> str:
    machine = figures["machine"]
    lines = [
        "# Benchmark: logs on disk",
        "",
        f"{figures['model']}, pages of 10 results; `ingest(memory={figures['memory']!r})`. "
        f"{machine['moment']}, commit {machine['commit']}, {machine['processor']} with "
        f"{machine['n_processors']} processors, Python {machine['python']}, NumPy "
        f"{machine['numpy']}, Numba {machine['numba']}, Polars {machine['polars']}. Processes that "
        f"wanted a processor before and at the end: {figures['load_before']:.1f} and "
        f"{figures['load_after']:.1f}. Made by `python -m benchmarks.scale` in "
        f"{figures['minutes']:.0f} minutes.",
        "",
        *_ingest(figures),
        *_yardsticks(figures),
        *_fits(figures),
        *_space(figures),
        *_growth(figures),
        *_billion(figures),
    ]
    return "\n".join(lines) + "\n"


def _ingest(figures: Figures) -> list[str]:
    header = ["log", "pages", "stored", "parts", "M pages/s", "s", "bytes a page", "peak MB"]
    header += ["disk, MB"]
    rows = []
    for case in figures["cases"]:
        one = case["ingest"]
        rows.append(
            [
                case["kind"],
                short_size(case["size"]),
                f"{one['n_pages'] / one['n_sessions']:.0%}",
                f"{one['n_partitions']}",
                f"{case['size'] / one['ingest_seconds'] / MILLION:.2f}",
                seconds(one["ingest_seconds"]),
                f"{one['log_bytes'] / case['size']:.1f}",
                _peak(one),
                f"{one['work_bytes'] / MILLION:,.0f}",
            ]
        )
    return [
        "## Ingest",
        "",
        "From tables that the simulator makes (its time is left out) to the stored log. *Stored*: "
        "the share of pages left where equal ones are folded; bytes are a page of the source. Peak "
        "memory: all that is resident, and in brackets what is no copy of a file. Disk: the most "
        "that log and temporary files took together.",
        "",
        *table(header, rows),
    ]


def _yardsticks(figures: Figures) -> list[str]:
    header = ["log", "pages", "what", "M pages/s", "s", "processor s", "peak MB"]
    names = {
        "ingest": "`ClickLog.ingest`",
        "polars": "Polars, by hash of the query",
        "duckdb": "DuckDB, by hash of the query",
        "scan": "Polars, sums of all columns",
    }
    rows = [
        [
            case["kind"],
            short_size(case["size"]),
            names[who],
            f"{case['size'] / one['seconds'] / MILLION:.2f}",
            seconds(one["seconds"]),
            seconds(one["processor_seconds"]),
            _peak(one),
        ]
        for case in figures["cases"]
        for who, one in case.get("yardsticks", {}).items()
    ]
    if not rows:
        return []
    return [
        "## Ingest of Parquet files, beside what is least",
        "",
        "The same files; others only write the results of each of 64 hashes of the query to files "
        "of their own, without checks, folding, numbers or a way to go on after a kill.",
        "",
        *table(header, rows),
    ]


def _fits(figures: Figures) -> list[str]:
    header = ["log", "pages", "priors", "evaluations", "s each", "all of them, s", "fit(), s"]
    header += ["peak MB", "LL a page"]
    rows = [
        [
            case["kind"],
            short_size(case["size"]),
            priors,
            f"{fit['evaluations']}" + ("" if fit["converged"] else ", not converged"),
            f"{_each(fit):.3g}",
            seconds(fit["em_seconds"]),
            seconds(fit["fit_seconds"]),
            _peak(fit),
            f"{fit['log_likelihood_a_page']:.4f}",
        ]
        for case, priors, fit in _all_fits(figures)
    ]
    return [
        "## Fit",
        "",
        "Until EM stops by itself, checkpoints included. *Fixed*: pseudo-counts (1, 1), no "
        "intervals. *Learned*: the default, with an interval for every row. An evaluation has its "
        "share of M-step and acceleration; fit() also encodes the log and writes the tables.",
        "",
        *table(header, rows),
    ]


def _space(figures: Figures) -> list[str]:
    header = ["log", "pages", "priors", "rows", "encoded bytes a page", "state bytes a row"]
    header += ["table bytes a row", "disk of the fit, MB"]
    rows = []
    for case, priors, fit in _all_fits(figures):
        n_rows = _n_rows(figures, case)
        rows.append(
            [
                case["kind"],
                short_size(case["size"]),
                priors,
                f"{n_rows:,}",
                f"{fit['parts_bytes'] / case['size']:.1f}",
                f"{fit['points_bytes'] / n_rows:.0f}",
                f"{fit['fit_bytes_left'] / n_rows:.0f}",
                f"{fit['fit_bytes'] / MILLION:,.0f}",
            ]
        )
    return [
        "## Disk of a fit",
        "",
        "The most that was seen at any moment. *Encoded*: the pages as the kernels read them, with "
        "the keys of their rows, by page of the source. *State*: parameters and acceleration on "
        "the way. *Table*: the answer. Rows are those of all tables with a row a pair.",
        "",
        *table(header, rows),
    ]


def _growth(figures: Figures) -> list[str]:
    header = ["log", "pages", "ingest", "evaluation, fixed", "fit, fixed", "evaluation, learned"]
    header += ["fit, learned"]
    rows = []
    first: dict[str, list[float | None]] = {}
    for case in figures["cases"]:
        millions = case["size"] / MILLION
        found: list[float | None] = [case["ingest"]["ingest_seconds"] / millions]
        for priors in ("fixed", "learned"):
            fit = case["fits"].get(priors)
            found += [None, None] if fit is None else [_each(fit), fit["fit_seconds"]]
            found[-2:] = [None if one is None else one / millions for one in found[-2:]]
        start = first.setdefault(case["kind"], found)
        cells = [
            "" if one is None else f"{one:.3g}" + (f" ({one / at:.2f})" if at else "")
            for one, at in zip(found, start, strict=True)
        ]
        rows.append([case["kind"], short_size(case["size"]), *cells])
    return [
        "## Growth: seconds per million pages",
        "",
        "In brackets: beside the smallest log of its kind; 1 is linear growth. A fit also depends "
        "on the number of evaluations.",
        "",
        *table(header, rows),
    ]


def _billion(figures: Figures) -> list[str]:
    largest: dict[str, Figures] = {}
    for case in figures["cases"]:
        if case["fits"] and case["size"] > largest.get(case["kind"], {"size": 0})["size"]:
            largest[case["kind"]] = case
    header = ["log", "from", "priors", "ingest, min", "evaluation, s", "fit(), min", "log, GB"]
    header += ["disk of the fit, GB"]
    rows = []
    for kind, case in largest.items():
        scale = BILLION / case["size"]
        for priors, fit in case["fits"].items():
            rows.append(
                [
                    kind,
                    f"{short_size(case['size'])}, x {scale:g}",
                    priors,
                    f"{case['ingest']['ingest_seconds'] * scale / 60:.0f}",
                    f"{_each(fit) * scale:.0f}",
                    f"{fit['fit_seconds'] * scale / 60:.0f}",
                    f"{case['ingest']['log_bytes'] * scale / 1e9:.1f}",
                    f"{fit['fit_bytes'] * scale / 1e9:.0f}",
                ]
            )
    if not rows:
        return []
    is_real = all(case["size"] >= BILLION for case in largest.values())
    title = "measured" if is_real else "extrapolated, not measured"
    return [
        f"## A billion pages: {title}",
        "",
        "The figures of the largest log, times how many of it make a billion, with as many "
        "evaluations. For real: `python -m benchmarks.billion --folder /large/disk`.",
        "",
        *table(header, rows),
    ]


def _all_fits(figures: Figures) -> Iterator[tuple[Figures, str, Figures]]:
    for case in figures["cases"]:
        for priors, fit in case["fits"].items():
            yield case, priors, fit


def _n_rows(figures: Figures, case: Figures) -> int:
    """Rows of all tables with a row a pair."""
    n_pairs: int = case["ingest"]["n_pairs"]
    return n_pairs * (2 if figures["model"] == "DBN" else 1)


def _each(fit: Figures) -> float:
    """Seconds an evaluation."""
    each: float = fit["em_seconds"] / fit["evaluations"]
    return each


def _peak(one: Figures) -> str:
    return f"{one['peak_megabytes']:,.0f} ({one['anonymous_megabytes']:,.0f})"
