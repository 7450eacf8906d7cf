"""Which results of a page are clicked, whatever the order: for models that go from click to click.

Such a model tells where the next click is, given the clicks before it. What it says of the clicks
of a page as a set is a sum over all their orders. Orders that have clicked the same results and
ended at the same one have the same future, so they are one *stand*. Ten results have 5,121 of them,
of which those are followed that are likely; what all others weigh is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, ModelError
from gecasmo.logs import ClickLog
from gecasmo.logs.store.page_runs import LENGTH, PageRuns, first_likes
from gecasmo.logs.views import ViewedLog, as_view
from gecasmo.logs.views.walks import ClickWalks
from gecasmo.model.page_run import PageRun

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Stands less likely than this are left out, unless they lead to the clicks of the log; where there
# are many different pages, those ten times as likely, which takes half the time.
LEAST, MANY = 1e-5, 20_000
# Where a page has more clicks than this, stands that lead to them have to be likely as well.
MOST_CLICKS = 12
# A page, a result of it and all those that were clicked, as bits, are one number of 63 bits.
LONGEST = 48
_PAGES_AT_A_TIME = 500


@dataclass(frozen=True)
class ClickSets:
    """What a model says of the clicks of each page as a set.

    Attributes
    ----------
    probability : of the clicks of each session, in whatever order
    conditional : of a click on each result, given which results above it were clicked
    marginal : of a click on each result, with no click known
    lost : per session, how likely it is that users came by a stand that was left out; by so much
        at most are other probabilities off
    """

    probability: Floats
    conditional: Floats
    marginal: Floats
    lost: Floats


def click_sets(model: Model, log: ClickLog, least: float | None = None) -> ClickSets:
    """What a model of the order of clicks says of each page of a log.

    Stands less likely than `least` are left out, by default one in 100,000.

    Raises
    ------
    ModelError
        When the model cannot predict clicks.
    ClickLogError
        When a page is too long.
    """
    require_foretelling(model)
    if int(log.lengths.max(initial=0)) > LONGEST:
        raise ClickLogError(
            f"{model.name} follows users from click to click, and which results of a page they "
            f"click in all is worked out for pages of up to {LONGEST} results; this log has one of "
            f"{int(log.lengths.max()):,}."
        )
    followed = _walker(model)
    kept, number = np.unique(_first_alike(model, log), return_inverse=True)
    if least is None:
        least = LEAST if len(kept) <= MANY else 10 * LEAST
    parts = [
        _Orders(followed, log.take(kept[first : first + _PAGES_AT_A_TIME]), least).told()
        for first in range(0, len(kept), _PAGES_AT_A_TIME)
    ]
    if not parts:
        return ClickSets(*np.zeros((4, 0)))
    probability, lost, conditional, marginal = map(np.concatenate, zip(*parts, strict=True))
    # From the pages that were kept to all sessions, and from there to the rows of the log.
    starts = np.append(0, np.cumsum(log.lengths[kept]))
    rows = starts[number[_page(log)]] + _place(log)
    back = np.empty((2, log.n_results))
    back[:, log.order] = conditional[rows], marginal[rows]
    return ClickSets(probability[number], back[0], back[1], lost[number])


def require_foretelling(model: Model) -> None:
    """Refuse a model that knows where the next click will be."""
    if model.foreseen:
        raise ModelError(
            f"{model.name} cannot predict clicks: its coins have the key '{model.foreseen[0]}', "
            "which says where the next click will be."
        )


def _walker(model: Model) -> Model:
    """The model as it looks on from a click, at all results of the page."""
    model._both_structures()
    twin = model.copy()
    twin.view = replace(as_view(model.view), extent="open")  # type: ignore[call-arg]
    return twin


def _page(log: ClickLog) -> Integers:
    """The session of each result, page after page by rank."""
    return np.repeat(np.arange(log.n_sessions), log.lengths)


def _place(log: ClickLog) -> Integers:
    """The place of each result on its page, from 0, in the same order."""
    return np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)


def _seen(log: ClickLog) -> Integers:
    """The clicks of each session as bits of a number."""
    found = np.zeros(log.n_sessions, np.int64)
    np.add.at(found, _page(log), log.click[log.order].astype(np.int64) << _place(log))
    return found


def _first_alike(model: Model, log: ClickLog) -> Integers:
    """For each session the first that shows the same to this model, and has the same clicks."""
    told = {name for keys in model.keys.values() for name in keys}
    if told & {"session", "result"}:
        return np.arange(log.n_sessions)
    told |= {name for form in model.forms.values() for name in form.columns}
    told |= {"query", "doc", "rank", "click", *model.traced_automaton.guard_columns()}
    results = pl.DataFrame([log.column(name) for name in log.columns if name in told])
    heads = pl.DataFrame([pl.Series(LENGTH, log.lengths)])
    return first_likes(PageRuns(heads, results[log.order]))


class _Orders:
    """The clicks on the pages of a log in all orders, click after click."""

    def __init__(self, model: Model, log: ClickLog, least: float) -> None:
        self.model, self.log, self.least = model, log, least
        self.seen, self.longest = _seen(log), int(log.lengths.max(initial=0))
        self.is_near = np.array([n.bit_count() <= MOST_CLICKS for n in self.seen.tolist()], bool)
        self.place = np.empty(log.n_results, np.int64)
        self.place[log.order] = _place(log)

    def told(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Of each page its probability and what was lost, and of each result, page after page,
        the conditional and the marginal probability of a click."""
        page, clicked, weight, lost = self._ends()
        n_pages, size, lengths = len(lost), self.longest + 1, self.log.lengths
        # On how many results, from the top, an end has the clicks that were seen.
        differs = self.seen[page] ^ clicked
        lowest = np.where(differs, differs & -differs, np.int64(1) << lengths[page])
        agree = np.log2(lowest.astype(np.float64)).astype(np.int64)
        mass: Floats = np.bincount(page * size + agree, weight, n_pages * size).astype(np.float64)
        # How likely it is that so many results agree, and perhaps more.
        upto = np.cumsum(mass.reshape(n_pages, size)[:, ::-1], axis=1)[:, ::-1]
        before, after = upto[:, :-1], upto[:, 1:]
        as_seen = np.divide(after, before, out=np.zeros_like(after), where=before > 0)
        bits = np.arange(self.longest)
        is_click = (self.seen[:, None] >> bits) & 1 > 0
        conditional = np.where(is_click, as_seen, 1.0 - as_seen)
        marginal = np.zeros((n_pages, self.longest))
        for bit in bits:
            marginal[:, bit] = np.bincount(page, weight * ((clicked >> bit) & 1), n_pages)
        marginal /= np.maximum(1.0 - lost, 1e-300)[:, None]
        where = _page(self.log), _place(self.log)
        own = upto[np.arange(n_pages), lengths]
        return own, lost, np.clip(conditional[where], 0, 1), np.clip(marginal[where], 0, 1)

    def _ends(self) -> tuple[Integers, Integers, Floats, Floats]:
        """Where users end: on which page, what they have clicked, and how likely that is; and of
        each page what was lost on the way."""
        n_pages = self.log.n_sessions
        page, clicked = np.arange(n_pages), np.zeros(n_pages, np.int64)
        here, weight = np.full(n_pages, -1), np.ones(n_pages)
        ends, lost = [], np.zeros(n_pages)
        while len(page):
            of, there, clicks = self._next_clicks(page, clicked, here)
            stays = weight * np.clip(1 - np.bincount(of, clicks, len(page)), 0.0, 1.0)
            ends.append((page, clicked, stays))
            clicked = clicked[of] | (np.int64(1) << there)
            page, clicked, here, weight = self._merged(
                page[of], clicked, there, weight[of] * clicks
            )
            leads_there = self.is_near[page] & (clicked & ~self.seen[page] == 0) & (weight > 0)
            is_kept = leads_there | (weight >= self.least)
            lost += np.bincount(page[~is_kept], weight[~is_kept], n_pages)
            page, clicked, here, weight = (a[is_kept] for a in (page, clicked, here, weight))
        found = [np.concatenate(arrays) for arrays in zip(*ends, strict=True)]
        return found[0], found[1], found[2], lost

    def _next_clicks(
        self, page: Integers, clicked: Integers, here: Integers
    ) -> tuple[Integers, Integers, Floats]:
        """From which of these stands users click which result next, and how likely that is."""
        view = as_view(self.model.view)
        assert isinstance(view, ClickWalks)
        walks, stand = view.onwards(self.log, page, here, clicked)
        if not len(walks.rows):
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        viewed = ViewedLog(self.log, view, walks)
        run = PageRun(self.model, viewed, "marginal", merge=False)
        answers = np.zeros(run.encoded.n_results)
        run.run(answers)
        clicks: Floats = np.clip(run.results(answers), 0.0, 1.0)
        return stand[viewed.page], self.place[walks.rows], clicks

    def _merged(
        self, page: Integers, clicked: Integers, here: Integers, weight: Floats
    ) -> tuple[Integers, Integers, Integers, Floats]:
        """Orders that are at the same stand as one."""
        key = ((page * self.longest + here) << self.longest) | clicked
        frame = pl.DataFrame({"key": key, "weight": weight})
        found = frame.group_by("key").agg(pl.col("weight").sum()).sort("key")
        key = found["key"].to_numpy()
        at = key >> self.longest
        bits = (np.int64(1) << self.longest) - 1
        return at // self.longest, key & bits, at % self.longest, found["weight"].to_numpy()
