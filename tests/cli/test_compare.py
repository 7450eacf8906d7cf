"""`gecasmo compare`: one table, several ways to have it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pytest
from command_line import fail, succeed, succeed_with_json
from rich.console import Console

import gecasmo
from gecasmo import EM
from gecasmo.evaluation import compare

FEW = ("--bootstrap", "20", "--seed", "4")


def test_the_table_is_that_of_the_library(log_file: Path, log: gecasmo.ClickLog) -> None:
    data = succeed_with_json("compare", log_file, "DBN", "pbm", *FEW)
    found = compare(log, ["DBN", "PBM"], bootstrap=20, seed=4, method=EM()).to_dict()
    for row in (*data["table"], *found["table"]):
        del row["seconds"]
    assert data["table"] == found["table"]
    assert data["by_rank"] == found["by_rank"]
    assert data["differences"] == found["differences"]


def test_the_text_names_all_models(folder: Path, log_file: Path) -> None:
    text = succeed("compare", log_file, "DBN", "PBM", *FEW, "--per-rank").stdout
    for word in ("DBN", "PBM", "RCTR", "DCTR", "Log-likelihood per session", "Brier"):
        assert word in text
    assert "Conditional perplexity by rank" in text
    assert "Marginal perplexity by rank" in text
    assert "by rank" in text
    assert "Marginal perplexity" not in succeed("compare", log_file, "PBM", *FEW).stdout


def test_files(folder: Path, log_file: Path) -> None:
    found = succeed("compare", log_file, "DBN", *FEW, "-o", "table.csv")
    assert found.stderr == "Written to table.csv.\n"
    assert set(pl.read_csv("table.csv")["model"]) == {"DBN", "RCTR", "DCTR"}
    succeed("compare", log_file, "DBN", *FEW, "-o", "all.json")
    assert set(json.loads(Path("all.json").read_text(encoding="utf-8"))) >= {
        "table",
        "by_rank",
        "differences",
    }
    piped = succeed("compare", log_file, "DBN", *FEW, "-o", "-").stdout
    own = pl.read_csv("table.csv").drop("seconds")
    assert pl.read_csv(io.StringIO(piped)).drop("seconds").equals(own)


def test_another_log_and_judgments_by_people(
    folder: Path, log: gecasmo.ClickLog, log_file: Path
) -> None:
    log.take(range(60)).write("later.csv")
    pairs = log.to_frame().select("query", "doc").unique(maintain_order=True)
    pairs.with_columns(grade=pl.col("doc") % 3).write_csv("people.csv")
    data = succeed_with_json(
        *("compare", log_file, "DBN", *FEW, "--heldout", "later.csv", "--judgments", "people.csv")
    )
    assert data["setting"]["n_train_sessions"] == 240
    assert data["setting"]["n_test_sessions"] == 60
    dbn = next(row for row in data["table"] if row["model"] == "DBN")
    assert 0 <= dbn["ndcg"] <= 1


def test_by_time(folder: Path, log: gecasmo.ClickLog) -> None:
    log.to_frame().with_columns(day=pl.col("session") // 24).write_csv("days.csv")
    data = succeed_with_json("compare", "days.csv", "PBM", *FEW, "--time", "day", "--test", "0.3")
    assert data["setting"]["n_train_sessions"] == 168
    assert "day" in data["setting"]["split"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--test", "2"), "2"),
        (("--by", "colour"), "colour"),
        (("--judgments", "gone.csv"), "gone.csv"),
        (("--heldout", "gone.csv"), "gone.csv cannot be read: there is no such file"),
        (("-o", "table.xlsx"), "has to end in"),
        (("-o", "nowhere/table.csv"), "there is no folder"),
        (("--plots", "taken"), "that is a file"),
    ],
)
def test_bad_input(folder: Path, log_file: Path, flags: tuple[str, ...], words: str) -> None:
    Path("taken").write_text("", encoding="utf-8")
    assert words in fail("compare", log_file, "PBM", *FEW, *flags)
    assert [path.name for path in folder.iterdir()] == ["taken"]


def test_an_unknown_model(log_file: Path) -> None:
    assert "There is no model 'XYZ'" in fail("compare", log_file, "DBN", "XYZ")


def test_the_progress_bar(log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None, _environ={})
    monkeypatch.setattr("gecasmo.cli.progress.error_console", lambda: console)
    monkeypatch.setattr("gecasmo.cli.output.error_console", lambda: console)
    monkeypatch.setattr("gecasmo.cli.output.Output.has_progress", property(lambda self: True))
    succeed("compare", log_file, "DBN", *FEW)
    assert "step " in screen.getvalue()
    assert "fitting DBN" in screen.getvalue()


def test_nested_models_are_tested(log_file: Path) -> None:
    asked = ("--nested", "--replicates", "19", "--bootstrap", "0")
    data = succeed_with_json("compare", log_file, "GCTR", "RCTR", *asked)
    (row,) = data["nested"]
    assert (row["smaller"], row["larger"]) == ("GCTR", "RCTR")
    assert 0 < row["p"] <= 1
    text = succeed("compare", log_file, "GCTR", "RCTR", *asked).stdout
    assert "click_rate does not depend" in text
    refused = fail("compare", log_file, "PBM", "DCM", *asked)
    assert "No model here is a special case of another: PBM and DCM" in " ".join(refused.split())
    assert "--loo goes with --nested" in fail("compare", log_file, "GCTR", "RCTR", "--loo")
