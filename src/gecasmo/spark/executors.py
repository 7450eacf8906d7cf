"""What executors do in a fit: make parts, run passes over them, and write the rows at the end.

Between passes everything is in the folder that executors share: parts, the keys of their rows, and
the points where their coins stand. A function here reads what it needs and writes what it made, so
that it can be run again by another executor with the same outcome.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import Rows
from gecasmo.encoding.match import match
from gecasmo.errors import NothingLeftError
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
from gecasmo.spark.messages import pack, unpack
from gecasmo.spark.session import SparkError
from gecasmo.spark.shared_folder import SharedFolder
from gecasmo.spark.shipped_model import ShippedModel, plain_rows
from gecasmo.spark.source import FrameReading

Integers = NDArray[np.int64]

# Parts that a worker keeps decoded from one task to the next, by number and by bytes.
_MOST_PARTS = 4
_MOST_BYTES = 512 * 2**20

# A sample of the log never takes more pages of a part than this, which are about so many rows.
_FIRST_PAGES = 2 * PAGES
_RESULTS_ON_A_PAGE = 10

# What was written of a coin in one part: the file, and its content unless it is in a folder.
Written = Mapping[int, tuple[PartFile, bytes]]


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


@dataclass(frozen=True)
class Placement:
    """All rows of the coins that parts share, so that each part finds its own among them.

    Results are counted in each part anew; of coins that have a row for each, `first` says by
    coin and part where those of the part begin.
    """

    rows: Mapping[int, Rows]
    first: Mapping[int, Mapping[int, int]]

    def index(self, number: int, own: Mapping[int, Rows]) -> dict[int, Integers]:
        """For each global coin the places of the rows of a part."""
        found = {}
        for coin, rows in own.items():
            if coin in self.first:
                found[coin] = self.first[coin][number] + np.arange(len(rows))
            elif rows.keys:
                found[coin] = match(rows.frame, self.rows[coin].frame, rows.keys)
            else:
                found[coin] = np.arange(len(rows))
        return found


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
    folder.write(f"{number}/first", pack(first_pages(job.reading, table, _FIRST_PAGES)))
    folder.write(f"{number}/shared", pack(made.shared))
    for coin in job.local:
        folder.write(f"{number}/rows{coin}", pack(stored.rows(coin)))
    folder.write(f"{number}/part", pack((stored.words, stored.arrays)))
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


def place_part(job: Job, number: int, placement: Placement) -> None:
    """Note where the rows of a part are among all rows of the coins that parts share."""
    folder = SharedFolder(job.folder)
    own = unpack(folder.read(f"{number}/shared"))
    folder.write(f"{number}/index", pack(placement.index(number, own)))


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
    part, points = decoded(job, number), points_of(folder, number, task.recipe)
    with using_threads(job.threads):
        after, answer = run_pass(part, points, task)
    if task.name:
        folder.write(_point(number, task.name), pack(after[task.name].arrays()))
    return answer


def points_of(folder: SharedFolder, number: int, recipe: Recipe) -> Points:
    """The points of a part that a recipe asks for."""
    names = {name for name in (recipe.of, recipe.start) if name}
    return {name: Point.from_arrays(unpack(folder.read(_point(number, name)))) for name in names}


def _point(number: int, name: str) -> str:
    return f"{number}/point-{name}"


def decoded(job: Job, number: int) -> Part:
    """A part, from memory if this worker has seen it lately."""
    place = (job.folder, number)
    if place in _parts:
        _parts.move_to_end(place)
        return _parts[place][0]
    folder = SharedFolder(job.folder)
    words, arrays = unpack(folder.read(f"{number}/part"))
    arrays |= {f"index.{n}": index for n, index in unpack(folder.read(f"{number}/index")).items()}
    # Most passes do without the keys of rows.
    stored = PartArrays(words, arrays, lambda coin: unpack(folder.read(f"{number}/rows{coin}")))
    blueprint = blueprint_of(job.model.model(), job.method.augmentation)
    part = set_up(stored, blueprint, job.n_rows, job.threads)
    _parts[place] = part, stored.n_bytes
    while len(_parts) > _MOST_PARTS or sum(size for _, size in _parts.values()) > _MOST_BYTES:
        _parts.popitem(last=False)
    return part


_parts: OrderedDict[tuple[str, int], tuple[Part, int]] = OrderedDict()


# -- the end -----------------------------------------------------------------------------------
def write_rows(job: Job, number: int, task: Task, model_folder: str | None) -> Written:
    """Write the rows of the local coins of a part as files of a saved model."""
    part, points = decoded(job, number), points_of(SharedFolder(job.folder), number, task.recipe)
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
