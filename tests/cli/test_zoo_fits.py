"""The younger models of the zoo, fitted from the command line to a log that has their columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import fail, succeed, succeed_with_json

from gecasmo import load, read_log
from gecasmo.evaluation import select_model
from gecasmo.models import CATALOGUE
from gecasmo.testing import plain_python
from gecasmo.testing.subject import random_log
from oracle.stories import ZOO
from strategies.zoo import densities_of


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in ZOO])
def test_a_sample_log_is_fitted(name: str, folder: Path) -> None:
    model = CATALOGUE[name]
    blank = random_log(model(), [3] * 12, seed=1)
    with plain_python():
        coins = dict.fromkeys(model._parameters(), 0.5)
        if not model().foreseen:  # else it can be fitted, and cannot simulate
            blank = model.with_values(**coins, **densities_of(model)).simulate(blank, seed=2)
        blank.write("log.csv")
        succeed("fit", name, "log.csv", "-o", "made.fit")
        found = load("made.fit").evaluate(read_log("log.csv"))
    assert found.n_impossible == 0
    assert np.isfinite(found.log_likelihood)


@pytest.mark.parametrize(
    ("name", "column"), [("ShopDBN", "cart"), ("EBUBM", "is_vertical"), ("TACM", "dwell")]
)
def test_a_column_that_is_not_there_is_named(name: str, column: str, folder: Path) -> None:
    random_log(CATALOGUE["DBN"](), [2] * 3, seed=1).write("log.csv")
    said = fail("fit", name, "log.csv", "-o", "made.fit")
    assert f"'{column}', and the log has no such column" in said


def test_auto_says_which_and_why(log_file: Path, folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(select_model.__kwdefaults__, "folds", 2)
    monkeypatch.setattr(select_model, "__defaults__", (("GCTR", "RCTR"),))
    with plain_python():
        told = succeed("fit", "auto", log_file, "-o", "best.fit").stdout
        data = succeed_with_json("fit", "AUTO", log_file, "-o", "again.fit")
    assert "2 folds of 240 sessions, each predicted once" in told
    assert "predicts" in told
    assert data["selection"]["chosen"] == data["model"] == load("best.fit").name
    assert [row["model"] for row in data["selection"]["candidates"]] == ["RCTR", "GCTR"]
