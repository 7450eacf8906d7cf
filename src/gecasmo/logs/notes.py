"""What a reader met in a log, and what it did about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

EXAMPLES = 3
TOLD_IN_FULL = 3


@dataclass(frozen=True)
class Note:
    """One kind of thing that a reader met.

    Attributes
    ----------
    kind
        What it is, in the plural: "duplicate clicks".
    count
        How often it was met.
    what
        The whole story in a sentence: kind, count, and what was done about it.
    examples
        Where it was met first, in words.
    """

    kind: str
    count: int
    what: str
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.what


@dataclass
class Notebook:
    """The notes taken while one log is read."""

    notes: list[Note] = field(default_factory=list)

    def add(self, kind: str, count: int, done: str, examples: Iterable[str] = ()) -> None:
        """Note that something was met `count` times; nothing is noted for a count of 0.

        Parameters
        ----------
        kind
            What was met, in the plural.
        count
            How often.
        done
            What was done about it, without a full stop.
        examples
            Where it was met; the first few are kept.
        """
        if count:
            first = tuple(example for example, _ in zip(examples, range(EXAMPLES), strict=False))
            self.notes.append(Note(kind, int(count), f"{kind}: {count:,} ({done}).", first))

    def tell(self, kind: str, count: int, what: str) -> None:
        """Note something that has a sentence of its own."""
        self.notes.append(Note(kind, count, what))


def in_one_message(label: str, notes: Iterable[Note]) -> str:
    """Put the notes on one log into one message.

    Parameters
    ----------
    label
        How the log is called.
    notes
        At least one note.

    Returns
    -------
    str
    """
    notes = list(notes)
    if len(notes) <= TOLD_IN_FULL:
        return f"{label}: " + " ".join(note.what for note in notes)
    kinds = ", ".join(f"{note.kind} ({note.count:,})" for note in notes)
    return f"{label}: met, and dealt with as log.notes says: {kinds}."
