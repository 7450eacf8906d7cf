"""What pages are worth under a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog
from gecasmo.model.beliefs import drawn_states
from gecasmo.model.log_parts import over_parts
from gecasmo.pages.outlook import (
    Foretold,
    as_pages,
    check_draws,
    check_level,
    ends,
    in_chunks,
)
from gecasmo.pages.worth import Worth
from gecasmo.report import TextTable, html_of

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]

_ROWS_SHOWN = 10


@dataclass(frozen=True, repr=False)
class PageValues:
    """The expected worth of each page.

    Attributes
    ----------
    frame : a row for each session: `session`, `query` if there are queries, `worth`, and `low` and
        `high` unless no draws were wanted
    mean : the mean over pages, by their weights, with `low` and `high` (None without draws)
    worth : what counts, in words
    level : of the intervals
    """

    model: str
    frame: pl.DataFrame
    mean: float
    low: float | None
    high: float | None
    worth: str
    level: float

    def to_dict(self) -> dict[str, Any]:
        """The summary, ready for JSON."""
        names = ("model", "worth", "mean", "low", "high", "level")
        return {**{name: getattr(self, name) for name in names}, "pages": len(self.frame)}

    @property
    def _title(self) -> str:
        told = f"{self.model}: {self.worth} expected on {len(self.frame):,} pages: "
        told += f"{self.mean:.4f} a page"
        if self.low is not None:
            told += f" ({self.low:.4f} to {self.high:.4f}, level {self.level:.0%})"
        return told

    def __repr__(self) -> str:
        return f"{self._title}\n\n{TextTable.of(self.frame, most=_ROWS_SHOWN, digits=4)}"

    def _repr_html_(self) -> str:
        return html_of(self._title, TextTable.of(self.frame, most=_ROWS_SHOWN, digits=4))


def page_value(
    model: Model, pages: Any, worth: Any, draws: int, level: float, seed: int
) -> PageValues:
    """See `Model.page_value`."""
    model.states(whole=False)
    asked = Worth.of(model, worth)
    draws, level = check_draws(draws), check_level(level)
    frames, sums, weight = [], [], 0.0

    def ask(view: Model, log: ClickLog) -> list[tuple[pl.DataFrame, Floats, float]]:
        return [_value(view, part, asked, draws, level, seed) for part in in_chunks(view, log)]

    for answers in over_parts(model, as_pages(pages), ask, is_blank=True):
        for frame, summed, weighed in answers:
            frames.append(frame)
            sums.append(summed)
            weight += weighed
    if not weight > 0:
        raise ClickLogError("There is nothing to value: there are no pages, or all weigh 0.")
    mean = np.sum(sums, axis=0) / weight
    low, high = (None, None) if not draws else map(float, ends(mean[1:], level))
    return PageValues(model.name, pl.concat(frames), float(mean[0]), low, high, str(asked), level)


def _value(
    model: Model, log: ClickLog, worth: Worth, draws: int, level: float, seed: int
) -> tuple[pl.DataFrame, Floats, float]:
    """The worth of some pages, and weighted sums over them: as believed, and for each draw."""
    foretold = Foretold(model, log)
    found = [foretold.worth(worth)]
    found += [foretold.worth(worth, states) for states in drawn_states(model, draws, seed)]
    values = np.stack(found)
    columns = [log.sessions.alias("session")]
    if log.has_query:
        columns.append(log.session_column("query").alias("query"))
    columns.append(pl.Series("worth", values[0]))
    if draws:
        low, high = ends(values[1:], level)
        columns += [pl.Series("low", low), pl.Series("high", high)]
    return pl.DataFrame(columns), values @ log.weight, float(log.weight.sum())
