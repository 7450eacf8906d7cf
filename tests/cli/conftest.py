"""A small log and fits of it, made once for all tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import succeed

import gecasmo
from gecasmo.simulation import demo_log


@pytest.fixture(scope="session")
def log() -> gecasmo.ClickLog:
    """Pages of simulated users."""
    return demo_log(240, seed=3)[0]


@pytest.fixture(scope="session")
def log_file(log: gecasmo.ClickLog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "clicks.csv"
    log.write(path)
    return path


@pytest.fixture(scope="session")
def fit_file(log_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fits") / "dbn.fit"
    succeed("fit", "DBN", log_file, "-o", path)
    return path


@pytest.fixture(scope="session")
def pbm_file(log_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fits") / "pbm.fit"
    succeed("fit", "pbm", log_file, "-o", path)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
