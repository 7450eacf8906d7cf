"""Weights of very different sizes: light pages do not become impossible beside heavy ones."""

from __future__ import annotations

import numpy as np
import pytest

from gecasmo import DBN, DCTR, PBM, Table, read_log
from gecasmo.encoding.rows import Rows
from gecasmo.errors import GecasmoWarning, without
from gecasmo.forms import TableState
from gecasmo.kernels.static import row_sweeps


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("each", [False, True])
def test_no_row_is_certain_that_has_shown_both_sides(
    is_large: bool, each: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_sweeps, "FEWEST_ROWS", 0 if is_large else 10**9)
    rows = Rows(("doc",), (), 5)
    heads = np.array([1e20, 1.0, 1e20, 0.0, 1e17])
    tails = np.array([1.0, 1e20, 0.0, 0.0, 1e-15])
    pseudo = np.zeros((2, 5)) if each else (0.0, 0.0)
    state = TableState(rows, np.full(5, 0.3), 0.5, None, pseudo=pseudo)
    found = Table(pseudo_counts=(0, 0)).fit(rows, heads, tails, state).probability
    assert ((found > 0) & (found < 1)).tolist() == [True, True, False, True, True]
    assert found[2] == 1.0  # never a tail
    assert found[3] == 0.3  # never flipped
    state = TableState(rows, np.full(5, 0.3), 0.5, None, pseudo=pseudo + np.ones((2, 1)))
    if each:
        found = Table().fit(rows, heads, tails, state).probability
        assert np.all((found > 0) & (found < 1))


@pytest.mark.parametrize("model", [DCTR, PBM, DBN])
@pytest.mark.parametrize("pseudo_counts", [None, (0, 0), (1, 1)])
@pytest.mark.parametrize("light", [1.0, 1e-15, 1e-300])
def test_light_pages_beside_heavy_ones(model, pseudo_counts, light: float) -> None:
    """An objective of minus infinity, and light pages impossible under the fit to them."""
    rng = np.random.default_rng(0)
    n_pages = 40
    is_heavy = np.arange(n_pages) < 4
    click = rng.random((n_pages, 3)) < np.where(is_heavy, 0.0, 0.4)[:, None]
    click[:4, 0] = True  # what is heavy is always the same
    log = read_log(
        {
            "session": np.repeat(np.arange(n_pages), 3),
            "query": np.repeat(np.arange(n_pages) % 2, 3),
            "doc": np.tile(np.arange(3), n_pages),
            "rank": np.tile(np.arange(1, 4), n_pages),
            "click": click.ravel(),
            "weight": np.repeat(np.where(is_heavy, 1e15, light), 3),
        },
        weight="weight",
    )
    forms = {}
    if pseudo_counts is not None:
        forms = {coin: Table(pseudo_counts=pseudo_counts) for coin in model().forms}
    with without(GecasmoWarning):  # of rows that were never flipped
        fitted = model(**forms).fit(log, progress=False)
    assert np.isfinite(fitted.history["objective"].to_numpy()).all()
    assert np.isfinite(fitted.log_likelihood(log)).all()
    for frame in fitted.parameters.values():
        assert frame["probability"].is_finite().all()
        assert frame["probability"].is_between(0, 1).all()
