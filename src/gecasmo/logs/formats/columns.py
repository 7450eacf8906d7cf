"""What readers share: columns of the values they found, and pages made of their results."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from gecasmo.logs.lines import Lines
from gecasmo.logs.notes import Notebook
from gecasmo.logs.values import integers_where_exact

# No column of a log is called so, which cannot be said of "page".
PAGE_NUMBER = "\0page"
MOST_CLICKS = 2**31


def nested(pages: pl.DataFrame, results: pl.DataFrame, page: str = "page") -> pl.DataFrame:
    """Put the results of each page into lists, so that pages without results have a row too.

    Parameters
    ----------
    pages
        One row a page, in order.
    results
        One row a result, by page.
    page
        The column of `results` that counts the rows of `pages` from 0.

    Returns
    -------
    pl.DataFrame
    """
    lists = results.rename({page: PAGE_NUMBER}).with_columns(pl.col(PAGE_NUMBER).cast(pl.UInt32))
    lists = lists.group_by(PAGE_NUMBER, maintain_order=True).agg(pl.all())
    names = [name for name in lists.columns if name != PAGE_NUMBER]
    numbered = pages.with_row_index(PAGE_NUMBER)
    joined = numbered.join(lists, on=PAGE_NUMBER, how="left", maintain_order="left")
    return joined.with_columns(pl.col(names).fill_null([])).drop(PAGE_NUMBER)


def page_ids(ids: pl.Series) -> pl.Series:
    """Name each page after an id of the source, which several pages can share.

    Parameters
    ----------
    ids
        The id of each page in the source, as text.

    Returns
    -------
    pl.Series
        The ids themselves when no two pages share one; else `id-1`, `id-2`, ... throughout.
    """
    if not ids.is_duplicated().any():
        return integers_where_exact(ids).alias("session")
    numbers = pl.int_range(1, pl.len() + 1).over("id").cast(pl.String)
    named = ids.alias("id").to_frame().select(pl.concat_str("id", numbers, separator="-"))
    return named.to_series().alias("session")


def with_exact_ids(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Turn columns of text ids into integers, each where that loses nothing."""
    return frame.with_columns(integers_where_exact(frame[name]) for name in columns)


def first_on_page(results: pl.DataFrame) -> pl.Series:
    """Say of each result whether its document is on its page for the first time.

    Parameters
    ----------
    results
        One row a result, with "page" and "doc".

    Returns
    -------
    pl.Series
    """
    # One number for page and document is far faster to hash than the pair of them.
    code = code_of(results["doc"])
    return (results["page"].cast(pl.UInt64) * 2**32 + code.cast(pl.UInt64)).is_first_distinct()


def code_of(ids: pl.Series) -> pl.Series:
    """Give each different id a number, below 2**32."""
    return ids.cast(pl.String).cast(pl.Categorical).to_physical()


def note_shown_twice(
    results: pl.DataFrame, notes: Notebook, done: str, where: Callable[[int], str]
) -> None:
    """Note results that are on their page already.

    Parameters
    ----------
    results
        One row a result, with "page" and "doc".
    notes
        Where it is noted.
    done
        What becomes of them.
    where
        Names a page in words.
    """
    again = results.filter(~first_on_page(results))
    examples = (f"{where(page)}: {doc!r}" for page, doc in again.select("page", "doc").iter_rows())
    notes.add("results shown twice on a page", again.height, done, examples)


def note_repeated_queries(
    pages: pl.DataFrame, visit: str, notes: Notebook, where: Callable[[int], str]
) -> None:
    """Note pages whose query was asked before in the same visit.

    Parameters
    ----------
    pages
        One row a page, with "query" and the column of the visit.
    visit
        The column that says which pages belong together.
    notes
        Where it is noted.
    where
        Names a page in words.
    """
    known = pl.col(visit).is_not_null()
    again = ~pl.struct(visit, "query").is_first_distinct() & known
    rows = pages.select(again.alias("again"))["again"].arg_true()
    notes.add(
        "repeated queries in a session",
        len(rows),
        "each is a page of its own",
        (where(int(row)) for row in rows.head(3)),
    )


def column_of(name: str, values: Sequence[Any]) -> pl.Series:
    """Make a column of JSON values: integers, booleans, floats where all are, else text.

    Parameters
    ----------
    name
        The name of the column.
    values
        What `json.loads` gave; None is null.

    Returns
    -------
    pl.Series
    """
    kinds = {type(value) for value in values if value is not None}
    for kind, dtype in ((bool, pl.Boolean), (int, pl.Int64), (str, pl.String)):
        if kinds == {kind} and (kind is not int or _fits(values)):
            return pl.Series(name, values, dtype)
    if float in kinds and kinds <= {int, float}:
        return pl.Series(name, values, pl.Float64, strict=False)
    return pl.Series(name, [as_text(value) for value in values], pl.String)


def as_text(value: Any) -> str | None:
    """Write a JSON value as text; a text stays as it is."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def flat(value: Any, lines: Lines, row: int) -> Any:
    """Write lists and objects of a line as text, which is what a column keeps; others stay."""
    if not isinstance(value, list | dict):
        return value
    try:
        return as_text(value)
    except RecursionError:
        raise lines.error(row, "JSON nested too deeply") from None


def click_counts(values: Sequence[Any], lines: Lines, row: int) -> list[int]:
    """Read numbers of clicks.

    Parameters
    ----------
    values
        Whole numbers from 0, or booleans.
    lines, row
        The line they stand in, for the message.

    Returns
    -------
    list of int

    Raises
    ------
    ClickLogError
        When a value is something else.
    """
    for value in values:
        # Not every whole number has a float to ask: 10**400 has none.
        is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        if not is_number or value != int(value) or not 0 <= value < MOST_CLICKS:
            shown = reprlib.repr(value)
            raise lines.error(row, f"clicks are whole numbers from 0, not {shown}")
    return [int(value) for value in values]


def _fits(values: Sequence[Any]) -> bool:
    return all(-(2**63) <= value < 2**63 for value in values if value is not None)
