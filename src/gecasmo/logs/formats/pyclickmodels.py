"""The JSON lines of pyClickModels (WillianFuks/pyClickModels), with purchases.

{"search_keys": {"search_term": "shoes", "region": "south"},
 "judgment_keys": [{"session": [{"doc": "d0", "click": 1, "purchase": 0}, ...]}, ...]}
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.logs.formats.format import (
    Format,
    Head,
    PagesOfLines,
    ReadOptions,
    as_text,
    click_counts,
    column_of,
    flat,
    nested,
    note_shown_twice,
)
from gecasmo.logs.formats.writer import LogWriter, write_lines
from gecasmo.logs.inputs import Lines, open_inputs, read_lines
from gecasmo.logs.notes import Notebook

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

SIGNALS = ("click", "purchase")
TAKEN = ("session", "query", "doc", "rank", "weight", *SIGNALS)


def sniff(head: Head) -> bool:
    """Say whether the first line has the two keys of a search."""
    return not head.is_parquet and head.has_fields("search_keys", "judgment_keys")


@dataclass
class _SearchPages(PagesOfLines):
    """The pages found so far, as columns."""

    searches: list[dict[str, Any]] = field(default_factory=list)
    docs: list[Any] = field(default_factory=list)
    signals: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in SIGNALS})
    others: Counter[str] = field(default_factory=Counter)


def read(source: Any, options: ReadOptions, notes: Notebook) -> pl.DataFrame:
    """Read searches with their pages; `docs/readers.md` says what becomes of odd ones."""
    lines = read_lines(open_inputs(source, folders=True), options.max_line)
    notes.place = lines.place
    found = _SearchPages()
    for row, record in lines.records():
        search = _search(record, lines, row)
        for page in _pages(record, lines, row):
            _read_page(page, found, lines, row)
            found.add(row, len(page))
            found.searches.append(search)
    _take_notes(found, notes)

    results = pl.DataFrame(
        [pl.Series("page", found.page, pl.UInt32), column_of("doc", found.docs)]
        + [pl.Series(name, counts, pl.Int64) > 0 for name, counts in found.signals.items()]
    )
    note_shown_twice(results, found.rows, notes, "they stay on both ranks")
    return nested(_searches(found), results)


def _search(record: dict[str, Any], lines: Lines, row: int) -> dict[str, Any]:
    search = record.get("search_keys")
    if not isinstance(search, dict) or not search:
        raise lines.error(row, "search_keys should be an object such as {'search_term': ...}")
    taken = [name for name in search if name in TAKEN]
    if taken:
        raise lines.error(row, f"a search key cannot be called {taken[0]!r} here; rename it")
    if not isinstance(record.get("judgment_keys"), list):
        raise lines.error(row, "judgment_keys should be a list of sessions")
    return {name: flat(value, lines, row) for name, value in search.items()}


def _pages(record: dict[str, Any], lines: Lines, row: int) -> list[list[Any]]:
    """Find the pages of a search; a bare list of results is one page."""
    entries = record["judgment_keys"]
    if not all(isinstance(entry, dict) for entry in entries):
        raise lines.error(row, "judgment_keys should hold objects with the key 'session'")
    if any("doc" in entry for entry in entries):
        return [entries]
    pages = [entry.get("session") for entry in entries]
    if not all(isinstance(page, list) for page in pages):
        raise lines.error(row, "each entry of judgment_keys needs a list under 'session'")
    return pages


def _read_page(page: list[Any], found: _SearchPages, lines: Lines, row: int) -> None:
    for result in page:
        doc = result.get("doc") if isinstance(result, dict) else None
        if not isinstance(doc, str | int) or isinstance(doc, bool):
            raise lines.error(row, "a result needs a 'doc' that is a text or a whole number")
        found.docs.append(doc)
        counts = click_counts([result.get(name, 0) for name in SIGNALS], lines, row)
        for name, count in zip(SIGNALS, counts, strict=True):
            found.signals[name].append(count)
        found.others.update(name for name in result if name != "doc" and name not in SIGNALS)


def _take_notes(found: _SearchPages, notes: Notebook) -> None:
    for name, counts in found.signals.items():
        found.note_repeats(f"duplicate {name}s", counts, notes, f"a result has one {name}")
    notes.add(
        "unknown fields of results",
        found.others.total(),
        f"left out; they are {', '.join(map(repr, sorted(found.others)))}",
    )
    found.note_empty(notes)


def _searches(found: _SearchPages) -> pl.DataFrame:
    """Make the columns of the pages: what was searched for is the query, in one text."""
    names = list(dict.fromkeys(name for search in found.searches for name in search))
    contexts = [column_of(name, [s.get(name) for s in found.searches]) for name in names]
    if names == ["search_term"]:
        # The plain case: the words are the query, and nothing need be said twice.
        return pl.DataFrame([contexts[0].alias("query")])
    query = [joined(list(values)) for values in zip(*contexts, strict=True)]
    return pl.DataFrame([pl.Series("query", query, pl.String), *contexts])


def joined(values: list[Any]) -> str:
    """Name a search by all its keys, as pyClickModels does, with the bars of a value marked."""
    texts = (as_text(value) or "" for value in values)
    return "|".join(text.replace("\\", "\\\\").replace("|", "\\|") for text in texts)


def write(log: ClickLog, path: Path) -> None:
    """Write a log, a line a page; with a column "search_term", all others are search keys."""
    writing = LogWriter(log, path, PYCLICKMODELS)
    contexts = [c for c in log.columns if c not in TAKEN] if "search_term" in log.columns else []
    writing.keeps("purchase", *contexts)
    writing.needs_queries()
    writing.needs_plain_ranks()
    writing.needs_unit_weights()
    if "purchase" in log.columns:
        writing.needs_booleans("purchase")
    names = contexts or ["query"]
    columns = zip(*(writing.json_values(name) for name in names), strict=True)
    signals = [name for name in SIGNALS if name in log.columns]
    results = zip(
        writing.json_results("doc"), *(writing.results(name) for name in signals), strict=True
    )
    queries = writing.values("query")
    with write_lines(path) as tell:
        for query, search, (docs, *flags) in zip(queries, columns, results, strict=True):
            if contexts and query != joined(list(search)):
                raise writing.refuse(f"the query {query!r} beside a search_term of its own")
            keys = dict(zip(contexts or ["search_term"], search, strict=True))
            keys = {name: value for name, value in keys.items() if value is not None}
            page = [
                {"doc": doc} | {n: int(v) for n, v in zip(signals, values, strict=True)}
                for doc, *values in zip(docs, *flags, strict=True)
            ]
            record = {"search_keys": keys, "judgment_keys": [{"session": page}]}
            tell(json.dumps(record, ensure_ascii=False))


PYCLICKMODELS = Format(
    "pyclickmodels",
    "pyClickModels' JSON lines",
    "JSON lines with search_keys and judgment_keys: searches with pages of doc, click, purchase",
    sniff,
    read,
    write,
)
