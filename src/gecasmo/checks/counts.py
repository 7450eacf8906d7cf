"""Logs in which every result is a page of its own: sums of impressions and clicks, mostly.

Which results stood above one, and what was clicked there, is not in them.
"""

from __future__ import annotations

import polars as pl

from gecasmo.checks.findings import Findings
from gecasmo.checks.pages import click_rates
from gecasmo.checks.subject import pair_codes
from gecasmo.language import HISTORY_KEYS
from gecasmo.logs import ClickLog
from gecasmo.logs.counts import COUNTS
from gecasmo.model import Model
from gecasmo.report import counted, listed, percent

# Keys that say something of the page as it was shown.
_OF_WHOLE_PAGES = (*HISTORY_KEYS, "page_length", "session")


def are_counts(log: ClickLog) -> bool:
    """Whether a log was read from sums."""
    return any(note.kind == COUNTS for note in log.notes)


def check_counts(log: ClickLog, few: int) -> Findings:
    """What sums can tell: click rates by rank, and how many pairs have enough impressions."""
    part = Findings()
    rates = click_rates(log)
    shown, clicked = float(rates["impressions"].sum()), float(rates["clicks"].sum())
    weight = log.weight[log.page]
    pairs = pl.DataFrame({"pair": pair_codes(log), "rank": log.rank, "weight": weight})
    pairs = pairs.group_by("pair").agg(pl.col("weight").sum(), pl.col("rank").n_unique())
    enough, moving = (pairs["weight"] >= few).sum(), (pairs["rank"] > 1).sum()
    part.tables["ctr_by_rank"] = rates
    part.facts |= {
        "impressions": shown,
        "clicks": clicked,
        "pairs": pairs.height,
        "pairs_with_enough": int(enough),
        "pairs_at_several_ranks": int(moving),
    }
    part.add(
        "info",
        "counts",
        f"These are counts: {shown:,.0f} impressions and {clicked:,.0f} clicks "
        f"({percent(clicked, shown)}) of {counted(pairs.height, 'pair')} of query and document at "
        f"{counted(rates.height, 'rank')}. {enough:,} were shown at least {few} times, {moving:,} "
        "at more than one rank.",
        count=pairs.height,
        advice="Models that take the results of a page for independent can be fitted: PBM, and "
        "click rates (GCTR, RCTR, DCTR, DRCTR). All others need the pages as they were shown.",
    )
    if clicked == 0:
        part.add("error", "clicks", "There is no click at all.")
    elif clicked == shown:
        part.add("error", "clicks", "Every impression is a click: impressions are missing.")
    if not moving and rates.height > 1:
        part.add(
            "warning",
            "pairs",
            "Every pair was always shown at one and the same rank.",
            advice="Then a good document and a good place look the same. Sum up a time in which "
            "the ranking changed, or show some pages in another order.",
        )
    return part


def check_alone(model: Model, log: ClickLog) -> Findings:
    """Say whether a model needs to know what else was on a page, in a log that does not say it."""
    part = Findings()
    if not log.n_results or log.lengths.max() > 1 or log.rank.max() == 1:
        return part
    keys = {key for of_coin in model.keys.values() for key in of_coin}
    needs = []
    if model.automaton.n_states > 1 or str(getattr(model, "view", "pages")) != "pages":
        needs.append("what people did with the results above")
    if used := [key for key in _OF_WHOLE_PAGES if key in keys]:
        needs.append(listed(f"'{key}'" for key in used))
    if needs:
        part.add(
            "error",
            "model",
            f"{model.name} cannot be estimated from this log: every page has one result, at "
            f"ranks up to "
            f"{log.rank.max():,}, and the model needs {listed(needs)}. It would treat each "
            f"result as the first that people saw.",
            advice="Use PBM or a click rate, or bring the pages as they were shown, with every "
            "result of each.",
        )
    return part
