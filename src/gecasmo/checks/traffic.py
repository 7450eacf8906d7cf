"""How much data there is: of pairs of query and document, of repeated pages, of rows of coins."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.checks.findings import Findings, row_text, value_text
from gecasmo.checks.subject import CheckedModel, page_hashes, pair_codes, times_met, totals
from gecasmo.encoding.columns import coded, in_chain
from gecasmo.logs import ClickLog
from gecasmo.report import counted, percent

_SOME = 50
_BORDERS = (1, 2, 10, 100)
_BUCKETS = ("1", "2-9", "10-99", "100+")
# Columns that would tell who saw the page.
_WHO = ("user", "user_id", "cookie", "client", "client_id", "ip")


def check_traffic(log: ClickLog, few: int, top: int) -> Findings:
    """How much data pairs have, which pages repeat, and whether a few dominate."""
    part = Findings()
    if log.n_results == 0:
        return part
    _check_pairs(part, log, few)
    _check_repeats(part, log)
    _check_concentration(part, log, top)
    return part


def _check_pairs(part: Findings, log: ClickLog, few: int) -> None:
    weight = log.weight[log.page]
    pairs = (
        pl.DataFrame(
            {
                "pair": pair_codes(log),
                "rank": log.rank,
                "weight": weight,
                "clicked": weight * log.click,
            }
        )
        .group_by("pair")
        .agg(
            shown=pl.len(),
            impressions=pl.col("weight").sum(),
            clicks=pl.col("clicked").sum(),
            moves=pl.col("rank").min() != pl.col("rank").max(),
        )
    )
    shown, clicks = pairs["shown"].to_numpy(), pairs["clicks"].to_numpy()
    impressions = pairs["impressions"].to_numpy()
    moves = pairs["moves"].to_numpy()
    bucket = np.searchsorted(_BORDERS, shown, side="right") - 1
    n_pairs = len(shown)

    def total(values: NDArray[np.generic]) -> NDArray[np.float64]:
        return totals(bucket, values, len(_BUCKETS))

    in_bucket = total(np.ones(n_pairs))
    part.tables["pairs"] = pl.DataFrame(
        {
            "shown": _BUCKETS,
            "pairs": in_bucket.astype(np.int64),
            "share_of_pairs": in_bucket / n_pairs,
            "share_of_impressions": total(impressions) / max(impressions.sum(), 1e-300),
            "share_of_clicks": total(clicks) / max(clicks.sum(), 1e-300),
            "with_a_click": total(clicks > 0).astype(np.int64),
            "at_several_ranks": total(moves).astype(np.int64),
        }
    )
    enough = shown >= few
    covered = float(impressions[enough].sum())
    what = "pairs of query and document" if log.has_query else "documents"
    part.facts |= {
        "pairs": n_pairs,
        "pairs_with_enough": int(enough.sum()),
        "pairs_clicked": int((clicks > 0).sum()),
        "pairs_at_several_ranks": int(moves.sum()),
    }
    is_poor = covered < 0.5 * impressions.sum()
    part.add(
        "warning" if is_poor else "info",
        "pairs",
        f"{counted(int(enough.sum()))} of {n_pairs:,} {what} "
        f"{'was' if enough.sum() == 1 else 'were'} shown at least {few} times; "
        f"{percent(covered, float(impressions.sum()))} of the impressions are theirs. "
        f"{_were(clicks > 0)} ever clicked, {_were(moves)} seen at more than one rank.",
        count=int(enough.sum()),
        advice="Most of the traffic falls on rows with hardly any data. Collect a longer log, or "
        "share rows: a coarser key, such as Table(key='doc'), or features, such as "
        "Logistic('bm25')."
        if is_poor
        else "",
    )
    repeated = shown > 1
    if repeated.sum() >= 10 and not moves.any():
        part.add(
            "warning",
            "pairs",
            f"Each of {counted(n_pairs)} {what} was always shown at one and the same rank.",
            count=n_pairs,
            advice="Then a good document and a good place look the same. Show some pages in "
            "another order, if only a few.",
        )


def _were(which: NDArray[np.bool_]) -> str:
    return counted(int(which.sum()), "was", "were")


def _check_repeats(part: Findings, log: ClickLog) -> None:
    filled = log.lengths > 0
    n_pages = int(filled.sum())
    shown = pl.Series(page_hashes(log, with_clicks=False)[filled]).n_unique()
    alike = pl.Series(page_hashes(log, with_clicks=True)[filled]).n_unique()
    part.facts |= {"distinct_pages": shown, "distinct_pages_with_clicks": alike}
    message = f"{counted(shown, 'distinct page')} among {n_pages:,}; with their clicks {alike:,}."
    if log.has_query:
        n_queries = len(coded(log, "query", "query", nullable=True).values)
        times = f"{n_pages / n_queries:.3g}"
        message += f" A query comes {'once' if times == '1' else f'{times} times'} on average."
    part.add("info", "repeats", message, count=n_pages - shown)


def _check_concentration(part: Findings, log: ClickLog, top: int) -> None:
    lines = []
    names = ["query"] if log.has_query else []
    names += [name for name in _WHO if name in log.columns and log.is_page_constant(name)][:1]
    for name in names:
        column = coded(log, name, name, nullable=True)
        filled = log.lengths > 0
        codes = in_chain(log, column.codes)[log.starts[:-1][filled]]
        n_pages = np.bincount(codes, minlength=len(column.values))
        order = np.argsort(-n_pages, kind="stable")
        ranked = n_pages[order]
        total = int(ranked.sum())
        once = int((ranked == 1).sum())
        for label, number in (("1 %", 0.01), ("10 %", 0.1)):
            size = max(1, int(np.ceil(number * len(ranked))))
            lines.append((f"top {label}", name, size, float(ranked[:size].sum()) / total))
        lines.append(("seen once", name, once, once / total))
        part.facts[f"{name}_seen_once"] = once
        is_large = ranked[0] > max(0.5 * total, _SOME) and len(ranked) > 5
        if is_large or (name != "query" and ranked[0] > max(0.01 * total, 1000)):
            part.add(
                "warning",
                "suspicious",
                f"One {name} has {percent(float(ranked[0]), total)} of all pages.",
                count=int(ranked[0]),
                examples=[
                    f"{name} {value_text(column.values[int(code)])}: "
                    f"{counted(n_pages[code], 'page')}"
                    for code in order[:top]
                ],
                advice="Perhaps a robot, a default query, or a test; it dominates the global "
                "parameters.",
            )
            if name != "query":  # people do ask the same query, and each of them once
                part.suspicious.append(np.flatnonzero(filled)[codes == order[0]])
    if lines:
        part.tables["traffic"] = pl.DataFrame(
            lines, schema=["which", "of", "number", "share_of_pages"], orient="row"
        )


def check_cells(subject: CheckedModel, few: int, top: int) -> Findings:
    """Per coin: how many rows, how often they are met and flipped, and how many hardly ever."""
    part = Findings()
    lines, thin = [], []
    for number, coin in enumerate(subject.model.forms):
        rows = subject.encoded.rows[number]
        met = times_met(subject.encoded, number)
        flips = subject.counts.tables[number].sum(axis=0)
        if len(rows) > 1 and subject.encoded.plan.coins[number].scope == "global":
            met = flips  # the model numbers these rows itself, and only its flips tell which is met
        free = ~subject.fixed[number]
        never = free & (flips < 1e-9)
        seldom = free & (flips < few) & ~never
        total = float(met[free].sum())
        in_thin = float(met[never | seldom].sum())
        lines.append(
            {
                "coin": coin,
                "key": ", ".join(rows.keys) or "(one row)",
                "rows": len(rows),
                "given": int((~free).sum()),
                "never_flipped": int(never.sum()),
                f"below_{few}_flips": int(seldom.sum()),
                "median_flips": float(np.median(flips[free])) if free.any() else None,
                "share_of_impressions": in_thin / total if total > 0 else 0.0,
            }
        )
        order = np.flatnonzero(never | seldom)
        order = order[np.argsort(-met[order], kind="stable")]
        thin += [
            {
                "coin": coin,
                "row": row_text(rows, row) or "(one row)",
                "impressions": float(met[row]),
                "flips": float(flips[row]),
            }
            for row in order[:top].tolist()
        ]
        if not len(order):
            continue
        reads_features = bool(subject.model.forms[coin].columns)
        is_bad = in_thin > 0.2 * total and not reads_features
        part.add(
            "warning" if is_bad else "info",
            "cells",
            f"{coin}: {counted(len(order))} of {counted(int(free.sum()), 'row')} "
            f"{'has' if len(order) == 1 else 'have'} fewer than {few} expected flips "
            f"({int(never.sum()):,} none at all); {percent(in_thin, total)} of the impressions use "
            f"{'it' if len(order) == 1 else 'them'}.",
            count=len(order),
            examples=[
                f"{row_text(rows, row) or coin}: {counted(met[row], 'impression')}, "
                f"{_flips(float(flips[row]))}"
                for row in order[:top].tolist()
            ],
            advice=_advice(coin, bool(rows.keys)) if is_bad else "",
        )
    part.tables["coins"] = pl.DataFrame(lines)
    if thin:
        part.tables["few_trials"] = pl.DataFrame(thin)
    return part


def _flips(number: float) -> str:
    """About so many flips."""
    shown = f"{number:.3g}"
    return f"about {shown} flip{'' if shown == '1' else 's'}"


def _advice(coin: str, has_key: bool) -> str:
    few = "With so little data the estimate is hardly more than the prior."
    if not has_key:
        return f"{few} A longer log is needed."
    return (
        f"{few} Coarser rows help, such as {coin}=Table(key=...), or features, such as "
        f"{coin}=Logistic(...)."
    )
