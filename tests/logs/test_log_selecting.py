"""Some of the sessions, and other signals on the same pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gecasmo.errors import ClickLogError
from gecasmo.logs import read_log


def test_a_mask_and_indices_take_the_same(columns: dict[str, Any]) -> None:
    log = read_log(columns | {"n": [3, 2, 3, 2, 2]}, weight="n")
    for chosen in (np.array([False, True]), np.array([1]), [1]):
        part = log.take(chosen)
        assert part.sessions.to_list() == ["s1"]
        assert part.column("doc").to_list() == ["a", "c", "d"]
        assert part.page.tolist() == [0, 0, 0]
        assert part.order.tolist() == [0, 2, 1]
        assert part.weight.tolist() == [2.0]


def test_rows_keep_their_order(columns: dict[str, Any]) -> None:
    log = read_log(columns)
    assert log.take([1, 0]).to_frame().equals(log.to_frame())


def test_nothing_can_be_taken(columns: dict[str, Any]) -> None:
    part = read_log(columns).take([])
    assert (len(part), part.n_results) == (0, 0)
    assert part.starts.tolist() == [0]
    assert repr(part).startswith("ClickLog")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (np.array([True]), r"the mask has shape \(1,\), but there are 2 sessions"),
        ([2], "no session with index 2; the log has 2 sessions, numbered from 0"),
        ([-1], "no session with index -1"),
        ([0, 0], "session 0 is asked for more than once"),
        (["s1"], "a boolean for each session or indices of sessions, not <U2"),
    ],
)
def test_what_does_not_fit_is_refused(columns: dict[str, Any], chosen: Any, expected: str) -> None:
    with pytest.raises(ClickLogError, match=expected):
        read_log(columns).take(chosen)


def test_signals_are_added_and_clicks_replaced(columns: dict[str, Any]) -> None:
    log = read_log(columns | {"n": [3, 2, 3, 2, 2]}, weight="n")
    flipped = ~log.click
    other = log.with_signals({"click": flipped, "cart": np.array([0, 0, 1, 1, 0])})
    assert other.click.tolist() == flipped.tolist()
    assert other.column("click").to_list() == flipped.tolist()
    assert other.column("cart").to_list() == [False, False, True, True, False]
    assert other.columns == [*log.columns, "cart"]
    assert other.order.tolist() == log.order.tolist()
    assert other.weight.tolist() == log.weight.tolist()
    assert log.click.tolist() != flipped.tolist()


def test_a_signal_can_replace_a_value_of_a_nested_page() -> None:
    log = read_log({"doc": [["a", "b"]], "click": [[0, 1]], "bought": [True]})
    other = log.with_signals({"bought": [True, False]})
    assert other.column("bought").to_list() == [True, False]
    with pytest.raises(ClickLogError, match="'bought' has more than one value"):
        other.session_column("bought")


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ({"doc": [True] * 5}, "cannot replace 'doc'"),
        ({"cart": [True] * 4}, r"'cart' has shape \(4,\), but there are 5 results"),
        ({"cart": [0, 1, 2, 0, 0]}, "'cart' has values that are neither 0 nor 1"),
    ],
)
def test_signals_that_do_not_fit_are_refused(
    columns: dict[str, Any], signals: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ClickLogError, match=expected):
        read_log(columns).with_signals(signals)
