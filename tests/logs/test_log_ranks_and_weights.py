"""Ranks from 1 with gaps, in any order; weights of pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import gecasmo
from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs import ClickLog, read_log
from gecasmo.testing import plain_python


def message(source: Any, **names: Any) -> str:
    with pytest.raises(ClickLogError) as caught:
        read_log(source, **names)
    return str(caught.value)


def test_gaps_are_kept_and_rows_may_come_in_any_order(columns: dict[str, Any]) -> None:
    log = read_log(columns)
    assert log.rank.tolist() == [2, 1, 1, 4, 2]
    assert log.page.tolist() == [0, 1, 0, 1, 1]
    assert log.order.tolist() == [2, 0, 1, 4, 3]
    assert log.starts.tolist() == [0, 2, 5]
    assert log.lengths.tolist() == [2, 3]


def test_ranks_from_zero_are_shifted_with_a_warning(columns: dict[str, Any]) -> None:
    columns["rank"] = [1, 0, 0, 3, 1]
    with pytest.warns(ClickLogWarning, match="the dict: rank: ranks start at 0 here") as caught:
        log = read_log(columns)
    assert log.rank.tolist() == [2, 1, 1, 4, 2]
    assert log.column("rank").to_list() == [2, 1, 1, 4, 2]
    assert caught[0].filename == __file__


def test_a_log_whose_ranks_start_later_is_not_shifted(columns: dict[str, Any]) -> None:
    columns["rank"] = [3, 2, 2, 5, 3]
    assert read_log(columns).rank.tolist() == [3, 2, 2, 5, 3]


def test_without_ranks_the_order_of_rows_counts(columns: dict[str, Any]) -> None:
    del columns["rank"]
    assert read_log(columns, rank=None).rank.tolist() == [1, 1, 2, 2, 3]


def test_bad_ranks_are_told(columns: dict[str, Any]) -> None:
    columns["rank"] = [1.5, -1.0, 3e9, float("inf"), 2.0]
    text = message(columns)
    assert "rank: 2 values are not whole numbers, first: row 0 has 1.5" in text
    assert "rank: 1 value is negative, first: row 1 has -1.0" in text
    assert "rank: 1 value is larger than 2147483647, first: row 2 has 3000000000.0" in text


def test_ranks_are_not_text(columns: dict[str, Any]) -> None:
    columns["rank"] = list("abcde")
    expected = "rank: 5 values are not whole numbers (the column holds String), first: row 0"
    assert expected in message(columns)


def test_pages_weigh_one_by_default(columns: dict[str, Any]) -> None:
    log = read_log(columns)
    assert log.weight.dtype == np.float64
    assert log.weight.tolist() == [1.0, 1.0]


def test_weights_go_with_pages(columns: dict[str, Any]) -> None:
    columns["n"] = [3, 0.5, 3, 0.5, 0.5]
    log = read_log(columns, weight="n")
    assert log.weight.tolist() == [3.0, 0.5]
    assert "n" not in log.columns
    assert log.to_frame()["weight"].to_list() == columns["n"]


def test_bad_weights_are_told(columns: dict[str, Any]) -> None:
    columns["n"] = [-3.0, float("nan"), -3.0, float("inf"), 1.0]
    text = message(columns, weight="n")
    assert "weight ('n'): 2 values are negative, first: row 0 has -3.0" in text
    assert "weight ('n'): 2 values are not finite numbers, first: row 1 has nan" in text


def test_a_weight_may_not_vary_on_a_page(columns: dict[str, Any]) -> None:
    columns["n"] = [1, 1, 1, 2, 2]
    expected = "weight ('n'): 1 page with more than one weight, first: session 's1' has 1.0 and 2.0"
    assert expected in message(columns, weight="n")


def test_weights_are_not_text(columns: dict[str, Any]) -> None:
    expected = "weight ('device'): 5 values are not finite numbers (the column holds String)"
    assert expected in message(columns, weight="device")


def test_pages_without_clicks(columns: dict[str, Any]) -> None:
    del columns["click"]
    log = read_log(columns, click=None)
    assert log.click.dtype == np.bool_
    assert not log.click.any()


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1e308, 1e308], "weight: 5 values are larger than 9007199254740992, first: row 0"),
        ([1e300, 1.0], "weight: 2 values are larger than 9007199254740992"),
        ([8e15, 8e15], r"weight: all add up to 1.6e\+16, more than 9007199254740992; divide all"),
    ],
)
def test_weights_that_cannot_be_counted_are_refused(
    columns: dict[str, Any], weights: list[float], expected: str, tmp_path: Path
) -> None:
    named = dict(zip(("s2", "s1"), weights, strict=True))
    weighed = columns | {"weight": [named[session] for session in columns["session"]]}
    with pytest.raises(ClickLogError, match=expected):
        read_log(weighed, weight="weight")
    in_order = pl.DataFrame(weighed).sort("session", "rank")
    with pytest.raises(ClickLogError, match="weight"):
        read_log(in_order, weight="weight")
    with pytest.raises(ClickLogError, match=r"larger than|all add up to"):
        ClickLog.ingest(weighed, tmp_path / "log.gclog", weight="weight")


def test_pages_that_weigh_nothing_teach_nothing(columns: dict[str, Any]) -> None:
    log = read_log(columns | {"weight": [0] * 5}, weight="weight")
    with pytest.raises(ClickLogError, match="nothing to fit: all pages of the log weigh 0"):
        gecasmo.PBM().fit(log)


def test_weights_that_are_very_far_apart_give_numbers(columns: dict[str, Any]) -> None:
    named = {"s2": 1e15, "s1": 1e-15}
    weighed = columns | {"weight": [named[session] for session in columns["session"]]}
    with plain_python():
        fitted = gecasmo.PBM().fit(read_log(weighed, weight="weight"))
    assert np.isfinite([fitted.report_.objective, fitted.report_.log_likelihood]).all()
    for table in fitted.parameters.values():
        assert table["probability"].is_between(0, 1).all()
