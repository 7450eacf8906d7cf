"""The paper's bar chart, from our own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from gecasmo.errors import ModelError
from gecasmo.experiments.beyond import Beyond
from gecasmo.experiments.paper import PUBLISHED, PaperResult

BLUE, ORANGE, GREY = "#4269d0", "#ff725c", "#9c9c9c"


def figure(**options: Any) -> Any:
    """An empty figure and its axes, without touching the user's own plots."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ModelError('Charts need Matplotlib: pip install "gecasmo[plots]".') from None
    made = Figure(layout="constrained", **options)
    return made


def draw_perplexity(result: PaperResult, path: str | Path) -> None:
    """Perplexity by rank of both models: as published, and here on users never seen."""
    ours = result.by_rank()
    drawn = figure(figsize=(9, 6.4))
    upper, lower = drawn.subplots(2, 1)
    _bars(
        upper,
        PUBLISHED,
        {"CZM": ("CZM", BLUE), "UBM": ("UBM", ORANGE)},
        "Published (training sessions)",
    )
    _bars(
        lower,
        ours,
        {"CZM, item tables": ("CZM", BLUE), "UBM, item tables": ("UBM", ORANGE)},
        f"gecasmo, item tables (users never seen, {len(result.seeds)} simulated logs)",
    )
    upper.set_ylim(1, 11)
    lower.set_ylim(1, 2.2)
    drawn.suptitle("Marginal perplexity by rank; 1 is perfect, 2 a coin")
    drawn.savefig(path, dpi=130)


def _bars(axes: Any, table: pl.DataFrame, columns: dict[str, tuple[str, str]], title: str) -> None:
    width = 0.8 / (len(columns) + 1)
    ranks = table["rank"].to_numpy()
    shown = {**columns, "RCTR": ("rank click rates alone", GREY)}
    for place, (column, (label, colour)) in enumerate(shown.items()):
        values = table[column].to_numpy() - 1
        shift = (place - (len(shown) - 1) / 2) * width
        axes.bar(ranks + shift, values, width, bottom=1, color=colour, label=label)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xticks(ranks)
    axes.set_xlabel("rank")
    axes.set_ylabel("perplexity")
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


_SHOWN = {
    "truth": ("truth", "black"),
    "item tables": ("item tables", GREY),
    "user: log distance and crowding": ("logistic, user known", BLUE),
    "user and item position, network": ("network, user known", ORANGE),
}


def draw_beyond(result: Beyond, path: str | Path) -> None:
    """How far each model gets, and what it says about the events behind the clicks."""
    drawn = figure(figsize=(11, 7.5))
    (way, attraction), (examination, satisfaction) = drawn.subplots(2, 2)
    _draw_way(way, result.means())
    for axes, coin in ((attraction, "attraction"), (satisfaction, "satisfaction")):
        for name, (label, colour) in _SHOWN.items():
            part = result.by_distance.filter(pl.col("model") == name)
            axes.plot(part["distance"], part[coin], color=colour, label=label, **_style(name))
        axes.set_title(f"{coin} by distance of user and item", fontsize=10, loc="left")
        axes.set_xlabel("distance")
        axes.set_ylim(0, 1)
    for name, (label, colour) in _SHOWN.items():
        part = result.by_rank.filter(pl.col("model") == name)
        examination.plot(part["rank"], part["reached"], color=colour, label=label, **_style(name))
    examination.set_title(
        "examination: was a rank reached, given the page", fontsize=10, loc="left"
    )
    examination.set_xlabel("rank")
    examination.set_ylim(0, 1)
    attraction.legend(frameon=False)
    for axes in (attraction, satisfaction, examination, way):
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    drawn.savefig(path, dpi=130)


def _style(name: str) -> dict[str, Any]:
    return {"linewidth": 3.5, "alpha": 0.35} if name == "truth" else {"linewidth": 1.5}


def _draw_way(axes: Any, means: pl.DataFrame) -> None:
    names = means["model"].to_list()[::-1]
    values = means["marginal"].to_numpy()[::-1]
    axes.barh(
        names, values - 1.33, left=1.33, color=[GREY if n == "oracle" else BLUE for n in names]
    )
    for place, value in enumerate(values):
        axes.text(value, place, f" {value:.4f}", va="center", fontsize=8)
    axes.set_xlim(1.33, float(values.max()) + 0.003)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_title("marginal perplexity on users never seen", fontsize=10, loc="left")
