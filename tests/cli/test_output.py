"""JSON that every parser reads, tables, bars and files."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gecasmo.cli.output import Output, as_json, table_format, write_table
from gecasmo.errors import GecasmoError
from gecasmo.report import TextTable, bar

FRAME = pl.DataFrame({"doc": ["a", "[b]"], "share": [0.25, None], "n": [1234, 5]})


def test_json_has_no_numbers_that_json_lacks() -> None:
    data = {
        "inf": math.inf,
        "minus": -math.inf,
        "nan": math.nan,
        "array": np.array([1.5, 2.0]),
        "number": np.int64(3),
        "frame": FRAME,
        "time": datetime(2024, 5, 1, tzinfo=UTC),
        "span": timedelta(minutes=2),
        "path": Path("a/b"),
        "tuple": (1, True, None),
        4: {"é"},
    }
    assert json.loads(as_json(data)) == {
        "inf": "Infinity",
        "minus": "-Infinity",
        "nan": None,
        "array": [1.5, 2.0],
        "number": 3,
        "frame": [{"doc": "a", "share": 0.25, "n": 1234}, {"doc": "[b]", "share": None, "n": 5}],
        "time": "2024-05-01T00:00:00+00:00",
        "span": 120.0,
        "path": "a/b",
        "tuple": [1, True, None],
        "4": ["é"],
    }


def test_tables_show_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Output().show({}, TextTable.of(FRAME, formats={"share": "{:.1%}".format}))
    text = capsys.readouterr().out
    assert "[b]" in text
    assert "25.0%" in text
    assert "1,234" in text
    assert "None" not in text


def test_bars() -> None:
    assert bar(0.0, 4, "utf-8") == "    "
    assert bar(1.0, 4, "utf-8") == "████"
    assert bar(0.5, 4, "utf-8") == "██  "
    assert bar(0.28, 4, "utf-8") == "█▏  "
    assert bar(0.5, 4, "ascii") == "##  "
    assert bar(2.0, 2, "ascii") == "##"


@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "ndjson", "parquet"])
def test_tables_are_written_and_read_back(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / f"table.{kind}")
    write_table(FRAME, path)
    readers = {
        "csv": pl.read_csv,
        "tsv": lambda p: pl.read_csv(p, separator="\t"),
        "json": lambda p: pl.DataFrame(json.loads(Path(p).read_text(encoding="utf-8"))),
        "ndjson": pl.read_ndjson,
        "parquet": pl.read_parquet,
    }
    assert readers[kind](path).equals(FRAME)
    assert [p.name for p in tmp_path.iterdir()] == [f"table.{kind}"]


def test_places(tmp_path: Path) -> None:
    assert Output().place(str(tmp_path / "new.csv")) == tmp_path / "new.csv"
    with pytest.raises(GecasmoError, match=r"--output .*: that is a folder"):
        Output().place(str(tmp_path))
    with pytest.raises(GecasmoError, match=r"has to end in one of \.csv"):
        table_format("table.xlsx")
    assert table_format("-") == "csv"
