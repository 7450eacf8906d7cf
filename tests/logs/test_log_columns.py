"""Columns: their names, ids of several columns, and values of pages."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs import read_log


def test_roles_come_first_under_their_own_names(columns: dict[str, Any]) -> None:
    frame = pl.DataFrame(columns).rename({"doc": "url", "query": "q"}).select(pl.all().reverse())
    log = read_log(frame.select(sorted(frame.columns)), doc="url", query="q")
    assert log.columns == ["session", "query", "doc", "rank", "click", "device", "price"]
    assert log.column("doc").name == "doc"
    assert log.column("doc").to_list() == columns["doc"][::-1]


def test_the_arrays_have_their_types(columns: dict[str, Any]) -> None:
    log = read_log(columns)
    assert (log.page.dtype, log.rank.dtype, log.click.dtype) == (np.uint32, np.int32, np.bool_)
    assert (log.order.dtype, log.starts.dtype, log.lengths.dtype) == (np.int64,) * 3
    assert all(
        array.flags.writeable and array.flags.c_contiguous
        for array in (log.page, log.rank, log.click, log.weight, log.order, log.starts)
    )
    assert (len(log), log.n_sessions, log.n_results, log.has_query) == (2, 2, 5, True)


def test_an_unknown_column_is_refused_with_those_there_are(columns: dict[str, Any]) -> None:
    with pytest.raises(ClickLogError, match=r"no column 'colour'\. It has: session, query, doc"):
        read_log(columns).column("colour")


def test_ids_of_several_columns_are_structs(columns: dict[str, Any]) -> None:
    log = read_log(columns, session=["session", "device"], doc=["doc", "device"])
    assert log.sessions.to_list() == [
        {"session": "s2", "device": "phone"},
        {"session": "s1", "device": "desk"},
    ]
    assert log.column("doc")[0] == {"doc": "b", "device": "phone"}
    assert "device" in log.columns
    assert log.page.tolist() == [0, 1, 0, 1, 1]


@pytest.mark.parametrize(
    "ids",
    [
        [True, False, True, False, False],
        [datetime.date(2024, 1, 2 - i) for i in (0, 1, 0, 1, 1)],
        [7, -1, 7, -1, -1],
    ],
)
def test_many_types_are_ids(columns: dict[str, Any], ids: list[Any]) -> None:
    log = read_log(columns | {"session": ids})
    assert log.sessions.to_list() == ids[:2]
    assert log.page.tolist() == [0, 1, 0, 1, 1]


def test_a_column_whose_name_is_taken_is_left_out_with_a_warning(columns: dict[str, Any]) -> None:
    columns["url"] = columns["doc"]
    with pytest.warns(ClickLogWarning, match=r"'doc' was left out, because doc \('url'\) took"):
        log = read_log(columns, doc="url")
    assert "url" not in log.columns


def test_an_unused_weight_column_is_an_ordinary_one(columns: dict[str, Any]) -> None:
    log = read_log(columns | {"weight": [1, 2, 3, 4, 5]})
    assert log.column("weight").to_list() == [1, 2, 3, 4, 5]
    assert log.weight.tolist() == [1.0, 1.0]


def test_values_of_pages(columns: dict[str, Any]) -> None:
    log = read_log(columns)
    assert log.session_column("device").to_list() == ["phone", "desk"]
    assert log.session_column("session").to_list() == ["s2", "s1"]
    assert log.is_page_constant("device")
    assert not log.is_page_constant("price")


def test_nulls_and_nans_are_values_like_others(columns: dict[str, Any]) -> None:
    log = read_log(columns | {"a": [None, 1, None, 1, 1], "b": [float("nan")] * 5})
    assert log.session_column("a").to_list() == [None, 1]
    assert log.is_page_constant("b")


def test_a_value_that_varies_is_refused_with_a_session(columns: dict[str, Any]) -> None:
    with pytest.raises(
        ClickLogError,
        match=r"'price' has more than one value on a page: session 's2' has 1\.5 and 3\.0",
    ):
        read_log(columns).session_column("price")


def test_a_log_of_one_row() -> None:
    log = read_log({"session": [1], "doc": [2], "rank": [3], "click": [True]})
    assert log.order.tolist() == [0]
    assert log.starts.tolist() == [0, 1]
    assert log.to_frame().rows() == [(1, 2, 3, True)]
