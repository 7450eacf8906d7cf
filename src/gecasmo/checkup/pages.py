"""The pages of a log: how long they are, how they are numbered, and where the clicks are."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gecasmo.checkup.findings import Part
from gecasmo.checkup.words import counted, session_text, share, value_text
from gecasmo.encoding.columns import coded, in_chain
from gecasmo.logs import ClickLog


def check_notes(log: ClickLog, top: int) -> Part:
    """What the reader met in the file and what it did about it."""
    part = Part()
    notes: tuple[Any, ...] = tuple(getattr(log, "notes", ()))
    for note in notes:
        # A handful in a large file is worth knowing; more may change the answer.
        is_rare = (note.count or 0) <= 0.001 * max(log.n_results, 1)
        part.add(
            "info" if is_rare else "warning",
            "reading",
            str(note.what),
            count=note.count,
            examples=[str(example) for example in tuple(note.examples)[:top]],
        )
    return part


def check_pages(log: ClickLog, top: int) -> Part:
    """Sizes, empty pages, numbering of ranks, and documents shown twice on a page."""
    part = Part()
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
    _check_lengths(part, log, top)
    _check_ranks(part, log, top)
    _check_repeated_documents(part, log, top)
    return part


def _check_lengths(part: Part, log: ClickLog, top: int) -> None:
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


def _check_ranks(part: Part, log: ClickLog, top: int) -> None:
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
            f"({share(len(late), len(filled))} of all).",
            count=len(late),
            examples=[
                f"{session_text(log, s)} begins at rank {rank[log.starts[s]]}" for s in late[:top]
            ],
            advice="Second pages are fine for models by rank. Cascade models take the first result "
            "they see for the first one people read.",
        )
    gaps = filled[last - first + 1 > log.lengths[filled]]
    if len(gaps):
        part.add(
            "info" if len(gaps) < 0.01 * len(filled) else "warning",
            "ranks",
            f"{counted(len(gaps), 'page has', 'pages have')} gaps in the ranks "
            f"({share(len(gaps), len(filled))} of all): results between others are missing.",
            count=len(gaps),
            examples=[
                f"{session_text(log, s)} has ranks "
                + ", ".join(map(str, rank[log.starts[s] : log.starts[s + 1]][:12]))
                for s in gaps[:top]
            ],
            advice="What stood in a gap may have been read, or have held the click; models treat "
            "it as if it had not been there.",
        )


def _check_repeated_documents(part: Part, log: ClickLog, top: int) -> None:
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
        f"({share(n_pages, log.n_sessions)} of all).",
        count=n_pages,
        examples=[
            f"{session_text(log, int(p) // len(doc.values))} shows "
            f"{value_text(doc.values[int(p) % len(doc.values)])} {n} times"
            for p, n in found.head(top).rows()
        ],
        advice="Perhaps a page was logged twice under one session id. If results really repeat, "
        "their clicks count for the same row.",
    )
