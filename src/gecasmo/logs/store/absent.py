"""What to say when a stored log is asked for what only a log in memory has."""

from __future__ import annotations

from typing import Any

from gecasmo.errors import ClickLogError
from gecasmo.logs.clicklog import ClickLog

# Set when a log is made, so the class does not have them.
_OF_EVERY_LOG = ("sessions", "weight", "notes")
_INSTEAD = {
    "take": "log.split(test=0.2, by='query') picks pages at random",
    "write": "for part in log.partitions(): part.write(...) writes files, one a partition",
    "to_frame": "log.partition(i).to_frame() gives a partition, log.head(n).to_frame() some pages",
}


class NotInMemoryError(ClickLogError, AttributeError):
    """A stored log was asked for something that only a log in memory has."""


def missing_attribute(log: Any, name: str) -> AttributeError:
    """The error for a name that a stored log does not have."""
    kind = type(log).__name__
    public = not name.startswith("_")
    if not public or not (hasattr(ClickLog, name) or name in _OF_EVERY_LOG):
        return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=log)
    instead = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
    return NotInMemoryError(
        f"A stored log has no {name!r}: its pages are on the disk. Ask a part of it in memory: "
        f"log.partition(i).{name} (all of them: for part in log.partitions()), or for a few pages "
        f"log.head(n).{name}{instead}."
    )
