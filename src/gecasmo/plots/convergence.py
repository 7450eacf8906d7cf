"""How a fit went: the objective by iteration, and how far it was from its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.errors import NotFittedError
from gecasmo.plots import theme
from gecasmo.plots.theme import Chart, altair, chart_of, finished, thinned, tips
from gecasmo.report import counted

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_POWER = "datum.value < 0.01 ? format(datum.value, '.0e') : format(datum.value, '~g')"
_STEPS = "iteration (M-steps)"
_WIDTH = theme.WIDTH + 60
_MOST_ROUNDS = 5  # side by side; of more, the first and the last ones


def convergence(model: Model) -> Chart:
    """Objective per page by iteration, and its gap to the best.

    Objectives of different rounds are those of different priors and say nothing about each other,
    so every round has a picture of its own; of a single round, the log-likelihood is drawn, too.
    The gap to the best of a round has a logarithmic scale: a straight line is a steady pace.

    Parameters
    ----------
    model : fitted model
    """
    alt = altair()
    frame = convergence_data(model)
    report = model.report_
    assert report is not None
    kept = thinned(frame, theme.MAX_ROWS // 4)
    n_rounds, last = int(frame["round"][-1]), int(frame["iteration"][-1])
    said = f"{report.n_sessions:,} pages, {frame['seconds'][-1]:.2g} seconds. In nats per page."
    panels = []
    if n_rounds == 1:
        panels.append(_panel(kept, "log_likelihood", "log-likelihood", theme.BLUE))
    if n_rounds > 1 or not np.array_equal(frame["objective"], frame["log_likelihood"]):
        said += " The objective is the log-likelihood with priors."
        panels.append(_by_round(kept, n_rounds))
    if n_rounds > 1:
        said += (
            f"\nThere were {n_rounds} rounds, each with better priors than the one before: "
            "objectives of different rounds cannot be compared."
        )
        if n_rounds > _MOST_ROUNDS:
            said += f" The first and the last {_MOST_ROUNDS - 1} are drawn."
    apart = kept.filter(pl.col("gap") > 0)
    if len(apart) > 1:
        panels.append(_gaps(apart, kept))
        said += (
            "\nThe gap is what the objective lacks of the best of its round, which itself has no "
            "place on a log scale."
        )
    if len(kept) < len(frame):
        said += f"\n{len(kept):,} of {len(frame):,} iterations drawn, evenly from first to last."
    state = "converged" if report.converged else "stopped before it converged"
    if report.interrupted:
        state = "was interrupted"
    return finished(
        alt.vconcat(*panels, spacing=20),
        f"{model.name}: the fit {state} after {counted(last, 'iteration')}",
        said,
    )


def _by_round(frame: pl.DataFrame, n_rounds: int) -> Chart:
    if n_rounds == 1:
        return _panel(frame, "objective", "objective", theme.ORANGE)
    alt = altair()
    rounds = frame.partition_by("round", maintain_order=True)
    if len(rounds) > _MOST_ROUNDS:
        rounds = [rounds[0], *rounds[1 - _MOST_ROUNDS :]]
    # Axes and the space between take about 75 of each.
    width = max(60, _WIDTH // len(rounds) - 75)
    panels = [
        _panel(
            own,
            "objective",
            None if number else "objective",
            theme.ORANGE,
            f"iteration, round {own['round'][0]}",
        ).properties(width=width)
        for number, own in enumerate(rounds)
    ]
    return alt.hconcat(*panels, spacing=12)


def _panel(
    frame: pl.DataFrame, column: str, title: str | None, colour: str, below: str = _STEPS
) -> Chart:
    alt = altair()
    y = alt.Y(f"{column}:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    return _drawn(frame.select("iteration", column, "round"), frame, y, ".8f", colour, below)


def _gaps(apart: pl.DataFrame, frame: pl.DataFrame) -> Chart:
    alt = altair()
    y = alt.Y(
        "gap:Q",
        title="gap to the best",
        scale=alt.Scale(type="log", nice=True),
        axis=alt.Axis(labelExpr=_POWER, values=[10.0**power for power in range(-18, 9)]),
    )
    return _drawn(apart.select("iteration", "gap", "round"), frame, y, ".3e", theme.ORANGE)


def _drawn(
    rows: pl.DataFrame, whole: pl.DataFrame, y: Any, form: str, colour: str, below: str = _STEPS
) -> Chart:
    """A line with points over the iterations of a fit or a round, a line for each round."""
    alt = altair()
    first, last = int(whole["iteration"][0]), int(whole["iteration"][-1])
    x = alt.X(
        "iteration:Q",
        title=below,
        scale=alt.Scale(domain=[first, max(last, first + 1)], nice=False, zero=False),
        axis=alt.Axis(tickMinStep=1, format="d", tickCount=min(10, last - first + 1)),
    )
    point = alt.OverlayMarkDef(size=28, color=colour)
    return (
        chart_of(rows)
        .mark_line(color=colour, strokeWidth=2, point=point)
        .encode(
            x=x,
            y=y,
            detail="round:N",
            tooltip=tips("iteration:Q", "round:Q", **{rows.columns[1]: (form, "nats per page")}),
        )
        .properties(width=_WIDTH, height=140)
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
