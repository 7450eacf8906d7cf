"""Click logs: reading them, checking them, and holding them as columns."""

from __future__ import annotations

from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.reading import read_log

__all__ = ["ClickLog", "read_log"]
