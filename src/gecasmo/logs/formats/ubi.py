"""OpenSearch User Behavior Insights: queries and events, as JSON lines or Parquet.

{"query_id": "q1", "user_query": "shoes", "query_response_hit_ids": ["d1", "d2"], ...}
{"action_name": "impression", "query_id": "q1", "event_attributes":
    {"object": {"object_id": "d1"}, "position": {"ordinal": 1}}, ...}

What was shown for each query, and what was clicked, put in the cart and bought, makes its page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.errors import ClickLogError, either, option
from gecasmo.logs.formats.event_pages import (
    CLICK_TIME,
    SHOWN,
    SIGNALS,
    from_one,
    kind_of_event,
    kinds_of,
    note_others,
    put_together,
    without,
)
from gecasmo.logs.formats.format import (
    Format,
    Head,
    ReadOptions,
    nested,
    note_repeated_queries,
    with_exact_ids,
)
from gecasmo.logs.formats.json_lists import first_of
from gecasmo.logs.formats.ubi_records import Records, is_bulk_line, source_of
from gecasmo.logs.formats.writer import LogWriter, write_lines
from gecasmo.logs.inputs import open_inputs
from gecasmo.logs.notes import Notebook

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

PARTS = ("queries", "events")
# What is kept of a page, beside its query: as records of queries say it, else as events do.
OF_EVENTS = ("query", "client_id", "session_id", "user_id", "application")
TEXTS = ("client_id", "session_id", "user_id", "application", "query_attributes")
DETAILS = (*TEXTS, "timestamp")
WRITTEN_AS = {"click": "click", "cart": "add_to_cart", "purchase": "purchase"}


def is_pair(source: object) -> bool:
    """Whether a source is a dict of the files of queries and events."""
    return (
        isinstance(source, Mapping)
        and bool(source)
        and set(source) <= set(PARTS)
        and all(isinstance(value, str | Path) for value in source.values())
    )


def sniff(head: Head) -> bool:
    """Say whether the first record is a query or an event."""
    if head.has_fields("doc", "click"):
        return False  # a table that also has a query_id
    first = source_of(first_of(head.start.decode(errors="replace")) or head.first_record)
    if is_bulk_line(first):
        index = next(iter(first.values()))
        return isinstance(index, dict) and "ubi" in str(index.get("_index", ""))
    names = set(head.schema or first)
    if "action_name" in names:
        return "query_id" in names or "event_attributes" in names
    return "query_id" in names and bool(names & {"user_query", "query_response_hit_ids"})


def read(source: Any, options: ReadOptions, notes: Notebook) -> pl.DataFrame:
    """Read queries and events; `docs/readers.md` says what becomes of odd ones."""
    records = Records()
    notes.place = records.place
    if isinstance(source, Mapping):
        if not is_pair(source):
            raise ClickLogError(
                "UBI is read from a path, or from a dict with the paths of 'queries' and 'events'."
            )
        parts = [open_inputs(source[part], folders=True) for part in PARTS if part in source]
    else:
        parts = [open_inputs(source, folders=True)]
    for part in parts:
        records.read(part, options.max_line)
    records.take_notes(notes)
    pages = build_pages(records, notes)
    if pages.height == 0:
        raise _no_pages(" and ".join(part.label for part in parts), records, notes)
    return pages


def _no_pages(label: str, records: Records, notes: Notebook) -> ClickLogError:
    """Make the error for events that nothing was shown for: mostly, the queries are elsewhere."""
    count = records.events.height
    if not count:
        return ClickLogError(f"{label} is empty: there are neither queries nor events in it.")
    said = "".join(f"\n  - {note.what}" for note in notes.notes)
    such = option("format", shown='"ubi"')
    return ClickLogError(
        f"{label}: no event belongs to a known query, so there are no pages. There "
        f"{'is 1 event' if count == 1 else f'are {count:,} events'}, and no query record:{said}\n"
        "  So nothing says what was shown, and a click model learns from what people passed over. "
        "Give the queries, too, whose query_response_hit_ids say it: "
        + either('read_log({"queries": ..., "events": ...}), or ', "")
        + f"a folder that has both files, with {such}. Or record impressions as events. Clicks "
        "alone can only be counted."
    )


def build_pages(records: Records, notes: Notebook) -> pl.DataFrame:
    """Make the pages: what was shown for each query, and what was clicked, put in the cart, bought.

    The table has one row a page, with lists of results.
    """
    queries = _queries(records, notes)
    events = _events(records, queries, notes)
    events = from_one(events, pl.col("kind").is_in(["impression", "view"]), notes)
    shown = _shown(events, queries, notes)
    pages = _with_query(_pages(queries, shown, events, notes), notes)
    found = put_together(pages, shown, events.filter(pl.col("kind").is_in(SIGNALS)), SIGNALS, notes)
    if "query" in pages.columns:
        visits = pages.with_columns(visit=pl.coalesce("session_id", "client_id"))
        note_repeated_queries(visits, "visit", pages["row"], notes)
    results = with_exact_ids(found.results, ["doc"])
    times = [CLICK_TIME] if CLICK_TIME in results.columns else []
    results = results.select("doc", "rank", *SIGNALS, *times, page="number")
    texts = [name for name in ("page", "query") if name in pages.columns]
    pages = with_exact_ids(pages, texts).drop("row").rename({"page": "session"})
    unsaid = [name for name in DETAILS if pages[name].is_null().all()]
    return nested(pages.drop(unsaid), results)


def _queries(records: Records, notes: Notebook) -> pl.DataFrame:
    queries = records.queries
    again = queries.filter(~pl.col("page").is_first_distinct())
    notes.add_rows("repeated query records", again["row"], "the first record of a query_id counts")
    return queries.unique("page", keep="first", maintain_order=True)


def _events(records: Records, queries: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    """Return the events that can be placed, with their kind; note the others."""
    events = records.events
    kinds = {name: kind_of_event(name) for name in events["action"].unique()}
    events = events.with_columns(kind=kinds_of(events["action"], kinds))
    others = events.filter(kind="other")
    note_others(others["action"], others["row"], "unknown action names", notes)
    events = without(
        events.filter(pl.col("kind") != "other"),
        [
            ("events without a query", "no query_id; left out", pl.col("page").is_null()),
            ("events without an object", "no object_id; left out", pl.col("doc").is_null()),
        ],
        notes,
    )
    seen = ["impression"] if (events["kind"] == "impression").any() else ["impression", "view"]
    known = pl.concat([queries["page"], events.filter(pl.col("kind").is_in(seen))["page"]])
    is_known = pl.col("page").is_in(known.unique().implode())
    done = "neither a query record nor an impression has their query_id; left out"
    stray = ~is_known & pl.col("kind").is_in(SIGNALS)
    return without(events, [("events of unknown queries", done, stray)], notes)


def _shown(events: pl.DataFrame, queries: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    """List what was shown, by impressions, else by hits, else by views."""
    impressions = events.filter(kind="impression")
    views = events.filter(kind="view")
    hits = queries.select("page", "time", "row", doc="hits").filter(pl.col("doc").list.len() > 0)
    hits = hits.explode("doc").filter(pl.col("doc").is_not_null())
    hits = hits.with_columns(position=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("page"))
    if impressions.height:
        rest = hits.join(impressions, on="page", how="anti", maintain_order="left")
        notes.add(
            "pages without impressions",
            rest["page"].n_unique(),
            "they show what query_response_hit_ids says",
        )
        notes.add("views", views.height, "left out; impressions say what was shown")
        return pl.concat([impressions.select(SHOWN), rest.select(SHOWN)])
    if hits.height:
        notes.add(
            "pages without impressions",
            hits["page"].n_unique(),
            "no event is an impression; query_response_hit_ids says what was shown",
        )
        notes.add("views", views.height, "left out; query_response_hit_ids says what was shown")
        return hits.select(SHOWN)
    notes.add("views", views.height, "no event is an impression; views say what was shown")
    return views.select(SHOWN)


def _pages(
    queries: pl.DataFrame, shown: pl.DataFrame, events: pl.DataFrame, notes: Notebook
) -> pl.DataFrame:
    """One row a page, in order of first appearance: those of the queries and those only shown."""
    said = [name for name in OF_EVENTS if events[name].count()]
    by_page = events.sort("row").group_by("page", maintain_order=True)
    of_events = by_page.agg(pl.col(said).drop_nulls().first(), pl.col("time").min())
    first = pl.concat([queries.select("page", "row"), shown.select("page", "row")])
    first = first.group_by("page").agg(pl.col("row").min()).sort("row", "page")
    of_queries = queries.select("page", "query", "time", *TEXTS)
    pages = first.join(of_queries, on="page", how="left", maintain_order="left")
    pages = pages.join(of_events, on="page", how="left", suffix="_e", maintain_order="left")
    filled = [pl.coalesce(name, f"{name}_e").alias(name) for name in (*said, "time")]
    _note_other_queries(events, pages.with_columns(filled), notes)
    pages = pages.with_columns(filled).drop(f"{name}_e" for name in (*said, "time"))
    return pages.rename({"time": "timestamp"})


def _note_other_queries(events: pl.DataFrame, pages: pl.DataFrame, notes: Notebook) -> None:
    """Note events whose user_query is not that of their page."""
    said = events.filter(pl.col("query").is_not_null())
    if said.height:
        told = pages.select("page", of_page="query")
        other = said.join(told, on="page").filter(pl.col("query") != pl.col("of_page"))
        done = "the user_query of the query record counts, else that of the first event"
        notes.add_rows("events with another query", other["row"].sort(), done)


def _with_query(pages: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    """Leave out the pages whose query is not known; without any query, the log has none."""
    unknown = pages.filter(pl.col("query").is_null())
    if unknown.height == pages.height:
        notes.add("pages without a query text", pages.height, "the log has no queries")
        return pages.drop("query")
    notes.add_rows(
        "pages without a query text", unknown["row"], "no user_query; the pages are left out"
    )
    return pages.filter(pl.col("query").is_not_null())


def write(log: ClickLog, path: Path) -> None:
    """Write queries and events into one file of JSON lines; a session is a query_id."""
    writing = LogWriter(log, path, UBI)
    writing.keeps(*SIGNALS, *DETAILS, CLICK_TIME)
    writing.needs_unit_weights()
    writing.needs_moments("timestamp")
    writing.needs_moments(CLICK_TIME)
    signals = [name for name in SIGNALS if name in log.columns]
    for name in signals:
        writing.needs_booleans(name)
    sessions = writing.plain_texts("session")
    queries = writing.plain_texts("query") if log.has_query else [None] * len(sessions)
    details = [name for name in DETAILS if name in log.columns]
    columns = [writing.plain_texts(name) for name in details]
    shared = zip(*columns, strict=True) if columns else [()] * len(sessions)
    times: Iterable[Iterable[str | None]] = ([None] * int(n) for n in log.lengths)
    if CLICK_TIME in log.columns:
        times = writing.results(CLICK_TIME, text=True, plain=True)
    results = zip(
        writing.results("doc", text=True, plain=True),
        writing.results("rank"),
        times,
        *(writing.results(name) for name in signals),
        strict=True,
    )
    with write_lines(path) as tell:
        for session, query, values, (docs, ranks, moments, *flags) in zip(
            sessions, queries, shared, results, strict=True
        ):
            said = {n: v for n, v in zip(details, values, strict=True) if v is not None}
            head: dict[str, Any] = {"query_id": session}
            head |= ({} if query is None else {"user_query": query}) | said
            if (attributes := said.pop("query_attributes", None)) is not None:
                head["query_attributes"] = _object_of(attributes)
            tell(_json(head | {"query_response_hit_ids": docs}))
            for doc, rank, moment, *flagged in zip(docs, ranks, moments, *flags, strict=True):
                clicked = [WRITTEN_AS[n] for n, v in zip(signals, flagged, strict=True) if v]
                for action in ("impression", *clicked):
                    place = {"object": {"object_id": doc}, "position": {"ordinal": rank}}
                    event = {"action_name": action, "query_id": session} | said
                    if action == "click":  # whose time is its own, or not known
                        event.pop("timestamp", None)
                        event |= {} if moment is None else {"timestamp": moment}
                    tell(_json(event | {"event_attributes": place}))


def _object_of(text: str) -> Any:
    """Make an object of its text again, if that is how it would be written."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, dict | list) and _json(found) == text else text


def _json(record: Any) -> str:
    return json.dumps(record, ensure_ascii=False)


UBI = Format(
    "ubi",
    "OpenSearch User Behavior Insights",
    "JSON lines or Parquet of ubi_queries and ubi_events, in one file, two, or a folder",
    sniff,
    read,
    write,
)
