"""One very large log, for real: from Parquet files to a fitted model, with a kill -9 on the way.

    PYTHONPATH=src:. python -m benchmarks.billion --folder /large/disk            # a billion pages
    PYTHONPATH=src:. python -m benchmarks.billion --folder /large/disk --pages 300000000

Simulated pages (`endless_log`, of the kind "repeating") are written to files, which are ingested.
Halfway through the files the ingest gets the signal that cannot be caught, and is run again, as
somebody would whose machine was switched off. Then DBN is fitted with fixed priors. Every stage is
a process of its own, and what is done is kept in the folder: run it again after a cut, and it goes
on. At the end it removes what it made, and writes results/billion.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine, load_average
from benchmarks.markdown import table
from benchmarks.report import RESULTS
from benchmarks.watching import run_watched

STAGES = "benchmarks.scale_stages"
KIND, MODEL = "repeating", "DBN"
MILLION = 1e6
RESULTS_OF_A_PAGE = 10


def main() -> None:
    options = _parse()
    folder: Path = options.folder / f"{KIND}-{options.pages}"
    folder.mkdir(parents=True, exist_ok=True)
    files, log, fit = folder / "files", folder / "log.gclog", folder / "fit"
    kept = _Kept(folder / "stages.json")

    def watched(arguments: list[str], kill_when: Callable[[], bool] | None = None) -> Any:
        before = load_average()
        found = run_watched(STAGES, arguments, {"all": folder, "fit": fit}, kill_when)
        return found | {"load_before": before, "load_after": load_average()}

    spill = log.with_name(f"{log.name}.part") / "spill"

    def is_halfway() -> bool:
        notes = sorted(spill.glob("*.json"))
        half = options.pages * RESULTS_OF_A_PAGE / 2
        return sum(_rows(note) for note in notes) >= half

    storing = ["store", str(files), str(log), options.memory]
    kept.stage("files", lambda: watched(["files", KIND, str(options.pages), str(files)]))
    kept.stage("killed", lambda: watched(storing, is_halfway))
    kept.stage("resumed", lambda: watched(storing))
    kept.stage("fit", lambda: watched(["fit", str(log), MODEL, "fixed", str(fit)]))
    figures = {"machine": describe_machine(), "pages": options.pages, "memory": options.memory}
    text = as_markdown(figures | kept.content)
    (options.results / "billion.md").write_text(text)
    print(text)
    shutil.rmtree(folder)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="on a large disk")
    parser.add_argument("--pages", type=int, default=1_000_000_000)
    parser.add_argument("--memory", default="4GB", help="of the ingest")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the report goes")
    return parser.parse_args()


class _Kept:
    """What stages found, in a file, so that none of them is run twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def stage(self, name: str, run: Callable[[], dict[str, Any]]) -> None:
        if name in self.content:
            return
        print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
        self.content[name] = run()
        whole = self.path.with_suffix(".part")
        whole.write_text(json.dumps(self.content, indent=1))
        whole.replace(self.path)


def _rows(note: Path) -> int:
    try:
        return int(json.loads(note.read_text())["rows"])
    except (OSError, ValueError):
        return 0  # it is just being written


def as_markdown(figures: dict[str, Any]) -> str:
    """The page of results."""
    machine, pages = figures["machine"], figures["pages"]
    files, killed, resumed, fit = (figures[name] for name in ("files", "killed", "resumed", "fit"))
    header = ["stage", "s", "processor s", "peak MB", "files, most MB", "load before", "after"]
    rows = []
    for name, one in (
        ("pages simulated and written as Parquet", files),
        ("ingest, until it was killed", killed),
        ("ingest, resumed", resumed),
        (f"{MODEL} with fixed priors", fit),
    ):
        rows.append(
            [
                name,
                f"{one['process_seconds']:,.0f}",
                f"{one['process_cpu_seconds']:,.0f}",
                f"{one.get('peak_megabytes', one['anonymous_megabytes']):,.0f}",
                f"{one['all_bytes'] / MILLION:,.0f}",
                f"{one['load_before']:.1f}",
                f"{one['load_after']:.1f}",
            ]
        )
    seconds = killed["process_seconds"] + resumed["process_seconds"]
    processor = killed["process_cpu_seconds"] + resumed["process_cpu_seconds"]
    return "\n".join(
        [
            f"# Benchmark: {pages / MILLION:,.0f} million pages, for real",
            "",
            f"Pages of 10 results of the kind {KIND!r} (a query has three rankings), "
            f"`ingest(memory={figures['memory']!r})`. {machine['moment']}, commit "
            f"{machine['commit']}, {machine['processor']} with {machine['n_processors']} "
            f"processors, Python {machine['python']}, Polars {machine['polars']}. Made by "
            f"`python -m benchmarks.billion --pages {pages}`.",
            "",
            *table(header, rows),
            "",
            f"Ingest, kill included: {pages / seconds / MILLION:.2f} M pages a second of the "
            f"clock, {processor / pages * MILLION:.2f} microseconds of a processor a page, "
            f"{resumed['n_pages'] / pages:.0%} of the pages stored, "
            f"{resumed['log_bytes'] / pages:.2f} bytes a page, {resumed['n_queries']:,} queries, "
            f"{resumed['n_pairs']:,} pairs, {resumed['n_partitions']} partitions. After the kill "
            f"it went on at row {resumed['first_done']:,}, {resumed['first_seconds']:.0f} s after "
            "it was run again: it makes sure first that files and batches are whole.",
            "",
            f"Fit: {fit['evaluations']} evaluations of {fit['em_seconds'] / fit['evaluations']:.2f}"
            f" s, {fit['fit_seconds']:,.0f} s in all, "
            f"{fit['fit_bytes'] / MILLION:,.0f} MB of files, "
            f"log-likelihood {fit['log_likelihood_a_page']:.4f} a page.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
