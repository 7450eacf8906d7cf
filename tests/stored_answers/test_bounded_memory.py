"""Four times as many rows in four times as many parts take no more memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from stored_examples import split_table

from gecasmo import PBM, Table
from gecasmo.encoding import Rows
from gecasmo.forms import TableState

ROWS_A_PART = 24_000
DOCS = 6


def saved_model(folder: Path, n_parts: int) -> Path:
    """A model of which `attraction` has as many rows, with long queries."""
    n_queries = ROWS_A_PART * n_parts // DOCS
    query = pl.Series("query", [f"{'a rather long question ' * 5}{n}" for n in range(n_queries)])
    rows = Rows(
        ("query", "doc"),
        [
            query.gather(pl.Series(np.repeat(np.arange(n_queries), DOCS))),
            pl.Series(np.tile(np.arange(DOCS), n_queries)),
        ],
        n_queries * DOCS,
    )
    form = Table(pseudo_counts=(1, 1))
    p = np.random.default_rng(0).beta(2, 5, len(rows))
    model = PBM.with_values(attraction=(form, 0.5), examination={r: 1 / r for r in range(1, 6)})
    table = split_table(folder, 0, TableState(rows, p, 0.3), None, n_parts)
    assert model.states_ is not None
    model.states_["attraction"] = table
    model.save(folder, folder=True)
    return folder


def peaks(folder: Path, n_parts: int) -> dict[str, float]:
    model = saved_model(folder / "model", n_parts)
    script = Path(__file__).with_name("memory_child.py")
    told = subprocess.run(
        [sys.executable, str(script), str(model), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells the peak")
def test_memory_does_not_grow_with_the_number_of_parts(tmp_path: Path) -> None:
    few, many = (peaks(tmp_path / f"{n}", n) for n in (4, 16))
    grown = {name: many[name] - few[name] for name in few}
    for name in ("score", "predict", "save", "judgments"):
        assert grown[name] < 0.6 * grown["rows"], (name, grown)
