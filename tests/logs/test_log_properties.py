"""What holds for every log."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from gecasmo.logs import ClickLog, read_log

page = st.tuples(
    st.sampled_from(["cats", "dogs", ""]),
    st.lists(
        st.tuples(st.integers(1, 9), st.booleans()),
        min_size=1,
        max_size=5,
        unique_by=lambda result: result[0],
    ),
    st.sampled_from([0.0, 0.5, 1.0, 3.0]),
)


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    pages = draw(st.lists(page, min_size=1, max_size=6))
    ids = draw(st.permutations(range(len(pages))))
    rows = [
        (f"s{name}", query, f"d{rank % 4}", rank, click, weight)
        for name, (query, results, weight) in zip(ids, pages, strict=True)
        for rank, click in results
    ]
    names = ["session", "query", "doc", "rank", "click", "weight"]
    return pl.DataFrame(rows, schema=names, orient="row")


def chained(log: ClickLog) -> dict[str, list[tuple[object, ...]]]:
    """Return the results of each session by rank, whatever the order of rows and sessions."""
    frame = log.to_frame()[log.order]
    parts = zip(log.sessions, log.starts[:-1], log.starts[1:], strict=True)
    return {session: frame[int(a) : int(b)].rows() for session, a, b in parts}


def docs_of(log: ClickLog) -> dict[str, list[object]]:
    docs = log.column("doc")[log.order].to_list()
    parts = zip(log.sessions, log.starts[:-1], log.starts[1:], strict=True)
    return {session: docs[a:b] for session, a, b in parts}


@settings(deadline=None)  # the first example may wait for imports or a busy machine
@given(tables(), st.randoms(use_true_random=False))
def test_shuffling_rows_changes_their_order_only(table: pl.DataFrame, random: object) -> None:
    rows = list(range(table.height))
    random.shuffle(rows)  # type: ignore[attr-defined]
    log, shuffled = (read_log(t, weight="weight") for t in (table, table[rows]))
    assert chained(shuffled) == chained(log)
    assert dict(zip(shuffled.sessions, shuffled.weight, strict=True)) == dict(
        zip(log.sessions, log.weight, strict=True)
    )
    assert shuffled.column("doc").to_list() == log.column("doc")[rows].to_list()
    assert (
        shuffled.sessions.to_list() == table[rows]["session"].unique(maintain_order=True).to_list()
    )


@settings(deadline=None)
@given(tables())
def test_the_chain_is_sorted_and_complete(table: pl.DataFrame) -> None:
    log = read_log(table)
    assert sorted(log.order.tolist()) == list(range(log.n_results))
    for number, (a, b) in enumerate(zip(log.starts[:-1], log.starts[1:], strict=True)):
        part = log.order[a:b]
        assert set(log.page[part]) == {number}
        assert np.all(np.diff(log.rank[part]) > 0)
    assert log.sessions.gather(log.page).to_list() == table["session"].to_list()


@settings(deadline=None)
@given(tables(), st.sampled_from(["log.parquet", "log.csv"]))
def test_writing_and_reading_changes_nothing(table: pl.DataFrame, name: str) -> None:
    log = read_log(table, weight="weight")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        log.write(path)
        weighted = bool(np.any(log.weight != 1))
        again = read_log(path, weight="weight" if weighted else None)
    assert again.to_frame().equals(log.to_frame())
    assert again.weight.tolist() == log.weight.tolist()


@settings(deadline=None)
@given(tables())
def test_nested_and_long_logs_agree(table: pl.DataFrame) -> None:
    nested = table.group_by("session", "query", "weight", maintain_order=True).agg(pl.all())
    long = read_log(table, weight="weight")
    assert chained(read_log(nested, weight="weight")) == chained(long)


@settings(deadline=None)
@given(tables(), st.data())
def test_taking_keeps_what_the_sessions_had(table: pl.DataFrame, data: st.DataObject) -> None:
    log = read_log(table, weight="weight")
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(log), max_size=len(log))))
    part = log.take(mask)
    both = {**docs_of(part), **docs_of(log.take(~mask))}
    assert both == docs_of(log)
    wanted = log.sessions.filter(pl.Series(mask)).to_list()
    assert part.sessions.to_list() == wanted
