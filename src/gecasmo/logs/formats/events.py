"""Streams of events: a row an impression, a click, a cart, in any order; `read_events` explains.

page,event,doc,position,query,time
s1,impression,a,1,cats,2026-03-01T10:00:00Z
s1,click,a,1,,2026-03-01T10:00:07Z
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.errors import ClickLogError, option
from gecasmo.logs.formats.event_columns import (
    EventColumns,
    EventRoles,
    kinds_by_name,
    read_positions,
    read_times,
    role_option,
    whole_ids,
)
from gecasmo.logs.formats.event_pages import (
    CLICK_TIME,
    SHOWN,
    from_one,
    kinds_of,
    note_others,
    put_together,
    without,
)
from gecasmo.logs.formats.format import Format, Head, ReadOptions
from gecasmo.logs.formats.moments import MOMENT
from gecasmo.logs.formats.table import TABLE, columns_of, source_label, write_frame
from gecasmo.logs.formats.writer import LogWriter
from gecasmo.logs.notes import Faults, Notebook
from gecasmo.logs.pages import first_rows, number_by_first_appearance, rows_that_differ, shown
from gecasmo.logs.roles import CANONICAL, is_list, quoted
from gecasmo.report import counted

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

PAGE = "page_{}"  # parts of the id of a page, on the way
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_IS_SHOWN = pl.col("kind") == "impression"
WRITTEN_AS = {"click": "click", "cart": "add_to_cart", "purchase": "purchase"}


def sniff(head: Head) -> bool:
    """Say whether it is as `write` writes it; of other tables their owner has to say so."""
    names = set(head.schema or head.first_record or re.split("[,\t;|]", head.line))
    return {"page", "event", "doc"} <= names and "click" not in names


def read(source: Any, options: ReadOptions, notes: Notebook) -> pl.DataFrame:
    """Read events, and put pages together; `docs/events.md` says what becomes of odd ones."""
    roles = (options.events or EventRoles()).guess(columns_of(source)[0])
    table = TABLE.read(source, ReadOptions(options.max_line, roles.id_columns), notes)
    return pages_of_table(table, roles, Faults(source_label(source)), notes)


def pages_of_table(
    table: pl.DataFrame, roles: EventRoles, faults: Faults, notes: Notebook
) -> pl.DataFrame:
    """Make a log of a table of events: one row a result, by page and rank."""
    columns = EventColumns(table, roles, faults, notes)
    events, signals = _events(columns, notes)
    events = _numbered(events, columns, notes)
    shown, done = events.filter(_IS_SHOWN), events.filter(~_IS_SHOWN)
    if roles.gap is not None:
        shown, done = _in_lists(shown, done, roles.gap, notes)
    else:
        _refuse_two_queries(events, columns)
    done = _of_known_pages(done, shown, notes)
    pages = _pages(shown, done, notes)
    found = put_together(pages, shown.select(SHOWN), done.select(*SHOWN, "kind"), signals, notes)
    return _log(found.results, pages, signals, columns, notes)


def _events(columns: EventColumns, notes: Notebook) -> tuple[pl.DataFrame, list[str]]:
    """Take what plays a part from the columns: one row an event and document; also its signals."""
    roles, faults = columns.roles, columns.faults
    names = columns.role("event")
    assert names is not None
    names = names.cast(pl.String).alias("event")
    kinds = kinds_by_name(names, roles, notes)
    kind = kinds_of(names, kinds)
    rows = pl.int_range(len(kind), dtype=pl.Int64, eager=True)
    is_other = kind == "other"
    note_others(names.filter(is_other), rows.filter(is_other), "events of other kinds", notes)
    parts: dict[str, pl.Series | None]
    parts = {PAGE.format(n): columns.column(name) for n, name in enumerate(roles.names("page"))}
    parts = {
        name: None if part is None else whole_ids(part, roles.title("page"), faults)
        for name, part in parts.items()
    }
    parts |= {role: columns.role(role) for role in ("doc", "position", "query", "time")}
    if parts["doc"] is not None:
        parts["doc"] = whole_ids(parts["doc"], roles.title("doc"), faults)
    there = [part.alias(name) for name, part in parts.items() if part is not None]
    events = pl.DataFrame([rows.alias("row"), kind.alias("kind"), *there]).filter(~is_other)
    if "time" in events.columns:
        time = read_times(events["time"], events["row"], roles.title("time"), notes)
        events = events.with_columns(time.alias("time"))
    events = _laid_out(events, faults)
    events = without(
        events,
        [
            ("events without a page", f"{_null(roles, 'page')}; left out", _no_page(events)),
            ("events without a document", f"{_null(roles, 'doc')}; left out", _missing("doc")),
        ],
        notes,
    )
    if "position" in events.columns:
        place = read_positions(events["position"], events["row"], roles.title("position"), faults)
        events = events.with_columns(position=place)
    else:
        events = events.with_columns(position=pl.lit(None, pl.Int64))
    events = _ordered_by_lists(from_one(events, _IS_SHOWN, notes), notes)
    missing = {"query": pl.String, "time": pl.Int64}
    absent = [pl.lit(None, t).alias(n) for n, t in missing.items() if n not in events.columns]
    signals = dict.fromkeys(["click", *(k for k in kinds.values() if k != "impression")])
    if "click" not in kinds.values():
        notes.tell("no clicks", 1, "no event is a click; nothing was clicked on any page.")
    return events.with_columns(absent), list(signals)


def _null(roles: EventRoles, role: str) -> str:
    return f"{roles.title(role)} is missing"


def _missing(name: str) -> pl.Expr:
    return pl.col(name).is_null()


def _no_page(events: pl.DataFrame) -> pl.Expr:
    return pl.any_horizontal(_missing(n) for n in events.columns if n.startswith(PAGE.format("")))


def _laid_out(events: pl.DataFrame, faults: Faults) -> pl.DataFrame:
    """Lay out events that have a list of documents; "place" is the order in it, else null."""
    lists = [name for name, dtype in events.schema.items() if is_list(dtype)]
    events = events.with_columns(
        pl.col(name).arr.to_list() for name in lists if isinstance(events.schema[name], pl.Array)
    )
    # What is said of the event, in a list of one, is said of all documents in it.
    alone = [name for name in lists if name != "doc" and (events[name].list.len() <= 1).all()]
    alone = [name for name in alone if name != "position" or "doc" not in lists]
    events = events.with_columns(pl.col(name).list.first() for name in alone)
    lists = [name for name in lists if name not in alone]
    if not lists:
        return events.with_columns(place=pl.lit(None, pl.Int64))
    if "doc" not in lists:
        events = events.with_columns(pl.concat_list("doc"))
    size = pl.col("doc").list.len()
    others = [name for name in lists if name != "doc"]
    for name in others:
        differs = events.filter(pl.col(name).list.len() != size)
        if differs.height:
            row = differs.row(0, named=True)
            raise ClickLogError(
                f"{faults.label}: {counted(differs.height, 'event')} with lists of different "
                f"lengths, first: row {row['row']} has {len(row['doc'])} documents and "
                f"{len(row[name])} values of {name}."
            )
        dtype = events.schema[name].inner  # type: ignore[attr-defined]
        nothing = pl.lit(None, dtype).repeat_by(size)
        events = events.with_columns(
            pl.when(_missing(name)).then(nothing).otherwise(name).alias(name)
        )
    events = events.explode("doc", *others)
    return events.with_columns(place=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("row"))


def _ordered_by_lists(events: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    """Take the order of a list of impressions that has no positions for these."""
    if not events["place"].count():
        return events.drop("place")
    unplaced = pl.col("position").is_null().all().over("row") & _IS_SHOWN
    found = events.filter(unplaced & (pl.col("place") == 1))
    notes.add_rows(
        "lists without positions", found["row"], "documents are ranked in the order of the list"
    )
    place = pl.when(unplaced).then("place").otherwise("position")
    return events.with_columns(position=place).drop("place")


def _numbered(events: pl.DataFrame, columns: EventColumns, notes: Notebook) -> pl.DataFrame:
    """Give pages numbers for their ids, which stay beside them as "id"."""
    parts = [name for name in events.columns if name.startswith(PAGE.format(""))]
    names = columns.roles.names("page")
    if len(parts) == 1:
        ids = events[parts[0]]
    else:
        named = (pl.col(part).alias(name) for part, name in zip(parts, names, strict=True))
        ids = events.select(pl.struct(named)).to_series()
    numbers, _ = number_by_first_appearance(ids)
    return events.drop(parts).with_columns(pl.Series("page", numbers), ids.alias("id"))


def _refuse_two_queries(events: pl.DataFrame, columns: EventColumns) -> None:
    """Raise the error for pages that answer several queries, which are then several pages."""
    said = events.filter(pl.col("query").is_not_null())
    page, firsts_of = number_by_first_appearance(said["page"])
    differing = rows_that_differ(said["query"], page, first_rows(page, len(firsts_of)))
    if not len(differing):
        return
    row = int(differing[0])
    names = [*columns.roles.names("page"), *columns.roles.names("query")]
    such, gap = option("page", names, shown=quoted(names)), option("gap", shown='"30m"')
    starts = "starts another page whenever the query changes or so much time passes"
    unsaid = events.filter(~_IS_SHOWN & pl.col("query").is_null()).height
    if unsaid:
        advice = f"{gap}, which {starts}; {such} needs the query on every event; {unsaid:,} lack it"
    else:
        advice = f"{such}, or {gap}, which {starts}"
    columns.faults.add(
        f"{columns.roles.title('query')}: {counted(len(set(page[differing])), 'page')} with more "
        f"than one query, first: page {shown(said['id'], row)} has "
        f"{shown(said['query'], firsts_of[page[row]])} and {shown(said['query'], row)}; if a visit "
        f"has several searches, try {advice}"
    )
    columns.faults.raise_if_any()


def _in_lists(
    shown: pl.DataFrame, done: pl.DataFrame, gap: str | float, notes: Notebook
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tell lists of results of one page apart: another query, or a gap in time, begins one.

    What was done belongs to the latest list before it that has its document.
    """
    if not shown["time"].count():
        raise ClickLogError(
            f"{option('gap', gap, of='read_events')}: gaps need times, and there are none; name "
            f"their column: {role_option('time', shown='...')}."
        )
    fault = ("events without a time", "without a time there is no gap; left out", _missing("time"))
    shown, done = without(shown, [fault], notes), without(done, [fault], notes)
    shown = shown.sort("page", "time", maintain_order=True)
    longest = _longest(gap, shown["time"].dtype)
    paused = pl.col("time").diff().over("page") > longest
    asked = pl.col("query").ne_missing(pl.col("query").shift().over("page"))
    begins = (paused | asked).fill_null(True).cast(pl.UInt32)
    # In two steps: older versions of Polars take no window inside another.
    shown = shown.with_columns(begins.alias("list"))
    shown = shown.with_columns(pl.col("list").cum_sum().over("page"))
    shown = shown.with_columns(pl.col("list") - pl.col("list").min().over("page") + 1)
    places = shown.select("page", "doc", "time", "list").sort("time")
    done = done.sort("time")
    both_keys = ["page", "doc"]
    for strategy, by in (("backward", both_keys), ("forward", both_keys), ("backward", ["page"])):
        near = done.join_asof(
            places.select(*by, "time", "list"),
            on="time",
            by=by,
            strategy=strategy,  # type: ignore[arg-type]
            check_sortedness=False,
        )
        known = [pl.col("list")] if "list" in done.columns else []
        found = near["list_right"] if known else near["list"]
        done = done.with_columns(pl.coalesce(*known, pl.lit(found)).alias("list"))
    both = pl.concat([shown, done.select(shown.columns)])
    numbers, _ = number_by_first_appearance(both.select(pl.struct("page", "list")).to_series())
    several = both.filter(pl.col("list") > 1)["page"].unique()
    if len(several):
        lists = shown.filter(pl.col("page").is_in(several.implode()))
        ids = _ids_of_lists(both["id"], both["list"])
        both = both.with_columns(ids.alias("id"))
        n_lists = lists.select(pl.struct("page", "list").n_unique()).item()
        notes.add("pages with several lists", len(several), f"they are {n_lists:,} pages")
    both = both.with_columns(pl.Series("page", numbers)).drop("list")
    return both.head(shown.height).sort("row"), both.slice(shown.height).sort("row")


def _longest(gap: str | float, dtype: pl.DataType) -> Any:
    """Read a gap: a number of the unit of the times, or a text such as "30m"."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|)\s*", str(gap))
    is_moment = isinstance(dtype, pl.Datetime)
    if match is None or (match[2] and not is_moment):
        kind = 'a text such as "30m"' if is_moment else "a number, in the unit of the times,"
        raise ClickLogError(f"{option('gap', gap, of='read_events')}: {kind} is wanted.")
    if not is_moment:
        return float(match[1])
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    return pl.duration(microseconds=round(seconds * 1e6))


def _ids_of_lists(ids: pl.Series, lists: pl.Series) -> pl.Series:
    """Name lists after the page that they are of, throughout: a text, or a part more."""
    frame = pl.DataFrame({"id": ids, "list": lists})
    named = pl.concat_str(pl.col("id").cast(pl.String), "list", separator="-")
    if isinstance(ids.dtype, pl.Struct):
        named = pl.col("id").struct.with_fields(pl.col("list").alias("list"))
    return frame.select(named).to_series()


def _of_known_pages(done: pl.DataFrame, shown: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    stray = ~pl.col("page").is_in(shown["page"].unique().implode())
    what = "no impression has their page; left out"
    return without(done, [("events of pages never shown", what, stray)], notes)


def _pages(shown: pl.DataFrame, done: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    """One row a page, in order of first appearance, with its id, query and time."""
    by_page = shown.group_by("page", maintain_order=True)
    first = pl.col("query").drop_nulls().first()
    pages = by_page.agg(pl.col("row").min(), pl.col("id").first(), first, pl.col("time").min())
    if done["query"].count() and pages["query"].null_count():
        others = done.group_by("page").agg(first.alias("other"))
        pages = pages.join(others, on="page", how="left", maintain_order="left")
        pages = pages.with_columns(query=pl.coalesce("query", "other")).drop("other")
    pages = pages.sort("row", maintain_order=True)
    unknown = pages.filter(_missing("query"))
    if unknown.height == pages.height:
        return pages.drop("query")
    notes.add_rows("pages without a query", unknown["row"], "the pages are left out")
    return pages.filter(~_missing("query")) if unknown.height else pages


def _log(
    results: pl.DataFrame,
    pages: pl.DataFrame,
    signals: Sequence[str],
    columns: EventColumns,
    notes: Notebook,
) -> pl.DataFrame:
    """Lay the log out with one row a result, and with what impressions say beside the roles."""
    number = results["number"]
    made = [pages["id"].gather(number).alias("session")]
    if "query" in pages.columns:
        made.append(pages["query"].gather(number))
    made += [results[name] for name in ("doc", "rank", *signals)]
    if pages["time"].count():
        made.append(pages["time"].gather(number))
    if CLICK_TIME in results.columns:
        made.append(results[CLICK_TIME])
    taken = {*CANONICAL, *(column.name for column in made)}
    names = columns.roles.names("page")
    parts = names if len(names) > 1 else []
    for name in columns.table.columns:
        dtype = columns.table.schema[name]
        if name in columns.used and name not in parts:
            continue
        if name in taken or dtype.is_nested():
            why = (
                "has lists or objects" if dtype.is_nested() else "has the name of a column of logs"
            )
            notes.tell("columns left out", 1, f"the column {name!r} was left out: it {why}.")
            continue
        made.append(columns.table[name].gather(results["row"]))
    return pl.DataFrame(made)


def write(log: ClickLog, path: Path) -> None:
    """Write a log as events: an impression a result, and what was done to it."""
    writing = LogWriter(log, path, EVENTS)
    writing.needs_unit_weights()
    if (log.lengths == 0).any():
        raise writing.refuse("pages without results")
    frame = log.to_frame()[log.order]
    for name in ("page", "event", "position"):
        if name in frame.columns:
            raise writing.refuse(f"the column {name!r}, which is one of its own")
    signals = [name for name in WRITTEN_AS if name in frame.columns and _is_signal(frame[name])]
    _refuse_odd_times(log, writing)
    frame = frame.rename({"session": "page", "rank": "position"})
    # Columns of roles are always there, so that none is guessed when they are read.
    absent = [n for n in ("query", "time", CLICK_TIME) if n not in frame.columns]
    frame = frame.with_columns(pl.lit(None).alias(name) for name in absent)
    roles = ["page", "doc", "position", "query"]
    kept = [n for n in frame.columns if n not in (*roles, *signals, "click", "time", CLICK_TIME)]
    parts = [frame.select(pl.lit("impression").alias("event"), *roles, "time", *kept)]
    for name in signals:
        time = CLICK_TIME if name == "click" else pl.lit(None)  # when it was done, nobody knows
        done = frame.filter(name)
        parts.append(done.select(pl.lit(WRITTEN_AS[name]).alias("event"), *roles, time=time))
    write_frame(pl.concat(parts, how="diagonal_relaxed"), path)


def _is_signal(values: pl.Series) -> bool:
    """Whether a column says what was done; one that is never true can only be kept as it is."""
    return values.dtype == pl.Boolean and not values.null_count() and bool(values.any())


def _refuse_odd_times(log: ClickLog, writing: LogWriter) -> None:
    """Refuse columns that are called like times, and are not those of pages and of clicks."""
    there = [name for name in ("time", CLICK_TIME) if name in log.columns]
    types = {log.column(name).dtype for name in there}
    for name in there:
        values = log.column(name)
        if len(types) > 1 or values.dtype not in (pl.Int64, pl.Float64, MOMENT):
            raise writing.refuse(
                f"the column {name!r} of {values.dtype}, where it has whole numbers or moments "
                "(UTC, microseconds)"
            )
        if values.dtype == pl.Float64 and not values.drop_nulls().is_finite().all():
            raise writing.refuse(f"the column {name!r}, which is not finite")
        of_others = values.filter(~pl.Series(log.click)) if name == CLICK_TIME else values.head(0)
        if of_others.count() or (name == "time" and not log.is_page_constant(name)):
            raise writing.refuse(f"the column {name!r}, which is not the time of a page or a click")


EVENTS = Format(
    "events",
    "a stream of events",
    "a table with one row an impression, a click, a cart, in any order",
    sniff,
    read,
    write,
)
