"""What a stored log looks like at a glance."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gecasmo.logs.notes import Note
from gecasmo.logs.store.layout import NO_SESSIONS
from gecasmo.logs.store.sizes import in_bytes

if TYPE_CHECKING:
    from gecasmo.logs.store.stored_log import StoredLog


def text_summary(log: StoredLog) -> str:
    """Describe a stored log in lines of at most 80 characters."""
    facts = _facts(log)
    width = max(len(name) for name, _ in facts)
    return "\n".join(
        [type(log).__name__, *(f"  {name:<{width}}  {value}" for name, value in facts)]
    )


def html_summary(log: StoredLog) -> str:
    """Describe a stored log as HTML, for notebooks."""
    facts = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in _facts(log)
    )
    return f"<div><b>{type(log).__name__}</b><table>{facts}</table></div>"


def _facts(log: StoredLog) -> list[tuple[str, str]]:
    facts = [("folder", str(log.path))]
    part_of = getattr(log, "part_of", None)
    if part_of is not None:
        facts.append(("part", part_of()))
    facts.append(("sessions", f"{log.n_sessions:,}"))
    facts.append(("results", f"{log.n_source_results:,}"))
    if log.is_folded:
        stored = f"into {log.n_pages:,} different pages with {log.n_results:,} results"
        facts.append(("folded", stored))
    if log.has_query:
        facts.append(
            ("queries", f"{log.n_queries:,}, in {log.n_pairs:,} pairs of query and document")
        )
    facts.append(("clicks", f"{log.n_clicks:,}"))
    if log.source_columns:
        facts.append(("columns", _shortened(_taken(log.source_columns))))
    weighed = "weight" in log.source_columns
    if weighed or log.total_weight != log.n_sessions:
        of = f", of the column {log.source_columns['weight'][0]!r}" if weighed else ""
        facts.append(("weights", f"{log.total_weight:,.6g} over all sessions{of}"))
    extra = log.columns[log.columns.index("click") + 1 :]
    if extra:
        facts.append(("also", _shortened(", ".join(extra))))
    if part_of is None:
        per_page = log.bytes / max(log.n_pages, 1)
        kind = "stored page" if log.is_folded else "page"
        facts.append(("on disk", f"{in_bytes(log.bytes)}, {per_page:.1f} bytes a {kind}"))
    facts.append(("partitions", f"{log.n_partitions:,}"))
    facts += [("noted", _shortened(_noted(note))) for note in log.notes]
    return facts


def _noted(note: Note) -> str:
    """What was met, and how often, where that says something."""
    return note.kind if note.kind == NO_SESSIONS else f"{note.kind}: {note.count:,}"


def _taken(columns: Mapping[str, list[str]]) -> str:
    """Which columns were taken for what: those with the name of their role by that alone."""
    return ", ".join(
        role if names == [role] else f"{role} = {' + '.join(names)}"
        for role, names in columns.items()
        if role != "weight"
    )


def _shortened(text: str, width: int = 64) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
