"""A fit over parts is the fit in memory: for random programs, random logs and any partition."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecasmo import EM, ClickLog, Table
from strategies.cases import Case, cases, make_plain
from strategies.checks import close_to, many
from strategies.programs import COLUMNS
from strategies.trees import as_model


def by_key(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows in an order of their own."""
    keys = [n for n in frame.columns if n not in ("probability", "heads", "tails")]
    return frame.sort(keys) if keys else frame


def same_parameters(a: Any, b: Any, tolerance: float = 1e-9) -> None:
    for coin, frame in a.parameters.items():
        here, there = by_key(frame), by_key(b.parameters[coin])
        numbers = ["probability", "heads", "tails"]
        assert here.drop(numbers).equals(there.drop(numbers).cast(here.drop(numbers).schema))
        for name in numbers:
            close_to(here[name].to_numpy(), there[name].to_numpy(), tolerance)


def stored(case: Case, folder: Path, partitions: int, fold: Any = "auto") -> Any:
    return ClickLog.ingest(
        pl.DataFrame(case.table),
        folder / "log.gclog",
        weight="weight",
        keep=("device", "buy", "back", *COLUMNS),
        partitions=partitions,
        fold=fold,
        progress=False,
    )


@pytest.mark.filterwarnings("ignore:The coin .* never flipped")  # said without pseudo-counts
@pytest.mark.filterwarnings("ignore::gecasmo.errors.ClickLogWarning")
@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("augmentation", ["minimal", "full"])
@many(6)
@given(
    case=cases(max_pages=8),
    counts=st.sampled_from([(1.0, 1.0), (0.0, 0.0), (0.5, 2.0)]),
    partitions=st.sampled_from([1, 2, 8]),
    fold=st.sampled_from([True, False]),
    restarts=st.sampled_from([1, 2]),
)
def test_parts_are_fitted_like_the_whole(
    augmentation: str,
    accelerate: bool,
    case: Case,
    counts: Any,
    partitions: int,
    fold: bool,
    restarts: int,
) -> None:
    forms = {coin: Table(pseudo_counts=counts) for coin in case.program.keys}
    method = EM(
        7, tol=0, accelerate=accelerate, augmentation=augmentation, restarts=restarts, seed=3
    )
    model = as_model(case.program)
    whole = make_plain(model(**forms)).fit(case.log, method, threads=1)
    with tempfile.TemporaryDirectory() as folder:
        log = stored(case, Path(folder), partitions, fold)
        parts = make_plain(model(**forms)).fit(log, method, threads=1)
        same_parameters(whole, parts)
    close_to(whole.history["objective"].to_numpy(), parts.history["objective"].to_numpy(), 1e-9)
    assert np.isclose(whole.report_.total_weight, parts.report_.total_weight)
    assert whole.report_.n_evaluations == parts.report_.n_evaluations
