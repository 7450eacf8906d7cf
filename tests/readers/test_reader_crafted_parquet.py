"""Parquet files that lie about their counts and sizes, and honest ones that are odd."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from gecasmo import parquet
from gecasmo.errors import ClickLogError
from gecasmo.logs import inputs

EXAMPLES = int(os.environ.get("GECASMO_EXAMPLES", "1"))


def test_files_that_lie_end_in_a_message() -> None:
    """Of every two hundred, one ended the process: Polars asked for the memory that it named."""
    pytest.importorskip("pyarrow")
    program = [sys.executable, str(Path(__file__).with_name("crafted_parquet.py"))]
    first, n = (0, 5000 * EXAMPLES) if EXAMPLES > 1 else (290, 300)
    quick = os.environ | {"RUST_BACKTRACE": "0"}
    done = subprocess.run(
        [*program, str(first), str(n)], capture_output=True, text=True, check=False, env=quick
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert 0 < int(done.stdout) < n


@pytest.mark.parametrize(
    "footer",
    [
        bytes([0x29, 0x0C, 0x16, 0x00, 0x00]),  # the schema is a list without even a root
        bytes([0x29, 0xF7, *[0xFF] * 8, 0x7F, 0x00]),  # a list of 2^63 numbers, which are not there
    ],
)
def test_footers_that_are_none(footer: bytes) -> None:
    """The first was found by a soak, as mutant 3957000882."""
    file = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(ClickLogError, match="its footer, or the header of a page"):
        inputs.Input("a file", raw=file).read_parquet()


@pytest.mark.parametrize("shape", ["flat", "nested", "empty", "groups", "constant"])
def test_honest_files_are_read(tmp_path: Path, shape: str) -> None:
    frame = pl.DataFrame({"a": range(1000), "b": ["x", None] * 500, "c": [True] * 1000})
    if shape == "nested":
        frame = frame.group_by(pl.col("a") // 7, maintain_order=True).agg(
            pl.struct("b", d=pl.col("b").implode()), "c"
        )
    elif shape == "empty":
        frame = frame.clear()
    elif shape == "constant":
        frame = pl.select(a=pl.repeat(1, 3_000_000), b=pl.repeat("the same", 3_000_000))
    path = tmp_path / "a[1].parquet"
    frame.write_parquet(path, row_group_size=77 if shape == "groups" else None)
    assert inputs.Input("a", path).read_parquet().equals(frame)
    assert inputs.Input("a", raw=path.read_bytes()).read_parquet().equals(frame)


def test_a_file_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    pl.select(a=pl.repeat(1, 3_000_000)).write_parquet(path)
    monkeypatch.setattr(parquet, "_SPARE_BYTES", 1 << 20)
    monkeypatch.setattr(parquet, "_MOST_SHRUNK", 64)
    with pytest.raises(
        ClickLogError, match=r"a\.parquet cannot be read: .* a size of [\d,]+ bytes"
    ):
        inputs.Input(str(path), path).read_parquet()
