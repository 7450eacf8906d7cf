"""How our charts look: one palette, one size, titles that say what is seen.

Lines differ in colour, dash and shape of their points, so that nobody needs to tell colours apart.
Nothing is registered with Altair: a theme of the user's own stays as it is. Where a chart would
hold too many rows there are fewer of them, the same ones every time.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError, extra
from gecasmo.logs import ClickLog
from gecasmo.model.base import Model
from gecasmo.report import printable

Chart = Any  # an Altair chart; Altair may be missing, so no annotation names its types

# Okabe and Ito's colours without yellow, which is hard to see on white. Black is for what was
# observed.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BLUE, ORANGE = PALETTE[0], PALETTE[1]
BLACK, DARK, GREY, LIGHT, PALE = "#000000", "#444444", "#767676", "#d0d0d0", "#f0f0f0"
DASHES = ([1, 0], [8, 3], [2, 2], [8, 3, 2, 3], [14, 4])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
SEQUENTIAL = "viridis"  # even steps in lightness, also without colour

WIDTH, HEIGHT = 600, 340  # of the field that is drawn on; with axes and legend about 800 wide
MAX_ROWS = 5_000  # of data inside one chart

_WORDS = {"labelFontSize": 13, "titleFontSize": 13, "titleFontWeight": "normal"}
_LOOK: dict[str, Any] = {
    "background": "white",
    "padding": 16,
    "view": {"stroke": None},
    "title": {
        "anchor": "start",
        "frame": "group",
        "fontSize": 17,
        "subtitleFontSize": 13,
        "subtitleColor": DARK,
        "subtitlePadding": 6,
        "offset": 14,
    },
    "axis": {
        **_WORDS,
        "titlePadding": 8,
        "gridColor": "#ececec",
        "domainColor": GREY,
        "tickColor": GREY,
        "labelLimit": 220,
        "labelFlush": False,
    },
    "legend": {
        **_WORDS,
        "labelLimit": 220,
        "symbolSize": 90,
        "symbolStrokeWidth": 2,
        "symbolOpacity": 1,
    },
}

_LINE_OF_SUBTITLE = 105  # letters
_MAX_TICKS = 20


def altair() -> Any:
    """Altair, or a message that says how to get it."""
    return extra("altair", "Drawing charts", "gecasmo[plots]")


def chart_of(frame: pl.DataFrame) -> Chart:
    """A chart of these rows, to be told what to draw.

    Ids come from a log and may hold anything: with a control character in one of them, the
    converter to pictures would take Python down.
    """
    texts = [name for name, dtype in frame.schema.items() if _is_text(dtype)]
    shown = [
        pl.Series(name, [None if v is None else printable(v) for v in frame[name]], pl.String)
        for name in texts
    ]
    return altair().Chart(frame.with_columns(shown))


def _is_text(dtype: pl.DataType) -> bool:
    """Whether values are texts, or have to be shown as some: bytes, and ids of several columns."""
    return dtype in (pl.String, pl.Binary, pl.Categorical, pl.Enum) or dtype.is_nested()


def thinned(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """At most so many rows, evenly from the first to the last, both of them included."""
    if len(frame) <= most:
        return frame
    places = np.unique(np.linspace(0, len(frame) - 1, most).round().astype(np.int64))
    return frame[places]


def wanted_log(model: Model, log: Any) -> ClickLog:
    """The log that a chart of a model needs, or a message that it does."""
    model.states(whole=False)
    if not isinstance(log, ClickLog):
        got = "none was given" if log is None else f"not {type(log).__name__}"
        raise ClickLogError(
            f"This chart of {model.name} needs a log ({got}): read_log(source) makes one."
        )
    if log.n_results == 0:
        raise ClickLogError("The log shows no results, so there is nothing to draw.")
    return log


def finished(chart: Chart, title: str, subtitle: str = "") -> Chart:
    """The chart with its title, and with fonts and lines as all our charts have them."""
    alt = altair()
    lines = [part for text in subtitle.split("\n") for part in _wrapped(printable(text))]
    title = printable(title)
    heading = alt.TitleParams(title, subtitle=lines) if lines else alt.TitleParams(title)
    # Both at once, since Altair copies the whole chart for every call.
    return chart.properties(title=heading, config=alt.Config(**_LOOK))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _LINE_OF_SUBTITLE, break_long_words=True)


def remarked(chart: Chart, words: str) -> Chart:
    """The finished chart with one more sentence under its title."""
    title = chart.title.copy()
    title.subtitle = [*title.subtitle, *_wrapped(printable(words))]
    return chart.properties(title=title)


def tips(*fields: str, **numbers: str | tuple[str, str]) -> list[Any]:
    """What a pointer is told: fields as they are, and numbers with a format and perhaps a title."""
    alt = altair()
    told = [alt.Tooltip(field, title=field.split(":")[0].replace("_", " ")) for field in fields]
    for name, given in numbers.items():
        form, title = (given, name) if isinstance(given, str) else given
        told.append(alt.Tooltip(f"{name}:Q", format=form, title=title.replace("_", " ")))
    return told


def rank_axis(ranks: Sequence[int], title: str | None = "rank", field: str = "rank") -> Any:
    """The encoding of ranks from left to right, every one of them labelled if there is room."""
    alt = altair()
    first, last = (min(ranks), max(ranks)) if len(ranks) else (1, 1)
    return alt.X(
        f"{field}:Q",
        title=title,
        scale=alt.Scale(domain=[first - 0.6, last + 0.6], nice=False, zero=False, padding=0),
        axis=alt.Axis(format="d", grid=False, values=labelled(first, last)),
    )


def labelled(first: int, last: int) -> list[int]:
    """The ranks that get a label: all of them, or the first one and round numbers."""
    steps = (size * 10**power for power in range(10) for size in (1, 5))
    step = next(step for step in steps if (last - first) / step < _MAX_TICKS)
    return [rank for rank in range(first, last + 1) if rank == first or rank % step == 0]


def bar_size(ranks: Sequence[int], width: int = WIDTH) -> float:
    """How wide a bar over a rank may be, in pixels."""
    span = max(ranks) - min(ranks) + 1.2 if len(ranks) else 1.2
    return max(1.0, 0.7 * width / span)


def lines_and_points(
    base: Chart, names: Sequence[str], title: str = "model", *, size: int = 55, clip: bool = False
) -> Chart:
    """A line with points for each model of a chart whose data have a column `model`."""
    alt = altair()
    base = base.encode(color=series_colours(names, title))
    # Vega-Lite merges legends of equal domains, and would draw the dashes around the legend's
    # points; so the dashes have a domain of their own, with a name that no model has.
    dash = alt.StrokeDash("model:N", scale=_cycled([*names, ""], DASHES), legend=None)
    lines = base.mark_line(strokeWidth=2, clip=clip).encode(strokeDash=dash)
    shape = alt.Shape("model:N", title=title, scale=_cycled(names, SHAPES), sort=None)
    return lines + base.mark_point(filled=True, size=size, opacity=1, clip=clip).encode(shape=shape)


def series_colours(names: Sequence[str], title: str = "model") -> Any:
    """The encoding of models as colours."""
    return altair().Color("model:N", title=title, scale=_cycled(names, PALETTE), sort=None)


def _cycled(names: Sequence[str], values: Sequence[Any]) -> Any:
    chosen = [values[number % len(values)] for number in range(len(names))]
    return altair().Scale(domain=list(map(printable, names)), range=chosen)


def share_end(shares: Iterable[float]) -> float:
    """Where an axis of shares ends: at 1, or sooner if there is nothing up there."""
    most = max(shares, default=0.0)
    return next((end for end in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8) if most <= 0.96 * end), 1.0)


def line_between(start: tuple[float, float], end: tuple[float, float]) -> Chart:
    """A dashed line, such as the one on which both axes say the same."""
    alt = altair()
    ends = alt.Data(values=[{"x": x, "y": y} for x, y in (start, end)])
    return (
        alt.Chart(ends)
        .mark_line(color=GREY, strokeDash=[4, 4], strokeWidth=1)
        .encode(x="x:Q", y="y:Q")
    )
