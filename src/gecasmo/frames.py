"""What differs between the versions of Polars that we run with: 1.30 to the newest.

Each function here works around one thing that old versions lack, and says which version has it; it
goes when that version is the oldest one in pyproject.toml.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import polars as pl

# Integers that NumPy does not know. Unsigned ones came with Polars 1.34.
WIDE = tuple(getattr(pl, name) for name in ("Int128", "UInt128") if hasattr(pl, name))


def fresh_categories() -> pl.Categorical:
    """Return a type that codes texts from 0 on, whatever was coded before."""
    # Before 1.32 all categories were local to their column.
    return pl.Categorical(pl.Categories.random()) if hasattr(pl, "Categories") else pl.Categorical()


def write_one_batch(frame: pl.DataFrame, file: IO[bytes]) -> None:
    """Write a frame as an Arrow IPC file that is not compressed and has one record batch."""
    options: dict[str, Any] = {}
    if _takes(pl.DataFrame.write_ipc, "record_batch_size"):
        options["record_batch_size"] = max(frame.height, 1)
    else:
        frame = frame.rechunk()  # old versions write a batch per chunk
    frame.write_ipc(file, compression="uncompressed", **options)


def batches_of(lazy: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Work out a lazy frame, and give its rows in order, batch by batch."""
    if hasattr(lazy, "collect_batches"):  # since 1.34
        yield from lazy.collect_batches(maintain_order=True, lazy=True)
    else:  # all at once; slices of a query that is run again may be of another order
        yield lazy.collect(engine="streaming")


def lines_of(text: bytes) -> pl.Series:
    """Return the lines of a text, without their ends.

    Raises
    ------
    ComputeError
        When the text is no UTF-8.
    """
    if hasattr(pl, "read_lines"):  # since 1.37
        return pl.read_lines(text)["line"]
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError as error:
        raise pl.exceptions.ComputeError(str(error)) from None
    if not lines[-1]:
        del lines[-1]
    return pl.Series("line", [line.removesuffix("\r") for line in lines], pl.String)


def read_json(text: bytes, **options: Any) -> pl.DataFrame:
    """Read one JSON list of objects, or JSON lines; errors are those of `read_json_lines`."""
    if text[:1] != b"[":
        return read_json_lines(text, **options)
    _refuse_deep(text)
    return pl.read_json(io.BytesIO(text), **options)


def read_json_lines(text: bytes, **options: Any) -> pl.DataFrame:
    """Read JSON lines.

    Raises
    ------
    ComputeError
        When the text is no such thing, or nested so deeply that Polars could take Python down: up
        to 2.0 it does at some 20,000 levels.
    """
    _refuse_deep(text)
    try:
        return pl.read_ndjson(io.BytesIO(text), **options)
    except pl.exceptions.PanicException as panic:  # of old versions
        raise pl.exceptions.ComputeError(str(panic)) from None


def _refuse_deep(text: bytes) -> None:
    if _depth(text) > _DEEPEST:
        raise pl.exceptions.ComputeError("JSON nested too deeply")


_DEEPEST = 1_000
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes(1 if code in b"[{" else 255 for code in range(256))  # 255 is -1 in eight bits


def _depth(text: bytes) -> int:
    """How deeply brackets are nested, at most; those in texts are counted, too."""
    steps = np.frombuffer(text.translate(_STEPS, _ALL_BUT_BRACKETS), np.int8)
    height = np.cumsum(steps, dtype=np.int64)
    return int((height - np.minimum.accumulate(height)).max(initial=0)) + 1


def scan_csv(sources: Any, types: dict[str, Any], **options: Any) -> pl.LazyFrame:
    """Scan text files whose columns have the types that suit all rows of all files.

    Parameters
    ----------
    sources : list of paths, or of contents of files
    types : dict
        Types that are known; those of other columns are found.
    options : further options of `polars.scan_csv`
    """
    options["glob"] = False
    if _takes(pl.scan_csv, "infer_schema_files"):
        options["infer_schema_files"] = len(sources)
    else:
        types = _types_of_all(sources, types, options)
    return pl.scan_csv(sources, schema_overrides=types, infer_schema_length=None, **options)


def _types_of_all(
    sources: Sequence[Any], types: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Find types that suit all files: old versions look at the first one only.

    They also take types of as many columns as there are for the names of these.
    """
    found = []
    for source in sources:
        names = pl.scan_csv(source, infer_schema_length=0, **options).collect_schema()
        known = {name: types[name] for name in names if name in types}
        if len(sources) == 1:
            return known
        table = pl.scan_csv(source, schema_overrides=known, infer_schema_length=None, **options)
        found.append(table.collect_schema().to_frame())
    if len({tuple(frame.columns) for frame in found}) > 1:
        return known  # Polars says what is wrong
    return dict(pl.concat(found, how="vertical_relaxed").schema)


def _takes(function: Any, option: str) -> bool:
    """Whether a function of Polars has an option, in the version that is installed."""
    return option in inspect.signature(function).parameters
