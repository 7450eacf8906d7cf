"""Views of a log: one log, read in other orders.

A view is a pure function from a `ClickLog` to the walks of its users: which rows they come by, in
which order, where each walk begins, and columns that follow from it. A model names the view that it
needs (`view = "tasks"`), and everything that takes a log applies it once, before encoding.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gecasmo.errors import ModelError
from gecasmo.logs.views.grids import Grids
from gecasmo.logs.views.tasks import Tasks
from gecasmo.logs.views.view import Pages, View, ViewedLog, Walks
from gecasmo.logs.views.walks import ClickWalks
from gecasmo.report import listed

# By name, in the order in which they are listed.
VIEWS: dict[str, type[View]] = {view.name: view for view in (Pages, Grids, Tasks, ClickWalks)}


def as_view(given: str | View, **options: Any) -> View:
    """A view by its name and options, or the view that is given.

    Raises
    ------
    ModelError
        When there is no such view, or it has no such option.

    Examples
    --------
    >>> from gecasmo.logs.views import as_view
    >>> as_view("grids", order="columns")
    Grids(order='columns')
    """
    if isinstance(given, View) and not options:
        return given
    if not isinstance(given, str) or given not in VIEWS:
        there = listed(map(repr, VIEWS), "and")
        raise ModelError(f"There is no view {given!r} of a log. There are: {there}.")
    kind = VIEWS[given]
    known = [field.name for field in fields(kind)]
    unknown = [name for name in options if name not in known]
    if unknown:
        has = f"has: {', '.join(known)}" if known else "has none"
        raise ModelError(f"The view {given!r} has no option {unknown[0]!r}; it {has}.")
    return kind(**options)


def view_of(log: Any) -> View:
    """The view under which a log is seen: that of its pages, unless `log.view` made it."""
    return log.seen_as if isinstance(log, ViewedLog) else Pages()


__all__ = [
    "VIEWS",
    "ClickWalks",
    "Grids",
    "Pages",
    "Tasks",
    "View",
    "ViewedLog",
    "Walks",
    "as_view",
    "view_of",
]
