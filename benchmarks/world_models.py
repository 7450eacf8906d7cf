"""Models of the package for the worlds of `worlds.py`: to be fitted, and with the true values."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

import gecasmo
from benchmarks.worlds import World
from gecasmo import ClickLog, Table

# The scale of these is not in the clicks: the top is always looked at, here and in the worlds.
ANCHORS: dict[str, Any] = {"PBM": {1: 1.0}, "UBM": {(1, 0): 1.0}}


def unfitted(name: str, **forms: Any) -> Any:
    """A model of the zoo whose scale is that of the worlds."""
    if name in ANCHORS:
        forms["examination"] = Table(fixed=ANCHORS[name])
    return getattr(gecasmo, name)(**forms)


def fit_quietly(model: Any, log: ClickLog) -> Any:
    """A fit on one thread that says nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(log, progress=False, threads=1)


def true_model(world: World) -> Any:
    """The model that made the clicks."""
    return getattr(gecasmo, world.model).with_values(**world.truth())


def in_processes(
    work: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], n_processes: int
) -> Iterator[Any]:
    """What `work` makes of each task, as it is done; every process has one thread."""
    if n_processes == 1:
        yield from (work(*task) for task in tasks)
        return
    fresh = multiprocessing.get_context("spawn")
    with _one_thread(), ProcessPoolExecutor(n_processes, mp_context=fresh) as pool:
        for done in as_completed([pool.submit(work, *task) for task in tasks]):
            yield done.result()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that start meanwhile have one thread; this one goes on as it was."""
    names = ("NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "OMP_NUM_THREADS")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)
