"""How commands fail: messages, tracebacks, warnings and closed pipes."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from command_line import PROGRAM, WIDE, fail, invoke, run, succeed

from gecasmo.cli.guard import in_flags
from gecasmo.errors import GecasmoWarning

BUG = """
import gecasmo.models
from gecasmo.cli import main

class Odd(dict):
    def items(self):
        return 1 / 0

gecasmo.models.CATALOGUE = Odd()
main()
"""


def test_a_bug_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: object) -> None:
        raise KeyError("some\nthing")

    monkeypatch.setattr("gecasmo.cli.lookup.find_model", fails)
    said = fail("describe", "DBN")
    assert said.startswith("This is a bug in gecasmo: KeyError: ")
    assert "test_failing.py, line " in said
    assert said.endswith("Please run with --debug and report what it shows.\n")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("--debug", "models"), ("models", "--debug")])
def test_debug_shows_the_traceback(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUG, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")


def test_debug_shows_the_traceback_of_our_errors_too() -> None:
    found = invoke("describe", "XYZ", "--debug")
    assert type(found.exception).__name__ == "ModelError"


def test_memory_and_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(self: object) -> None:
        raise MemoryError

    def refused(self: object) -> None:
        raise PermissionError(13, "Permission denied", "secret.csv")

    monkeypatch.setattr("gecasmo.cli.lookup.find_model", exhausted)
    assert fail("describe", "DBN").startswith("There is not enough memory")
    monkeypatch.setattr("gecasmo.cli.lookup.find_model", refused)
    assert fail("describe", "DBN") == "secret.csv: Permission denied.\n"


def test_warnings_are_one_line_each_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gecasmo.cli.lookup import find_model

    def warns(text: str) -> object:
        for _ in range(2):
            warnings.warn("Something\n  is odd.", GecasmoWarning, stacklevel=1)
        return find_model(text)

    monkeypatch.setattr("gecasmo.cli.lookup.find_model", warns)
    found = succeed("describe", "DBN")
    assert found.stderr == "Warning: Something is odd.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("fit",),
        ("fit", "DBN", "log.csv"),
        ("models", "--frobnicate"),
        ("compare", "log.csv"),
        ("explain", "fit", "log.csv"),
    ],
)
def test_wrong_calls_end_with_2(arguments: tuple[str, ...]) -> None:
    found = invoke(*arguments)
    assert found.exit_code == 2
    assert "Usage: " in found.stderr


def test_a_reader_that_goes_away() -> None:
    # A pipe whose other end is closed before anything is written to it.
    import os

    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PROGRAM, "describe", "DBN"],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=os.environ | WIDE,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == b""


def test_not_a_fit(folder: Path, log_file: Path) -> None:
    Path("text.fit").write_text("nothing")
    assert fail("evaluate", "text.fit", log_file).startswith("SavedModelError: text.fit")
    assert "there is no such file" in fail("evaluate", "gone.fit", log_file)
    assert "is a folder" in fail("evaluate", ".", log_file)


def test_completion_of_the_shell() -> None:
    shown = run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert shown.returncode == 0
    assert b"_GECASMO_COMPLETE" in shown.stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gecasmo fit Cou", "CountingDCM\nCountingSDBN"),
        ("gecasmo compare log.csv PBM db", "dbn"),
        ("gecasmo check log.csv --model UB", "UBM"),
        ("gecasmo judgments a.fit --format q", "quepid\nqrels"),
        ("gecasmo judgments a.fit --rule inter", "interval"),
        ("gecasmo check log.csv --format ya", "yandex"),
        ("gecasmo prop", "propensities"),
    ],
)
def test_completion_of_names(line: str, words: str) -> None:
    import os

    from command_line import CliRunner, app

    completion = {
        "_GECASMO_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    found = CliRunner().invoke(app, [], prog_name="gecasmo", env={**os.environ, **completion})
    assert found.stdout.strip() == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('Perhaps: read_log("a.csv", doc="url", click="c")', 'Perhaps: --doc "url" --click "c"'),
        ("raise max_line=100 bytes", "raise --max-line 100 bytes"),
        ("with max_width= (now 0.4)", "with --max-width (now 0.4)"),
        ("also take impossible='drop'", "also take --impossible 'drop'"),
        (
            'Perhaps another key: a=Table(key="doc"), b=Table(key="doc")',
            "Perhaps another key: --key a=doc --key b=doc",
        ),
        ("Table(fixed={1: 1.0}, key='doc')", "Table(fixed={1: 1.0}, key='doc')"),
        ("EM(tol=0) stays, (tol=0) does not", "EM(tol=0) stays, (--tol 0) does not"),
        ("a larger disk with checkpoint=.", "a larger disk with --checkpoint."),
        ("checkpoint= is for stored logs", "--checkpoint is for stored logs"),
        ("with fit(log, method, start=model).", "with `gecasmo fit MODEL LOG --start FIT`."),
        ("so far; go on with fit(log, start=model).", "so far; go on with --start FIT."),
        ("ingest(keep=...): there is no column 'a'", "--keep: there is no column 'a'"),
        ("ingest(memory='10MB'): at least", "--memory '10MB': at least"),
        ("ingest(partitions=3): a power of two", "--partitions 3: a power of two"),
        ("ingest(fold=True): pages", "--fold: pages"),
        (
            "began here without keep, and cannot go on with keep=['a', 'b'];",
            "began here without --keep, and cannot go on with --keep a,b;",
        ),
        ("here with fold='auto', and", "here without --fold or --no-fold, and"),
    ],
)
def test_messages_name_flags(text: str, words: str) -> None:
    assert in_flags(text) == words
