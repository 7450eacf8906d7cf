"""Tables that are larger than memory, written to a file frame by frame."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from gecasmo.errors import GecasmoError
from gecasmo.files import is_stream, scratch_folder, whole_file
from gecasmo.logs.formats.table import SEPARATORS, kind_of_name
from gecasmo.logs.packed import packed
from gecasmo.parquet import checked_parquet

KINDS = ".parquet, .csv, .tsv or .jsonl (text also followed by .gz or .zst)"

# Who gives one of these names wants a table of a kind that is not written here.
_OTHER_TABLES = (
    *(".arrow", ".avro", ".db", ".duckdb", ".feather", ".h5", ".hdf5", ".ipc", ".ods", ".orc"),
    *(".pickle", ".pkl", ".sqlite", ".txt", ".xls", ".xlsx", ".xml"),
    *(".gz", ".zst", ".bz2", ".xz", ".zip", ".lz4"),
)
# Row groups as large as a partition would have to be held in memory.
_ROW_GROUP = 250_000
# Stands in the metadata of files in folders of ours. A file beside them would tell it as well, but
# Polars reads no folder that has other files.
_MARK = {"gecasmo": "predictions"}
_PIECE = re.compile(r"part-[0-9]{5,}\.parquet")


def table_kind(path: Path, what: str) -> str | None:
    """The kind of table that a name tells: "parquet", "csv", "tsv" or "json"; else None.

    Pipes and devices, whose names tell nothing, are given CSV. A name that promises a table of
    another kind is refused; `what` says in the message what was to be written.
    """
    kind = kind_of_name(path.name)
    if kind is None and is_stream(path):
        return "csv"
    if kind is None and path.suffix.lower() in _OTHER_TABLES:
        raise GecasmoError(f"{path}: {what} are written to names that end in {KINDS}.")
    return kind


def write_frames(frames: Iterator[pl.DataFrame], target: Path, kind: str) -> int:
    """Write frames of the same columns one after the other; how many rows they had.

    The file is there when it is whole, and takes the place of one that was there before.
    """
    if kind == "parquet":
        return _write_parquet(frames, target)
    n_rows = 0
    with whole_file(target) as temporary, packed(temporary, target) as file:
        for number, frame in enumerate(frames):
            if kind == "json":
                frame.write_ndjson(file)
            else:
                flat = _flat(frame, target)
                flat.write_csv(file, include_header=number == 0, separator=SEPARATORS[kind])
            n_rows += len(frame)
    return n_rows


def _flat(frame: pl.DataFrame, target: Path) -> pl.DataFrame:
    """The frame as text can hold it: lists of names are names with spaces between them."""
    names = [name for name, dtype in frame.schema.items() if dtype == pl.List(pl.String)]
    flat = frame.with_columns(pl.col(name).list.join(" ") for name in names)
    nested = [name for name, dtype in flat.schema.items() if dtype.is_nested()]
    if nested:
        raise GecasmoError(
            f"{target}: text cannot hold the columns {', '.join(nested)}, which have several "
            "values a row; write to .parquet or .jsonl."
        )
    return flat


def _write_parquet(frames: Iterator[pl.DataFrame], target: Path) -> int:
    """One file, put together from a file for each frame without reading any of them whole."""
    with scratch_folder(target) as fresh, whole_file(target) as temporary:
        n_rows = write_pieces(frames, fresh)
        pieces = sorted(fresh.iterdir())
        if len(pieces) == 1:
            pieces[0].replace(temporary)  # which is there, and empty
        else:
            pl.scan_parquet(pieces, glob=False).sink_parquet(temporary, row_group_size=_ROW_GROUP)
    return n_rows


def write_pieces(frames: Iterator[pl.DataFrame], folder: Path, marked: bool = False) -> int:
    """Write a Parquet file for each frame; how many rows they had.

    Files can be marked as predictions, by which `is_of_pieces` knows them again.
    """
    mark = _MARK if marked else None
    n_rows = 0
    for number, frame in enumerate(frames):
        frame.write_parquet(folder / f"part-{number:05d}.parquet", metadata=mark)
        n_rows += len(frame)
    return n_rows


def is_of_pieces(folder: Path) -> bool:
    """Whether a folder has nothing but predictions that `write_pieces` wrote.

    Names alone do not tell: those of Spark are much the same.
    """
    return all(_PIECE.fullmatch(path.name) and _is_marked(path) for path in folder.iterdir())


def _is_marked(path: Path) -> bool:
    try:
        found = pl.read_parquet_metadata(checked_parquet(path))
    except (OSError, pl.exceptions.PolarsError):
        return False  # no Parquet file, or none that can be read
    return _MARK.items() <= found.items()
