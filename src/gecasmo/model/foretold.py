"""What users will click, under a model whose coins depend on how the page went so far.

A form that reads pages (`Recurrent`) has a probability for a result only once the clicks above it
are known. So pages are gone through from the top: the filter says how likely a click is at the next
result, given those above, whatever is hidden; and the page goes on with a click and without one.

With no click known there are as many ways to go as patterns of clicks above a result. On short
pages all of them are followed. On others those that are likely are; of the unlikely ones some drawn
by chance stand for the others, each with so much more weight, so that no answer is off on average.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import ModelError
from gecasmo.logs import ClickLog
from gecasmo.model.page_run import Filtered

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Ways that are less likely than one in so many are left to chance, on pages that have more ways.
WAYS = 64
_PAGES_AT_A_TIME = 500
_STREAM = 0x77617973


def foretold_clicks(model: Model, log: ClickLog, ways: int = WAYS) -> Floats:
    """P(click) of each result of a log with no click known, in the order of its rows.

    Exact on pages of up to log2(ways) + 1 results; else the mean over ways that the page may go, of
    which all that are likelier than 1 / `ways` are followed.
    """
    _require_clicks(model)
    found = np.zeros(log.n_results)
    for first in range(0, log.n_sessions, _PAGES_AT_A_TIME):
        pages = np.arange(first, min(first + _PAGES_AT_A_TIME, log.n_sessions))
        rows = np.flatnonzero((log.page >= pages[0]) & (log.page <= pages[-1]))
        found[rows] = _foretold(model, log.take(pages), ways, first)
    return found


def foretold_log(model: Model, log: ClickLog, seed: int) -> ClickLog:
    """The same pages, clicked by simulated users, result by result."""
    _require_clicks(model)
    uniform = np.random.default_rng([seed, _STREAM]).random(log.n_results)
    place, clicks = _place(log), np.zeros(log.n_results, bool)
    for turn in range(int(log.lengths.max(initial=0))):
        here = place == turn
        click = Filtered(model, log.with_signals({"click": clicks}), "raise").click
        clicks = np.where(here, uniform < click, clicks)
    return log.with_signals({"click": clicks})


def _require_clicks(model: Model) -> None:
    """Refuse a model that shows more of its users than clicks."""
    traced = model.structure.traced
    if traced.signals != ("click",) or traced.observes:
        raise ModelError(
            f"{model.name} has other signals than clicks, and the form of "
            f"'{model.page_readers[0]}' reads pages: with such a form users are followed from "
            "click to click, and nothing else of them is foretold."
        )


def _place(log: ClickLog) -> Integers:
    """The place of each row on its page, from 0."""
    place = np.empty(log.n_results, np.int64)
    place[log.order] = np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)
    return place


def _foretold(model: Model, log: ClickLog, ways: int, salt: int) -> Floats:
    """The same for a few pages, all at once, one place after the other."""
    from gecasmo.model.stories import repeated

    generator = np.random.default_rng([_STREAM, salt])
    longest = int(log.lengths.max(initial=0))
    told, mass = np.zeros((log.n_sessions, longest)), np.zeros((log.n_sessions, longest))
    page, weight = np.arange(log.n_sessions), np.ones(log.n_sessions)
    above = np.zeros((log.n_sessions, longest), bool)  # of each way, what was clicked so far
    for turn in range(longest):
        goes_on = log.lengths[page] > turn
        page, weight, above = page[goes_on], weight[goes_on], above[goes_on]
        shown = repeated(log, page)
        of, at = shown.page.astype(np.int64), _place(shown)
        clicked = shown.with_signals({"click": above[of, at]})
        here = at == turn
        click = np.empty(len(page))
        click[of[here]] = Filtered(model, clicked, "floor", warn=False).click[here]
        np.add.at(told[:, turn], page, weight * click)
        np.add.at(mass[:, turn], page, weight)
        if turn + 1 < longest:
            both = np.concatenate([weight * (1 - click), weight * click])
            above = np.concatenate([above, above])
            above[len(page) :, turn] = True
            page = np.concatenate([page, page])
            weight = _thinned(both, log.lengths[page], ways, generator)
            kept = weight > 0
            page, weight, above = page[kept], weight[kept], above[kept]
    share = np.divide(told, mass, out=np.zeros_like(told), where=mass > 0)
    found: Floats = np.clip(share[log.page, _place(log)], 0.0, 1.0)
    return found


def _thinned(
    weight: Floats, lengths: Integers, ways: int, generator: np.random.Generator
) -> Floats:
    """Unlikely ways are kept by chance, with the weight that makes up for those that are not."""
    is_long = lengths - 1 > np.log2(ways)
    is_rare = is_long & (weight < 1 / ways)
    lucky = generator.random(len(weight)) < weight * ways
    return np.where(is_rare, np.where(lucky, 1 / ways, 0.0), weight)
