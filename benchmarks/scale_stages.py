"""The stages of `benchmarks.scale`, each in a process of its own; prints its figures as JSON.

python -m benchmarks.scale_stages ingest KIND PAGES LOG MEMORY
python -m benchmarks.scale_stages files KIND PAGES FOLDER
python -m benchmarks.scale_stages store FOLDER LOG MEMORY
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
        **_facts(log),
        "simulation_seconds": made.seconds,
        "ingest_seconds": seconds - made.seconds,
        "import_megabytes": before,
        "peak_megabytes": peak_megabytes(),
    }


def _facts(log: Any) -> dict[str, Any]:
    return {
        "n_sessions": log.n_sessions,
        "n_pages": log.n_pages,
        "n_queries": log.n_queries,
        "n_pairs": log.n_pairs,
        "n_partitions": log.n_partitions,
        "is_folded": log.is_folded,
        "log_bytes": log.bytes,
    }


def store(folder: str, path: str, memory: str) -> dict[str, Any]:
    """Ingest the files of a folder, or go on with it; `first_*` is where this process began."""
    from gecasmo import ClickLog

    told: list[tuple[str, int, float]] = []
    before, began = peak_megabytes(), time.perf_counter()

    def tell(stage: str, done: int, total: int | None) -> None:
        told.append((stage, done, time.perf_counter() - began))

    log = ClickLog.ingest(f"{folder}/*.parquet", path, memory=memory, progress=tell)
    read = [at for stage, _, at in told if stage == "reading"]
    return {
        **_facts(log),
        "first_stage": told[0][0],
        "first_done": told[0][1],
        "first_seconds": told[0][2],
        "reading_seconds": read[-1] if read else 0.0,
        "ingest_seconds": time.perf_counter() - began,
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

    "scan" adds up all columns; "polars" and "duckdb" write Parquet files for each of 64 hashes of
    the query, without checks, folding, numbering or a way to go on after a kill.
    """
    import duckdb
    import polars as pl

    from gecasmo import ClickLog

    files = f"{folder}/*.parquet"
    before, used, began = peak_megabytes(), time.process_time(), time.perf_counter()
    if who == "ingest":
        ClickLog.ingest(files, target, memory=memory)
    elif who == "scan":
        pl.scan_parquet(files).sum().collect()
    elif who == "polars":
        parted = pl.PartitionBy(target, key=(pl.col("query").hash() % 64).alias("part"))
        pl.scan_parquet(files).sink_parquet(parted, compression="lz4", mkdir=True)
    else:
        duckdb.sql(f"SET memory_limit = '{memory}'")
        duckdb.sql(
            f"COPY (SELECT *, hash(query) % 64 AS part FROM '{files}') TO '{target}' "
            "(FORMAT parquet, COMPRESSION lz4, PARTITION_BY (part))"
        )
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
    stages = {"ingest": ingest, "files": files, "store": store, "take": take, "fit": fit}
    print(json.dumps(stages[sys.argv[1]](*sys.argv[2:])))
