"""Fit a model to a log that stays on disk, part by part.

What all queries have in common is learned from a sample of its pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.encoding import Rows
from gecasmo.encoding.match import match
from gecasmo.encoding.shared_rows import SharedRows
from gecasmo.errors import (
    CheckpointError,
    ConvergenceWarning,
    ImpossibleSessionError,
    ModelError,
    NothingLeftError,
    SavedModelError,
    either,
    option,
    tell,
)
from gecasmo.estimation import EM, Problem
from gecasmo.estimation.coins import Evaluated
from gecasmo.estimation.disk import DiskParts
from gecasmo.estimation.part_files import PartFiles, take_down
from gecasmo.estimation.passes import finished
from gecasmo.estimation.posteriors.sample import PAGES, SampledPages
from gecasmo.estimation.tasks import Task
from gecasmo.forms import TableState
from gecasmo.forms.parted_table import FolderSource, PartedTable, PartFile, write_part
from gecasmo.hashes import hash_values
from gecasmo.kernels.threads import default_threads
from gecasmo.logs import ClickLog
from gecasmo.logs.clicklog import joined
from gecasmo.logs.notes import Note
from gecasmo.logs.store.disk import check_disk
from gecasmo.logs.store.stored_log import StoredLog
from gecasmo.logs.views import as_view
from gecasmo.logs.views.view import gathering, tell_gathered
from gecasmo.model.fit import FitRows, fit_source, tell_remarks
from gecasmo.model.fit_folder import FitFolder, identity_of, read_shared_rows, write_shared_rows
from gecasmo.model.log_parts import (
    all_pieces,
    part_view,
    partitioned_by,
    require_parts,
    suited,
)
from gecasmo.model.part_builder import (
    Builder,
    Settings,
    blueprint_of,
    build_partition,
    build_whole,
    local_coins,
    parted_problem,
    refuse_page_readers,
)

if TYPE_CHECKING:
    from gecasmo.model.base import Model

# Points that exist at once, two numbers of 8 bytes a row each, and the table that is written.
_POINTS, _ROW_BYTES = 3, 16


def fit_stored(
    model: Model,
    work: Model,
    log: StoredLog,
    settings: Settings,
    threads: int | None,
    show: Any,
    intervals: bool,
    checkpoint: Any,
) -> None:
    """Fit `model` in place to a stored log; `work` is the same with its features."""
    require_parts(work, log)
    refuse_page_readers(work)
    validation = getattr(settings.method, "validation", None)
    if validation is not None and not isinstance(validation, ClickLog):
        raise ModelError(
            f"{type(settings.method).__name__}(validation={validation!r}): a stored log cannot "
            f"be split for this; give the validation pages as a ClickLog."
        )
    if settings.start is not None:
        settings = replace(settings, start=suited(settings.start, log))
    how = {"method": settings.method, "impossible": settings.impossible, "intervals": intervals}
    identity = identity_of(work, log, settings.start, **how)
    if checkpoint is not None:
        _check_saving(work)
    folder = FitFolder(checkpoint, log.path, identity)
    try:
        if folder.words.get("done"):
            _take_over(model, folder, settings.method)
        else:
            source = FileSource(work, log, settings, folder, threads)
            _fit_in(folder, model, source, show, intervals)
    finally:
        folder.release()


def _fit_in(
    folder: FitFolder, model: Model, source: FileSource, show: Any, intervals: bool
) -> None:
    solution = fit_source(model, source, source.settings.method, show, intervals)
    model.features_ = source.model.features_
    model.kept_ = folder  # rows are read from there
    if solution.interrupted and folder.is_kept:
        tell(
            f"The same {either('call', 'command')} resumes the fit from {folder.path}.",
            ConvergenceWarning,
        )
        return
    if folder.is_kept:
        model.save(folder.path / "model", folder=True)
        folder.push("model")
        folder.note(done=True)
    folder.clear("parts", "points", "journal", "shared")
    tell_remarks(model)


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
            f"The fit in {folder.path} ended before it had converged. Continue with "
            f"{either('fit(log, start=model)', '--start FIT')} and another "
            f"{either('folder', '--checkpoint folder')}.",
            ConvergenceWarning,
        )
    tell_remarks(model)


def _check_saving(model: Model) -> None:
    """What a checkpoint keeps in the end is a saved model: say now if it could not be."""
    for coin, form in model.forms.items():
        if not form.can_be_saved:
            raise SavedModelError(
                f"The form {form!r} of '{coin}' cannot be saved, so a fit of it cannot be kept in "
                f"a checkpoint folder; fit without {option('checkpoint')}."
            )


class FileSource:
    """A stored log: its parts are kept in the folder of a fit, a few in memory at a time."""

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
        # Walks over pages of several queries: any of them can meet any row, so no row is local to
        # a partition, and only all pages together can say what is typical of one.
        self.is_whole = as_view(model.view).spans_pages
        # Other methods than EM move all parameters at once, and so have them all in memory.
        is_em = isinstance(settings.method, EM)
        self.local = local_coins(model, log.partitioned_by == "query") if is_em else []
        self.files = PartFiles(folder.path / "parts", folder.is_kept)
        self.shared = {
            number: SharedRows(coin)
            for number, coin in enumerate(model.forms)
            if number not in self.local
        }
        if not folder.words.get("built"):
            self._build()
        else:
            for number, own in self.shared.items():
                own.add(read_shared_rows(folder, number))
        rows = {number: shared.rows() for number, shared in self.shared.items()}
        words = folder.words
        self.parts = DiskParts(
            folder.path,
            words["parts"],
            blueprint_of(model, settings.method.augmentation),
            {number: len(own) for number, own in rows.items()},
            threads,
            is_noted=is_em,
            is_kept=folder.is_kept,
        )
        self.problem = parted_problem(
            model, self.parts, self.local, rows, words["weight"], settings
        )
        self.n_sessions = log.n_sessions - words["n_dropped"]
        self.n_dropped, self.n_floored = words["n_dropped"], words["n_floored"]
        self._drawn = None
        if self.is_whole:
            self._drawn = self._all_pages()
        elif is_em:
            self._drawn = sample_of(model, log, settings, self.problem, rows)
        if (validation := getattr(settings.method, "validation", None)) is not None:
            self.problem.held_out = Builder(model, validation, settings, threads).part()

    # -- parts ---------------------------------------------------------------------------------
    def _build(self) -> None:
        """Encode all partitions for the model."""
        numbers: list[int] = []
        weight, n_dropped, n_floored = 0.0, 0, 0
        odd: dict[str, list[Note]] = {}
        if self.is_whole:
            return self._build_whole()
        sizes = zip(self.log.partition_pages, self.log.partition_results, strict=True)
        for number, (n_pages, n_results) in enumerate(sizes):
            if not n_results:
                continue
            how = self.settings
            if how.start is not None:  # of that model a part needs the rows it can meet
                how = replace(how, start=part_view(how.start, number, self.log.n_partitions))
            try:
                with gathering(odd):
                    built = build_partition(
                        self.model, number, self.log, int(n_results), self.local, how
                    )
            except NothingLeftError:
                n_dropped += self.log.partition(number).n_sources()
                continue
            n_dropped += built.n_dropped
            n_floored += built.n_floored
            part = built.placed(self.shared)
            if not part.expectation.encoded.n_results:
                continue
            n_bytes = self.files.write(take_down(part))
            if not numbers:
                n_rows = sum(len(part.coins[n].rows) for n in self.local)
                self._check_disk(n_bytes, n_rows, int(n_pages))
            numbers.append(number)
            weight += part.n_pages
        tell_gathered(odd)
        if not numbers:
            raise self._nothing_left()
        self._note_built(numbers, weight, n_dropped, n_floored)

    def _build_whole(self) -> None:
        """Encode all partitions as one part."""
        odd: dict[str, list[Note]] = {}
        try:
            with gathering(odd):
                built = build_whole(self.model, self.log, self.settings)
        except NothingLeftError:
            raise self._nothing_left() from None
        tell_gathered(odd)
        part = built.placed(self.shared)
        self._check_disk(take_down(part).n_bytes, 0, self.log.n_pages)
        self.files.write(take_down(part))
        self._note_built([part.number], part.n_pages, built.n_dropped, built.n_floored)

    def _nothing_left(self) -> ImpossibleSessionError:
        return ImpossibleSessionError(
            f"All pages are impossible under {self.model.name}: nothing is left to fit."
        )

    def _note_built(
        self, numbers: list[int], weight: float, n_dropped: int, n_floored: int
    ) -> None:
        for number, shared in self.shared.items():
            write_shared_rows(self.folder, number, shared.rows())
        self.folder.note(
            built=True, parts=numbers, weight=weight, n_dropped=n_dropped, n_floored=n_floored
        )

    def _all_pages(self) -> DrawnSample:
        """The one part there is, with the rows of all coins."""
        (number,) = self.parts.numbers
        part = self.parts.part(number, self.threads or default_threads())
        typical = {
            self.problem.coins[coin].name: {name: pl.Series(name, x) for name, x in own.items()}
            for coin, own in part.typical.items()
        }
        return DrawnSample(SampledPages(part.with_coins(self.problem.coins), is_all=True), typical)

    def _check_disk(self, n_bytes: int, n_rows: int, n_pages: int) -> None:
        """Refuse a fit that would fill the disk, as far as the first part tells."""
        share = self.log.n_pages / max(n_pages, 1)
        needs = {
            "the pages of the fit": int(share * n_bytes),
            "its parameters on the way": int(share * n_rows * _ROW_BYTES * _POINTS),
            "its parameters at the end": int(share * n_rows * _ROW_BYTES * 4),
        }
        advice = f"Name a folder on a larger disk with {option('checkpoint')}."
        check_disk(self.folder.path, needs, advice=advice, error=CheckpointError)

    # -- what a fit asks for -------------------------------------------------------------------
    def sample(self) -> tuple[SampledPages, Mapping[str, dict[str, pl.Series]]] | None:
        """Some pages in memory, and by coin what the priors of their rows depend on."""
        return None if self._drawn is None else (self._drawn.sample, self._drawn.typical)

    def local_rows(self, best: Evaluated) -> FitRows:
        """Write the rows of local coins to files."""
        if not self.local:
            return {}
        assert self._drawn is not None
        task = self.problem.task(best.states)
        numbers = range(self.log.n_partitions)
        threads = self.threads or default_threads()
        with ThreadPoolExecutor(max_workers=threads) as pool:
            calls = [pool.submit(copy_context().run, self._write, n, task) for n in numbers]
            files = [call.result() for call in calls]
        likely = self._drawn.sample.settled(best)
        found: FitRows = {}
        source = FolderSource(self.folder.path / "model")
        for number, coin in enumerate(self.model.forms):
            if number in self.local:
                own = [written[number] for written in files]
                found[coin] = (PartedTable(likely.states[number], own, source), None)
        return found

    def _write(self, number: int, task: Task) -> dict[int, PartFile]:
        assert self._drawn is not None
        rows: dict[int, tuple[TableState, Any]]
        if number in self.parts.numbers:
            part = self.parts.part(number)
            states, counts = finished(part, self.parts.points(part, {task.recipe.of}), task)
            rows = {n: (state, counts.tables[n]) for n, state in states.items()}
        else:
            rows = {n: (self._drawn.nothing(n), np.zeros((2, 0))) for n in self.local}
        place = self.folder.path / "model"
        return {n: write_part(place, n, number, *own) for n, own in rows.items()}


@dataclass(frozen=True)
class DrawnSample:
    """A sample, with what tells groups of its rows apart."""

    sample: SampledPages
    typical: dict[str, dict[str, pl.Series]]

    def nothing(self, number: int) -> TableState:
        """The state of a local coin that has no rows."""
        coin = self.sample.part.coins[number]
        rows = Rows(coin.rows.keys, [c.clear() for c in coin.rows.frame.get_columns()], 0)
        state: TableState = coin.form.begin(rows, None)
        return state


def sample_of(
    model: Model,
    log: StoredLog,
    settings: Settings,
    problem: Problem,
    rows: Mapping[int, Rows],
) -> DrawnSample:
    """Put a sample of the pages into memory."""
    pages = sample_pages(log)
    build = Builder(model, pages, replace(settings, start=None))
    with gathering({}):  # it was told of all pages
        own = build.part()
    own.expectation.scale = problem.n_pages / max(own.n_pages, 1e-300)
    index = {}
    for number, shared in rows.items():
        here = own.coins[number].rows
        if here.keys and "result" not in here.keys:
            index[number] = match(here.frame, shared.frame, here.keys)
        else:
            index[number] = np.arange(len(here))
    return DrawnSample(SampledPages(own, problem.local, index), build.typical)


def sample_pages(log: StoredLog, n_pages: int = PAGES) -> ClickLog:
    """The first pages in the order of the hash of their query, with whole queries; of a log of
    tasks, with whole tasks.

    Only a query that would double the sample is cut off.
    """
    if log.n_pages <= 2 * n_pages:
        return joined([part for part in log.partitions() if part.n_sessions])
    chosen: list[ClickLog] = []
    n_chosen = 0
    for _, pages in all_pieces(log):
        by = partitioned_by(log)
        last = _last_of(by, pages, n_pages - n_chosen)
        if n_chosen >= n_pages:
            # The query that the last pages are of may go on in the next piece of its partition.
            last = _continued(by, chosen[-1], pages)
        if by == "query":
            # One with a large share of the log would crowd out the others, and fill memory.
            last = min(last, 2 * n_pages - n_chosen)
        is_whole = last == pages.n_sessions
        chosen.append(pages if is_whole else pages.take(np.arange(pages.n_sessions) < last))
        n_chosen += last
        if not is_whole:
            break
    return joined([part for part in chosen if part.n_sessions])


def _last_of(by: str, pages: ClickLog, n_pages: int) -> int:
    """So many pages, and those up to the end of the query or task that the last of them is of."""
    if n_pages >= pages.n_sessions:
        return pages.n_sessions
    if by == "session" or by not in pages.columns or n_pages <= 0:
        return max(n_pages, 0)
    hashes = hash_values(pages.session_column(by))
    return int(np.flatnonzero(hashes == hashes[n_pages - 1]).max()) + 1


def _continued(by: str, before: ClickLog, pages: ClickLog) -> int:
    """How many pages continue with the last query or task of those before."""
    if by == "session" or by not in pages.columns:
        return 0
    last = hash_values(before.session_column(by)[-1:])
    return int((hash_values(pages.session_column(by)) == last).sum())
