"""Click logs on disk, larger than memory: made by `ClickLog.ingest`, opened by `open_log`.

The way of an ingest: `intake` reads a source batch by batch (`sources`, `text`), as runs
of results (`page_runs`); `shuffle` brings those of a partition together, `builder` makes pages of
them, `partition` writes and reads its files. `ingest` drives it, `plan` decides how much at a time,
`journal` remembers what is done. What comes out is in `stored_log` and `split`.
"""

from __future__ import annotations

from gecasmo.logs.store.disk import (
    check_disk,
    disk_need,
    free_bytes,
    in_bytes,
    parse_bytes,
    telling_full_disk,
)
from gecasmo.logs.store.stored_log import StoredLog, open_log

__all__ = [
    "StoredLog",
    "check_disk",
    "disk_need",
    "free_bytes",
    "in_bytes",
    "open_log",
    "parse_bytes",
    "telling_full_disk",
]
