"""`fit`: a model fitted to a Spark data frame, whose pages and rows stay with the executors.

Only a sample comes into the memory of the driver: some pages, with all pages of their queries.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo.errors import ImpossibleSessionError, ModelError, SavedModelError
from gecasmo.estimation import EM
from gecasmo.estimation.coins import Evaluated
from gecasmo.estimation.posteriors.sample import SampledPages
from gecasmo.forms import TableState
from gecasmo.forms.parted_table import FolderSource, PartedTable, RowFiles
from gecasmo.model.base import Impossible, Model
from gecasmo.model.fit import FitRows, fit_source, tell_remarks
from gecasmo.model.part_builder import Settings, local_coins, parted_problem
from gecasmo.model.solution import progress_bar
from gecasmo.model.stored_fit import sample_of
from gecasmo.spark.answers import roles_of
from gecasmo.spark.executors import Job, Written, write_state
from gecasmo.spark.runner import SparkRunner, remove_folder
from gecasmo.spark.session import require_frame
from gecasmo.spark.shared_folder import folder_for
from gecasmo.spark.shipped_model import ShippedModel
from gecasmo.spark.source import FrameSource, open_source


def fit(
    model: Model,
    dataframe: Any,
    method: EM | None = None,
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
        One row a result, or one a page with lists of results.
    method : EM, optional
    session, query, doc, rank, click, weight
        Its columns, as for `read_log`. Rows of a data frame have no order, so `rank` is needed
        unless there is one row a page.
    partitions : int, optional
        How many, a power of two up to 65536. By default so many that one has about ten million
        results, and every core has one.
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
    check : bool
        Look for sessions with several queries, which takes a second, smaller shuffle. Without it
        the parts of such a session count as pages of their own.

    Returns
    -------
    The model itself, fitted.
    """
    method = EM() if method is None else method
    _check(model, dataframe, method, start, features, impossible)
    began = time.perf_counter()
    work = model.with_features(**features) if features else model
    roles = roles_of(session, query, doc, rank, click, weight)
    source = open_source(dataframe, roles, work, partitions, check=check)
    results = Results.at(path, source.reading.n_parts)
    try:
        spark = dataframe.sparkSession
        folder = folder_for(spark, scratch, results.folder)
        try:
            parts = SparkSource(work, source, Settings(method, start, impossible), results, folder)
            with progress_bar(model.name, progress) as show:
                fit_source(model, parts, method, show, intervals)
        finally:
            remove_folder(spark, folder)
    finally:
        results.tidy()
    model.features_ = work.features_
    assert model.report_ is not None
    model.report_.seconds = time.perf_counter() - began
    if results.folder is not None:
        model.save(results.folder, folder=True)
    tell_remarks(model)
    return model


class SparkSource:
    """A data frame of a cluster: its parts stay with the executors."""

    def __init__(
        self,
        model: Model,
        source: FrameSource,
        settings: Settings,
        results: Results,
        folder: str,
    ) -> None:
        self.model, self.results = model, results
        self.local = local_coins(model, source.has_query)
        start, spark = settings.start, source.frame.sparkSession
        job = Job(
            ShippedModel.of(model, with_states=False),
            settings.method,
            None if start is None else ShippedModel.of(start),
            settings.impossible,
            tuple(self.local),
            source.reading,
            folder,
            int(spark.conf.get("spark.task.cpus", "1")),
            results.probe,
        )
        self.runner = SparkRunner(source, job, list(model.forms))
        if not self.runner.numbers:
            raise ImpossibleSessionError(
                f"All pages are impossible under {model.name}: nothing is left to fit."
            )
        made, rows = self.runner.made.values(), self.runner.rows
        weight = sum(part.weight for part in made)
        self.problem = parted_problem(model, self.runner, self.local, rows, weight, settings)
        pages: Any = self.runner.pages()
        self._drawn = sample_of(model, pages, settings, self.problem, rows)
        self.n_sessions = sum(part.n_sessions for part in made)
        self.n_dropped = sum(part.n_dropped for part in made)
        self.n_floored = sum(part.n_floored for part in made)

    def sample(self) -> tuple[SampledPages, Mapping[str, dict[str, pl.Series]]] | None:
        """Some pages in memory, and by coin what the priors of their rows depend on."""
        return self._drawn.sample, self._drawn.typical

    def local_rows(self, best: Evaluated) -> FitRows:
        """The rows of local coins, in files; or in memory, with the counts of all rows."""
        if not self.local:
            return {}
        written = self.runner.write(self.problem.task(best.states), self.results.address)
        likely = self._drawn.sample.settled(best).states
        found: FitRows = {}
        for number, coin in enumerate(self.model.forms):
            if number in self.local:
                nothing, own = self._drawn.nothing(number), likely[number]
                table = self.results.table(number, own, nothing, written)
                found[coin] = table.whole() if self.results.folder is None else (table, None)
        return found


@dataclass(frozen=True)
class InMemory:
    """Files in the memory of the driver."""

    content: Mapping[str, bytes]

    def read(self, name: str) -> bytes:
        return self.content[name]

    def where(self, name: str) -> str:
        return f"{name}, as executors sent it,"


@dataclass(frozen=True)
class Results:
    """Where rows go; `probe` is a file by which executors tell that they reach the folder."""

    n_parts: int
    folder: Path | None = None
    probe: str | None = None

    @classmethod
    def at(cls, path: Any, n_parts: int) -> Results:
        """Make sure that a folder can be written to, before a long fit begins."""
        if path is None:
            return cls(n_parts)
        folder = Path(path).expanduser().absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(not name.name.startswith(".gecasmo-") for name in folder.iterdir()):
                raise SavedModelError(
                    f"{folder} is not empty. Name a folder that does not exist yet, or remove it."
                )
            probe = folder / f".gecasmo-{uuid.uuid4().hex}"
            probe.touch()
        except OSError as problem:
            raise SavedModelError(
                f"{folder} cannot be written to: {problem.strerror or problem}."
            ) from None
        return cls(n_parts, folder, str(probe))

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

    def tidy(self) -> None:
        """Remove the probe."""
        if self.probe is not None:
            Path(self.probe).unlink(missing_ok=True)


def _check(
    model: Any, dataframe: Any, method: Any, start: Any, features: Any, impossible: Any
) -> None:
    if not isinstance(model, Model):
        raise ModelError(f"gecasmo.spark.fit takes a model such as DBN(), not {model!r}.")
    require_frame(dataframe)
    if not isinstance(method, EM):
        kind = type(method).__name__
        raise ModelError(f"method={kind}: a log on a cluster is fitted by EM(...).")
    if start is not None and not (isinstance(start, Model) and start.is_fitted):
        raise ModelError(f"start={start!r}: a fitted model is wanted, or with_values(...).")
    if features is not None and not isinstance(features, Mapping):
        raise ModelError('features are given by coin: features={"attraction": frame}.')
    if impossible not in ("raise", "drop", "floor"):
        raise ModelError(f"impossible={impossible!r}: choose 'raise', 'drop' or 'floor'.")
