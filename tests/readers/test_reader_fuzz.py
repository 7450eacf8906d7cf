"""Damaged files of all formats: no error but our own, nothing on the terminal, no hang, no crash.

A soak reads 100,000 of them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fuzzed import MOST_MEMORY, damaged
from reader_helpers import MORE

N_FILES = 400 if MORE == 1 else 100_000
AT_A_TIME = 200 if MORE == 1 else 5_000
PROGRAM = Path(__file__).with_name("fuzzed.py")


@pytest.mark.parametrize("first", range(0, N_FILES, AT_A_TIME))
def test_damaged_files_are_refused_in_words_of_our_own(first: int) -> None:
    last, n_aborted = first + AT_A_TIME, 0
    while first < last:
        command = [sys.executable, str(PROGRAM), str(first), str(last)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = ended.stdout.splitlines()
        assert [line for line in lines if line.startswith("[")] == []
        if ended.returncode != -signal.SIGABRT:
            break
        # Where a Parquet file lies about its sizes, Polars ends the process; nobody can catch that.
        first = int(lines[-1]) + 2 if lines else first + 1
        assert damaged(first - 1)[0].endswith(".parquet")
        n_aborted += 1
    assert ended.returncode == 0, f"after {lines[-1:]}: {ended.stderr[-2000:]}"
    assert ended.stderr == ""
    assert json.loads(lines[-1])["memory"] < MOST_MEMORY
    assert n_aborted <= AT_A_TIME // 200
