"""Observed statistics of a log against those of simulated ones."""

from __future__ import annotations

from typing import Any

import polars as pl

from gecasmo.evaluation.fit_check import FAMILIES, FitCheck
from gecasmo.logs import ClickLog
from gecasmo.plots import theme
from gecasmo.plots.theme import Chart, altair, chart_of, finished, tips

_WIDTH, _HEIGHT = 300, 170


def fit_check(source: Any, /, log: ClickLog | None = None, **options: Any) -> Chart:
    """Observed clicks against those simulated under the posterior.

    Parameters
    ----------
    source : FitCheck or model
        From `model.check_fit(log)`, or a model together with a log.
    log : ClickLog, optional
        For a model.
    options : for a model
        As `model.check_fit` takes them.
    """
    alt = altair()
    check = source
    if not isinstance(source, FitCheck):
        check = source.check_fit(theme.wanted_log(source, log), **options)
    panels = []
    for family, words in FAMILIES.items():
        frame = check.frame.filter(pl.col("family") == family)
        values = frame["value"].to_list()
        angle = 0 if len(values) < 7 else -45
        base = chart_of(frame).encode(
            x=alt.X("value:N", sort=values, title=None, axis=alt.Axis(labelAngle=angle)),
            tooltip=tips(
                "value:N", **dict.fromkeys(("observed", "expected", "low", "high"), ".4f"), p=".3f"
            ),
        )
        y = alt.Y("low:Q", title="share")
        bars = base.mark_rule(strokeWidth=6, color=theme.BLUE, opacity=0.35)
        points = base.mark_point(filled=True, size=45, color=theme.BLACK, opacity=1)
        panels.append(
            (bars.encode(y=y, y2="high:Q") + points.encode(y="observed:Q")).properties(
                width=_WIDTH,
                height=_HEIGHT,
                title=alt.TitleParams(
                    f"{words}: p = {check.p_values[family]:.3f}", fontSize=13, anchor="start"
                ),
            )
        )
    grid = alt.vconcat(alt.hconcat(*panels[:2]), alt.hconcat(*panels[2:]))
    return finished(
        grid,
        f"Does {check.model} describe the log?",
        f"Dots: {check.n_sessions:,} observed pages. Bars: where 90 % of {check.n_draws:,} "
        "simulated logs lie, each under another draw from the posterior.",
    )
