"""Which sessions are for training, which for testing, and what is said about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from comparing_examples import ragged

from gecasmo import EM, ClickLog, read_log
from gecasmo.errors import ClickLogError
from gecasmo.evaluation import compare

FEW = EM(max_iter=2, tol=0)


def made(log: ClickLog, **options: Any) -> Any:
    return compare(log, ["GCTR"], bootstrap=0, method=FEW, **options)


def with_days() -> ClickLog:
    log = ragged(40, 1)
    pages = np.arange(log.n_sessions)
    frame = log.to_frame().with_columns(
        day=pl.Series((pages * 7 % 40)[log.page]), user=pl.Series((pages % 9)[log.page])
    )
    return read_log(frame, weight="weight")


@pytest.mark.parametrize("by", ["session", "query", "user"])
def test_splits_are_those_of_the_log(by: str) -> None:
    log = with_days()
    train, test = log.split(test=0.3, by=by, seed=4)
    found = made(log, test=0.3, by=by, seed=4)
    assert found.setting.n_train_sessions == train.n_sessions
    assert found.setting.n_test_sessions == test.n_sessions
    assert found.setting.split == f"split by {by}, seed 4"
    rate = found.models["GCTR"].parameters["click_rate"]
    weight = train.weight[train.page]
    heads = weight[train.click].sum()
    assert rate["probability"][0] == pytest.approx((heads + 1) / (weight.sum() + 2))
    row = found.table.row(by_predicate=pl.col("model") == "GCTR", named=True)
    assert row["log_likelihood"] == pytest.approx(found.models["GCTR"].score(test), rel=1e-12)


def test_train_on_the_past() -> None:
    log = with_days()
    found = made(log, time="day", test=0.25)
    late = log.session_column("day").to_numpy() >= 30
    row = found.table.row(by_predicate=pl.col("model") == "GCTR", named=True)
    expected = found.models["GCTR"].score(log.take(late))
    assert found.setting.n_test_sessions == late.sum() == 10
    assert row["log_likelihood"] == pytest.approx(expected, rel=1e-12)
    assert "trained on the past by 'day'" in str(found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"test": 1.5}, r"compare\(test=1\.5\): the share"),
        ({"by": "town"}, r"compare\(by='town'\): The log has no column 'town'"),
        ({"by": "doc"}, r"compare\(by='doc'\): The column 'doc' has more than one value"),
        ({"time": "hour"}, r"compare\(time='hour'\): The log has no column 'hour'"),
        ({"time": "day", "by": "user"}, r"compare\(by='user', time='day'\): split by"),
        ({"by": "one"}, r"compare\(by='one'\): needs at least two"),
    ],
)
def test_errors_name_the_flag(options: dict[str, Any], words: str) -> None:
    log = with_days()
    frame = log.to_frame().with_columns(one=pl.lit(1))
    with pytest.raises(ClickLogError, match=words):
        made(read_log(frame, weight="weight"), **options)


def test_no_log() -> None:
    with pytest.raises(ClickLogError, match=r"compare\(log=...\) takes a ClickLog, not dict"):
        made({})  # type: ignore[arg-type]
    with pytest.raises(ClickLogError, match=r"compare\(heldout=...\) takes a ClickLog, not str"):
        made(ragged(10), heldout="clicks.csv")


# -- a held-out log --------------------------------------------------------------------------------
def test_a_held_out_log_is_the_test_part() -> None:
    log, test = ragged(30, 1), ragged(12, 2)
    found = made(log, heldout=test)
    assert found.setting.n_train_sessions == 30
    assert found.setting.n_test_sessions == 12
    assert any(note.startswith("12 session ids occur in both logs") for note in found.notes)
    with pytest.raises(ClickLogError, match=r"leave out by= and time="):
        made(log, heldout=test, by="query")
    frame = test.to_frame().with_columns(pl.col("session") + "x")
    found = made(log, heldout=read_log(frame, weight="weight"))
    assert not any("occur in both" in note for note in found.notes)


def test_a_held_out_log_that_does_not_fit() -> None:
    log, test = ragged(30, 1), ragged(12, 2).to_frame()
    with pytest.raises(ClickLogError, match="the held-out log has no column 'query'"):
        made(log, heldout=read_log(test.drop("query"), weight="weight"))
    numbers = test.with_columns(doc=pl.col("doc").str.slice(1).cast(pl.Int64))
    with pytest.raises(ClickLogError, match="the column 'doc' is Int64 there and String"):
        made(log, heldout=read_log(numbers, weight="weight"))


def test_ids_may_be_wider_or_categories() -> None:
    log, test = ragged(30, 1).to_frame(), ragged(12, 2).to_frame()
    number = pl.col("doc").str.slice(1)
    found = [
        made(
            read_log(log.with_columns(doc=number.cast(one)), weight="weight"),
            heldout=read_log(test.with_columns(doc=number.cast(other)), weight="weight"),
        )
        for one, other in ((pl.Int64, pl.Int64), (pl.Int32, pl.Int64))
    ]
    assert found[0].table.drop("seconds").equals(found[1].table.drop("seconds"))
    kinds = pl.Enum([f"d{i}" for i in range(5)])
    as_enum = read_log(log.with_columns(pl.col("doc").cast(kinds)), weight="weight")
    plain = made(read_log(log, weight="weight"), seed=2)
    assert made(as_enum, seed=2).table["ctr_rmse"].equals(plain.table["ctr_rmse"])


def test_nothing_to_be_tested_on() -> None:
    log = ragged(30, 1)
    with pytest.raises(ClickLogError, match="nothing to compare models on"):
        made(log, heldout=log.take([]))
    nothing = read_log(log.to_frame().with_columns(weight=pl.lit(0.0)), weight="weight")
    with pytest.raises(ClickLogError, match="nothing to compare models on"):
        made(log, heldout=nothing)


# -- what was never in training --------------------------------------------------------------------
def test_the_share_of_unseen_documents_and_pairs_is_noted() -> None:
    train = read_log({"session": [1, 1], "query": ["a", "a"], "doc": ["x", "y"], "rank": [1, 2],
                      "click": [1, 0]})  # fmt: skip
    test = read_log({"session": [2, 2, 3, 3], "query": ["a", "a", "b", "b"],
                     "doc": ["x", "z", "x", "y"], "rank": [1, 2, 1, 2], "click": [1, 0, 0, 1],
                     "weight": [2.0, 2.0, 3.0, 3.0]}, weight="weight")  # fmt: skip
    told = "\n".join(made(train, heldout=test).notes)
    assert "20.0 % of the test results show documents that were never in training" in told
    assert "80.0 % of the test results show pairs of query and document" in told
    assert "never in training" not in "\n".join(made(train, heldout=train).notes)
