"""Click logs on disk, larger than memory: made by `ingest`, opened by `open_log`."""

from __future__ import annotations

from gecasmo.logs.store.disk import check_disk, disk_need, free_bytes
from gecasmo.logs.store.stored_log import StoredLog, open_log

__all__ = ["StoredLog", "check_disk", "disk_need", "free_bytes", "open_log"]
