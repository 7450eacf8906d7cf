"""OpenSearch User Behavior Insights: queries and events, as JSON lines or Parquet.

{"query_id": "q1", "user_query": "shoes", "query_response_hit_ids": ["d1", "d2"], ...}
{"action_name": "impression", "query_id": "q1", "event_attributes":
    {"object": {"object_id": "d1"}, "position": {"ordinal": 1}}, ...}

What was shown for each query, and what was clicked, put in the cart and bought, makes its page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.errors import ClickLogError, either, option
from gecasmo.logs.formats.format import (
    Format,
    Head,
    ReadOptions,
    code_of,
    nested,
    note_repeated_queries,
    note_shown_twice,
    with_exact_ids,
)
from gecasmo.logs.formats.ubi_records import Records, is_bulk_line, source_of
from gecasmo.logs.formats.writer import LogWriter, write_lines
from gecasmo.logs.inputs import open_inputs
from gecasmo.logs.notes import Notebook

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

PARTS = ("queries", "events")
ACTIONS = {
    "impression": "impression impressions item_impression product_impression",
    "view": "view views item_view product_view",
    "click": "click clicks click_through clickthrough item_click product_click result_click",
    "cart": "add_to_cart cart cart_add item_add_to_cart",
    "purchase": "purchase purchased buy order item_purchase",
}
SIGNALS = ("click", "cart", "purchase")
DETAILS = ("client_id", "session_id", "timestamp")
_KIND = {name.replace("_", ""): kind for kind, names in ACTIONS.items() for name in names.split()}
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
    first = source_of(head.first_record)
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
        "  Give the queries, too: "
        + either('read_log({"queries": ..., "events": ...}), or ', "")
        + f"a folder that has both files, with {such}."
    )


def kind_of_action(name: str) -> str:
    """Say what an action is to a click log: "impression", "view", a signal, or "other"."""
    return _KIND.get(re.sub(r"[^a-z]", "", name.lower()), "other")


def build_pages(records: Records, notes: Notebook) -> pl.DataFrame:
    """Make the pages: what was shown for each query, and what was clicked, put in the cart, bought.

    The table has one row a page, with lists of results.
    """
    queries = _queries(records, notes)
    events = _events(records, queries, notes)
    events = _from_one(events, notes)
    shown = _ranked(_shown(events, queries, notes), notes)
    pages = _pages(queries, shown, events)
    pages = _with_query(pages, notes)
    numbers = pages.select("page", number=pl.int_range(pl.len(), dtype=pl.UInt32))
    results = shown.join(numbers, on="page").sort("number", "rank")
    note_shown_twice(
        results.select("doc", page="number"),
        pages["row"],
        notes,
        "they stay on each position; an event without a position counts for the upper one",
    )
    results = _with_signals(results, events.join(numbers, on="page"), notes)
    if "query" in pages.columns:
        visits = pages.with_columns(visit=pl.coalesce("session_id", "client_id"))
        note_repeated_queries(visits, "visit", pages["row"], notes)
    empty = pages.join(shown, on="page", how="anti")
    notes.add_rows("pages without results", empty["row"], "they are kept")
    results = with_exact_ids(results, ["doc"])
    results = results.select("doc", "rank", *SIGNALS, page="number")
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
    kinds = {name: kind_of_action(name) for name in events["action"].unique()}
    kind = pl.col("action").replace_strict(list(kinds), list(kinds.values()), default="other")
    events = events.with_columns(kind=kind.cast(pl.String))
    others = events.filter(kind="other")
    names = others["action"].value_counts(sort=True)["action"].head(5)
    notes.add_rows(
        "unknown action names", others["row"], f"left out; they are {', '.join(map(repr, names))}"
    )
    events = events.filter(pl.col("kind") != "other")
    for fault, done, wrong in (
        ("events without a query", "no query_id; left out", pl.col("page").is_null()),
        ("events without an object", "no object_id; left out", pl.col("doc").is_null()),
    ):
        found = events.filter(wrong)
        notes.add_rows(fault, found["row"], done)
        events = events.filter(~wrong)
    seen = ["impression"] if (events["kind"] == "impression").any() else ["impression", "view"]
    known = pl.concat([queries["page"], events.filter(pl.col("kind").is_in(seen))["page"]])
    strays = events.filter(
        ~pl.col("page").is_in(known.unique().implode()) & pl.col("kind").is_in(SIGNALS)
    )
    notes.add_rows(
        "events of unknown queries",
        strays["row"],
        "neither a query record nor an impression has their query_id; left out",
    )
    return events.join(strays.select("row"), on="row", how="anti", maintain_order="left")


def _from_one(events: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    """Let positions start at 1."""
    lowest = events.filter(pl.col("kind").is_in(["impression", "view"]), ordinal=0)
    notes.add("positions from 0", lowest.height, "positions start at 0 here; 1 was added to all")
    return events.with_columns(pl.col("ordinal") + 1) if lowest.height else events


def _shown(events: pl.DataFrame, queries: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    """List what was shown: page, doc, ordinal, timestamp, row, by impressions, else by hits."""
    columns = ["page", "doc", "ordinal", "timestamp", "row"]
    impressions = events.filter(kind="impression")
    views = events.filter(kind="view")
    hits = queries.select("page", "timestamp", "row", doc="hits").filter(
        pl.col("doc").list.len() > 0
    )
    hits = hits.explode("doc").filter(pl.col("doc").is_not_null())
    hits = hits.with_columns(ordinal=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("page"))
    if impressions.height:
        rest = hits.join(impressions, on="page", how="anti", maintain_order="left")
        notes.add(
            "pages without impressions",
            rest["page"].n_unique(),
            "they show what query_response_hit_ids says",
        )
        notes.add("views", views.height, "left out; impressions say what was shown")
        return pl.concat([impressions.select(columns), rest.select(columns)])
    if hits.height:
        notes.add(
            "pages without impressions",
            hits["page"].n_unique(),
            "no event is an impression; query_response_hit_ids says what was shown",
        )
        notes.add("views", views.height, "left out; query_response_hit_ids says what was shown")
        return hits.select(columns)
    notes.add("views", views.height, "no event is an impression; views say what was shown")
    return views.select(columns)


def _ranked(shown: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    """Give every result its rank: its position, or the order of the events where that fails."""
    # Numbers for pages and documents are far faster to compare than their names.
    codes = (code_of(shown[name]).alias(f"{name}_code") for name in ("page", "doc"))
    shown = shown.with_columns(codes)
    again = ~pl.struct("page_code", "doc_code", "ordinal").is_first_distinct()
    repeats = shown.filter(again)
    notes.add_rows("duplicate impressions", repeats["row"], "a result is shown once")
    shown = shown.filter(~again)
    unplaced = _on_pages_with(pl.col("ordinal").is_null(), shown)
    shared = _on_pages_with(pl.struct("page_code", "ordinal").is_duplicated(), shown) & ~unplaced
    for kind, pages in (
        ("pages without positions", shown.filter(unplaced)),
        ("pages with two results on one position", shown.filter(shared)),
    ):
        firsts = pages.unique("page", keep="first", maintain_order=True)
        notes.add_rows(kind, firsts["row"], "their results are ranked in the order of the events")
    odd = shown.select(unplaced | shared).to_series()
    # A result that came again without a position is the same result.
    by_order = shown.filter(odd).sort("timestamp", "row", nulls_last=True)
    by_order = by_order.unique(["page_code", "doc_code"], keep="first", maintain_order=True)
    by_order = by_order.with_columns(
        rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("page")
    )
    by_position = shown.filter(~odd).with_columns(rank=pl.col("ordinal"))
    return pl.concat([by_position, by_order]).drop("page_code", "doc_code")


def _on_pages_with(found: pl.Expr, shown: pl.DataFrame) -> pl.Expr:
    """Say of each result whether it is on a page that has something."""
    pages = shown.filter(found)["page_code"].unique()
    return pl.col("page_code").is_in(pages.implode())


def _pages(queries: pl.DataFrame, shown: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """One row a page, in order of first appearance: those of the queries and those only shown."""
    by_page = events.sort("row").group_by("page", maintain_order=True)
    of_events = by_page.agg(
        pl.col("client_id", "session_id").drop_nulls().first(), pl.col("timestamp").min()
    )
    first = pl.concat([queries.select("page", "row"), shown.select("page", "row")])
    first = first.group_by("page").agg(pl.col("row").min()).sort("row", "page")
    pages = first.join(
        queries.select("page", "query", *DETAILS), on="page", how="left", maintain_order="left"
    )
    pages = pages.join(of_events, on="page", how="left", suffix="_e", maintain_order="left")
    filled = [pl.coalesce(name, f"{name}_e").alias(name) for name in DETAILS]
    return pages.with_columns(filled).drop(f"{name}_e" for name in DETAILS)


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


def _with_signals(results: pl.DataFrame, events: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    """Add a boolean column a signal, finding each event's result by object id and position."""
    results = results.with_row_index("result")
    events = events.filter(pl.col("kind").is_in(SIGNALS)).sort("row")
    keys = ["number", "doc"]
    # Few results have any event, and only those need be looked for.
    places = results.join(events, on=keys, how="semi", maintain_order="left")
    upper = places.unique(keys, keep="first", maintain_order=True)
    upper = upper.select(*keys, "result", shown_at="timestamp")
    exact = places.select(*keys, "ordinal", exact="result").unique([*keys, "ordinal"])
    events = events.join(upper, on=keys, how="left", maintain_order="left")
    events = events.join(exact, on=[*keys, "ordinal"], how="left", maintain_order="left")
    events = events.with_columns(result=pl.coalesce("exact", "result"))
    early = events.filter(pl.col("timestamp") < pl.col("shown_at"))
    notes.add_rows(
        "events out of order", early["row"], "dated before their result was shown; they count"
    )
    for signal, plural in zip(SIGNALS, ("clicks", "cart events", "purchases"), strict=True):
        found = events.filter(kind=signal)
        unseen = found.filter(pl.col("result").is_null())
        notes.add_rows(f"{plural} on results never shown", unseen["row"], "left out")
        found = found.filter(pl.col("result").is_not_null())
        again = found.filter(~pl.col("result").is_first_distinct())
        notes.add_rows(f"duplicate {plural}", again["row"], f"a result has one {signal}")
        results = results.with_columns(
            pl.col("result").is_in(found["result"].unique().implode()).alias(signal)
        )
    return results


def write(log: ClickLog, path: Path) -> None:
    """Write queries and events into one file of JSON lines; a session is a query_id."""
    writing = LogWriter(log, path, UBI)
    writing.keeps(*SIGNALS, *DETAILS)
    writing.needs_unit_weights()
    writing.needs_moments("timestamp")
    signals = [name for name in SIGNALS if name in log.columns]
    for name in signals:
        writing.needs_booleans(name)
    sessions = writing.plain_texts("session")
    queries = writing.plain_texts("query") if log.has_query else [None] * len(sessions)
    details = [name for name in DETAILS if name in log.columns]
    columns = [writing.plain_texts(name) for name in details]
    shared = zip(*columns, strict=True) if columns else [()] * len(sessions)
    results = zip(
        writing.results("doc", text=True, plain=True),
        writing.results("rank"),
        *(writing.results(name) for name in signals),
        strict=True,
    )
    with write_lines(path) as tell:
        for session, query, values, (docs, ranks, *flags) in zip(
            sessions, queries, shared, results, strict=True
        ):
            said = {n: v for n, v in zip(details, values, strict=True) if v is not None}
            head = {"query_id": session} | ({} if query is None else {"user_query": query}) | said
            tell(_json(head | {"query_response_hit_ids": docs}))
            for doc, rank, *flagged in zip(docs, ranks, *flags, strict=True):
                clicked = [WRITTEN_AS[n] for n, v in zip(signals, flagged, strict=True) if v]
                for action in ("impression", *clicked):
                    place = {"object": {"object_id": doc}, "position": {"ordinal": rank}}
                    event = {"action_name": action, "query_id": session} | said
                    tell(_json(event | {"event_attributes": place}))


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False)


UBI = Format(
    "ubi",
    "OpenSearch User Behavior Insights",
    "JSON lines or Parquet of ubi_queries and ubi_events, in one file, two, or a folder",
    sniff,
    read,
    write,
)
