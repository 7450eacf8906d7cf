"""Click logs: reading them, checking them, and holding them as columns."""

from __future__ import annotations

from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Note
from gecasmo.logs.reader import Peek, peek, read_log

__all__ = ["ClickLog", "Note", "Peek", "peek", "read_log"]
