"""How commands fail: messages, tracebacks, warnings and closed pipes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from command_line import PROGRAM, WIDE, fail, invoke, run, succeed

from gecasmo.errors import GecasmoWarning, either, for_the_command_line, option

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
    Path("text.fit").write_text("nothing", encoding="utf-8")
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
        ("gecasmo judgments a.fit --format q", "quepid\nquepid-book\nqrels"),
        ("gecasmo judgments a.fit --rule inter", "interval"),
        ("gecasmo check log.csv --format ya", "yandex"),
        ("gecasmo prop", "propensities"),
    ],
)
def test_completion_of_names(line: str, words: str) -> None:

    from command_line import CliRunner, app

    completion = {
        "_GECASMO_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    found = CliRunner().invoke(app, [], prog_name="gecasmo", env={**os.environ, **completion})
    assert found.stdout.strip() == words


def test_messages_name_parameters_in_python_and_flags_here() -> None:
    def said() -> list[str]:
        return [
            option("doc", "url"),
            option("max_line", 100, shown="100"),
            option("level", 2, of="compare"),
            option("max_width"),
            option("keep", ["a", "b"]),
            option("keep", of="ingest"),
            either("fit(log, start=model)", "--start FIT"),
        ]

    python = ["doc='url'", "max_line=100", "compare(level=2)", "max_width=", "keep=['a', 'b']"]
    assert said() == [*python, "ingest(keep=...)", "fit(log, start=model)"]
    with for_the_command_line():
        flags = ["--doc url", "--max-line 100", "--level 2", "--max-width", "--keep a,b"]
        assert said() == [*flags, "--keep", "--start FIT"]
    assert said()[:5] == python


def test_errors_name_flags(folder: Path, log_file: Path, fit_file: Path) -> None:
    told = fail("judgments", fit_file, "-o", "j.csv", "--grades", "11")
    assert told.startswith("JudgmentsError: --grades 11: between 2 and 10 grades are possible")
    told = fail("judgments", fit_file, "-o", "j.csv", "--ids", "encode")
    assert "'csv' files do not use --ids." in told
    assert "--level 2.0: a level lies between" in fail("compare", log_file, "PBM", "--level", "2")


def in_the_shell(line: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of the shell in which `gecasmo` is the program."""
    program = shlex.join(PROGRAM)
    return subprocess.run(
        ["bash", "-c", f'gecasmo() {{ {program} "$@"; }}; {line}'],
        stderr=subprocess.PIPE,
        env=os.environ | WIDE,
        check=False,
    )


@pytest.mark.parametrize("command", ["models", "--help", "--version", "describe DBN --json"])
def test_a_full_or_closed_standard_output_is_told(command: str) -> None:
    full = in_the_shell(f"gecasmo {command} > /dev/full")
    assert full.returncode == 1
    told = b"Standard output cannot be written to: "
    assert full.stderr == told + b"No space left on device.\n"
    closed = in_the_shell(f"gecasmo {command} >&-")
    assert closed.returncode == 1
    assert closed.stderr == told + b"it is closed.\n"
    gone = in_the_shell(f"gecasmo {command} | true; exit ${{PIPESTATUS[0]}}")
    assert gone.returncode in (0, 141)  # 0 if all was written before the reader had gone
    assert gone.stderr == b""


def test_closed_streams_that_nobody_needs(fit_file: Path, folder: Path) -> None:
    for closed in (">&-", "2>&-", "<&-", "2> /dev/full", "<&- >&- 2>&-"):
        line = f"gecasmo judgments {shlex.quote(str(fit_file))} -o j.csv --quiet {closed}"
        assert in_the_shell(line).returncode == 0, closed
        assert Path("j.csv").read_text(encoding="utf-8").startswith("query,doc")
        Path("j.csv").unlink()
    line = f"gecasmo judgments {shlex.quote(str(fit_file))} -o - > /dev/full"
    full = in_the_shell(line)
    assert full.returncode == 1
    assert b"a bug" not in full.stderr
    assert b"the disk is full" in full.stderr
    gone = in_the_shell("gecasmo judgments nothing.fit -o - 2>&-")
    assert gone.returncode == 1
