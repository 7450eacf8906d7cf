"""How judgments look in a terminal: never wider than 100 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import polars as pl

from gecasmo.judgments.printing import fitted, printable

if TYPE_CHECKING:
    from gecasmo.judgments.judged import Judgments

WIDTH = 100
_ID_WIDTH = 24
_TOP = 8


def as_text(judgments: Judgments) -> str:
    """Counts per grade, share of insufficient pairs, the rule, and the most examined pairs."""
    n, n_bad = len(judgments.frame), judgments.n_insufficient
    lines = [
        f"{n:,} judgments by {judgments.model}: relevance is {judgments.relevance_is}",
        f"rule {judgments.grading}",
        f"insufficient: {_limits(judgments)}",
    ]
    if judgments.why_no_interval:
        lines.append(
            f"no interval: {judgments.n_without_interval:,} pairs; {judgments.why_no_interval}"
        )
    if judgments.n_given:
        lines.append(f"given, not estimated: {judgments.n_given:,} pairs; they count as certain")
    lines = list(map(printable, lines))
    lines = [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ")]
    lines += ["", f"  {'grade':<14}{'pairs':>10}{'share':>9}"]
    for grade, count in judgments.by_grade.items():
        lines.append(f"  {grade:<14}{count:>10,}{count / max(n, 1):>9.1%}")
    lines.append(f"  {'insufficient':<14}{n_bad:>10,}{n_bad / max(n, 1):>9.1%}")
    top = judgments.frame.sort("examinations", descending=True, maintain_order=True).head(_TOP)
    if len(top):
        lines += ["", "most examined", *_table(top)]
    return "\n".join(lines)


def _limits(judgments: Judgments) -> str:
    few = f"fewer than {judgments.min_examinations:g} examinations"
    if judgments.max_width is None:
        return f"{few}, or no interval, unless it rests on features"
    return (
        f"interval of {judgments.level:.0%} wider than {judgments.max_width:g} or unknown, or {few}"
    )


def _table(frame: pl.DataFrame) -> list[str]:
    names = [name for name in ("query", "doc") if name in frame.columns]
    head = "".join(f"  {fitted(name, _ID_WIDTH)}" for name in names)
    lines = [f"{head}{'relevance':>11}{'interval':>15}{'examined':>10}  grade"]
    for row in frame.rows(named=True):
        ids = "".join(f"  {fitted(row[name], _ID_WIDTH)}" for name in names)
        interval = "unknown" if row["low"] is None else f"{row['low']:.3f}-{row['high']:.3f}"
        lines.append(
            f"{ids}{row['relevance']:>11.3f}{interval:>15}{short(row['examinations']):>10}"
            f"  {'-' if row['grade'] is None else row['grade']}"
        )
    return lines


def short(number: float, digits: int = 1) -> str:
    """A number of at most ten characters."""
    return f"{number:,.{digits}f}" if number < 1e5 else f"{number:.4g}"
