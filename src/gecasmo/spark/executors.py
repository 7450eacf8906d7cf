"""What executors do in a fit: make parts, run passes over them, and write the rows at the end.

Between passes everything is in the folder that executors share: parts, the keys of their rows, and
the points where their coins stand. A function here reads what it needs and writes what it made, so
that it can be run again by another executor with the same outcome.
"""

from __future__ import annotations

import importlib
import tempfile
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo.encoding import Rows
from gecasmo.errors import NothingLeftError
from gecasmo.estimation.packets import pack
from gecasmo.estimation.part import Part, Point, Points
from gecasmo.estimation.part_files import PartArrays, set_up, take_down
from gecasmo.estimation.passes import finished, run_pass
from gecasmo.estimation.posteriors.sample import PAGES
from gecasmo.estimation.tasks import Answer, Recipe, Task
from gecasmo.forms import TableState
from gecasmo.forms.parted_table import PartFile, write_part
from gecasmo.hashes import hash_values
from gecasmo.kernels.threads import using_threads
from gecasmo.logs import Note
from gecasmo.model.base import Impossible
from gecasmo.model.log_parts import part_view
from gecasmo.model.part_builder import Settings, blueprint_of, build_part
from gecasmo.spark.frame_log import FrameReading
from gecasmo.spark.messages import telling_damage, unpacked
from gecasmo.spark.session import SparkError
from gecasmo.spark.shipped_model import ShippedModel, plain_rows

# Parts that a worker keeps decoded from one task to the next, by number and by bytes.
_MOST_PARTS = 4
_MOST_BYTES = 512 * 2**20

# A sample of the log never takes more pages of a part than this, which are about so many rows.
_FIRST_PAGES = 2 * PAGES
_RESULTS_ON_A_PAGE = 10

# What was written of a coin in one part: the file, and its content unless it is in a folder.
Written = Mapping[int, tuple[PartFile, bytes]]


class SharedFolder:
    """The folder that executors have in common, named by a path, or by an address such as
    s3://bucket/folder; the driver only knows its name. What is in it are packets.

    A file is there as a whole or not at all, and may be written again with the same content: Spark
    runs a task again whose executor was lost, and sometimes two at once.
    """

    def __init__(self, address: str) -> None:
        files: Any = importlib.import_module("pyarrow.fs")
        self.address = address
        try:
            self._files, self._root = files.FileSystem.from_uri(address)
        except (ValueError, OSError) as problem:
            raise SparkError(
                f"scratch={address!r} is neither the full path of a folder nor an address that "
                f"PyArrow knows: {problem}"
            ) from None

    def write(self, name: str, value: Any) -> None:
        """Write a value into a file; the folders above it are made."""
        path = f"{self._root}/{name}"
        own = f"{path}-{uuid.uuid4().hex}"
        try:
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
            with self._files.open_output_stream(own) as file:
                file.write(pack(value))
            self._files.move(own, path)
        except OSError as problem:
            raise SparkError(f"{self.address}/{name} cannot be written: {problem}") from None

    def read(self, name: str) -> Any:
        """Read the value of a file; arrays may be written to."""
        try:
            with self._files.open_input_file(f"{self._root}/{name}") as file:
                data = bytearray(file.size())
                n_bytes = file.readinto(data)
        except FileNotFoundError:
            raise SparkError(
                f"An executor does not find {self.address}/{name}, which another one has written. "
                "The state of a fit has to be in a folder that all executors have in common: name "
                "one with scratch=."
            ) from None
        except OSError as problem:
            raise SparkError(f"{self.address}/{name} cannot be read: {problem}") from None
        if n_bytes != len(data):
            raise SparkError(f"{self.address}/{name} was cut short while it was read.")
        return unpacked(data, f"{self.address}/{name}")

    def remove(self, name: str = "") -> None:
        """Remove a file, or without a name the folder, if it is there."""
        try:
            if name:
                self._files.delete_file(f"{self._root}/{name}")
            else:
                self._files.delete_dir(self._root)
        except FileNotFoundError:
            pass


@dataclass(frozen=True)
class Job:
    """What executors know of a fit.

    Parameters
    ----------
    model : as data
    method : how it is fitted
    start : another model to begin at; for making parts only
    impossible : what to do with pages that cannot happen
    local : numbers of the coins whose rows live with their part
    reading : how rows become pages
    folder : that executors share
    threads : that a task may use
    probe : a file in the folder of the model, by which executors tell that they reach it
    n_rows : for each global coin, how many rows there are in all; known after all parts are made
    """

    model: ShippedModel
    method: Any
    start: ShippedModel | None
    impossible: Impossible
    local: tuple[int, ...]
    reading: FrameReading
    folder: str
    threads: int = 1
    probe: str | None = None
    n_rows: Mapping[int, int] = field(default_factory=dict)

    def for_passes(self, n_rows: Mapping[int, int]) -> Job:
        """The same without what only making parts needs: this travels with every pass."""
        return replace(self, model=self.model.bare(), start=None, n_rows=n_rows)


@dataclass(frozen=True)
class MadePart:
    """What the driver hears of a part that was made; one without results has no files."""

    shared: Mapping[int, Rows]
    n_read: int
    n_sessions: int
    n_results: int
    weight: float
    n_dropped: int
    n_floored: int
    notes: tuple[Note, ...]


# -- making parts ------------------------------------------------------------------------------
def make_part(job: Job, number: int, table: pl.DataFrame) -> MadePart:
    """Encode a partition of the log for a model."""
    check_probe(job.probe)
    with using_threads(job.threads):
        log = job.reading.log(table, number)
        start = None
        if job.start is not None:
            start = part_view(job.start.model(), number, job.reading.n_parts)
        settings = Settings(job.method, start, job.impossible)
        try:
            built = build_part(job.model.model(), number, log, job.local, settings)
        except NothingLeftError:
            # All its pages are impossible; those of other parts may not be.
            return MadePart({}, log.n_sessions, 0, 0, 0.0, log.n_sessions, 0, log.notes)
    encoded = built.part.expectation.encoded
    made = MadePart(
        {coin: plain_rows(rows) for coin, rows in built.shared.items()},
        log.n_sessions,
        log.n_sessions - built.n_dropped,
        encoded.n_results,
        built.part.n_pages,
        built.n_dropped,
        built.n_floored,
        log.notes,
    )
    if not encoded.n_results:
        return replace(made, shared={})
    stored = take_down(built.part)
    folder = SharedFolder(job.folder)
    folder.write(f"{number}/first", first_pages(job.reading, table, _FIRST_PAGES))
    for coin in job.local:
        folder.write(f"{number}/rows{coin}", stored.rows(coin))
    folder.write(f"{number}/part", (stored.words, stored.arrays))
    return made


def first_pages(reading: FrameReading, table: pl.DataFrame, most: int) -> pl.DataFrame:
    """The first pages of a partition by the hash of their query, up to so many and the end of the
    last query, as rows in that order."""
    hashes = hash_values(reading.values(table))
    order = np.argsort(hashes, kind="stable")
    n_rows = most * _RESULTS_ON_A_PAGE
    if len(order) > n_rows:
        last = hashes[order[n_rows - 1]]
        order = order[hashes[order] <= last]
    return table.select(pl.all().gather(pl.Series(order)))


def in_short(places: Any) -> Any:
    """Where rows are among all: the first place, if they stand there one after the other."""
    if not len(places):
        return 0
    return int(places[0]) if (np.diff(places) == 1).all() else places


def check_probe(probe: str | None) -> None:
    """Tell an executor that does not reach the folder of the model."""
    if probe is not None and not Path(probe).exists():
        raise SparkError(
            f"An executor does not reach {Path(probe).parent}, where the model is to be written. "
            "path= must be a folder that driver and executors have in common."
        )


# -- passes ------------------------------------------------------------------------------------
def pass_over(job: Job, number: int, task: Task) -> Answer:
    """Run one pass over one part, and keep its new point."""
    folder = SharedFolder(job.folder)
    for name in task.forget:  # nobody asks for these, also when this task is run again
        folder.remove(_point(number, name))
    part = decoded(job, number)
    points = points_of(folder, part, task.recipe)
    with using_threads(job.threads):
        after, answer = run_pass(part, points, task)
    if task.name:
        folder.write(_point(number, task.name), after[task.name].arrays())
    return answer


def points_of(folder: SharedFolder, part: Part, recipe: Recipe) -> Points:
    """The points of a part that a recipe asks for."""
    found = {}
    for name in filter(None, {recipe.of, recipe.start}):
        file = _point(part.number, name)
        arrays = folder.read(file)
        with telling_damage(f"{folder.address}/{file}"):
            found[name] = Point.from_arrays(arrays)
            found[name].check({coin: len(state.rows) for coin, state in part.local.items()})
    return found


def _point(number: int, name: str) -> str:
    return f"{number}/point-{name}"


def decoded(job: Job, number: int) -> Part:
    """A part, from memory if this worker has seen it lately."""
    place = (job.folder, number)
    if place in _parts:
        _parts.move_to_end(place)
        return _parts[place][0]
    folder = SharedFolder(job.folder)
    with telling_damage(f"{job.folder}/{number}/part"):
        words, arrays = folder.read(f"{number}/part")
        for coin, places in folder.read(f"{number}/index").items():
            if isinstance(places, int):
                places = places + np.arange(words["n_rows"][coin])
            arrays[f"index.{coin}"] = places
        # Most passes do without the keys of rows.
        stored = PartArrays(words, arrays, lambda coin: _rows(folder, number, coin, words))
        blueprint = blueprint_of(job.model.model(), job.method.augmentation)
        part = set_up(stored, blueprint, job.n_rows, job.threads)
    _parts[place] = part, stored.n_bytes
    while len(_parts) > _MOST_PARTS or sum(size for _, size in _parts.values()) > _MOST_BYTES:
        _parts.popitem(last=False)
    return part


def _rows(folder: SharedFolder, number: int, coin: int, words: Mapping[str, Any]) -> pl.DataFrame:
    frame: pl.DataFrame = folder.read(f"{number}/rows{coin}")
    with telling_damage(f"{folder.address}/{number}/rows{coin}"):
        if len(frame) != words["n_rows"][coin] or frame.columns != words["keys"][coin]:
            raise ValueError("it is of other rows")
    return frame


_parts: OrderedDict[tuple[str, int], tuple[Part, int]] = OrderedDict()


# -- the end -----------------------------------------------------------------------------------
def write_rows(job: Job, number: int, task: Task, model_folder: str | None) -> Written:
    """Write the rows of the local coins of a part as files of a saved model."""
    part = decoded(job, number)
    points = points_of(SharedFolder(job.folder), part, task.recipe)
    with using_threads(job.threads):
        states, counts = finished(part, points, task)
    return {
        coin: write_state(model_folder, coin, number, state, counts.tables[coin])
        for coin, state in states.items()
    }


def write_state(
    folder: str | None, coin: int, part: int, state: TableState, counts: Any
) -> tuple[PartFile, bytes]:
    """Write the rows of one coin in one part; without a folder, into bytes."""
    if folder is not None:
        return write_part(folder, coin, part, state, counts), b""
    with tempfile.TemporaryDirectory(prefix="gecasmo-") as own:
        file = write_part(own, coin, part, state, counts)
        return file, (Path(own) / file.name).read_bytes()
