"""After a power cut at any moment nothing half is taken for whole, and work goes on."""

from __future__ import annotations

import os
import random
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from stored_pages import simulated

from gecasmo import DBN, EM, ClickLog, Table, load, open_log
from gecasmo.errors import ClickLogError
from power_cut import PowerCut, build

pytestmark = [
    pytest.mark.usefixtures("plain_kernels"),
    pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs names of open files"),
]
# Of the states that a cut may leave, so many are looked at, or all.
MOST = None if "GECASMO_EXAMPLES" in os.environ else 25
TABLE = Table(pseudo_counts=(1, 1))


def some(cut: PowerCut) -> list[Any]:
    cut.close()
    states = list(cut.states.values())
    assert len(states) > 5
    if MOST is None or len(states) <= MOST:
        return states
    return [*states[-3:], *random.Random(1).sample(states[:-3], MOST - 3)]


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "clicks.parquet"
    simulated(40, 3).write_parquet(path)
    return path


def ingested(source: Path, target: Path, **options: Any) -> dict[str, bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ClickLog.ingest(source, target, partitions=2, **options)
    return files_in(target)


@pytest.mark.parametrize("is_there", [False, True])
def test_an_ingest(
    is_there: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    before = {}
    with monkeypatch.context() as patch:
        if is_there:
            cut = PowerCut(root, patch)
            other = tmp_path / "other.parquet"
            pl.read_parquet(source).head(30).write_parquet(other)
            before = ingested(other, root / "log.gclog")
            cut.states.clear()
        else:
            cut = PowerCut(root, patch)
        expected = ingested(source, root / "log.gclog", overwrite=is_there)
        states = some(cut)
    for number, tree in enumerate(states):
        target = build(tree, tmp_path / str(number)) / "log.gclog"
        try:
            open_log(target).check()
        except ClickLogError as problem:
            assert "ingest" in str(problem) or "no such stored log" in str(problem)  # noqa: PT017
        else:
            assert files_in(target) in (before, expected)
        assert ingested(source, target, overwrite=True) == expected


def test_a_fit_with_a_checkpoint(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested(source, tmp_path / "log.gclog")
    log, method = open_log(tmp_path / "log.gclog"), EM(max_iter=2, tol=0)

    def fitted(checkpoint: Path) -> list[Any]:
        model = DBN(attraction=TABLE, satisfaction=TABLE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(log, method, checkpoint=checkpoint)
        return [table.sort(table.columns).rows() for table in model.parameters.values()]

    root = tmp_path / "disk"
    root.mkdir()
    with monkeypatch.context() as patch:
        cut = PowerCut(root, patch)
        expected = fitted(root / "fit")
        states = some(cut)
    for number, tree in enumerate(states):
        # It goes on from there, whatever there is.
        assert fitted(build(tree, tmp_path / str(number)) / "fit") == expected


def test_a_saved_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    values = [{"attraction": 0.5, "satisfaction": 0.5, "continuation": c} for c in (0.25, 0.75)]
    with monkeypatch.context() as patch:
        cut = PowerCut(root, patch)
        for each in values:
            DBN.with_values(**each).save(root / "model.fit")
        states = some(cut)
    found = set()
    for number, tree in enumerate(states):
        path = build(tree, tmp_path / str(number)) / "model.fit"
        if path.exists():
            found.add(load(path).parameters["continuation"]["probability"][0])
    assert found == {0.25, 0.75}
