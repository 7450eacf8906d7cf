"""The pages of a log and the clicks on them: sizes, numbering, where clicks are, what looks odd.

Odd is what looks as if pages were cut or left out, or as if it were not people who clicked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gecasmo.checks.findings import Findings, session_text, value_text
from gecasmo.encoding.columns import coded, in_chain
from gecasmo.errors import either, option
from gecasmo.logs import ClickLog
from gecasmo.logs.counts import COUNTS
from gecasmo.logs.roles import GUESSED, search_column
from gecasmo.report import counted, listed, percent

# Fewer pages than this do not show a pattern.
_SOME = 50
# Differences of click rates count from so many standard errors on.
_SURE = 4.0


def check_notes(log: ClickLog, top: int) -> Findings:
    """What the reader met in the file and what it did about it."""
    part = Findings()
    notes: tuple[Any, ...] = tuple(getattr(log, "notes", ()))
    for note in notes:
        # A handful in a large file is worth knowing; more may change the answer.
        is_rare = note.kind in (GUESSED, COUNTS) or (note.count or 0) <= 0.001 * max(
            log.n_results, 1
        )
        part.add(
            "info" if is_rare else "warning",
            "reading",
            str(note.what),
            count=note.count,
            examples=[str(example) for example in tuple(note.examples)[:top]],
        )
    return part


def check_pages(log: ClickLog, top: int) -> Findings:
    """Sizes, empty pages, numbering of ranks, and documents shown twice on a page."""
    part = Findings()
    n_pages = log.n_sessions
    part.facts |= {
        "pages": n_pages,
        "results": log.n_results,
        "documents": log.column("doc").n_unique() if log.n_results else 0,
        "total_weight": float(log.weight.sum()),
    }
    if log.has_query:
        part.facts["queries"] = log.column("query").n_unique() if log.n_results else 0
    if log.n_results == 0:
        part.add("error", "pages", "The log has no results, so there is nothing to learn from.")
        return part
    if not log.weight.sum() > 0:
        part.add("error", "weights", "All pages weigh 0, so none of them counts.")
    _check_queries(part, log)
    _check_lengths(part, log, top)
    _check_ranks(part, log, top)
    _check_repeated_documents(part, log, top)
    return part


def _check_queries(part: Findings, log: ClickLog) -> None:
    name = None if log.has_query else search_column(log.to_frame().schema)
    if name is not None and log.is_page_constant(name):
        part.add(
            "warning",
            "queries",
            f"The log was read without queries, but its column '{name}' seems to have them.",
            advice=f"Read it with {option('query', name)}. Without it, what a document is worth "
            "is told for all queries together.",
        )


def _check_lengths(part: Findings, log: ClickLog, top: int) -> None:
    lengths, pages = np.unique(log.lengths, return_counts=True)
    part.tables["page_lengths"] = pl.DataFrame({"results": lengths, "pages": pages})
    empty = np.flatnonzero(log.lengths == 0)
    if len(empty):
        part.add(
            "info",
            "pages",
            f"{counted(len(empty), 'page has', 'pages have')} no results; they say nothing.",
            count=len(empty),
            examples=[session_text(log, session) for session in empty[:top]],
        )
    if lengths.max() == 1:
        part.add(
            "warning",
            "pages",
            "No page has more than one result: nothing can be learned about how people read a "
            "page.",
            advice="Perhaps only clicked results were logged, or the session column has one value "
            "per result. Every shown result needs a row, with the session of its page.",
        )
    longest = int(lengths.max())
    usual = float(np.quantile(log.lengths, 0.99))
    long = np.flatnonzero(log.lengths > max(10 * usual, 100))
    if len(long):
        long = long[np.argsort(-log.lengths[long], kind="stable")]
        part.add(
            "warning",
            "pages",
            f"{counted(len(long), 'page is', 'pages are')} far longer than the others (up to "
            f"{longest:,} results; 99 % have at most {usual:g}).",
            count=len(long),
            examples=[f"{session_text(log, s)} has {log.lengths[s]:,} results" for s in long[:top]],
            advice="Perhaps several pages share one session id, or a robot was at work.",
        )


def _check_ranks(part: Findings, log: ClickLog, top: int) -> None:
    rank = in_chain(log, log.rank)
    filled = np.flatnonzero(log.lengths > 0)
    first = rank[log.starts[:-1][filled]]
    last = rank[log.starts[1:][filled] - 1]
    late = filled[first > 1]
    if len(late):
        part.add(
            "info" if len(late) < 0.01 * len(filled) else "warning",
            "ranks",
            f"{counted(len(late), 'page begins', 'pages begin')} below rank 1 "
            f"({percent(len(late), len(filled))} of all).",
            count=len(late),
            examples=[
                f"{session_text(log, s)} begins at rank {rank[log.starts[s]]}" for s in late[:top]
            ],
            advice="Second pages are fine for models by rank. Cascade models assume that the "
            "first result in the log is the first one people read.",
        )
    gaps = filled[last - first + 1 > log.lengths[filled]]
    if len(gaps):
        part.add(
            "info" if len(gaps) < 0.01 * len(filled) else "warning",
            "ranks",
            f"{counted(len(gaps), 'page has', 'pages have')} gaps in the ranks "
            f"({percent(len(gaps), len(filled))} of all): results between others are missing.",
            count=len(gaps),
            examples=[
                f"{session_text(log, s)} has ranks "
                + ", ".join(map(str, rank[log.starts[s] : log.starts[s + 1]][:12]))
                for s in gaps[:top]
            ],
            advice="What stood in a gap may have been read, or have held the click; models treat "
            "it as if it had not been there.",
        )


def _check_repeated_documents(part: Findings, log: ClickLog, top: int) -> None:
    doc = coded(log, "doc", "doc", nullable=True)
    place = log.page.astype(np.int64) * len(doc.values) + doc.codes
    if pl.Series(place).n_unique() == len(place):
        return
    found = (pl.DataFrame({"place": place}).group_by("place").len().filter(pl.col("len") > 1)).sort(
        "place"
    )
    pages = found["place"].to_numpy() // len(doc.values)
    n_pages = len(np.unique(pages))
    part.add(
        "warning",
        "documents",
        f"{counted(n_pages, 'page shows', 'pages show')} a document more than once "
        f"({percent(n_pages, log.n_sessions)} of all).",
        count=n_pages,
        examples=[
            f"{session_text(log, int(p) // len(doc.values))} shows "
            f"{value_text(doc.values[int(p) % len(doc.values)])} {n} times"
            for p, n in found.head(top).rows()
        ],
        advice="Perhaps a page was logged twice under one session id. If results really repeat, "
        "their clicks count for the same row.",
    )


def check_clicks(log: ClickLog, top: int) -> Findings:
    """Clicks by page and by rank, and oddities of both."""
    part = Findings()
    if log.n_results == 0:
        return part
    per_page = np.bincount(log.page, weights=log.click, minlength=log.n_sessions).astype(np.int64)
    clicks, pages = np.unique(per_page, return_counts=True)
    part.tables["clicks_per_page"] = pl.DataFrame({"clicks": clicks, "pages": pages})
    n_clicks = int(log.click.sum())
    filled = log.lengths > 0
    n_filled = int(filled.sum())
    quiet, several = int((per_page[filled] == 0).sum()), int((per_page > 1).sum())
    part.facts |= {
        "clicks": n_clicks,
        "pages_without_clicks": quiet,
        "pages_with_several_clicks": several,
        "click_rate": n_clicks / log.n_results,
    }
    part.tables["ctr_by_rank"] = click_rates(log)
    if n_clicks == 0:
        part.add(
            "error",
            "clicks",
            f"There is no click on any of {counted(n_filled, 'page')}.",
            advice="Perhaps the click column is another one, or clicks are in a file of their own "
            "and have to be joined first.",
        )
        return part
    if n_clicks == log.n_results:
        part.add(
            "error",
            "clicks",
            "Every result is clicked: results that were shown and not clicked are missing.",
            advice="A click model learns from what people passed over: bring the impressions, too. "
            "If they are events elsewhere, "
            + either("read_events", "--events")
            + " puts both together; if only sums are known, "
            + either("read_counts", "--counts")
            + " reads these.",
        )
        return part
    part.add(
        "info",
        "clicks",
        f"{counted(n_clicks, 'click')} on {counted(n_filled, 'page')}: {percent(quiet, n_filled)} "
        f"of the pages have none, {percent(several, n_filled)} have several.",
        count=n_clicks,
    )
    if n_clicks < 100:
        part.add(
            "warning",
            "clicks",
            f"There {'is' if n_clicks == 1 else 'are'} only {counted(n_clicks, 'click')}; "
            f"whatever is estimated from so few depends on the prior.",
            count=n_clicks,
        )
    _check_left_out(part, log, quiet, several, n_filled)
    _check_crowded(part, log, per_page, top)
    _check_places(part, log, per_page)
    _check_rates(part, part.tables["ctr_by_rank"])
    return part


def click_rates(log: ClickLog) -> pl.DataFrame:
    """Impressions, clicks and click rate of each rank; weights count."""
    weight = log.weight[log.page]
    frame = pl.DataFrame({"rank": log.rank, "shown": weight, "clicked": weight * log.click})
    return (
        frame.group_by("rank")
        .agg(
            results=pl.len(),
            impressions=pl.col("shown").sum(),
            clicks=pl.col("clicked").sum(),
        )
        .sort("rank")
        .with_columns(
            ctr=pl.when(pl.col("impressions") > 0).then(pl.col("clicks") / pl.col("impressions"))
        )
    )


def _check_left_out(part: Findings, log: ClickLog, quiet: int, several: int, n_pages: int) -> None:
    if n_pages < _SOME:
        return
    if quiet == 0:
        part.add(
            "warning",
            "clicks",
            "Every page has a click: pages without clicks seem to have been left out.",
            advice="Pages that nobody clicked say most about bad results and about people who "
            "leave. Without them all attractions are estimated too high.",
        )
    if several == 0:
        part.add(
            "info",
            "clicks",
            "No page has more than one click.",
            advice="Models in which people may go on after a click (DCM, DBN, CCM, UBM) can only "
            "conclude that nobody does. If only the first or the last click was kept, log them "
            "all.",
        )


def _check_crowded(part: Findings, log: ClickLog, per_page: np.ndarray, top: int) -> None:
    clicked = per_page[per_page > 0]
    usual = float(np.quantile(clicked, 0.99))
    many = np.flatnonzero(per_page > max(10 * usual, 20))
    everything = np.flatnonzero((per_page == log.lengths) & (per_page >= 8))
    crowded = np.union1d(many, everything)
    if not len(crowded):
        return
    crowded = crowded[np.argsort(-per_page[crowded], kind="stable")]
    part.add(
        "info" if len(crowded) < 0.001 * log.n_sessions else "warning",
        "suspicious",
        f"{counted(len(crowded), 'page has', 'pages have')} a suspicious number of clicks: all of "
        f"at least 8 results, or far more than other pages (99 % of clicked pages have at most "
        f"{usual:g}).",
        count=len(crowded),
        examples=[
            f"{session_text(log, s)} has {counted(int(per_page[s]), 'click')} on "
            f"{counted(int(log.lengths[s]), 'result')}"
            for s in crowded[:top]
        ],
        advice="Probably robots or tests; consider leaving these pages out: "
        + either(
            "LogCheck.without_suspicious(log).",
            "`gecasmo check LOG --drop-suspicious -o clean.parquet`.",
        ),
    )
    part.suspicious.append(crowded)


def _check_places(part: Findings, log: ClickLog, per_page: np.ndarray) -> None:
    """Clicks that only ever stand at one end of the page."""
    click = in_chain(log, log.click)
    long = np.flatnonzero((log.lengths > 1) & (per_page > 0))
    if len(long) < _SOME:
        return
    at_end = click[log.starts[1:][long] - 1]
    at_top = click[log.starts[:-1][long]]
    n_clicks = int(per_page[long].sum())
    if at_end.mean() > 0.9:
        part.add(
            "warning",
            "suspicious",
            f"{percent(at_end.sum(), len(long))} of the clicked pages end with a click.",
            count=int(at_end.sum()),
            advice="Pages seem to be cut after the last click. What was shown below it is "
            "missing, so nothing can be learned about people who stop reading.",
        )
    elif at_top.sum() == n_clicks:
        part.add(
            "warning",
            "suspicious",
            f"All {counted(n_clicks, 'click')} on longer pages are on their first result.",
            count=n_clicks,
            advice="Perhaps clicks were joined to pages without regard to the document.",
        )


def _check_rates(part: Findings, rates: pl.DataFrame) -> None:
    """A click rate that rises from one rank to a later one, or is zero at most ranks."""
    known = rates.filter(pl.col("impressions") > 0)
    ctr, shown = known["ctr"].to_numpy(), known["impressions"].to_numpy()
    ranks = known["rank"].to_numpy()
    if len(ranks) < 2:
        return
    pooled = (ctr[1:] * shown[1:] + ctr[:-1] * shown[:-1]) / (shown[1:] + shown[:-1])
    error = np.sqrt(pooled * (1 - pooled) * (1 / shown[1:] + 1 / shown[:-1]))
    rises = np.flatnonzero(ctr[1:] - ctr[:-1] > np.maximum(_SURE * error, 1e-12))
    if len(rises):
        best = int(np.argmax(ctr))
        is_odd = best > 0 and len(rises) >= 0.5 * (len(ranks) - 1)
        part.add(
            "warning" if best > 0 else "info",
            "click rates",
            "The click rate rises with the rank"
            + ("" if is_odd else " in places")
            + ": from "
            + listed(
                f"{ctr[i]:.3g} at rank {ranks[i]} to {ctr[i + 1]:.3g} at rank {ranks[i + 1]}"
                for i in rises[:3]
            )
            + (f", and {len(rises) - 3} more" if len(rises) > 3 else "")
            + ".",
            count=len(rises),
            advice="People click less further down. Perhaps ranks run backwards, count from the "
            "top of another page, or the layout draws attention there (ads, pictures, a fold); a "
            "key for the layout then helps.",
        )
    unclicked = np.flatnonzero((ctr == 0) & (shown >= 100))
    if len(unclicked):
        part.add(
            "info",
            "click rates",
            f"{counted(len(unclicked), 'rank was', 'ranks were')} shown at least 100 times and "
            f"never clicked (first: rank {ranks[unclicked[0]]}).",
            count=len(unclicked),
        )
