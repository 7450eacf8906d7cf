"""Run compiled kernels, and what is between them, on threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# How the names of threads begin that run kernels; what they start runs on themselves.
KERNEL_THREAD = "gecasmo-kernels"
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
    """Call a kernel once per job, on half as many threads if there are several."""
    if len(jobs) == 1 or _is_kernel_thread():
        for job in jobs:
            call(*job)
        return
    _answers([_pool((len(jobs) + 1) // 2).submit(call, *job) for job in jobs])


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """`work` on each of the items; answers in their order, on any number of threads."""
    threads = default_threads()
    if threads == 1 or len(items) < 2 or _is_kernel_thread():
        return [work(item) for item in items]
    pool = _pool(threads)
    # Threads of a pool have settings of their own unless they are given these.
    return _answers([pool.submit(copy_context().run, work, item) for item in items])


def _is_kernel_thread() -> bool:
    """Whether this is a thread of a pool: one that waited for its own pool might wait for ever."""
    return threading.current_thread().name.startswith(KERNEL_THREAD)


def _answers(running: list[Future[R]]) -> list[R]:
    try:
        return [one.result() for one in running]
    finally:
        # Whatever happened, nobody may write into arrays of ours once we are gone.
        for one in running:
            one.cancel()
        wait(running)


# Threads wait for the next kernel, which comes many times a second during a fit.
_pools: dict[int, ThreadPoolExecutor] = {}


def _pool(threads: int) -> ThreadPoolExecutor:
    if threads not in _pools:
        _pools.setdefault(threads, ThreadPoolExecutor(threads, KERNEL_THREAD))
    return _pools[threads]


if hasattr(os, "register_at_fork"):
    # A forked process has the memory of these threads, not the threads.
    os.register_at_fork(after_in_child=_pools.clear)
