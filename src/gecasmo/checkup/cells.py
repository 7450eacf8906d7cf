"""Rows of coins that the log says little or nothing about."""

from __future__ import annotations

import numpy as np
import polars as pl

from gecasmo.checkup.counting import times_met
from gecasmo.checkup.findings import Part
from gecasmo.checkup.subject import Subject
from gecasmo.checkup.words import counted, row_text, share
from gecasmo.forms.protocol import columns_of


def check_cells(subject: Subject, few: int, top: int) -> Part:
    """Per coin: how many rows, how often they are met and flipped, and how many hardly ever."""
    part = Part()
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
        reads_features = bool(columns_of(subject.model.forms[coin]))
        is_bad = in_thin > 0.2 * total and not reads_features
        part.add(
            "warning" if is_bad else "info",
            "cells",
            f"{coin}: {counted(len(order))} of {counted(int(free.sum()), 'row')} "
            f"{'has' if len(order) == 1 else 'have'} fewer than {few} expected flips "
            f"({int(never.sum()):,} none at all); {share(in_thin, total)} of the impressions use "
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
    few = "So little is hardly more than the prior."
    if not has_key:
        return f"{few} A longer log is needed."
    return (
        f"{few} Coarser rows help, such as {coin}=Table(key=...), or features, such as "
        f"{coin}=Logistic(...)."
    )
