"""The same table gives the same log, whatever holds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gecasmo.errors import ClickLogError
from gecasmo.logs import FORMATS, ClickLog, read_log


def assert_same(one: ClickLog, other: ClickLog) -> None:
    assert one.columns == other.columns
    for name in one.columns:
        assert one.column(name).to_list() == other.column(name).to_list()
    assert one.sessions.to_list() == other.sessions.to_list()
    np.testing.assert_array_equal(one.order, other.order)
    np.testing.assert_array_equal(one.starts, other.starts)
    np.testing.assert_array_equal(one.weight, other.weight)


def duckdb_relation(columns: dict[str, Any]) -> Any:
    table = pa.table(columns)
    return duckdb.from_arrow(table)


def pandas_categories(columns: dict[str, Any]) -> Any:
    frame = pd.DataFrame(columns)
    return frame.astype(dict.fromkeys(["session", "query", "doc"], "category"))


def large_strings(columns: dict[str, Any]) -> Any:
    table = pa.table(columns)
    large = [
        pa.field(f.name, pa.large_string() if f.type == pa.string() else f.type)
        for f in table.schema
    ]
    return table.cast(pa.schema(large))


def enums(columns: dict[str, Any]) -> Any:
    return pl.DataFrame(columns).with_columns(pl.col("doc").cast(pl.Enum(["d", "c", "b", "a"])))


SOURCES = {
    "polars": pl.DataFrame,
    "lazy": pl.LazyFrame,
    "pandas": pd.DataFrame,
    "pandas objects": lambda c: pd.DataFrame(c).astype({"session": object, "doc": object}),
    "pandas categories": pandas_categories,
    "pandas shuffled index": lambda c: pd.DataFrame(c, index=[4, 2, 9, 1, 7]),
    "pyarrow": pa.table,
    "large strings": large_strings,
    "enums": enums,
    "duckdb": duckdb_relation,
    "numpy": lambda c: {name: np.asarray(values) for name, values in c.items()},
    "boolean clicks": lambda c: c | {"click": [bool(x) for x in c["click"]]},
    "float clicks and ranks": lambda c: (
        c | {"click": [float(x) for x in c["click"]], "rank": [float(x) for x in c["rank"]]}
    ),
}


@pytest.mark.parametrize("flavour", SOURCES)
def test_every_table_gives_the_same_log(columns: dict[str, Any], flavour: str) -> None:
    assert_same(read_log(SOURCES[flavour](columns)), read_log(columns))


@pytest.mark.parametrize("name", ["log.parquet", "log.pq", "log.csv", "log.tsv", "l[og].csv"])
def test_every_file_gives_the_same_log(columns: dict[str, Any], tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    frame = pl.DataFrame(columns)
    if path.suffix in (".parquet", ".pq"):
        frame.write_parquet(path)
    else:
        frame.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")
    assert_same(read_log(path), read_log(columns))
    assert_same(read_log(str(path)), read_log(columns))


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_glob_reads_files_in_order(columns: dict[str, Any], tmp_path: Path, suffix: str) -> None:
    frame = pl.DataFrame(columns)
    for number, part in enumerate((frame[:2], frame[2:])):
        getattr(part, f"write_{suffix}")(tmp_path / f"part-{number}.{suffix}")
    assert_same(read_log(tmp_path / f"part-*.{suffix}"), read_log(columns))


def test_nested_pages_give_the_same_log(columns: dict[str, Any]) -> None:
    frame = pl.DataFrame(columns).sort("session", "rank")
    nested = frame.group_by("session", "query", "device", maintain_order=True).agg(pl.all())
    assert_same(read_log(nested.select(frame.columns)), read_log(frame))
    assert_same(read_log(nested.select(frame.columns).to_arrow()), read_log(frame))
    assert_same(read_log(nested.select(frame.columns).to_pandas()), read_log(frame))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_text_ids_keep_their_spelling(tmp_path: Path) -> None:
    rows = "007,abc,7,1,0\n007,abc,07,2,1\n7,12,3,1,0\n"
    log = read_log(write(tmp_path / "log.csv", "session,query,doc,rank,click\n" + rows))
    assert log.sessions.to_list() == ["007", "7"]
    assert log.session_column("query").to_list() == ["abc", "12"]
    assert log.column("doc").to_list() == ["7", "07", "3"]


def test_text_ids_that_are_integers_become_integers(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "log.csv", "session,doc,rank,click\n10,-3,1,0\n9,4,1,1\n"))
    assert log.sessions.to_list() == [10, 9]
    assert log.column("doc").to_list() == [-3, 4]


def test_a_late_odd_value_does_not_break_a_text_file(tmp_path: Path) -> None:
    rows = "".join(f"{i},x,1,0,{i}\n" for i in range(2000)) + "2000,y,1,1,0.5\n"
    log = read_log(write(tmp_path / "log.csv", "session,doc,rank,click,price\n" + rows))
    assert log.column("price")[-1] == 0.5


def test_pandas_text_booleans_are_clicks(columns: dict[str, Any], tmp_path: Path) -> None:
    columns["click"] = [bool(x) for x in columns["click"]]
    pd.DataFrame(columns).to_csv(tmp_path / "log.csv", index=False)
    assert_same(read_log(tmp_path / "log.csv"), read_log(columns))


def test_a_list_may_mix_whole_and_broken_numbers(columns: dict[str, Any]) -> None:
    log = read_log(columns | {"price": [1, 2.5, 3, 4, 5], "doc": [1, 2, 3, 4, 5]})
    assert log.column("price").to_list() == [1.0, 2.5, 3.0, 4.0, 5.0]
    assert log.column("doc").to_list() == [1, 2, 3, 4, 5]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match=r"nothing\.csv cannot be read: there is no such file"):
        read_log(tmp_path / "nothing.csv")


def test_a_glob_without_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match=r"\*\.parquet cannot be read: no file matches"):
        read_log(tmp_path / "*.parquet")


@pytest.mark.parametrize("format", [None, "table"])
def test_a_folder_is_refused_with_a_glob_and_formats_to_try(
    tmp_path: Path, format: str | None
) -> None:
    with pytest.raises(ClickLogError, match=r"is a folder; name its files, such as .*\*\.par") as e:
        read_log(tmp_path, format=format)
    said = str(e.value)
    named = said.split('such as format="ubi": ')[1]
    for name in FORMATS:
        assert (name in named) == (name != "table")


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "table"])
def test_every_format_that_the_message_names_reads_a_folder(tmp_path: Path, format: str) -> None:
    with pytest.raises(ClickLogError, match="the folder has no files"):
        read_log(tmp_path, format=format)


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_an_unreadable_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClickLogError, match=rf"{name} cannot be read: ."):
        read_log(write(tmp_path / name, ""))


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match=r"should end in \.parquet, \.pq, \.csv"):
        read_log(write(tmp_path / "log.xlsx", "{}"))


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ClickLogError, match="The dict cannot be read as a table: "):
        read_log({"session": [1, 2], "doc": [1, 2, 3]})


def test_mixed_ids_are_refused() -> None:
    with pytest.raises(ClickLogError, match="The dict cannot be read as a table: "):
        read_log({"session": ["a", 7], "doc": [1, 2], "rank": [1, 2], "click": [0, 1]})


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(ClickLogError, match=r"A list cannot be read\. Give a Parquet"):
        read_log([1, 2])


def test_a_list_of_dicts_is_a_table() -> None:
    rows = [
        {"session": 1, "doc": "a", "rank": 1, "click": 0},
        {"session": 1, "doc": "b", "rank": 2},
    ]
    with pytest.raises(ClickLogError, match="click: 1 value is missing"):
        read_log(rows)
    log = read_log([rows[0], {**rows[1], "click": 1}])
    assert log.to_frame().select("doc", "click").rows() == [("a", False), ("b", True)]
    with pytest.raises(ClickLogError, match="The list of dicts cannot be read as a table: "):
        read_log([{"session": 1, "doc": "a"}, {"session": 1, "doc": {"x": 1}}])


def test_importing_is_light() -> None:
    code = "import sys, gecasmo.logs; print({'pandas', 'pyarrow', 'duckdb'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
