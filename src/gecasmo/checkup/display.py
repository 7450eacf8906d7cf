"""A checkup for people: text as wide as the terminal, at most 100 columns, and HTML."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import polars as pl

from gecasmo.checkup.findings import Checkup, Finding, share, shortened
from gecasmo.judgments.printing import printable_lines, text_width

_LINES_SHOWN = 12
_CELL, _SHORTEST = 44, 16

TITLES = {
    "ctr_by_rank": "Clicks by rank",
    "page_lengths": "Results on a page",
    "clicks_per_page": "Clicks on a page",
    "pairs": "How often pairs of query and document were shown",
    "traffic": "How concentrated the traffic is",
    "coins": "What the log knows about each coin",
    "few_trials": "Rows with few flips that are shown most",
    "components": "Parts of the log whose estimates cannot be compared",
    "links": "Pages that would connect them",
    "not_identified": "Parameters that cannot be told apart",
    "impossible": "Pages that cannot happen under the model",
    "directions": "How sure the shared parameters are (priors count two flips at most)",
    "randomising": "What random pages would buy",
}


def as_text(checkup: Checkup) -> str:
    """The checkup as lines of text."""
    return printable_lines("\n".join(_lines(checkup))) + "\n"


def headline(checkup: Checkup) -> str:
    """The verdict in a line."""
    numbers = {"error": 0, "warning": 0, "info": 0}
    for finding in checkup.findings:
        numbers[finding.severity] += 1
    counts = [
        f"{number} {name}{'s' if number != 1 and name != 'info' else ''}"
        for name, number in numbers.items()
        if number
    ]
    about = f"this log for {checkup.model}" if checkup.model else "this log"
    return f"Verdict on {about}: {checkup.verdict.upper()} ({', '.join(counts) or 'no findings'})"


def _lines(checkup: Checkup) -> Iterator[str]:
    yield from textwrap.wrap(headline(checkup), text_width())
    for finding in checkup.findings:
        yield ""
        yield from _finding_lines(finding)
    for name, table in checkup.tables.items():
        if table.height:
            yield ""
            yield TITLES.get(name, name)
            yield from table_lines(table)


def _finding_lines(finding: Finding) -> Iterator[str]:
    mark = {"error": "ERROR", "warning": "WARNING", "info": "info"}[finding.severity]
    yield from _wrapped(f"{mark}  {finding.topic}: {finding.message}", "", "    ")
    for example in finding.examples:
        yield from _wrapped(example, "    - ", "      ")
    if finding.advice:
        yield from _wrapped(finding.advice, "    > ", "      ")


def _wrapped(text: str, first: str, later: str) -> list[str]:
    return textwrap.wrap(text, text_width(), initial_indent=first, subsequent_indent=later)


def cell(value: Any, name: str = "") -> str:
    """A value of a table for people, in the column of this name."""
    if value is None:
        return "-"
    if isinstance(value, float) and (name == "ctr" or "share" in name.split("_")):
        return share(value, 1.0)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        is_long = (value.is_integer() and abs(value) >= 10) or 1000 <= abs(value) < 1e12
        return f"{value:,.0f}" if is_long else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return " ".join(str(value).split())


def table_lines(table: pl.DataFrame, most: int = _LINES_SHOWN) -> Iterator[str]:
    """A table in columns; texts are shortened, and columns stand below others, until lines fit."""
    names = table.columns
    rows = table.head(most).rows()
    shown = [[cell(v, name) for v, name in zip(row, names, strict=True)] for row in rows]
    heads = [_head(name, [row[i] for row in shown]) for i, name in enumerate(table.columns)]
    n_heads = max(map(len, heads))
    columns = [
        [*[""] * (n_heads - len(head)), *head, *(row[i] for row in shown)]
        for i, head in enumerate(heads)
    ]
    widths = [min(max(map(len, column)), _CELL) for column in columns]
    total = text_width()
    right = [dtype.is_numeric() for dtype in table.dtypes]
    least = [
        w if is_right else min(w, _SHORTEST) for w, is_right in zip(widths, right, strict=True)
    ]
    fitting = sum(used <= total for used in accumulate(width + 2 for width in least))
    if 1 < fitting < len(widths):
        yield from table_lines(table.select(names[:fitting]), most)
        yield ""
        yield from table_lines(table.select(names[0], *names[fitting:]), most)
        return
    while sum(widths) + 2 * len(widths) > total and widths != least:
        spare = [width - few for width, few in zip(widths, least, strict=True)]
        widths[max(range(len(widths)), key=lambda i: (spare[i] > 0, widths[i]))] -= 1
    for line in zip(*columns, strict=True):
        parts = [
            shortened(text, width).rjust(width) if is_right else shortened(text, width).ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ]
        yield ("  " + "  ".join(parts)).rstrip()[:total]
    if table.height > most:
        yield f"  ... and {table.height - most:,} more"


def _head(name: str, cells: list[str]) -> list[str]:
    """The name of a column in lines about as long as what stands below."""
    words = name.split("_")
    width = max(*map(len, words), *(min(len(text), 20) for text in cells), 8)
    return textwrap.wrap(" ".join(words), width)


def as_html(checkup: Checkup) -> str:
    """The checkup for a notebook."""
    colours = {"error": "#b00020", "warning": "#9a6700", "info": "#57606a"}
    parts = [f"<div><p><b>{html.escape(headline(checkup))}</b></p><ul>"]
    for finding in checkup.findings:
        examples = "".join(f"<li>{html.escape(example)}</li>" for example in finding.examples)
        parts.append(
            f'<li><b style="color:{colours[finding.severity]}">{finding.severity}</b> '
            f"<b>{html.escape(finding.topic)}</b>: {html.escape(finding.message)}"
            + (f"<ul>{examples}</ul>" if examples else "")
            + (f"<br><i>{html.escape(finding.advice)}</i>" if finding.advice else "")
            + "</li>"
        )
    parts.append("</ul>")
    for name, table in checkup.tables.items():
        if table.height:
            parts.append(_html_table(TITLES.get(name, name), table))
    return "".join(parts) + "</div>"


def _html_table(title: str, table: pl.DataFrame) -> str:
    names = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in table.columns)
    lines = "".join(
        "<tr>"
        + "".join(
            f"<td>{html.escape(cell(value, name))}</td>"
            for value, name in zip(row, table.columns, strict=True)
        )
        + "</tr>"
        for row in table.head(_LINES_SHOWN).rows()
    )
    left = table.height - _LINES_SHOWN
    more = f"<p>... and {left:,} more</p>" if left > 0 else ""
    return (
        f"<details><summary>{html.escape(title)}</summary>"
        f"<table><tr>{names}</tr>{lines}</table>{more}</details>"
    )
