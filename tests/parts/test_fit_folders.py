"""Folders of fits that are full, damaged, or of something else."""

from __future__ import annotations

import errno
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo import DBN, EM, ClickLog, Table, open_log, read_log
from gecasmo.errors import CheckpointError, ClickLogError, ModelError
from gecasmo.estimation.parts import disk

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


def test_another_log_is_refused(log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_short(log, tmp_path / "fit", monkeypatch)
    ClickLog.ingest(
        frame(seed=2), tmp_path / "log.gclog", partitions=2, progress=False, overwrite=True
    )
    with pytest.raises(CheckpointError, match="belongs to another fit"):
        model().fit(open_log(tmp_path / "log.gclog"), METHOD, checkpoint=tmp_path / "fit")


@pytest.mark.parametrize("folder", ["parts", "points", "journal"])
@pytest.mark.parametrize("damage", ["cut", "removed"])
def test_damage_is_told(
    log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, damage: str
) -> None:
    cut_short(log, tmp_path / "fit", monkeypatch)
    for path in list((tmp_path / "fit" / folder).rglob("*.np[yz]")):
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
    write, calls = disk.write_arrays, []

    def full(*arguments: Any) -> int:
        calls.append(1)
        if len(calls) == 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_arrays", full)
        with pytest.raises(CheckpointError, match=r"is full .* make room"):
            model().fit(log, METHOD, checkpoint=tmp_path / "fit", threads=1)
    same(model().fit(log, METHOD), model().fit(log, METHOD, checkpoint=tmp_path / "fit"))


def test_too_little_room_is_told_before(
    log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gecasmo.logs.store import sizes

    monkeypatch.setattr(sizes, "free_bytes", lambda folder: 10)
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
