"""From pages and results to the table that a reader hands on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from gecasmo.logs.notes import Notebook
from gecasmo.logs.text_ids import integers_where_exact

# No column of a log is called so, which cannot be said of "page".
PAGE_NUMBER = "\0page"


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
