"""A log that an earlier version stored opens, and is what is stored of its source today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from stored_pages import all_pages, assert_well_stored, multiset, pages_of

from gecasmo import ClickLog, open_log, read_log
from gecasmo.logs.store import StoredLog

GOLDEN = Path(__file__).parent / "golden"
LOGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "long": ("long.csv", {}, {"partitions": 2, "keep": ["device", "price"], "fold": False}),
    "folded": ("long.csv", {}, {"partitions": 2, "fold": True}),
    "nested": ("nested.jsonl", {"query": None, "weight": "times"}, {"partitions": 1}),
}


def frames_of(log: StoredLog) -> dict[str, pl.DataFrame]:
    """What all files hold; their bytes are up to Polars, too."""
    return {
        str(path.relative_to(log.path)): pl.read_ipc(path)
        for path in sorted(log.path.rglob("*.arrow"))
    }


def manifest_of(log: StoredLog) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((log.path / "manifest.json").read_text())
    for entry in content["partitions"]:
        entry["files"] = sorted(entry["files"])
    content.pop("keeps_session", None)  # was written once, and read by nobody
    return content


@pytest.mark.parametrize("name", LOGS)
def test_earlier_logs_open(name: str) -> None:
    source, roles, _ = LOGS[name]
    log = open_log(GOLDEN / f"{name}.gclog")
    log.check()
    assert_well_stored(log)
    read = read_log(GOLDEN / source, **roles)
    read = ClickLog(
        read.to_frame().select(log.columns),
        read.page,
        read.sessions,
        read.weight,
        pages=read.page_columns,
    )
    assert multiset(all_pages(log)) == multiset(pages_of(read))
    assert log.is_folded == (name == "folded")


@pytest.mark.parametrize("name", LOGS)
def test_logs_are_stored_as_before(name: str, tmp_path: Path) -> None:
    source, roles, options = LOGS[name]
    before = open_log(GOLDEN / f"{name}.gclog")
    now = ClickLog.ingest(GOLDEN / source, tmp_path / "log", **roles, **options)
    assert manifest_of(now) == manifest_of(before)
    there = frames_of(before)
    assert there.keys() == frames_of(now).keys()
    for path, frame in frames_of(now).items():
        assert frame.equals(there[path]), path
        assert frame.schema == there[path].schema
