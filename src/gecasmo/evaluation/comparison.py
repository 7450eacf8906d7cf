"""What a comparison of models found, and how that looks in a terminal and in a notebook."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import polars as pl

from gecasmo.evaluation.words import counted
from gecasmo.model.base import Model

_NAME, _NARROW = 16, 8
_UNDEFINED = "undefined"
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What the models were compared on, and how."""

    split: str
    n_train_sessions: int
    n_train_results: int
    n_test_sessions: int
    n_test_results: int
    seed: int
    impossible: str
    bootstrap: int
    over: str
    n_clusters: int
    level: float
    baseline: str
    best: str
    ndcg_at: int | None = None
    n_judged_queries: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Models on the same sessions; prints as tables, and is one in a notebook.

    Attributes
    ----------
    table : one line per model, the highest log-likelihood first. Where a metric has an interval,
        it is in the columns `<metric>_low` and `<metric>_high`. What is undefined is null, and
        `reasons` says why.
    by_rank : model, rank, results, conditional and marginal perplexity
    differences : model, against, metric, difference, low, high and verdict: every model against
        the one with the highest log-likelihood and against the click rate by rank, on the same
        bootstrap samples. "better" and "worse" mean that the interval excludes zero.
    calibration : model, bin, low, high, results, predicted, observed: reliability of the marginal
        click probabilities
    ctr_by_rank : model, rank, results, observed, predicted
    models : the fitted models by name
    notes : what a reader of the numbers should know, in sentences
    reasons : by model and column, why a number is undefined
    setting : parts, split and bootstrap
    """

    table: pl.DataFrame
    by_rank: pl.DataFrame
    differences: pl.DataFrame
    calibration: pl.DataFrame
    ctr_by_rank: pl.DataFrame
    models: dict[str, Model]
    notes: list[str]
    setting: Setting
    reasons: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The model with the highest log-likelihood; whether clearly so, `differences` tells."""
        return self.setting.best

    def verdict(self, model: str, against: str, metric: str = "log_likelihood") -> str | None:
        """The verdict on one model against one of the two references; None if it is the same."""
        found = self.differences.filter(model=model, against=against, metric=metric)
        return None if found.is_empty() else str(found["verdict"][0])

    def to_dict(self) -> dict[str, Any]:
        """Everything but the models, as JSON can hold it: what is undefined is null."""
        return {
            "setting": dict(vars(self.setting)),
            "table": _records(self.table),
            "by_rank": _records(self.by_rank),
            "differences": _records(self.differences),
            "calibration": _records(self.calibration),
            "ctr_by_rank": _records(self.ctr_by_rank),
            "notes": list(self.notes),
            "reasons": {model: dict(told) for model, told in self.reasons.items()},
        }

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self)


def _records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in row.items()
        }
        for row in frame.to_dicts()
    ]


class Column(NamedTuple):
    """The lines above a column, and what stands in it."""

    heading: tuple[str, ...]
    cell: Callable[[Row], str]


class Block(NamedTuple):
    """A table of some columns beside the models' names."""

    title: str
    columns: list[Column]


def as_text(comparison: Comparison) -> str:
    """Headline, tables and notes, in lines that fit the terminal, or 100 characters."""
    width = _width()
    lines = [part for words in _headline(comparison) for part in textwrap.wrap(words, width)]
    rows = comparison.table.to_dicts()
    for block in _blocks(comparison):
        title = textwrap.wrap(block.title, width)
        lines += ["", *title, *_grid(block, rows, width)]
    told = [*_why(comparison), *comparison.notes]
    if told:
        lines += ["", "Notes"]
    for note in told:
        words = " ".join(note.split())
        lines += textwrap.wrap(
            words, width, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
        )
    return "\n".join(line.rstrip() for line in lines)


def as_html(comparison: Comparison) -> str:
    """The same for a notebook."""
    rows = comparison.table.to_dicts()
    parts = [f"<p>{html.escape(' '.join(_headline(comparison)))}</p>"]
    for block in _blocks(comparison):
        headings = ["model", *(" ".join(column.heading).strip() for column in block.columns)]
        head = "".join(f"<th>{html.escape(words)}</th>" for words in headings)
        body = "".join(
            "<tr>"
            + "".join(
                f"<td>{html.escape(text)}</td>"
                for text in (row["model"], *(column.cell(row) for column in block.columns))
            )
            + "</tr>"
            for row in rows
        )
        parts.append(
            f"<table><caption>{html.escape(block.title)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )
    told = [*_why(comparison), *comparison.notes]
    if told:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in told)
        parts.append(f"<details open><summary>notes</summary><ul>{notes}</ul></details>")
    return "".join(parts)


def _headline(comparison: Comparison) -> list[str]:
    at = comparison.setting
    models = f"{len(comparison.table)} models"
    headline = [
        f"{models} on {counted(at.n_test_sessions, 'test session')} "
        f"({counted(at.n_test_results, 'result')}), fitted to {at.n_train_sessions:,} "
        f"({counted(at.n_train_results, 'result')}); {at.split}."
    ]
    if has_intervals(comparison):
        groups = {"query": "queries", "session": "sessions"}.get(at.over, f"values of {at.over!r}")
        headline.append(
            f"Intervals and verdicts are from {at.bootstrap:,} bootstrap samples over "
            f"{at.n_clusters:,} {groups}."
        )
    return headline


def has_intervals(comparison: Comparison) -> bool:
    """Whether there was anything to draw samples from."""
    return comparison.setting.bootstrap > 0 and comparison.setting.n_clusters > 1


def _blocks(comparison: Comparison) -> list[Block]:
    at = comparison.setting
    between = f"{at.level:.0%} interval" if has_intervals(comparison) else ""

    def against(reference: str, itself: str) -> Callable[[Row], str]:
        return lambda row: comparison.verdict(row["model"], reference) or itself

    blocks = [
        Block(
            "Log-likelihood per session (natural logarithm; higher is better)",
            [
                Column(("log-", "likelihood"), _number("log_likelihood")),
                Column(("", between), _interval("log_likelihood")),
                Column(("than the", "highest"), against(at.best, "itself")),
                Column(("than the click", "rate by rank"), against(at.baseline, "itself")),
            ],
        ),
        Block(
            "Perplexity (1 is perfect, 2 a coin; conditional: clicks above are known)",
            [
                Column((above, name), cell)
                for kind in ("conditional", "marginal")
                for above, name, cell in (
                    (kind, "pooled", _number(f"{kind}_perplexity_pooled")),
                    ("", between, _interval(f"{kind}_perplexity_pooled")),
                    (kind, "arithmetic", _number(f"{kind}_perplexity_arithmetic")),
                )
            ],
        ),
        Block(
            "Gain in pooled perplexity over the click rate by rank; errors (lower is better); cost",
            [
                Column(("gain,", "cond."), _percent("conditional_gain")),
                Column(("gain,", "marg."), _percent("marginal_gain")),
                Column(("CTR", "RMSE"), _number("ctr_rmse")),
                Column(("", "Brier"), _number("brier")),
                Column(("", between), _interval("brier")),
                Column(("", "ECE"), _number("ece")),
                Column(("impossible", "sessions"), lambda row: f"{row['n_impossible']:,}"),
                Column(("seconds", "to fit"), _seconds),
            ],
        ),
    ]
    if at.ndcg_at is not None:
        judged = counted(at.n_judged_queries or 0, "query", "queries")
        blocks.append(
            Block(
                f"Against human judgments of {judged} (higher is better)",
                [
                    Column((f"nDCG@{at.ndcg_at}",), _number("ndcg")),
                    Column(("AUC",), _number("auc")),
                    Column(("Kendall's tau",), _number("kendall")),
                ],
            )
        )
    return blocks


def _width() -> int:
    from gecasmo.judgments.printing import text_width  # from a layer above

    return text_width()


def _grid(block: Block, rows: list[Row], total: int) -> list[str]:
    """The lines of a block; columns for which there is no room stand below the others."""
    cells = [[column.cell(row) for row in rows] for column in block.columns]
    widths = [
        max(map(len, (*column.heading, *values)))
        for column, values in zip(block.columns, cells, strict=True)
    ]
    named = max(5, *(len(row["model"]) for row in rows))
    room = total - 2 - min(named, _NARROW)
    fitting = max(1, sum(used <= room for used in accumulate(width + 2 for width in widths)))
    # Several blocks share the columns evenly.
    fitting = math.ceil(len(widths) / math.ceil(len(widths) / fitting))
    if 1 < fitting < len(widths) and _is_interval(block.columns[fitting]):
        fitting -= 1
    left = total - 2 - sum(widths[:fitting]) - 2 * fitting
    name_width = max(min(named, _NARROW), min(left, named, _NAME))

    def line(name: str, values: Iterable[str]) -> str:
        padded = (f"{value:>{width}}" for value, width in zip(values, widths, strict=False))
        return "  " + "  ".join([f"{name:<{name_width}}", *padded])

    shown = block.columns[:fitting]
    headings = list(zip(*(column.heading for column in shown), strict=True))
    lines = [line("", heading) for heading in headings[:-1]] + [line("model", headings[-1])]
    for number, row in enumerate(rows):
        first, *others = textwrap.wrap(row["model"], name_width) or [""]
        lines.append(line(first, (values[number] for values in cells[:fitting])))
        lines += [f"  {other}" for other in others]
    if fitting < len(block.columns):
        lines += ["", *_grid(Block(block.title, block.columns[fitting:]), rows, total)]
    return lines


def _is_interval(column: Column) -> bool:
    """Whether a column belongs to the number on its left."""
    return column.heading[0] == "" and column.heading[-1].endswith("interval")


def _why(comparison: Comparison) -> list[str]:
    """Why numbers are undefined: one sentence per reason, naming the models."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for model, told in comparison.reasons.items():
        for column, reason in told.items():
            by_reason.setdefault((column, reason), []).append(model)
    merged: dict[tuple[str, str], list[str]] = {}
    for (column, reason), models in by_reason.items():
        merged.setdefault((", ".join(models), reason), []).append(column)
    return [
        f"{models}: {', '.join(columns)} undefined: {reason.rstrip('.')}."
        for (models, reason), columns in merged.items()
        if "seconds" not in columns  # a model that came fitted has a note of its own
    ]


def plain(value: float | None) -> str:
    """A number in few characters."""
    if value is None:
        return _UNDEFINED
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:.4g}"


def _number(name: str) -> Callable[[Row], str]:
    return lambda row: plain(row[name])


def _interval(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        return "" if low is None or high is None else f"[{plain(low)}, {plain(high)}]"

    return cell


def _percent(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = row[name]
        if value is None:
            return _UNDEFINED
        return f"{value:+.1%}" if abs(value) < 100 else f"{100 * value:+.2g}%"

    return cell


def _seconds(row: Row) -> str:
    return "given" if row["seconds"] is None else f"{row['seconds']:.2f}"
