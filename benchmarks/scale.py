"""Logs larger than memory: ingest and fit at 1M, 10M and 100M pages, and how cost grows.

    PYTHONPATH=src:. python -m benchmarks.scale                      # everything, hours
    PYTHONPATH=src:. python -m benchmarks.scale --sizes 1000000,10000000 --kinds distinct
    PYTHONPATH=src:. python -m benchmarks.scale --learned-up-to 10000000

Logs are simulated straight into the ingest; each stage is a process of its own, watched from
outside. Writes results/scale.md after every stage, and a line of scale.jsonl at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.endless_log import KINDS
from benchmarks.machine import describe_machine, load_average
from benchmarks.report import RESULTS
from benchmarks.scale_report import as_markdown
from benchmarks.watching import run_watched

SIZES = (1_000_000, 10_000_000, 100_000_000)
PRIORS = ("fixed", "learned")
_BEGAN = time.perf_counter()


def main() -> None:
    options = _parse()
    figures: dict[str, Any] = {
        "machine": describe_machine(),
        "load_before": load_average(),
        "memory": options.memory,
        "model": options.model,
        "cases": [],
    }
    options.results.mkdir(parents=True, exist_ok=True)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    for size in options.sizes:
        for kind in options.kinds:
            _measure(kind, size, options, figures)
    with (options.results / "scale.jsonl").open("a") as file:
        file.write(json.dumps(figures) + "\n")
    print((options.results / "scale.md").read_text())


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=_numbers, default=list(SIZES), help="pages, by commas")
    parser.add_argument("--kinds", type=_names, default=list(KINDS), help=",".join(KINDS))
    parser.add_argument("--priors", type=_names, default=list(PRIORS), help=",".join(PRIORS))
    parser.add_argument(
        "--learned-up-to", type=int, default=10**12, help="pages; larger logs: fixed priors only"
    )
    parser.add_argument(
        "--yardsticks-up-to", type=int, default=10_000_000, help="pages; larger logs: without files"
    )
    parser.add_argument("--model", default="DBN")
    parser.add_argument("--folder", type=Path, help="where logs and fits go (a temporary folder)")
    parser.add_argument("--memory", default="4GB", help="of the ingest")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the report goes")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.replace("_", "").split(",")]


def _names(text: str) -> list[str]:
    return text.split(",")


def _measure(kind: str, size: int, options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Ingest a log and fit it; what it needs on disk is removed at the end."""
    case: dict[str, Any] = {"kind": kind, "size": size, "fits": {}}
    figures["cases"].append(case)
    with tempfile.TemporaryDirectory(prefix="gecasmo-scale-", dir=options.folder) as name:
        log, fit = Path(name) / "log.gclog", Path(name) / "fit"
        _say(f"{kind}, {size:,} pages: ingest")
        arguments = ["ingest", kind, str(size), str(log), options.memory]
        stages = "benchmarks.scale_stages"
        case["ingest"] = run_watched(stages, arguments, {"work": Path(name)})
        _write(figures, options.results)
        if size <= options.yardsticks_up_to:
            case["yardsticks"] = _yardsticks(kind, size, Path(name), options.memory)
            _write(figures, options.results)
        for priors in options.priors:
            if priors == "learned" and size > options.learned_up_to:
                continue
            _say(f"{kind}, {size:,} pages: fit, {priors} priors")
            arguments = ["fit", str(log), options.model, priors, str(fit)]
            folders = {"parts": fit / "parts", "points": fit / "points", "fit": fit}
            case["fits"][priors] = run_watched(stages, arguments, folders)
            shutil.rmtree(fit, ignore_errors=True)
            _write(figures, options.results)


def _yardsticks(kind: str, size: int, folder: Path, memory: str) -> dict[str, Any]:
    """What an ingest of Parquet files takes, beside reading and partitioning them."""
    stages, source = "benchmarks.scale_stages", folder / "files"
    run_watched(stages, ["files", kind, str(size), str(source)], {})
    found = {}
    for who in ("ingest", "polars", "duckdb", "scan"):
        _say(f"{kind}, {size:,} pages in files: {who}")
        target = folder / f"taken by {who}"
        arguments = ["take", who, str(source), str(target), memory]
        found[who] = run_watched(stages, arguments, {})
        shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(source)
    return found


def _write(figures: dict[str, Any], folder: Path) -> None:
    kinds = list(KINDS)
    figures["cases"].sort(key=lambda case: (kinds.index(case["kind"]), case["size"]))
    figures["load_after"] = load_average()
    figures["minutes"] = (time.perf_counter() - _BEGAN) / 60
    (folder / "scale.md").write_text(as_markdown(figures))


def _say(text: str) -> None:
    print(f"[{time.perf_counter() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
