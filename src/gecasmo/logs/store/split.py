"""A stored log in two parts, without a copy: each page is taken or left when it is read.

The pages of a partition that are taken are as if they were all of it, with counts of their own.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, either
from gecasmo.hashes import Hashes, hash_values, mix
from gecasmo.logs.store.builder import smallest
from gecasmo.logs.store.manifest import sums_of
from gecasmo.logs.store.partition import Decoder
from gecasmo.logs.store.stored_log import StoredLog

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

# Documents are looked up for so many results at a time.
_RESULTS_AT_A_TIME = 1 << 20
# Up to so many sessions are all looked at, so that the share of the test part is as asked for.
MOST_COUNTED = 1_000_000
_ALL = float(2**64)


def selected(partition: Decoder, chosen: Bools, weight: Floats | None = None) -> Decoder:
    """Take some of the pages of a partition, with other weights if any are given.

    They are called what they were. Nothing is decoded, so this takes little more memory than the
    files.
    """
    frames, n_pages = dict(partition.frames), partition.n_pages
    rows = np.repeat(chosen, partition.lengths)
    pages = frames.get("pages", pl.DataFrame())
    columns = [column for column in pages if weight is None or column.name != "weight"]
    if weight is not None:
        columns.append(pl.Series("weight", weight))
    if "session" not in pages.columns:
        columns.append(partition.sessions(0, n_pages))
    frames["pages"] = pl.DataFrame(columns).filter(pl.Series(chosen, dtype=pl.Boolean))
    of_query = partition.queries(0, n_pages)[chosen]
    left = np.bincount(of_query, minlength=frames["queries"].height)
    frames["queries"] = frames["queries"].with_columns(pages=pl.Series(left.astype(np.uint32)))
    for name, kept in (("page_columns", chosen), ("results", rows), ("result_columns", rows)):
        if name in frames:
            frames[name] = frames[name].filter(pl.Series(kept, dtype=pl.Boolean))
    if "escapes" in frames:
        frames["escapes"] = _moved_escapes(frames["escapes"], rows)
    return partition.with_frames(frames, int(chosen.sum()))


def _moved_escapes(escapes: pl.DataFrame, rows: Bools) -> pl.DataFrame:
    """Those of the chosen results, by their new places."""
    places = escapes["result"].to_numpy().astype(np.int64)
    stays = rows[places]
    new = (np.cumsum(rows) - 1)[places[stays]]
    return pl.DataFrame({"result": smallest(new), "doc": escapes["doc"].filter(pl.Series(stays))})


def counts_of(partition: Decoder, is_counting: bool) -> dict[str, Any]:
    """Count what the manifest counts.

    `is_counting` says whether the weight of a page is the number of pages of the source that it
    stands for; else "sessions" are the pages that are stored.
    """
    n_pages = partition.n_pages
    weight = partition.weights(0, n_pages)
    times = weight if is_counting else np.ones(n_pages)
    n_queries = int((partition.frames["queries"]["pages"] > 0).sum())
    seen = np.zeros(partition.frames["docs"].height, np.bool_)
    n_clicks, first = 0.0, 0
    while first < n_pages:
        last = partition.last_page(first, _RESULTS_AT_A_TIME)
        seen[partition.docs(first, last)] = True
        clicks = partition.frames["results"]["click"][partition.rows(first, last)].to_numpy()
        n_clicks += np.repeat(times[first:last], partition.lengths[first:last])[clicks].sum()
        first = last
    return {
        "sessions": round(float(times.sum())),
        "pages": n_pages,
        "results": int(partition.lengths.sum()),
        "queries": n_queries if "query" in partition.frames["queries"].columns else 0,
        "docs": int(seen.sum()),
        "source_results": round(float((times * partition.lengths).sum())),
        "clicks": round(float(n_clicks)),
        "weight": float(weight.sum()),
    }


@dataclass(frozen=True)
class Split:
    """Which pages are in the test part, as `StoredLog.split` was asked."""

    test: float
    by: str
    seed: int
    depth: int  # how often the log was split before; parts of parts are drawn anew
    folded: bool  # whether a page stands for as many sessions as it weighs, each of which is drawn
    below: int = 0  # groups whose hash is at most this are in the test part

    def hashes(self, values: pl.Series) -> Hashes:
        """A random number for each group; it depends on nothing but the group and the seed."""
        salt = mix(np.array([self.seed % 2**64, self.depth], np.uint64))
        return mix(hash_values(values) ^ salt[0] ^ mix(salt[1:])[0])

    def pages(self, partition: Decoder, is_test: bool) -> tuple[Bools, Floats | None]:
        """Which pages of a partition are in a part, and what they weigh where that is new."""
        n_pages = partition.n_pages
        if self.by == "session" and self.folded:
            weight = partition.weights(0, n_pages)
            tested = self._drawn(partition, weight)
            weight = tested if is_test else weight - tested
            return weight > 0, weight
        queries = partition.frames["queries"]
        if self.by in queries.columns:
            in_test = self._is_below(queries[self.by])[partition.queries(0, n_pages)]
        else:
            in_test = self._is_below(partition.page_values(self.by))
        return (in_test if is_test else ~in_test), None

    def _is_below(self, values: pl.Series) -> Bools:
        found: Bools = self.hashes(values) <= np.uint64(self.below)
        return found

    def _drawn(self, partition: Decoder, weight: Floats) -> Floats:
        """How many of the sessions that each page stands for are in the test part."""
        if (weight != np.floor(weight)).any() or (weight < 1).any():
            raise _no_sessions()
        random = np.random.default_rng([self.seed, self.depth, partition.number])
        return random.binomial(weight.astype(np.int64), self.test).astype(np.float64)


class StoredPart(StoredLog):
    """A part of a stored log; made by `StoredLog.split`, and used like any stored log.

    Nothing is copied: its pages are picked from the partitions of the whole log whenever they are
    read. `path` and `bytes` are those of the whole log. Where a log is folded and has weights of
    its own, nobody knows any more how many sessions a part has: then `n_sessions` is `n_pages`.
    """

    def __init__(
        self, whole: StoredLog, split: Split, is_test: bool, counts: list[dict[str, Any]]
    ) -> None:
        self.whole, self.split_by, self.is_test = whole, split, is_test
        manifest = {
            "columns": whole.dtypes,
            "source_columns": whole.source_columns,
            "has_query": whole.has_query,
            "folded": whole.is_folded,
            "walk": whole._walk,
            "notes": [],
            **sums_of(counts),
            "source_results": sum(count["source_results"] for count in counts),
        }
        partitions = [{**whole._entry(number), **count} for number, count in enumerate(counts)]
        told = [whole.fingerprint, asdict(split), is_test, counts]
        self._set(whole.path, {**manifest, "partitions": partitions})
        self.notes = whole.notes
        self.weights_are_counts = whole.weights_are_counts
        self.fingerprint = hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def _decoder(self, number: int) -> Decoder:
        partition = self.whole._decoder(number)
        return selected(partition, *self.split_by.pages(partition, self.is_test))

    def part_of(self) -> str:
        """Say which part of the whole it is."""
        how = self.split_by
        which, share = ("test", how.test) if self.is_test else ("training", 1 - how.test)
        return f"{which}, {share:.3g} of the log by {how.by}, seed {how.seed}"


def split_stored(log: StoredLog, test: float, by: str, seed: int) -> tuple[StoredPart, StoredPart]:
    """Split a stored log; `StoredLog.split` explains the arguments."""
    _check(log, test, by, seed)
    depth = log.split_by.depth + 1 if isinstance(log, StoredPart) else 0
    split = Split(float(test), by, int(seed), depth, log.weights_are_counts)
    if by != "session" or not log.is_folded:
        split = replace(split, below=_below(log, split))
    counts: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for number in range(log.n_partitions):
        partition = log._decoder(number)
        for is_test in (False, True):
            part = selected(partition, *split.pages(partition, is_test))
            counts[is_test].append(counts_of(part, log.weights_are_counts))
    for which, found in zip(("training", "test"), counts, strict=True):
        if not sum(each["pages"] for each in found):
            raise ClickLogError(
                f"split(test={test!r}, by={by!r}, seed={seed!r}): the {which} part would have no "
                "pages; try another share or another seed."
            )
    return StoredPart(log, split, False, counts[0]), StoredPart(log, split, True, counts[1])


def _check(log: StoredLog, test: float, by: str, seed: int) -> None:
    is_number = isinstance(test, Real) and not isinstance(test, bool)
    if not is_number or not 0 < test < 1:
        raise ClickLogError(f"split(test={test!r}): the share should be a number between 0 and 1.")
    ways = dict.fromkeys(("session", "query", log.partitioned_by))
    if by not in ways:
        raise ClickLogError(
            f"split(by={by!r}): a stored log is split by {' or by '.join(map(repr, ways))}. For "
            "other parts, such as days, ingest their files into logs of their own."
        )
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ClickLogError(f"split(seed={seed!r}): a whole number from 0 on is needed.")
    if by == "query" and not log.has_query:
        raise ClickLogError("split(by='query'): the log has no queries; split it by 'session'.")
    if by == "session" and log.is_folded and not log.weights_are_counts:
        raise _no_sessions()


def _no_sessions() -> ClickLogError:
    return ClickLogError(
        "split(by='session'): the log is folded and has weights of its own, so nobody knows how "
        "many sessions a page stands for. Split it by='query', or ingest it with "
        f"{either('fold=False', '--no-fold')}."
    )


def _below(log: StoredLog, split: Split) -> int:
    """The hash up to which groups are in the test part."""
    counts = {"query": log.n_queries, "session": log.n_pages}
    # Of queries and tasks that are in many partitions nobody knows the number.
    is_counted = split.by == "session" or split.by == log.partitioned_by == "query"
    n_groups = counts[split.by] if is_counted else log.n_pages
    if n_groups < 2:
        raise ClickLogError(
            f"split(by={split.by!r}): needs at least two different values, and the log has "
            f"{n_groups}."
        )
    # A query that is in several logs, such as those of two days, must be in the same part of each.
    if split.by != "session" or n_groups > MOST_COUNTED:
        return int(split.test * _ALL)
    found = []
    for number in range(log.n_partitions):
        partition = log._decoder(number)
        found.append(split.hashes(partition.sessions(0, partition.n_pages)))
    n_test = min(max(round(split.test * n_groups), 1), n_groups - 1)
    return int(np.partition(np.concatenate(found), n_test - 1)[n_test - 1])
