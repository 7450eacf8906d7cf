"""What storing a log takes, beside what others need only to put the results of a query together.

    PYTHONPATH=src:. python -m benchmarks.ingest --pages 10000000 --rounds 3

The same Parquet files are ingested, written again by hash of the query (Polars, DuckDB) and added
up, in turns, each in a process of its own. Writes results/ingest.md after every round. On a busy
machine the clock says little; processor seconds and their ratios say more.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import describe_machine, load_average
from benchmarks.markdown import table
from benchmarks.report import RESULTS
from benchmarks.watching import run_watched

STAGES = "benchmarks.scale_stages"
WHO = {
    "ingest": "`ClickLog.ingest`: checks, folding, numbers, a way to go on after a kill",
    "polars": "Polars: Parquet files by 64 hashes of the query",
    "duckdb": "DuckDB: Parquet files by 64 hashes of the query",
    "scan": "Polars: sums of all columns",
}
MILLION = 1e6


def main() -> None:
    options = _parse()
    figures: dict[str, Any] = {"machine": describe_machine(), "pages": options.pages}
    figures |= {"kind": options.kind, "loads": [load_average()], "rounds": []}
    with tempfile.TemporaryDirectory(prefix="gecasmo-ingest-", dir=options.folder) as name:
        files, target = Path(name) / "files", Path(name) / "target"
        run_watched(STAGES, ["files", options.kind, str(options.pages), str(files)], {})
        for _ in range(options.rounds):
            found = {}
            for who in WHO:
                arguments = ["take", who, str(files), str(target), options.memory]
                found[who] = run_watched(STAGES, arguments, {})
                shutil.rmtree(target, ignore_errors=True)
            figures["rounds"].append(found)
            figures["loads"].append(load_average())
            (options.results / "ingest.md").write_text(as_markdown(figures))
    print((options.results / "ingest.md").read_text())


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=10_000_000)
    parser.add_argument("--kind", default="repeating", help="distinct or repeating")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--folder", type=Path, help="where files go (a temporary folder)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the report goes")
    return parser.parse_args()


def as_markdown(figures: dict[str, Any]) -> str:
    """The page of results: medians of rounds, and the range of ratios."""
    machine, rounds, pages = figures["machine"], figures["rounds"], figures["pages"]
    loads = ", ".join(f"{load:.0f}" for load in figures["loads"])
    header = ["what", "processor s", "us a page", "beside ours", "s", "M pages/s", "peak MB"]
    rows = []
    for who, title in WHO.items():
        used = [one[who]["processor_seconds"] for one in rounds]
        taken = median(one[who]["seconds"] for one in rounds)
        ratios = [
            one[who]["processor_seconds"] / one["ingest"]["processor_seconds"] for one in rounds
        ]
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
        rows.append(
            [
                title,
                f"{median(used):.1f}",
                f"{median(used) / pages * MILLION:.2f}",
                f"{median(ratios):.2f}{spread}",
                f"{taken:.1f}",
                f"{pages / taken / MILLION:.2f}",
                f"{median(one[who]['peak_megabytes'] for one in rounds):,.0f}",
            ]
        )
    return "\n".join(
        [
            "# Benchmark: ingest, beside what is least",
            "",
            f"{pages / MILLION:g}M pages of 10 results, {figures['kind']}, the same Parquet files "
            f"for all, {len(rounds)} rounds in turns; medians. {machine['moment']}, commit "
            f"{machine['commit']}, {machine['processor']} with {machine['n_processors']} "
            f"processors, Python {machine['python']}, Polars {machine['polars']}. Processes that "
            f"wanted a processor, before and after each round: {loads}. With more of them than "
            "processors, seconds of the clock say nothing about the programs. *Beside ours*: "
            "processor seconds, and their range over rounds; above 1, ours takes less. Made by "
            "`python -m benchmarks.ingest`.",
            "",
            *table(header, rows),
            "",
        ]
    )


if __name__ == "__main__":
    main()
