"""Folders of fits that are full, damaged, or of something else."""

from __future__ import annotations

import ast
import copy
import errno
import pickle
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo import DBN, EM, PBM, ClickLog, Fixed, Table, open_log, read_log
from gecasmo.errors import (
    CheckpointError,
    ClickLogError,
    ConvergenceWarning,
    ModelError,
    SavedModelError,
)
from gecasmo.estimation import disk, part_files
from gecasmo.estimation.tasks import Answer, SharedCounts, combined
from gecasmo.files import beside
from gecasmo.forms.parted_table import PartedTable
from gecasmo.logs.store.disk import telling_full_disk
from gecasmo.model import fit_folder
from gecasmo.model.fit_folder import FitFolder, identity_of

pytestmark = pytest.mark.usefixtures("plain_kernels")

METHOD = EM(max_iter=4, tol=0)


def frame(n: int = 30, seed: int = 1) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    query = rng.integers(0, 8, n)
    return pl.DataFrame(
        {
            "session": np.repeat(np.arange(n), 3),
            "query": np.repeat(query, 3),
            "doc": np.tile(np.arange(3), n) + 3 * np.repeat(query, 3),
            "rank": np.tile([1, 2, 3], n),
            "click": rng.random(3 * n) < 0.4,
        }
    )


def model() -> DBN:
    fixed = Table(pseudo_counts=(1, 1))
    return DBN(attraction=fixed, satisfaction=fixed)


@pytest.fixture
def log(tmp_path: Path) -> Any:
    return ClickLog.ingest(frame(), tmp_path / "log.gclog", partitions=2, progress=False)


class Stop(Exception):
    """Ends a fit in the middle."""


def cut_short(log: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, after: int = 3) -> None:
    """Begin a fit and end it after some passes."""
    run = disk.DiskParts.run

    def counted(self: Any, task: Any) -> Any:
        if self.n_passes == after:
            raise Stop
        return run(self, task)

    with monkeypatch.context() as patch:
        patch.setattr(disk.DiskParts, "run", counted)
        with pytest.raises(Stop):
            model().fit(log, METHOD, checkpoint=checkpoint)


def same(a: Any, b: Any) -> None:
    for coin, there in a.parameters.items():
        here = b.parameters[coin]
        assert here.sort(here.columns).equals(there.sort(there.columns))


def test_a_fit_goes_on_where_it_was(
    log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_short(log, tmp_path / "fit", monkeypatch)
    passes = []
    real = disk.DiskParts._all_parts
    monkeypatch.setattr(
        disk.DiskParts, "_all_parts", lambda self, task: passes.append(1) or real(self, task)
    )
    again = model().fit(log, METHOD, checkpoint=tmp_path / "fit")
    n_again = len(passes)
    whole = model().fit(log, METHOD)
    assert n_again == len(passes) - n_again - 3
    same(whole, again)


def test_another_fit_is_refused(log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_short(log, tmp_path / "fit", monkeypatch)
    for other, method in [(DBN(), METHOD), (model(), EM(max_iter=5, tol=0))]:
        with pytest.raises(CheckpointError, match="belongs to another fit"):
            other.fit(log, method, checkpoint=tmp_path / "fit")


def test_a_folder_of_other_things_is_refused(log: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(CheckpointError, match="not of a fit"):
        model().fit(log, METHOD, checkpoint=tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_a_fit_that_was_killed_at_its_first_word_begins_anew(log: Any, tmp_path: Path) -> None:
    """Found by a soak: the 71st of 200 fits that were killed left half of a file, and a lock."""
    folder = tmp_path / "fit"
    folder.mkdir()
    half = beside(folder / "fit.json", "part")
    for path in (half, folder / "lock"):
        path.write_text("{")
    same(model().fit(log, METHOD), model().fit(log, METHOD, checkpoint=folder))
    assert not half.exists()


def test_another_log_is_refused(log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_short(log, tmp_path / "fit", monkeypatch)
    ClickLog.ingest(
        frame(seed=2), tmp_path / "log.gclog", partitions=2, progress=False, overwrite=True
    )
    with pytest.raises(CheckpointError, match="belongs to another fit"):
        model().fit(open_log(tmp_path / "log.gclog"), METHOD, checkpoint=tmp_path / "fit")


_ARRAYS = (".packet",)


@pytest.mark.parametrize("folder", ["parts", "points", "journal"])
@pytest.mark.parametrize("damage", ["cut", "removed"])
def test_damage_is_told(
    log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, damage: str
) -> None:
    cut_short(log, tmp_path / "fit", monkeypatch)
    kept = [p for p in (tmp_path / "fit" / folder).rglob("*") if p.suffix in _ARRAYS]
    assert kept
    for path in kept:
        if damage == "cut":
            path.write_bytes(path.read_bytes()[:-9])
        elif folder != "journal":
            path.unlink()
    if folder == "journal" and damage == "removed":
        pytest.skip("a fit without a journal begins anew")
    with pytest.raises(CheckpointError, match="fit again"):
        model().fit(log, METHOD, checkpoint=tmp_path / "fit")


def test_a_truncated_partition_is_told(tmp_path: Path, log: Any) -> None:
    path = max((tmp_path / "log.gclog").rglob("*.arrow"), key=lambda p: p.stat().st_size)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ClickLogError, match=path.name):
        model().fit(open_log(tmp_path / "log.gclog"), METHOD)


def test_a_full_disk_is_told_and_can_be_gone_on_with(
    log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = disk.write_packet, []

    def full(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_packet", full)
        with pytest.raises(CheckpointError, match=r"is full .* make room"):
            model().fit(log, METHOD, checkpoint=tmp_path / "fit", threads=1)
    same(model().fit(log, METHOD), model().fit(log, METHOD, checkpoint=tmp_path / "fit"))


def test_a_folder_that_is_refused_is_let_go_at_once(log: Any, tmp_path: Path) -> None:
    """Also while the error, which holds on to everything, is still alive."""
    model().fit(log, METHOD, checkpoint=tmp_path / "fit")
    with pytest.raises(CheckpointError, match="What differs") as first:
        model().fit(log, EM(max_iter=METHOD.max_iter + 1), checkpoint=tmp_path / "fit")
    with pytest.raises(CheckpointError, match="What differs"):
        model().fit(log, EM(max_iter=METHOD.max_iter + 2), checkpoint=tmp_path / "fit")
    assert first.value.__traceback__ is not None


def test_too_little_room_is_told_before(
    log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gecasmo.logs.store import disk

    monkeypatch.setattr(disk, "free_bytes", lambda folder: 10)
    with pytest.raises(CheckpointError, match="not enough room on the disk"):
        model().fit(log, METHOD, checkpoint=tmp_path / "fit")


def test_nothing_is_left_behind(log: Any, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    fitted = model().fit(log, METHOD)
    assert fitted.parameters["attraction"].height > 0
    fitted.save(tmp_path / "fit.gecasmo")
    del fitted
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "fit.gecasmo"])


def test_a_checkpoint_is_for_stored_logs(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="for stored logs"):
        model().fit(read_log(frame()), METHOD, checkpoint=tmp_path / "fit")


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(log: Any, threads: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = DBN().fit(log, EM(max_iter=20), threads=1)
        more = DBN().fit(log, EM(max_iter=20), threads=threads)
    same(one, more)
    a, b = (m.estimates("attraction") for m in (one, more))
    assert a.sort(a.columns).equals(b.sort(b.columns))


def test_an_interrupted_fit_goes_on(
    log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = disk.DiskParts.run

    def counted(self: Any, task: Any) -> Any:
        if self.n_passes == 3:
            raise KeyboardInterrupt
        return run(self, task)

    with monkeypatch.context() as patch:
        patch.setattr(disk.DiskParts, "run", counted)
        with pytest.warns(ConvergenceWarning) as caught:
            half = model().fit(log, METHOD, checkpoint=tmp_path / "fit")
    assert "The same call resumes the fit from" in str(caught[-1].message)
    assert half.report_.interrupted
    assert half.parameters["attraction"].height > 0
    again = model().fit(log, METHOD, checkpoint=tmp_path / "fit")
    assert not again.report_.interrupted
    same(model().fit(log, METHOD), again)


def test_a_finished_fit_says_again_what_it_said(log: Any, tmp_path: Path) -> None:
    method = EM(max_iter=2, tol=1e-12)
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter"):
        first = model().fit(log, method, checkpoint=tmp_path / "fit")
    with pytest.warns(ConvergenceWarning, match="ended before it had converged"):
        second = model().fit(log, method, checkpoint=tmp_path / "fit")
    same(first, second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"continuation": Fixed(0.1234567)}, {"continuation": Fixed(0.12345678)}),
        (
            {"attraction": Table(pseudo_counts=(1, 1))},
            {"attraction": Table(pseudo_counts=(1.00000001, 1))},
        ),
        ({"attraction": Table(start=0.3)}, {"attraction": Table(start=0.30000001)}),
    ],
)
def test_settings_count_to_the_last_digit(log: Any, one: Any, other: Any) -> None:
    a, b, again = (identity_of(DBN(**forms), log, None) for forms in (one, other, one))
    assert a == again
    assert a != b


def test_numbers_of_numpy_are_numbers(log: Any) -> None:
    plain = identity_of(PBM(), log, None, method=EM(max_iter=7, tol=0.25), intervals=True)
    method = EM(max_iter=np.int64(7), tol=np.float64(0.25))
    assert identity_of(PBM(), log, None, method=method, intervals=np.True_) == plain
    forms = [Table(pseudo_counts=(kind(1), kind(2))) for kind in (float, np.float64)]
    one, other = (identity_of(PBM(attraction=form), log, None) for form in forms)
    assert one == other


@pytest.mark.parametrize(
    ("one", "other"),
    [([[1], 2], [[1, 2]]), ([[], [1]], [[1], []]), ({"a": {"b": 1}}, {"a": {}, "b": 1})],
)
def test_what_is_in_which_container_counts(log: Any, one: Any, other: Any) -> None:
    a, b = (identity_of(PBM(), log, None, setting=value) for value in (one, other))
    assert a["setting"] != b["setting"]


def test_a_fit_of_an_earlier_version_is_told(log: Any, tmp_path: Path) -> None:
    (tmp_path / "fit").mkdir()
    (tmp_path / "fit" / "fit.json").write_text('{"fit": "0a1b2c"}')
    with pytest.raises(CheckpointError, match="earlier version of gecasmo began"):
        model().fit(log, METHOD, checkpoint=tmp_path / "fit")


def test_a_full_disk_is_told_of_shared_rows(
    log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, rows: Any, sync: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fit_folder, "write_packet", full)
        with pytest.raises(CheckpointError, match=r"shared .* is full .* make room"):
            PBM().fit(log, METHOD, checkpoint=tmp_path / "fit")


def test_only_errors_that_nobody_knows_may_be_a_full_disk(tmp_path: Path) -> None:
    for problem, told in [
        (OSError("8 requested and 0 written"), "is full"),
        (FileNotFoundError("no such file"), "cannot be written: no such file"),
        (OSError(errno.EIO, "Input/output error"), "cannot be written: Input/output error"),
    ]:
        with (
            pytest.raises(CheckpointError, match=told),
            telling_full_disk(tmp_path / "x" / "y", CheckpointError, CheckpointError),
        ):
            raise problem


def test_what_a_fit_starts_from_counts(log: Any) -> None:
    starts = [PBM.with_values(examination=0.5, attraction=a) for a in (0.3, 0.1, 0.3)]
    a, b, again = (identity_of(PBM(), log, start) for start in starts)
    assert a == again
    assert a != b


def test_one_fit_at_a_time(log: Any, tmp_path: Path) -> None:
    identity = identity_of(model(), log, None)
    folder = FitFolder(tmp_path / "fit", log.path, identity)
    with pytest.raises(CheckpointError, match="in use by another fit"):
        FitFolder(tmp_path / "fit", log.path, identity)
    folder.release()
    FitFolder(tmp_path / "fit", log.path, identity).release()


def test_a_form_that_cannot_be_saved_is_told_before(log: Any, tmp_path: Path) -> None:
    class Mine(Table):
        """A table of one's own."""

    with pytest.raises(SavedModelError, match="fit without checkpoint="):
        PBM(examination=Mine()).fit(log, METHOD, checkpoint=tmp_path / "fit")
    assert PBM(examination=Mine((1, 1))).fit(log, METHOD).is_fitted


def test_copies_of_a_fit(log: Any, tmp_path: Path) -> None:
    fitted = model().fit(log, METHOD)
    twin = copy.deepcopy(fitted)
    with pytest.raises(ModelError, match="cannot be pickled"):
        pickle.dumps(fitted)
    expected = fitted.parameters["attraction"]
    del fitted
    assert twin.parameters["attraction"].equals(expected)


FULL = """
import resource, sys, warnings
import gecasmo
from gecasmo import DBN, EM
log, folder = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from gecasmo.testing import plain_python
try:
    with plain_python():
        DBN().fit(gecasmo.open_log(log), EM(max_iter=3, tol=0), checkpoint=folder)
except gecasmo.errors.CheckpointError as error:
    print(error)
"""


def test_files_that_may_not_grow_are_told(tmp_path: Path) -> None:
    """Writers of arrays and frames tell the system's refusal each in their own way."""
    pages = frame(3000).with_columns(query=pl.Series(np.repeat(np.arange(3000), 3)))
    log = ClickLog.ingest(pages, tmp_path / "log.gclog", partitions=1, progress=False)
    command = [sys.executable, "-c", FULL, str(log.path), str(tmp_path / "fit")]
    told = subprocess.run(command, capture_output=True, text=True)
    assert "is full" in told.stdout, told.stderr


def test_a_model_to_start_from_brings_its_prior(log: Any) -> None:
    pages = read_log(frame())
    start = DBN().fit(pages, EM(tol=1e-4))
    for method in (
        EM(max_iter=3, tol=0, accelerate=False),
        EM(max_iter=3, tol=0, restarts=3),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole, parts = (DBN().fit(x, method, start=start) for x in (pages, log))
        assert parts.report_.objective == pytest.approx(whole.report_.objective, rel=1e-9)
        assert parts.report_.n_evaluations == whole.report_.n_evaluations


def test_starting_from_rows_in_files_reads_them_part_by_part(
    log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = model().fit(log, METHOD)
    monkeypatch.setattr(PartedTable, "whole", lambda self: pytest.fail("all rows were read"))
    again = model().fit(log, METHOD, start=start)
    monkeypatch.undo()
    assert again.report_.objective >= start.report_.objective - 1e-9


def test_arrays_of_parts_have_no_header_to_be_parsed_as_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads read parts side by side, and CPython 3.11 cannot parse Python in several at once."""
    given = {
        "short": np.array([3, 1, 2], np.uint8),
        "long": np.arange(9_000.0).reshape(2, -1) ** 2,
        "none": np.zeros((2, 0), np.float32),
        "even": np.arange(5, 500, dtype=np.int32),
    }
    part_files.write_pages(tmp_path / "part", {"of": "a test"}, given)
    monkeypatch.setattr(ast, "literal_eval", lambda *_: pytest.fail("parsed as Python"))
    words, found = part_files.read_pages(tmp_path / "part")
    assert words == {"of": "a test"}
    for name, array in given.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_answers_of_parts_are_not_kept_until_all_are_there() -> None:
    alive: list[weakref.ref[Answer]] = []

    def answers() -> Iterator[Answer]:
        for number in range(8):
            # The two first, and the last.
            assert sum(one() is not None for one in alive) <= 3
            table = np.full((2, 1), float(number))
            answer = Answer(-1.0, 0, 0.0, {0: SharedCounts(table, 1)})
            alive.append(weakref.ref(answer))
            yield answer
            del answer, table

    total = combined(answers())
    assert total.log_likelihood == -8.0
    np.testing.assert_array_equal(total.counts[0].table, np.full((2, 1), 28.0))
