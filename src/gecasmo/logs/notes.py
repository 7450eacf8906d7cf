"""What a reader has to say about a log: notes on what it met, and faults that make it stop.

A note says what was met and what was done about it. All faults make one error, because finding them
one at a time would take a run over gigabytes for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.report import counted, listed

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
    """The notes taken while one log is read.

    Attributes
    ----------
    notes
        What was noted so far.
    place
        Says in words where a row of the source is.
    """

    notes: list[Note] = field(default_factory=list)
    place: Callable[[int], str] = "row {}".format

    def add(self, kind: str, count: int, done: str, examples: Iterable[str] = ()) -> None:
        """Note that something was met `count` times; nothing is noted for a count of 0.

        `kind` says what was met, in the plural, and `done` what was done about it, without a full
        stop. Of the examples, which say where, the first few are kept.
        """
        if count:
            first = tuple(islice(examples, EXAMPLES))
            self.notes.append(Note(kind, int(count), f"{kind}: {count:,} ({done}).", first))

    def add_rows(self, kind: str, rows: Collection[int] | pl.Series, done: str) -> None:
        """Note what was met in some rows of the source; the first few are told as examples."""
        self.add(kind, len(rows), done, map(self.place, rows))

    def tell(self, kind: str, count: int, what: str) -> None:
        """Note something that has a sentence of its own."""
        self.notes.append(Note(kind, count, what))


def in_one_message(label: str, notes: Iterable[Note]) -> str:
    """Put the notes on the log called `label` into one message."""
    notes = list(notes)
    if len(notes) <= TOLD_IN_FULL:
        return f"{label}: " + " ".join(note.what for note in notes)
    kinds = ", ".join(f"{note.kind} ({note.count:,})" for note in notes)
    return f"{label}: met, and dealt with as log.notes says: {kinds}."


def merged_notes(notes: Iterable[Note]) -> list[Note]:
    """One note of each kind, with the counts added up."""
    together: dict[str, Note] = {}
    for note in notes:
        before = together.get(note.kind)
        together[note.kind] = note if before is None else _added(before, note)
    return list(together.values())


def _added(one: Note, other: Note) -> Note:
    count = one.count + other.count
    head = f"{one.kind}: {one.count:,} "
    what = one.what
    if what.startswith(head):
        what = f"{one.kind}: {count:,} {what.removeprefix(head)}"
    return Note(one.kind, count, what, (one.examples + other.examples)[:EXAMPLES])


class Faults:
    """The faults found so far in one source.

    Parameters
    ----------
    label
        How the source is called in the message, such as its path.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self._row_of: Callable[[int], int] = int
        self._missing: list[str] = []
        self._advice: list[str] = []
        self._lines: list[str] = []

    def lacks(self, columns: Sequence[str], advice: Sequence[str]) -> None:
        """Note columns that are not there, with lines that help to find them."""
        self._missing.extend(columns)
        self._advice.extend(advice)

    def add(self, fault: str) -> None:
        """Note one fault, in words."""
        self._lines.append(fault)

    def add_missing(
        self, title: str, missing: pl.Series, noun: str = "value", what_to_do: str = ""
    ) -> None:
        """Note the values of a column that are missing, if there are any."""
        count = int(missing.sum())
        if count:
            first = self.row(missing.arg_true()[0])
            are = counted_are(count, noun)
            self.add(f"{title}: {are} missing (null), first: {first}{what_to_do}")

    @contextmanager
    def naming_rows(self, row_of: Callable[[int], int]) -> Iterator[None]:
        """Within this block, name the row `row_of(index)` of the source for an index."""
        before, self._row_of = self._row_of, row_of
        try:
            yield
        finally:
            self._row_of = before

    def row(self, index: int) -> str:
        """Name the row of the source that the value at `index` came from."""
        return f"row {self._row_of(int(index))}"

    def __bool__(self) -> bool:
        return bool(self._missing or self._lines)

    def raise_if_any(self) -> None:
        """Raise one error with all faults, if there is any."""
        if not self:
            return
        faults = [f"  - {line}" for line in self._lines]
        amount = counted(len(self._lines), "fault")
        if not self._missing:
            head = [f"{_capital(self.label)} cannot be read as a click log; {amount}:"]
            raise ClickLogError("\n".join(head + faults))
        names = listed(map(repr, self._missing))
        noun = "column" if len(self._missing) == 1 else "columns"
        head = [f"{_capital(self.label)} lacks the {noun} {names}."]
        head += [f"  {line}" for line in self._advice]
        if faults:
            head.append(f"  And what is there has {amount}:")
        raise ClickLogError("\n".join(head + faults))


def counted_are(count: int, noun: str) -> str:
    """Say `3 values are` or `1 value is`."""
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"


def _capital(label: str) -> str:
    # A path keeps its own spelling; only our own phrases start a sentence with a capital.
    return label[0].upper() + label[1:] if label.startswith("the ") else label
