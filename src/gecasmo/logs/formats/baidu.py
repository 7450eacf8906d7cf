"""CLAX and Baidu-ULTR: Parquet with one row a page, and lists of pair ids, clicks and so on.

query_id  query_doc_ids  clicks     positions  mask
17        [3, 9, 0]      [0, 1, 0]  [1, 2, 3]  [true, true, false]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.files import whole_file
from gecasmo.logs.formats.format import (
    PAGE_NUMBER,
    Format,
    Head,
    ReadOptions,
    nested,
    note_shown_twice,
)
from gecasmo.logs.formats.writer import ROLES, LogWriter
from gecasmo.logs.inputs import Opened, first_line, open_inputs
from gecasmo.logs.notes import Notebook
from gecasmo.logs.pages import number_by_first_appearance
from gecasmo.logs.roles import is_list

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

NAMES = {
    "doc": ("doc_ids", "query_doc_ids", "url_md5", "text_md5"),
    "click": ("clicks", "click"),
    "rank": ("positions", "position"),
    "mask": ("mask",),
    "n": ("n",),
    "query": ("query_id", "query_md5"),
    "session": ("session_id",),
}


def sniff(head: Head) -> bool:
    """Say whether the columns are lists of pair ids (or hashes) and clicks."""
    schema = head.schema
    docs = [name for name in NAMES["doc"] if is_list(schema.get(name, pl.Null()))]
    clicks = [name for name in NAMES["click"] if is_list(schema.get(name, pl.Null()))]
    return bool(docs) and bool(clicks) and "doc" not in schema


def read(source: Any, options: ReadOptions, notes: Notebook) -> pl.DataFrame:
    """Read padded pages; `docs/readers.md` says what becomes of odd ones."""
    inputs = open_inputs(source, folders=True)
    notes.place = lambda row: f"{inputs.label}, row {row}"
    table = _with_list_lengths(_open(inputs, notes), inputs.label, notes)
    lists = [name for name, dtype in table.schema.items() if is_list(dtype)]
    flat = table.select(lists).with_row_index(PAGE_NUMBER)
    flat = flat.filter(pl.col("doc").list.len() > 0).explode(lists)
    shown = flat["mask"] if "mask" in lists else pl.repeat(True, flat.height, eager=True)
    if "n" in table.columns and "mask" not in lists:
        shown = flat.select(
            pl.int_range(pl.len()).over(PAGE_NUMBER) < table["n"].gather(flat[PAGE_NUMBER])
        ).to_series()
    _refuse_nulls(flat, inputs.label, shown)
    flat = flat.with_columns(click=_clicks(flat, inputs.label))
    unseen = flat.filter(~shown & (pl.col("click") > 0))[PAGE_NUMBER]
    notes.add_rows("clicks on results never shown", unseen, "clicks on masked places; left out")
    flat = flat.filter(shown)
    again = flat.filter(pl.col("click") > 1)
    notes.add(
        "duplicate clicks",
        int((again["click"] - 1).sum()),
        "a result is clicked once",
        map(notes.place, again[PAGE_NUMBER]),
    )
    flat = flat.with_columns(pl.col("click") > 0).drop("mask", strict=False)
    placed = flat.select("doc", page=PAGE_NUMBER)
    note_shown_twice(placed, range(table.height), notes, "they stay on both ranks")
    pages = table.drop(lists).drop("n", strict=False)
    result = nested(pages, flat, PAGE_NUMBER)
    empty = (result["doc"].list.len() == 0).arg_true()
    notes.add_rows("pages without results", empty, "they are kept")
    return result


def _open(inputs: Opened, notes: Notebook) -> pl.DataFrame:
    """Read the files, with the columns under the names of the roles."""
    for file in inputs:
        if not file.is_parquet:
            raise ClickLogError(f"{file.name} is not a Parquet file, and this format needs one.")
    try:
        table = pl.concat([file.read_parquet() for file in inputs], how="vertical_relaxed")
    except pl.exceptions.PolarsError as error:
        raise ClickLogError(f"{inputs.label} cannot be read: {first_line(error)}") from error
    used = {}
    for role, names in NAMES.items():
        name = next((name for name in names if name in table.columns), None)
        if name is not None:
            used[name] = role
    for role in ("doc", "click"):
        if role not in used.values():
            raise ClickLogError(
                f"{inputs.label} lacks a column with the {role}s of each page: one of "
                f"{', '.join(NAMES[role])}. It has: {', '.join(table.columns)}."
            )
    # What stands under the name of a role but is something else, such as the words of the query.
    taken = [name for name in table.columns if name in NAMES and used.get(name) != name]
    table = table.rename({name: f"{name}_" for name in taken})
    table = table.rename(used)
    if "query" not in table.columns and used.get("query_doc_ids") == "doc":
        # Most models have a row a query and document; a pair id is both in one.
        notes.add(
            "pages without a query",
            table.height,
            "a pair id stands for query and document; the query is 0 everywhere",
        )
        table = table.with_columns(query=pl.lit(0, pl.Int64))
    return table


def _with_list_lengths(table: pl.DataFrame, label: str, notes: Notebook) -> pl.DataFrame:
    """Refuse pages whose lists do not fit; leave out other lists that do not."""
    if table.height == 0:
        raise ClickLogError(f"{label} is empty: there are no pages in it.")
    arrays = [name for name, dtype in table.schema.items() if isinstance(dtype, pl.Array)]
    table = table.with_columns(pl.col(name).arr.to_list() for name in arrays)
    lengths = None
    for name in ("doc", "click", "rank", "mask"):
        if name not in table.columns:
            continue
        if not is_list(table.schema[name]):
            raise ClickLogError(f"{label}: the {name}s should be lists, one list a page.")
        if table[name].null_count():
            row = int(table[name].is_null().arg_true()[0])
            raise ClickLogError(f"{label}, row {row}: the list of {name}s is missing (null).")
        found = table[name].list.len()
        lengths = found if lengths is None else lengths
        if (found != lengths).any():
            row = int((found != lengths).arg_true()[0])
            raise ClickLogError(
                f"{label}, row {row}: lists of different lengths, {lengths[row]} docs and "
                f"{found[row]} {name}s."
            )
    others = [n for n, dtype in table.schema.items() if is_list(dtype) and n not in NAMES]
    unfit = [n for n in others if not (table[n].list.len() == lengths).fill_null(False).all()]
    notes.add(
        "columns that do not fit the pages",
        len(unfit),
        f"lists of other lengths; left out: {', '.join(map(repr, unfit))}",
    )
    return table.drop(unfit)


def _refuse_nulls(flat: pl.DataFrame, label: str, shown: pl.Series) -> None:
    for name in ("doc", "click", "rank", "mask"):
        if name in flat.columns:
            lost = flat[name].is_null() & (shown.fill_null(True) | (name == "mask"))
            if lost.any():
                row = flat[PAGE_NUMBER][int(lost.arg_true()[0])]
                raise ClickLogError(
                    f"{label}, row {row}: a value in the {name}s is missing (null)."
                )


def _clicks(flat: pl.DataFrame, label: str) -> pl.Series:
    """Read numbers of clicks, which some writers keep as floats."""
    numbers = flat["click"].cast(pl.Float64, strict=False).fill_null(0.0)
    odd = (numbers < 0) | (numbers != numbers.floor()) | ~numbers.is_finite()
    if odd.any():
        at = int(odd.arg_true()[0])
        raise ClickLogError(
            f"{label}, row {flat[PAGE_NUMBER][at]}: clicks are whole numbers from 0, "
            f"not {flat['click'][at]!r}."
        )
    return numbers.cast(pl.Int64)


def write(log: ClickLog, path: Path) -> None:
    """Write a log with pair ids numbered by first appearance, beside the documents themselves."""
    writing = LogWriter(log, path, BAIDU)
    writing.needs_unit_weights()
    of_pages = [] if log.page_columns is None else log.page_columns.columns
    taken = {name for names in NAMES.values() for name in names}
    if "query_doc_ids" not in of_pages:
        taken.remove("query_doc_ids")
    lost = [name for name in log.columns if name in taken and name not in ROLES]
    if lost:
        raise writing.refuse(f"a column called {lost[0]!r} beside its own", " Rename it.")
    extras = [name for name in log.columns if name not in (*ROLES, "query_doc_ids")]
    if path.suffix.lower() not in (".parquet", ".pq"):
        raise writing.refuse("text", " Write to a name that ends in .parquet.")
    frame = log.to_frame().with_columns(pl.Series(PAGE_NUMBER, log.page))[log.order]
    results = frame.select(
        PAGE_NUMBER, clicks=pl.col("click").cast(pl.Int8), positions=pl.col("rank")
    ).with_columns(*_pair_ids(frame), *(frame[n] for n in extras if n not in of_pages))
    pages = {"session_id": log.sessions}
    if log.has_query:
        pages["query_id"] = log.session_column("query")
    pages |= {name: log.session_column(name) for name in extras if name in of_pages}
    table = nested(pl.DataFrame(pages), results, PAGE_NUMBER)
    table = table.with_columns(n=pl.col("query_doc_ids").list.len().cast(pl.Int32))
    with whole_file(path, ClickLogError) as temporary:
        table.write_parquet(temporary)


def _pair_ids(frame: pl.DataFrame) -> list[pl.Series]:
    """Number the pairs of query and document; documents that are such numbers are kept."""
    doc = frame["doc"].alias("query_doc_ids")
    keys = [name for name in ("query", "doc") if name in frame.columns]
    pairs, firsts = number_by_first_appearance(frame.select(pl.struct(keys)).to_series())
    if "query_doc_ids" in frame.columns:
        return [frame["query_doc_ids"], frame["doc"].alias("doc_ids")]
    is_pair = "query" in keys and doc.dtype.is_integer() and bool((doc >= 0).all())
    if is_pair and doc.n_unique() == len(firsts):
        return [doc]
    return [
        pl.Series("query_doc_ids", pairs.astype(np.int64)),
        frame["doc"].alias("doc_ids"),
    ]


BAIDU = Format(
    "baidu",
    "CLAX and Baidu-ULTR Parquet",
    "Parquet with a row a page and lists: query_doc_ids, clicks, positions, mask",
    sniff,
    read,
    write,
)
