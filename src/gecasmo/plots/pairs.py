"""Pairs of query and document: how much data there is, and relevance beside the raw click rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError, ModelError
from gecasmo.judgments import relevance_frame
from gecasmo.logs import ClickLog
from gecasmo.plots.sources import thinned, wanted_log
from gecasmo.plots.theme import (
    BLUE,
    GREY,
    HEIGHT,
    ORANGE,
    WIDTH,
    Chart,
    altair,
    chart_of,
    diagonal,
    finished,
    share_end,
)
from gecasmo.report import printable

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000, 100_000, 1_000_000)

_MAX_PAIRS = 300


def pairs_by_impressions(log: ClickLog) -> Chart:
    """How many pairs of query and document have how much data.

    Bars beside each other: the share of the pairs that were shown so often, and the share of all
    shown results that are theirs. Numbers of pairs stand above the bars.
    """
    alt = altair()
    wide = impression_classes(log)
    n_pairs = int(wide["pairs"].sum())
    shares = "share of pairs" if log.has_query else "share of documents"
    words = {"pairs": shares, "impressions": "share of impressions"}
    long = pl.concat(
        [
            wide.select(
                "shown",
                "pairs",
                "impressions",
                kind=pl.lit(word),
                share=pl.col(column) / max(float(wide[column].sum()), 1.0),
                label=pl.col("pairs").map_elements(lambda n: f"{n:,}", return_dtype=pl.String)
                if column == "pairs"
                else pl.lit(""),
            )
            for column, word in words.items()
        ]
    )
    names = list(words.values())
    base = chart_of(long).encode(
        x=alt.X(
            "shown:N",
            sort=wide["shown"].to_list(),
            title="times shown (impressions)",
            axis=alt.Axis(labelAngle=0),
        ),
        xOffset=alt.XOffset("kind:N", sort=names),
        y=alt.Y("share:Q", title="share", axis=alt.Axis(format="%")),
        tooltip=[
            alt.Tooltip("shown:N", title="times shown"),
            alt.Tooltip("kind:N", title="bar"),
            alt.Tooltip("share:Q", format=".1%"),
            alt.Tooltip("pairs:Q", format=","),
            alt.Tooltip("impressions:Q", format=",.1~f"),
        ],
    )
    bars = base.mark_bar().encode(
        color=alt.Color(
            "kind:N",
            title=None,
            sort=names,
            scale=alt.Scale(domain=names, range=[BLUE, ORANGE]),
            legend=alt.Legend(orient="top"),
        )
    )
    labels = base.mark_text(dy=-8, fontSize=12).encode(text="label:N")
    pair = "(query, document) pairs" if log.has_query else "documents"
    rare = int(wide.filter(pl.col("least") < 10)["pairs"].sum())
    return finished(
        (bars + labels).properties(width=WIDTH + 80, height=HEIGHT),
        f"How much data there is about {n_pairs:,} {pair}",
        f"{rare:,} of them ({rare / max(n_pairs, 1):.0%}) were shown fewer than 10 times. "
        f"Above the bars: number of {'pairs' if log.has_query else 'documents'}.",
    )


def impression_classes(log: ClickLog) -> pl.DataFrame:
    """Per class of impressions: its name, least impressions, pairs, and all their impressions."""
    pair = ["query", "doc"] if log.has_query else ["doc"]
    if log.n_results == 0:
        raise ClickLogError("The log shows no results, so there are no pairs to count.")
    frame = log.to_frame().select(pair).with_columns(weight=pl.Series(log.weight[log.page]))
    per_pair = frame.group_by(pair).agg(pl.col("weight").sum())["weight"].to_numpy()
    per_pair = per_pair[per_pair > 0]
    # A pair of weight 0.4 has less than one impression: it belongs to the first class.
    number = np.maximum(np.searchsorted(_EDGES, per_pair, side="right") - 1, 0)
    n_classes = int(number.max(initial=0)) + 1
    return pl.DataFrame(
        {
            "shown": [_named(place) for place in range(n_classes)],
            "least": list(_EDGES[:n_classes]),
            "pairs": np.bincount(number, minlength=n_classes),
            "impressions": np.bincount(number, weights=per_pair, minlength=n_classes),
        }
    )


def _named(place: int) -> str:
    first = _EDGES[place]
    if place + 1 == len(_EDGES):
        return f"{first:,} or more"
    last = _EDGES[place + 1] - 1
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"


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
