"""CSV that is not what it says: other separators, ragged lines; and files that are no log."""

from __future__ import annotations

import gzip
import io
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from reader_helpers import SAMPLES, pages, read_noting

import gecasmo
from gecasmo.errors import ClickLogError
from gecasmo.logs import peek, read_log

TITLES = {";": "semicolons", "|": "bars", "\t": "tabs", ",": "commas"}


def rewritten(path: Path, separator: str) -> Path:
    text = (SAMPLES / "table.csv").read_text().replace(",", separator)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("separator", [";", "|", "\t"])
@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_another_separator_is_read_and_noted(name: str, separator: str, tmp_path: Path) -> None:
    path = rewritten(tmp_path / name, separator)
    log, notes = read_noting(path)
    assert pages(log) == pages(read_log(SAMPLES / "table.csv"))
    assert notes == {"other separators": 1}
    assert f"separated by {TITLES[separator]} ({separator!r}) instead of" in log.notes[0].what
    assert peek(path).columns == ("session", "query", "doc", "rank", "click")


def test_a_tsv_file_with_commas(tmp_path: Path) -> None:
    log, notes = read_noting(rewritten(tmp_path / "log.tsv", ","))
    assert (len(log), notes) == (5, {"other separators": 1})


def test_another_separator_through_a_pipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = rewritten(tmp_path / "log.csv", ";").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
    assert read_noting("-")[1] == {"other separators": 1}


@pytest.mark.parametrize(
    "header",
    ['session,doc,rank,click,"a;b;c;d;e;f"', "session,doc,rank,click,a|b;c|d;e|f", '"session",doc'],
)
def test_a_separator_within_a_name_is_none(header: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{header}\n")
    assert peek(path).columns[:2] == ("session", "doc")


def test_separators_in_quotes_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('session;doc;rank;click;"a,b"\n1;x,y;1;0;2\n')
    log, notes = read_noting(path)
    assert log.to_frame().row(0) == (1, "x,y", 1, False, 2)
    assert notes == {"other separators": 1}


def test_files_with_different_separators_are_refused(tmp_path: Path) -> None:
    rewritten(tmp_path / "a.csv", ",")
    rewritten(tmp_path / "b.csv", ";")
    with pytest.raises(ClickLogError, match=r"b\.csv has semicolons .*a\.csv has commas"):
        read_log(tmp_path / "*.csv")


HEADER = "session,query,doc,rank,click\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEADER + "1,q,a,1,0\n1,q,b,2,1,7\n", 3),
        (HEADER + '1,"q\nr",a,1,0\n\n1,"q\nr",b,2,1,7\n', 5),
        (HEADER.replace(",", ";") + "1;q;a;1;0\n1;q;b;2;1;7\n", 3),
        ("\ufeff" + HEADER + "1,q,a,1,0,7\n", 2),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "csv.gz"])
def test_a_ragged_line_is_named(text: str, line: int, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"log.{kind}"
    data = text.encode()
    path.write_bytes(gzip.compress(data) if kind == "csv.gz" else data)
    between = "semicolons" if ";" in text else "commas"
    with pytest.raises(ClickLogError, match=rf"log.{kind}, line {line}: 6 fields with {between} "):
        read_log(path)


def test_the_ragged_line_of_the_second_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "1,q,a,1,0\n")
    (tmp_path / "b.csv").write_text(HEADER + "2,q,a,1,0\n2,q,b,2,1,\n")
    with pytest.raises(ClickLogError, match=r"b\.csv, line 3: 6 fields with commas between"):
        read_log(tmp_path / "*.csv")


def faults(tmp_path: Path, column: str, values: list[str], **roles: Any) -> list[str]:
    path = tmp_path / "log.csv"
    names = ["session", "doc", "rank", "click", "w"]
    rows = [{"session": i, "doc": "d", "rank": 1, "click": 0, "w": 1} for i in range(len(values))]
    lines = [[str((row | {column: v})[n]) for n in names] for row, v in zip(rows, values, strict=1)]
    path.write_text("\n".join(map(",".join, [names, *lines])))
    with pytest.raises(ClickLogError) as caught:
        read_log(path, **roles)
    return str(caught.value).splitlines()[1:]


def test_faults_of_weights_in_text_are_told_apart(tmp_path: Path) -> None:
    assert faults(tmp_path, "w", ["-1", "nan", "2"], weight="w") == [
        "  - weight ('w'): 1 value is negative (the column holds String), first: row 0 has '-1'",
        "  - weight ('w'): 1 value is not a finite number (the column holds String), first: row 1 "
        "has 'nan'",
    ]


def test_one_odd_rank_in_text_does_not_blame_the_others(tmp_path: Path) -> None:
    assert faults(tmp_path, "rank", ["1", "first", "2"]) == [
        "  - rank: 1 value is not a whole number (the column holds String), first: row 1 has "
        "'first'"
    ]


@pytest.mark.parametrize("role", ["rank", "weight"])
def test_numbers_as_text_are_refused(role: str) -> None:
    columns = {"session": [1, 2], "doc": ["a", "b"], "rank": [1, 1], "click": [0, 1]}
    with pytest.raises(ClickLogError, match=f"{role}: 2 values are text, not numbers .*row 0 has"):
        read_log(columns | {role: ["1", "2"]}, weight="weight" if role == "weight" else None)


@pytest.mark.parametrize("name", ["model.gecasmo", "model.parquet", "model.csv"])
@pytest.mark.parametrize("format", [None, "table", "ubi"])
def test_a_saved_fit_is_no_log(name: str, format: str | None, tmp_path: Path) -> None:
    log = read_log({"doc": [["a", "b"]], "query": ["q"], "click": [[0, 1]]})
    gecasmo.PBM().fit(log).save(tmp_path / name)
    with pytest.raises(ClickLogError, match=f"{name} is a fit that gecasmo saved, not a log"):
        read_log(tmp_path / name, format=format)
    with pytest.raises(ClickLogError, match="is a fit that gecasmo saved"):
        peek(tmp_path / name)


def test_an_archive_is_no_log(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        archive.write(SAMPLES / "table.csv")
    with pytest.raises(ClickLogError, match=r"log\.zip is a ZIP archive\. Unpack it first"):
        read_log(tmp_path / "log.zip")
    data = (tmp_path / "log.zip").read_bytes()
    (tmp_path / "log.zip").write_bytes(data[: len(data) // 2])
    with pytest.raises(ClickLogError, match=r"log\.zip is a ZIP archive\. Unpack it first"):
        read_log(tmp_path / "log.zip")


@pytest.mark.parametrize("separator", [";", "~", "tab", "\\t"])
def test_a_separator_can_be_said(separator: str, tmp_path: Path) -> None:
    """Then any name will do, nothing is odd about it, and other characters are text."""
    path = rewritten(tmp_path / "log.txt", {"tab": "\t", "\\t": "\t"}.get(separator, separator))
    expected = pages(read_log(SAMPLES / "table.csv"))
    log, notes = read_noting(path, separator=separator)
    assert (pages(log), notes) == (expected, {})
    stored = gecasmo.ClickLog.ingest(path, tmp_path / "a.gclog", separator=separator)
    assert (stored.n_sessions, stored.n_results) == (len(log), log.n_results)
    assert peek(path, separator=separator).columns[0] == "session"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("table.csv", {"separator": ";"}, "separator=';': there is none in the first line of"),
        ("table.csv", {"separator": "ab"}, "separator='ab': one character that is no letter"),
        ("table.csv", {"separator": "e"}, "separator='e': one character"),
        ("table.csv", {"separator": ",", "format": "yandex"}, "separator=',' is for CSV files"),
        ("baidu.parquet", {"separator": ","}, "is no text with fields"),
    ],
)
def test_separators_that_are_none(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ClickLogError, match=re.escape(message)):
        read_log(SAMPLES / name, **options)
    with pytest.raises(ClickLogError, match="is for CSV files"):
        read_log({"session": [1]}, separator=",")
