"""Memory stays within what was granted, for a log that needs several times as much."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from stored_pages import simulated

from gecasmo import ClickLog
from gecasmo.errors import GecasmoWarning
from gecasmo.logs.store.plan import warn_of_partitions
from gecasmo.parquet import largest_row_group

SCRIPT = """
import json, resource, sys
import polars as pl
from gecasmo import ClickLog
source, target, memory = sys.argv[1:]
pl.scan_parquet(source).head(1000).collect()  # threads and libraries are there already
with open("/proc/self/statm") as file:
    before = int(file.read().split()[1]) * resource.getpagesize()
log = ClickLog.ingest(source, target, memory=memory, fold=False)
with open("/proc/self/status") as file:  # unlike getrusage, it does not count the parent
    peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
print(json.dumps({"grown": peak - before, "sessions": log.n_sessions, "bytes": log.bytes}))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs the numbers of Linux")
def test_memory_is_bounded(tmp_path: Path) -> None:
    n_pages, random = 150_000, np.random.default_rng(0)
    # A query with a third of the pages: its partition is larger than the share of one.
    query = np.where(random.random(n_pages) < 0.3, 0, random.integers(0, 5000, n_pages))
    path = tmp_path / "in.parquet"
    frame = pl.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), 10),
            "query": np.repeat(query, 10),
            "doc": np.repeat(query * 20, 10) + random.integers(0, 20, n_pages * 10),
            "rank": np.tile(np.arange(1, 11), n_pages),
            "click": random.random(n_pages * 10) < 0.1,
        }
    )
    frame.with_columns(session=pl.format("a rather long session id {}", "session")).write_parquet(
        path, row_group_size=50_000
    )
    size = frame.estimated_size() + 40 * frame.height  # as a table, with the ids as texts
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), str(tmp_path / "log"), "64MB"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["sessions"] == n_pages
    assert 11 * n_pages < found["bytes"] < 20 * n_pages
    assert size > 1.5 * 64e6
    assert found["grown"] < 64e6, found


def grouped(path: Path, rows: int) -> tuple[pl.DataFrame, str]:
    frame = simulated(400, seed=2)
    frame.write_parquet(path / "in.parquet", row_group_size=rows)
    return frame, str(path / "in.parquet")


def test_row_groups_are_as_large_as_their_footer_says(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    frame, source = grouped(tmp_path, 500)
    groups = parquet.ParquetFile(source).metadata
    for columns in (["doc"], ["session", "price", "click"], frame.columns, []):
        expected = max(
            sum(
                column.total_uncompressed_size
                for column in map(group.column, range(group.num_columns))
                if column.path_in_schema in columns
            )
            for group in map(groups.row_group, range(groups.num_row_groups))
        )
        assert largest_row_group(Path(source), columns) == expected


def test_of_damaged_footers_nothing_is_said(tmp_path: Path) -> None:
    _, source = grouped(tmp_path, 500)
    data = Path(source).read_bytes()
    bad = tmp_path / "bad.parquet"
    for content in (b"", b"PAR1", data[:-4], data[:-200] + data[-8:], b"x" * 100 + data[-8:]):
        bad.write_bytes(content)
        assert largest_row_group(bad, ["doc"]) >= 0
    assert largest_row_group(tmp_path / "none.parquet", ["doc"]) == 0


def test_too_large_row_groups_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, source = grouped(tmp_path, 500)
    ClickLog.ingest(source, tmp_path / "fits", memory="64MB")
    monkeypatch.setattr("gecasmo.logs.store.sources.MEMORY_OF_A_BYTE", 10**6)
    with pytest.warns(GecasmoWarning, match=r"in\.parquet: reading a row group .* grant .*GB"):
        ClickLog.ingest(source, tmp_path / "log", memory="64MB")


def test_too_large_partitions_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = simulated(400, seed=2)
    monkeypatch.setattr("gecasmo.logs.store.plan.BYTES_OF_A_SMALL_RESULT", 10**6)
    with pytest.warns(GecasmoWarning, match=r"partition has .* results, .* more than memory=64"):
        ClickLog.ingest(frame, tmp_path / "log", memory="64MB", partitions=2, fold=False)


def test_a_number_of_partitions_that_was_chosen_is_blamed_before_a_query() -> None:
    with pytest.warns(GecasmoWarning, match="since all pages of a query are in one"):
        warn_of_partitions(10**8, 10**9, None)
    with pytest.warns(GecasmoWarning, match=r"with partitions=4; .* Ask for more") as told:
        warn_of_partitions(10**8, 10**9, 4)
    assert "query" not in str(told[0].message)
