"""Click logs: reading them, checking them, and holding them as columns.

The way of a log: `inputs` finds and unpacks files; a reader in `formats` makes a table of them;
`roles` say which column plays which part; `values` and `assembly` check the columns, `pages` counts
in them; what comes out is a `ClickLog`. `reader` is that way from end to end.
"""

from __future__ import annotations

from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.counts import read_counts
from gecasmo.logs.events import read_events
from gecasmo.logs.formats import FORMATS
from gecasmo.logs.notes import Note
from gecasmo.logs.reader import Peek, peek, read_log
from gecasmo.logs.roles import guess_roles

__all__ = [
    "FORMATS",
    "ClickLog",
    "Note",
    "Peek",
    "guess_roles",
    "peek",
    "read_counts",
    "read_events",
    "read_log",
]
