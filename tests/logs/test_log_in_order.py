"""Logs whose rows stand in order are read at one look; the long way gives the very same log."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal, assert_series_equal

from gecasmo import ClickLog, read_log
from gecasmo.errors import ClickLogError
from gecasmo.logs import pages
from gecasmo.logs.assembly import _Assembly


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    """Pages one after the other, of which a few have something about them."""
    n_pages = draw(st.integers(1, 6))
    rows: list[dict[str, Any]] = []
    for page in range(n_pages):
        session = draw(st.sampled_from([page, page, page, 10 - page, 0]))
        query = draw(st.integers(0, 2))
        rank = draw(st.sampled_from([1, 1, 1, 0, 4]))
        for _ in range(draw(st.integers(1, 4))):
            odd_query = draw(st.integers(0, 30)) == 0
            rows.append(
                {
                    "session": session,
                    "query": 9 if odd_query else query,
                    "doc": draw(st.integers(0, 3)),
                    "rank": rank,
                    "click": draw(st.sampled_from([0, 0, 1, 1, 0, 1, 0, 2])),
                    "shop": page,
                }
            )
            rank += draw(st.sampled_from([1, 1, 1, 1, 2, 0]))
    frame = pl.DataFrame(rows)
    if draw(st.booleans()):
        frame = frame.with_columns(pl.col("session", "query", "doc").cast(pl.String))
    if draw(st.booleans()):
        frame = frame.with_columns(pl.col("click").cast(pl.Boolean), pl.col("rank").cast(pl.UInt8))
    if draw(st.integers(0, 9)) == 0:
        holes = draw(st.sampled_from(["session", "query", "doc", "rank", "click"]))
        frame = frame.with_columns(
            pl.when(pl.col("doc").cast(pl.String) != "1").then(pl.col(holes)).alias(holes)
        )
    cut = draw(st.integers(0, frame.height))
    # Columns in several pieces, as Parquet files give them.
    return pl.concat([frame[:cut], frame[cut:]], rechunk=False)


def outcome(table: pl.DataFrame) -> ClickLog | str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read_log(table)
        except ClickLogError as error:
            return str(error)


@settings(deadline=None)
@given(tables(), st.sampled_from([1, 2, 3, 1000]))
def test_both_ways_give_the_same_log(table: pl.DataFrame, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "_BLOCK", block)
        found = outcome(table)
        patch.setattr(_Assembly, "_log_in_order", lambda self: None)
        expected = outcome(table)
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
        return
    assert_frame_equal(found.to_frame(), expected.to_frame())
    assert_series_equal(found.sessions, expected.sessions)
    for name in ("page", "rank", "click", "weight", "order", "starts", "lengths"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    assert found.notes == expected.notes
    assert found.is_sorted == expected.is_sorted
    assert found.has_plain_ranks == expected.has_plain_ranks
    for name in ("query", "shop", "doc"):
        assert found.is_page_constant(name) == expected.is_page_constant(name)
    wanted = np.arange(len(found)) % 2 == 0
    one, other = found.take(wanted), expected.take(wanted)
    assert_frame_equal(one.to_frame(), other.to_frame())
    np.testing.assert_array_equal(one.page, other.page)
    np.testing.assert_array_equal(one.starts, other.starts)


def test_rows_in_order_need_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long way is not taken, and nothing is made that nobody asked for."""
    monkeypatch.setattr(_Assembly, "_log_in_any_order", None)
    log = read_log(
        {
            "session": ["b", "b", "a"],
            "query": [7, 7, 7],
            "doc": [1, 2, 1],
            "rank": [1, 2, 1],
            "click": [True, False, True],
            "price": [1.0, 2.0, 3.0],
            "weight": [2.0, 2.0, 0.5],
        },
        weight="weight",
    )
    assert not {"page", "rank", "click", "order"} & set(vars(log))
    assert log.is_sorted
    assert log.has_plain_ranks
    assert log.weight.tolist() == [2.0, 0.5]
    assert log.page.tolist() == [0, 0, 1]
    assert log.order.tolist() == [0, 1, 2]
    assert log.columns == ["session", "query", "doc", "rank", "click", "price"]


@pytest.mark.parametrize(
    ("ranks", "is_plain"), [([1, 2, 1], True), ([1, 3, 1], False), ([2, 3, 1], False)]
)
def test_plain_ranks(ranks: list[int], is_plain: bool) -> None:
    columns = {"session": [1, 1, 2], "doc": [1, 2, 3], "click": [0, 0, 1]}
    assert read_log({**columns, "rank": ranks}).has_plain_ranks == is_plain
    shuffled = {name: values[::-1] for name, values in columns.items()}
    log = read_log({**shuffled, "rank": ranks[::-1]})
    assert not log.is_sorted
    assert log.has_plain_ranks == is_plain
