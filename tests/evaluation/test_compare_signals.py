"""Models that also tell of purchases are compared by the clicks alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from comparing_examples import ragged

from gecasmo import EM, ClickLog, ClickModel, Parameter, flip
from gecasmo.evaluation import compare
from gecasmo.evaluation.contestants import clicks_only


class Shop(ClickModel):
    """A purchase ends the visit, so purchases say something about the clicks below."""

    attraction = Parameter("doc")
    purchase = Parameter("doc")
    patience = Parameter()

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.attraction):
            user.click()
            if flip(self.purchase):
                user.emit("purchased")
                user.leave()
        if not flip(self.patience):
            user.leave()


def shop() -> Any:
    docs = {f"d{i}": 0.2 + 0.1 * i for i in range(5)}
    return Shop.with_values(attraction=docs, purchase={d: 0.9 - p for d, p in docs.items()},
                            patience=0.7)  # fmt: skip


def log_with_purchases(n_sessions: int, seed: int) -> ClickLog:
    pages = ragged(n_sessions, seed)
    pages = pages.with_signals({"purchased": np.zeros(pages.n_results, bool)})
    simulated: ClickLog = shop().simulate(pages, seed=seed)
    return simulated


def log_clicks_by_hand(log: ClickLog) -> np.ndarray:
    """log P(clicks) of each session: the sum over all purchases that it may have had."""
    model = shop()
    total = np.zeros(log.n_sessions)
    for pattern in product([False, True], repeat=4):
        place = np.empty(log.n_results, np.int64)
        place[log.order] = np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)
        bought = np.array(pattern)[place]
        each = np.exp(model.log_likelihood(log.with_signals({"purchased": bought}),
                                           impossible="floor"))  # fmt: skip
        # Patterns that differ beyond the end of a short page are one and the same.
        total += each * (2.0 ** (log.lengths - 4))
    return np.log(total)


def test_the_likelihood_of_clicks_is_the_sum_over_all_purchases() -> None:
    log = log_with_purchases(40, 3)
    assert np.asarray(log.column("purchased")).any()
    found = clicks_only(shop()).log_likelihood(log)
    np.testing.assert_allclose(found, log_clicks_by_hand(log), atol=1e-5)


def test_models_with_other_signals_are_compared_by_clicks() -> None:
    log = log_with_purchases(40, 3)
    found = compare(log, {"shop": shop()}, heldout=log, bootstrap=0, method=EM(max_iter=2, tol=0))
    row = found.table.row(by_predicate=pl.col("model") == "shop", named=True)
    expected = float((log_clicks_by_hand(log) * log.weight).sum() / log.weight.sum())
    assert row["log_likelihood"] == pytest.approx(expected, abs=1e-5)
    # By the chain rule the conditional click probabilities multiply to the same likelihood.
    conditional = clicks_only(shop()).predict_conditional_clicks(log)
    shown = np.where(log.click, conditional, 1 - np.asarray(conditional))
    bits = -np.average(np.log2(shown), weights=log.weight[log.page])
    assert row["conditional_perplexity_pooled"] == pytest.approx(2**bits)
    by_page = np.bincount(log.page, weights=np.log(shown))
    np.testing.assert_allclose(by_page, log_clicks_by_hand(log), atol=1e-5)
    assert "shop: its other signals (purchased) are not scored." in found.notes
    assert not any("RCTR: its other" in note for note in found.notes)
    assert found.models["shop"].structure.traced.signals == ("click", "purchased")


def test_a_heldout_part_needs_no_other_signals() -> None:
    log = log_with_purchases(40, 3)
    clicks = ClickLog(log.to_frame().drop("purchased"), log.page, log.sessions, log.weight)
    found = compare(
        log, {"shop": shop()}, heldout=clicks, bootstrap=0, method=EM(max_iter=2, tol=0)
    )
    row = found.table.row(by_predicate=pl.col("model") == "shop", named=True)
    whole = compare(log, {"shop": shop()}, heldout=log, bootstrap=0, method=EM(max_iter=2, tol=0))
    other = whole.table.row(by_predicate=pl.col("model") == "shop", named=True)
    assert row["log_likelihood"] == other["log_likelihood"]
