"""Fit a model to a log that stays on disk, part by part.

What all queries have in common is learned from a sample of its pages.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.compiler.symmetry import has_exchangeable_states
from gecasmo.encoding import Rows
from gecasmo.encoding.matching import match
from gecasmo.errors import (
    CheckpointError,
    ConvergenceWarning,
    GecasmoWarning,
    ImpossibleSessionError,
    ModelError,
    NothingLeftError,
    SavedModelError,
    tell,
)
from gecasmo.estimation import EM, Coin, Solution
from gecasmo.estimation.beliefs.learning import PAGES
from gecasmo.estimation.parts.beliefs import PartedBeliefs
from gecasmo.estimation.parts.disk import DiskParts, PartFiles
from gecasmo.estimation.parts.gathered import GatheredProblem
from gecasmo.estimation.parts.passes import finished
from gecasmo.estimation.parts.problem import PartedProblem
from gecasmo.estimation.parts.sample import Sample
from gecasmo.estimation.parts.shared_rows import SharedRows
from gecasmo.estimation.parts.storing import take_down
from gecasmo.estimation.parts.tasks import Task
from gecasmo.forms import Form, FormState, TableState
from gecasmo.forms.parted_files import PartFile
from gecasmo.forms.parted_table import PartedTable, write_part
from gecasmo.hashing import hash_values
from gecasmo.kernels.running import default_threads, using_threads
from gecasmo.logs import ClickLog
from gecasmo.logs.clicklog import joined
from gecasmo.logs.store.disk import check_disk
from gecasmo.logs.store.stored_log import StoredLog
from gecasmo.model.fit_folder import FitFolder, identity_of, read_shared_rows, write_shared_rows
from gecasmo.model.fitting import Builder, FitReport
from gecasmo.model.parts import (
    Settings,
    blueprint_of,
    build_partition,
    driver_coins,
    local_coins,
    parted_problem,
)
from gecasmo.model.solution import progress_bar, solve_with, tell_untuned
from gecasmo.model.streaming import all_pieces, part_view

if TYPE_CHECKING:
    from gecasmo.model.base import Model

# Points that exist at once, two numbers of 8 bytes a row each, and the table that is written.
_POINTS, _ROW_BYTES = 3, 16


def fit_stored(
    model: Model,
    log: StoredLog,
    settings: Settings,
    *,
    features: Mapping[str, Any] | None,
    threads: int | None,
    progress: bool | None,
    intervals: bool,
    checkpoint: Any,
) -> None:
    """Fit `model` in place to a stored log; it keeps its old fit if anything goes wrong."""
    validation = getattr(settings.method, "validation", None)
    if validation is not None and not isinstance(validation, ClickLog):
        raise ModelError(
            f"{type(settings.method).__name__}(validation={validation!r}): of a stored log "
            "no share is set aside; give the pages to be judged by as a ClickLog."
        )
    began = time.perf_counter()
    work = model.with_features(**features) if features else model
    identity = identity_of(
        work,
        log,
        method=settings.method,
        start=settings.start,
        impossible=settings.impossible,
        intervals=intervals,
    )
    if checkpoint is not None:
        _check_saving(work)
    folder = FitFolder(checkpoint, log.path, identity)
    try:
        _fit_in(folder, model, work, log, settings, threads, progress, intervals)
    finally:
        folder.release()
    assert model.report_ is not None
    model.report_.seconds = time.perf_counter() - began


def _fit_in(
    folder: FitFolder,
    model: Model,
    work: Model,
    log: StoredLog,
    settings: Settings,
    threads: int | None,
    progress: bool | None,
    intervals: bool,
) -> None:
    if folder.words.get("done"):
        _take_over(model, folder, settings.method)
        return
    with progress_bar(model.name, progress) as show, using_threads(threads):
        fit = _StoredFit(work, log, settings, folder, threads)
        solution = fit.solve(show, intervals)
        states = fit.states(solution.best)
    model.features_ = work.features_
    model.states_ = states
    model.report_ = fit.report(solution)
    model.kept_ = folder  # rows are read from there
    if solution.interrupted and folder.is_kept:
        tell(f"The same call goes on from {folder.path}.", ConvergenceWarning)
        return
    if folder.is_kept:
        model.save(folder.path / "model", folder=True)
        folder.note(done=True)
    folder.clear("parts", "points", "journal", "shared")
    for coin, form in model.forms.items():
        remark(coin, form, states[coin], model.report_)


def _take_over(model: Model, folder: FitFolder, method: Any) -> None:
    """Give the model the fit that was finished in this folder."""
    from gecasmo.model.saved_model import load

    done = load(folder.path / "model")
    assert done.states_ is not None
    assert done.report_ is not None
    model.states_, model.report_ = done.states_, done.report_
    model.features_, model.kept_ = done.features_, folder
    folder.clear("parts", "points", "journal", "shared")
    if not done.report_.converged and getattr(method, "tol", 0) > 0:
        tell(
            f"The fit in {folder.path} ended before it had converged. Go on with "
            "fit(log, start=model) and another folder.",
            ConvergenceWarning,
        )
    for coin, form in model.forms.items():
        remark(coin, form, model.states_[coin], model.report_)


def _check_saving(model: Model) -> None:
    """What a checkpoint keeps in the end is a saved model: say now if it could not be."""
    for coin, form in model.forms.items():
        if not form.can_be_saved:
            raise SavedModelError(
                f"The form {form!r} of '{coin}' cannot be saved, so a fit of it cannot be kept in "
                "a checkpoint folder; fit without checkpoint=."
            )


class _StoredFit:
    """One fit of a stored log."""

    def __init__(
        self,
        model: Model,
        log: StoredLog,
        settings: Settings,
        folder: FitFolder,
        threads: int | None,
    ) -> None:
        self.model, self.log, self.settings = model, log, settings
        self.folder, self.threads = folder, threads
        # Other methods than EM move all parameters at once, and so have them all in memory.
        self.is_em = isinstance(settings.method, EM)
        self.local = local_coins(model, log.has_query) if self.is_em else []
        self.files = PartFiles(folder.path / "parts")
        self.shared = {
            number: SharedRows(coin)
            for number, coin in enumerate(model.forms)
            if number not in self.local
        }
        if not folder.words.get("built"):
            self._build()
        else:
            self._find_shared_rows()
        self.rows = {number: shared.rows() for number, shared in self.shared.items()}
        n_rows = {number: len(rows) for number, rows in self.rows.items()}
        blueprint = blueprint_of(model, settings.method.augmentation)
        self.numbers = set(folder.words["parts"])
        self.parts = DiskParts(folder.path, folder.words["parts"], blueprint, n_rows, threads)

    # -- parts ---------------------------------------------------------------------------------
    def _build(self) -> None:
        """Encode all partitions for the model."""
        numbers: list[int] = []
        weight, n_dropped, n_floored = 0.0, 0, 0
        sizes = zip(self.log.partition_pages, self.log.partition_results, strict=True)
        for number, (n_pages, n_results) in enumerate(sizes):
            if not n_results:
                continue
            how = self._settings(number)
            try:
                built = build_partition(
                    self.model, number, self.log, int(n_results), self.local, how
                )
            except NothingLeftError:
                n_dropped += self.log.partition(number).n_sources()
                continue
            n_dropped += built.n_dropped
            n_floored += built.n_floored
            part = built.placed(self.shared)
            if not part.problem.expectation.encoded.n_results:
                continue
            stored = take_down(part)
            n_bytes = self.files.write(stored)
            if not numbers:
                n_rows = sum(len(part.problem.coins[n].rows) for n in self.local)
                self._check_disk(n_bytes, n_rows, int(n_pages))
            numbers.append(number)
            weight += part.problem.n_pages
        if not numbers:
            raise ImpossibleSessionError(
                f"All pages are impossible under {self.model.name}: nothing is left to fit."
            )
        for number, shared in self.shared.items():
            write_shared_rows(self.folder, number, shared.rows())
        self.folder.note(
            built=True, parts=numbers, weight=weight, n_dropped=n_dropped, n_floored=n_floored
        )

    def _settings(self, number: int) -> Settings:
        """The settings of a part; of a model to start from it needs the rows it can meet."""
        start = self.settings.start
        if start is None:
            return self.settings
        return replace(self.settings, start=part_view(start, number, self.log.n_partitions))

    def _check_disk(self, n_bytes: int, n_rows: int, n_pages: int) -> None:
        """Refuse a fit that would fill the disk, as far as the first part tells."""
        share = self.log.n_pages / max(n_pages, 1)
        needs = {
            "the pages of the fit": int(share * n_bytes),
            "its parameters on the way": int(share * n_rows * _ROW_BYTES * _POINTS),
            "its parameters at the end": int(share * n_rows * _ROW_BYTES * 4),
        }
        advice = "Name a folder on a larger disk with checkpoint=."
        check_disk(self.folder.path, needs, advice=advice, error=CheckpointError)

    def _find_shared_rows(self) -> None:
        for number in self.shared:
            self.shared[number].add(read_shared_rows(self.folder, number))

    # -- solution ------------------------------------------------------------------------------
    def solve(self, show: Any, intervals: bool) -> Solution:
        if not self.is_em:
            return self._solve_gathered(show)
        weight = self.folder.words["weight"]
        self.problem = parted_problem(
            self.model, self.parts, self.local, self.rows, weight, self.settings
        )
        self.sample = sample_of(self.model, self.log, self.settings, self.problem, self.rows)
        beliefs = PartedBeliefs(self.problem, self.sample.sample, self.sample.typical)
        return solve_with(self.problem, self.settings.method, show, beliefs, intervals)

    def _solve_gathered(self, show: Any) -> Solution:
        """Let a method have all rows in memory, and the pages of the parts."""
        coins = driver_coins(self.model, [], self.rows)
        weight = self.folder.words["weight"]
        is_exchangeable = has_exchangeable_states(self.model.structure.traced)
        problem = GatheredProblem(self.parts, coins, weight, is_exchangeable)
        problem.given_start = self._given_start(coins)
        validation = getattr(self.settings.method, "validation", None)
        if validation is not None:
            problem.held_out = self._builder(validation).problem()
        tell_untuned(problem, self.settings.method)
        return self.settings.method.solve(problem, show)

    def _given_start(self, coins: list[Coin]) -> list[Any] | None:
        if self.settings.start is None:
            return None
        nothing: Any = None
        return self._builder(nothing).begin(coins)

    def _builder(self, log: ClickLog) -> Builder:
        settings = self.settings
        return Builder(
            self.model, log, settings.method, settings.start, self.threads, settings.impossible
        )

    def states(self, best: Any) -> dict[str, FormState]:
        """The states of all forms; rows of local coins go to files."""
        if not self.is_em:
            return dict(zip(self.model.forms, best.states, strict=True))
        files = self._written(self.problem.task(best.states))
        likely = self.sample.sample.settled(best)
        shared = iter(best.states.shared)
        states: dict[str, FormState] = {}
        for number, (coin, form) in enumerate(self.model.forms.items()):
            if number in self.local:
                like: Any = likely.states[number]
                states[coin] = PartedTable.open(
                    self.folder.path / "model",
                    form,  # type: ignore[arg-type]
                    like,
                    [files[part][number] for part in range(self.log.n_partitions)],
                )
            else:
                states[coin] = next(shared)
        return states

    def _written(self, task: Task) -> list[dict[int, PartFile]]:
        numbers = range(self.log.n_partitions)
        threads = self.threads or default_threads()
        with ThreadPoolExecutor(max_workers=threads) as pool:
            calls = [pool.submit(copy_context().run, self._write, n, task) for n in numbers]
            return [call.result() for call in calls]

    def _write(self, number: int, task: Task) -> dict[int, PartFile]:
        if number not in self.numbers:
            empty = {n: self.sample.nothing(n) for n in self.local}
            return {n: self._write_rows(number, n, s, np.zeros((2, 0))) for n, s in empty.items()}
        part = self.parts.part(number)
        points = self.parts.points(number, {task.recipe.of})
        states, counts = finished(part, points, task)
        return {
            n: self._write_rows(number, n, state, counts.tables[n]) for n, state in states.items()
        }

    def _write_rows(self, part: int, number: int, state: TableState, counts: Any) -> PartFile:
        form: Any = list(self.model.forms.values())[number]
        return write_part(self.folder.path / "model", number, part, form, state, counts)

    def report(self, solution: Solution) -> FitReport:
        best: Any = solution.best
        names = [coin for n, coin in enumerate(self.model.forms) if n not in self.local]
        tables = best.driver.counts.tables if self.is_em else best.counts.tables
        counts = dict(zip(names, tables, strict=True))
        words = self.folder.words
        return FitReport(
            history=solution.history,
            converged=solution.converged,
            interrupted=solution.interrupted,
            n_sessions=self.log.n_sessions - words["n_dropped"],
            total_weight=words["weight"],
            n_dropped=words["n_dropped"],
            n_floored=words["n_floored"],
            n_evaluations=solution.n_evaluations,
            objective=best.objective,
            log_likelihood=best.log_likelihood,
            counts=counts,
        )


def remark(coin: str, form: Form, state: Any, report: FitReport) -> None:
    """Tell what a user should know about a finished fit."""
    # Counts of rows that are in files are there, too.
    tails, heads = report.counts.get(coin, np.zeros((2, 0)))
    for told in form.remarks(state, heads, tails):
        tell(f"The coin '{coin}': {told}.", GecasmoWarning)


@dataclass(frozen=True)
class DrawnSample:
    """A sample, with what tells groups of its rows apart."""

    sample: Sample
    typical: dict[str, dict[str, pl.Series]]

    def nothing(self, number: int) -> TableState:
        """The state of a local coin that has no rows."""
        coin = self.sample.problem.coins[number]
        rows = Rows(coin.rows.keys, [c.clear() for c in coin.rows.frame.get_columns()], 0)
        state: TableState = coin.form.begin(rows, None)
        return state


def sample_of(
    model: Model,
    log: StoredLog,
    settings: Settings,
    problem: PartedProblem,
    rows: Mapping[int, Rows],
) -> DrawnSample:
    """Put a sample of the pages into memory."""
    pages = sample_pages(log)
    build = Builder(model, pages, settings.method, None, None, settings.impossible)
    own = build.problem()
    own.expectation.scale = problem.n_pages / max(own.n_pages, 1e-300)
    index = {}
    for number, shared in rows.items():
        here = own.coins[number].rows
        if here.keys and "result" not in here.keys:
            index[number] = match(here.frame, shared.frame, here.keys)
        else:
            index[number] = np.arange(len(here))
    return DrawnSample(Sample(own, problem.local, index, {}), build.typical)


def sample_pages(log: StoredLog, n_pages: int = PAGES) -> ClickLog:
    """The first pages in the order of the hash of their query, with whole queries.

    Only a query that would double the sample is cut off.
    """
    if log.n_pages <= 2 * n_pages:
        return joined([part for part in log.partitions() if part.n_sessions])
    chosen: list[ClickLog] = []
    n_chosen = 0
    for _, pages in all_pieces(log):
        last = _last_of_query(pages, n_pages - n_chosen)
        if n_chosen >= n_pages:
            # The query that the last pages are of may go on in the next piece of its partition.
            last = _continued(chosen[-1], pages)
        # A query with a large share of the log would crowd out the others, and fill memory.
        last = min(last, 2 * n_pages - n_chosen)
        chosen.append(pages if last == pages.n_sessions else _first(pages, last))
        n_chosen += last
        if last < pages.n_sessions:
            break
    return joined([part for part in chosen if part.n_sessions])


def _first(pages: ClickLog, n_pages: int) -> ClickLog:
    return pages.take(np.arange(pages.n_sessions) < n_pages)


def _last_of_query(pages: ClickLog, n_pages: int) -> int:
    """So many pages, and those up to the end of the query that the last of them is of."""
    if n_pages >= pages.n_sessions:
        return pages.n_sessions
    if not pages.has_query or n_pages <= 0:
        return max(n_pages, 0)
    hashes = hash_values(pages.session_column("query"))
    return int(np.flatnonzero(hashes == hashes[n_pages - 1]).max()) + 1


def _continued(before: ClickLog, pages: ClickLog) -> int:
    """How many pages go on with the last query of those before."""
    if not pages.has_query:
        return 0
    last = hash_values(before.session_column("query")[-1:])
    return int((hash_values(pages.session_column("query")) == last).sum())
