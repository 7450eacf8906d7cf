"""Run compiled kernels, on threads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_chosen: ContextVar[int | None] = ContextVar("threads", default=None)


def default_threads() -> int:
    """As many threads as were asked for, else as this process may use processors."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Let everything inside use so many threads."""
    token = _chosen.set(threads)
    try:
        yield
    finally:
        _chosen.reset(token)


def run_jobs(call: Any, jobs: Sequence[Sequence[Any]]) -> None:
    """Call a kernel once per job, on threads if there are several."""
    if len(jobs) == 1:
        call(*jobs[0])
        return
    with ThreadPoolExecutor(max_workers=(len(jobs) + 1) // 2) as pool:
        for done in [pool.submit(call, *job) for job in jobs]:
            done.result()
