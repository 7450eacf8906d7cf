"""Curvature from numbers of a coin that are moved all at once is that from one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecasmo import CCM, DCM, PBM, UBM, ClickModel, Parameter, Table, TrustPBM, flip, read_log
from gecasmo.estimation.posteriors import curvature, joint
from gecasmo.kernels.threads import using_threads
from gecasmo.logs import ClickLog


class TwoLooks(ClickModel):
    """Two coins that all pages share, at every result, and a row that is flipped twice."""

    attraction = Parameter("query", "doc")
    examination = Parameter("rank")
    reading = Parameter("rank", "last_click")

    def browse(self, user: Any, result: Any) -> None:
        looks = flip(self.examination) and flip(self.attraction)
        if looks and (flip(self.reading) or flip(self.attraction)):
            user.click()


def searches(seed: int, n_pages: int, weighted: bool) -> ClickLog:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, n_pages)
    page = np.repeat(np.arange(n_pages), lengths)
    columns = {
        "session": page,
        "query": rng.integers(0, 6, n_pages)[page],
        "doc": rng.integers(0, 12, len(page)),
        "rank": np.concatenate([np.arange(1, n + 1) for n in lengths]),
        "click": rng.random(len(page)) < 0.3,
    }
    if weighted:
        columns["weight"] = rng.integers(1, 4, n_pages)[page]
    return read_log(columns)


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([PBM, UBM, TrustPBM, TwoLooks]),
    st.integers(0, 2**31),
    st.integers(20, 80),
    st.booleans(),
    st.booleans(),
)
def test_moved_at_once_or_one_by_one(
    kind: type[ClickModel], seed: int, n_pages: int, weighted: bool, given_row: bool
) -> None:
    seen = []

    def both(shared: Any, states: Any, coins: Any, n_buckets: int, chunks: Any) -> Any:
        slow = curvature.one_by_one(shared, states, coins, n_buckets)
        assert curvature.stand_alone(shared, [coin.number for coin in coins])
        fast = curvature.all_at_once(shared, states, coins, chunks)
        scale = max(np.abs(slow.held).max(), 1.0)
        np.testing.assert_allclose(fast.held, slow.held, rtol=0, atol=1e-9 * scale)
        for number, (rows, change) in slow.rows.items():
            assert np.array_equal(fast.rows[number][0], rows)
            np.testing.assert_allclose(fast.rows[number][1], change, rtol=0, atol=1e-9 * scale)
        seen.append(shared.size)
        return slow

    log = searches(seed, n_pages, weighted)
    examination = Table(fixed={1: 0.9}) if given_row and kind is not UBM else Table()
    with pytest.MonkeyPatch.context() as patch, using_threads(1):
        patch.setattr(joint, "curvature_of", both)
        kind(examination=examination).fit(log, progress=False, threads=1)
    assert seen
    assert min(seen) > 0


@pytest.mark.parametrize("kind", [DCM, CCM])
def test_pages_that_tie_results_together_are_moved_one_by_one(kind: type[ClickModel]) -> None:
    seen = []

    def look(shared: Any, states: Any, coins: Any, n_buckets: int, chunks: Any) -> Any:
        seen.append(curvature.stand_alone(shared, [coin.number for coin in coins]))
        return curvature.one_by_one(shared, states, coins, n_buckets)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint, "curvature_of", look)
        kind().fit(searches(1, 60, False), progress=False, threads=1)
    assert seen
    assert not any(seen)
