"""Commands that need no log: what they print, and how they fail."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import fail, invoke, run, succeed, succeed_with_json

import gecasmo
from gecasmo import DBN, UBM
from gecasmo.checks import subject
from gecasmo.cli import _PANELS
from gecasmo.cli.guard import MEANINGS
from gecasmo.cli.lookup import find_model
from gecasmo.cli.models_page import CHOOSER, CLICKS, FACTS, SIGNALS, VIEWS, described
from gecasmo.errors import ModelError
from gecasmo.evaluation import contestants
from gecasmo.models import CATALOGUE, model_named

COMMANDS = [command.__name__ for commands in _PANELS.values() for command in commands]


def test_models_lists_the_zoo() -> None:
    found = invoke("models")
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    # Coins that do not fit go on below, under their column; each group has a title and headings.
    beginnings = [line.split()[0] for line in lines if line and not line.startswith(" " * 3)]
    assert [word for word in beginnings if word in CATALOGUE] == list(CATALOGUE)
    for group in (CLICKS, SIGNALS, FACTS, VIEWS):
        assert group in lines
    assert "attraction, satisfaction, continuation" in found.stdout


@pytest.mark.parametrize("name", CATALOGUE)
def test_describe(name: str) -> None:
    found = invoke("describe", name)
    assert found.exit_code == 0
    assert found.stdout.startswith(f"{name}: not fitted")
    assert f"class {name}(ClickModel):" in found.stdout
    assert "Automaton: " in found.stdout


def test_an_unknown_model_is_an_error_without_a_traceback() -> None:
    done = run("describe", "XYZ")
    assert done.returncode == 1
    assert done.stdout == b""
    said = done.stderr.decode()
    assert said.startswith("ModelError: There is no model 'XYZ'. There are: GCTR, RCTR")
    assert "Traceback" not in said


def test_an_unknown_command() -> None:
    assert invoke("frobnicate").exit_code == 2


def test_help_names_the_commands_and_the_exit_codes() -> None:
    text = succeed("--help").stdout
    for command in ("demo", "models", "describe"):
        assert command in text
    for command in COMMANDS:
        assert f" {command} " in text
    for code in ("0  fine", "3  `check` found errors", "4  the fit did not converge", "130"):
        assert code in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_the_flags_of_scripts(command: str) -> None:
    text = succeed(command, "--help").stdout
    assert f"gecasmo {command}" in text.split("Example")[1]
    assert "--quiet" in text
    assert "--json" in text
    assert "[/" not in text  # no markup left over


def test_no_command_shows_the_help() -> None:
    assert "Usage: " in invoke().output


def test_the_version() -> None:
    assert succeed("--version").stdout == "gecasmo 1.0.0.dev0\n"


def test_models_as_json() -> None:
    listed = succeed_with_json("models")["models"]
    assert [row["model"] for row in listed] == list(CATALOGUE)
    dbn = next(row for row in listed if row["model"] == "DBN")
    assert dbn["coins"] == ["attraction", "satisfaction", "continuation"]
    assert (dbn["group"], dbn["needs"]) == (CLICKS, "clicks")
    shop = next(row for row in listed if row["model"] == "ShopDBN")
    assert (shop["group"], shop["needs"]) == (SIGNALS, "cart and purchase, seen (yes or no)")


def test_the_page_about_the_models_is_what_their_docstrings_say() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    made = succeed("models", "--markdown").stdout
    assert page == made, "run: gecasmo models --markdown > docs/models.md"
    for name, model in CATALOGUE.items():
        assert f"### {name}: " in page
        assert described(model).not_for, name


def test_the_chooser_names_every_model_but_the_click_rates() -> None:
    named = {name for *_, take in CHOOSER for name in take.split(", ") if "`" not in name}
    assert named == {name for name in CATALOGUE if not name.endswith("CTR")}


def test_describe_as_json() -> None:
    found = succeed_with_json("describe", "ubm")
    assert found["model"] == "UBM"
    assert found["coins"][0]["coin"] == "examination"
    assert found["coins"][0]["key"] == ["rank", "last_click"]
    assert "def browse" in found["program"]


def test_names_are_found_in_any_case() -> None:
    assert succeed("describe", "czm").stdout == succeed("describe", "DBN").stdout


def test_a_name_that_is_no_path_names_both_ways_to_say_it() -> None:
    said = fail("describe", "models:DBN")
    assert "path/to/file.py:ClassName" in said


def test_the_demo_compares_three_models() -> None:
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


def test_the_demo_as_json() -> None:
    found = succeed_with_json("demo", "--pages", "200")
    assert [row["model"] for row in found["models"]] == ["RCTR", "UBM", "DBN", "truth"]
    assert 0 < found["continuation"] < 1


def test_the_page_about_the_command_line_has_all_commands_and_codes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    for command in COMMANDS:
        assert f"`{command}" in page
    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |" in page


def test_the_paper_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its numbers have tests of their own; here they only have to arrive.
    class Found:
        names = ("UBM",)
        seeds = (7,)

        def means(self) -> pl.DataFrame:
            return pl.DataFrame({"model": ["UBM"], "marginal": [1.5]})

        def by_rank(self) -> pl.DataFrame:
            return pl.DataFrame({"rank": [1], "UBM": [1.5]})

        def claims(self) -> list[tuple[str, bool]]:
            return [("it is better", True)]

    def run_paper(seeds: list[int], users: int, tell: Callable[[str], None]) -> Found:
        tell("fitting")
        return Found()

    monkeypatch.setattr("gecasmo.experiments.paper.run_paper", run_paper)
    found = succeed_with_json("paper", "--seeds", "1", "--users", "300")
    assert found["models"] == [{"model": "UBM", "marginal": 1.5}]
    assert found["claims"] == [{"claim": "it is better", "holds": True}]
    assert "has to end in .png, .svg, .html or .json" in fail("paper", "--chart", "a.doc")
    assert "there is no such folder" in fail("paper", "--chart", "gone/a.png")


def test_experiments_are_part_of_what_is_installed() -> None:
    # What a command imports has to be in the wheel, which holds the package and nothing else.
    package = Path(gecasmo.__file__).parent
    for name in ("paper", "gap", "gap_worlds"):
        module = importlib.import_module(f"gecasmo.experiments.{name}")
        assert Path(str(module.__file__)).is_relative_to(package)


def test_a_gap_without_pytorch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert 'pip install "gecasmo[torch]"' in fail("gap")


@pytest.mark.parametrize("door", [model_named, contestants.as_model, subject.as_model, find_model])
def test_every_door_knows_the_same_names(door: Callable[[str], Any]) -> None:
    def found(name: str) -> type:
        model = door(name)
        return model if isinstance(model, type) else type(model)

    for name, model in CATALOGUE.items():
        assert found(name) is found(name.lower()) is model
    assert found("CZM") is found("czm") is DBN
    assert found("BBM") is UBM
    assert found("EB-UBM") is CATALOGUE["EBUBM"]
    with pytest.raises(ModelError, match=r"There is no model 'DNB'. Perhaps 'DBN'\?") as caught:
        door("DNB")
    assert f"There are: {', '.join(CATALOGUE)}." in str(caught.value)
