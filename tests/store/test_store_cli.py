"""`gecasmo ingest`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from stored_pages import all_pages, multiset, pages_of
from typer.testing import CliRunner, Result

from gecasmo import open_log, read_log
from gecasmo.cli import app
from gecasmo.cli.output import Output
from gecasmo.cli.progress import ingest_bar
from gecasmo.logs.store.intake import Intake


def run(*arguments: Any) -> Result:
    environment = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner().invoke(app, ["ingest", *map(str, arguments)], env=environment)


def test_a_log_is_stored(parquet: str, frame: pl.DataFrame, tmp_path: Path) -> None:
    target = tmp_path / "big.gclog"
    done = run(parquet, "-o", target, "--memory", "100MB", "--keep", "device,price")
    assert done.exit_code == 0, done.output
    assert "sessions    60" in done.stdout
    assert f"Written to {target}" in done.stdout
    assert "not kept: the ids of sessions" in done.stderr
    log = open_log(target)
    assert multiset(all_pages(log)) == multiset(pages_of(read_log(frame)))


def test_for_scripts(frame: pl.DataFrame, tmp_path: Path) -> None:
    frame.rename({"doc": "url", "click": "clicked"}).write_csv(tmp_path / "in.csv")
    target = tmp_path / "big.gclog"
    done = run(tmp_path / "in.csv", "-o", target, "--json", "--no-fold", "--partitions", 4)
    assert done.exit_code == 0, done.output
    assert "--doc url --click clicked" in done.stderr
    facts = json.loads(done.stdout)
    assert facts["sessions"] == facts["stored_pages"] == 60
    assert facts["partitions"] == 4
    assert facts["folded"] is False
    assert facts["bytes"] == open_log(target).bytes


def test_faults_and_refusals_in_flags(parquet: str, frame: pl.DataFrame, tmp_path: Path) -> None:
    target = tmp_path / "big.gclog"
    assert run(parquet, "-o", target, "--quiet").stdout == ""
    again = run(parquet, "-o", target)
    assert again.exit_code == 1
    assert "--force replaces it" in again.stderr
    assert run(parquet, "-o", target, "--force", "--keep", "session").exit_code == 0
    assert open_log(target).partition(0).sessions.dtype == pl.String
    wrong = run(parquet, "-o", tmp_path / "other", "--memory", "little")
    assert "an amount such as '4GB'" in wrong.stderr
    frame.with_columns(rank=1).write_parquet(tmp_path / "odd.parquet")
    odd = run(tmp_path / "odd.parquet", "-o", tmp_path / "other")
    assert odd.exit_code == 1
    assert "with more than one result" in odd.stderr


def test_what_was_met_is_told(frame: pl.DataFrame, tmp_path: Path) -> None:
    frame.with_columns(pl.col("rank") - 1).write_parquet(tmp_path / "in.parquet")
    done = run(tmp_path / "in.parquet", "-o", tmp_path / "log")
    assert "Warning: " in done.stderr
    assert "ranks start at 0 here" in done.stderr


def test_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with ingest_bar(Output()) as tell:
        assert tell is not None
        tell("reading", 1, None)
        tell("reading", 5, 10)
        tell("writing", 2, 4)
    assert "Reading rows" in screen.getvalue()
    assert "Writing partitions" in screen.getvalue()


def test_going_on_is_told(parquet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "big.gclog"

    def killed(self: Intake) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Intake, "_plan", killed)
        assert run(parquet, "-o", target).exit_code == 130
    other = run(parquet, "-o", target, "--partitions", 4)
    assert "began here without --partitions, and cannot be resumed with" in other.stderr
    assert "--partitions 4" in other.stderr
    assert "Resuming" not in other.stderr
    done = run(parquet, "-o", target, "--json")
    assert f"Resuming the ingest that began in {target}.part." in done.stderr
    assert json.loads(done.stdout)["source_columns"]["doc"] == ["doc"]
