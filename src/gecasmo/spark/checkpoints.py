"""Where Spark writes down the points of a fit."""

from __future__ import annotations

import shutil
import tempfile
import threading
import warnings
import weakref
from typing import Any

from gecasmo.errors import GecasmoWarning

# Folders that fits have made, and how many fits use each at the moment.
_users: dict[str, int] = {}
# A fit that is given up may be cleared away at any time, also while this thread holds the lock.
_lock = threading.RLock()


class Checkpoints:
    """The folder for checkpoints, as long as a fit needs it.

    Spark's own is left as it is. On a single machine that has none, a folder is made, and removed
    with the last fit that uses it; on a cluster nobody but the user knows a place.
    """

    def __init__(self, context: Any) -> None:
        self.context = context
        self._own: str | None = None
        with _lock:
            self.is_reliable = self._find()
        # Also when a fit is given up without a word.
        self._closing = weakref.finalize(self, _leave, context, self._own)

    def _find(self) -> bool:
        known = self.context.getCheckpointDir()
        if known is not None:
            # Spark puts a folder of each session into the one it was given.
            self._own = next((folder for folder in list(_users) if _is_in(known, folder)), None)
        elif self.context.master.startswith("local"):
            self._own = tempfile.mkdtemp(prefix="gecasmo-checkpoints-")
            self.context.setCheckpointDir(self._own)
        else:
            warnings.warn(
                "Spark has no folder for checkpoints, so the state of the fit is kept twice in the "
                "memory and on the disks of executors: it survives the loss of one of them, not "
                "of two at once. Better: spark.sparkContext.setCheckpointDir(a folder that all "
                "executors reach).",
                GecasmoWarning,
                stacklevel=6,
            )
            return False
        if self._own is not None:
            _users[self._own] = _users.get(self._own, 0) + 1
        return True

    def close(self) -> None:
        """The fit needs no checkpoints any more."""
        self._closing()


def _leave(context: Any, own: str | None) -> None:
    if own is None:
        return
    with _lock:
        _users[own] -= 1
        if _users[own]:
            return
        del _users[own]
        try:
            # Meanwhile the user may have named another.
            if context._jsc is not None and _is_in(context.getCheckpointDir(), own):
                take_back(context)
        finally:
            shutil.rmtree(own, ignore_errors=True)


def _is_in(known: str | None, folder: str) -> bool:
    """Whether Spark's folder, which it names as an address, is in one of ours."""
    return known is not None and f"{folder}/" in f"{known}/"


def take_back(context: Any) -> None:
    """Let Spark forget its folder, for which it has no public way; else it would make it again."""
    if context._jsc is not None:  # it is still running
        nothing = context._jvm.scala.Option.empty()
        getattr(context._jsc.sc(), "checkpointDir_$eq")(nothing)
