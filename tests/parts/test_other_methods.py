"""Methods that have all rows in memory, and forms that are no tables, over parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo import (
    CM,
    DBN,
    DCTR,
    EM,
    PBM,
    ClickLog,
    Empirical,
    Gradient,
    Logistic,
    Sum,
    Table,
    read_log,
)
from gecasmo.errors import ClickLogError, ModelError

pytestmark = pytest.mark.usefixtures("plain_kernels")


def frame(n: int = 60, seed: int = 1) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    query = rng.integers(0, 9, n)
    doc = rng.permuted(np.tile(np.arange(4), (n, 1)), axis=1)[:, :3].ravel()
    price = (doc + 1) * 1.5
    return pl.DataFrame(
        {
            "session": np.repeat(np.arange(n), 3),
            "query": np.repeat(query, 3),
            "doc": doc,
            "rank": np.tile([1, 2, 3], n),
            "click": rng.random(3 * n) < 0.2 + 0.05 * price,
            "price": price,
            "device": np.repeat(np.where(rng.random(n) < 0.5, "phone", "desk"), 3),
        }
    )


@pytest.fixture
def both(tmp_path: Path) -> Any:
    keep = ("price", "device")
    stored = ClickLog.ingest(
        frame(), tmp_path / "log.gclog", partitions=4, keep=keep, progress=False
    )
    return read_log(frame()), stored


def close(a: Any, b: Any, tolerance: float = 1e-9) -> None:
    for coin, here in a.parameters.items():
        there = b.parameters[coin]
        keys = [n for n in here.columns if n not in ("probability", "heads", "tails", "z")]
        names = [n for n in here.columns if here[n].dtype.is_float()]
        here, there = (f.sort([k for k in keys if k not in names]) for f in (here, there))
        for name in names:
            np.testing.assert_allclose(
                here[name].to_numpy(), there[name].to_numpy(), rtol=tolerance, atol=tolerance
            )


def test_rows_by_document_span_the_parts(both: Any) -> None:
    for forms in (
        {"attraction": Table((1, 1), key="doc"), "satisfaction": Table((1, 1), key="doc")},
        {"attraction": Table((1, 1)), "continuation": Table((2, 1), key="device")},
    ):
        method = EM(max_iter=9, tol=0)
        a, b = (DBN(**{"satisfaction": Table((1, 1)), **forms}).fit(x, method) for x in both)
        close(a, b)


def test_coefficients_are_the_same(both: Any) -> None:
    log, stored = both
    forms = {"attraction": Logistic("price", "device", key="result"), "satisfaction": 0.4}
    method = EM(max_iter=6, tol=0)
    a, b = (DBN(**forms).fit(x, method) for x in (log, stored))
    close(a, b, 1e-7)


def test_rows_that_disagree_in_a_feature_are_refused(tmp_path: Path) -> None:
    other = frame().with_columns(price=pl.col("price") + pl.col("query"))
    stored = ClickLog.ingest(
        other, tmp_path / "log.gclog", partitions=8, keep=("price",), progress=False
    )
    with pytest.raises(ClickLogError, match="price"):
        DBN(attraction=Logistic("price", key="doc"), satisfaction=0.4).fit(stored)


def test_gradient_descent_streams_the_pages(both: Any) -> None:
    log, stored = both
    fixed = Table((1, 1))
    method = Gradient(epochs=30, lr=0.1, batch_size=20, seed=2)
    a, b = (PBM(attraction=fixed).fit(x, method, intervals=False) for x in (log, stored))
    # Batches differ, so only where both lead is the same.
    assert b.report_.objective == pytest.approx(a.report_.objective, rel=0.01)
    frame = b.parameters["attraction"]
    assert frame.height == a.parameters["attraction"].height
    assert b.score(log) == pytest.approx(b.report_.log_likelihood / len(log), rel=1e-9)


def test_a_share_for_validation_is_refused(both: Any) -> None:
    _, stored = both
    with pytest.raises(ModelError, match="give the validation pages"):
        PBM().fit(stored, Gradient(validation=0.2))


@pytest.mark.filterwarnings("ignore::gecasmo.errors.ConvergenceWarning")
def test_offsets_find_their_spread(both: Any) -> None:
    forms = {
        "attraction": Sum(Logistic("price"), key="doc"),
        "satisfaction": Table((1, 1), key="doc"),
    }
    a, b = (DBN(**forms).fit(x, EM(max_iter=200), intervals=False) for x in both)
    spreads = [m.states()["attraction"].spread for m in (a, b)]
    assert spreads[0] != pytest.approx(DBN(**forms).forms["attraction"].spread or 1.0)
    assert spreads[1] == pytest.approx(spreads[0], rel=1e-3)


def test_priors_by_rank_are_those_of_the_rows(tmp_path: Path, compiled: None) -> None:
    """Rows shown high have another prior than rows shown low, in every part."""
    rng = np.random.default_rng(4)
    n, n_docs = 1200, 6
    query = rng.integers(0, 60, n)
    table = pl.DataFrame(
        {
            "session": np.repeat(np.arange(n), n_docs),
            "query": np.repeat(query, n_docs),
            "doc": np.tile(np.arange(n_docs), n),  # a document is always at its rank
            "rank": np.tile(np.arange(1, n_docs + 1), n),
            "click": rng.random(n * n_docs) < np.tile(np.linspace(0.7, 0.05, n_docs), n),
        }
    )
    stored = ClickLog.ingest(table, tmp_path / "log.gclog", partitions=4, progress=False)
    by_rank = Table(prior=Empirical(by="rank"))
    whole, parts = (DCTR(click_rate=by_rank).fit(x) for x in (read_log(table), stored))
    state = parts.states()["click_rate"]
    top = state.rows.frame["doc"].to_numpy() == 0
    means = state.pseudo[0] / state.pseudo.sum(axis=0)
    assert means[top].min() > means[~top].max()
    a, b = (m.estimates("click_rate") for m in (whole, parts))
    both = a.join(b, on=["query", "doc"])
    assert both.height == a.height
    assert float((both["probability"] - both["probability_right"]).abs().max()) < 0.02


@pytest.mark.parametrize("is_own", [False, True], ids=["in all queries", "in one query each"])
def test_priors_of_documents_are_learned_over_parts(
    tmp_path: Path, is_own: bool, compiled: None
) -> None:
    """Documents of different appeal, shown by queries of different parts; or no two by one."""
    rng = np.random.default_rng(4)
    n, n_queries, n_docs = 1_500, 60, 25
    query = rng.integers(0, n_queries, n)
    doc = np.argsort(rng.random((n, n_docs)), axis=1)[:, :4]
    rate = rng.beta(1, 2, n_docs)
    name = doc + n_docs * query[:, None] if is_own else doc
    table = pl.DataFrame(
        {
            "session": np.repeat(np.arange(n), 4),
            "query": np.repeat(query, 4),
            "doc": name.ravel(),
            "rank": np.tile(np.arange(1, 5), n),
            "click": (rng.random((n, 4)) < rate[doc]).ravel(),
        }
    )
    stored = ClickLog.ingest(table, tmp_path / "log.gclog", partitions=4, progress=False)
    by_doc = Table(prior=Empirical(by="doc"))
    whole, parts = (DCTR(click_rate=by_doc).fit(x) for x in (read_log(table), stored))
    a, b = (m.estimates("click_rate").sort("query", "doc") for m in (whole, parts))
    gap = (a["probability"] - b["probability"]).abs().to_numpy()
    assert gap.max() < (0.01 if is_own else 0.1)
    assert gap.mean() < 0.01
    of_row = a["doc"].to_numpy() % n_docs
    found = np.corrcoef(b["probability"].to_numpy(), rate[of_row])[0, 1]
    assert (found > 0.9) == (not is_own)


@pytest.mark.filterwarnings("ignore::gecasmo.errors.GecasmoWarning")
def test_priors_are_learned_beside_offsets(tmp_path: Path, compiled: None) -> None:
    forms = {"attraction": Table(prior="empirical"), "satisfaction": Sum(Logistic("price"))}
    table = frame(600)
    stored = ClickLog.ingest(
        table, tmp_path / "log.gclog", partitions=4, keep=("price",), progress=False
    )
    a, b = (DBN(**forms).fit(x, EM(max_iter=200)) for x in (read_log(table), stored))
    ends = [model.log_likelihood(read_log(table)).sum() for model in (a, b)]
    assert ends[1] == pytest.approx(ends[0], rel=1e-4)
    one, other = (m.states()["attraction"].priors for m in (a, b))
    assert (other.mean, other.strength) == pytest.approx((one.mean, one.strength), rel=0.02)


def test_coins_that_share_a_form(both: Any) -> None:
    method = EM(max_iter=5, tol=0)
    fits = []
    for log in both:
        form = Logistic("price", key="result")
        fits.append(DBN(attraction=form, satisfaction=form).fit(log, method))
    close(*fits, 1e-7)


def test_dropped_pages_are_counted_as_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    n = 300
    clicks = np.zeros((n, 2), bool)
    clicks[rng.random(n) < 0.3] = True  # two clicks, which a cascade cannot have
    table = pl.DataFrame(
        {
            "session": np.repeat(np.arange(n), 2),
            "query": np.repeat(rng.integers(0, 3, n), 2),
            "doc": np.tile([1, 2], n),
            "rank": np.tile([1, 2], n),
            "click": clicks.ravel(),
        }
    )
    stored = ClickLog.ingest(table, tmp_path / "log.gclog", partitions=2, progress=False)
    assert stored.is_folded
    a, b = (
        CM().fit(x, EM(max_iter=3, tol=0), impossible="drop").report_
        for x in (read_log(table), stored)
    )
    assert (b.n_dropped, b.n_sessions, b.total_weight) == (
        a.n_dropped,
        a.n_sessions,
        a.total_weight,
    )
