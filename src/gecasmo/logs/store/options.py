"""What somebody asked of an ingest, and what follows from it for the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gecasmo.errors import ClickLogError
from gecasmo.logs.roles import Given, Roles
from gecasmo.logs.store.sizes import SMALLEST_MEMORY, in_bytes, parse_bytes

MOST_PARTITIONS = 1 << 16
ALL = "all"
SESSION = "session"


@dataclass(frozen=True)
class Wishes:
    """The arguments of an ingest, checked.

    Attributes
    ----------
    given
        The column of each role, as `read_log` takes them.
    keep
        Names of further columns to keep; "session" for the ids of pages.
    keep_all
        Whether all columns are kept.
    memory
        The most memory, in bytes.
    partitions
        The number of partitions, or None to choose it.
    fold
        Whether equal pages are folded; None decides from the data.
    format
        The format of the files, or None to recognise it.
    max_line
        The longest line allowed in a text file, in bytes.
    """

    given: Mapping[str, Given]
    keep: tuple[str, ...]
    keep_all: bool
    memory: int
    partitions: int | None
    fold: bool | None
    format: str | None
    max_line: int

    def as_json(self) -> dict[str, Any]:
        """What decides about the outcome; the memory does not."""
        columns = {
            role: list(names) if names is not None and not isinstance(names, str) else names
            for role, names in self.given.items()
        }
        return {
            "columns": columns,
            "keep": ALL if self.keep_all else list(self.keep),
            "partitions": self.partitions,
            "fold": self.fold,
            "format": self.format,
        }

    def roles(self) -> Roles:
        """Fresh roles, to be settled with the columns of a source."""
        return Roles(self.given)


def wishes(
    given: Mapping[str, Given],
    keep: str | Sequence[str],
    memory: int | str,
    partitions: int | None,
    fold: bool | str,
    format: str | None,
    max_line: int,
) -> Wishes:
    """Check the arguments of an ingest; `ClickLog.ingest` explains them."""
    names = (keep,) if isinstance(keep, str) else tuple(keep)
    if not all(isinstance(name, str) for name in names):
        raise ClickLogError(f"ingest(keep={keep!r}): column names are needed, or 'all'.")
    if fold not in (True, False, "auto"):
        raise ClickLogError(f"ingest(fold={fold!r}): True, False or 'auto'.")
    bytes_ = parse_bytes(memory)
    if bytes_ < SMALLEST_MEMORY:
        raise ClickLogError(
            f"ingest(memory={memory!r}): at least {in_bytes(SMALLEST_MEMORY)} are needed."
        )
    if partitions is not None and not _is_power_of_two(partitions):
        raise ClickLogError(
            f"ingest(partitions={partitions!r}): a power of two from 1 to {MOST_PARTITIONS}."
        )
    keeps_session = SESSION in names or ALL in names
    if fold is True and keeps_session:
        raise ClickLogError(
            "ingest(fold=True): pages that keep the ids of their sessions are all different; "
            "leave 'session' out of keep, or do not fold."
        )
    return Wishes(
        given=dict(given),
        keep=tuple(dict.fromkeys(names)),
        keep_all=ALL in names,
        memory=bytes_,
        partitions=partitions,
        fold=None if fold == "auto" else bool(fold),
        format=format,
        max_line=max_line,
    )


def _is_power_of_two(number: object) -> bool:
    if not isinstance(number, int) or isinstance(number, bool):
        return False
    return 1 <= number <= MOST_PARTITIONS and number & (number - 1) == 0
