"""The stages of `benchmarks.scale`, each in a process of its own; prints its figures as JSON.

python -m benchmarks.scale_stages ingest KIND PAGES LOG MEMORY
python -m benchmarks.scale_stages files KIND PAGES FOLDER
python -m benchmarks.scale_stages take WHO FOLDER TARGET MEMORY
python -m benchmarks.scale_stages fit LOG MODEL PRIORS FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.fresh_process import peak_megabytes

ROWS_OF_A_GROUP = 2_000_000


class Watched:
    """An iterator, and the seconds that its items took to make."""

    def __init__(self, items: Iterator[Any]) -> None:
        self.items, self.seconds = items, 0.0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        began = time.perf_counter()
        try:
            return next(self.items)
        finally:
            self.seconds += time.perf_counter() - began


def ingest(kind: str, n_pages: str, path: str, memory: str) -> dict[str, Any]:
    """Simulate a log straight into a stored one."""
    from benchmarks.endless_log import batch, batches
    from gecasmo import ClickLog

    batch(kind, 1000, 0, 1000)  # compile
    made = Watched(batches(kind, int(n_pages)))
    before = peak_megabytes()
    began = time.perf_counter()
    log = ClickLog.ingest(made, path, memory=memory)
    seconds = time.perf_counter() - began
    return {
        "n_sessions": log.n_sessions,
        "n_pages": log.n_pages,
        "n_queries": log.n_queries,
        "n_pairs": log.n_pairs,
        "n_partitions": log.n_partitions,
        "is_folded": log.is_folded,
        "log_bytes": log.bytes,
        "simulation_seconds": made.seconds,
        "ingest_seconds": seconds - made.seconds,
        "import_megabytes": before,
        "peak_megabytes": peak_megabytes(),
    }


def files(kind: str, n_pages: str, folder: str) -> dict[str, Any]:
    """Write a log as Parquet files; those that are there already are not made again."""
    from benchmarks.endless_log import FILE, batch

    began, used = time.perf_counter(), time.process_time()
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, int(n_pages), FILE)):
        path = Path(folder) / f"{number:06}.parquet"
        if not path.exists():
            whole = path.with_suffix(".part")
            frame = batch(kind, int(n_pages), first, min(int(n_pages), first + FILE))
            frame.write_parquet(whole, compression="lz4", row_group_size=ROWS_OF_A_GROUP)
            whole.replace(path)
    return {
        "files_bytes": sum(path.stat().st_size for path in Path(folder).iterdir()),
        "files_seconds": time.perf_counter() - began,
        "files_processor_seconds": time.process_time() - used,
    }


def take(who: str, folder: str, target: str, memory: str) -> dict[str, Any]:
    """Read Parquet files: into a stored log, or as others would only put queries together.

    "scan" adds up all columns, "partition" writes a Parquet file for each file and each of 64
    hashes of the query, without checks, folding, numbering or a way to go on after a kill.
    """
    import polars as pl

    paths = sorted(Path(folder).iterdir())
    before, used, began = peak_megabytes(), time.process_time(), time.perf_counter()
    if who == "ingest":
        from gecasmo import ClickLog

        ClickLog.ingest(paths, target, memory=memory)
    elif who == "scan":
        pl.scan_parquet(paths).sum().collect()
    else:
        Path(target).mkdir()
        for number, path in enumerate(paths):
            frame = pl.read_parquet(path).with_columns(part=pl.col("query").hash() % 64)
            for part, own in frame.partition_by("part", as_dict=True, include_key=False).items():
                own.write_parquet(Path(target) / f"{part[0]:02}-{number:06}.parquet")
    return {
        "seconds": time.perf_counter() - began,
        "processor_seconds": time.process_time() - used,
        "import_megabytes": before,
        "peak_megabytes": peak_megabytes(),
    }


def fit(path: str, name: str, priors: str, folder: str) -> dict[str, Any]:
    """Fit a stored log. The kernels are compiled before, by a fit of a few pages."""
    import gecasmo
    from gecasmo import Table, open_log

    def model() -> Any:
        plain = getattr(gecasmo, name)()
        if priors == "learned":
            return plain
        return type(plain)(**dict.fromkeys(plain.forms, Table(pseudo_counts=(1, 1))))

    is_learned = priors == "learned"
    log = open_log(path)
    few = log.partition(0).take(range(min(200, int(log.partition_pages[0]))))
    model().fit(few, progress=False, intervals=is_learned)
    del few
    before = peak_megabytes()
    began = time.perf_counter()
    fitted = model().fit(log, progress=False, intervals=is_learned, checkpoint=Path(folder))
    seconds = time.perf_counter() - began
    history = fitted.history
    return {
        "n_sessions": log.n_sessions,
        "converged": fitted.report_.converged,
        "evaluations": fitted.report_.n_evaluations,
        "em_seconds": float(history["seconds"][-1]),
        "fit_seconds": seconds,
        "log_likelihood_a_page": fitted.report_.log_likelihood / log.n_sessions,
        "import_megabytes": before,
        "peak_megabytes": peak_megabytes(),
    }


if __name__ == "__main__":
    stage = {"ingest": ingest, "files": files, "take": take, "fit": fit}[sys.argv[1]]
    print(json.dumps(stage(*sys.argv[2:])))
