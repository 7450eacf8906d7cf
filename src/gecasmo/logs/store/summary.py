"""What a stored log looks like at a glance."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from gecasmo.logs.store.sizes import in_bytes

if TYPE_CHECKING:
    from gecasmo.logs.store.stored_log import StoredLog


def text_summary(log: StoredLog) -> str:
    """Describe a stored log in lines of at most 80 characters."""
    facts = _facts(log)
    width = max(len(name) for name, _ in facts)
    return "\n".join(["StoredLog", *(f"  {name:<{width}}  {value}" for name, value in facts)])


def html_summary(log: StoredLog) -> str:
    """Describe a stored log as HTML, for notebooks."""
    facts = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in _facts(log)
    )
    return f"<div><b>StoredLog</b><table>{facts}</table></div>"


def _facts(log: StoredLog) -> list[tuple[str, str]]:
    facts = [("folder", str(log.path)), ("sessions", f"{log.n_sessions:,}")]
    if log.is_folded:
        facts.append(("folded", f"into {log.n_pages:,} different pages"))
    facts.append(("results", f"{log.n_results:,}"))
    if log.has_query:
        facts.append(("queries", f"{log.n_queries:,}, with {log.n_pairs:,} documents"))
    facts.append(("clicks", f"{log.n_clicks:,}"))
    if log.total_weight != log.n_sessions:
        facts.append(("weights", f"{log.total_weight:,.6g} over all sessions"))
    extra = log.columns[log.columns.index("click") + 1 :]
    if extra:
        facts.append(("also", _shortened(", ".join(extra))))
    per_page = log.bytes / max(log.n_pages, 1)
    facts.append(("on disk", f"{in_bytes(log.bytes)}, {per_page:.1f} bytes a page"))
    facts.append(("partitions", f"{log.n_partitions:,}"))
    facts += [("noted", _shortened(f"{note.kind}: {note.count:,}")) for note in log.notes]
    return facts


def _shortened(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
