"""Pairs of query and document: how much data there is, and relevance beside the raw click rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError, ModelError
from gecasmo.judgments import JudgmentsError, relevance_frame
from gecasmo.judgments.propensity import is_anchored, required_coins
from gecasmo.logs import ClickLog
from gecasmo.model.relevance import (
    coins_of_relevance,
    factor_named,
    factor_probability,
    factors_of,
)
from gecasmo.plots import theme
from gecasmo.plots.theme import Chart, altair, chart_of, finished, thinned, tips, wanted_log
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
        tooltip=tips("shown:N", "kind:N", share=".1%", pairs=",", impressions=",.1~f"),
    )
    bars = base.mark_bar().encode(
        color=alt.Color(
            "kind:N",
            title=None,
            sort=names,
            scale=alt.Scale(domain=names, range=[theme.BLUE, theme.ORANGE]),
            legend=alt.Legend(orient="top"),
        )
    )
    labels = base.mark_text(dy=-8, fontSize=12).encode(text="label:N")
    pair = "(query, document) pairs" if log.has_query else "documents"
    rare = int(wide.filter(pl.col("least") < 10)["pairs"].sum())
    return finished(
        (bars + labels).properties(width=theme.WIDTH + 80, height=theme.HEIGHT),
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
    """Estimated relevance of pairs against their raw click rate.

    Points above the dashed line are better than their clicks say, mostly because they were shown
    where few people look. Larger points rest on more examinations. The line is where both are
    equal if they have one scale: if a click takes all coins of relevance, and the fit knows their
    level. A product such as attraction x satisfaction is smaller than any click rate, and the
    attraction of a PBM is known up to a factor; then the line is what relevance is at such a click
    rate on average.

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
    coins = coins_of(model, coin)
    whole = relevance_data(model, wanted_log(model, log), coin=coin, level=level)
    frame = whole.sort("impressions", descending=True, maintain_order=True)
    chosen = frame if top is None else frame.head(top)
    drawn = thinned(chosen, _MAX_PAIRS)
    what = printable(" × ".join(coins))
    title = f"estimated relevance ({what})" if coin is None else f"estimated {what}"
    why = other_scale(model, coins)
    slope = 1.0
    if why:
        clicked = float((whole["ctr"] * whole["impressions"]).sum())
        slope = float((whole["relevance"] * whole["impressions"]).sum()) / max(clicked, 1e-300)
    said = f"{_which(len(drawn), len(chosen), len(whole))}. Thin bars: {level:.0%} intervals."
    if why:
        said += (
            f"\nThe scale is not that of click rates: {why}. So on the dashed line relevance is "
            f"{slope:.3g} times the click rate, as it is on average; above it, a result is better "
            "than its clicks alone say."
        )
    else:
        said += (
            " On the dashed line both are equal; above it, a result is better than its clicks "
            "alone say."
        )
    return finished(
        _drawn(drawn, title, slope),
        f"{model.name}: estimated {'relevance' if coin is None else coin} against raw "
        "click-through rate",
        said,
    )


def other_scale(model: Model, coins: tuple[str, ...]) -> str:
    """Why a product of coins cannot be compared with click rates as it is; empty if it can."""
    twin = model.copy()
    twin.relevance = coins
    try:
        required = required_coins(twin)
    except JudgmentsError:
        return f"a click does not take {' or '.join(coins)}"
    if len(required.relevance) < len(coins):
        return f"a click takes {' and '.join(required.relevance)}, and this is {' × '.join(coins)}"
    return "" if is_anchored(twin, required) else f"{model.name} tells it up to a common factor"


def _which(n_drawn: int, n_chosen: int, n_pairs: int) -> str:
    if n_chosen < n_pairs:
        which = f"The {n_chosen:,} most shown of {n_pairs:,} pairs"
        return f"{which}, {n_drawn:,} of them drawn" if n_drawn < n_chosen else which
    if n_drawn < n_pairs:
        return f"{n_drawn:,} of {n_pairs:,} pairs, evenly from the rarest to the most shown"
    return f"All {n_pairs:,} pairs"


def _drawn(frame: pl.DataFrame, title: str, slope: float) -> Chart:
    alt = altair()
    # Whole bars: one that is cut off at the edge would look like a narrow interval.
    ends = (
        theme.share_end(frame["ctr"]),
        theme.share_end([*frame["relevance"], *frame["high"].drop_nulls()]),
    )
    # A little room below 0, so that the many points at 0 do not cover the axes.
    across, upward = (alt.Scale(domain=[-0.02 * end, end], nice=False) for end in ends)
    pair = [f"{name}:N" for name in ("query", "doc") if name in frame.columns]
    base = chart_of(frame).encode(
        x=alt.X("ctr:Q", title="raw click-through rate", scale=across, axis=alt.Axis(tickCount=8)),
        tooltip=tips(
            *pair,
            ctr=(".4f", "raw CTR"),
            relevance=(".4f", title),
            low=".4f",
            high=".4f",
            examinations=(",.1~f", "expected examinations"),
            impressions=",.1~f",
        ),
    )
    bars = (
        base.transform_filter("isValid(datum.low) && isValid(datum.high)")
        .mark_rule(color=theme.GREY, opacity=0.3, strokeWidth=1)
        .encode(y=alt.Y("low:Q", title=title, scale=upward), y2="high:Q")
    )
    known = frame["examinations"].fill_null(0.0).to_list()
    points = base.mark_point(
        filled=True, color=theme.BLUE, opacity=0.65, stroke="white", strokeWidth=0.5
    ).encode(
        y=alt.Y("relevance:Q", title=title, scale=upward, axis=alt.Axis(tickCount=8)),
        size=alt.Size(
            "examinations:Q",
            title=["expected", "examinations"],
            scale=alt.Scale(type="sqrt", domain=[0, max(100.0, *known)], range=[8, 300]),
            legend=alt.Legend(
                symbolFillColor=theme.BLUE, symbolStrokeColor=theme.BLUE, values=_sizes(frame)
            ),
        ),
    )
    right = min(ends[0], ends[1] / max(slope, 1e-300))
    line = theme.line_between((0.0, 0.0), (right, slope * right))
    return (bars + line + points).properties(width=theme.WIDTH - 40, height=460)


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
    unknown = [name for name in chosen if factor_named(name, model.forms) is None]
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
    twin = model.copy()
    twin.relevance = coins
    by_pair = all(set(model.keys[coin]) <= set(pair) for coin in coins_of_relevance(twin))
    if not by_pair:
        # Rows of the coins are not pairs: what a pair has is the mean over its results.
        product = np.prod([factor_probability(model, f, log) for f in factors_of(twin)], axis=0)
        results = results.with_columns(relevance=pl.Series(weight * product))
    pairs = results.group_by(pair, maintain_order=True).agg(pl.all().sum())
    pairs = pairs.filter(pl.col("impressions") > 0)
    shown = pl.col("impressions")
    if by_pair:
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
