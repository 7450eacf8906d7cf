"""Large logs are encoded by kernels and in narrow types; nothing else about them changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import gecasmo
from gecasmo import EM, Table
from gecasmo.encoding import EncodedLog
from gecasmo.encoding import folds as folding
from gecasmo.estimation import Expectation
from gecasmo.estimation.coins import as_weights
from gecasmo.logs import arrays
from gecasmo.testing import plain_python

MODELS = {
    "DBN": lambda: gecasmo.DBN(),
    "UBM": lambda: gecasmo.UBM(),
    "PBM": lambda: gecasmo.PBM(),
    "by document": lambda: gecasmo.DBN(attraction=Table(key="doc")),
    "by query": lambda: gecasmo.DBN(attraction=Table(key="query")),
    "by query and rank": lambda: gecasmo.DBN(attraction=Table(key=("rank", "query"))),
    "by three": lambda: gecasmo.DBN(attraction=Table(key=("query", "doc", "rank"))),
    "by history": lambda: gecasmo.UBM(examination=Table(key=("query", "distance"))),
    "by clicks above": lambda: gecasmo.UBM(examination=Table(key=("clicks_above", "rank"))),
    "by page length": lambda: gecasmo.PBM(attraction=Table(key=("query", "page_length", "doc"))),
}


@contextmanager
def large_logs(are_large: bool = True) -> Iterator[None]:
    """Take every log for a large one, or none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "LARGE_LOG", 0 if are_large else 10**9)
        yield


def random_log(
    seed: int, n_pages: int = 40, n_docs: int = 4, texts: bool = False, shuffled: bool = False
) -> gecasmo.ClickLog:
    """Short pages of few queries, so that some are the same."""
    rng = np.random.default_rng(seed)
    sessions = []
    for page in range(n_pages):
        query = int(rng.integers(0, 5))
        docs = rng.permutation(n_docs)[: rng.integers(1, 4)]
        ranks = np.sort(rng.choice(4, len(docs), replace=False)) + 1 if page % 7 == 0 else None
        for place, doc in enumerate(docs):
            rank = place + 1 if ranks is None else int(ranks[place])
            row = (page, query, int(doc) + 10 * query, rank, bool(rng.random() < 0.4))
            sessions.append(row)
    names = ["session", "query", "doc", "rank", "click"]
    frame = pl.DataFrame(sessions, schema=names, orient="row")
    if texts:
        frame = frame.with_columns(pl.col("query", "doc").cast(pl.String))
    if shuffled:
        frame = frame.sample(fraction=1, shuffle=True, seed=seed)
    return gecasmo.read_log(frame)


def assert_same(small: EncodedLog, large: EncodedLog) -> None:
    """The same pages, rows and row numbers, whatever the types."""
    for name in ("obs", "obs_start", "row_start", "weight", "bucket_start", "page_of_session"):
        np.testing.assert_array_equal(getattr(small, name), getattr(large, name), err_msg=name)
    assert small.plan.with_based(()) == large.plan.with_based(())
    for one, other in zip(small.rows, large.rows, strict=True):
        assert_frame_equal(one.frame, other.frame)
    for array in range(len(small.codes)):
        plan = next(coin for coin in small.plan.coins if coin.codes == array)
        if plan.scope == "page":
            np.testing.assert_array_equal(small.page_rows(array), large.page_rows(array))
        else:
            both = [e.result_rows(array, bool(plan.history)) for e in (small, large)]
            np.testing.assert_array_equal(*both)


@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None, max_examples=8)
@given(st.integers(0, 999), st.booleans(), st.booleans(), st.sampled_from([2, 4, 9]))
def test_large_logs_are_encoded_as_small_ones(
    name: str, seed: int, texts: bool, shuffled: bool, n_docs: int
) -> None:
    log = random_log(seed, 40, n_docs, texts, shuffled)
    model = MODELS[name]()
    with plain_python(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(folding, "_FEW_PAGES", seed % 2 * 100)
        with large_logs(False):
            small = model.encode(log, "e_step")
        with large_logs():
            large = model.encode(log, "e_step")
    assert_same(small, large)


@pytest.mark.parametrize("name", MODELS)
def test_rows_of_queries_stand_by_bucket(name: str) -> None:
    log = random_log(3, 200)
    model = MODELS[name]()
    encoded = model.encode(log, "e_step")
    for coin, plan, starts in zip(model.keys, encoded.plan.coins, encoded.bucket_rows, strict=True):
        if "query" not in model.keys[coin]:
            assert not len(starts)
            continue
        assert starts[0] == 0
        assert starts[-1] == len(encoded.rows[list(model.keys).index(coin)])
        for bucket in range(256):
            pages = np.arange(encoded.bucket_start[bucket], encoded.bucket_start[bucket + 1])
            if plan.scope == "page":
                used = encoded.page_rows(plan.codes)[pages]
            else:
                results = encoded.result_rows(plan.codes, bool(plan.history))
                begin, end = encoded.obs_start[encoded.bucket_start[bucket : bucket + 2]]
                used = results[begin:end]
            assert set(used) == set(range(starts[bucket], starts[bucket + 1]))


def test_narrow_types() -> None:
    log = random_log(1, 300, n_docs=200)
    with large_logs(False):
        wide = gecasmo.UBM().encode(log, "e_step", merge=False)
    with large_logs():
        narrow = gecasmo.UBM().encode(log, "e_step", merge=False)
    assert {codes.dtype for codes in wide.codes} == {np.dtype(np.uint32)}
    assert {codes.dtype for codes in narrow.codes} == {np.dtype(np.uint8)}
    assert len(narrow.rows[1]) > 256
    assert narrow.plan.based == [1]
    # Where pages are not grouped, their results and their rows begin at the same places.
    assert np.shares_memory(narrow.obs_start, narrow.row_start)


@pytest.mark.parametrize("name", ["DBN", "UBM", "by query and rank", "by history"])
def test_answers_do_not_depend_on_types(name: str) -> None:
    log, other = random_log(5, 60, n_docs=9), random_log(6, 50, n_docs=9, shuffled=True)
    answers = []
    for are_large in (False, True):
        with large_logs(are_large), plain_python():
            model = MODELS[name]().fit(log, EM(max_iter=3, tol=0), progress=False)
            answers.append(
                [
                    model.log_likelihood(other),
                    model.predict_clicks(other),
                    model.predict_conditional_clicks(other),
                    model.simulate(other, seed=1).click,
                    *(
                        frame.select(pl.selectors.numeric()).to_numpy()
                        for frame in (
                            model.posterior(other),
                            model.decode(other),
                            model.sample_stories(other, seed=2),
                        )
                    ),
                    *(f["probability"].to_numpy() for f in model.parameters.values()),
                ]
            )
    for one, two in zip(*answers, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, equal_nan=True)


def test_a_fit_needs_no_log() -> None:
    log = random_log(8)
    model = gecasmo.UBM()
    with large_logs():
        encoded = model.encode(log, "e_step")
    alone = encoded.without_log()
    assert alone.log is None
    weights = [as_weights(np.full(len(rows), 0.3)) for rows in encoded.rows]
    library = model.library(encoded.plan, counting=True)
    one, two = (Expectation(e, library).run(weights) for e in (encoded, alone))
    assert one.log_likelihood == two.log_likelihood
