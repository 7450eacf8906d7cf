"""Ids, columns and files with codes that a terminal obeys, and with what looks like markup."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import warnings
from pathlib import Path

import polars as pl
import pytest
from command_line import PROGRAM, WIDE, fail, invoke, run, succeed, succeed_with_json

from gecasmo.cli.output import as_json, error_console, result_console
from gecasmo.errors import GecasmoWarning
from gecasmo.simulation import demo_log

RED = "\x1b[31mred\x07\x9b2J\x7f"
SHOWN = "?[31mred??2J?"
MARKUP = "[bold]x[/bold]"
CLOSING = "[/]"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def assert_harmless(*texts: str) -> None:
    for text in texts:
        found = CONTROL.search(text)
        assert found is None, repr(text[max(0, found.start() - 40) : found.start() + 40])


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose ids are all of this kind; its first three sessions, queries and docs differ."""
    frame = demo_log(200, seed=5)[0].to_frame()
    begins = [RED, MARKUP, CLOSING]
    for name in ("session", "query", "doc"):
        begin = pl.col(name).mod(3).replace_strict(dict(enumerate(begins)), return_dtype=pl.String)
        frame = frame.with_columns(pl.concat_str(begin, pl.col(name).cast(pl.String)).alias(name))
    path = tmp_path_factory.mktemp("nasty") / "clicks.parquet"
    frame.write_parquet(path)
    return path


@pytest.fixture(scope="module")
def nasty_fit(nasty: Path) -> Path:
    path = nasty.with_name("dbn.fit")
    succeed("fit", "DBN", nasty, "-o", path)
    return path


COMMANDS = {
    "check": "check LOG --model DBN",
    "compare": "compare LOG DBN UBM --bootstrap 5 --per-rank",
    "fit": "fit PBM LOG -o OUT.fit --fixed examination=0.5",
    "judgments": "judgments FIT -o OUT.csv --worth-judging 5",
    "propensities": "propensities FIT LOG",
    "evaluate": "evaluate FIT LOG",
    "simulate": "simulate FIT LOG -o OUT.parquet",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_commands_print_is_harmless(
    command: str, nasty: Path, nasty_fit: Path, tmp_path: Path
) -> None:
    words = COMMANDS[command].replace("OUT", str(tmp_path / "out"))
    names = {"LOG": nasty, "FIT": nasty_fit}
    arguments = [names.get(word, word) for word in words.split()]
    found = invoke(*arguments)
    assert found.exit_code in (0, 3), found.output
    assert_harmless(found.stdout, found.stderr)
    if command in ("judgments", "check"):
        assert "[31mred" in found.stdout
        assert MARKUP in found.stdout
        assert CLOSING in found.stdout
    told = invoke(*arguments, "--json")
    assert_harmless(told.stdout, told.stderr)
    json.loads(told.stdout)


@pytest.mark.parametrize("begin", [RED, MARKUP, CLOSING])
def test_explain_shows_ids_as_they_are(begin: str, nasty: Path, nasty_fit: Path) -> None:
    sessions = pl.read_parquet(nasty)["session"]
    session = sessions.filter(sessions.str.starts_with(begin))[0]
    found = succeed("explain", nasty_fit, nasty, "--session", session)
    assert_harmless(found.stdout, found.stderr)
    assert found.stdout.startswith(f"Session {session.replace(RED, SHOWN)}, query ")
    data = succeed_with_json("explain", nasty_fit, nasty, "--session", session)
    assert data["session"] == session  # for machines it is the very id
    docs = [row["doc"] for row in data["results"]]
    for doc in docs:
        assert doc.replace(RED, SHOWN) in found.stdout.replace("\n", "")


def test_a_session_that_is_not_there(nasty: Path, nasty_fit: Path) -> None:
    said = fail("explain", nasty_fit, nasty, "--session", f"{RED}\nWarning: none")
    assert_harmless(said)
    assert said.startswith(f"ClickLogError: --session {SHOWN}?Warning: none: the log has no such")
    assert f"such as {SHOWN}" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_charts(nasty: Path, tmp_path: Path, suffix: str) -> None:
    succeed(
        *("fit", "DBN", nasty, "-o", tmp_path / "f", "--plots", tmp_path / "charts"),
        *("--plots-format", suffix),
    )
    assert len(list((tmp_path / "charts").iterdir())) == 5


def test_errors_and_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str) -> None:
        warnings.warn(f"odd {RED} {CLOSING}\r\nnews", GecasmoWarning, stacklevel=1)
        raise KeyError(RED)

    monkeypatch.setattr("gecasmo.cli.lookup.find_model", fails)
    warning, error = fail("describe", "DBN").splitlines()
    assert warning == f"Warning: odd {SHOWN} {CLOSING} news"
    assert error.startswith("This is a bug in gecasmo: KeyError: ")
    monkeypatch.undo()
    said = fail("describe", f"{RED}{CLOSING}")
    assert_harmless(said)
    assert CLOSING in said


def test_what_typer_says_about_a_call() -> None:
    for arguments in (
        (f"{RED}{CLOSING}",),
        ("models", f"--{RED}{CLOSING}"),
        (f"--{RED}{CLOSING}",),
        ("demo", "--pages", f"{RED}{CLOSING}"),
        ("judgments", "a.fit", "-o", "b.csv", "--thresholds", f"{RED}{CLOSING}"),
    ):
        said = fail(*arguments, code=2)
        assert_harmless(said)
        assert CLOSING in said or "Invalid value" in said


def test_tracebacks(tmp_path: Path) -> None:
    broken = tmp_path / "mine.py"
    broken.write_text(f"raise ValueError({RED!r})\n")
    found = run("describe", broken, "--debug")
    assert found.returncode == 1
    said = found.stderr.decode()
    assert "Traceback (most recent call last)" in said
    assert f"failed: ValueError: {SHOWN}" in said
    assert_harmless(said)


def test_columns_and_sources_of_data(nasty: Path, nasty_fit: Path, tmp_path: Path) -> None:
    column = f"url {RED}{CLOSING}"
    log = tmp_path / "clicks\x1b\x07.parquet"
    pl.read_parquet(nasty).rename({"doc": column, "click": "clicked"}).write_parquet(log)
    found = succeed("evaluate", nasty_fit, log, "--doc", column)
    assert_harmless(found.stdout, found.stderr)
    assert "columns guessed by their names: --click clicked" in found.stderr
    said = fail("evaluate", nasty_fit, log, "--doc", f"no {column}")
    assert_harmless(said)


def test_brackets_in_the_name_of_a_file_are_no_pattern(
    nasty: Path, nasty_fit: Path, tmp_path: Path
) -> None:
    log = tmp_path / "clicks[1].parquet"
    pl.read_parquet(nasty).rename({"doc": "url", "click": "clicked"}).write_parquet(log)
    found = succeed("evaluate", nasty_fit, log)
    assert "columns guessed by their names: --doc url --click clicked" in found.stderr


def test_data_on_a_pipe_are_exact(nasty: Path, nasty_fit: Path) -> None:
    found = run("simulate", nasty_fit, nasty, "-o", "-", "--quiet")
    assert found.returncode == 0
    assert RED.encode() in found.stdout


def test_json_is_exact_too() -> None:
    text = "".join(map(chr, range(0x100)))
    said = as_json({"a": text})
    assert json.loads(said) == {"a": text}
    assert_harmless(said)


def through_a_terminal(*arguments: str | Path) -> str:
    """What a terminal gets from the program, on standard output and standard error."""
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | WIDE | {"TERM": "xterm"},
    )
    os.close(theirs)
    received = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # so a terminal tells that nobody writes any more
            break
        if not part:
            break
        received += part
    os.close(ours)
    assert program.wait() == 0, received
    return received.decode()


def test_on_a_terminal(nasty: Path, nasty_fit: Path, tmp_path: Path) -> None:
    log = tmp_path / f"{CLOSING[0]}bold]{RED}.parquet"
    log.write_bytes(nasty.read_bytes())
    data = through_a_terminal("simulate", nasty_fit, log, "-o", "-")
    assert "\x1b[31m" not in data
    assert "\x07" not in data
    assert "?[31mred" in data  # the ids
    assert "/[bold]?[31mred" in data  # what is being read, in the line of progress


def test_consoles_show_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.panel import Panel
    from rich.text import Text

    for console in (result_console(), error_console()):
        console.print(f"{RED} {MARKUP} :smile:", Text(RED, style="bold"), Panel(RED + CLOSING))
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert_harmless(text)
        assert f"{MARKUP} :smile:" in text
        assert CLOSING in text


def test_colours_stay() -> None:
    from rich.text import Text

    painted = type(result_console())(force_terminal=True, color_system="standard", width=40)
    with painted.capture() as captured:
        painted.print(Text(RED, style="red"))
    assert captured.get().startswith("\x1b[31m?[31mred")
