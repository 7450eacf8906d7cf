"""Files written and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gecasmo.errors import ClickLogError
from gecasmo.logs import read_log


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.tsv"])
def test_a_written_log_reads_the_same(columns: dict[str, Any], tmp_path: Path, name: str) -> None:
    log = read_log(columns | {"n": [3, 2, 3, 2, 2]}, weight="n")
    log.write(tmp_path / name)
    again = read_log(tmp_path / name, weight="weight")
    assert again.to_frame().equals(log.to_frame())
    assert again.weight.tolist() == log.weight.tolist()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_weights_of_one_are_not_written(columns: dict[str, Any], tmp_path: Path) -> None:
    read_log(columns).write(str(tmp_path / "log.parquet"))
    assert "weight" not in pl.read_parquet(tmp_path / "log.parquet").columns


def test_ids_of_several_columns_survive(columns: dict[str, Any], tmp_path: Path) -> None:
    log = read_log(columns, session=["session", "device"])
    log.write(tmp_path / "log.parquet")
    again = read_log(tmp_path / "log.parquet")
    assert again.to_frame().equals(log.to_frame())
    assert again.sessions.to_list() == log.sessions.to_list()


def test_text_files_cannot_hold_them(columns: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match="text files cannot hold the columns session, which"):
        read_log(columns, session=["session", "device"]).write(tmp_path / "log.csv")


def test_an_old_file_is_replaced(columns: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    path.write_text("old")
    read_log(columns).write(path)
    assert len(read_log(path)) == 2


def test_other_suffixes_are_refused(columns: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match=r"ends in \.parquet, \.csv, \.tsv or \.jsonl"):
        read_log(columns).write(tmp_path / "log.xlsx")


def test_a_folder_that_is_not_there_is_told(columns: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match=r"no/log\.csv cannot be written: "):
        read_log(columns).write(tmp_path / "no" / "log.csv")


def test_a_failed_write_leaves_the_old_file_alone(
    columns: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.parquet"
    path.write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(ClickLogError, match=r"log\.parquet cannot be written: disk full"):
        read_log(columns).write(path)
    assert path.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]
