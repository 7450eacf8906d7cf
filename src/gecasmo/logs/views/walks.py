"""Clicks in the order in which they were made: from click to click, up and down the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, ModelError
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Notebook
from gecasmo.logs.runs import Integers, offsets
from gecasmo.logs.selection import comparable_times, has_no_time
from gecasmo.logs.views.view import View, Walks, changes, places, sorted_rows
from gecasmo.report import counted, listed

EXTENTS = ("travelled", "all", "open")


@dataclass(frozen=True)
class ClickWalks(View):
    """A walk from each click to the next, and one from the last click on.

    A log has a column `click_order` or `click_time`: numbers or times, null where nothing was
    clicked. From one click to the next, a walk has the results in the direction of travel, up to
    the next click; from the last click on, those below it and then, upwards, those above. Results
    that were clicked before are passed over, since a log tells of one click on each.

    Parameters
    ----------
    extent : "travelled", "all" or "open"
        As above; each walk with all results below and above, as for those who do not know where the
        next click is; or so, and only the walks from the last click on.
    """

    extent: str = "travelled"

    name: ClassVar[str] = "walks"
    is_sequential: ClassVar[bool] = True
    guards: ClassVar[tuple[str, ...]] = ("is_above", "before_first", "after_last")
    keys: ClassVar[tuple[str, ...]] = ("from_rank", "to_rank", "way", "page_rank")
    foreseen: ClassVar[tuple[str, ...]] = ("to_rank",)

    def __post_init__(self) -> None:
        if self.extent not in EXTENTS:
            ways = listed(map(repr, EXTENTS), "or")
            raise ModelError(f"ClickWalks(extent={self.extent!r}): {ways}.")

    @property
    def needs(self) -> tuple[tuple[str, ...], ...]:
        """When each click was made."""
        return (("click_order", "click_time"),)

    def example(self, page: Integers, rank: Integers) -> dict[str, NDArray[Any]]:
        """Clicks from the bottom to the top on every second page."""
        return {"click_order": np.where(page % 2, -rank, rank)}

    def walks(self, log: ClickLog) -> Walks:
        """The segments of each page."""
        odd = Notebook()
        turn = _turns(log, odd)[log.order]  # of clicks of a page: 1, 2, ...; 0 without a click
        n_clicks = np.bincount(log.page, weights=log.click, minlength=log.n_sessions).astype(int)
        # Where the click of each turn is among the results of its page; turn 0 is above the first.
        first = offsets(n_clicks + 1)
        at = np.full(first[-1] + 1, -1, np.int64)
        place = np.arange(len(turn)) - np.repeat(log.starts[:-1], log.lengths)
        page = np.repeat(np.arange(log.n_sessions), log.lengths)
        is_click = turn > 0
        at[first[page[is_click]] + turn[is_click]] = place[is_click]
        # A segment for each turn: from there to the next, or on from the last.
        session = np.repeat(np.arange(log.n_sessions), n_clicks + 1)
        number = np.arange(first[-1]) - first[session]
        is_last = number == n_clicks[session]
        if self.extent == "open":
            session, number, is_last = session[is_last], number[is_last], is_last[is_last]
        here = at[first[session] + number]
        there = np.where(is_last, -1, at[first[session] + number + 1])
        is_both = is_last | (self.extent == "all")

        def is_over(segment: Integers, in_chain: Integers) -> NDArray[np.bool_]:
            was_clicked: NDArray[np.bool_] = turn[in_chain] > 0
            return was_clicked & (turn[in_chain] <= number[segment])

        segments = _Segments(session, here, there, is_last, is_both, number == 0)
        walks, segment, in_chain, _ = segments.walks(log, is_over)
        ends = ~is_last[segment] & (turn[in_chain] == number[segment] + 1)
        columns = {**walks.columns, "click": lambda: pl.Series(ends)}
        return replace(walks, columns=columns, odd=tuple(odd.notes))

    def onwards(
        self, log: ClickLog, session: Integers, here: Integers, clicked: Integers
    ) -> tuple[Walks, Integers]:
        """The walks on from some places: each of a session, from a result of it (-1 from the top)
        where the clicked ones are the bits of a number. Also the place that each walk is from."""
        is_last = np.ones(len(session), bool)

        def is_over(segment: Integers, in_chain: Integers) -> NDArray[np.bool_]:
            where = in_chain - log.starts[session[segment]]
            found: NDArray[np.bool_] = (clicked[segment] >> where) & 1 > 0
            return found

        segments = _Segments(session, here, np.full(len(here), -1), is_last, is_last, here < 0)
        walks, segment, _, filled = segments.walks(log, is_over)
        nothing = np.zeros(len(segment), bool)
        columns = {**walks.columns, "click": lambda: pl.Series(nothing)}
        return replace(walks, columns=columns), np.flatnonzero(filled)


@dataclass(frozen=True)
class _Segments:
    """Ways along a page, one each: of a session, from a place on it to another (-1 for none)."""

    session: Integers
    here: Integers
    there: Integers
    is_last: NDArray[np.bool_]
    is_both: NDArray[np.bool_]  # whether it has all results below and above, not one way only
    is_first: NDArray[np.bool_]

    def walks(
        self, log: ClickLog, is_over: Callable[[Integers, Integers], NDArray[np.bool_]]
    ) -> tuple[Walks, Integers, Integers, NDArray[np.bool_]]:
        """The walks, without those results that are passed over; the segment of each row and its
        place among all rows; and which segments have any."""
        session, here, there = self.session, self.here, self.there
        below = log.lengths[session] - 1 - here
        length = np.where(self.is_both, below + np.maximum(here, 0), np.abs(there - here))
        segment = np.repeat(np.arange(len(session)), length)
        step = np.arange(len(segment)) - np.repeat(offsets(length)[:-1], length)
        both = self.is_both[segment]
        goes_up = np.where(both, step >= below[segment], (there < here)[segment])
        upwards = np.where(both, step - below[segment], step)
        where = here[segment] + np.where(goes_up, -1 - upwards, 1 + step)
        in_chain = log.starts[session[segment]] + where
        stays = ~is_over(segment, in_chain)
        segment, in_chain, goes_up = (a[stays] for a in (segment, in_chain, goes_up))
        # Segments without results say nothing.
        length = np.bincount(segment, minlength=len(session))
        filled = length > 0
        starts = offsets(length[filled])
        rank = np.arange(len(segment)) - np.repeat(starts[:-1], length[filled]) + 1
        ranks = log.rank[log.order]

        def rank_at(position: Integers) -> NDArray[np.int32]:
            """The rank at a place of a segment's page; 0 for none."""
            own = log.starts[session] + np.maximum(position, 0)
            found = ranks[np.minimum(own, max(len(ranks) - 1, 0))] if len(ranks) else own
            of_rows: NDArray[np.int32] = np.where(position < 0, 0, found)[segment].astype(np.int32)
            return of_rows

        walks = Walks(
            rows=log.order[in_chain],
            starts=starts,
            rank=rank.astype(np.int32),
            first_session=session[filled],
            walk_of_session=None,
            columns={
                "from_rank": lambda: pl.Series(rank_at(here)),
                "to_rank": lambda: pl.Series(rank_at(there)),
                "way": lambda: pl.Series(goes_up).replace_strict({True: "up", False: "down"}),
                "is_above": lambda: pl.Series(goes_up),
                "before_first": lambda: pl.Series(self.is_first[segment]),
                "after_last": lambda: pl.Series(self.is_last[segment]),
            },
        )
        return walks, segment, in_chain, filled


def _turns(log: ClickLog, odd: Notebook) -> Integers:
    """The turn of each click among those of its page, from 1; 0 for results without a click."""
    name = "click_order" if "click_order" in log.columns else "click_time"
    column = log.column(name)
    clicked = np.flatnonzero(log.click)
    given = column.gather(pl.Series(clicked))
    lost = clicked[has_no_time(given).to_numpy()]
    if len(lost):
        raise ClickLogError(
            f"The view 'walks' needs the column '{name}' of every click: "
            f"{counted(len(lost), 'click has', 'clicks have')} none (first: "
            f"{places(lost[:1], log)[0]})."
        )
    turn = np.zeros(log.n_results, np.int64)
    if not len(clicked):
        return turn
    said = comparable_times(given, name, reader="The view 'walks'")
    times = said.rank("dense").to_numpy().astype(np.int64)
    page = log.page[clicked].astype(np.int64)
    order = sorted_rows(page, times, log.rank[clicked])
    page, times = page[order], times[order]
    is_new = changes(page)
    begins = np.flatnonzero(is_new)
    sizes = np.diff(np.append(begins, len(page)))
    turn[clicked[order]] = np.arange(len(page)) - np.repeat(begins, sizes) + 1
    tied = np.flatnonzero(~is_new & ~changes(times))
    odd.add(
        "clicks at the same time as another of their page",
        len(tied),
        "the one at the higher place counts as the first",
        places(clicked[order][tied[:3]], log),
    )
    return turn
