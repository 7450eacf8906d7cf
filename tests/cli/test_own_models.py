"""Models of the user's own: path/to/file.py:ClassName."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import fail, succeed, succeed_with_json

import gecasmo

PATIENT = '''
from gecasmo import ClickModel, Parameter, Table, flip
from names_beside import WHAT


class Patient(ClickModel):
    """Looks at everything."""

    attraction = Parameter("query", "doc")

    def browse(self, user, result):
        if flip(self.attraction):
            user.click()


by_doc = Patient(attraction=Table(key="doc"))
number = 3
'''


@pytest.fixture
def own(folder: Path) -> Path:
    (folder / "names_beside.py").write_text("WHAT = 'attraction'\n")
    (folder / "mine.py").write_text(PATIENT)
    return folder


def test_a_class_is_described_and_fitted(own: Path, log_file: Path, log: gecasmo.ClickLog) -> None:
    text = succeed("describe", "mine.py:Patient").stdout
    assert text.startswith("Patient: not fitted")
    assert "class Patient(ClickModel):" in text
    facts = succeed_with_json("fit", "mine.py:Patient", log_file, "-o", "patient.fit")
    assert facts["model"] == "Patient"
    assert gecasmo.load("patient.fit").keys == {"attraction": ("query", "doc")}


SHELVES = """
from gecasmo import ClickModel, Parameter, flip


class Shelves(ClickModel):
    coins = [Parameter("doc"), Parameter()]

    def browse(self, user, result):
        if flip(self.coins[0]) and flip(self.coins[1]):
            user.click()
"""


def test_coins_in_a_list_are_named_by_their_place(folder: Path, log_file: Path) -> None:
    (folder / "shelves.py").write_text(SHELVES)
    fixed = ("--fixed", "coins[1]=0.8", "--key", "coins[0]=query,doc")
    succeed("fit", "shelves.py:Shelves", log_file, "-o", "shelves.fit", *fixed)
    fitted = gecasmo.load("shelves.fit")
    assert fitted.keys == {"coins[0]": ("query", "doc"), "coins[1]": ()}
    assert repr(fitted.forms["coins[1]"]) == "Fixed(0.8)"


def test_the_only_class_of_a_file_need_not_be_named(own: Path) -> None:
    assert succeed("describe", own / "mine.py").stdout.startswith("Patient: not fitted")


def test_a_model_with_forms_of_its_own(own: Path, log_file: Path) -> None:
    succeed("fit", "mine.py:by_doc", log_file, "-o", "patient.fit")
    assert gecasmo.load("patient.fit").keys == {"attraction": ("doc",)}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("gone.py:Patient", "gone.py: there is no such file."),
        ("mine.py:Impatient", "mine.py has no 'Impatient'. Its models are: Patient, by_doc."),
        ("mine.py:number", "mine.py: 'number' is not a ClickModel, but int."),
        ("mine.py:ClickModel", "has no browse(self, user, result)"),
    ],
)
def test_what_is_not_there(own: Path, model: str, words: str) -> None:
    assert words in fail("describe", model)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\nclass Broken(:\n", "broken.py, line 2: invalid syntax."),
        ("x = 1\n\nprint(x / 0)\n", "broken.py, line 3, failed: ZeroDivisionError"),
        ("import not_installed_anywhere\n", "broken.py, line 1, failed: ModuleNotFoundError"),
        ("import sys\nsys.exit(0)\n", "broken.py, line 2, failed: SystemExit"),
        ("x = 1\n", "broken.py: say which of its models"),
        ("from gecasmo import Parameter\n\nx = Parameter(3)\n", "broken.py, line 3, failed"),
    ],
)
def test_files_that_fail(folder: Path, text: str, words: str) -> None:
    Path("broken.py").write_text(text, encoding="utf-8")
    said = fail("describe", "broken.py")
    assert said.startswith("ModelError: ")
    assert words in said


def test_a_class_whose_making_fails(folder: Path) -> None:
    Path("picky.py").write_text(
        "from gecasmo import ClickModel\n\n\nclass Picky(ClickModel):\n"
        "    def __init__(self):\n        raise RuntimeError('not today')\n",
        encoding="utf-8",
    )
    said = fail("describe", "picky.py:Picky")
    assert "picky.py, line 6, Picky() failed: RuntimeError: not today" in said
