"""Predictions beside clicks: perplexity and click-through rates by rank, and calibration.

Calibration: of the results that are predicted to be clicked so often, how many are?
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError, ModelError
from gecasmo.logs import ClickLog
from gecasmo.plots.sources import (
    calibration_frame,
    ctr_frame,
    perplexity_frame,
    share_interval,
    thinned,
)
from gecasmo.plots.theme import (
    BLACK,
    GREY,
    HEIGHT,
    LIGHT,
    MAX_ROWS,
    WIDTH,
    Chart,
    altair,
    bar_size,
    chart_of,
    diagonal,
    finished,
    lines_and_points,
    rank_axis,
    series_colours,
    share_end,
)

Kind = Literal["conditional", "marginal"]

_KNOWS = {
    "conditional": "the clicks above each result are known",
    "marginal": "no click of the page is known",
}

_ENOUGH = 20  # results; the click rate of fewer is mostly chance
_MAX_WITH_INTERVALS = 4  # models; the bars of more would hide each other


def perplexity_by_rank(
    source: Any, log: ClickLog | None = None, *, kind: Kind = "conditional"
) -> Chart:
    """Perplexity of every model at every rank.

    Parameters
    ----------
    source : Comparison, data frame or model
        From `gecasmo.evaluation.compare`, its `by_rank`, or a model together with a log.
    log : ClickLog, optional
        For a model.
    kind : "conditional" or "marginal"
        Whether the clicks above a result are known when it is predicted.
    """
    if kind not in _KNOWS:
        raise ModelError(f"kind={kind!r}: choose 'conditional' or 'marginal'.")
    alt = altair()
    whole = perplexity_frame(source, log).select("model", "rank", perplexity=pl.col(kind))
    names = whole["model"].unique(maintain_order=True).to_list()
    frame, few = _fewer_ranks(whole.filter(pl.col("perplexity").is_finite()), len(names))
    top, beyond = _top(frame)
    end = alt.Scale(zero=False) if top is None else alt.Scale(domain=[1, top], clamp=False)
    base = chart_of(frame).encode(
        x=rank_axis(frame["rank"].to_list()),
        y=alt.Y("perplexity:Q", title=f"{kind} perplexity", scale=end),
        tooltip=["model:N", "rank:Q", alt.Tooltip("perplexity:Q", format=".4f")],
    )
    said = f"1 is perfect, 2 is a fair coin; {_KNOWS[kind]}. Lower is better."
    if beyond:
        said += f"\nHigher than the picture: {_listed(beyond)}."
    endless = whole.filter(~pl.col("perplexity").is_finite()).select("model", "rank").rows()
    if endless:
        places = [f"{model} at rank {rank}" for model, rank in endless]
        said += f"\nNot drawn, because infinite: {_listed(places)}."
    drawn = lines_and_points(base, names, clip=True).properties(width=WIDTH, height=HEIGHT)
    return finished(drawn, "Perplexity by rank", said + few)


def _top(frame: pl.DataFrame) -> tuple[float | None, list[str]]:
    """Where the scale ends if some model is so bad that all others would look alike, and those."""
    highest = frame.group_by("model", maintain_order=True).agg(pl.col("perplexity").max())
    above = highest["perplexity"].to_numpy() - 1
    if not len(above):
        return None, []
    usual = above <= 2 * np.median(above)
    if usual.all():
        return None, []
    beyond = [f"{model} (up to {value:.3g})" for model, value in highest.filter(~usual).rows()]
    return 1 + 1.1 * float(above[usual].max()), beyond


def _listed(texts: list[str], most: int = 4) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _fewer_ranks(frame: pl.DataFrame, n_series: int) -> tuple[pl.DataFrame, str]:
    """Rows of as many ranks as a chart can hold, and words about it if some are left out."""
    ranks = frame.select("rank").unique().sort("rank")
    kept = thinned(ranks, MAX_ROWS // max(n_series, 1))
    if len(kept) == len(ranks):
        return frame, ""
    drawn = frame.filter(pl.col("rank").is_in(kept["rank"].implode()))
    return drawn, f"\n{len(kept):,} of {len(ranks):,} ranks drawn, evenly from first to last."


def ctr_by_rank(source: Any, log: ClickLog | None = None, *, level: float = 0.9) -> Chart:
    """Click-through rate by rank: as bars what was observed, as lines what models predict.

    Parameters
    ----------
    source : Comparison, data frame, model or ClickLog
        From `gecasmo.evaluation.compare`, its `ctr_by_rank`, a model together with a log, or a
        log alone; then the bars have intervals.
    log : ClickLog, optional
        For a model.
    level : float
        Of the intervals.
    """
    if isinstance(source, ClickLog):
        return _observed_ctr(source, level)
    alt = altair()
    frame = ctr_frame(source, log)
    names = frame["model"].unique(maintain_order=True).to_list()
    drawn, few = _fewer_ranks(frame, len(names) + 1)
    drawn = drawn.with_columns(difference=pl.col("predicted") - pl.col("observed"))
    observed = drawn.unique("rank", keep="first").sort("rank").select("rank", "observed")
    ranks = observed["rank"].to_list()
    bars = (
        chart_of(observed)
        .mark_bar(color=LIGHT, size=bar_size(ranks))
        .encode(
            x=rank_axis(ranks, None),
            y=alt.Y("observed:Q", title="click-through rate", axis=alt.Axis(format="%")),
            tooltip=["rank:Q", alt.Tooltip("observed:Q", format=".2%", title="observed CTR")],
        )
    )
    above = _predicted(drawn, names, rank_axis(ranks, None), "predicted", "click-through rate", "%")
    below = _predicted(
        drawn, names, rank_axis(ranks), "difference", "predicted − observed", "+.2~%"
    )
    zero = alt.Chart(alt.Data(values=[{"y": 0}])).mark_rule(color=GREY).encode(y="y:Q")
    return finished(
        alt.vconcat(
            (bars + above).properties(width=WIDTH, height=260),
            (zero + below).properties(width=WIDTH, height=120),
            spacing=16,
        ),
        "Click-through rate by rank: observed and predicted",
        "Grey bars: share of the shown results that were clicked. Lines: mean predicted "
        "probability of a click, no click of the page known. Below: predicted minus observed."
        + few,
    )


def _predicted(
    frame: pl.DataFrame, names: list[str], x: Any, column: str, title: str, unit: str
) -> Chart:
    """Lines and points of one column by rank, a series per model."""
    alt = altair()
    base = chart_of(frame).encode(
        x=x,
        y=alt.Y(
            f"{column}:Q",
            title=title,
            axis=alt.Axis(format=unit, tickCount=5),
            scale=alt.Scale(padding=6) if column == "difference" else alt.Scale(),
        ),
        tooltip=[
            "model:N",
            "rank:Q",
            alt.Tooltip("predicted:Q", format=".2%", title="predicted CTR"),
            alt.Tooltip("observed:Q", format=".2%", title="observed CTR"),
            alt.Tooltip("difference:Q", format="+.2%"),
        ],
    )
    return lines_and_points(base, names, "predicted by")


def observed_ctr(log: ClickLog, level: float = 0.9) -> pl.DataFrame:
    """Per rank: results (by weight), click-through rate and its interval."""
    if log.n_results == 0:
        raise ClickLogError("The log shows no results, so it has no click-through rates.")
    weight = log.weight[log.page]
    ranks, number = np.unique(log.rank, return_inverse=True)
    results = np.bincount(number, weights=weight)
    clicks = np.bincount(number, weights=weight * log.click)
    used = results > 0
    share = clicks[used] / results[used]
    low, high = share_interval(share, results[used], level)
    return pl.DataFrame(
        {
            "rank": ranks[used].astype(np.int64),
            "results": results[used],
            "observed": share,
            "low": low,
            "high": high,
        }
    )


def _observed_ctr(log: ClickLog, level: float) -> Chart:
    alt = altair()
    whole = observed_ctr(log, level)
    frame, few = _fewer_ranks(whole, 1)
    ranks = frame["rank"].to_list()
    base = chart_of(frame).encode(
        x=rank_axis(ranks),
        tooltip=[
            "rank:Q",
            alt.Tooltip("observed:Q", format=".2%", title="CTR"),
            alt.Tooltip("low:Q", format=".2%"),
            alt.Tooltip("high:Q", format=".2%"),
            alt.Tooltip("results:Q", format=",.1~f"),
        ],
    )
    bars = base.mark_bar(color="#56B4E9", size=bar_size(ranks, WIDTH + 80)).encode(
        y=alt.Y("observed:Q", title="click-through rate", axis=alt.Axis(format="%"))
    )
    reach = base.mark_rule(color=BLACK, strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    layers = bars + reach
    if len(ranks) <= 20:
        layers += base.mark_text(dy=-8, fontSize=12).encode(
            y="high:Q", text=alt.Text("observed:Q", format=".1%")
        )
    total = float((whole["observed"] * whole["results"]).sum())
    shown = float(whole["results"].sum())
    return finished(
        layers.properties(width=WIDTH + 80, height=HEIGHT),
        "Click-through rate by rank",
        f"{log.n_sessions:,} pages, {shown:,.0f} shown results, {total / shown:.2%} of them "
        f"clicked. Thin bars: {level:.0%} intervals.{few}",
    )


def calibration(source: Any, log: ClickLog | None = None, *, level: float = 0.9) -> Chart:
    """Reliability diagram: observed click rate against predicted probability, with counts.

    Parameters
    ----------
    source : Comparison, data frame or model
        From `gecasmo.evaluation.compare`, its `calibration`, or a model together with a log.
    log : ClickLog, optional
        For a model.
    level : float
        Of the intervals, which take results as independent of each other.
    """
    alt = altair()
    frame = calibration_frame(source, log)
    names = frame["model"].unique(maintain_order=True).to_list()
    low, high = share_interval(frame["observed"], frame["results"], level)
    frame = frame.select("model", "predicted", "observed", "results").with_columns(
        low=pl.Series(low), high=pl.Series(high)
    )
    enough = frame.filter(pl.col("results") >= _ENOUGH)
    if enough.is_empty():
        enough = frame
    end = share_end([*frame["predicted"], *enough["observed"]])
    unit = alt.Scale(domain=[0, end], nice=False)
    told = len(names) <= _MAX_WITH_INTERVALS
    said = (
        "On the dashed line, predictions come true. They are made with no click of the page known."
    )
    if told:
        said += f" Thin bars: {level:.0%} intervals."
    said += " Below: how many results each point stands for, on a log scale."
    if len(enough) < len(frame):
        said += f" Above without points of fewer than {_ENOUGH} results."
    return finished(
        alt.vconcat(_rates(enough, names, unit, told), _counts(frame, names, unit), spacing=14),
        "Calibration: predicted and observed clicks",
        said,
    )


def _base(frame: pl.DataFrame, unit: Any, title: str | None) -> Chart:
    alt = altair()
    return chart_of(frame).encode(
        x=alt.X("predicted:Q", scale=unit, title=title, axis=alt.Axis(format="%", tickCount=6)),
        tooltip=[
            "model:N",
            alt.Tooltip("predicted:Q", format=".2%", title="predicted"),
            alt.Tooltip("observed:Q", format=".2%", title="observed"),
            alt.Tooltip("low:Q", format=".2%"),
            alt.Tooltip("high:Q", format=".2%"),
            alt.Tooltip("results:Q", format=",.1~f"),
        ],
    )


def _rates(frame: pl.DataFrame, names: list[str], unit: Any, with_intervals: bool) -> Chart:
    alt = altair()
    y = alt.Y(
        "observed:Q",
        scale=unit,
        title="observed click rate",
        axis=alt.Axis(format="%", tickCount=6),
    )
    base = _base(frame, unit, None)
    layers = diagonal(*unit.domain)
    if with_intervals:
        bars = base.encode(y=alt.Y("low:Q", scale=unit), y2="high:Q", color=series_colours(names))
        layers += bars.mark_rule(strokeWidth=1.2, opacity=0.6, clip=True)
    layers += lines_and_points(base.encode(y=y), names)
    return layers.properties(width=WIDTH - 40, height=400)


def _counts(frame: pl.DataFrame, names: list[str], unit: Any) -> Chart:
    alt = altair()
    base = _base(frame, unit, "predicted probability of a click").encode(
        y=alt.Y(
            "results:Q",
            title="results",
            scale=alt.Scale(type="log"),
            axis=alt.Axis(format="~s", values=[10**power for power in range(13)]),
        )
    )
    return lines_and_points(base, names, size=45).properties(width=WIDTH - 40, height=100)
