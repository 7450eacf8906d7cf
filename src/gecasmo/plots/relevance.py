"""Estimated relevance beside the raw click-through rate, pair by pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from gecasmo.errors import ModelError
from gecasmo.judgments.pairs import relevance_frame
from gecasmo.judgments.printing import printable
from gecasmo.logs import ClickLog
from gecasmo.plots.rows import thinned
from gecasmo.plots.sources import wanted_log
from gecasmo.plots.theme import (
    BLUE,
    GREY,
    WIDTH,
    Chart,
    altair,
    chart_of,
    diagonal,
    finished,
    share_end,
)

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_MAX_PAIRS = 300


def relevance_against_ctr(
    model: Model,
    log: ClickLog,
    *,
    top: int | None = None,
    coin: str | None = None,
    level: float = 0.9,
) -> Chart:
    """Estimated relevance of each pair against its share of clicks, with intervals.

    Points above the diagonal are better than their clicks say, mostly because they were shown
    where few people look. Larger points rest on more examinations.

    Parameters
    ----------
    model : fitted model
    log : ClickLog
    top : int, optional
        Draw the pairs that were shown most. By default, if there are many pairs, some of them
        are drawn, evenly from the rarest to the most shown.
    coin : str, optional
        Draw this coin instead of what the model calls relevance (which can be a product).
    level : float
        Of the intervals.
    """
    if top is not None and top < 1:
        raise ModelError(f"top={top}: at least one pair has to be drawn.")
    alt = altair()
    whole = relevance_data(model, wanted_log(model, log), coin=coin, level=level)
    frame = whole.sort("impressions", descending=True, maintain_order=True)
    n_pairs = len(frame)
    if top is not None:
        frame = frame.head(top)
    drawn = thinned(frame, _MAX_PAIRS)
    what = printable(" × ".join(coins_of(model, coin)))
    drawn_coin = "relevance" if coin is None else coin
    title = f"estimated relevance ({what})" if coin is None else f"estimated {what}"
    return finished(
        _drawn(alt, drawn, title, level),
        f"{model.name}: estimated {drawn_coin} against raw click-through rate",
        _said(len(drawn), len(frame), n_pairs, top, level),
    )


def _said(n_drawn: int, n_chosen: int, n_pairs: int, top: int | None, level: float) -> str:
    if top is not None and n_chosen < n_pairs:
        which = f"The {n_chosen:,} most shown of {n_pairs:,} pairs"
        if n_drawn < n_chosen:
            which += f", {n_drawn:,} of them drawn"
    elif n_drawn < n_pairs:
        which = f"{n_drawn:,} of {n_pairs:,} pairs, evenly from the rarest to the most shown"
    else:
        which = f"All {n_pairs:,} pairs"
    return (
        f"{which}. Thin bars: {level:.0%} intervals. On the dashed line both are equal; above it, "
        "a result is better than its clicks alone say."
    )


def _drawn(alt: Chart, frame: pl.DataFrame, title: str, level: float) -> Chart:
    end = share_end([*frame["ctr"], *frame["relevance"]])
    # A little room below 0, so that the many points at 0 do not cover the axes.
    unit = alt.Scale(domain=[-0.02 * end, end], nice=False)
    pair = [name for name in ("query", "doc") if name in frame.columns]
    base = chart_of(frame).encode(
        x=alt.X("ctr:Q", title="raw click-through rate", scale=unit, axis=alt.Axis(tickCount=8)),
        tooltip=[
            *(f"{name}:N" for name in pair),
            alt.Tooltip("ctr:Q", format=".4f", title="raw CTR"),
            alt.Tooltip("relevance:Q", format=".4f", title=title),
            alt.Tooltip("low:Q", format=".4f"),
            alt.Tooltip("high:Q", format=".4f"),
            alt.Tooltip("examinations:Q", format=",.1~f", title="expected examinations"),
            alt.Tooltip("impressions:Q", format=",.1~f"),
        ],
    )
    bars = (
        base.transform_filter("isValid(datum.low) && isValid(datum.high)")
        .mark_rule(color=GREY, opacity=0.3, strokeWidth=1, clip=True)
        .encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    )
    known = frame["examinations"].fill_null(0.0).to_list()
    points = base.mark_point(filled=True, color=BLUE, opacity=0.65, stroke="white", strokeWidth=0.5)
    points = points.encode(
        y=alt.Y("relevance:Q", title=title, scale=unit, axis=alt.Axis(tickCount=8)),
        size=alt.Size(
            "examinations:Q",
            title=["expected", "examinations"],
            scale=alt.Scale(type="sqrt", domain=[0, max(100.0, *known)], range=[8, 300]),
            legend=alt.Legend(symbolFillColor=BLUE, symbolStrokeColor=BLUE, values=_sizes(frame)),
        ),
    )
    return (bars + diagonal(0, end) + points).properties(width=WIDTH - 40, height=460)


def _sizes(frame: pl.DataFrame) -> list[float]:
    """Round numbers for the legend of sizes."""
    most = frame["examinations"].max()
    if not isinstance(most, float) or not most > 1:
        return []
    top = 10 ** np.floor(np.log10(most))
    return [float(value) for value in (top / 100, top / 10, top, 3 * top) if 1 <= value <= most]


def coins_of(model: Model, coin: str | None) -> tuple[str, ...]:
    """The coins whose product is drawn."""
    chosen = tuple(model.relevance) if coin is None else (coin,)
    if not chosen:
        raise ModelError(
            f"{model.name} does not say what relevance is. Name a coin, "
            f"coin={next(iter(model.forms))!r}, or give the class `relevance = (...)`."
        )
    unknown = [name for name in chosen if name not in model.forms]
    if unknown:
        raise ModelError(
            f"{model.name} has no coin '{unknown[0]}'. Its coins are: {', '.join(model.forms)}."
        )
    return chosen


def relevance_data(
    model: Model, log: ClickLog, *, coin: str | None = None, level: float = 0.9
) -> pl.DataFrame:
    """Per pair: impressions, raw CTR, relevance with its interval, and expected examinations."""
    coins = coins_of(model, coin)
    pair = ["query", "doc"] if log.has_query else ["doc"]
    weight = log.weight[log.page]
    results = pl.DataFrame([log.column(name).alias(name) for name in pair]).with_columns(
        impressions=pl.Series(weight), clicks=pl.Series(weight * log.click)
    )
    by_pair = all(set(model.keys[name]) <= set(pair) for name in coins)
    if not by_pair:
        # Rows of the coins are not pairs: what a pair has is the mean over its results.
        product = np.prod([model.probability(name, log) for name in coins], axis=0)
        results = results.with_columns(relevance=pl.Series(weight * product))
    pairs = results.group_by(pair, maintain_order=True).agg(pl.all().sum())
    pairs = pairs.filter(pl.col("impressions") > 0)
    shown = pl.col("impressions")
    if by_pair:
        twin = model.copy()
        twin.relevance = coins
        known = relevance_frame(twin, pairs.select(pair), level)
        columns = [*pair, "relevance", "low", "high", "examinations"]
        pairs = pairs.join(known.select(columns), on=pair, how="left", maintain_order="left")
    else:
        nothing = pl.lit(None, dtype=pl.Float64)
        pairs = pairs.with_columns(
            relevance=pl.col("relevance") / shown, low=nothing, high=nothing, examinations=nothing
        )
    return pairs.select(
        *pair,
        "impressions",
        "relevance",
        "low",
        "high",
        "examinations",
        ctr=pl.col("clicks") / shown,
    )
