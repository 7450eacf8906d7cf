"""How judgments look in a terminal: never wider than it is, nor than 100 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import polars as pl

from gecasmo.judgments.printing import fitted, printable, text_width

if TYPE_CHECKING:
    from gecasmo.judgments.counting import Told

_ANY = "interval covers all grades"


def as_text(judgments: Told) -> str:
    """Counts per grade, share of insufficient pairs, the rule, and the most examined pairs."""
    n, n_bad = len(judgments), judgments.n_insufficient
    lines = [
        f"{n:,} judgments by {judgments.model}: relevance is {judgments.relevance_is}",
        f"rule {judgments.grading}",
        f"insufficient: {_limits(judgments)}",
    ]
    if judgments.n_undecided:
        lines.append(f"interval covers all grades: {counted(judgments.n_undecided)}")
    if judgments.why_no_interval:
        lines.append(
            f"no interval: {counted(judgments.n_without_interval)}; {judgments.why_no_interval}"
        )
    if judgments.n_given:
        lines.append(f"given, not estimated: {counted(judgments.n_given)}; counted as certain")
    lines += [f"note: {remark}" for remark in judgments.remarks]
    lines = list(map(printable, lines))
    lines = [
        part for line in lines for part in textwrap.wrap(line, text_width(), subsequent_indent="  ")
    ]
    lines += ["", f"  {'grade':<14}{'pairs':>10}{'of pairs':>11}{'of examinations':>18}"]
    examined = judgments.counted.examined
    total = max(sum(examined.values()), 1e-300)
    counts: list[tuple[int | None, int]] = [*judgments.by_grade.items(), (None, n_bad)]
    for grade, count in counts:
        parts = count / max(n, 1), examined.get(grade, 0.0) / total
        pairs, seen = (percent(part) for part in parts)
        name = "insufficient" if grade is None else grade
        lines.append(f"  {name:<14}{count:>10,}{pairs:>11}{seen:>18}")
    top = judgments.counted.top
    if top is not None and len(top):
        lines += ["", "most examined", *_table(top)]
    return "\n".join(lines)


def counted(number: int) -> str:
    """A number of pairs."""
    return f"{number:,} {'pair' if number == 1 else 'pairs'}"


def percent(share: float) -> str:
    """A share that is neither none nor all does not look as if it were."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %"


def _limits(judgments: Told) -> str:
    few = f"fewer than {judgments.min_examinations:g} examinations"
    if judgments.max_width is None:
        return f"{few}, or no interval, unless it rests on features; or {_ANY}"
    return (
        f"interval of {judgments.level:.0%} wider than {judgments.max_width:g} or unknown, or "
        f"{few}, or {_ANY}"
    )


def _table(frame: pl.DataFrame) -> list[str]:
    names = [name for name in ("query", "doc") if name in frame.columns]
    room = min(24, (text_width() - 43) // len(names) - 2)
    head = "".join(f"  {fitted(name, room)}" for name in names)
    lines = [f"{head}{'relevance':>11}{'interval':>15}{'examined':>10}  grade"]
    for row in frame.rows(named=True):
        ids = "".join(f"  {fitted(row[name], room)}" for name in names)
        interval = "unknown" if row["low"] is None else f"{row['low']:.3f}-{row['high']:.3f}"
        lines.append(
            f"{ids}{row['relevance']:>11.3f}{interval:>15}{short(row['examinations']):>10}"
            f"  {'-' if row['grade'] is None else row['grade']}"
        )
    return lines


def short(number: float, digits: int = 1) -> str:
    """A number of at most ten characters."""
    return f"{number:,.{digits}f}" if number < 1e5 else f"{number:.4g}"
