"""The younger models of the zoo, fitted from the command line to a log that has their columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import fail, succeed

from gecasmo import load, read_log
from gecasmo.models import CATALOGUE
from gecasmo.testing import plain_python
from gecasmo.testing.subject import random_log
from oracle.stories import ZOO


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in ZOO])
def test_a_sample_log_is_fitted(name: str, folder: Path) -> None:
    model = CATALOGUE[name]
    blank = random_log(model(), [3] * 12, seed=1)
    with plain_python():
        coins = dict.fromkeys(model._parameters(), 0.5)
        model.with_values(**coins).simulate(blank, seed=2).write("log.csv")
        succeed("fit", name, "log.csv", "-o", "made.fit")
        found = load("made.fit").evaluate(read_log("log.csv"))
    assert found.n_impossible == 0
    assert np.isfinite(found.log_likelihood)


@pytest.mark.parametrize(("name", "column"), [("ShopDBN", "cart"), ("EBUBM", "is_vertical")])
def test_a_column_that_is_not_there_is_named(name: str, column: str, folder: Path) -> None:
    random_log(CATALOGUE["DBN"](), [2] * 3, seed=1).write("log.csv")
    said = fail("fit", name, "log.csv", "-o", "made.fit")
    assert f"'{column}', and the log has no such column" in said
