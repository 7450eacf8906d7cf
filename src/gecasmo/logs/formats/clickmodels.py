"""The 7-column text format of ClickModels (varepsilon/clickmodels).

    digest  query  region  intent weight  [urls]  [layout]  [clicks]

The last three are JSON lists; or JSON objects from the place (from "0") to the value.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.logs.formats.format import (
    Format,
    Head,
    PagesOfLines,
    ReadOptions,
    click_counts,
    column_of,
    flat,
    nested,
    note_shown_twice,
    page_ids,
    with_exact_ids,
)
from gecasmo.logs.formats.writer import LogWriter, write_lines
from gecasmo.logs.inputs import Lines, open_inputs, read_lines, whole_json
from gecasmo.logs.notes import Notebook
from gecasmo.report import shortened

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

COLUMNS = 7
MOST_DIGITS = 18  # of a place


def sniff(head: Head) -> bool:
    """Say whether the first line has seven fields, three of them JSON."""
    fields = head.line.split("\t")
    json_like = [field.lstrip()[:1] in ("[", "{") for field in fields[4:]]
    return len(fields) == COLUMNS and all(json_like)


@dataclass
class _TextPages(PagesOfLines):
    """The pages found so far, as columns."""

    heads: list[list[str]] = field(default_factory=list)
    intents: list[float] = field(default_factory=list)
    urls: list[Any] = field(default_factory=list)
    layout: list[Any] = field(default_factory=list)
    clicks: list[int] = field(default_factory=list)
    surplus: list[int] = field(default_factory=list)
    unseen: list[int] = field(default_factory=list)
    n_unseen: int = 0
    beyond: list[int] = field(default_factory=list)


def read(source: Any, options: ReadOptions, notes: Notebook) -> pl.DataFrame:
    """Read pages, one a line; `docs/readers.md` says what becomes of odd ones."""
    lines = read_lines(open_inputs(source, folders=True), options.max_line)
    notes.place = lines.place
    found = _TextPages()
    blank = []
    for row, text in enumerate(lines.text):
        if text.strip():
            _read_line(lines, row, text, found)
        else:
            blank.append(row)
    notes.add_rows("blank lines", blank, "left out")
    _take_notes(found, notes)

    results = pl.DataFrame(
        [
            pl.Series("page", found.page, pl.UInt32),
            column_of("doc", found.urls),
            pl.Series("click", found.clicks, pl.Int64) > 0,
            column_of("layout", found.layout),
        ]
    )
    note_shown_twice(results, found.rows, notes, "they stay on both ranks")
    names = ["digest", "query", "region"]
    pages = pl.DataFrame(found.heads, schema=dict.fromkeys(names, pl.String), orient="row")
    pages = pages.select(
        page_ids(pages["digest"]),
        "query",
        "region",
        pl.Series("intent_weight", found.intents, pl.Float64),
    )
    regions = pages["region"].n_unique()
    notes.add(
        "regions",
        regions if regions > 1 else 0,
        "the query is the text alone and the region a column; use both as keys to part them",
    )
    return nested(with_exact_ids(pages, ["query", "region"]), results)


def _read_line(lines: Lines, row: int, text: str, found: _TextPages) -> None:
    fields = text.split("\t")
    if len(fields) != COLUMNS:
        raise lines.error(
            row, f"{COLUMNS} fields with tabs between were expected, not {len(fields)}"
        )
    try:
        intent = float(fields[3])
        urls, layout, clicks = map(whole_json, fields[4:])
    except (ValueError, RecursionError) as error:
        raise lines.error(row, f"a number and three JSON lists were expected ({error})") from None
    urls, beyond = _as_list(urls, None, lines, row)
    found.beyond += [row] * len(beyond)
    if not all(isinstance(url, str | int) and not isinstance(url, bool) for url in urls):
        raise lines.error(row, "the results should be texts or whole numbers")
    n = len(urls)
    layout, odd_layout = _as_list(layout, False, lines, row, n)
    clicks, odd_clicks = _as_list(clicks, 0, lines, row, n)
    if len(clicks) < n or len(layout) < n:
        short = "clicks" if len(clicks) < n else "layout"
        size = len(clicks if short == "clicks" else layout)
        raise lines.error(row, f"lists of different lengths: {n} results and {size} {short}")
    counts = click_counts(clicks + list(odd_clicks.values()), lines, row)
    found.clicks += counts[:n]
    if sum(counts[n:]):
        found.unseen.append(row)
        found.n_unseen += sum(counts[n:])
    if len(clicks) > n or len(layout) > n or odd_layout or odd_clicks:
        found.surplus.append(row)
    found.add(row, n)
    found.heads.append(fields[:3])
    found.intents.append(intent)
    found.urls += urls
    found.layout += [flat(value, lines, row) for value in layout[:n]]


def _as_list(
    values: Any, default: Any, lines: Lines, row: int, n: int = 0
) -> tuple[list[Any], dict[str, Any]]:
    """Lay an object from places to values out as a list, and return what has no place in it."""
    if isinstance(values, list):
        return values, {}
    if not isinstance(values, dict):
        raise lines.error(row, "the last three fields should be JSON lists")
    endless = next((key for key in values if len(key) > MOST_DIGITS and key.isdecimal()), None)
    if endless is not None:
        raise lines.error(row, f"{shortened(repr(endless), 30)} is too large to be a place")
    places = {int(key): value for key, value in values.items() if key.isdecimal()}
    others = {key: value for key, value in values.items() if not key.isdecimal()}
    if default is None:
        # Results end at the first place that is not there.
        n = next(place for place in range(len(places) + 1) if place not in places)
        others |= {str(place): value for place, value in places.items() if place > n}
        return [places[place] for place in range(n)], others
    others |= {str(place): value for place, value in places.items() if place >= n}
    return [places.get(place, default) for place in range(n)], others


def _take_notes(found: _TextPages, notes: Notebook) -> None:
    found.note_repeats("duplicate clicks", found.clicks, notes, "a result is clicked once")
    places = map(notes.place, found.unseen)
    notes.add("clicks on results never shown", found.n_unseen, "left out", places)
    notes.add_rows(
        "results beyond a gap", found.beyond, "a page ends before the first place that is not there"
    )
    notes.add_rows(
        "pages with entries beyond their results",
        found.surplus,
        "layout and clicks are cut to the results",
    )
    pages = zip(found.rows, found.intents, strict=True)
    odd = [row for row, intent in pages if not 0 <= intent <= 1]
    notes.add_rows("intent weights outside 0 to 1", odd, "the pages are kept")
    found.note_empty(notes)


def write(log: ClickLog, path: Path) -> None:
    """Write a log; region, intent weight and layout are those of the columns of that name."""
    writing = LogWriter(log, path, CLICKMODELS)
    writing.keeps("region", "intent_weight", "layout")
    writing.needs_queries()
    writing.needs_plain_ranks()
    writing.needs_unit_weights()
    writing.needs_numbers("intent_weight")
    heads = zip(
        writing.texts("session"),
        writing.texts("query"),
        writing.texts("region", "0"),
        writing.texts("intent_weight", "0"),
        strict=True,
    )
    docs = writing.json_results("doc")
    clicks = ([int(click) for click in page] for page in writing.results("click"))
    if "layout" in log.columns:
        layouts = writing.json_results("layout")
    else:
        layouts = ([False] * length for length in log.lengths.tolist())
    with write_lines(path) as tell:
        for head, *lists in zip(heads, docs, layouts, clicks, strict=True):
            tell("\t".join([*head, *(json.dumps(part, ensure_ascii=False) for part in lists)]))


CLICKMODELS = Format(
    "clickmodels",
    "ClickModels' text",
    "tab-separated text: digest, query, region, intent weight, and JSON lists of results, layout "
    "and clicks",
    sniff,
    read,
    write,
)
