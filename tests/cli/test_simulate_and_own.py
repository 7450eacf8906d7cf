"""Simulated clicks take the place of those there were; models made in a file have their names."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
from command_line import succeed

import gecasmo


def test_simulated_clicks_replace_the_true_ones(
    fit_file: Path, log: gecasmo.ClickLog, tmp_path: Path
) -> None:
    pages = tmp_path / "pages.csv"
    log.to_frame().rename({"click": "was_clicked"}).write_csv(pages)
    succeed("simulate", fit_file, pages, "-o", tmp_path / "sim.csv")
    simulated = pl.read_csv(tmp_path / "sim.csv")
    assert "was_clicked" not in simulated.columns
    assert "click" in simulated.columns
    assert simulated.height == log.n_results


def test_models_made_in_a_file_are_known_by_their_names(log_file: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from gecasmo import PBM, Table\nmine = PBM(examination=Table(fixed={1: 1.0}))\n"
    )
    told = json.loads(
        succeed("fit", f"{own}:mine", log_file, "-o", tmp_path / "m.fit", "--json").stdout
    )
    assert told["model"] == "mine"
    alone = succeed("fit", own, log_file, "-o", tmp_path / "n.fit", "--json").stdout
    assert json.loads(alone)["model"] == "PBM"
