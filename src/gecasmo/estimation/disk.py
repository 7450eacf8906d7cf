"""Parts in files: a few of them in memory at a time, and progress that survives a kill.

A fit is a conversation: the driver asks, the parts answer. With the answers written down, the
driver can be run again from the start, and finds itself where it was without a single pass being
repeated.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path

import numpy as np

from gecasmo.errors import CheckpointError
from gecasmo.estimation.packets import write_packet
from gecasmo.estimation.part import Part, Point, Points
from gecasmo.estimation.part_files import (
    Blueprint,
    PartFiles,
    read_kept,
    set_up,
    telling_damage,
    telling_full_disk_of_fit,
)
from gecasmo.estimation.passes import run_pass
from gecasmo.estimation.tasks import Answer, Task, combined
from gecasmo.files import synced
from gecasmo.forms.priors import Priors
from gecasmo.kernels.threads import default_threads

# Parts that take no more than this in all stay in memory from one pass to the next.
_KEPT_BYTES = 256 * 2**20


class DiskParts:
    """Runs passes over parts in files.

    Parameters
    ----------
    folder : of the fit; it has the parts in `parts`, points in `points`, answers in `journal`
    numbers : of the parts
    blueprint : what parts have in common
    n_rows : for each global coin, how many rows there are in all
    threads : how many parts are worked on at once; the answer does not depend on it
    is_noted : whether answers are written down; not for methods that do not ask the same twice
    is_kept : whether the folder outlives the process, and so should outlive a power cut
    """

    def __init__(
        self,
        folder: Path,
        numbers: list[int],
        blueprint: Blueprint,
        n_rows: Mapping[int, int],
        threads: int | None = None,
        is_noted: bool = True,
        is_kept: bool = True,
    ) -> None:
        self.folder, self.numbers, self.blueprint = folder, numbers, blueprint
        self.n_rows, self.threads, self.is_kept = n_rows, threads, is_kept
        self.files = PartFiles(folder / "parts", is_kept)
        self._kept: dict[int, Part] = {}
        self._known: set[int] = set()  # parts whose checksums this process has looked at
        self._is_small = self.files.n_bytes() <= _KEPT_BYTES
        self.journal = Journal(folder / "journal", is_kept) if is_noted else None
        self.n_passes = 0

    @property
    def n_parts(self) -> int:
        """Number of parts."""
        return len(self.numbers)

    def run(self, task: Task) -> Answer:
        """Run one pass, or remember what an earlier run of the same fit was answered."""
        if self.journal is None:
            return combined(self._all_parts(task))
        # Nobody can ask for these any more, also when this pass is cut short and run again.
        for name in task.forget:
            shutil.rmtree(self._point(name), ignore_errors=True)
        if self.n_passes < self.journal.n_written:
            answer = self.journal.read(self.n_passes, task)
        else:
            with telling_full_disk_of_fit(self.folder):
                if task.name:
                    self._point(task.name).mkdir(parents=True, exist_ok=True)
                answer = combined(self._all_parts(task))
                if task.name and self.is_kept:
                    synced(self._point(task.name))
                    synced(self.folder / "points")
                self.journal.write(task, answer)
        self.n_passes += 1
        return answer

    def part(self, number: int, threads: int = 1) -> Part:
        """One part in memory; it is in the hands of one thread at a time."""
        part = self._kept.get(number)
        if part is None:
            is_known = number in self._known
            stored = self.files.read(number, is_known)
            with telling_damage(self.files.folder / f"{number:05d}"):
                part = set_up(stored, self.blueprint, self.n_rows, threads, is_known)
                if part.number != number:
                    raise ValueError("it is another part")
            self._known.add(number)
            if self._is_small:
                self._kept[number] = part
        return part

    def points(self, part: Part, names: set[str]) -> Points:
        """Some points of one part."""
        found = {}
        for name in names:
            path = self._point(name) / f"{part.number:05d}.packet"
            with telling_damage(path):
                found[name] = Point.from_arrays(read_kept(path))
                found[name].check({n: len(part.coins[n].rows) for n in part.local})
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
        part = self.part(number, threads)
        points, answer = run_pass(part, self.points(part, names), task)
        if task.name:
            path = self._point(task.name) / f"{number:05d}.packet"
            write_packet(path, points[task.name].arrays(), self.is_kept)
        return answer

    def _point(self, name: str) -> Path:
        return self.folder / "points" / name


class Journal:
    """A folder with one file a pass: a checksum, and arrays as NumPy zips them."""

    def __init__(self, folder: Path, is_kept: bool = True) -> None:
        self.folder, self.is_kept = folder, is_kept
        folder.mkdir(parents=True, exist_ok=True)
        self.n_written = 0
        while self._path(self.n_written).exists():
            self.n_written += 1

    def read(self, number: int, task: Task) -> Answer:
        """The answer to a task that was asked before."""
        answer: Answer
        with telling_damage(self._path(number)):
            asked, answer = read_kept(self._path(number))
        if asked != digest(task) or not isinstance(answer, Answer):
            raise CheckpointError(
                f"{self.folder.parent} holds a fit that took another course at pass {number}: "
                f"another "
                "version of gecasmo or of a library may have made it. Remove it, and fit again."
            )
        return answer

    def write(self, task: Task, answer: Answer) -> None:
        """Note the answer to the next task."""
        path = self._path(self.n_written)
        temporary = path.with_suffix(".part")
        write_packet(temporary, (digest(task), answer), self.is_kept)
        temporary.replace(path)
        if self.is_kept:
            synced(self.folder)
        self.n_written += 1

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.packet"


def digest(task: Task) -> str:
    """A number for what is asked, whatever is to be forgotten on the way."""
    found = hashlib.blake2b(digest_size=16)
    found.update(repr((task.recipe, task.name, task.ahead, task.work)).encode())
    for number, weights in sorted(task.shared.items()):
        found.update(
            repr((number, weights.shape)).encode() + np.ascontiguousarray(weights).tobytes()
        )
    for number, prior in sorted(task.priors.items()):
        if isinstance(prior, Priors):
            found.update(repr((number, [one.name for one in prior.smooths])).encode())
            arrays = [prior.slopes, *(one.knots for one in prior.smooths)]
            arrays += [side for one in prior.effects for side in (one.mean, one.variance)]
            for array in arrays:
                found.update(np.ascontiguousarray(array).tobytes())
        else:
            found.update(repr((number, *(prior or ()))).encode())
    for name, value in sorted(task.extra.items()):
        found.update(name.encode())
        found.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return found.hexdigest()
