"""One page's story: what was clicked, and what probably happened behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog
from gecasmo.plots import theme
from gecasmo.plots.theme import Chart, altair, chart_of, finished, tips, wanted_log
from gecasmo.report import printable

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_MAX_RESULTS = 50
_NEVER = 0.005  # a coin that is flipped less likely than this is shown as not flipped
_ROW, _LOW_ROW, _MANY = 32, 22, 15  # pixels of a row, and of a row where there are many
_COLUMN, _ALL_COLUMNS = 112, 450  # the most pixels of a column, and of all together


def story(model: Model, log: ClickLog, session: Any) -> Chart:
    """One page: its clicks, and what probably happened behind them.

    Each cell is a probability given everything that was seen on the page: that the user still was
    there (reached), and for each coin that it was flipped and came up heads (attracted,
    satisfied, ...). Clicked results are marked.

    Parameters
    ----------
    model : fitted model
    log : ClickLog
    session : id of a session of the log
    """
    alt = altair()
    page = page_of(wanted_log(model, log), session)
    wide = model.posterior(page).sort("rank")
    whole = len(wide)
    long = story_data(model, wide.head(_MAX_RESULTS))
    results, events = _in_order(long, "result"), _in_order(long, "event")
    n_results, n_events = len(results), len(events)
    column = max(50, min(_COLUMN, _ALL_COLUMNS // n_events))
    slant = 0 if 7 * max(map(len, events)) <= column else -35
    y = alt.Y(
        "result:N",
        sort=results,
        title=None,
        axis=alt.Axis(labelLimit=260, ticks=False, domain=False),
    )
    base = chart_of(long).encode(
        x=alt.X(
            "event:N",
            sort=events,
            title=None,
            axis=alt.Axis(
                orient="top", labelAngle=slant, ticks=False, domain=False, labelLimit=160
            ),
        ),
        y=y,
        tooltip=tips(
            "rank:Q",
            "doc:N",
            "event:N",
            "clicked:N",
            probability=".4f",
            flipped=(".4f", "probability that it was flipped"),
        ),
    )
    flipped = base.transform_filter(f"!isValid(datum.flipped) || datum.flipped >= {_NEVER}")
    idle = base.transform_filter(f"isValid(datum.flipped) && datum.flipped < {_NEVER}")
    cells = flipped.mark_rect(stroke="white", strokeWidth=2).encode(
        color=alt.Color(
            "probability:Q",
            scale=alt.Scale(scheme=theme.SEQUENTIAL, domain=[0, 1]),
            legend=alt.Legend(title="probability", gradientLength=140),
        )
    )
    blanks = idle.mark_rect(stroke="white", strokeWidth=2, color=theme.PALE)
    blanks += idle.mark_text(fontSize=13, color=theme.DARK, text="–")
    numbers = flipped.mark_text(fontSize=13).encode(
        text=alt.Text("probability:Q", format=".2f"),
        color=alt.condition("datum.probability > 0.55", alt.value("black"), alt.value("white")),
    )
    height = n_results * (_ROW if n_results <= _MANY else _LOW_ROW)
    grid = (blanks + cells + numbers).properties(width=column * n_events, height=height)
    clicks = chart_of(long.unique("result", maintain_order=True)).encode(
        y=alt.Y("result:N", sort=results, axis=None)
    )
    marks = (
        clicks.transform_filter("datum.clicked == 'yes'").mark_point(
            shape="circle", filled=True, size=150, color=theme.ORANGE, opacity=1, xOffset=-26
        )
        + clicks.mark_text(fontSize=13, color=theme.BLACK, align="left", dx=-12).encode(
            text="click_label:N"
        )
    ).properties(width=90, height=height)
    query = f", query {_short(page.column('query')[0])}" if page.has_query and whole else ""
    said = (
        "Probability, given all clicks of the page, that a result was reached and that a coin was "
        "flipped there and came up heads. –: it was not flipped."
    )
    if whole > n_results:
        said += f" The first {n_results} of {whole} results."
    return finished(
        alt.hconcat(grid, marks, spacing=4).resolve_scale(y="independent"),
        f"{model.name}: the story of session {_short(session)}{query}",
        said,
    )


def page_of(log: ClickLog, session: Any) -> ClickLog:
    """The log of one session, found by its id; text will do for an id that is a number."""
    sessions = log.sessions
    asked = str(session)
    found = np.flatnonzero((sessions.cast(pl.String) == asked).fill_null(False).to_numpy())
    if len(found) == 0:
        some = ", ".join(map(printable, sessions.head(3).to_list()))
        raise ClickLogError(
            f"The log has no session {session!r}. Its {log.n_sessions:,} sessions are such as: "
            f"{some}."
        )
    page = log.take(found[:1])
    if page.n_results == 0:
        raise ClickLogError(f"Session {session!r} shows no results, so it has no story.")
    return page


def story_data(model: Model, posterior: pl.DataFrame) -> pl.DataFrame:
    """A row per result and event: its probability, and how likely its coin was flipped."""
    documents = [_short(value) for value in posterior["doc"]]
    ranks = posterior["rank"].to_list()
    clicked = ["yes" if value else "no" for value in posterior["click"]]
    common = {
        "rank": ranks,
        "doc": documents,
        "result": [
            f"{rank}: {'document ' if doc.isdigit() else ''}{doc}"
            for rank, doc in zip(ranks, documents, strict=True)
        ],
        "clicked": clicked,
        "click_label": ["clicked" if value == "yes" else "" for value in clicked],
    }
    parts = [("reached", posterior["reached"], pl.Series([None] * len(ranks), dtype=pl.Float64))]
    for begin in ("start_", ""):
        for coin in model.forms:
            if f"{begin}{coin}_heads" in posterior.columns:
                name = printable(f"{coin} (at start)" if begin else coin)
                heads, flipped = (posterior[f"{begin}{coin}_{end}"] for end in ("heads", "flipped"))
                parts.append((name, heads, flipped))
    return pl.concat(
        [
            pl.DataFrame(common).with_columns(
                event=pl.lit(name),
                probability=pl.Series(probability),
                flipped=pl.Series(flipped),
            )
            for name, probability, flipped in parts
        ]
    )


def _in_order(frame: pl.DataFrame, column: str) -> list[str]:
    return frame[column].unique(maintain_order=True).to_list()


def _short(value: Any, most: int = 32) -> str:
    """A text of at most so many letters; of long ones both ends, since addresses begin alike."""
    text = printable(" ".join(str(value).split()))
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[len(text) - half :]}"
