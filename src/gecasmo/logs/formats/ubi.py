"""OpenSearch User Behavior Insights: queries and events, as JSON lines or Parquet.

{"query_id": "q1", "user_query": "shoes", "query_response_hit_ids": ["d1", "d2"], ...}
{"action_name": "impression", "query_id": "q1", "event_attributes":
    {"object": {"object_id": "d1"}, "position": {"ordinal": 1}}, ...}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gecasmo.errors import ClickLogError
from gecasmo.logs.formats.format import Format, Options, Reading, Sample
from gecasmo.logs.formats.ubi_fields import BULK
from gecasmo.logs.formats.ubi_pages import DETAILS, SIGNALS, build_pages
from gecasmo.logs.formats.ubi_records import Records
from gecasmo.logs.formats.writing import Writing, write_lines
from gecasmo.logs.inputs import open_inputs
from gecasmo.logs.notes import Notebook

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

PARTS = ("queries", "events")
ACTION = {"click": "click", "cart": "add_to_cart", "purchase": "purchase"}


def is_pair(source: object) -> bool:
    """Whether a source is a dict of the files of queries and events."""
    return (
        isinstance(source, Mapping)
        and bool(source)
        and set(source) <= set(PARTS)
        and all(isinstance(value, str | Path) for value in source.values())
    )


def sniff(sample: Sample) -> bool:
    """Say whether the first record is a query or an event."""
    if sample.has_fields("doc", "click"):
        return False  # a table that also has a query_id
    first = sample.first_record
    if isinstance(first.get("_source"), dict):
        first = first["_source"]
    if len(first) == 1 and set(first) <= BULK:
        index = next(iter(first.values()))
        return isinstance(index, dict) and "ubi" in str(index.get("_index", ""))
    names = set(sample.schema or first)
    if "action_name" in names:
        return "query_id" in names or "event_attributes" in names
    return "query_id" in names and bool(names & {"user_query", "query_response_hit_ids"})


def read(source: Any, options: Options) -> Reading:
    """Read queries and events; `docs/readers.md` says what becomes of odd ones."""
    records, notes = Records(), Notebook()
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
    return Reading(pages, notes.notes)


def _no_pages(label: str, records: Records, notes: Notebook) -> ClickLogError:
    """Make the error for events that nothing was shown for: mostly, the queries are elsewhere."""
    count = records.events.height
    if not count:
        return ClickLogError(f"{label} is empty: there are neither queries nor events in it.")
    said = "".join(f"\n  - {note.what}" for note in notes.notes)
    return ClickLogError(
        f"{label}: no event belongs to a known query, so there are no pages. There "
        f"{'is 1 event' if count == 1 else f'are {count:,} events'}, and no query record:{said}\n"
        '  Give the queries, too: read_log({"queries": ..., "events": ...}), or a folder that has '
        'both files, with format="ubi".'
    )


def write(log: ClickLog, path: Path) -> None:
    """Write queries and events into one file of JSON lines; a session is a query_id."""
    writing = Writing(log, path, UBI)
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
                clicked = [ACTION[n] for n, v in zip(signals, flagged, strict=True) if v]
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
