"""What a log looks like at a glance."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

RANKS_SHOWN = 10


def text_summary(log: ClickLog) -> str:
    """Describe a log in lines of at most 80 characters.

    Parameters
    ----------
    log
        The log.

    Returns
    -------
    str
    """
    facts = _facts(log)
    width = max(len(name) for name, _ in facts)
    lines = ["ClickLog", *(f"  {name:<{width}}  {value}" for name, value in facts)]
    table, left = _click_rates(log)
    if table:
        lines.append(f"  {'rank':>10}  {'results':>13}  {'CTR':>6}")
        lines += [f"  {rank:>10}  {shown:>13,}  {rate:>6.4f}" for rank, shown, rate in table]
    if left:
        lines.append(f"  ... and {left:,} more ranks")
    return "\n".join(lines)


def html_summary(log: ClickLog) -> str:
    """Describe a log as HTML, for notebooks.

    Parameters
    ----------
    log
        The log.

    Returns
    -------
    str
    """
    facts = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in _facts(log)
    )
    table, left = _click_rates(log)
    rates = "".join(
        f"<tr><td>{rank}</td><td>{shown:,}</td><td>{rate:.4f}</td></tr>"
        for rank, shown, rate in table
    )
    more = f"<p>... and {left:,} more ranks</p>" if left else ""
    return (
        f"<div><b>ClickLog</b><table>{facts}</table>"
        f"<table><tr><th>rank</th><th>results</th><th>CTR</th></tr>{rates}</table>{more}</div>"
    )


def _facts(log: ClickLog) -> list[tuple[str, str]]:
    facts = [("sessions", f"{log.n_sessions:,}"), ("results", f"{log.n_results:,}")]
    if log.has_query:
        facts.append(("queries", f"{log.session_column('query').n_unique():,}"))
    facts.append(("documents", f"{log.column('doc').n_unique():,}"))
    if log.n_sessions:
        shortest, longest = int(log.lengths.min()), int(log.lengths.max())
        middle = float(np.median(log.lengths))
        lengths = f"{shortest:,} to {longest:,} results, median {middle:g}"
        facts.append(("page lengths", f"{longest:,} results" if shortest == longest else lengths))
        clicked = len(np.unique(log.page[log.click])) / log.n_sessions
        facts.append(("clicks", f"{int(log.click.sum()):,}, on {clicked:.1%} of the pages"))
    if not np.all(log.weight == 1):
        total = f"{log.weight.sum():,.6g} over all sessions; they count in the CTR"
        facts.append(("weights", total))
    extra = log.columns[log.columns.index("click") + 1 :]
    if extra:
        facts.append(("also", _shortened(", ".join(extra), 60)))
    facts += [("noted", _shortened(f"{note.kind}: {note.count:,}", 60)) for note in log.notes]
    return facts


def _click_rates(log: ClickLog) -> tuple[list[tuple[int, int, float]], int]:
    """Return rank, results and click-through rate for the first ranks, and how many are left."""
    weight = log.weight[log.page]
    frame = pl.DataFrame({"rank": log.rank, "weight": weight, "clicked": weight * log.click})
    rates = frame.group_by("rank").agg(
        pl.len().alias("shown"), pl.col("clicked").sum() / pl.col("weight").sum()
    )
    top = rates.sort("rank").head(RANKS_SHOWN)
    return [(rank, shown, rate) for rank, shown, rate in top.rows()], rates.height - top.height


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
