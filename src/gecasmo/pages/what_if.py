"""What would be if the pages of a log were others: clicks, satisfaction and abandonment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog
from gecasmo.model.beliefs import drawn_states
from gecasmo.model.log_parts import is_stored, over_parts
from gecasmo.pages.changes import Change, as_change
from gecasmo.pages.off_policy import OffPolicy, off_policy
from gecasmo.pages.outlook import Foretold, as_pages, check_draws, check_level, ends, in_chunks
from gecasmo.pages.worth import ABANDONMENT, Worth, event_numbers
from gecasmo.report import TextTable, counted, html_of, wrapped

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]

_WORTH = "worth"
_MOST_RANKS = 20
# A distance of so many standard errors is told as a disagreement.
_FAR = 2.0


@dataclass(frozen=True, repr=False)
class WhatIf:
    """Pages as they are and as they would be.

    Attributes
    ----------
    frame : a row for each event, as expected numbers a page: `event`, `before`, `after`,
        `difference`, and `low` and `high` of the difference
    ranks : the same by rank, for events of results
    pages, changed : how many pages there are, and how many of them the change has changed
    off_policy : what randomised pages say, if the log has some
    """

    model: str
    change: str
    level: float
    frame: pl.DataFrame
    ranks: pl.DataFrame
    pages: int
    changed: int
    off_policy: OffPolicy | None = None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        names = ("model", "change", "level", "pages", "changed")
        return {
            **{name: getattr(self, name) for name in names},
            "events": self.frame.to_dicts(),
            "ranks": self.ranks.to_dicts(),
            "off_policy": None if self.off_policy is None else self.off_policy.to_dict(),
        }

    @property
    def _title(self) -> str:
        told = f"{self.model}: {counted(self.pages, 'page')}, {self.change}"
        return f"{told}; {self.changed:,} of them change. Expected numbers a page:"

    def _tables(self) -> list[TextTable]:
        def number(form: str) -> Callable[[float], str]:
            return lambda value: format(round(value, 4) + 0.0, form)  # no minus zero

        signed = {"difference": number("+.4f"), "low": number(".4f"), "high": number(".4f")}
        tables = [TextTable.of(self.frame, digits=4, formats=signed)]
        first = self.ranks.filter(pl.col("event") == self.frame["event"][0]).drop("event")
        title = f"{self.frame['event'][0]} by rank"
        tables.append(TextTable.of(first, title, most=_MOST_RANKS, digits=4, formats=signed))
        if self.off_policy is not None:
            own = self.off_policy
            title = f"clicks by {own.pages:,} randomised pages ({own.matches:,} results match)"
            formats = {**signed, "z": "{:+.1f}".format}
            tables.append(TextTable.of(own.frame, title, digits=4, formats=formats))
        return tables

    @property
    def _verdict(self) -> str:
        if self.off_policy is None:
            return (
                "This is what the model believes, and the intervals hold if users are as it says; "
                "no randomised pages were there to check it."
            )
        z = self.off_policy.frame.filter(pl.col("estimate") == "doubly robust")["z"][0]
        if abs(z) < _FAR:
            return f"Randomised pages do not contradict the model ({z:+.1f} standard errors)."
        return f"Randomised pages contradict the model, by {z:+.1f} standard errors."

    def __repr__(self) -> str:
        title, verdict = "\n".join(wrapped(self._title)), "\n".join(wrapped(self._verdict))
        return "\n\n".join([title, *map(str, self._tables()), verdict])

    def _repr_html_(self) -> str:
        return html_of(self._title, *self._tables(), self._verdict)


@dataclass(frozen=True)
class _Sums:
    """Weighted sums over pages, `[before or after, draw, ...]`; they add up over parts."""

    events: Floats  # by event
    ranks: Floats  # by rank and event
    shown: Floats  # weight of results by rank, before and after
    weight: float
    pages: int
    changed: int
    missing: set[str]


def what_if(
    model: Model,
    given: Any,
    change: Any,
    worth: Any,
    draws: int,
    level: float,
    seed: int,
    randomised: str | None,
    propensity: str | None,
) -> WhatIf:
    """See `Model.what_if`."""
    model.states(whole=False)
    change = as_change(change)
    draws, level = check_draws(draws), check_level(level)
    asked = None if worth is None else Worth.of(model, worth)
    names = _names(model, asked)
    log = as_pages(given)

    def ask(view: Model, pages: ClickLog) -> list[_Sums]:
        parts = in_chunks(view, pages)
        return [_sums(view, part, change, asked, names, draws, seed) for part in parts]

    parts = [own for answers in over_parts(model, log, ask, is_blank=True) for own in answers]
    weight = sum(part.weight for part in parts)
    if not weight > 0:
        raise ClickLogError("There is nothing to change: there are no pages, or all weigh 0.")
    if nowhere := set.intersection(*(part.missing for part in parts)):
        raise ClickLogError(f"The log shows no {min(nowhere)}.")
    longest = max(part.ranks.shape[2] for part in parts)
    events = np.sum([part.events for part in parts], axis=0) / weight
    ranks = np.sum([_longer(part.ranks, 2, longest) for part in parts], axis=0) / weight
    shown = np.sum([_longer(part.shown, 1, longest) for part in parts], axis=0)
    checked = None
    if randomised is not None:
        if is_stored(log):
            raise ClickLogError(
                "Randomised pages of a stored log are asked partition by partition: "
                "what_if(log.partition(0), ...)."
            )
        if "click" not in log.columns:
            raise ClickLogError("Randomised pages tell nothing without the column 'click'.")
        checked = off_policy(model, log, change.apply(log), randomised, propensity, level)
    return WhatIf(
        model.name,
        str(change),
        level,
        _table(pl.DataFrame({"event": names}), events, level),
        _by_rank(names, ranks, shown, level),
        sum(part.pages for part in parts),
        sum(part.changed for part in parts),
        checked,
    )


def expected_by_rank(
    model: Model, log: ClickLog, event: str, draws: int, level: float, seed: int = 0
) -> pl.DataFrame:
    """How probable an event is at a result, by its place on the page: `rank`, `probability`, `low`
    and `high`."""
    foretold, place, weight = Foretold(model, log), _places(log), log.weight[log.page]
    shown = np.bincount(place, weight)
    given = (None, [event], place, weight, len(shown))
    found = [
        _one(foretold, states, *given)[1][:, 0] / shown
        for states in (None, *drawn_states(model, draws, seed))
    ]
    low, high = ends(np.stack(found[1:]), level)
    ranks = np.arange(1, len(shown) + 1)
    return pl.DataFrame({"rank": ranks, "probability": found[0], "low": low, "high": high})


def _names(model: Model, worth: Worth | None) -> list[str]:
    """The events that are told: what is asked for, signals, satisfaction, abandonment."""
    automaton = model.structure.full.body
    names: list[str] = []
    if worth is not None:
        # One event at a price of 1 is its own worth.
        is_plain = list(worth.prices.values()) == [1.0]
        names = [*worth.prices] if is_plain else [_WORTH, *worth.prices]
    names += automaton.signals
    names += [coin for coin in automaton.parameters if coin == "satisfaction"]
    return list(dict.fromkeys([*names, ABANDONMENT]))


def _sums(
    model: Model,
    log: ClickLog,
    change: Change,
    worth: Worth | None,
    names: list[str],
    draws: int,
    seed: int,
) -> _Sums:
    other = change.apply(log)
    states = [None, *drawn_states(model, draws, seed)]
    longest = int(log.lengths.max(initial=1))
    events = np.zeros((2, len(states), len(names)))
    ranks = np.zeros((2, len(states), longest, len(names)))
    shown = np.zeros((2, longest))
    for side, pages in enumerate((log, other)):
        foretold = Foretold(model, pages)
        place = _places(pages)
        weight = pages.weight[pages.page]
        shown[side] = np.bincount(place, weight, minlength=longest)
        for number, own in enumerate(states):
            events[side, number], ranks[side, number] = _one(
                foretold, own, worth, names, place, weight, longest
            )
    return _Sums(
        events,
        ranks,
        shown,
        float(log.weight.sum()),
        log.n_sessions,
        _n_changed(log, other),
        change.missing(log),
    )


def _one(
    foretold: Foretold,
    states: Any,
    worth: Worth | None,
    names: list[str],
    place: NDArray[np.int64],
    weight: Floats,
    longest: int,
) -> tuple[Floats, Floats]:
    """Weighted sums of events, over all pages and by rank."""
    log, found = foretold.log, foretold.look(states)
    numbers = event_numbers(foretold.run.model.structure.full.body)
    by_rank = np.zeros((longest, len(names)))
    total = np.zeros(len(names))
    for column, name in enumerate(names):
        if name == ABANDONMENT:
            total[column] = found.quiet @ log.weight
            continue
        if name == _WORTH:
            assert worth is not None
            by_result = np.einsum("ij,ij->i", found.told, foretold.prices(worth))
            whole = found.started @ worth.of_starts() + worth.quiet * found.quiet
            total[column] = whole @ log.weight
        else:
            by_result = found.told[:, numbers[name]]
            total[column] = found.started[:, numbers[name]] @ log.weight
        by_rank[:, column] = np.bincount(place, by_result * weight, minlength=longest)
        total[column] += by_rank[:, column].sum()
    return total, by_rank


def _places(log: ClickLog) -> NDArray[np.int64]:
    """The place of each result in its page, from 0."""
    place = np.empty(log.n_results, np.int64)
    place[log.order] = np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)
    return place


def _n_changed(before: ClickLog, after: ClickLog) -> int:
    """How many pages show other results, or in another order."""
    changed = before.lengths != after.lengths
    docs = [log.column("doc").gather(pl.Series(log.order)) for log in (before, after)]
    same_length = np.repeat(~changed, before.lengths), np.repeat(~changed, after.lengths)
    one, other = (d.filter(pl.Series(m)) for d, m in zip(docs, same_length, strict=True))
    page = np.repeat(np.arange(before.n_sessions), before.lengths)[same_length[0]]
    differs = (one != other).fill_null(True).to_numpy()
    changed[page[differs]] = True
    return int(changed.sum())


def _longer(array: Floats, axis: int, length: int) -> Floats:
    """The same with zeros at the end of an axis."""
    room = [(0, 0)] * array.ndim
    room[axis] = (0, length - array.shape[axis])
    return np.pad(array, room)


def _table(frame: pl.DataFrame, values: Floats, level: float) -> pl.DataFrame:
    """Before, after and their difference, `values[side, draw, row]`."""
    before, after = values[0, 0], values[1, 0]
    frame = frame.with_columns(before=before, after=after, difference=after - before)
    if values.shape[1] == 1:
        return frame
    low, high = ends(values[1, 1:] - values[0, 1:], level)
    return frame.with_columns(low=pl.Series(low), high=pl.Series(high))


def _by_rank(names: list[str], ranks: Floats, shown: Floats, level: float) -> pl.DataFrame:
    """The same by rank, for events that results have; ranks that no page has are left out."""
    kept = np.flatnonzero(shown.sum(axis=0) > 0)
    tables = []
    for column, name in enumerate(names):
        if name == ABANDONMENT:
            continue
        frame = pl.DataFrame({"event": [name] * len(kept), "rank": kept + 1})
        tables.append(_table(frame, ranks[:, :, kept, column], level))
    return pl.concat(tables)
