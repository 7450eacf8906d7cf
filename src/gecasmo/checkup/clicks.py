"""The clicks of a log: how many, where, and what looks as if it were not people."""

from __future__ import annotations

import numpy as np
import polars as pl

from gecasmo.checkup.findings import Part
from gecasmo.checkup.words import counted, listed, session_text, share
from gecasmo.encoding.columns import in_chain
from gecasmo.logs import ClickLog

# Fewer pages than this do not show a pattern.
_SOME = 50
# Differences of click rates count from so many standard errors on.
_SURE = 4.0


def check_clicks(log: ClickLog, top: int) -> Part:
    """Clicks by page and by rank, and oddities of both."""
    part = Part()
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
            advice="A click model learns from what people passed over. Log every shown result.",
        )
        return part
    part.add(
        "info",
        "clicks",
        f"{counted(n_clicks, 'click')} on {counted(n_filled, 'page')}: {share(quiet, n_filled)} of "
        f"the pages have none, {share(several, n_filled)} have several.",
        count=n_clicks,
    )
    if n_clicks < 100:
        part.add(
            "warning",
            "clicks",
            f"There {'is' if n_clicks == 1 else 'are'} only {counted(n_clicks, 'click')}; whatever "
            "is estimated from so few rests on the prior.",
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


def _check_left_out(part: Part, log: ClickLog, quiet: int, several: int, n_pages: int) -> None:
    if n_pages < _SOME:
        return
    if quiet == 0:
        part.add(
            "warning",
            "clicks",
            "Every page has a click: pages without clicks seem to have been left out.",
            advice="Pages that nobody clicked say most about bad results and about people who "
            "leave. Without them all attractions come out too high.",
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


def _check_crowded(part: Part, log: ClickLog, per_page: np.ndarray, top: int) -> None:
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
        advice="Probably robots or tests; consider leaving these pages out.",
    )


def _check_places(part: Part, log: ClickLog, per_page: np.ndarray) -> None:
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
            f"{share(at_end.sum(), len(long))} of the clicked pages end with a click.",
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


def _check_rates(part: Part, rates: pl.DataFrame) -> None:
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
            "top of another page, or the layout draws the eye there (ads, pictures, a fold); a "
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
