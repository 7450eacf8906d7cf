"""Calibration: of the results that are predicted to be clicked so often, how many are?"""

from __future__ import annotations

from typing import Any

import polars as pl

from gecasmo.logs import ClickLog
from gecasmo.plots.rows import share_interval
from gecasmo.plots.sources import calibration_frame
from gecasmo.plots.theme import (
    WIDTH,
    Chart,
    altair,
    chart_of,
    diagonal,
    finished,
    lines_and_points,
    series_colours,
    share_end,
)

_ENOUGH = 20  # results; the click rate of fewer is mostly chance
_MAX_WITH_INTERVALS = 4  # models; the bars of more would hide each other


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
