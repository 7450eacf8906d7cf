"""How often results are looked at: by rank, or by rank and where the last click was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from gecasmo.errors import ModelError
from gecasmo.judgments import JudgmentsError, propensities
from gecasmo.logs import ClickLog
from gecasmo.pages.what_if import expected_by_rank
from gecasmo.plots import theme
from gecasmo.plots.theme import Chart, altair, chart_of, finished, thinned, tips, wanted_log
from gecasmo.report import printable

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_COIN = "examination"
_TOLD: dict[str, str | tuple[str, str]] = {
    "low": ".4f",
    "high": ".4f",
    "trials": (",.1~f", "expected trials"),
}
_MAX_HEAT_RANKS = 60  # a triangle of cells that still can be seen, and far below the limit of rows
_MAX_NUMBER_RANKS = 15  # numbers in the cells have room up to here


def examination(
    model: Model,
    log: ClickLog | None = None,
    *,
    coin: str | None = None,
    level: float = 0.9,
    draws: int = 0,
) -> Chart:
    """How often results are looked at, by rank (and last click).

    A coin `examination` by rank (PBM) is drawn with its intervals, one by rank and last click
    (UBM) as a heat map. For models that read downwards and leave (DBN and its relatives), the
    chance that a rank is reached on the pages of a log is drawn, for which `log` is needed.

    Parameters
    ----------
    model : fitted model
    log : ClickLog, optional
        The pages to be looked at, for models without such a coin.
    coin : str, optional
        Another coin with the key `rank`, or `rank, last_click`, to be drawn in the same way.
    level : float
        Of the intervals.
    draws : int
        For models without such a coin: intervals from so many draws of the posterior.
    """
    model.states(whole=False)
    chosen = _COIN if coin is None else coin
    keys = model.keys.get(chosen)
    if keys is not None and set(keys) == {"rank", "last_click"}:
        return _heat_map(model, chosen, level)
    if keys is not None and set(keys) == {"rank"}:
        return _by_rank(model, chosen, level)
    if coin is not None:
        fitting = [name for name, key in model.keys.items() if set(key) <= {"rank", "last_click"}]
        by = "is no coin of it" if keys is None else f"is by {', '.join(keys) or 'nothing'}"
        raise ModelError(
            f"{model.name}: '{coin}' {by}, but a coin by rank, or by rank and last_click, is "
            f"wanted. It has: {', '.join(name for name in fitting if model.keys[name]) or 'none'}."
        )
    return _on_pages(model, wanted_log(model, log), level, draws)


def _by_rank(model: Model, coin: str, level: float) -> Chart:
    alt = altair()
    whole = model.estimates(coin, level=level).sort("rank")
    frame = thinned(whole, theme.MAX_ROWS)
    given = frame.filter(pl.col("rests_on") == "given")["rank"].to_list()
    said = f"{_meaning(coin)}. Bars: {level:.0%} intervals."
    if given:
        said += f" Given, not estimated: rank {', '.join(map(str, given[:8]))}."
    return finished(
        _points(alt, frame, f"P({coin})"),
        f"{model.name}: {coin} by rank",
        said,
    )


def _meaning(coin: str) -> str:
    if coin == _COIN:
        return "Chance that a result is looked at"
    return f"Probability of '{coin}' at a result"


def _points(alt: Chart, frame: pl.DataFrame, title: str) -> Chart:
    """Points with interval bars and a line through them, by rank."""
    title = printable(title)
    told = {name: form for name, form in _TOLD.items() if name in frame.columns}
    texts = ["rests_on:N"] if "rests_on" in frame.columns else []
    base = chart_of(frame).encode(
        x=theme.rank_axis(frame["rank"].to_list()),
        y=alt.Y("probability:Q", title=title, scale=alt.Scale(domain=[0, 1])),
        tooltip=tips("rank:Q", *texts, probability=(".4f", title), **told),
    )
    layers = base.mark_line(color=theme.BLUE, strokeWidth=1.5, opacity=0.5)
    if "low" in frame.columns:
        cap = min(10.0, theme.bar_size(frame["rank"].to_list()))
        known = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
        layers += known.mark_rule(color=theme.BLUE, strokeWidth=2).encode(y="low:Q", y2="high:Q")
        for end in ("low", "high"):
            tick = known.mark_tick(color=theme.BLUE, thickness=2, size=cap, orient="horizontal")
            layers += tick.encode(y=f"{end}:Q")
    layers += base.mark_point(filled=True, size=45, color=theme.BLUE, opacity=1)
    return layers.properties(width=theme.WIDTH + 80, height=theme.HEIGHT)


def _heat_map(model: Model, coin: str, level: float) -> Chart:
    alt = altair()
    whole = model.estimates(coin, level=level)
    frame = whole.filter(pl.col("rank") <= _MAX_HEAT_RANKS).sort("last_click", "rank")
    ranks = sorted(frame["rank"].unique().to_list())
    above = sorted(frame["last_click"].unique().to_list())
    frame = frame.with_columns(
        above=pl.col("last_click").cast(pl.String).replace({"0": "none"}),
        reach=(pl.col("high") - pl.col("low")) / 2,
    )
    rows = ["none" if place == 0 else str(place) for place in above]
    title = printable(f"P({coin})")
    height = max(140, min(620, 38 * len(rows)))
    base = chart_of(frame).encode(
        x=alt.X(
            "rank:O",
            title="rank",
            sort=ranks,
            axis=alt.Axis(labelAngle=0, orient="top", values=theme.labelled(ranks[0], ranks[-1])),
        ),
        y=alt.Y(
            "above:O",
            title="rank of the last click above",
            sort=rows,
            axis=alt.Axis(labelOverlap=True),
        ),
        tooltip=tips("rank:O", "last_click:O", "rests_on:N", probability=(".4f", title), **_TOLD),
    )
    cells = base.mark_rect(stroke="white", strokeWidth=1).encode(
        color=alt.Color(
            "probability:Q",
            title=title,
            scale=alt.Scale(scheme=theme.SEQUENTIAL, domain=[0, 1]),
            legend=alt.Legend(gradientLength=160),
        )
    )
    layers = cells
    has_room = len(ranks) <= _MAX_NUMBER_RANKS
    if has_room:
        ink = alt.condition("datum.probability > 0.55", alt.value("black"), alt.value("white"))
        layers += base.mark_text(fontSize=13, dy=-6).encode(
            text=alt.Text("probability:Q", format=".2f"), color=ink
        )
        layers += (
            base.transform_filter("isValid(datum.reach)")
            .transform_calculate(label="'±' + format(datum.reach, '.2f')")
            .mark_text(fontSize=11, dy=8)
            .encode(text="label:N", color=ink)
        )
    said = f"{_meaning(coin)}, by its rank and by where the last click above it was."
    if has_room and frame["reach"].null_count() < len(frame):
        said += f" Small: half the width of the {level:.0%} interval."
    if len(frame) < len(whole):
        last = max(whole["rank"].to_list())
        said += f" The first {_MAX_HEAT_RANKS} ranks of {last:,}."
    return finished(
        layers.properties(width=theme.WIDTH, height=height),
        f"{model.name}: {coin} by rank and last click",
        said,
    )


def _on_pages(model: Model, log: ClickLog, level: float, draws: int) -> Chart:
    alt = altair()
    if draws > 0 and _COIN not in model.forms:
        whole = expected_by_rank(model, log, "reached", draws, level)
    else:
        whole = examined_on_pages(model, log, level, draws)
    frame = thinned(whole, theme.MAX_ROWS)
    said = (
        f"Chance that a result at this rank is looked at, mean over the {log.n_sessions:,} pages "
        "of the log, no click known."
    )
    if "low" not in frame.columns:
        said += " From simulated users, so a little rough."
    elif not frame["low"].null_count():
        said += f" Bars: {level:.0%} intervals."
    return finished(
        _points(alt, frame, "P(looked at)"), f"{model.name}: how far down people look", said
    )


def examined_on_pages(model: Model, log: ClickLog, level: float, draws: int) -> pl.DataFrame:
    """Per rank the chance that its results are looked at; with intervals if there are some."""
    try:
        found = propensities(model, log, level=level, draws=draws if draws > 1 else 0)
    except JudgmentsError:
        return _simulated(model, log)  # it has no coin that every click requires
    return found.select("rank", "low", "high", probability=pl.col("examination"))


def _simulated(model: Model, log: ClickLog) -> pl.DataFrame:
    """Per rank the share of results that simulated users reach, and look at if there is a coin."""
    _, hidden = model.simulate(log, truth=True)
    seen = hidden["reached"].to_numpy()
    if _COIN in hidden.columns:
        seen = seen & hidden[_COIN].fill_null("").str.contains("heads").to_numpy()
    weight = log.weight[log.page]
    ranks, number = np.unique(log.rank, return_inverse=True)
    total = np.bincount(number, weights=weight)
    share = np.bincount(number, weights=weight * seen)[total > 0] / total[total > 0]
    return pl.DataFrame({"rank": ranks[total > 0].astype(np.int64), "probability": share})
