"""`fit`: a model fitted to a Spark data frame, whose pages and rows stay with the executors.

One shuffle makes the parts from a data frame. From then on Spark is asked for nothing but to run a
function for every part; what parts keep from one pass to the next is in a folder that executors
share. Only a sample comes into the memory of the driver: some pages, with all pages of their
queries.
"""

from __future__ import annotations

import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo.encoding.shared_rows import SharedRows
from gecasmo.errors import GecasmoWarning, ImpossibleSessionError, ModelError, SavedModelError
from gecasmo.estimation import EM, VB
from gecasmo.estimation.coins import Evaluated
from gecasmo.estimation.posteriors.sample import PAGES, SampledPages
from gecasmo.estimation.tasks import Answer, Task, combined
from gecasmo.forms import TableState
from gecasmo.forms.parted_table import FolderSource, PartedTable, RowFiles
from gecasmo.logs import ClickLog
from gecasmo.model.base import Impossible, Model
from gecasmo.model.fit import FitRows, check_settings, fit_source, tell_remarks
from gecasmo.model.log_parts import require_pages
from gecasmo.model.part_builder import (
    Settings,
    local_coins,
    parted_problem,
    refuse_page_readers,
)
from gecasmo.model.solution import progress_bar
from gecasmo.model.stored_fit import sample_of
from gecasmo.spark.executors import (
    Job,
    MadePart,
    SharedFolder,
    Written,
    in_short,
    make_part,
    pass_over,
    write_rows,
    write_state,
)
from gecasmo.spark.frame_log import FrameLog, open_log, tell_notes
from gecasmo.spark.messages import ask_parts, telling_damage
from gecasmo.spark.session import SparkError, require_frame
from gecasmo.spark.shipped_model import ShippedModel

# Of so many pages a sample is drawn.
_FETCHED_PAGES = 2 * PAGES


def fit(
    model: Model,
    dataframe: Any,
    method: EM | VB | None = None,
    *,
    session: str | Sequence[str] | None = "session",
    query: str | None = "query",
    doc: str | Sequence[str] = "doc",
    rank: str | None = "rank",
    click: str | None = "click",
    weight: str | None = None,
    partitions: int | None = None,
    path: Any = None,
    scratch: Any = None,
    start: Model | None = None,
    features: Mapping[str, Any] | None = None,
    impossible: Impossible = "raise",
    intervals: bool = True,
    progress: bool | None = None,
    check: bool = True,
) -> Model:
    """Fit a model to a Spark data frame.

    The log is shuffled once, so that all pages of a query are in one partition, and kept there as
    the arrays that kernels read. What belongs to a query stays with it: in every iteration only
    the coins that all queries share, and a few numbers, go to the driver and back. The answer is
    that of `model.fit`.

    Parameters
    ----------
    model : Model
    dataframe : Spark data frame
    method : EM or VB, optional
        With VB the driver holds all rows; pages stay with the executors.
    session, query, doc, rank, click, weight, partitions, check
        How it is read, as `open_log` says.
    path : folder, optional
        One that driver and executors reach under the same name. The rows of the fit are written
        there by the executors, and the folder is the saved model. Without it all rows are brought
        to the driver, whose memory must hold them.
    scratch : folder, optional
        One that all executors reach, as a path or as an address such as "s3://bucket/tmp". The
        state of the fit is there between passes, and is removed at the end. By default it is in
        the folder of `path`, else in that of Spark's setting `spark.checkpoint.dir`, else, if
        Spark runs on a single machine, in the one for temporary files.
    start, features, impossible, intervals, progress
        As for `model.fit`.

    Returns
    -------
    The model itself, fitted.
    """
    settings = Settings(EM() if method is None else method, start, impossible)
    _check(model, dataframe, settings, features)
    require_pages(model)
    refuse_page_readers(model)
    began = time.perf_counter()
    work = model.with_features(**features) if features else model
    columns: Any = {"session": session, "query": query, "doc": doc, "rank": rank, "click": click}
    log = open_log(dataframe, **columns, weight=weight, partitions=partitions, check=check)
    spark = dataframe.sparkSession
    with results_at(path, log.reading.n_parts) as results:
        with scratch_folder(spark, folder_for(spark, scratch, results.folder)) as folder:
            parts = SparkSource(work, log, settings, results, folder)
            with progress_bar(model.name, progress) as show:
                fit_source(model, parts, settings.method, show, intervals)
    model.features_ = work.features_
    assert model.report_ is not None
    model.report_.seconds = time.perf_counter() - began
    if results.folder is not None:
        model.save(results.folder, folder=True)
    tell_remarks(model)
    return model


def _check(model: Any, dataframe: Any, settings: Settings, features: Any) -> None:
    if not isinstance(model, Model):
        raise ModelError(f"gecasmo.spark.fit takes a model such as DBN(), not {model!r}.")
    require_frame(dataframe)
    method, start = settings.method, settings.start
    if not isinstance(method, (EM, VB)):
        kind = type(method).__name__
        raise ModelError(f"method={kind}: a log on a cluster is fitted by EM(...) or VB(...).")
    if start is not None and not (isinstance(start, Model) and start.is_fitted):
        raise ModelError(f"start={start!r}: a fitted model is wanted, or with_values(...).")
    check_settings(settings, features)


class SparkParts:
    """Runs passes over the parts with these numbers.

    An executor that is lost takes nothing with it but the task it was at, which Spark gives to
    another one.
    """

    # A test puts something here that kills its own process.
    work = staticmethod(pass_over)

    def __init__(self, spark: Any, job: Job, numbers: Sequence[int]) -> None:
        self.spark, self.job, self.numbers = spark, job, numbers

    @property
    def n_parts(self) -> int:
        """How many parts there are."""
        return len(self.numbers)

    def run(self, task: Task) -> Answer:
        """Run one pass, and add up the answers in the order of the parts."""
        job, work = self.job, self.work
        heard = ask_parts(self.spark, self.numbers, lambda n: work(job, n, task))
        counted = {} if task.work == "places" else job.n_rows  # where documents are counts nothing
        for number, answer in heard.items():
            with telling_damage(f"The answer of part {number}"):
                answer.check(counted)
        return combined(heard.values())


class SparkSource:
    """A data frame of a cluster: its parts stay with the executors."""

    def __init__(
        self, model: Model, log: FrameLog, settings: Settings, results: Results, folder: str
    ) -> None:
        self.model, self.results = model, results
        # Other methods than EM move all parameters at once, and so have them all on the driver.
        is_em = isinstance(settings.method, EM)
        self.local = local_coins(model, bool(log.columns["query"])) if is_em else []
        start, spark = settings.start, log.frame.sparkSession
        job = Job(
            ShippedModel.of(model, with_states=False),
            settings.method,
            None if start is None else ShippedModel.of(start),
            settings.impossible,
            tuple(self.local),
            log.reading,
            folder,
            int(spark.conf.get("spark.task.cpus", "1")),
            results.probe,
        )
        made: dict[int, MadePart] = log.ask(model, lambda n, table: make_part(job, n, table))
        tell_notes(part.notes for part in made.values())
        numbers = [number for number, part in made.items() if part.n_results]
        if not numbers:
            raise ImpossibleSessionError(
                f"All pages are impossible under {model.name}: nothing is left to fit."
            )
        # The rows of global coins over all parts; parts are told where theirs are among them.
        coins = list(model.forms)
        shared = {n: SharedRows(coins[n]) for n in range(len(coins)) if n not in self.local}
        index = {
            number: {n: in_short(shared[n].add(own)) for n, own in made[number].shared.items()}
            for number in numbers
        }
        ask_parts(spark, numbers, lambda n: SharedFolder(folder).write(f"{n}/index", index[n]))
        rows = {n: own.rows() for n, own in shared.items()}
        job = job.for_passes({n: len(own) for n, own in rows.items()})
        self.parts = SparkParts(spark, job, numbers)
        weight = sum(part.weight for part in made.values())
        self.problem = parted_problem(model, self.parts, self.local, rows, weight, settings)
        self._drawn: Any = None
        if is_em:
            sizes = {number: made[number].n_read for number in numbers}
            pages: Any = FirstPages(spark, job, sizes)
            self._drawn = sample_of(model, pages, settings, self.problem, rows)
        self.n_sessions = sum(part.n_sessions for part in made.values())
        self.n_dropped = sum(part.n_dropped for part in made.values())
        self.n_floored = sum(part.n_floored for part in made.values())

    def sample(self) -> tuple[SampledPages, Mapping[str, dict[str, pl.Series]]] | None:
        """Some pages in memory, and by coin what the priors of their rows depend on."""
        return None if self._drawn is None else (self._drawn.sample, self._drawn.typical)

    def local_rows(self, best: Evaluated) -> FitRows:
        """The rows of local coins, in files; or in memory, with the counts of all rows."""
        if not self.local:
            return {}
        parts, address = self.parts, self.results.address
        job, task = parts.job, self.problem.task(best.states)
        written = ask_parts(parts.spark, parts.numbers, lambda n: write_rows(job, n, task, address))
        likely = self._drawn.sample.settled(best).states
        found: FitRows = {}
        for number, coin in enumerate(self.model.forms):
            if number in self.local:
                nothing, own = self._drawn.nothing(number), likely[number]
                table = self.results.table(number, own, nothing, written)
                found[coin] = table.whole() if self.results.folder is None else (table, None)
        return found


class FirstPages:
    """The first parts of a log on Spark, as many as a sample may want, as partitions.

    `sizes` are the pages of all parts, by number. All are fetched at once: a job of Spark's takes
    long even if it does nothing.
    """

    def __init__(self, spark: Any, job: Job, sizes: Mapping[int, int]) -> None:
        self.reading, self.n_pages = job.reading, sum(sizes.values())
        numbers, folder = sorted(sizes), job.folder
        before = np.cumsum([0, *(sizes[number] for number in numbers)])
        wanted = [n for n, done in zip(numbers, before, strict=False) if done < _FETCHED_PAGES]
        fetched = ask_parts(spark, wanted, lambda n: SharedFolder(folder).read(f"{n}/first"))
        self._tables = list(fetched.items())
        self.n_partitions = len(wanted)

    def partitions(self) -> Iterator[ClickLog]:
        """All of them, one after the other."""
        return map(self.partition, range(self.n_partitions))

    def partition(self, place: int) -> ClickLog:
        """The first pages of a part."""
        number, table = self._tables[place]
        return self.reading.log(table, number)


def folder_for(spark: Any, given: Any, model_folder: Any) -> str:
    """Choose the name of a new folder for the state of a fit.

    Parameters
    ----------
    spark : the session
    given : where the user wants it
    model_folder : where the fitted model is to be written, if that is in a folder
    """
    own = f"gecasmo-{uuid.uuid4().hex}"
    if given is not None:
        return f"{str(given).rstrip('/')}/{own}"
    if model_folder is not None:  # which executors reach, and which is new
        return f"{model_folder}/.{own}"
    known = spark.conf.get("spark.checkpoint.dir", None)
    if known:
        return f"{known.rstrip('/')}/{own}"
    if spark.conf.get("spark.master", "").startswith("local"):
        return f"{tempfile.gettempdir()}/{own}"
    raise SparkError(
        "Between passes the state of a fit is in a folder that all executors reach, and none is "
        'known. Name one, such as scratch="/shared/tmp" or scratch="s3://bucket/tmp".'
    )


@contextmanager
def scratch_folder(spark: Any, folder: str) -> Iterator[str]:
    """A folder that an executor removes in the end; that this fails does not make a fit
    worthless."""
    try:
        yield folder
    finally:
        try:
            ask_parts(spark, [0], lambda _: SharedFolder(folder).remove())
        except Exception as problem:
            warnings.warn(
                f"The folder {folder} with the state of a fit could not be removed: {problem}",
                GecasmoWarning,
                stacklevel=2,
            )


@dataclass(frozen=True)
class InMemory:
    """Files in the memory of the driver."""

    content: Mapping[str, bytes]

    def read(self, name: str) -> bytes:
        """Give the content that was sent under a name."""
        return self.content[name]

    def where(self, name: str) -> str:
        """Name a content, for messages."""
        return f"{name}, as executors sent it,"


@dataclass(frozen=True)
class Results:
    """Where rows go; `probe` is a file by which executors tell that they reach the folder."""

    n_parts: int
    folder: Path | None = None
    probe: str | None = None

    def table(
        self,
        coin: int,
        like: TableState,
        nothing: TableState,
        written: Mapping[int, Written],
    ) -> PartedTable:
        """The rows of a coin; parts without pages have none."""
        files, content = [], {}
        for part in range(self.n_parts):
            if part in written:
                one = written[part][coin]
            else:
                one = write_state(self.address, coin, part, nothing, np.zeros((2, 0)))
            files.append(one[0])
            content[one[0].name] = one[1]
        source: RowFiles = InMemory(content) if self.folder is None else FolderSource(self.folder)
        return PartedTable(like, files, source)

    @property
    def address(self) -> str | None:
        """The folder as executors are told of it."""
        return None if self.folder is None else str(self.folder)


@contextmanager
def results_at(path: Any, n_parts: int) -> Iterator[Results]:
    """Make sure that a folder can be written to, before a long fit begins."""
    if path is None:
        yield Results(n_parts)
        return
    folder = Path(path).expanduser().absolute()
    probe = folder / f".gecasmo-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(not name.name.startswith(".gecasmo-") for name in folder.iterdir()):
            raise SavedModelError(
                f"{folder} is not empty. Name a folder that does not exist yet, or remove it."
            )
        probe.touch()
    except OSError as problem:
        raise SavedModelError(
            f"{folder} cannot be written to: {problem.strerror or problem}."
        ) from None
    try:
        yield Results(n_parts, folder, str(probe))
    finally:
        probe.unlink(missing_ok=True)
