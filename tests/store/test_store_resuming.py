"""An ingest that was killed, or met a full disk, goes on where it was, and ends in the same."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from stored_pages import all_pages, files_of, multiset, pages_of

from gecasmo import ClickLog, open_log, read_log
from gecasmo.errors import ClickLogError
from gecasmo.logs.store.intake import Intake
from gecasmo.logs.store.journal import IngestJournal
from gecasmo.logs.store.shuffle import Shuffle

KILLED = """
import os, signal, sys
sys.path[:0] = sys.argv[5:]
from gecasmo.logs import packed
from gecasmo.logs.store import ingest, intake
packed.CHUNK = 400
intake.batch_rows = lambda *_: 40
intake.chunk_bytes = lambda *_: 400
ingest.most_rows = lambda *_: 60
left, real = int(sys.argv[3]), {name: getattr(os, name) for name in ("fsync", "replace")}
def count(name):
    def counted(*arguments):
        global left
        left -= 1
        if left == 0:  # before or after the step itself
            if sys.argv[4] == "after":
                real[name](*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        return real[name](*arguments)
    return counted
os.fsync, os.replace = count("fsync"), count("replace")
ingest.ingest(sys.argv[1], sys.argv[2], partitions=8, keep=["device"])
"""


def killed(source: str, target: Path, step: int, when: str) -> bool:
    """Ingest in a process that is killed at some step; whether it got so far."""
    arguments = [sys.executable, "-c", KILLED, source, str(target), str(step), when]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode == -9


ROUNDS = int(os.environ.get("GECASMO_KILLS", "3"))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_killed_at_any_moment(
    kind: str, frame: pl.DataFrame, parquet: str, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    small_steps(rows=40, chunk=400, most=60)
    source = parquet
    if kind == "csv":
        source = str(tmp_path / "clicks.csv")
        frame.write_csv(source)
    expected = ClickLog.ingest(source, tmp_path / "expected", partitions=8, keep=["device"])
    random = np.random.default_rng(None if "GECASMO_KILLS" in os.environ else len(kind))
    for round_ in range((ROUNDS + 1) // 2):
        target = tmp_path / f"log {round_}"
        step = int(random.integers(1, 60))
        is_killed = killed(source, target, step, ["before", "after"][round_ % 2])
        if target.exists():  # it was over, or as good as over
            assert files_of(open_log(target)) == files_of(expected)
        else:
            assert is_killed
            with pytest.raises(ClickLogError, match="has not finished"):
                open_log(target)
        stored = ClickLog.ingest(
            source, target, partitions=8, keep=["device"], overwrite=target.exists()
        )
        assert files_of(stored) == files_of(expected)
        assert not target.with_name(f"{target.name}.part").exists()


class Stopped(Exception):
    pass


def interrupted(source: Any, target: Path, at: tuple[str, int], **options: Any) -> None:
    """An ingest that stops when it is told so far."""

    def tell(stage: str, done: int, total: int | None) -> None:
        if stage == at[0] and done >= at[1]:
            raise Stopped

    with pytest.raises(Stopped):
        ClickLog.ingest(source, target, progress=tell, **options)
    assert target.with_name(f"{target.name}.part").is_dir()


def test_what_is_done_is_not_done_again(
    parquet: str, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    small_steps(rows=40)
    target = tmp_path / "log"
    told: list[tuple[str, int, int | None]] = []
    interrupted(parquet, target, ("reading", 120))
    ClickLog.ingest(parquet, target, progress=lambda *what: told.append(what))
    reading = [done for stage, done, _ in told if stage == "reading"]
    assert min(reading) > 120
    assert reading[-1] == 200


@pytest.fixture
def late_text(frame: pl.DataFrame, tmp_path: Path) -> Path:
    """Queries that look like integers until the last pages."""
    text = pl.col("query").cast(pl.String)
    late = pl.when(pl.col("session") == "s58").then(pl.lit("x")).otherwise(text)
    path = tmp_path / "late.csv"
    frame.with_columns(query=late).write_csv(path)
    return path


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", ["before the first", "in the middle", "after the last"])
def test_killed_while_batches_of_narrow_types_are_removed(
    moment: str,
    late_text: Path,
    tmp_path: Path,
    small_steps: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_steps(rows=30)
    expected = ClickLog.ingest(late_text, tmp_path / "expected", partitions=4)
    clear, unlink = Shuffle.clear, Path.unlink
    left = 6

    def clear_and_die(shuffle: Shuffle) -> None:
        assert len(shuffle) > 3
        if moment == "after the last":
            clear(shuffle)
        elif moment == "in the middle":
            monkeypatch.setattr(Path, "unlink", unlink_some)
            clear(shuffle)
        raise Killed

    def unlink_some(path: Path, missing_ok: bool = False) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        unlink(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Shuffle, "clear", clear_and_die)
        with pytest.raises(Killed):
            ClickLog.ingest(late_text, tmp_path / "log", partitions=4)
    monkeypatch.setattr(Path, "unlink", unlink)
    stored = ClickLog.ingest(late_text, tmp_path / "log", partitions=4)
    assert files_of(stored) == files_of(expected)


@pytest.mark.parametrize("harm", ["flipped", "cut", "lost"])
def test_damaged_batches_are_read_again(
    harm: str, parquet: str, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    small_steps(rows=40)
    expected = ClickLog.ingest(parquet, tmp_path / "expected", partitions=4)
    interrupted(parquet, tmp_path / "log", ("writing", 1), partitions=4)
    batch = tmp_path / "log.part" / "spill" / "batch-000001.spill"
    data = bytearray(batch.read_bytes())
    data[len(data) // 2] ^= 4
    batch.write_bytes(bytes(data if harm == "flipped" else data[:-20]))
    if harm == "lost":
        batch.unlink()
    told: list[str] = []
    stored = ClickLog.ingest(
        parquet, tmp_path / "log", partitions=4, progress=lambda stage, *_: told.append(stage)
    )
    assert "reading" in told
    assert files_of(stored) == files_of(expected)


def test_batches_of_other_types_are_read_again(
    late_text: Path,
    tmp_path: Path,
    small_steps: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a power cut, files can be there again that were removed just before it."""
    small_steps(rows=30)
    expected = ClickLog.ingest(late_text, tmp_path / "expected", partitions=4)
    save = IngestJournal.save

    def save_and_die(journal: IngestJournal, **changes: Any) -> None:
        save(journal, **changes)
        if changes.get("plan", 0) is None:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Shuffle, "clear", lambda shuffle: None)
        patched.setattr(IngestJournal, "save", save_and_die)
        with pytest.raises(Killed):
            ClickLog.ingest(late_text, tmp_path / "log", partitions=4)
    stored = ClickLog.ingest(late_text, tmp_path / "log", partitions=4)
    assert files_of(stored) == files_of(expected)


@pytest.mark.parametrize(("before", "after"), [(300, 10**6), (10**6, 300)])
@pytest.mark.parametrize("stage", ["reading", "writing"])
def test_going_on_with_another_memory(
    before: int,
    after: int,
    stage: str,
    late_text: Path,
    tmp_path: Path,
    small_steps: Callable[..., None],
) -> None:
    """The first chunk is then another, and shows other types by itself."""
    expected = ClickLog.ingest(late_text, tmp_path / "expected", partitions=4)
    small_steps(rows=30, chunk=before)
    interrupted(late_text, tmp_path / "log", (stage, 1), partitions=4)
    small_steps(rows=30, chunk=after)
    told: list[str] = []
    stored = ClickLog.ingest(
        late_text, tmp_path / "log", partitions=4, progress=lambda stage, *_: told.append(stage)
    )
    assert files_of(stored) == files_of(expected)
    # What was read with types that hold all is not read again.
    assert ("reading" in told) == (stage == "reading" and before < after)


def test_partitions_that_are_written_stay(
    parquet: str, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    target = tmp_path / "log"
    interrupted(parquet, target, ("writing", 3), partitions=8)
    told: list[tuple[str, int, int | None]] = []
    ClickLog.ingest(parquet, target, partitions=8, progress=lambda *what: told.append(what))
    assert told[0][0] == "writing"
    assert told[0][1] > 3


def test_a_plan_is_for_the_memory_that_the_first_was_granted(
    parquet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it was killed before there was a plan; the least memory counts."""
    granted = []

    def killed(self: Intake) -> None:
        raise KeyboardInterrupt

    def noted(n_results: int, n_bytes: int, memory: int) -> int:
        granted.append(memory)
        return 2

    with monkeypatch.context() as patch:
        patch.setattr(Intake, "_plan", killed)
        for memory in ("300MB", "4GB", "200MB"):
            with pytest.raises(KeyboardInterrupt):
                ClickLog.ingest(parquet, tmp_path / "log", memory=memory)
    monkeypatch.setattr("gecasmo.logs.store.ingest.partitions_for", noted)
    assert ClickLog.ingest(parquet, tmp_path / "log").n_partitions == 2
    assert granted == [200_000_000]


def test_changed_inputs_are_refused(
    parquet: str, frame: pl.DataFrame, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    small_steps(rows=40)
    target = tmp_path / "log"
    interrupted(parquet, target, ("reading", 40))
    changed = tmp_path / "part-1.parquet"
    before, about = changed.read_bytes(), changed.stat()
    time.sleep(0.01)
    frame.head(30).write_parquet(changed)
    with pytest.raises(ClickLogError, match=r"part-1.parquet was changed since .* resume=False"):
        ClickLog.ingest(parquet, target)
    changed.unlink()
    with pytest.raises(ClickLogError, match=r"was an input when the ingest .* and is none now"):
        ClickLog.ingest(parquet, target)
    changed.write_bytes(before)
    os.utime(changed, ns=(about.st_mtime_ns, about.st_mtime_ns))
    with pytest.raises(
        ClickLogError, match="began here with fold='auto', and cannot be resumed with fold=True; to"
    ):
        ClickLog.ingest(parquet, target, fold=True, resume=True)
    log = ClickLog.ingest(parquet, target, resume=False, fold=True)
    assert multiset(all_pages(log)) == multiset(pages_of(read_log(frame.drop("device", "price"))))


def test_an_input_that_changes_while_it_is_read(
    parquet: str, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    small_steps(rows=40)

    def tell(stage: str, done: int, total: int | None) -> None:
        os.utime(tmp_path / "part-0.parquet", ns=(1, 1))

    with pytest.raises(ClickLogError, match=r"part-0.parquet was changed while it was read"):
        ClickLog.ingest(parquet, tmp_path / "log", progress=tell)
    assert not (tmp_path / "log.part").exists()


def test_what_cannot_be_read_again_starts_anew(
    frame: pl.DataFrame, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    """Nobody knows whether an iterator would bring the same again."""
    small_steps(rows=40)
    interrupted(iter([frame]), tmp_path / "log", ("writing", 1), partitions=4)
    other = frame.head(50)
    log = ClickLog.ingest(iter([other]), tmp_path / "log", partitions=4)
    assert log.n_results == 50


@pytest.mark.parametrize("step", [1, 3, 6, 11, 17])
def test_a_full_disk_loses_nothing(
    step: int,
    parquet: str,
    tmp_path: Path,
    small_steps: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_steps(rows=40)
    expected = ClickLog.ingest(parquet, tmp_path / "expected", partitions=4)
    left, real = step, os.fsync

    def full(handle: int) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(ClickLogError, match=r"the disk is full .* run the same again"):
            ClickLog.ingest(parquet, tmp_path / "log", partitions=4)
    assert not (tmp_path / "log").exists()
    assert files_of(ClickLog.ingest(parquet, tmp_path / "log", partitions=4)) == files_of(expected)


def test_too_little_room_is_told_before_the_work(
    parquet: str,
    tmp_path: Path,
    small_steps: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_steps(rows=40)
    with monkeypatch.context() as patched:
        patched.setattr("gecasmo.logs.store.disk.free_bytes", lambda _: 100)
        told: list[Any] = []
        with pytest.raises(ClickLogError, match=r"are needed \(.* for rows on their way"):
            ClickLog.ingest(parquet, tmp_path / "log", progress=lambda *what: told.append(what))
        assert told == []
    assert ClickLog.ingest(parquet, tmp_path / "log").n_sessions == 60


def test_killed_after_all_was_done(parquet: str, tmp_path: Path) -> None:
    log = ClickLog.ingest(parquet, tmp_path / "log")
    rest = tmp_path / "log.part"
    (rest / "spill").mkdir(parents=True)
    with pytest.raises(ClickLogError, match="exists already"):
        ClickLog.ingest(parquet, tmp_path / "log")
    assert not rest.exists()
    assert open_log(tmp_path / "log").fingerprint == log.fingerprint


def test_two_at_once_are_refused(parquet: str, tmp_path: Path) -> None:
    def tell(stage: str, done: int, total: int | None) -> None:
        with pytest.raises(ClickLogError, match="another process is ingesting"):
            ClickLog.ingest(parquet, tmp_path / "log")

    assert ClickLog.ingest(parquet, tmp_path / "log", progress=tell).n_sessions == 60


def test_faults_leave_nothing_behind(frame: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match="with more than one result"):
        ClickLog.ingest(frame.with_columns(rank=1), tmp_path / "log")
    assert list(tmp_path.iterdir()) == []
