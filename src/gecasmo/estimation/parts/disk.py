"""Parts in files: a few of them in memory at a time, and progress that survives a kill."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import copy_context
from pathlib import Path

import polars as pl

from gecasmo.errors import CheckpointError
from gecasmo.estimation.parts.array_files import (
    read_arrays,
    read_numbers,
    write_arrays,
    write_numbers,
)
from gecasmo.estimation.parts.journal import Journal
from gecasmo.estimation.parts.part import Part, Point, Points
from gecasmo.estimation.parts.passes import run_pass
from gecasmo.estimation.parts.storing import Blueprint, StoredPart, set_up
from gecasmo.estimation.parts.tasks import Answer, Task, combined
from gecasmo.kernels.running import default_threads
from gecasmo.logs.store.disk import telling_full_disk

# Parts that take no more than this in all stay in memory from one pass to the next.
_KEPT_BYTES = 256 * 2**20


class PartFiles:
    """The folder with the parts of a fit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, stored: StoredPart) -> int:
        """Keep a part; how many bytes that takes."""
        own = self.folder / f"{stored.words['number']:05d}"
        own.mkdir(parents=True, exist_ok=True)
        with _telling_full_disk(own):
            n_bytes = 0
            for number, _, _ in stored.words["begin"]:
                path = own / f"rows{number}.arrow"
                stored.rows(number).write_ipc(path)
                n_bytes += path.stat().st_size
            return n_bytes + write_arrays(own, stored.arrays, stored.words)

    def n_bytes(self) -> int:
        """What all parts take."""
        return sum(path.stat().st_size for path in self.folder.rglob("*.npy"))

    def read(self, number: int) -> StoredPart:
        """A part, most of it not yet read."""
        own = self.folder / f"{number:05d}"
        arrays, words = read_arrays(own)
        return StoredPart(words, arrays, lambda coin: _rows(own / f"rows{coin}.arrow"))


def _rows(path: Path) -> pl.DataFrame:
    try:
        return pl.read_ipc(path)
    except (OSError, pl.exceptions.PolarsError) as problem:
        raise CheckpointError(
            f"{path} is damaged ({problem}). Remove the folder of this fit, and fit again."
        ) from None


class DiskParts:
    """Runs passes over parts in files.

    Parameters
    ----------
    folder : of the fit; it has the parts in `parts`, points in `points`, answers in `journal`
    numbers : of the parts
    blueprint : what parts have in common
    n_rows : for each shared coin, how many rows there are in all
    threads : how many parts are worked on at once; the answer does not depend on it
    """

    def __init__(
        self,
        folder: Path,
        numbers: list[int],
        blueprint: Blueprint,
        n_rows: Mapping[int, int],
        threads: int | None = None,
    ) -> None:
        self.folder, self.numbers, self.blueprint = folder, numbers, blueprint
        self.n_rows, self.threads = n_rows, threads
        self.files = PartFiles(folder / "parts")
        self._kept: dict[int, Part] = {}
        self._is_small = self.files.n_bytes() <= _KEPT_BYTES
        self.journal = Journal(folder / "journal")
        self.n_passes = 0

    @property
    def n_parts(self) -> int:
        return len(self.numbers)

    def run(self, task: Task) -> Answer:
        # Nobody can ask for these any more, also when this pass is cut short and run again.
        for name in task.forget:
            shutil.rmtree(self._point(name), ignore_errors=True)
        if self.n_passes < self.journal.n_written:
            answer = self.journal.read(self.n_passes, task)
        else:
            with _telling_full_disk(self.folder):
                if task.name:
                    self._point(task.name).mkdir(parents=True, exist_ok=True)
                answer = self.ask(task)
                self.journal.write(task, answer)
        self.n_passes += 1
        return answer

    def ask(self, task: Task) -> Answer:
        """Run one pass of which nothing is noted."""
        return combined(self._all_parts(task))

    def part(self, number: int, threads: int = 1) -> Part:
        """One part in memory; it is in the hands of one thread at a time."""
        part = self._kept.get(number)
        if part is None:
            part = set_up(self.files.read(number), self.blueprint, self.n_rows, threads)
            if self._is_small:
                self._kept[number] = part
        return part

    def points(self, number: int, names: set[str]) -> Points:
        """Some points of one part."""
        found = {}
        for name in names:
            arrays = read_numbers(self._point(name) / f"{number:05d}.numbers")
            found[name] = Point.from_arrays(arrays)
        return found

    def _all_parts(self, task: Task) -> Iterator[Answer]:
        """The answers of the parts, in their order."""
        threads = self.threads or default_threads()
        at_once = min(threads, self.n_parts)
        inside = max(1, threads // max(at_once, 1))
        if at_once == 1:
            yield from (self._one_part(number, task, inside) for number in self.numbers)
            return
        with ThreadPoolExecutor(max_workers=at_once) as pool:
            # Threads of a pool have settings of their own unless they are given these.
            calls = deque(
                pool.submit(copy_context().run, self._one_part, number, task, inside)
                for number in self.numbers
            )
            try:
                while calls:
                    yield calls.popleft().result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _one_part(self, number: int, task: Task, threads: int) -> Answer:
        names = {name for name in (task.recipe.of, task.recipe.start) if name}
        points, answer = run_pass(self.part(number, threads), self.points(number, names), task)
        if task.name:
            path = self._point(task.name) / f"{number:05d}.numbers"
            write_numbers(path, points[task.name].arrays())
        return answer

    def _point(self, name: str) -> Path:
        return self.folder / "points" / name


def _telling_full_disk(folder: Path) -> AbstractContextManager[None]:
    advice = "make room and fit again with the same checkpoint folder."
    return telling_full_disk(folder, CheckpointError, None, advice)
