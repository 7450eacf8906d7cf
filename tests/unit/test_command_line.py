"""The command line: what it prints, and how it fails."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from gecasmo.cli import app
from gecasmo.models import CATALOGUE

WIDE = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env=WIDE)


def test_models_lists_the_zoo() -> None:
    found = invoke("models")
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(CATALOGUE)
    assert "attraction, satisfaction, continuation" in found.stdout


@pytest.mark.parametrize("name", CATALOGUE)
def test_describe(name: str) -> None:
    found = invoke("describe", name)
    assert found.exit_code == 0
    assert found.stdout.startswith(f"{name}: not fitted")
    assert f"class {name}(ClickModel):" in found.stdout
    assert "Automaton: " in found.stdout


def test_an_unknown_model_is_an_error_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from gecasmo.cli import main; main()", "describe", "XYZ"],
        capture_output=True,
        text=True,
        env=os.environ | WIDE,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("ModelError: There is no model 'XYZ'. There are: GCTR, RCTR")
    assert "Traceback" not in done.stderr


def test_an_unknown_command() -> None:
    assert invoke("frobnicate").exit_code == 2


def test_help_names_the_commands() -> None:
    found = invoke("--help")
    assert found.exit_code == 0
    for command in ("demo", "models", "describe"):
        assert command in found.stdout


def test_the_demo_compares_three_models(compiled: None) -> None:
    found = invoke("demo", "--pages", "400")
    assert found.exit_code == 0, found.output
    text = found.stdout
    assert "Simulating 400 pages" in text
    for word in ("RCTR", "UBM", "DBN", "truth", "log-likelihood", "perplexity", "seconds"):
        assert word in text
    assert "DBN estimates continuation as 0." in text
    assert "the simulated users had 0.9" in text


def test_the_demo_refuses_too_few_pages() -> None:
    assert invoke("demo", "--pages", "3").exit_code == 2
