"""The best order of results, and which of them to show, under any model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, ModelError, either, option
from gecasmo.logs import ClickLog
from gecasmo.model.beliefs import drawn_states
from gecasmo.model.frame_files import table_kind, write_frames
from gecasmo.model.log_parts import whole_view
from gecasmo.pages.candidates import Candidates, Rules, as_candidates, evidence
from gecasmo.pages.chains import Chains, Found, chosen_rows, in_pieces, is_proven, page_log
from gecasmo.pages.outlook import Foretold, check_draws, check_level, ends
from gecasmo.pages.worth import Worth
from gecasmo.report import TextTable, counted, html_of, wrapped

if TYPE_CHECKING:
    from gecasmo.model.base import Model
    from gecasmo.pages.promise import Promise

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_ROWS_SHOWN = 10
# Draws from which it is told how little a candidate may bring.
_CAUTION_DRAWS = 24


@dataclass(frozen=True)
class Search:
    """How pages are looked for; see `Model.best_page`."""

    size: int | None = 10
    quantile: float = 0.25
    min_examinations: float = 10.0
    effort: int = 200
    seed: int = 0
    rules: Rules = field(default_factory=Rules)

    def check(self) -> None:
        """Refuse what makes no sense."""
        for name, least in (("size", 1), ("effort", 0)):
            value = getattr(self, name)
            if value is None and name == "size":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ModelError(f"{option(name, value)}: a whole number, at least {least}.")
        if not 0 < self.quantile < 1:
            raise ModelError(
                f"{option('quantile', self.quantile)}: a share between 0 and 1; 0.5 orders by what "
                "is expected, less is cautious."
            )
        if not self.min_examinations >= 0:
            raise ModelError(f"{option('min_examinations', self.min_examinations)}: at least 0.")


@dataclass(frozen=True, repr=False)
class BestPages:
    """The best page of each query.

    Attributes
    ----------
    frame : a row for each result of the best pages: `query`, `rank`, `doc`, and `shown_rank`, the
        rank that it has now (null if it is not shown)
    queries : a row for each query: `candidates`, `left_out` (for lack of evidence), `worth` with
        `low` and `high`; of the page shown now `shown_worth`, the `lift` over it with `lift_low`
        and `lift_high`, and `better`, the probability that the best page is worth more; `score`,
        what was maximised (the same as worth if the quantile is 0.5), `gap`, by how much another
        page could score more at most, and whether the page `is_proven` to be the best
    explored : with `draws`, the best page of each draw from the posterior: `draw`, `query`, `rank`,
        `doc`
    promise : the lift to be expected, cross-fitted, if there was a log; see `Promise`
    """

    model: str
    worth: str
    quantile: float
    level: float
    frame: pl.DataFrame
    queries: pl.DataFrame
    explored: pl.DataFrame | None = None
    promise: Promise | None = None

    def write(self, path: Any) -> None:
        """Write the pages to a table: .parquet, .csv, .tsv or .jsonl."""
        target = Path(path)
        write_frames(iter([self.frame]), target, table_kind(target, "pages") or "parquet")

    def to_dict(self) -> dict[str, Any]:
        """The summary, ready for JSON."""
        found = {"model": self.model, "worth": self.worth, "quantile": self.quantile}
        numbers = self.queries.select(
            pl.col("worth", "shown_worth", "lift", "better", "gap").mean(),
            proven=pl.col("is_proven").sum(),
            pages=pl.len(),
            left_out=pl.col("left_out").sum(),
        ).row(0, named=True)
        promise = None if self.promise is None else self.promise.to_dict()
        return {**found, **numbers, "promise": promise}

    @property
    def _title(self) -> str:
        told = f"{self.model}: the best pages of {counted(len(self.queries), 'query', 'queries')}, "
        return told + f"by {self.worth}"

    @property
    def _sentences(self) -> list[str]:
        own = self.queries
        said = []
        if self.quantile != 0.5:
            said.append(
                f"Each result counts with the {self.quantile:.0%} quantile of what it may bring."
            )
        proven = int(own["is_proven"].sum())
        gap = float(np.mean(own["gap"].to_numpy()))
        said.append(
            f"{proven:,} of {len(own):,} pages are proven to be the best by that; the mean gap to "
            f"what no page exceeds is {gap:.4f}."
        )
        left = int(own["left_out"].sum())
        if left:
            said.append(f"{counted(left, 'candidate')} left out: too few examinations.")
        lift = own["lift"].drop_nulls()
        if len(lift) and self.promise is None:
            said.append(
                "Over what is shown now, the model promises "
                f"{float(np.mean(lift.to_numpy())):+.4f} a page; that is too much, since the best "
                "was chosen by the same log that values it. Give the log, for a lift that holds."
            )
        if self.promise is not None:
            said.append(str(self.promise))
        return said

    def _table(self) -> TextTable:
        shown = ["query", "worth", "low", "high", "lift", "better", "gap", "candidates"]
        frame = self.queries.select(shown)
        empty = [name for name in shown if frame[name].null_count() == len(frame)]
        digits = dict.fromkeys(("worth", "low", "high", "gap"), "{:.4f}".format)
        digits |= {"lift": "{:+.4f}".format, "better": "{:.0%}".format}
        return TextTable.of(frame.drop(empty), most=_ROWS_SHOWN, formats=digits)

    def __repr__(self) -> str:
        said = "\n".join(line for sentence in self._sentences for line in wrapped(sentence))
        return f"{self._title}\n\n{self._table()}\n\n{said}"

    def _repr_html_(self) -> str:
        return html_of(self._title, self._table(), self._sentences)


def best_page(
    model: Model,
    given: Any,
    worth: Any,
    how: Search,
    draws: int,
    samples: int,
    level: float,
    log: Any = None,
) -> BestPages:
    """See `Model.best_page`."""
    how.check()
    model = whole_view(model)
    model.states()
    asked = Worth.of(model, worth)
    draws, samples, level = check_draws(draws), check_draws(samples), check_level(level)
    candidates = as_candidates(given)
    kept, left_out = with_evidence(model, candidates, how)
    parts = [
        _found(model, part, asked, how, draws, samples, level)
        for part in in_pieces(model, kept, how.size)
    ]
    frame, queries, explored = (pl.concat(own) for own in zip(*parts, strict=True))
    queries = queries.join(left_out, on="query", how="left", maintain_order="left")
    promise = None
    is_asked_for = log is not None
    if log is None and isinstance(given, ClickLog) and "click" in given.columns:
        # Of probabilities that were given, not estimated, nothing can be cross-fitted.
        log = given if candidates.has_shown and model.report_ is not None else None
    if log is not None and log is not False:
        from gecasmo.pages.promise import promised

        promise = promised(model, log, kept, asked, how, queries["lift"], samples, level)
        if promise is None and is_asked_for:
            raise ClickLogError(
                "The lift of the best pages cannot be told: it is learned from one half of the log "
                "and tested on the other, so some query needs pages in both halves, and a page "
                "that is shown now (a column 'rank' of the candidates). "
                f"{either('log=False', '--log none')} does without."
            )
    return BestPages(
        model.name,
        str(asked),
        how.quantile,
        level,
        frame,
        queries,
        explored if draws else None,
        promise,
    )


def with_evidence(
    model: Model, candidates: Candidates, how: Search
) -> tuple[Candidates, pl.DataFrame]:
    """The candidates that are known well enough, or shown now; and how many are left out."""
    enough = evidence(model, candidates.frame) >= how.min_examinations
    keep = enough | (candidates.shown > 0)
    keep |= candidates.pins(how.rules, candidates.sizes(how.size)) >= 0
    if not keep.any():
        raise ClickLogError(
            f"None of {counted(len(keep), 'candidate')} has {how.min_examinations:g} examinations "
            f"in the log of the fit; {option('min_examinations', 0)} takes all of them."
        )
    left = pl.DataFrame({"query": candidates.frame["query"], "left_out": ~keep})
    return candidates.kept(keep), left.group_by("query").agg(pl.col("left_out").sum())


def orders(
    model: Model, candidates: Candidates, worth: Worth, how: Search
) -> tuple[Found, Chains, Integers]:
    """The best pages, cautiously, with the matrices and the pages that are shown now."""
    chains = Chains(model, candidates, how.size, worth, how.rules)
    shown = candidates.shown_pages(chains.sizes)
    if how.quantile == 0.5:
        return chains.search(shown, how.effort), chains, shown
    found = chains.search(shown, 0)
    chains.cautious(found, how.quantile, _CAUTION_DRAWS, how.seed)
    return chains.search(np.where(found.pages >= 0, found.pages, shown), how.effort), chains, shown


def _found(
    model: Model,
    candidates: Candidates,
    worth: Worth,
    how: Search,
    draws: int,
    samples: int,
    level: float,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    found, chains, shown = orders(model, candidates, worth, how)
    lost = np.flatnonzero(found.pages[:, 0] < 0)
    if len(lost):
        what = "No page keeps" if np.isneginf(found.bound[lost[0]]) else "No page was found to keep"
        raise ClickLogError(
            f"{what} to the rules for {counted(len(lost), 'query', 'queries')}, the first is "
            f"{candidates.queries[int(lost[0])]!r}: pinned results, at_most and apart ask for more "
            "than its candidates allow."
        )
    values = _worths(model, candidates, found.pages, worth, samples, how.seed)
    columns: dict[str, Any] = {
        "query": candidates.queries,
        "candidates": candidates.counts,
        "worth": values[0],
        **_interval("", values, level),
    }
    columns |= _against_shown(model, candidates, shown, values, worth, samples, level, how.seed)
    columns |= {
        "score": found.score,
        "gap": found.bound - found.score,
        "is_proven": is_proven(found),
    }
    pages = _told(candidates, found.pages)
    explored = [pages.clear().with_columns(draw=pl.lit(0, pl.Int64))]
    for number, states in enumerate(drawn_states(model, draws, how.seed + 1)):
        chains.load(states)
        drawn = chains.search(found.pages, 0)
        explored.append(_told(candidates, drawn.pages).with_columns(draw=pl.lit(number, pl.Int64)))
    told = pl.concat(explored).select("draw", "query", "rank", "doc")
    return pages, pl.DataFrame(columns), told


def _worths(
    model: Model, candidates: Candidates, pages: Integers, worth: Worth, samples: int, seed: int
) -> Floats:
    """What pages are worth: as believed, and for each draw."""
    foretold = Foretold(model, page_log(model, candidates, pages))
    found = [foretold.worth(worth)]
    found += [foretold.worth(worth, states) for states in drawn_states(model, samples, seed)]
    return np.stack(found)


def _interval(name: str, values: Floats, level: float) -> dict[str, Any]:
    if len(values) < 2:
        nothing = pl.Series([None] * values.shape[1], dtype=pl.Float64)
        return {f"{name}low": nothing, f"{name}high": nothing}
    low, high = ends(values[1:], level)
    return {f"{name}low": low, f"{name}high": high}


def _against_shown(
    model: Model,
    candidates: Candidates,
    shown: Integers,
    values: Floats,
    worth: Worth,
    samples: int,
    level: float,
    seed: int,
) -> dict[str, Any]:
    """The lift over what is shown now; null for queries of which that is not known."""
    known = shown[:, 0] >= 0
    now = np.full(values.shape, np.nan)
    if known.any():
        now[:, known] = _worths(model, candidates, shown, worth, samples, seed)
    lift = values - now
    better = np.where(known, (lift[1:] > 0).mean(axis=0), np.nan) if samples else lift[0] * np.nan
    columns = {"shown_worth": now[0], "lift": lift[0], **_interval("lift_", lift, level)}
    columns["better"] = better
    return {
        name: pl.Series(own, dtype=pl.Float64).fill_nan(None)
        if not isinstance(own, pl.Series)
        else own
        for name, own in columns.items()
    }


def _told(candidates: Candidates, pages: Integers) -> pl.DataFrame:
    """Pages as a table."""
    rows, query, rank = chosen_rows(candidates, pages)
    now = candidates.shown[rows]
    return pl.DataFrame(
        [
            candidates.queries.gather(pl.Series(query)).alias("query"),
            pl.Series("rank", rank, dtype=pl.Int64),
            candidates.frame["doc"].gather(pl.Series(rows)).alias("doc"),
            pl.Series("shown_rank", now, dtype=pl.Int64).set(pl.Series(now == 0), None),
        ]
    )
