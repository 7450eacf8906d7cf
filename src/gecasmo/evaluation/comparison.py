"""What a comparison of models found, and how that looks in a terminal and in a notebook."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.model.base import Model
from gecasmo.report import Column, TextTable, counted, html_of, percent, wrapped

if TYPE_CHECKING:
    from gecasmo.plots import ComparisonPlots

_UNDEFINED = "undefined"


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
    by_rank : model, rank, results, conditional and marginal perplexity; `conditional_difference`
        with `conditional_low` and `conditional_high` is by how much it differs from that of the
        click rate by rank, and so for `marginal`
    differences : model, against, metric, difference, low, high, verdict and is_tiny: every model
        against the one with the highest log-likelihood and against the click rate by rank, on the
        same bootstrap samples. "better" and "worse" mean that the interval excludes zero; a
        log-likelihood `is_tiny` apart if a page is less than 0.5 % more or less probable.
    calibration : model, bin, low, high, results, predicted, observed: reliability of the marginal
        click probabilities
    ctr_by_rank : model, rank, results, observed, predicted
    models : the fitted models by name
    notes : what a reader of the numbers should know, in sentences
    reasons : by model and column, why a number is undefined
    setting : parts, split and bootstrap
    nested : where tests of nested models were asked for, a line for each pair: smaller, larger,
        special_case (what of the larger one makes it the smaller one), statistic (twice the gain in
        log-likelihood), expected (what it is on average where the smaller one is true), p with its
        Monte Carlo error p_error, and simulated logs; loo_difference, loo_error and loo_unsure with
        `loo=True`: how much better the larger one foretells pages from all others
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
    nested: pl.DataFrame | None = None

    @property
    def best(self) -> str:
        """The model with the highest log-likelihood; whether clearly so, `differences` tells."""
        return self.setting.best

    def verdict(self, model: str, against: str, metric: str = "log_likelihood") -> str | None:
        """Say whether one model is better than another.

        Parameters
        ----------
        model, against : str
            Names of the table; `against` is the best model or the click rate by rank.
        metric : str
            A column of the table.

        Returns
        -------
        str or None
            "better", "worse", "no clear difference" or "not tested"; None for a model against
            itself.
        """
        found = self.differences.filter(model=model, against=against, metric=metric)
        return None if found.is_empty() else str(found["verdict"][0])

    def size(self, model: str, against: str) -> str | None:
        """Say by how much one model is better or worse than another.

        Parameters
        ----------
        model, against : str
            As for `verdict`.

        Returns
        -------
        str or None
            The verdict with the difference of log-likelihoods in nats a page, and how much more or
            less probable a page is on average under this model: "worse by 0.08 (7.7 %)". What is
            real but makes a page less than 0.5 % more or less probable is called tiny.
        """
        found = self.differences.filter(model=model, against=against, metric="log_likelihood")
        if found.is_empty():
            return None
        row = found.row(0, named=True)
        if row["verdict"] not in ("better", "worse") or row["difference"] is None:
            return str(row["verdict"])
        gap = row["difference"]
        word = f"{row['verdict']}, but tiny:" if row["is_tiny"] else f"{row['verdict']} by"
        ratio = math.expm1(gap) if gap < 700 else math.inf
        less = f"{ratio:.2g} times" if ratio > 10 else percent(abs(ratio))
        return f"{word} {abs(gap):.2g} ({less})"

    @property
    def plot(self) -> ComparisonPlots:
        """Charts of all models, as `comparison.plot.calibration()`; print it to see which."""
        from gecasmo.plots import ComparisonPlots

        return ComparisonPlots(self, ", ".join(self.models))

    def to_dict(self) -> dict[str, Any]:
        """Everything but the models, as JSON can hold it: what is undefined is null."""
        return {
            "setting": dict(vars(self.setting)),
            "table": _records(self.table),
            "by_rank": _records(self.by_rank),
            "differences": _records(self.differences),
            "calibration": _records(self.calibration),
            "ctr_by_rank": _records(self.ctr_by_rank),
            "nested": None if self.nested is None else _records(self.nested),
            "notes": list(self.notes),
            "reasons": {model: dict(told) for model, told in self.reasons.items()},
        }

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = [*_why(self), *self.notes]
        return html_of(" ".join(_headline(self)), *_tables(self), notes)


def _records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in row.items()
        }
        for row in frame.to_dicts()
    ]


def as_text(comparison: Comparison) -> str:
    """Lay out headline, tables and notes in lines that fit the terminal, or 100 characters."""
    lines = [part for words in _headline(comparison) for part in wrapped(words)]
    for table in _tables(comparison):
        lines += ["", *table.lines()]
    told = [*_why(comparison), *comparison.notes]
    if told:
        lines += ["", "Notes"]
    for note in told:
        lines += wrapped(note, "  - ", "    ")
    return "\n".join(lines)


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


def _tables(comparison: Comparison) -> Iterator[TextTable]:
    at = comparison.setting
    rows = comparison.table.to_dicts()
    models = [row["model"] for row in rows]
    name = Column("model", models, is_text=True, least=8, most=16, wraps=True)

    def numbers(heading: str, metric: str, write: Callable[[Any], str] = plain) -> Column:
        return Column(heading, [write(row[metric]) for row in rows])

    def with_interval(heading: str, metric: str) -> list[Column]:
        found = [numbers(heading, metric)]
        if has_intervals(comparison):
            ends = [_interval(row[f"{metric}_low"], row[f"{metric}_high"]) for row in rows]
            found.append(Column(f"{at.level:.0%} interval", ends, belongs_left=True))
        return found

    def against(heading: str, reference: str) -> Column:
        return Column(heading, [comparison.size(each, reference) or "itself" for each in models])

    yield TextTable(
        [
            name,
            *with_interval("log-\nlikelihood", "log_likelihood"),
            against("than the\nhighest", at.best),
            against("than the click\nrate by rank", at.baseline),
        ],
        "Log-likelihood per session (natural logarithm; higher is better). Differences in nats a "
        "page, and by how much a page is more or less probable",
    )
    perplexities = [
        column
        for kind in ("conditional", "marginal")
        for column in (
            *with_interval(f"{kind}\npooled", f"{kind}_perplexity_pooled"),
            numbers(f"{kind}\narithmetic", f"{kind}_perplexity_arithmetic"),
        )
    ]
    yield TextTable(
        [name, *perplexities],
        "Perplexity (1 is perfect, 2 a coin; conditional: clicks above are known)",
    )
    yield TextTable(
        [
            name,
            numbers("gain,\ncond.", "conditional_gain", _gain),
            numbers("gain,\nmarg.", "marginal_gain", _gain),
            numbers("CTR\nRMSE", "ctr_rmse"),
            *with_interval("Brier", "brier"),
            numbers("ECE", "ece"),
            numbers("impossible\nsessions", "n_impossible", "{:,}".format),
            numbers("seconds\nto fit", "seconds", _seconds),
        ],
        "Gain in pooled perplexity over the click rate by rank; errors (lower is better); cost",
    )
    if at.ndcg_at is not None:
        judged = counted(at.n_judged_queries or 0, "query", "queries")
        yield TextTable(
            [
                name,
                numbers(f"nDCG@{at.ndcg_at}", "ndcg"),
                numbers("AUC", "auc"),
                numbers("Kendall's tau", "kendall"),
            ],
            f"Against human judgments of {judged} (higher is better)",
        )
    if comparison.nested is not None:
        yield _nested(comparison.nested)


def _nested(frame: pl.DataFrame) -> TextTable:
    rows = frame.to_dicts()

    def column(heading: str, write: Callable[[Any], str]) -> Column:
        return Column(heading, [write(row) if row["p"] is not None else "" for row in rows])

    columns = [
        Column("smaller", [row["smaller"] for row in rows], is_text=True, most=16, wraps=True),
        Column("larger", [row["larger"] for row in rows], is_text=True, most=16, wraps=True),
        Column("if", [row["special_case"] for row in rows], is_text=True, most=30, wraps=True),
        column("statistic", lambda row: f"{row['statistic']:.2f}"),
        column("expected", lambda row: f"{row['expected']:.2f}"),
        column("p", lambda row: f"{row['p']:.3f} ± {row['p_error']:.3f}"),
        column("simulated\nlogs", lambda row: f"{row['simulated']:,}"),
    ]
    if "loo_difference" in frame.columns:
        write = "{loo_difference:+.1f} ± {loo_error:.1f}".format_map
        columns.append(Column("leave-one-out", [write(row) for row in rows]))
    return TextTable(
        columns,
        "Is the larger model better than a special case of it by more than chance? Twice the gain "
        "in log-likelihood, what it would be if the smaller one were true, and how often it would "
        "be as large",
    )


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
    """Write a number in few characters."""
    if value is None:
        return _UNDEFINED
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:.4g}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{plain(low)}, {plain(high)}]"


def _gain(value: float | None) -> str:
    if value is None:
        return _UNDEFINED
    return f"{value:+.1%}" if abs(value) < 100 else f"{100 * value:+.2g}%"


def _seconds(value: float | None) -> str:
    return "given" if value is None else f"{value:.2f}"
