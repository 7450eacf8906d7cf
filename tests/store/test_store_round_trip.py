"""What comes out of a stored log is what `read_log` reads, whatever the log looks like."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_pages import all_pages, assert_well_stored, multiset, pages_of

from gecasmo import ClickLog, open_log, read_log
from gecasmo.errors import ClickLogWarning


@st.composite
def id_lists(draw: st.DrawFn, most: int) -> list[Any]:
    """Different ids, all integers or all texts."""
    kind = draw(st.sampled_from([st.integers(-5, 2**40), st.text(max_size=8)]))
    return draw(st.lists(kind, min_size=1, max_size=most, unique=True))


@st.composite
def tables(draw: st.DrawFn) -> tuple[pl.DataFrame, dict[str, Any]]:
    """A log with one row a result or a page, and how to read it."""
    nested = draw(st.booleans())
    has_query = draw(st.booleans())
    has_weight = draw(st.booleans())
    has_rank = draw(st.booleans())
    from_0 = draw(st.booleans())
    queries, docs = draw(id_lists(4)), draw(id_lists(6))
    few_pages = draw(st.integers(1, 3))  # so that pages repeat
    shapes = []
    for _ in range(few_pages):
        length = draw(st.integers(0 if nested else 1, 4))
        ranks = sorted(draw(st.sets(st.integers(1, 9), min_size=length, max_size=length)))
        shapes.append(
            {
                "query": draw(st.sampled_from(queries)),
                "weight": draw(st.sampled_from([0.5, 1.0, 3.0])),
                "doc": [draw(st.sampled_from(docs)) for _ in range(length)],
                "rank": [rank - int(from_0) for rank in ranks],
                "click": [draw(st.booleans()) for _ in range(length)],
                "price": [draw(st.sampled_from([None, 1.5, 2.0])) for _ in range(length)],
                "device": draw(st.sampled_from(["phone", "desk"])),
            }
        )
    pages = [
        {"session": number, **draw(st.sampled_from(shapes))}
        for number in range(draw(st.integers(1, 12)))
    ]
    frame = pl.DataFrame(
        pages,
        schema_overrides={
            "doc": pl.List(pl.DataFrame({"d": docs}).schema["d"]),
            "rank": pl.List(pl.Int64),
            "click": pl.List(pl.Boolean),
            "price": pl.List(pl.Float64),
        },
    )
    dropped = [] if has_query else ["query"]
    dropped += [] if has_rank else ["rank"]
    frame = frame.drop(dropped)
    if not nested:
        lists = [name for name in ("doc", "rank", "click", "price") if name in frame.columns]
        frame = frame.explode(lists)
        if has_rank and draw(st.booleans()):
            seed = draw(st.integers(0, 99))
            frame = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    roles: dict[str, Any] = {"rank": "rank" if has_rank else None}
    if has_weight:
        roles["weight"] = "weight"
    else:
        frame = frame.drop("weight")
    return frame, roles


@given(
    table=tables(),
    partitions=st.sampled_from([None, 1, 2, 8, 64]),
    keep=st.sampled_from([(), ("price",), ("device", "price"), ("session",), "all"]),
    fold=st.sampled_from([False, True, "auto"]),
    cut=st.integers(1, 5),
    kind=st.sampled_from(["frame", "frames", "log", "parquet"]),
    most=st.sampled_from([2, 7, 10**6]),
)
@settings(deadline=None, max_examples=8 * int(os.environ.get("GECASMO_EXAMPLES", "1")))
def test_a_stored_log_has_the_pages_of_the_source(
    table: tuple[pl.DataFrame, dict[str, Any]],
    partitions: int | None,
    keep: Any,
    fold: Any,
    cut: int,
    kind: str,
    most: int,
) -> None:
    frame, roles = table
    keeps_session = keep in (("session",), "all")
    if keeps_session and fold is True:
        fold = "auto"
    # A partition is put together in shares of so many results.
    shares = patch("gecasmo.logs.store.ingest.most_rows", lambda *_: most)
    calm = patch("os.fsync", lambda _: None)  # no power cut is tested here, and it takes long
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder, shares, calm:
        warnings.simplefilter("ignore", ClickLogWarning)
        log = read_log(frame, **roles)
        if kind == "frame":
            source: Any = frame
        elif kind == "frames":
            source = (frame.slice(at, cut) for at in range(0, frame.height, cut))
        elif kind == "log":
            source = [log]
        else:
            for number, at in enumerate(range(0, frame.height, cut)):
                frame.slice(at, cut).write_parquet(Path(folder) / f"in-{number:03}.parquet")
            source = str(Path(folder) / "in-*.parquet")
        target = Path(folder) / "log.gclog"
        stored = ClickLog.ingest(
            source,
            target,
            keep=keep,
            fold=fold,
            partitions=partitions,
            **(roles if kind != "log" else {}),
        )
        assert not target.with_name("log.gclog.part").exists()
        assert open_log(target).fingerprint == stored.fingerprint
        stored.check()
        assert_well_stored(stored)
        assert stored.n_sessions == len(stored) == log.n_sessions
        assert stored.total_weight == log.weight.sum()
        assert stored.n_clicks == log.click.sum()
        if not stored.is_folded:
            assert stored.n_results == log.n_results
        has_ids = keeps_session or not log.has_query
        expected = _with_columns(log, stored)
        assert multiset(all_pages(stored, session=has_ids)) == multiset(
            pages_of(expected, session=has_ids)
        )


def _with_columns(log: ClickLog, stored: Any) -> ClickLog:
    """The log with the columns that are stored."""
    frame = log._frame.select(stored.columns)
    return ClickLog(frame, log.page, log.sessions, log.weight, pages=log.page_columns)
