"""One error for everything that is wrong with a log.

Finding the faults one at a time would take a run over gigabytes for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gecasmo.errors import ClickLogError


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
        listed = [f"  - {line}" for line in self._lines]
        amount = counted(len(self._lines), "fault")
        if not self._missing:
            head = [f"{_capital(self.label)} cannot be read as a click log; {amount}:"]
            raise ClickLogError("\n".join(head + listed))
        names = in_words([repr(name) for name in self._missing])
        noun = "column" if len(self._missing) == 1 else "columns"
        head = [f"{_capital(self.label)} lacks the {noun} {names}."]
        head += [f"  {line}" for line in self._advice]
        if listed:
            head.append(f"  And what is there has {amount}:")
        raise ClickLogError("\n".join(head + listed))


def counted(count: int, noun: str) -> str:
    """Say `3 values` or `1 value`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def counted_are(count: int, noun: str) -> str:
    """Say `3 values are` or `1 value is`."""
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"


def in_words(names: Sequence[str]) -> str:
    """Say `a`, `a and b` or `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(label: str) -> str:
    # A path keeps its own spelling; only our own phrases start a sentence with a capital.
    return label[0].upper() + label[1:] if label.startswith("the ") else label
