"""The results that a page can be made of, by query, and what is asked of pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, GecasmoError, ModelError, option
from gecasmo.logs import ClickLog
from gecasmo.logs.runs import offsets
from gecasmo.logs.values import LARGEST_RANK
from gecasmo.logs.views import as_view
from gecasmo.model.log_parts import is_stored
from gecasmo.model.structured import as_frame

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# What an estimate rests on if somebody gave it.
_GIVEN = "given"
# How long pages are if nobody says so, and none is shown.
_USUAL_SIZE = 10


@dataclass(frozen=True)
class Rules:
    """What is asked of pages.

    Attributes
    ----------
    pinned : the column with the rank at which a result has to stand, null for any; or a dictionary
        of ranks by document
    at_most : by column, how many results of one kind there may be on a page
    apart : columns of whose kinds no two results may stand one below the other
    """

    pinned: str | Mapping[Any, int] | None = None
    at_most: Mapping[str, int] | None = None
    apart: str | Sequence[str] = ()

    def kinds(self) -> dict[str, tuple[int, bool]]:
        """By column, how many of a kind there may be, and whether they have to be apart."""
        apart = [self.apart] if isinstance(self.apart, str) else list(self.apart)
        most = dict(self.at_most or {})
        for column, n in most.items():
            if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
                raise ModelError(
                    f"{option('at_most', {column: n})}: how many of a kind, at least 1."
                )
        return {c: (most.get(c, 1 << 30), c in apart) for c in dict.fromkeys([*most, *apart])}


@dataclass(frozen=True)
class Candidates:
    """Candidates, the rows of a query one after the other.

    Attributes
    ----------
    frame : a row for each, with `query` and `doc`
    queries : the queries, in order
    starts : the first row of each query
    shown : the rank of each on the page that is shown now, 0 if it is not there
    """

    frame: pl.DataFrame
    queries: pl.Series
    starts: Integers
    shown: Integers

    @property
    def counts(self) -> Integers:
        """How many there are, by query."""
        return np.diff(self.starts)

    @property
    def has_shown(self) -> bool:
        """Whether it is known what is shown now."""
        return bool(self.shown.any())

    def sizes(self, size: int | None) -> Integers:
        """How long the page of each query can be; None: as long as the one that is shown now."""
        if size is not None:
            return np.minimum(self.counts, size)
        query = np.repeat(np.arange(len(self.queries)), self.counts)
        now = np.bincount(query[self.shown > 0], minlength=len(self.queries))
        return np.where(now > 0, now, np.minimum(self.counts, _USUAL_SIZE))

    def kept(self, keep: NDArray[np.bool_]) -> Candidates:
        """Some of them; queries without any are left out."""
        query = np.repeat(np.arange(len(self.queries)), self.counts)[keep]
        counts = np.bincount(query, minlength=len(self.queries))
        some = pl.Series(counts > 0, dtype=pl.Boolean)
        return Candidates(
            self.frame.filter(pl.Series(keep, dtype=pl.Boolean)),
            self.queries.filter(some),
            offsets(counts[counts > 0]),
            self.shown[keep],
        )

    def shown_pages(self, sizes: Integers) -> Integers:
        """The page that is shown now, by query and rank: numbers of candidates of the query, -1
        below its end."""
        pages = np.full((len(self.queries), int(sizes.max(initial=1))), -1, np.int64)
        query = np.repeat(np.arange(len(self.queries)), self.counts)
        number = np.arange(len(query)) - self.starts[query]
        there = np.flatnonzero(self.shown)
        there = there[np.lexsort((self.shown[there], query[there]))]
        first = np.searchsorted(query[there], np.arange(len(self.queries)))
        place = np.arange(len(there)) - first[query[there]]
        fits = place < sizes[query[there]]
        pages[query[there[fits]], place[fits]] = number[there[fits]]
        return pages

    def pins(self, rules: Rules, sizes: Integers) -> Integers:
        """The rank at which each has to stand, from 0, or -1."""
        if rules.pinned is None:
            return np.full(len(self.frame), -1, np.int64)
        if isinstance(rules.pinned, str):
            if rules.pinned == "rank" and "rank" not in self.frame.columns:
                column = pl.Series("rank", np.where(self.shown > 0, self.shown, np.nan))
            else:
                column = _column(self.frame, rules.pinned, "pinned")
            if not column.dtype.is_numeric() and column.null_count() < len(column):
                raise ClickLogError(f"The column '{rules.pinned}' of pinned ranks has no numbers.")
            ranks = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
        else:
            given = dict(rules.pinned)
            docs = self.frame["doc"].to_list()
            lost = [doc for doc in given if doc not in set(docs)]
            if lost:
                raise ClickLogError(
                    f"{option('pinned', dict(given))}: there is no candidate {lost[0]!r}."
                )
            ranks = np.array([given.get(doc, np.nan) for doc in docs], float)
        limit = np.repeat(sizes, self.counts)
        is_pinned = ~np.isnan(ranks)
        is_rank = (ranks == np.round(ranks)) & (ranks >= 1) & (ranks <= limit)
        wrong = np.flatnonzero(is_pinned & ~is_rank)
        if len(wrong):
            first = int(wrong[0])
            row = self.frame.row(first, named=True)
            few = limit[first] == np.repeat(self.counts, self.counts)[first]
            why = (
                f", since the query has no more candidates; those with few examinations are left "
                f"out ({option('min_examinations', 0)} takes all)"
            )
            raise ClickLogError(
                f"{row['doc']!r} of query {row['query']!r} is pinned to rank "
                f"{ranks[first]:g}, and the page has ranks 1 to {limit[first]}"
                f"{why if few and ranks[first] > limit[first] else ''}."
            )
        pin = np.where(is_pinned, ranks, 0).astype(np.int64) - 1
        query = np.repeat(np.arange(len(self.queries)), self.counts)
        held = query[pin >= 0] * (1 << 20) + pin[pin >= 0]
        if len(np.unique(held)) < len(held):
            values, times = np.unique(held, return_counts=True)
            twice = int(values[times > 1][0])
            raise ClickLogError(
                f"Several results of query {self.queries[twice >> 20]!r} are pinned to rank "
                f"{twice % (1 << 20) + 1}."
            )
        return pin

    def kinds(self, rules: Rules) -> tuple[Integers, Integers, NDArray[np.bool_]]:
        """The kind of each under each rule (-1: none), how many there may be, and whether apart."""
        wanted = rules.kinds()
        kinds = np.full((len(wanted), len(self.frame)), -1, np.int64)
        for number, column in enumerate(wanted):
            values = _column(self.frame, column, "at_most" if rules.at_most else "apart")
            values = values.fill_nan(None) if values.dtype.is_float() else values
            codes = values.rank("dense").cast(pl.Int64).fill_null(0).to_numpy() - 1
            kinds[number] = codes
        most = np.array([n for n, _ in wanted.values()], np.int64)
        near = np.array([is_near for _, is_near in wanted.values()], bool)
        return kinds, most, near


def _column(frame: pl.DataFrame, name: str, asked: str) -> pl.Series:
    if name not in frame.columns:
        raise ClickLogError(
            f"{option(asked, name)}: the candidates have no such column; they have: "
            f"{', '.join(frame.columns)}."
        )
    return frame[name]


def as_candidates(given: Any) -> Candidates:
    """Candidates of a data frame, or those that a log has shown, with the page shown most often."""
    if is_stored(given):
        parts = [_of_log(part) for part in given.partitions()]  # type: ignore[attr-defined]
        frame = pl.concat([part for part in parts if len(part)], how="vertical_relaxed")
    elif isinstance(given, ClickLog):
        frame = _of_log(given)
    else:
        frame = as_frame(given, "candidates")
    if "doc" not in frame.columns:
        raise ClickLogError(
            f"Candidates need a column 'doc', and mostly 'query'; there are: "
            f"{', '.join(frame.columns)}."
        )
    if not len(frame):
        raise ClickLogError("There are no candidates.")
    if "query" not in frame.columns:
        frame = frame.with_columns(query=pl.lit("all"))
    for name in ("query", "doc"):
        if frame[name].null_count():
            number = int(frame[name].is_null().arg_max() or 0)
            raise ClickLogError(f"Row {number} of the candidates has no {name}.")
    frame = frame.drop("session", "click", strict=False)
    twice = frame.select(pl.struct("query", "doc").is_duplicated()).to_series()
    if twice.any():
        row = frame.row(int(twice.arg_max() or 0), named=True)
        raise ClickLogError(
            f"{row['doc']!r} is a candidate of query {row['query']!r} more than once."
        )
    first = frame.select(pl.col("query").rle_id()).to_series()
    if first.n_unique() != frame["query"].n_unique():
        order = frame["query"].rank("dense").arg_sort()
        frame = frame[order]
    codes = frame["query"].rle_id().to_numpy().astype(np.int64)
    starts = offsets(np.bincount(codes))
    shown = np.zeros(len(frame), np.int64)
    if "rank" in frame.columns:
        if not frame["rank"].dtype.is_numeric():
            raise ClickLogError(
                "The column 'rank' of the candidates, as shown now, has no numbers."
            )
        ranks = frame["rank"].cast(pl.Float64).fill_null(0).to_numpy()
        if not np.all((ranks >= 0) & (ranks <= LARGEST_RANK) & (ranks == np.round(ranks))):
            raise ClickLogError("The column 'rank' of the candidates has other numbers than ranks.")
        shown = ranks.astype(np.int64)
        places = pl.DataFrame({"query": codes, "rank": shown}).filter(pl.col("rank") > 0)
        both = places.filter(pl.struct("query", "rank").is_duplicated())
        if len(both):
            number, rank = both.row(0)
            query = frame["query"][int(starts[number])]
            raise ClickLogError(
                f"Several candidates of query {query!r} have the rank {rank}: it is the rank on "
                "the page that is shown now, and empty for those that are not there."
            )
    queries = frame["query"].gather(pl.Series(starts[:-1]))
    return Candidates(frame.drop("rank", strict=False), queries, starts, shown)


def _of_log(log: ClickLog) -> pl.DataFrame:
    """Each pair of a log once, with its rank on the page that its query was shown most often."""
    frame = log.to_frame()
    if "query" not in frame.columns:
        frame = frame.with_columns(query=pl.lit("all"))
    if not len(frame):
        return frame
    frame = frame.with_columns(
        pl.Series("*page", log.page), pl.Series("*weight", log.weight[log.page])
    )
    pages = (
        frame.sort("*page", "rank")
        .group_by("*page", maintain_order=True)
        .agg(pl.col("query").first(), pl.col("*weight").first(), pl.col("doc").alias("*docs"))
        .with_columns(pl.col("*docs").hash().alias("*order"))
    )
    often = (
        pages.group_by("query", "*order", maintain_order=True)
        .agg(pl.col("*weight").sum(), pl.col("*page").first())
        .sort("*weight", descending=True, maintain_order=True)
        .group_by("query", maintain_order=True)
        .agg(pl.col("*page").first())
    )
    now = frame.join(often, on=["query", "*page"], how="semi").select("query", "doc", "rank")
    own = [name for name in frame.columns if not name.startswith("*") and name != "rank"]
    pairs = frame.select(own).unique(["query", "doc"], keep="first", maintain_order=True)
    return pairs.join(now, on=["query", "doc"], how="left", maintain_order="left").sort(
        "query", maintain_order=True
    )


def evidence(model: Model, frame: pl.DataFrame) -> Floats:
    """How often each candidate is expected to have been examined in the log of the fit.

    It is the largest number of flips of a coin that has the document in its key. Infinity where a
    probability was given by hand, or follows from features.
    """
    found = np.full(len(frame), -1.0)
    for coin, keys in model.keys.items():
        if "doc" not in keys or not set(keys) <= {"query", "doc", *frame.columns}:
            continue
        if not set(keys) <= set(frame.columns):
            continue
        try:
            told = model.estimates(coin, frame)
        except GecasmoError:
            continue
        trials = told["trials"].fill_null(0.0).to_numpy().astype(float)
        is_free = (told["rests_on"] == _GIVEN).fill_null(False).to_numpy()
        is_free = is_free | bool(model.forms[coin].columns)
        found = np.maximum(found, np.where(is_free, np.inf, trials))
    return np.where(found < 0, np.inf, found)


def pages_of(
    model: Model, frame: pl.DataFrame, rows: Integers, page: Integers, rank: Integers
) -> ClickLog:
    """A log of pages that nobody has seen: candidates by row of their frame, page and rank.

    Pages and ranks are in order. Of a model that follows users from page to page, each is the first
    page of a task.
    """
    view = as_view(model.view)
    if view.needs and not view.spans_pages:
        raise ModelError(
            f"{model.name} reads pages under the view '{view.name}', which needs to know more of "
            "a page than the order of its results; page_value and what_if take such pages."
        )
    counts = np.bincount(page)
    sessions = pl.Series("session", np.arange(len(counts)))
    made = [pl.Series("session", page), pl.Series("rank", rank.astype(np.int32))]
    none = np.zeros(len(rows), bool)
    made += [pl.Series(signal, none) for signal in model.structure.full.body.signals]
    if view.spans_pages:
        made += [pl.Series("task", page), pl.Series("page_number", np.ones(len(page), np.int64))]
    columns = frame.drop([column.name for column in made], strict=False)[pl.Series(rows)]
    return ClickLog(
        columns.with_columns(made),
        page.astype(np.uint32),
        sessions,
        np.ones(len(counts)),
    )
