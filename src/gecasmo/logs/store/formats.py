"""Logs in formats of their own, a file at a time, as a stream of batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gecasmo.logs.assembling import assemble
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.faults import Faults
from gecasmo.logs.formats import Format, Options
from gecasmo.logs.inputs import Opened
from gecasmo.logs.reading import _as_chosen
from gecasmo.logs.store.batches import Batch, Place, Segment
from gecasmo.logs.store.options import Wishes

# The queries of this format are in other files than its events.
READ_AT_ONCE = ("ubi",)


class FormatFiles:
    """Files of a format; each has whole pages.

    Parameters
    ----------
    source
        The files, or what else the format reads.
    format
        The format.
    wishes
        What was asked for.
    """

    def __init__(self, source: Any, format: Format, wishes: Wishes) -> None:
        self._format, self._wishes = format, wishes
        at_once = format.name in READ_AT_ONCE or not isinstance(source, Opened)
        self._parts = [source] if at_once else [Opened(file.name, [file]) for file in source]
        self.can_resume = isinstance(source, Opened) and all(f.path is not None for f in source)
        self.label = source.label if isinstance(source, Opened) else "the files"
        self.files: Sequence[str] = [getattr(part, "label", self.label) for part in self._parts]
        self._known: tuple[int, ClickLog] | None = None

    @property
    def first(self) -> ClickLog:
        """The log of the first file."""
        return self._log(0)

    def schema(self) -> None:
        """None: the logs are read already."""
        return

    def n_rows(self) -> int | None:
        """Unknown before all files are read."""
        return None

    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Iterator[Batch]:
        """Read the files one after the other, from a place on."""
        for number in range(after["file"] if after else 0, len(self._parts)):
            log = self._log(number)
            segment = Segment(number, 0, log.n_results)
            yield Batch(log, (segment,), {"file": number + 1}, log.notes)

    def _log(self, number: int) -> ClickLog:
        if self._known is not None and self._known[0] == number:
            return self._known[1]
        self._known = None
        roles = self._wishes.roles()
        reading = self._format.read(
            self._parts[number], Options(self._wishes.max_line, roles.id_columns)
        )
        table = _as_chosen(reading.table, roles)
        log = assemble(table, roles, Faults(self.files[number]), reading.notes)
        self._known = (number, log)
        return log
