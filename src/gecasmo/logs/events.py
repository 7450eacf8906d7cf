"""`read_events`: a log from a stream of events."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from gecasmo.errors import ClickLogError, ClickLogWarning, option
from gecasmo.forks import refuse_lost_fork
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.formats.event_columns import OR, EventRoles, names_of
from gecasmo.logs.formats.events import EVENTS
from gecasmo.logs.formats.table import source_label
from gecasmo.logs.inputs import MAX_LINE
from gecasmo.logs.notes import in_one_message
from gecasmo.logs.reader import read_as, recognise
from gecasmo.logs.roles import CANONICAL, DEFAULTS, Roles

Names = str | Sequence[str] | None


def read_events(
    source: Any,
    *,
    page: Names = "page",
    event: str = "event",
    doc: str = "doc",
    position: str | None = "position",
    query: str | None = "query",
    time: str | None = "time",
    impression: Names = None,
    click: Names = None,
    signals: Mapping[str, Names] | None = None,
    gap: str | float | None = None,
    max_line: int = MAX_LINE,
    separator: str | None = None,
) -> ClickLog:
    """Read a stream of events, a row an impression, a click, a cart, in any order, as a log.

    Impressions say what was shown, and so make the pages; clicks and other events find their result
    there, by document and position. Whatever does not fit is counted in `ClickLog.notes`.

    A role is played by a column, by a field inside of one, such as "properties.product_id" (also of
    lists of objects, of JSON text, and of lists of {key, value}), or by the first that is there of
    several, "products.product_id|product_id". Where no column is called as a role is, one that goes
    by a usual name is taken, and a note tells.

    Parameters
    ----------
    source
        A table, as `read_log` takes it: a path, glob or address of Parquet, CSV, TSV or JSON lines,
        "-", a data frame, a dict of columns, or a list with a dict an event.
    page
        The column that says which list of results an event belongs to, or several that do so
        together, such as the visit and the query.
    event
        The name of the event.
    doc
        The document; also lists of documents, for events with one row a page.
    position
        Where it stood, from 1 or from 0. None takes the order of lists, else of times and rows.
    query
        What was searched for; events of a page that do not say it have that of the others. None
        reads a log without queries.
    time
        When it happened: numbers of any unit, times, or texts of these. It becomes the columns
        "time" (of the page) and "click_time" (of the first click on a result). None does without.
    impression, click
        The names of these events, one or several; None guesses them.
    signals
        Further events: names of columns to names of events, such as ``{"cart": "add_to_cart"}``.
        None guesses carts and purchases; ``{}`` takes none.
    gap
        Where an id of `page` stands for several lists of results: another query begins a new one,
        and so does this much time without an impression, "30m", or a number where times are
        numbers. Clicks belong to the latest list that has their document.
    max_line, separator
        As in `read_log`.

    Returns
    -------
    ClickLog
        Other columns are those of the impressions.

    Raises
    ------
    ClickLogError
        When a column or an event is not there, nothing says what was shown, a page has two queries,
        or positions are none.

    Warns
    -----
    ClickLogWarning
        Once, with the notes.

    Examples
    --------
    >>> log = read_events({"page": [1, 1, 1], "event": ["impression", "click", "impression"],
    ...                    "doc": ["a", "b", "b"], "position": [1, 2, 2]})
    >>> log.click.tolist()
    [False, True]
    """
    refuse_lost_fork()
    columns = {"page": page, "event": event, "doc": doc}
    optional = {"position": position, "query": query, "time": time}
    for role, names in {**columns, **optional}.items():
        if not all(isinstance(name, str) and name for name in names_of(names)):
            raise ClickLogError(f"{option(role, names, of='read_events')}: name a column.")
        if role in columns and not names_of(names):
            raise ClickLogError(f"{option(role, names, of='read_events')}: events need one.")
        if role != "page" and not isinstance(names, str | None):
            raise ClickLogError(
                f"{option(role, names, of='read_events')}: {role} is one column; only page can be "
                f"several. The first that is there of several is written so: "
                f"{OR.join(names_of(names))!r}."
            )
    for signal in signals or ():
        if signal in (*CANONICAL, "impression", "weight", "time", "click_time") or not signal:
            raise ClickLogError(
                f"{option('signals', signals, of='read_events')}: {signal!r} cannot be the name "
                f"of a new column; choose another name."
            )
    roles = EventRoles({**columns, **optional}, impression, click, signals, gap)
    source, _ = recognise(source, EVENTS.name, separator=separator)
    label = source_label(source)
    log = read_as(EVENTS, source, Roles(DEFAULTS), max_line, label, roles)
    if log.notes:
        warnings.warn(in_one_message(label, log.notes), ClickLogWarning, stacklevel=2)
    return log
