"""Say what is wrong in a forked process that cannot work, instead of waiting for ever.

Polars works on threads of its own. A fork takes along their memory and not the threads, so that the
first sort or join in the child waits for an answer that nobody will give; Polars itself does not
notice. Processes that are forked before Polars has been used, or spawned, are all right.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from gecasmo.errors import ForkedProcessError

_WORKER = re.compile(r"polars-\d+")


class _Fork:
    """What is known of the threads of this process, and of the one that it was forked from."""

    had_threads = False
    is_lost = False


def refuse_lost_fork() -> None:
    """Raise an error if this process was forked from one whose threads it would need."""
    if _Fork.is_lost:
        raise ForkedProcessError(
            "This process was forked from one in which Polars had been used. Threads are not "
            "forked along, so anything that is asked of a log or a model here would wait for "
            "ever. Start workers in another way: multiprocessing.get_context('spawn') or "
            "'forkserver', ProcessPoolExecutor(mp_context=...), joblib with its default backend "
            "'loky'. Or fork before the first log is read."
        )


def _before_fork() -> None:
    _Fork.had_threads = False
    for path in Path("/proc/self/task").glob("*/comm"):  # Linux; elsewhere nothing is known
        with suppress(OSError):  # a thread that has just ended
            if _WORKER.fullmatch(path.read_text(encoding="utf-8").strip()):
                _Fork.had_threads = True


def _in_child() -> None:
    _Fork.is_lost = _Fork.is_lost or _Fork.had_threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
