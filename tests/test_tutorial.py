"""The tutorial shows what its commands really print, and its log is what its script makes.

`GECASMO_REWRITE=1 python -m pytest tests/test_tutorial.py` writes what the commands print now, and
the pictures that they draw, into the page. Read it afterwards: are the words between still true?
"""

from __future__ import annotations

import contextlib
import difflib
import gzip
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gecasmo.cli import app

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorial.md"
IMAGES = ROOT / "docs" / "images"
EXAMPLES = ROOT / "examples"
TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
IS_REWRITING = bool(os.environ.get("GECASMO_REWRITE"))
CUT = "..."  # a line that stands for any lines


@dataclass
class Step:
    """A file that the page has the reader write, or a command with what it prints."""

    kind: str  # "file" or "command"
    name: str  # of the file, or the command
    lines: list[str]  # in the file, or shown below the command
    place: slice  # of these lines on the page


def steps(page: list[str]) -> Iterator[Step]:
    """All blocks of Python, which begin with their file's name, and all commands, in order."""
    fences = [number for number, line in enumerate(page) if line.startswith("```")]
    for opening, closing in zip(fences[::2], fences[1::2], strict=True):
        body = range(opening + 1, closing)
        if page[opening] == "```python":
            name = re.fullmatch(r"# (\w+\.py).*", page[body[0]])
            assert name, f"line {body[0] + 1}: a block of Python begins with the name of its file"
            place = slice(body[0], closing)
            yield Step("file", name[1], page[place], place)
        elif page[opening] == "```console":
            prompts = [number for number in body if page[number].startswith("$ ")]
            assert prompts[:1] == [body[0]], f"line {body[0] + 1}: a command begins with '$ '"
            for prompt, end in pairwise([*prompts, closing]):
                place = slice(prompt + 1, end)
                yield Step("command", page[prompt].removeprefix("$ "), page[place], place)


class Terminal(CliRunner):
    """Runs commands; what they write to both streams comes line by line, as in a terminal."""

    @contextlib.contextmanager
    def isolation(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        with super().isolation(*arguments, **options) as streams:
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(line_buffering=True)
            yield streams


def run(command: str) -> list[str]:
    """What a command prints, on standard output and standard error as they come."""
    words = shlex.split(command, comments=True)
    if words[0] == "gecasmo":
        done = Terminal().invoke(app, words[1:], env=TERMINAL)
        assert done.exit_code == 0, done.output
        text = done.output
    elif words[0] == "python":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            runpy.run_path(words[1], run_name="__main__")
        text = printed.getvalue()
    else:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
        text = done.stdout
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n").splitlines()


def without_times(lines: list[str]) -> list[str]:
    """The lines without what differs from run to run: seconds, in words and in tables."""
    same, is_timed = [], False
    for line in lines:
        if not line.strip():
            is_timed = False
        elif line.split()[-1] == "seconds":
            is_timed = True  # the head of a table whose last column has seconds
        if is_timed:
            line = " ".join(re.sub(r"\d+\.\d+$", "N", line).split())
        same.append(re.sub(r"\d+(\.\d+)? seconds", "N seconds", line))
    return same


def is_shown(printed: list[str], shown: list[str]) -> bool:
    """Whether the page shows what was printed, perhaps with cuts."""
    parts = [".*" if line == CUT else re.escape(line) + "\n" for line in without_times(shown)]
    text = "".join(line + "\n" for line in without_times(printed))
    return re.fullmatch("".join(parts), text, flags=re.DOTALL) is not None


def as_shown(printed: list[str], shown: list[str]) -> list[str]:
    """What was printed, with the cuts of what was shown: a piece begins where it began before."""
    if CUT not in shown:
        return printed
    pieces: list[list[str]] = [[]]
    for line in shown:
        if line == CUT:
            pieces.append([])
        else:
            pieces[-1].append(line)
    written, at = [], 0
    for number, piece in enumerate(pieces):
        if number:
            written.append(CUT)
        if piece:
            start = at if number == 0 else _place(piece[0], printed, at)
            written += printed[start : (at := start + len(piece))]
    return written


def _place(line: str, printed: list[str], start: int) -> int:
    """Where a line, perhaps with other numbers, now is."""
    words = [re.sub(r"[\d.,]+", "0", each) for each in printed]
    near = difflib.get_close_matches(re.sub(r"[\d.,]+", "0", line), words[start:], n=1, cutoff=0.5)
    assert near, f"cut the output anew by hand, there is nothing like: {line}"
    return words.index(near[0], start)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the tutorial has the reader make it."""
    for name in ("shop.csv.gz", "make_shop_log.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "make_shop_log", raising=False)
    for name, value in TERMINAL.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_every_command_prints_what_the_page_shows(folder: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    page = PAGE.read_text(encoding="utf-8").splitlines()
    changes: list[tuple[slice, list[str]]] = []
    wrong: list[str] = []
    for step in steps(page):
        if step.kind == "file":
            (folder / step.name).write_text("\n".join(step.lines) + "\n", encoding="utf-8")
            continue
        printed = run(step.name)
        if is_shown(printed, step.lines):
            continue
        now = as_shown(printed, step.lines) if IS_REWRITING or CUT not in step.lines else printed
        changes.append((step.place, now))
        wrong += ["", f"$ {step.name}", *difflib.ndiff(step.lines, now)]
    pictures = _pictures(page)
    assert all((folder / drawn).is_file() for drawn in pictures.values())
    if IS_REWRITING:
        for place, lines in reversed(changes):
            page[place] = lines
        PAGE.write_text("\n".join(page) + "\n", encoding="utf-8")
        for name, drawn in pictures.items():
            _keep_picture(folder / drawn, IMAGES / name)
        return
    assert not wrong, "\n".join(
        ["The tutorial shows something else; GECASMO_REWRITE=1 rewrites it.", *wrong]
    )
    assert all((IMAGES / name).is_file() for name in pictures)


def _pictures(page: list[str]) -> dict[str, str]:
    """Pictures on the page, and the files of the commands that they are."""
    names = re.findall(r"\(images/(tutorial-\w+-\S+\.png)\)", "\n".join(page))
    return {name: name.removeprefix("tutorial-").replace("-", "/", 1) for name in names}


def _keep_picture(drawn: Path, target: Path) -> None:
    """Keep a chart in a palette: a tenth of the size, and nobody sees the difference."""
    from PIL import Image

    picture = Image.open(drawn).convert("RGB")
    plain = picture.quantize(128, dither=Image.Dither.NONE)
    plain.save(target, optimize=True)


def test_the_page_leaves_no_file_or_picture_unused() -> None:
    page = PAGE.read_text(encoding="utf-8").splitlines()
    commands = "\n".join(step.name for step in steps(page) if step.kind == "command")
    assert all(step.name in commands for step in steps(page) if step.kind == "file")
    assert set(_pictures(page)) == {path.name for path in IMAGES.glob("tutorial-*.png")}


def test_the_log_is_what_its_script_makes(folder: Path) -> None:
    made = runpy.run_path(str(folder / "make_shop_log.py"))
    made["write_gzip"](made["make_log"](made["N_PAGES"], made["SEED"]), folder / "again.csv.gz")
    again, kept = (folder / "again.csv.gz").read_bytes(), (EXAMPLES / "shop.csv.gz").read_bytes()
    # Packers differ from machine to machine; what they packed does not.
    assert gzip.decompress(again) == gzip.decompress(kept)
    assert len(kept) < 400_000


@pytest.mark.parametrize(
    ("printed", "shown", "answer"),
    [
        ("a b", "a b", True),
        ("a b", "a c", False),
        ("a\nb\nc", "a\n...\nc", True),
        ("a\nc", "a\n...\nc", True),
        ("a\nb\nc", "a\n...\nd", False),
        ("a\nb", "a", False),
        ("a\nb", "a\n...", True),
        ("done in 1.5 seconds", "done in 22.0 seconds", True),
        ("done in 1.5 minutes", "done in 22.0 minutes", False),
        ("m  gain  seconds\nA   1.0   0.3", "m gain seconds\nA   1.0  10.3", True),
        ("m  gain  seconds\nA   1.0   0.3", "m  gain  seconds\nA   1.1   0.3", False),
        ("m  seconds\nA  0.3\n\nA  0.3", "m  seconds\nA  0.4\n\nA  0.4", False),
    ],
)
def test_only_times_and_cuts_may_differ(printed: str, shown: str, answer: bool) -> None:
    assert is_shown(printed.splitlines(), shown.splitlines()) is answer


def test_cuts_stay_when_the_page_is_rewritten() -> None:
    shown = ["head 1", "...", "Rows 3", "x", "..."]
    printed = ["head 2", "more", "rows", "Rows 44", "y", "z"]
    assert as_shown(printed, shown) == ["head 2", "...", "Rows 44", "y", "..."]
