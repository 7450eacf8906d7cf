"""How judgments look in a terminal: never wider than it is, nor than 100 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import polars as pl

from gecasmo.judgments.printing import fitted, printable, text_width
from gecasmo.judgments.verdicts import INSUFFICIENT, ORDERED

if TYPE_CHECKING:
    from gecasmo.judgments.counting import Told


def as_text(judgments: Told) -> str:
    """Counts per grade and verdict, how sure they are, the rule, and the most examined pairs."""
    lines = [
        f"{len(judgments):,} judgments by {judgments.model}: relevance is {judgments.relevance_is}",
        f"rule {judgments.grading}",
        f"no grade: {_limits(judgments)}",
        "ordered: no grade, but against the judged pairs of the query the order by relevance is "
        f"right with a probability of at least {judgments.min_order:g}, on average",
    ]
    if judgments.n_undecided:
        lines.append(f"no grade for doubt alone: {counted(judgments.n_undecided)}")
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
    lines += ["", *_groups(judgments)]
    top = judgments.counted.top
    if top is not None and len(top):
        lines += ["", "most examined", *_table(top)]
    return "\n".join(lines)


def _groups(judgments: Told) -> list[str]:
    """A line for each grade and each other verdict."""
    every = judgments.counted.all
    head = f"  {'grade':<14}{'pairs':>10}{'of pairs':>10}{'of examinations':>17}"
    lines = [f"{head}{'right':>8}{'order':>8}"]
    names: list[int | str] = [*judgments.by_grade, ORDERED, INSUFFICIENT]
    for name in names:
        group = judgments.counted[name]
        pairs = percent(group.pairs / max(every.pairs, 1))
        seen = percent(group.examinations / max(every.examinations, 1e-300))
        right = group.mean_right if isinstance(name, int) else None
        sure = "".join(f"{_chance(chance):>8}" for chance in (right, group.mean_order))
        lines.append(f"  {name:<14}{group.pairs:>10,}{pairs:>10}{seen:>17}{sure}")
    legend = (
        "right: mean probability that the grade is right; order: that the order against the judged "
        "pairs of the query is"
    )
    return [
        *lines,
        *textwrap.wrap(legend, text_width() - 2, initial_indent="  ", subsequent_indent="  "),
    ]


def _chance(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


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
    doubt = f"a grade right with a probability below {judgments.min_probability:g}"
    few = f"fewer than {judgments.min_examinations:g} examinations"
    if judgments.max_width is None:
        return f"{few}, or no interval, unless it rests on features; or {doubt}"
    return (
        f"interval of {judgments.level:.0%} wider than {judgments.max_width:g} or unknown, or "
        f"{few}, or {doubt}"
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
