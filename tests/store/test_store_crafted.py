"""Stored logs made to do harm are refused in words, before anything is indexed by what they hold.

With `NUMBA_BOUNDSCHECK` kernels are compiled and say where they leave an array; without it they
are plain Python, which does, too. The long version (`GECASMO_EXAMPLES`) opens thousands of them.
"""

from __future__ import annotations

import json
import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from crafted_logs import Frames, craft, random_log, save

from gecasmo import DBN, EM, UBM, ClickLog, open_log
from gecasmo.errors import ClickLogError, GecasmoError
from gecasmo.logs.store import StoredLog

EXAMPLES = 2000 * int(os.environ["GECASMO_EXAMPLES"]) if "GECASMO_EXAMPLES" in os.environ else 60
PARTS = 1


def many_docs(n_pages: int = 40) -> pl.DataFrame:
    """A log with a query that has so many documents that their numbers do not fit into a byte."""
    chance = np.random.default_rng(4)
    lengths = chance.integers(1, 12, n_pages)
    query = np.where(np.arange(n_pages) < 2, "wide", chance.choice(["a", "b", "c"], n_pages))
    lengths[:2] = 140
    rank = np.concatenate([np.arange(1, n + 1) for n in lengths])
    page = np.repeat(np.arange(n_pages), lengths)
    return pl.DataFrame(
        {
            "session": page,
            "query": query[page],
            "doc": [f"d{n}" for n in rank + 140 * (page == 1)],
            "rank": rank + (page % 3 == 0),
            "click": chance.random(len(page)) < 0.3,
            "device": chance.choice(["phone", "desk"], n_pages)[page],
            "price": chance.random(len(page)),
            "times": chance.integers(1, 4, n_pages)[page] * 0.5,
        }
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> StoredLog:
    path = tmp_path_factory.mktemp("crafted") / "log.gclog"
    keep, weight = ["session", "device", "price"], "times"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ClickLog.ingest(many_docs(), path, partitions=PARTS, keep=keep, weight=weight)


@pytest.fixture(scope="module")
def widest(sound: StoredLog) -> int:
    """The partition that has all kinds of files."""
    return next(n for n in range(PARTS) if "escapes.arrow" in sound._entry(n)["files"])


def _set(name: str, **columns: Any) -> Callable[[Frames, Any], None]:
    """Put other values into the last row of a frame, and perhaps of another type."""

    def change(frames: Frames, entry: Any) -> None:
        for column, value in columns.items():
            listed = [*frames[name][column].to_list()[:-1], value]
            try:
                changed = pl.Series(column, listed, frames[name][column].dtype)
            except (TypeError, OverflowError, pl.exceptions.PolarsError):
                changed = pl.Series(column, listed, strict=False)
            frames[name] = frames[name].with_columns(changed)

    return change


def _cast(name: str, column: str, kind: Any) -> Callable[[Frames, Any], None]:
    def change(frames: Frames, entry: Any) -> None:
        frames[name] = frames[name].with_columns(pl.col(column).cast(kind))

    return change


def _counts(**numbers: Any) -> Callable[[Frames, Any], None]:
    return lambda frames, entry: entry.update(numbers)


def _without_lengths(frames: Frames, entry: Any) -> None:
    frames["pages"] = frames["pages"].drop("length")
    entry["length"] = 0


def _other_docs(frames: Frames, entry: Any) -> None:
    """Numbers that only the query with very many documents can have."""
    number = pl.col("doc").clip(254, None)
    frames["results"] = frames["results"].with_columns(number)


def _ranks_downwards(frames: Frames, entry: Any) -> None:
    frames["results"] = frames["results"].with_columns(rank=500 - pl.col("rank").cast(pl.Int64))


def _marked(frames: Frames, entry: Any) -> None:
    frames["results"] = frames["results"].with_columns(doc=pl.lit(255, pl.UInt8))


def _unmarked(frames: Frames, entry: Any) -> None:
    frames["escapes"] = frames["escapes"].head(5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("results", rank=None), r"results.arrow has no 'rank', or not everywhere"),
        (_set("docs", doc=None), r"docs.arrow has no 'doc', or not everywhere"),
        (_set("queries", query=None), r"queries.arrow has results without a query"),
        (_set("pages", session=None), r"pages.arrow has no 'session', or not everywhere"),
        (_set("results", rank=-4), r"results.arrow has values of 'rank' that cannot be"),
        (_set("results", rank=0), r"results.arrow has values of 'rank' that cannot be"),
        (_set("results", rank=2**31), r"results.arrow has values of 'rank' that cannot be"),
        (_cast("results", "rank", pl.Float64), r"has values of 'rank' that cannot be"),
        (_ranks_downwards, "has ranks that do not rise on a page"),
        (_cast("results", "click", pl.String), "has clicks that are not yes or no"),
        (_set("results", click=None), r"results.arrow has no 'click', or not everywhere"),
        (_other_docs, "has numbers of documents that are not there"),
        (_set("results", doc=-1), "has values of 'doc' that cannot be"),
        (_marked, "is not about the results that are marked"),
        (_unmarked, "is not about the results that are marked"),
        (_set("escapes", doc=70_000), "escapes.arrow has numbers of documents that are not there"),
        (_set("escapes", result=10**6), "escapes.arrow has values of 'result' that cannot be"),
        (_set("pages", weight=float("nan")), "has weights that are no finite numbers"),
        (_set("pages", weight=float("inf")), "has weights that are no finite numbers"),
        (_set("pages", weight=-1.0), "has negative weights"),
        (_set("pages", length=10**6), "pages.arrow has values of 'length' that cannot be"),
        (_set("pages", length=0), "has lengths that do not add up to the results"),
        (_set("queries", docs=0), "has numbers of pages or documents that do not add up"),
        (_set("queries", pages=2**32 - 1), "has values of 'pages' that cannot be"),
        (_cast("docs", "doc", pl.Categorical), "has a column 'doc' that is not as was noted"),
        (_counts(pages=10**15), "rows instead of 1,000,000,000,000,000"),
        (_counts(docs=2**50), "docs.arrow has .* rows instead of"),
        (_counts(length=-1), "what it says of partition . is odd"),
        (_counts(weight=float("nan")), "what it says of partition . is odd"),
        (_counts(pages=2**60), "what it says of partition . is odd"),
        (_without_lengths, r"cannot have [0-9,]+ pages of 0 results"),
        (lambda frames, entry: frames.pop("docs"), "what it says of partition . is odd"),
    ],
)
def test_what_cannot_be_is_refused(
    change: Any, said: str, sound: StoredLog, widest: int, tmp_path: Path
) -> None:
    craft(sound.path, tmp_path / "odd.gclog", widest, change)
    with pytest.raises(ClickLogError, match=said):
        open_log(tmp_path / "odd.gclog").partition(widest)


@pytest.mark.skipif(not hasattr(pl, "Int128"), reason="this Polars has no such integers")
def test_weights_of_any_width_are_read(sound: StoredLog, widest: int, tmp_path: Path) -> None:
    """Found by a soak: NumPy has no integers of 128 bits."""
    craft(sound.path, tmp_path / "wide.gclog", widest, _cast("pages", "weight", pl.Int128))
    weight = open_log(tmp_path / "wide.gclog").partition(widest).weight
    np.testing.assert_array_equal(weight, np.floor(sound.partition(widest).weight))


def test_what_is_no_file_is_not_read(sound: StoredLog, widest: int, tmp_path: Path) -> None:
    """A pipe or a device in the place of a file would never end."""
    craft(sound.path, tmp_path / "odd.gclog", widest, lambda frames, entry: None)
    path = tmp_path / "odd.gclog" / f"partition-{widest:05}" / "docs.arrow"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ClickLogError, match=r"docs.arrow is no file"):
        open_log(tmp_path / "odd.gclog").partition(widest)


def test_pages_that_nothing_stands_for_are_not_believed(tmp_path: Path) -> None:
    pages = pl.DataFrame({"session": [1], "query": ["a"], "doc": ["b"], "click": [True]})
    whole = ClickLog.ingest(pages, tmp_path / "log.gclog", rank=None)

    def claim(frames: Frames, entry: Any) -> None:
        for name in frames:
            frames[name] = frames[name].head(0)
        entry |= {"pages": 2**50, "length": 0, "results": 0, "docs": 0, "queries": 0}

    craft(whole.path, tmp_path / "odd.gclog", 0, claim)
    with pytest.raises(ClickLogError, match=r"cannot have [0-9,]+ pages of 0 results"):
        open_log(tmp_path / "odd.gclog").partition(0)


def test_names_of_other_files_are_refused(sound: StoredLog, tmp_path: Path) -> None:
    def elsewhere(frames: Frames, entry: Any) -> None:
        entry["files"]["../manifest.json"] = entry["files"]["docs.arrow"]

    craft(sound.path, tmp_path / "odd.gclog", 0, elsewhere)
    with pytest.raises(ClickLogError, match="what it says of partition 0 is odd"):
        open_log(tmp_path / "odd.gclog")


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": {"session": "Int64", "doc": "Int64"}},
        {"notes": [{"kind": "x"}]},
        {"source_columns": {"doc": 3}},
        {"source_columns": {"weight": []}},  # found by a soak
        {"source_results": "x"},
    ],
)
def test_odd_words_are_refused(changes: Any, sound: StoredLog, tmp_path: Path) -> None:
    craft(sound.path, tmp_path / "odd.gclog", 0, lambda frames, entry: None)
    manifest = json.loads((tmp_path / "odd.gclog" / "manifest.json").read_text())
    save(tmp_path / "odd.gclog", manifest | changes)
    with pytest.raises(ClickLogError, match="what it says of columns or notes is odd"):
        open_log(tmp_path / "odd.gclog")


@pytest.mark.usefixtures("checked_kernels")
def test_a_rank_that_no_memory_has_room_for(tmp_path: Path) -> None:
    """It may be, and fits take it; but there are as many click histories as ranks."""
    rank = [1, 2**31 - 1, 1, 2]
    rows = {"session": [1, 1, 2, 2], "query": ["a"] * 4, "doc": ["x", "y"] * 2, "rank": rank}
    frame = pl.DataFrame({**rows, "click": [1, 0, 0, 1]})
    log = ClickLog.ingest(frame, tmp_path / "log.gclog", fold=False)
    model = UBM().fit(log, EM(max_iter=1, tol=0))
    with pytest.raises(ClickLogError, match=r"rows, one for each click history .* 2,147,483,647"):
        model.predict_clicks(log.partition(0))


def use(log: StoredLog) -> None:
    """All that kernels read of a log, in all the ways in which they do."""
    method = EM(max_iter=1, tol=0)
    for part in log.partitions():
        part.to_frame()
        if part.n_results:
            UBM().fit(part, method, impossible="floor").predict_clicks(part)
    log.split(0.5, by="query")
    DBN().fit(log, method, impossible="floor").predict_conditional_clicks(log.head(5))


@pytest.mark.usefixtures("checked_kernels")
def test_crafted_logs_end_in_words(sound: StoredLog, widest: int, tmp_path: Path) -> None:
    seed = 1 if EXAMPLES == 60 else random.randrange(2**32)
    chance = random.Random(seed)
    n_refused, failures = 0, []
    for number in range(EXAMPLES):
        path = tmp_path / f"{number}.gclog"
        told = random_log(sound.path, path, widest, chance)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                log = open_log(path)
                repr(log)
                use(log)
        except GecasmoError:
            n_refused += 1
        except Exception as problem:  # so that one failure does not hide others
            failures.append(f"seed {seed}, log {number}: {told}: {problem!r}")
    assert not failures
    assert n_refused > EXAMPLES / 3
