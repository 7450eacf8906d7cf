"""The files of a stored log: what opens them, and what is said when they are not what they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from stored_pages import all_pages, pages_of

import gecasmo
from gecasmo import ClickLog, open_log, read_log
from gecasmo.errors import ClickLogError
from gecasmo.logs.store import StoredLog, check_disk, disk_need, in_bytes, parse_bytes


@pytest.fixture
def stored(frame: pl.DataFrame, tmp_path: Path) -> StoredLog:
    return ClickLog.ingest(frame, tmp_path / "big.gclog", partitions=4, keep=["device"])


def test_what_it_says_about_itself(stored: StoredLog, frame: pl.DataFrame) -> None:
    assert stored.columns == ["session", "query", "doc", "rank", "click", "device"]
    assert stored.n_queries == frame["query"].n_unique()
    assert stored.n_pairs == frame.select("query", "doc").n_unique()
    assert stored.bytes == sum(p.stat().st_size for p in stored.path.rglob("*.arrow"))
    assert stored.partition_pages.sum() == stored.n_pages
    text = repr(stored)
    assert "sessions    60" in text
    assert "also        device" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "<th>partitions</th><td>4</td>" in stored._repr_html_()
    kinds = [note.kind for note in stored.notes]
    assert kinds == ["columns not kept", "session ids not kept"]
    assert "'price'" in stored.notes[0].what


def test_a_look_at_the_first_pages(stored: StoredLog) -> None:
    assert stored.head(3).n_sessions == 3
    assert pages_of(stored.head(10**6)) == all_pages(stored)[: len(stored.head(10**6))]
    first = next(number for number in range(4) if stored.partition_pages[number])
    assert stored.head(1).sessions[0] == first << 32
    pages = [page for part in stored.partitions() for page in part]
    for number in (0, 7, stored.n_pages - 1):
        assert repr(stored[number]) == repr(pages[number])
    with pytest.raises(IndexError, match="there is no page"):
        stored[stored.n_pages]
    with pytest.raises(TypeError, match="not iterable"):
        iter(stored)  # type: ignore[call-overload]


def test_pieces_are_the_partition_in_order(stored: StoredLog) -> None:
    for number in range(4):
        pieces = list(stored.pieces(number, 12))
        assert [page for piece in pieces for page in pages_of(piece)] == pages_of(
            stored.partition(number)
        )
        assert all(piece.n_results <= 12 for piece in pieces)
        ids = [session for piece in pieces for session in piece.sessions]
        assert ids == stored.partition(number).sessions.to_list()


def test_opened_at_the_top_of_the_package(stored: StoredLog) -> None:
    again = gecasmo.open_log(str(stored.path))
    assert again.fingerprint == stored.fingerprint
    assert all_pages(again) == all_pages(stored)


def _largest(log: StoredLog) -> Path:
    return max(log.path.rglob("results.arrow"), key=lambda path: path.stat().st_size)


def _cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _change(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("harm", "said"),
    [(_cut_off, "was cut off"), (_change, "its checksum differs"), (Path.unlink, "No such file")],
)
def test_files_that_are_not_what_they_were(stored: StoredLog, harm: Any, said: str) -> None:
    path = _largest(stored)
    harm(path)
    number = int(path.parent.name.removeprefix("partition-"))
    again = open_log(stored.path)
    for ask in (again.check, lambda: again.check(number), lambda: again.partition(number)):
        with pytest.raises(ClickLogError, match=said) as error:
            ask()
        assert str(path) in str(error.value)
    again.check((number + 1) % 4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 2}, "of version 2"),
        ({"format": "other"}, "does not describe a stored log"),
        ({"pages": 1}, "do not add up"),
        ({"notes": None}, "lacks 'notes'"),
        ({"partitions": []}, "0 is no number of partitions"),
    ],
)
def test_a_damaged_manifest(stored: StoredLog, changes: dict[str, Any], said: str) -> None:
    path = stored.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ClickLogError, match=said):
        open_log(stored.path)


def test_what_is_no_stored_log(stored: StoredLog, tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match="there is no such stored log"):
        open_log(tmp_path / "none")
    with pytest.raises(ClickLogError, match="is not a stored log"):
        open_log(tmp_path)
    (stored.path / "manifest.json").write_text("{")
    with pytest.raises(ClickLogError, match="is damaged"):
        open_log(stored.path)
    with pytest.raises(ClickLogError, match="open_log opens it"):
        read_log(str(stored.path))


def test_there_is_no_such_partition(stored: StoredLog) -> None:
    with pytest.raises(ClickLogError, match="numbered from 0 to 3"):
        stored.partition(4)


def test_a_log_is_not_overwritten_unless_asked(stored: StoredLog, frame: pl.DataFrame) -> None:
    with pytest.raises(ClickLogError, match="overwrite=True"):
        ClickLog.ingest(frame.head(10), stored.path)
    assert open_log(stored.path).fingerprint == stored.fingerprint
    small = ClickLog.ingest(frame.head(10), stored.path, overwrite=True)
    assert small.n_results == 10
    assert sorted(p.name for p in stored.path.parent.iterdir()) == ["big.gclog"]


def test_other_folders_and_files_are_left_alone(frame: pl.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(ClickLogError, match="not a stored log; name another place"):
        ClickLog.ingest(frame, tmp_path / "mine", overwrite=True)
    with pytest.raises(ClickLogError, match="there is no folder"):
        ClickLog.ingest(frame, tmp_path / "no" / "log")


@pytest.mark.parametrize(
    ("amount", "number"),
    [("4GB", 4 * 10**9), ("1.5 GiB", 3 << 29), ("500mb", 5 * 10**8), (123, 123), ("77", 77)],
)
def test_amounts_of_memory(amount: Any, number: int) -> None:
    assert parse_bytes(amount) == number


@pytest.mark.parametrize("amount", ["much", "-1GB", 0, None, "0GB"])
def test_what_is_no_amount(amount: Any) -> None:
    with pytest.raises(ClickLogError, match="an amount such as '4GB'"):
        parse_bytes(amount)


def test_arguments_are_checked(frame: pl.DataFrame, tmp_path: Path) -> None:
    for wrong, said in [
        ({"memory": "1MB"}, "at least 64.0 MB"),
        ({"partitions": 3}, "a power of two"),
        ({"fold": "perhaps"}, "True, False or 'auto'"),
        ({"keep": ["nothing"]}, "there is no column 'nothing'"),
        ({"format": "nothing"}, "There is no format 'nothing'"),
    ]:
        with pytest.raises(ClickLogError, match=said):
            ClickLog.ingest(frame, tmp_path / "log", **wrong)
    assert list(tmp_path.iterdir()) == []


def test_the_need_of_disk(tmp_path: Path) -> None:
    assert disk_need(10, 100, 7, page_bytes=8, result_bytes=1, row_bytes=16) >= 80 + 100 + 112
    check_disk(tmp_path, {"little": 1})
    with pytest.raises(ClickLogError, match=r"1.0 PB|1000.0 TB for the log") as error:
        check_disk(tmp_path / "not" / "there", {"the log": 10**15}, advice="Buy one.")
    assert "Buy one." in str(error.value)
    assert in_bytes(2048) == "2.0 kB"


def test_ranks_and_types_survive(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "session": [1, 1, 2],
            "query": ["ä", "ä", "b"],
            "doc": pl.Series([7, 8, 9], dtype=pl.UInt16),
            "rank": [2, 70_000, 5],
            "click": [True, False, True],
        }
    )
    log = ClickLog.ingest(frame, tmp_path / "log")
    assert log.dtypes["doc"] == "UInt16"
    (part,) = log.partitions()
    assert part.column("doc").dtype == pl.UInt16
    assert sorted(part.rank.tolist()) == [2, 5, 70_000]
    assert part.page.dtype == np.uint32
