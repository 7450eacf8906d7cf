"""Posterior predictive checks: do the users of a log do what a model says they do?

The log is simulated again and again, each time under another draw from the posterior, and what was
observed is compared with what was simulated. A small p-value says that such a log would hardly come
about if the model were right; where it is small tells which part of the story is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, ModelError, option
from gecasmo.logs import ClickLog
from gecasmo.logs.store.stored_log import StoredLog
from gecasmo.model.beliefs import drawn_states
from gecasmo.model.stored_fit import sample_pages
from gecasmo.model.stories import replicated_clicks, shown_pages, unfolded
from gecasmo.report import TextTable, html_of

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]

FAMILIES = {
    "clicks": "pages by number of clicks",
    "rank": "click rate by rank",
    "last": "pages by rank of the last click",
    "skips": "pages by results skipped above the last click",
}
_LEVEL = 0.9
_MOST_CLICKS, _MOST_SKIPS, _MOST_RANKS = 4, 5, 20
# Where a family is called at odds with the model.
_SMALL = 0.05


@dataclass(frozen=True, repr=False)
class FitCheck:
    """Observed against simulated, statistic by statistic; prints as a table.

    Attributes
    ----------
    frame : a line for each statistic: `family`, `value` (number of clicks, rank, ...), `observed`,
        `expected` (mean of the simulated), `low` and `high` (what 90 % of them are between) and `p`
    p_values : by family; how often simulated logs are as far from what is expected as the observed
        one, all statistics of the family together
    """

    model: str
    n_sessions: int
    n_draws: int
    frame: pl.DataFrame
    p_values: dict[str, float]

    def summary(self) -> pl.DataFrame:
        """A line for each family, with its p-value and where it is furthest off."""
        lines = []
        for family, words in FAMILIES.items():
            own = self.frame.filter(pl.col("family") == family)
            if not len(own):
                continue
            width = (pl.col("high") - pl.col("low")).clip(1e-12)
            off = ((pl.col("observed") - pl.col("expected")) / width).abs()
            worst = own.sort(off, descending=True).row(0, named=True)
            told = f"{worst['value']}: {worst['observed']:.4f}, expected {worst['expected']:.4f}"
            lines.append({"what": words, "p": self.p_values[family], "furthest": told})
        schema = {"what": pl.String, "p": pl.Float64, "furthest": pl.String}
        return pl.DataFrame(lines, schema=schema)

    def plot(self) -> Any:
        """Draw observed against simulated; an Altair chart."""
        from gecasmo.plots import fit_check

        return fit_check(self)

    @property
    def _verdict(self) -> str:
        small = [FAMILIES[family] for family, p in self.p_values.items() if p < _SMALL]
        if not small:
            return "Nothing here speaks against the model."
        return f"At odds with the model: {'; '.join(small)}."

    @property
    def _title(self) -> str:
        told = f"{self.n_sessions:,} sessions, simulated {self.n_draws:,} times"
        return f"{self.model}: {told} under its posterior"

    def __repr__(self) -> str:
        return f"{self._title}\n\n{TextTable.of(self.summary(), digits=3)}\n\n{self._verdict}"

    def _repr_html_(self) -> str:
        return html_of(self._title, TextTable.of(self.summary(), digits=3), self._verdict)


def check_fit(model: Model, log: Any, draws: int, pages: int, seed: int) -> FitCheck:
    """See `Model.check_fit`."""
    for name, value, least in (("draws", draws, 20), ("pages", pages, 1)):
        if value < least:
            raise ModelError(f"{option(name, value, of='check_fit')}: at least {least} are needed.")
    log = _some_pages(log, pages, seed)
    if not log.n_results:
        raise ClickLogError("There is nothing to check: the log has no results.")
    count = _Statistics(log)
    observed = count(log.click)
    states = drawn_states(model, draws, seed)
    simulated = np.stack([count(c) for c in replicated_clicks(model, log, states, seed)])
    low, high = np.quantile(simulated, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], axis=0)
    n = len(simulated)
    above, below = (simulated >= observed).sum(axis=0), (simulated <= observed).sum(axis=0)
    frame = count.names.with_columns(
        observed=observed,
        expected=simulated.mean(axis=0),
        low=low,
        high=high,
        p=np.minimum(2 * (np.minimum(above, below) + 1) / (n + 1), 1.0),
    )
    p_values = {}
    for family in FAMILIES:
        own = (count.names["family"] == family).to_numpy()
        if own.any():
            p_values[family] = _together(observed[own], simulated[:, own])
    return FitCheck(model.name, log.n_sessions, n, frame, p_values)


def _together(observed: Floats, simulated: Floats) -> float:
    """How often simulated statistics are as far from their mean as the observed ones."""
    centre, spread = simulated.mean(axis=0), simulated.std(axis=0)
    spread = np.maximum(spread, 1e-12)

    def away(values: Floats) -> Any:
        return (((values - centre) / spread) ** 2).sum(axis=-1)

    return float((1 + (away(simulated) >= away(observed)).sum()) / (1 + len(simulated)))


def _some_pages(log: ClickLog | StoredLog, pages: int, seed: int) -> ClickLog:
    """Pages in memory, each as often as it was shown, and not too many of them."""
    if isinstance(log, StoredLog):
        return shown_pages(sample_pages(log, pages), pages)
    log = unfolded(log) if log.is_folded else log
    if log.n_sessions <= pages:
        return log
    chosen = np.zeros(log.n_sessions, bool)
    rng = np.random.default_rng(seed)
    chosen[rng.choice(log.n_sessions, pages, replace=False)] = True
    return log.take(chosen)


class _Statistics:
    """What is counted of clicks on the pages of a log; as shares of pages, or of results."""

    def __init__(self, log: ClickLog) -> None:
        self.log = log
        self.place = np.empty(log.n_results, np.int64)  # from 1 on, in the order of the page
        within = np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)
        self.place[log.order] = within + 1
        self.weight, self.total = log.weight, max(float(log.weight.sum()), 1e-300)
        self.n_ranks = int(min(log.lengths.max(initial=1), _MOST_RANKS))
        shown = self.place <= self.n_ranks
        self.shown = self._by(self.place[shown], log.weight[log.page[shown]], self.n_ranks)[1:]
        many = f"{_MOST_CLICKS} or more", f"{_MOST_SKIPS} or more"
        values = {
            "clicks": [*map(str, range(_MOST_CLICKS)), many[0]],
            "rank": [f"rank {rank}" for rank in range(1, self.n_ranks + 1)],
            "last": ["no click", *(f"rank {rank}" for rank in range(1, self.n_ranks + 1))],
            "skips": [*map(str, range(_MOST_SKIPS)), many[1]],
        }
        self.names = pl.DataFrame(
            {
                "family": [family for family, own in values.items() for _ in own],
                "value": [value for own in values.values() for value in own],
            }
        )

    def __call__(self, click: NDArray[np.bool_]) -> Floats:
        """All statistics, in the order of `names`."""
        log, place = self.log, self.place
        clicked = np.flatnonzero(click)
        n_clicks = np.bincount(log.page[clicked], minlength=log.n_sessions)
        last = np.zeros(log.n_sessions, np.int64)
        np.maximum.at(last, log.page[clicked], place[clicked])
        skips = last - n_clicks
        at_rank = clicked[place[clicked] <= self.n_ranks]
        rates = self._by(place[at_rank], self.weight[log.page[at_rank]], self.n_ranks)[1:]
        with_click = last > 0
        among = max(float(self.weight[with_click].sum()), 1e-300)
        return np.concatenate(
            [
                self._by(np.minimum(n_clicks, _MOST_CLICKS), self.weight, _MOST_CLICKS)
                / self.total,
                rates / np.maximum(self.shown, 1e-300),
                self._by(np.minimum(last, self.n_ranks), self.weight, self.n_ranks) / self.total,
                self._by(
                    np.minimum(skips[with_click], _MOST_SKIPS),
                    self.weight[with_click],
                    _MOST_SKIPS,
                )
                / among,
            ]
        )

    def _by(self, values: NDArray[np.int64], weight: Floats, most: int) -> Floats:
        return np.bincount(values, weight, minlength=most + 1).astype(np.float64)
