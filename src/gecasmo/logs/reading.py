"""`read_log`: from any table to a checked click log."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from gecasmo.errors import ClickLogWarning
from gecasmo.logs.assembling import assemble
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.faults import Faults
from gecasmo.logs.roles import Roles
from gecasmo.logs.sources import open_table, source_label


def read_log(
    source: Any,
    *,
    session: str | Sequence[str] | None = "session",
    query: str | None = "query",
    doc: str | Sequence[str] = "doc",
    rank: str | None = "rank",
    click: str | None = "click",
    weight: str | None = None,
) -> ClickLog:
    """Read a click log, and check it.

    A session is one result page shown to one user. A log has either one row a result, or one row a
    page with lists of results; the data type of the click (or document) column tells which.

    Parameters
    ----------
    source
        A Parquet, CSV or TSV path or glob; a Polars, pandas, PyArrow or DuckDB table (anything
        with ``__arrow_c_stream__``); a Polars LazyFrame; or a dict of columns.
    session
        The column that says which page a result is on, or a list of columns that do so together.
        Not needed for nested logs, whose pages are then numbered 0, 1, 2, ...
    query
        The query of the page. Without a column called "query" the log has no queries.
    doc
        The document, or a list of columns that identify it together.
    rank
        The rank of the result, from 1. Ranks from 0 are shifted by one, with a warning; gaps are
        kept. None takes the order of the rows of a page. Nested logs do not need it.
    click
        Whether the result was clicked: booleans or 0 and 1. None reads pages without clicks.
    weight
        How often the page counts; one value a page, not negative. None: every page counts once.

    Returns
    -------
    ClickLog

    Raises
    ------
    ClickLogError
        With every fault found in the source.

    Warns
    -----
    ClickLogWarning
        When ranks were shifted, or a column was left out because another one took its name.

    Examples
    --------
    >>> log = read_log({"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2], "click": [0, 1]})
    >>> len(log), log.n_results
    (1, 2)
    """
    roles = Roles(
        {
            "session": session,
            "query": query,
            "doc": doc,
            "rank": rank,
            "click": click,
            "weight": weight,
        }
    )
    faults = Faults(source_label(source))
    table = open_table(source, roles.id_columns)
    log, notes = assemble(table, roles, faults)
    for note in notes:
        warnings.warn(f"{faults.label}: {note}", ClickLogWarning, stacklevel=2)
    return log
