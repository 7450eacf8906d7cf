"""`fit`: a model fitted to a Spark data frame, whose pages and rows stay with the executors.

Only a sample comes into the memory of the driver: some pages, with all pages of their queries.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from gecasmo.errors import ImpossibleSessionError, ModelError
from gecasmo.estimation import EM
from gecasmo.estimation.beliefs.sample import PAGES, Sample
from gecasmo.estimation.coins import Evaluation
from gecasmo.hashing import hash_values
from gecasmo.logs import ClickLog
from gecasmo.model.base import Impossible, Model
from gecasmo.model.fit import FitRows, fit_source, tell_remarks
from gecasmo.model.part_builder import Settings, local_coins, parted_problem
from gecasmo.model.solution import progress_bar
from gecasmo.model.stored_fit import sample_of
from gecasmo.spark.answers import roles_of
from gecasmo.spark.executors import Job
from gecasmo.spark.parts import Prepared, check_every, prepare
from gecasmo.spark.results import Results
from gecasmo.spark.session import hearing, quiet, require_frame, telling
from gecasmo.spark.shipping import ShippedModel
from gecasmo.spark.source import Reading, Source, open_source


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
    checkpoint_every: int = 8,
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
    checkpoint_every : int
        After so many passes the state of the fit is written to Spark's checkpoint folder, so that
        a lost executor does not cost more than these.
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
    check_every(checkpoint_every)
    began = time.perf_counter()
    work = model.with_features(**features) if features else model
    roles = roles_of(session, query, doc, rank, click, weight)
    source = open_source(dataframe, roles, work, partitions, check=check)
    results = Results.at(path, source.reading.n_parts)
    try:
        settings = Settings(method, start, impossible)
        parts = SparkSource(work, source, settings, results, checkpoint_every)
        try:
            with progress_bar(model.name, progress) as show:
                fit_source(model, parts, method, show, intervals)
        finally:
            parts.close()
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
        source: Source,
        settings: Settings,
        results: Results,
        checkpoint_every: int,
    ) -> None:
        self.model, self.source, self.settings, self.results = model, source, settings, results
        self.local = local_coins(model, source.has_query)
        context = source.frame.sparkSession.sparkContext
        start = settings.start
        job = Job(
            ShippedModel.of(model, with_states=False),
            settings.method,
            None if start is None else ShippedModel.of(start),
            settings.impossible,
            tuple(self.local),
            source.reading,
            int(context.getConf().get("spark.task.cpus", "1")),
            probe=results.probe,
        )
        self.prepared: Prepared = prepare(source, job, list(model.forms), checkpoint_every)
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    def _set_up(self) -> None:
        made = self.prepared.made
        if not sum(part.n_results for part in made):
            raise ImpossibleSessionError(
                f"All pages are impossible under {self.model.name}: nothing is left to fit."
            )
        rows = {number: shared.rows() for number, shared in self.prepared.shared.items()}
        weight = sum(part.weight for part in made)
        self.problem = parted_problem(
            self.model, self.prepared.parts, self.local, rows, weight, self.settings
        )
        pages: Any = SparkPages(
            self.prepared.pieces, self.source.reading, sum(part.n_read for part in made)
        )
        self._drawn = sample_of(self.model, pages, self.settings, self.problem, rows)
        self.n_sessions = sum(part.n_sessions for part in made)
        self.n_dropped = sum(part.n_dropped for part in made)
        self.n_floored = sum(part.n_floored for part in made)

    def sample(self) -> tuple[Sample, Mapping[str, dict[str, pl.Series]]] | None:
        """Some pages in memory, and by coin what the priors of their rows depend on."""
        return self._drawn.sample, self._drawn.typical

    def local_rows(self, best: Evaluation) -> FitRows:
        """The rows of local coins, in files; or in memory, with the counts of all rows."""
        if not self.local:
            return {}
        task = self.problem.task(best.states)
        written = self.prepared.parts.each(self.results.writing(task))
        likely = self._drawn.sample.settled(best).states
        found: FitRows = {}
        for number, (coin, form) in enumerate(self.model.forms.items()):
            if number in self.local:
                nothing, own = self._drawn.nothing(number), likely[number]
                table = self.results.table(number, form, own, nothing, written)  # type: ignore[arg-type]
                found[coin] = table.whole() if self.results.folder is None else (table, None)
        return found

    def close(self) -> None:
        self.prepared.close()


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


# Enough rows for so many pages, unless pages are long; then the sample is smaller.
_RESULTS_ON_A_PAGE = 10


@dataclass(frozen=True)
class SparkPages:
    """The partitions of a log on Spark, of which only as much is fetched as a sample needs.

    Parameters
    ----------
    pieces : RDD with the pieces of each partition
    reading : how they become pages
    n_pages : of all partitions
    """

    pieces: Any
    reading: Reading
    n_pages: int

    @property
    def n_partitions(self) -> int:
        return self.reading.n_parts

    def partitions(self) -> Iterator[ClickLog]:
        """Partitions that have pages, one after the other; of each the first pages."""
        most = 2 * PAGES
        reading = self.reading

        def fetch(pieces: Any) -> Any:
            table = telling(first_pages)(reading, pieces, most)
            return [] if table is None else [table]

        for number in range(self.n_partitions):
            with hearing(), quiet():
                found = self.pieces.context.runJob(self.pieces, fetch, [number])
            for data in found:
                yield reading.log(pl.read_ipc(io.BytesIO(data)), number)


def first_pages(reading: Reading, pieces: Any, most: int) -> bytes | None:
    """The first pages of a partition by the hash of their query, up to so many and the end of the
    last query, as rows in that order."""
    table = reading.table(pieces)
    if table is None:
        return None
    hashes = hash_values(reading.values(table))
    order = np.argsort(hashes, kind="stable")
    n_rows = most * _RESULTS_ON_A_PAGE
    if len(order) > n_rows:
        last = hashes[order[n_rows - 1]]
        order = order[hashes[order] <= last]
    buffer = io.BytesIO()
    table.select(pl.all().gather(pl.Series(order))).write_ipc(buffer)
    return buffer.getvalue()
