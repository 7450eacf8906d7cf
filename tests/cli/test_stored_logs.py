"""Commands on a stored log: what they say of it is what they say of the log itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import fail, succeed, succeed_with_json

import gecasmo
from gecasmo.forms.parted_table import PartedTable


@pytest.fixture(scope="module")
def stored(log_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "clicks.gclog"
    gecasmo.ClickLog.ingest(str(log_file), path, partitions=4, keep="session", fold=False)
    return path


@pytest.fixture(scope="module")
def stored_fit(stored: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "dbn.fit"
    data = succeed_with_json("fit", "DBN", stored, "-o", path)
    assert data["reading"]["format"] == "stored log"
    rows = {row["coin"]: row for row in data["coins"]}
    assert rows["attraction"]["rows"] > rows["continuation"]["rows"] == 1
    assert 0 < rows["attraction"]["lowest"] < rows["attraction"]["highest"] < 1
    return path


def test_a_fit_keeps_its_rows_in_parts(stored_fit: Path, fit_file: Path, log) -> None:
    model, other = gecasmo.load(stored_fit), gecasmo.load(fit_file)
    assert isinstance(model.states_["attraction"], PartedTable)
    # Parts look at their rows once; on 240 pages that shows.
    assert model.score(log) == pytest.approx(other.score(log), abs=2e-3)


def test_evaluate(fit_file: Path, stored_fit: Path, stored: Path, log_file: Path) -> None:
    for fit in (fit_file, stored_fit):
        found = succeed_with_json("evaluate", fit, stored)
        wanted = succeed_with_json("evaluate", fit, log_file)
        assert found["sessions"] == wanted["sessions"] == 240
        assert found["log_likelihood"] == pytest.approx(wanted["log_likelihood"], abs=1e-12)
        assert found["by_rank"] == [pytest.approx(row, abs=1e-12) for row in wanted["by_rank"]]


@pytest.mark.parametrize("kind", ["conditional", "marginal"])
def test_predict(fit_file: Path, stored: Path, log_file: Path, folder: Path, kind: str) -> None:
    told = succeed("predict", fit_file, stored, "-o", "big.parquet", "--kind", kind).stdout
    assert told.strip() == "big.parquet: click probabilities of 2,400 results"
    succeed_with_json("predict", fit_file, log_file, "-o", "small.parquet", "--kind", kind)
    big, small = (pl.read_parquet(folder / f"{name}.parquet") for name in ("big", "small"))
    order = ["session", "rank"]
    found, wanted = (frame.sort(order)["probability"] for frame in (big, small))
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_predict_into_a_folder(fit_file: Path, stored: Path, folder: Path) -> None:
    data = succeed_with_json("predict", fit_file, stored, "-o", "predicted")
    assert data["results"] == 2400
    assert len(pl.read_parquet(folder / "predicted" / "*.parquet")) == 2400
    succeed("predict", fit_file, stored, "-o", "predicted")  # in its place
    assert len(pl.read_parquet(folder / "predicted" / "*.parquet")) == 2400
    assert len(succeed("predict", fit_file, stored, "-o", "-").stdout.splitlines()) == 2401


def test_judgments_of_a_fit_in_parts(stored_fit: Path, folder: Path) -> None:
    data = succeed_with_json("judgments", stored_fit, "-o", "j.csv", "--worth-judging", "3")
    frame = pl.read_csv(folder / "j.csv")
    assert data["pairs"] == len(frame)
    assert len(data["worth_judging"]["pairs"]) == 3
    text = succeed("judgments", stored_fit, "-o", "-", "--format", "csv").stdout
    assert len(text.splitlines()) == len(frame) + 1


def test_simulate(fit_file: Path, stored: Path, folder: Path) -> None:
    data = succeed_with_json("simulate", fit_file, stored, "-o", "made.gclog", "--seed", "3")
    made = gecasmo.open_log(folder / "made.gclog")
    assert data["sessions"] == made.n_sessions == 240
    assert data["clicks"] == made.n_clicks
    assert len(succeed("simulate", fit_file, stored, "-o", "-").stdout.splitlines()) == 2401


def test_propensities(fit_file: Path, stored: Path, log_file: Path) -> None:
    found, wanted = (
        succeed_with_json("propensities", fit_file, path)["propensities"]
        for path in (stored, log_file)
    )
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours["examination"] == pytest.approx(theirs["examination"], abs=1e-12)


def test_check(stored: Path, log_file: Path) -> None:
    found = succeed_with_json("check", stored)
    wanted = succeed_with_json("check", log_file)
    topics = [[f["topic"] for f in data["findings"]] for data in (found, wanted)]
    assert set(topics[1]) <= {*topics[0]}


def test_columns_of_a_stored_log_have_names_already(fit_file: Path, stored: Path) -> None:
    text = fail("evaluate", fit_file, stored, "--query", "q")
    assert "is a stored log, whose columns were named by ingest" in " ".join(text.split())
    for flag, value in (("--separator", ";"), ("--format", "ubi"), ("--max-line", "10")):
        text = fail("evaluate", fit_file, stored, flag, value)
        assert f"{flag}: {stored} is a stored log, which ingest has read." in " ".join(text.split())


def test_a_model_in_a_folder(fit_file: Path, log_file: Path, folder: Path) -> None:
    gecasmo.load(fit_file).save(folder / "dbn.gecasmo", folder=True)
    found = succeed("evaluate", "dbn.gecasmo", log_file).stdout
    assert found == succeed("evaluate", fit_file, log_file).stdout
    assert json.loads((folder / "dbn.gecasmo" / "manifest.json").read_text())["version"] == 1
