"""A partition that is encoded piece by piece is fitted like one that is encoded as a whole."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecasmo import (
    CM,
    DBN,
    DCTR,
    EM,
    PBM,
    UBM,
    ClickLog,
    Empirical,
    Gradient,
    Logistic,
    Table,
    read_log,
)
from gecasmo.encoding import EncodedLog
from gecasmo.encoding.pieces import JoinedPieces, NotJoinableError
from gecasmo.errors import ClickLogError, ImpossibleSessionError
from gecasmo.logs.store.stored_log import StoredLog
from gecasmo.model import log_parts as streaming
from gecasmo.model import part_builder as parts_module
from gecasmo.model.part_builder import Settings, build_from_pieces, build_part, local_coins
from strategies.checks import many

pytestmark = pytest.mark.usefixtures("plain_kernels")

N_DOCS = 7


def frame(n: int = 150, seed: int = 1, n_queries: int = 9) -> pl.DataFrame:
    """Pages of which half are of one query, with different documents in different places."""
    rng = np.random.default_rng(seed)
    query = np.where(rng.random(n) < 0.5, 0, rng.integers(0, n_queries, n))
    length = rng.integers(1, 5, n)
    doc = np.concatenate([rng.permutation(N_DOCS)[:k] for k in length])
    price = (doc + 1) * 1.5
    n_results = len(doc)
    return pl.DataFrame(
        {
            "session": np.repeat(np.arange(n), length),
            "query": np.repeat(query, length),
            "doc": doc,
            "rank": np.concatenate([np.arange(1, k + 1) for k in length]),
            "click": rng.random(n_results) < 0.2 + 0.03 * price,
            "price": price,
            "device": np.repeat(np.where(rng.random(n) < 0.5, "phone", "desk"), length),
            "weight": np.repeat(rng.integers(1, 4, n) / 2, length),
        }
    )


@pytest.fixture(params=[25])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many results a piece has at most."""
    monkeypatch.setattr(streaming, "MOST_RESULTS", request.param)
    return int(request.param)


@pytest.fixture
def n_joined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many pieces parts were joined."""
    found: list[int] = []

    class Counting(JoinedPieces):
        def add(self, encoded: EncodedLog) -> Any:
            self.n_added = getattr(self, "n_added", 0) + 1
            return super().add(encoded)

        def encoded(self) -> EncodedLog:
            found.append(self.n_added)
            return super().encoded()

    monkeypatch.setattr(parts_module, "JoinedPieces", Counting)
    return found


def store(table: pl.DataFrame, folder: Path, fold: Any = False, partitions: int = 2) -> StoredLog:
    keep = tuple(name for name in ("price", "device") if name in table.columns)
    weight = "weight" if "weight" in table.columns else None
    return ClickLog.ingest(
        table,
        folder / "log.gclog",
        partitions=partitions,
        keep=keep,
        weight=weight,
        fold=fold,
        progress=False,
    )


def close(a: Any, b: Any, tolerance: float = 1e-9) -> None:
    for coin, here in a.parameters.items():
        there = b.parameters[coin]
        names = [n for n in here.columns if here[n].dtype.is_float()]
        keys = [n for n in here.columns if n not in names]
        assert len(here) == len(there)
        if keys:
            here, there = here.sort(keys), there.sort(keys)
            assert here.select(keys).equals(there.select(keys).cast(dict(here.select(keys).schema)))
        for name in names:
            np.testing.assert_allclose(
                here[name].to_numpy(), there[name].to_numpy(), rtol=tolerance, atol=tolerance
            )


FIXED = Table((1, 2), fixed={(0, 1): 0.25})
MODELS = {
    "DBN": lambda: DBN(attraction=Table((1, 1)), satisfaction=FIXED),
    "UBM": lambda: UBM(attraction=Table((1, 1))),
    "PBM": lambda: PBM(attraction=Table((0.5, 2))),
    "by document": lambda: DBN(
        attraction=Table((1, 1), key="doc"), satisfaction=Table((1, 1), key="doc")
    ),
    "by query": lambda: DBN(
        attraction=Table((1, 1)),
        satisfaction=Table((1, 1), key="query"),
        continuation=Table((2, 1), key=("query", "device")),
    ),
    "by device": lambda: DBN(
        attraction=Table((1, 1), key=("query", "doc", "device")),
        satisfaction=Table((1, 1), key="device"),
    ),
    "by session": lambda: PBM(attraction=Table((1, 1), key=("session", "rank"))),
    "by clicks": lambda: UBM(
        attraction=Table((1, 1)), examination=Table((1, 1), key=("query", "last_click"))
    ),
}


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_fits_are_those_of_the_whole(
    name: str, fold: bool, small: int, n_joined: list[int], tmp_path: Path
) -> None:
    table = frame() if name != "by session" else frame(40)
    stored = store(table, tmp_path, fold and name != "by session")
    log = read_log(table, weight="weight")
    if name == "by session":  # ids are not kept: one fit is compared with the other
        log = streaming.joined(list(stored.partitions()))
    method = EM(max_iter=7, tol=0)
    whole, parts = (MODELS[name]().fit(x, method, intervals=False) for x in (log, stored))
    close(whole, parts)
    assert max(n_joined) > 1
    objective = [m.history["objective"].to_numpy() for m in (whole, parts)]
    np.testing.assert_allclose(*objective, rtol=1e-9)
    assert whole.report_.total_weight == pytest.approx(parts.report_.total_weight)


@pytest.mark.parametrize("impossible", ["drop", "floor"])
@pytest.mark.parametrize("seldom", [False, True])
def test_impossible_pages(
    impossible: Any, seldom: bool, small: int, n_joined: list[int], tmp_path: Path
) -> None:
    table = frame()
    if seldom:  # most pieces have none
        is_odd = pl.col("session") % 20 == 7
        once = pl.col("click").cum_sum().over("session") <= 1
        table = table.with_columns(click=is_odd | (pl.col("click") & once))
    stored, log = store(table, tmp_path), read_log(table, weight="weight")
    method = EM(max_iter=5, tol=0)
    form = Table((1, 1))
    fit = {"impossible": impossible, "intervals": False}
    whole, parts = (CM(attraction=form).fit(x, method, **fit) for x in (log, stored))
    close(whole, parts)
    assert max(n_joined) > 1
    for name in ("n_dropped", "n_floored", "total_weight", "log_likelihood"):
        assert getattr(parts.report_, name) == pytest.approx(getattr(whole.report_, name)), name
    assert whole.report_.n_dropped + whole.report_.n_floored > 0
    with pytest.raises(ImpossibleSessionError, match="impossible under CM"):
        CM(attraction=form).fit(stored)


def test_no_page_is_left(small: int, tmp_path: Path) -> None:
    table = frame(40).filter(pl.len().over("session") > 1).with_columns(click=True)
    with pytest.raises(ImpossibleSessionError, match="nothing is left"):
        CM().fit(store(table, tmp_path), impossible="drop")


def test_a_model_to_start_from(small: int, n_joined: list[int], tmp_path: Path) -> None:
    table = frame()
    stored, log = store(table, tmp_path), read_log(table, weight="weight")
    make = MODELS["DBN"]
    start = make().fit(log, EM(max_iter=3, tol=0), intervals=False)
    method = EM(max_iter=3, tol=0)
    whole, parts = (make().fit(x, method, start=start, intervals=False) for x in (log, stored))
    close(whole, parts)
    assert whole.history["objective"][0] == pytest.approx(parts.history["objective"][0], rel=1e-9)
    assert max(n_joined) > 1


@pytest.mark.parametrize("key", ["result", "doc", ("query", "doc")])
def test_regressions(key: Any, small: int, n_joined: list[int], tmp_path: Path) -> None:
    table = frame()
    stored, log = store(table, tmp_path), read_log(table, weight="weight")
    method = EM(max_iter=4, tol=0)
    forms = {"attraction": Logistic("price", key=key), "satisfaction": 0.4}
    whole, parts = (DBN(**forms).fit(x, method) for x in (log, stored))
    for a, b in zip(whole.states().values(), parts.states().values(), strict=True):
        if hasattr(a, "weights"):
            np.testing.assert_allclose(a.weights, b.weights, atol=1e-7)
    objective = [m.history["objective"].to_numpy() for m in (whole, parts)]
    np.testing.assert_allclose(*objective, rtol=1e-7)
    assert max(n_joined) > 1


@pytest.mark.parametrize("key", ["doc", ("query", "doc")])
def test_rows_that_disagree_in_a_feature_are_refused(key: Any, small: int, tmp_path: Path) -> None:
    """Where the log is cut, too: the last page of a query is another than all others."""
    table = frame()
    last = pl.col("session") == table.filter(pl.col("query") == 0)["session"].max()
    other = table.with_columns(price=pl.when(last).then(0.5).otherwise("price"))
    with pytest.raises(ClickLogError, match="price"):
        DBN(attraction=Logistic("price", key=key), satisfaction=0.4).fit(store(other, tmp_path))


def test_gradient_descent(small: int, n_joined: list[int], tmp_path: Path) -> None:
    stored = store(frame(60), tmp_path)
    log = read_log(frame(60), weight="weight")
    method = Gradient(epochs=20, lr=0.1, batch_size=20, seed=2)
    model = PBM(attraction=Table((1, 1))).fit(stored, method, intervals=False)
    assert model.score(log) == pytest.approx(
        model.report_.log_likelihood / float(log.weight.sum()), rel=1e-9
    )
    assert max(n_joined) > 1


def test_a_column_that_varies_on_few_pages_is_encoded_as_a_whole(
    n_joined: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "MOST_RESULTS", 20)
    odd = (pl.col("session") % 50 == 7) & (pl.col("rank") == 2)
    table = frame().with_columns(device=pl.when(odd).then(pl.lit("tv")).otherwise("device"))
    table = table.filter(pl.len().over("session") > 1)
    stored, log = store(table, tmp_path, partitions=1), read_log(table, weight="weight")
    make = MODELS["by device"]
    whole, parts = (make().fit(x, EM(max_iter=3, tol=0), intervals=False) for x in (log, stored))
    close(whole, parts)
    assert not n_joined


# -- arrays ------------------------------------------------------------------------------------
def at_places(encoded: EncodedLog, number: int) -> list[list[tuple[Any, ...]]]:
    """What each page shows to a coin: the keys of its rows."""
    plan = encoded.plan.coins[number]
    if plan.scope == "global":
        return []
    keys = [name for name in encoded.rows[number].keys if name != "result"]
    rows = encoded.rows[number].frame.select(keys).rows()
    if plan.scope == "page":
        return [[rows[row]] for row in encoded.page_rows(plan.codes)]
    found = [rows[row] for row in encoded.result_rows(plan.codes, bool(plan.history))]
    starts = encoded.obs_start
    return [found[a:b] for a, b in pairwise(starts)]


def seen(encoded: EncodedLog) -> dict[Any, float]:
    """The weight of pages that are the same in all that counts."""
    shown = [at_places(encoded, number) for number in range(len(encoded.rows))]
    total: dict[Any, float] = {}
    bucket = np.repeat(np.arange(256), np.diff(encoded.bucket_start))
    for page in range(encoded.n_pages):
        a, b = encoded.obs_start[page], encoded.obs_start[page + 1]
        own = tuple(tuple(each[page]) for each in shown if each)
        what = (int(bucket[page]), tuple(encoded.obs[a:b].tolist()), own)
        total[what] = total.get(what, 0.0) + float(encoded.weight[page])
    return total


@many(25)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 60),
    n_queries=st.integers(1, 30),
    most=st.integers(1, 80),
    name=st.sampled_from(["DBN", "UBM", "by document", "by query", "by clicks", "typical"]),
    fold=st.booleans(),
)
def test_joined_arrays_say_what_those_of_the_whole_say(
    seed: int,
    n: int,
    n_queries: int,
    most: int,
    name: str,
    fold: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    by = Empirical(by=("rank", "exposure", "impressions", "price"))
    make = MODELS.get(name, lambda: DCTR(click_rate=Table(prior=by)))
    model = make()
    stored = store(frame(n, seed, n_queries), tmp_path_factory.mktemp("log"), fold, 1)
    local = local_coins(model, True)
    how = Settings(EM())
    whole = build_part(model, 0, stored.partition(0), local, how)
    try:
        pieces = build_from_pieces(model, 0, lambda: stored.pieces(0, most), local, how)
    except NotJoinableError:
        return  # pages of one result each make every column constant
    a, b = (x.part.expectation.encoded for x in (whole, pieces))
    here, there = seen(a), seen(b)
    assert here.keys() == there.keys()
    np.testing.assert_allclose(list(here.values()), [there[what] for what in here])
    for number, rows in enumerate(a.rows):
        assert sorted(rows.frame.rows()) == sorted(b.rows[number].frame.rows())
        if len(a.bucket_rows[number]):
            np.testing.assert_array_equal(a.bucket_rows[number], b.bucket_rows[number])
            queries = b.rows[number].frame["query"]
            assert len(queries.rle()) == queries.n_unique()  # rows of a query stay together
    for number, state in whole.part.local.items():
        other = dict(
            zip(b.rows[number].frame.rows(), pieces.part.local[number].probability, strict=True)
        )
        mine = [other[row] for row in a.rows[number].frame.rows()]
        np.testing.assert_array_equal(mine, state.probability)
    for number, typical in whole.part.typical.items():
        place = {row: i for i, row in enumerate(b.rows[number].frame.rows())}
        order = [place[row] for row in a.rows[number].frame.rows()]
        for what, values in typical.items():
            np.testing.assert_allclose(pieces.part.typical[number][what][order], values, rtol=1e-9)
    assert set(whole.part.typical) == set(pieces.part.typical)


def test_priors_by_rank(n_joined: list[int], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(streaming, "MOST_RESULTS", 300)
    table = frame(400)
    by_rank = Table(prior=Empirical(by="rank"))
    method = EM(max_iter=20)
    joined = DCTR(click_rate=by_rank).fit(store(table, tmp_path), method)
    assert max(n_joined) > 1
    monkeypatch.setattr(streaming, "MOST_RESULTS", 10**9)
    (tmp_path / "other").mkdir()
    whole = DCTR(click_rate=by_rank).fit(store(table, tmp_path / "other"), method)
    close(whole, joined)
    heads, tails = joined.states()["click_rate"].pseudo
    assert len(np.unique((heads / (heads + tails)).round(6))) > 1
