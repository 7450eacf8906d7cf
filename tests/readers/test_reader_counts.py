"""Sums of impressions and clicks as a log: which models lose nothing, and what others are told."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from reader_helpers import SAMPLES

import gecasmo
from gecasmo.checks.counts import check_alone
from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs import ClickLog, read_counts
from gecasmo.models import CATALOGUE

SUMS = SAMPLES / "events" / "counts.csv"


def quietly(source: Any, **options: Any) -> ClickLog:
    with pytest.warns(ClickLogWarning, match="counts"):
        return read_counts(source, **options)


def a_log(n_pages: int = 300) -> ClickLog:
    draw = np.random.default_rng(3)
    docs = np.array([draw.permutation(4)[:3] for _ in range(n_pages)])
    rows = pl.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), 3),
            "query": np.repeat(draw.choice(["x", "y"], n_pages), 3),
            "doc": docs.ravel(),
            "rank": np.tile([1, 2, 3], n_pages),
            "click": draw.random(3 * n_pages) < np.tile([0.4, 0.2, 0.1], n_pages),
        }
    )
    return gecasmo.read_log(rows)


def sums_of(log: ClickLog) -> ClickLog:
    grouped = log.to_frame().group_by("query", "doc", "rank", maintain_order=True)
    return quietly(grouped.agg(impressions=pl.len(), clicks=pl.col("click").sum()))


def test_a_row_is_two_pages_of_one_result() -> None:
    log = quietly(SUMS)
    assert log.lengths.max() == 1
    frame = log.to_frame().filter(query="cats", doc="a").select("rank", "click", "weight")
    assert frame.rows() == [(1, True, 31.0), (1, False, 69.0)]
    assert log.total_weight == 320
    (note,) = (note for note in log.notes if note.kind == "counts")
    assert note.count == 320
    assert "cascade models and UBM cannot" in str(note)


@pytest.mark.parametrize("name", ["RCTR", "PBM"])
def test_models_of_independent_results_lose_nothing(name: str) -> None:
    log = a_log()
    sums = sums_of(log)
    model = getattr(gecasmo, name)
    forms = {coin: gecasmo.Table(pseudo_counts=(1, 2)) for coin in model().forms}
    of_pages, of_sums = model(**forms), model(**forms)
    method = gecasmo.EM(max_iter=20, tol=0, accelerate=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_pages.fit(log, method, progress=False, intervals=False)
        of_sums.fit(sums, method, progress=False, intervals=False)
    for coin, table in of_pages.parameters.items():
        keys = list(model().keys[coin])
        other = of_sums.parameters[coin]
        one, two = (t.sort(keys) if keys else t for t in (table, other))
        assert one["probability"].to_list() == pytest.approx(two["probability"].to_list())
        assert one["heads"].to_list() == pytest.approx(two["heads"].to_list())


def test_check_says_what_sums_cannot_tell() -> None:
    sums = sums_of(a_log(60))
    told = {}
    for name in CATALOGUE:
        found = check_alone(getattr(gecasmo, name)(), sums).findings
        assert [finding.severity for finding in found] in ([], ["error"])
        if found:
            told[name] = found[0].message
        assert not check_alone(getattr(gecasmo, name)(), a_log(9)).findings
    assert {"GCTR", "RCTR", "DCTR", "DRCTR", "PBM"}.isdisjoint(told)
    assert {"UBM", "CM", "DCM", "SDBN", "DBN", "CCM"} <= set(told)
    assert told["DBN"].startswith(
        "DBN cannot be estimated from this log: every page has one result"
    )
    assert "needs 'last_click'" in told["UBM"]


def test_check_counts_what_the_sums_count() -> None:
    found = gecasmo.check(sums_of(a_log()), "PBM")
    assert found.worst != "error"
    (counts,) = found.about("counts")
    assert "900 impressions" in counts.message
    assert not found.about("pages")
    # A log of pages that happen to have one result each is no log of sums, but as little.
    alone = a_log().to_frame().with_columns(session=pl.int_range(pl.len()))
    assert check_alone(gecasmo.DBN(), gecasmo.read_log(alone)).findings
    assert not gecasmo.check(a_log()).about("counts")


def test_names_are_guessed_and_ranks_from_0_shifted() -> None:
    sums = {"q": ["x"], "url": ["a"], "position": [0], "views": ["1,000"], "click_count": [3]}
    log = quietly(sums)
    assert log.rank.tolist() == [1, 1]
    assert log.weight.tolist() == [3, 997]
    told = {note.kind: str(note) for note in log.notes}
    assert 'impressions="views", clicks="click_count"' in told["columns guessed"]
    assert "ranks from 0" in told


def test_without_ranks_and_impressions() -> None:
    log = quietly(
        {"query": ["x", "y"], "doc": ["a", "a"], "impressions": [4, 0], "clicks": [4, 0]}, rank=None
    )
    assert log.rank.tolist() == [1]
    assert {n.kind for n in log.notes} >= {"ranks left out", "rows without impressions", "counts"}


ROW = {"query": ["x"], "doc": ["a"], "rank": [1], "impressions": [5], "clicks": [2]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clicks": [6]}, "1 row with more clicks than impressions, first: row 0 has 6 of 5"),
        ({"clicks": [-1]}, "clicks: 1 value is negative"),
        ({"clicks": [None]}, "clicks: 1 value is missing"),
        ({"impressions": ["many"]}, "impressions: 1 value is not a finite number"),
        ({"impressions": [0], "clicks": [0]}, "nothing was ever shown"),
        (
            {"rank": [1.5]},
            "rank: 1 value is not a whole number, first: row 0 has 1.5; an average of .*rank=None",
        ),
        ({"doc": [None]}, "doc: .* missing"),
        ({"session": [3]}, "'session': counts have no such column"),
    ],
)
def test_what_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ClickLogError, match=words):
        read_counts(ROW | change)


def test_clicks_alone_are_refused() -> None:
    only = {name: values for name, values in ROW.items() if name != "impressions"}
    with pytest.raises(
        ClickLogError, match=r"(?s)lacks the column 'impressions'.*Clicks alone are"
    ):
        read_counts(only)
    with pytest.raises(
        ClickLogError, match=r"Are these counts of impressions and clicks\? read_counts"
    ):
        gecasmo.read_log(ROW)
    with pytest.raises(ClickLogError, match=r"Are these counts of clicks\? Then impressions are"):
        gecasmo.read_log(only)


def test_ranks_that_are_missing_are_asked_for() -> None:
    only = {name: values for name, values in ROW.items() if name != "rank"}
    words = r"(?s)lacks the column 'rank'.*It has: query, doc, impressions, clicks\..*rank=None"
    with pytest.raises(ClickLogError, match=words):
        read_counts(only)
    with pytest.raises(ClickLogError, match="lacks the column 'words'"):
        read_counts(ROW, query="words")


def test_weights_and_the_note_survive(tmp_path: Path) -> None:
    log = quietly(SUMS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickLogWarning)
        stored = ClickLog.ingest(log, tmp_path / "sums.gclog")
    assert stored.total_weight == log.total_weight
    assert "counts" in {note.kind for note in stored.notes}
    assert "counts" in {note.kind for part in log.split(test=0.5) for note in part.notes}
