"""The text format of Yandex' relevance prediction challenge, which PyClick reads.

A line a query, with the results shown, and a line a click:

    session  time  Q  query  region  url  url  ...
    session  time  C  url
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.logs.formats.event_pages import CLICK_TIME
from gecasmo.logs.formats.format import (
    Format,
    Head,
    ReadOptions,
    first_on_page,
    nested,
    note_repeated_queries,
    note_shown_twice,
    page_ids,
    with_exact_ids,
)
from gecasmo.logs.formats.writer import LogWriter, write_lines
from gecasmo.logs.inputs import Lines, open_inputs, read_lines
from gecasmo.logs.notes import Notebook
from gecasmo.logs.pages import shown as shown_id

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

FIRST_RESULT = 5


def sniff(head: Head) -> bool:
    """Say whether the first line is a query or a click."""
    fields = head.line.split("\t")
    return len(fields) >= 4 and fields[2] in ("Q", "C") and fields[1].strip().isdecimal()


def read(source: Any, options: ReadOptions, notes: Notebook) -> pl.DataFrame:
    """Read queries and clicks; `docs/readers.md` says what becomes of odd ones."""
    lines = read_lines(open_inputs(source, folders=True), options.max_line)
    notes.place = lines.place
    actions = _actions(lines, notes)
    pages = actions.filter(kind="Q").with_row_index("page")
    results = _results(pages)
    note_shown_twice(
        results,
        pages["row"],
        notes,
        "they stay on both ranks; a click counts for the upper one",
    )
    clicked = _clicked(actions.filter(kind="C"), pages, results, notes)
    clicked = results.select("result").join(clicked, on="result", how="left", maintain_order="left")
    note_repeated_queries(pages, "visit", pages["row"], notes)

    results = with_exact_ids(results.select("page", "doc"), ["doc"])
    time = clicked[CLICK_TIME]
    results = results.with_columns(click=time.is_not_null())
    if time.count():
        results = results.with_columns(time)
    empty = pages.filter(pl.col("urls").list.len() == 0)
    notes.add_rows("pages without results", empty["row"], "they are kept")
    # Within a visit pages are numbered by time; `at` is the row again where nothing was disordered.
    pages = pages.sort("at").with_columns(session=page_ids(pages.sort("at")["visit"])).sort("page")
    pages = pages.select("session", "query", region="region", visit="visit", time_passed="time")
    pages = with_exact_ids(pages, ["query", "region", "visit"])
    return nested(pages, results)


def _actions(lines: Lines, notes: Notebook) -> pl.DataFrame:
    """Take the lines apart: row, at (its turn), visit, time, kind, query, region, urls."""
    fields = lines.text.str.strip_chars_end().str.split("\t")
    n_fields = fields.list.len()
    blank = lines.text.str.strip_chars() == ""
    notes.add_rows("blank lines", blank.arg_true(), "left out")
    lines.refuse(
        ~blank & (n_fields < 3), "a line needs a session, a time and Q or C, with tabs between"
    )
    kind = fields.list.get(2, null_on_oob=True)
    is_query, is_click = (kind == "Q").fill_null(False), (kind == "C").fill_null(False)
    lines.refuse(is_query & (n_fields < FIRST_RESULT), "a Q line needs a query and a region")
    lines.refuse(is_click & (n_fields != 4), "a C line has one result after the C")
    empty = (fields.list.get(0) == "") | (fields.list.get(3, null_on_oob=True) == "")
    empty |= fields.list.slice(FIRST_RESULT).list.contains("")
    lines.refuse((is_query | is_click) & empty.fill_null(False), "a field is empty")
    others = ~blank & ~is_query & ~is_click
    if others.any():
        names = ", ".join(repr(name) for name in kind.filter(others).unique().sort().head(5))
        done = f"left out; they are {names}"
        notes.add_rows("unknown action names", others.arg_true(), done)
    table = pl.DataFrame({"kind": kind, "fields": fields}).with_row_index("row")
    table = table.filter(is_query | is_click)
    get = pl.col("fields").list.get
    table = table.select(
        "row",
        "kind",
        visit=get(0),
        time=get(1).cast(pl.Int64, strict=False),
        query=get(3),
        region=get(4, null_on_oob=True),
        urls=pl.col("fields").list.slice(FIRST_RESULT),
    )
    untimed = table.filter(pl.col("time").is_null())
    if untimed.height:
        raise lines.error(untimed["row"][0], "the time is not a whole number")
    return _in_turn(table, notes)


def _in_turn(table: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    """Give each line its turn: the order of the file, or of time where the two disagree."""
    latest = pl.col("time").cum_max().over("visit")
    late = table.filter(pl.col("time") < latest)
    notes.add_rows("events out of order", late["row"], "the events of a session are taken by time")
    if late.height:
        return table.sort("time", "row").with_row_index("at").sort("row")
    return table.with_columns(at=pl.col("row"))


def _results(pages: pl.DataFrame) -> pl.DataFrame:
    """Lay out the results of the pages: result (its row), page, visit, at, doc."""
    results = pages.select("page", "visit", "at", doc="urls").filter(pl.col("doc").list.len() > 0)
    return results.explode("doc").with_row_index("result")


def _clicked(
    clicks: pl.DataFrame, pages: pl.DataFrame, results: pl.DataFrame, notes: Notebook
) -> pl.DataFrame:
    """Say which results were clicked, and when first: "result" and its `CLICK_TIME`.

    Each click is on the latest page that shows its result.
    """
    clicks = clicks.select("row", "at", "time", "visit", doc="query").sort("at")
    # Few results are ever clicked, and only those need be looked for.
    places = results.join(clicks, on=["visit", "doc"], how="semi", maintain_order="left")
    places = places.filter(first_on_page(places)).sort("at")
    clicks = clicks.join_asof(
        places, on="at", by=["visit", "doc"], strategy="backward", check_sortedness=False
    )
    latest = pages.select("at", "visit", latest="page").sort("at")
    clicks = clicks.join_asof(
        latest, on="at", by="visit", strategy="backward", check_sortedness=False
    ).sort("row")
    is_asked = pl.col("visit").is_in(pages["visit"].implode())
    placed = clicks.filter(pl.col("page").is_not_null())
    for kind, found, done in (
        (
            "events without a query",
            clicks.filter(~is_asked),
            "clicks of sessions that have no Q line; left out",
        ),
        (
            "clicks on results never shown",
            clicks.filter(is_asked & pl.col("page").is_null()),
            "no page of the session before the click has the result; left out",
        ),
        (
            "clicks on an earlier page",
            placed.filter(pl.col("page") != pl.col("latest")),
            "they count for the latest page of the session that shows the result",
        ),
        (
            "duplicate clicks",
            placed.filter(~pl.col("result").is_first_distinct()),
            "a result is clicked once",
        ),
    ):
        notes.add_rows(kind, found["row"], done)
    return placed.group_by("result").agg(pl.col("time").min().alias(CLICK_TIME))


def write(log: ClickLog, path: Path) -> None:
    """Write a log; the visit, time and region are those of the columns of that name, else made."""
    writing = LogWriter(log, path, YANDEX)
    writing.keeps("visit", "time_passed", "region", CLICK_TIME)
    writing.needs_queries()
    writing.needs_plain_ranks()
    writing.needs_unit_weights()
    writing.needs_clicks_on_first_places()
    writing.needs_numbers("time_passed", whole=True)
    writing.needs_numbers(CLICK_TIME, whole=True)
    if CLICK_TIME in log.columns:
        _refuse_misplaced(log, writing)
    visits = writing.texts("visit" if "visit" in log.columns else "session")
    times = writing.texts("time_passed", "0")
    queries, regions = writing.texts("query"), writing.texts("region", "0")
    pages = zip(visits, times, queries, regions, writing.results("doc", text=True), strict=True)
    clicks = writing.results("click")
    moments: Iterable[Iterable[int | None]] = ([None] * int(n) for n in log.lengths)
    if CLICK_TIME in log.columns:
        moments = writing.results(CLICK_TIME)

    with write_lines(path) as tell:
        for (visit, time, query, region, docs), *done in zip(pages, clicks, moments, strict=True):
            tell("\t".join([visit, time, "Q", query, region, *docs]))
            results = zip(docs, *done, strict=True)
            clicked = [(time if at is None else str(at), doc) for doc, yes, at in results if yes]
            for moment, doc in sorted(clicked, key=lambda click: int(click[0])):
                tell(f"{visit}\t{moment}\tC\t{doc}")


def _refuse_misplaced(log: ClickLog, writing: LogWriter) -> None:
    """Refuse clicks whose time would put them on another page, or on none, when they are read."""
    frame = log.to_frame().with_columns(page=pl.Series(log.page))
    visit = pl.col("visit" if "visit" in log.columns else "session")
    time = pl.col("time_passed") if "time_passed" in log.columns else pl.lit(0, pl.Int64)
    shown = frame.select("page", "doc", "click", CLICK_TIME, visit=visit, time=time)
    clicks = shown.filter("click", pl.col(CLICK_TIME).is_not_null())
    early = clicks.filter(pl.col(CLICK_TIME) < pl.col("time"))
    others = clicks.join(shown, on=["visit", "doc"], suffix="_other")
    is_later = (pl.col("time_other") > pl.col("time")) | (
        (pl.col("time_other") == pl.col("time")) & (pl.col("page_other") > pl.col("page"))
    )
    taken = others.filter(is_later, pl.col("time_other") <= pl.col(CLICK_TIME))
    for found, what in ((early, "before its page"), (taken, "after a later page with its result")):
        if found.height:
            raise writing.refuse(
                f"a click {what}",
                f" Session {shown_id(log.sessions, found['page'][0])} has one.",
            )


YANDEX = Format(
    "yandex",
    "Yandex relevance prediction (PyClick)",
    "tab-separated text: session, time, Q, query, region, results; and session, time, C, result",
    sniff,
    read,
    write,
)
