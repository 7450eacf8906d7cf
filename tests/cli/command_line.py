"""Run the command line: in this process, or as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from gecasmo.cli import app

WIDE = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
PROGRAM = [sys.executable, "-c", "from gecasmo.cli import main; main()"]


def invoke(*arguments: str | Path, input: str | bytes | None = None) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, list(map(str, arguments)), env=WIDE, input=input)


def succeed(*arguments: str | Path, input: str | bytes | None = None) -> Result:
    """Run a command that has to end with code 0."""
    found = invoke(*arguments, input=input)
    assert found.exit_code == 0, found.output
    return found


def succeed_with_json(*arguments: str | Path) -> Any:
    """What a command says with --json, on standard output and nowhere else."""
    return json.loads(succeed(*arguments, "--json").stdout)


def fail(*arguments: str | Path, code: int = 1, input: str | bytes | None = None) -> str:
    """Run a command that has to fail; what it says, which is no traceback."""
    found = invoke(*arguments, input=input)
    assert found.exit_code == code, found.output
    assert "Traceback" not in found.output
    assert found.stdout == ""
    return found.stderr


def run(
    *arguments: str | Path, input: bytes | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the program as a shell would."""
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        input=input,
        capture_output=True,
        env=os.environ | WIDE | environment,
        check=False,
    )
