"""The paper's bar chart, from our own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from gecasmo.errors import ModelError
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
        f"gecasmo, item tables (users never seen, mean of {len(result.seeds)} seeds)",
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
