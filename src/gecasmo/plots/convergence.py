"""How a fit went: the objective by iteration, and how far it was from its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.errors import NotFittedError
from gecasmo.plots.sources import thinned
from gecasmo.plots.theme import BLUE, MAX_ROWS, ORANGE, WIDTH, Chart, altair, chart_of, finished

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_POWER = "datum.value < 0.01 ? format(datum.value, '.0e') : format(datum.value, '~g')"


def convergence(model: Model) -> Chart:
    """Log-likelihood and objective per page by iteration, above the gap to the best objective.

    The gap has a logarithmic scale: a straight line is a steady pace.

    Parameters
    ----------
    model : fitted model
    """
    alt = altair()
    frame = convergence_data(model)
    report = model.report_
    assert report is not None
    kept = thinned(frame, MAX_ROWS // 4)
    panels = [_panel(kept, "log_likelihood", "log-likelihood", BLUE)]
    if not np.array_equal(frame["objective"], frame["log_likelihood"]):
        panels.append(_panel(kept, "objective", "objective", ORANGE))
    said = f"{report.n_sessions:,} pages, {frame['seconds'][-1]:.2g} seconds. In nats per page."
    apart = kept.filter(pl.col("gap") > 0)
    if len(apart) > 1:
        panels.append(_gaps(apart, kept))
        said += (
            " The objective is the log-likelihood with priors; the gap is what it lacks of the "
            "best of its round, which itself has no place on a log scale."
        )
    last = int(frame["iteration"][-1])
    n_rounds = int(frame["round"][-1])
    if n_rounds > 1:
        said += f"\nA new line is a new round with better priors; there were {n_rounds}."
    if len(kept) < len(frame):
        said += f"\n{len(kept):,} of {len(frame):,} iterations drawn, evenly from first to last."
    state = "converged" if report.converged else "stopped before it converged"
    if report.interrupted:
        state = "was interrupted"
    return finished(
        alt.vconcat(*panels, spacing=20),
        f"{model.name}: the fit {state} after {last:,} iterations",
        said,
    )


def _panel(frame: pl.DataFrame, column: str, title: str, colour: str) -> Chart:
    alt = altair()
    y = alt.Y(f"{column}:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    return _drawn(frame.select("iteration", column, "round"), frame, y, ".8f", colour)


def _gaps(apart: pl.DataFrame, frame: pl.DataFrame) -> Chart:
    alt = altair()
    y = alt.Y(
        "gap:Q",
        title="gap to the best",
        scale=alt.Scale(type="log", nice=True),
        axis=alt.Axis(labelExpr=_POWER, values=[10.0**power for power in range(-18, 9)]),
    )
    return _drawn(apart.select("iteration", "gap", "round"), frame, y, ".3e", ORANGE)


def _drawn(rows: pl.DataFrame, whole: pl.DataFrame, y: Any, form: str, colour: str) -> Chart:
    """A line with points over the iterations of the whole fit."""
    alt = altair()
    first, last = int(whole["iteration"][0]), int(whole["iteration"][-1])
    x = alt.X(
        "iteration:Q",
        title="iteration (M-steps)",
        scale=alt.Scale(domain=[first, max(last, first + 1)], nice=False, zero=False),
        axis=alt.Axis(tickMinStep=1, format="d"),
    )
    column = rows.columns[1]
    return (
        chart_of(rows)
        .mark_line(color=colour, strokeWidth=2, point=alt.OverlayMarkDef(size=28, color=colour))
        .encode(
            x=x,
            y=y,
            detail="round:N",
            tooltip=["iteration:Q", alt.Tooltip(f"{column}:Q", format=form, title="nats per page")],
        )
        .properties(width=WIDTH + 60, height=140)
    )


def convergence_data(model: Model) -> pl.DataFrame:
    """Iteration, round, seconds, and per page: log-likelihood, objective and its gap to the best of
    the round."""
    model.states(whole=False)
    if model.report_ is None:
        raise NotFittedError(
            f"This {model.name} was not fitted here (its probabilities were given, or come from "
            "a file without a history), so there is no convergence to draw."
        )
    weight = max(model.report_.total_weight, 1e-300)
    return model.history.select(
        "iteration",
        "round",
        "seconds",
        pl.col("log_likelihood") / weight,
        pl.col("objective") / weight,
        gap=(pl.col("objective").max().over("round") - pl.col("objective")) / weight,
    )
