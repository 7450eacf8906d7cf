"""Notes of many batches and partitions as notes of one log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gecasmo.logs.notes import EXAMPLES, Note


def as_json(notes: Iterable[Note]) -> list[dict[str, Any]]:
    """Notes for a file."""
    return [
        {"kind": n.kind, "count": n.count, "what": n.what, "examples": list(n.examples)}
        for n in notes
    ]


def from_json(content: Iterable[Mapping[str, Any]]) -> list[Note]:
    """Notes from a file."""
    return [Note(n["kind"], n["count"], n["what"], tuple(n["examples"])) for n in content]


def merged(notes: Iterable[Note]) -> list[Note]:
    """One note of each kind, with the counts added up."""
    together: dict[str, Note] = {}
    for note in notes:
        before = together.get(note.kind)
        together[note.kind] = note if before is None else _sum(before, note)
    return list(together.values())


def _sum(one: Note, other: Note) -> Note:
    count = one.count + other.count
    head = f"{one.kind}: {one.count:,} "
    what = one.what
    if what.startswith(head):
        what = f"{one.kind}: {count:,} {what.removeprefix(head)}"
    return Note(one.kind, count, what, (one.examples + other.examples)[:EXAMPLES])
