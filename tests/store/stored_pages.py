"""Pages of logs as plain Python values, to compare what was stored with what was read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo import ClickLog
from gecasmo.hashes import hash_values
from gecasmo.logs.store import StoredLog


def simulated(n_pages: int, seed: int, n_queries: int = 7, n_docs: int = 4) -> pl.DataFrame:
    """A log with a row a result, and two columns more than it needs."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 6, n_pages)
    n_results = int(lengths.sum())
    rank = np.arange(n_results) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    return pl.DataFrame(
        {
            "session": np.repeat([f"s{n}" for n in range(n_pages)], lengths),
            "query": np.repeat(random.integers(0, n_queries, n_pages), lengths),
            "doc": [f"doc {n}" for n in random.integers(0, n_docs, n_results)],
            "rank": rank,
            "click": random.random(n_results) < 0.2,
            "device": np.repeat(random.choice(["phone", "desk"], n_pages), lengths),
            "price": random.integers(0, 3, n_results) * 1.5,
        }
    )


def pages_of(log: ClickLog, *, session: bool = False) -> list[Any]:
    """Each page: its query, its columns by rank, and its weight."""
    names = [name for name in log.columns if name not in ("session", "query")]
    columns = {name: log.column(name).to_list() for name in names}
    query = log.session_column("query").to_list() if log.has_query else [None] * len(log)
    found = []
    for page in range(log.n_sessions):
        rows = log.order[log.starts[page] : log.starts[page + 1]]
        shown = tuple((name, tuple(columns[name][row] for row in rows)) for name in names)
        key = (query[page] if len(rows) else None, shown)
        found.append((key, log.sessions[page] if session else None, float(log.weight[page])))
    return found


def multiset(pages: list[Any]) -> Counter[Any]:
    """Pages with the sum of their weights."""
    total: Counter[Any] = Counter()
    for key, session, weight in pages:
        total[repr((key, session))] += weight
    return total


def all_pages(log: StoredLog, *, session: bool = False) -> list[Any]:
    return [page for part in log.partitions() for page in pages_of(part, session=session)]


def assert_well_stored(log: StoredLog) -> None:
    """Pages are where and how the documentation says."""
    place: dict[Any, int] = {}
    bits = log.n_partitions.bit_length() - 1
    n_pages = n_results = 0
    weight = 0.0
    for number, part in enumerate(log.partitions()):
        assert part.columns == log.columns
        assert np.array_equal(part.order, np.arange(part.n_results))
        assert part.n_sessions == log.partition_pages[number]
        assert part.n_results == log.partition_results[number]
        n_pages, n_results = n_pages + part.n_sessions, n_results + part.n_results
        weight += float(part.weight.sum())
        key = part.session_column("query") if log.has_query else part.sessions
        hashes = hash_values(key)
        if bits and len(hashes):
            assert (hashes >> np.uint64(64 - bits) == number).all()
        assert (hashes[1:] >= hashes[:-1]).all()
        for value in set(key.to_list()):
            assert place.setdefault(value, number) == number
    assert (n_pages, n_results) == (log.n_pages, log.n_results)
    assert weight == log.total_weight


def files_of(log: StoredLog) -> dict[str, bytes]:
    """All files of a stored log."""
    return {
        str(path.relative_to(log.path)): path.read_bytes()
        for path in sorted(Path(log.path).rglob("*"))
        if path.is_file()
    }
