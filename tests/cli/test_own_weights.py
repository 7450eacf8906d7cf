"""Folded logs whose source had weights of its own: what is counted, and what nobody can tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import fail, succeed, succeed_with_json

import gecasmo
from gecasmo.errors import ClickLogError

N_SESSIONS = 400


@pytest.fixture(scope="module")
def weighed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few different pages, each shown often, with weights between a half and three and a half."""
    random = np.random.default_rng(2)
    rows = []
    for session in range(N_SESSIONS):
        query, weight = int(random.integers(3)), float(random.integers(4)) + 0.5
        for rank in range(1, 4):
            rows.append((session, f"q{query}", f"d{rank}", rank, random.random() < 0.3, weight))
    path = tmp_path_factory.mktemp("weighed") / "clicks.parquet"
    names = ["session", "query", "doc", "rank", "click", "weight"]
    pl.DataFrame(rows, schema=names, orient="row").write_parquet(path)
    return path


@pytest.fixture(scope="module")
def folded(weighed: Path) -> Path:
    path = weighed.with_name("clicks.gclog")
    succeed("ingest", weighed, "-o", path, "--partitions", "2", "--fold", "-q")
    return path


@pytest.fixture(scope="module")
def fitted(folded: Path) -> Path:
    path = folded.with_name("pbm.fit")
    succeed("fit", "PBM", folded, "-o", path, "-q", "--max-iter", "3", "--tol", "0")
    return path


def test_answers_count_the_source(fitted: Path, folded: Path, tmp_path: Path) -> None:
    assert gecasmo.open_log(folded).n_pages < N_SESSIONS
    found = succeed_with_json("evaluate", fitted, folded)
    assert (found["sessions"], found["results"]) == (N_SESSIONS, 3 * N_SESSIONS)
    for kind in ("marginal", "conditional"):
        target = tmp_path / f"{kind}.parquet"
        told = succeed("predict", fitted, folded, "-o", target, "--kind", kind).stdout
        n_rows = len(pl.read_parquet(target))
        assert n_rows < 3 * N_SESSIONS
        assert "1,200 results" in told
        assert f"in {n_rows:,} rows with weights" in told


def test_figures_are_those_of_the_source(fitted: Path, folded: Path, weighed: Path) -> None:
    model = gecasmo.load(fitted)
    found = model.evaluate(gecasmo.open_log(folded))
    wanted = model.evaluate(gecasmo.read_log(weighed, weight="weight"))
    assert (found.n_sessions, found.n_results) == (wanted.n_sessions, wanted.n_results)
    assert found.to_dict() == pytest.approx(wanted.to_dict(), rel=1e-9)


@pytest.mark.parametrize("name", ["made.gclog", "made.csv"])
def test_nobody_knows_how_often_pages_occurred(
    fitted: Path, folded: Path, tmp_path: Path, name: str
) -> None:
    text = fail("simulate", fitted, folded, "-o", tmp_path / name)
    assert "nobody knows how often each page occurred" in text
    assert "Ingest it with --no-fold." in text
    assert not list(tmp_path.iterdir())
    with pytest.raises(ClickLogError, match="Ingest it with fold=False"):
        gecasmo.load(fitted).simulate(gecasmo.open_log(folded), path=tmp_path / "x.gclog")


def test_simulated_logs_are_replaced_if_asked(fitted: Path, weighed: Path, tmp_path: Path) -> None:
    model, target = gecasmo.load(fitted), tmp_path / "made.gclog"
    log = gecasmo.ClickLog.ingest(weighed, tmp_path / "in.gclog", weight="weight", fold=False)
    first = model.simulate(log, path=target, seed=1)
    with pytest.raises(ClickLogError, match="overwrite=True replaces it"):
        model.simulate(log, path=target, seed=2)
    assert gecasmo.open_log(target).fingerprint == first.fingerprint
    second = model.simulate(log, path=target, seed=2, overwrite=True)
    assert second.n_sessions == N_SESSIONS
    assert gecasmo.open_log(target).fingerprint == second.fingerprint != first.fingerprint
    with pytest.raises(ClickLogError, match=r"overwrite=True\) is for stored logs"):
        model.simulate(gecasmo.read_log(weighed), overwrite=True)


def test_no_weights_if_asked(fitted: Path, weighed: Path, tmp_path: Path) -> None:
    target = tmp_path / "plain.gclog"
    succeed("ingest", weighed, "-o", target, "--weight", "none", "--fold", "-q")
    log = gecasmo.open_log(target)
    assert log.total_weight == log.n_sessions == N_SESSIONS
    assert log.weights_are_counts
    plain = pl.read_parquet(weighed).drop("weight")
    plain.write_parquet(tmp_path / "plain.parquet")
    wanted = succeed_with_json("evaluate", fitted, tmp_path / "plain.parquet")
    found = succeed_with_json("evaluate", fitted, weighed, "--weight", "None")
    guessed = succeed_with_json("evaluate", fitted, weighed)
    assert found["log_likelihood"] == wanted["log_likelihood"] != guessed["log_likelihood"]
