"""Fits on executors that are processes of their own, some of which are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from spark_sessions import started

from gecasmo import DBN, EM, read_log
from gecasmo import spark as on_spark
from gecasmo.spark.executors import pass_over
from gecasmo.spark.spark_fit import SparkParts

pytestmark = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas", "ignore:.*:ResourceWarning"
)

STEPS = EM(max_iter=8, tol=0)
IS_LONG = "GECASMO_EXAMPLES" in os.environ
PASSES = [0, 2, 4, 7] if IS_LONG else [4]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from started("local-cluster[2,1,1024]", tmp_path_factory)


@pytest.fixture(scope="module")
def undisturbed(cluster: Any, clicks_file: str) -> Any:
    return fitted(cluster, clicks_file)


def fitted(cluster: Any, file: str) -> Any:
    frame = cluster.read.parquet(file)
    return on_spark.fit(DBN(), frame, method=STEPS, partitions=4)


def killing(who: str, at: int, seen: Path) -> Any:
    """A pass that kills its own worker, or the executor above it, the first time that it comes to
    one of the parts in pass number `at`."""
    name, flag, deadly = f"p{at}", str(seen), int(signal.SIGKILL)

    def parent_of(process: int) -> int:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])

    def run(job: Any, number: int, task: Any) -> Any:
        done = pass_over(job, number, task)
        if task.name == name and number == 2:
            try:
                with open(flag, "x", encoding="utf-8") as file:
                    worker = os.getpid()
                    victim = worker
                    if who == "executor":  # which started the daemon that started this worker
                        victim = parent_of(parent_of(worker))
                        with open(f"/proc/{victim}/cmdline", encoding="utf-8") as command:
                            assert "CoarseGrainedExecutorBackend" in command.read()
                    file.write(str(victim))
                os.kill(victim, deadly)
            except FileExistsError:
                pass
        return done

    return run


def test_executors_of_their_own_find_the_same(undisturbed: Any, clicks: pl.DataFrame) -> None:
    expected = DBN().fit(read_log(clicks), STEPS)
    for coin, table in expected.parameters.items():
        keys = list(expected.keys[coin])
        found = undisturbed.parameters[coin]
        if keys:
            found, table = found.sort(keys), table.sort(keys)
        assert found["probability"].to_numpy() == pytest.approx(
            table["probability"].to_numpy(), rel=1e-9
        )


@pytest.mark.parametrize("at", PASSES)
@pytest.mark.parametrize("who", ["worker", "executor"])
def test_who_is_killed_in_the_middle_of_an_iteration_changes_nothing(
    who: str,
    at: int,
    cluster: Any,
    undisturbed: Any,
    clicks_file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = tmp_path / "killed"
    monkeypatch.setattr(SparkParts, "work", staticmethod(killing(who, at, seen)))
    found = fitted(cluster, clicks_file)
    assert not Path(f"/proc/{seen.read_text()}/cwd").exists()  # it is dead indeed
    for coin, table in undisturbed.parameters.items():
        assert found.parameters[coin].equals(table), "not the very same numbers"
    assert found.report_ is not None
    assert found.report_.objective == undisturbed.report_.objective
