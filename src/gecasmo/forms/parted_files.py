"""The files that hold the rows of a table part by part, in a folder or in a zip file."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from gecasmo.errors import SavedModelError
from gecasmo.files import whole_file


@dataclass(frozen=True)
class PartFile:
    """One file of rows, and what has to be known of them without looking.

    Parameters
    ----------
    name : where it is, relative to its folder or zip file
    sha256, size : its content, and how many bytes that is
    n_rows : how many rows it has
    total, lowest, highest : sum and range of their probabilities
    n_given : rows that were given, not estimated
    n_idle : rows that were never flipped and not given either
    """

    name: str
    sha256: str
    size: int
    n_rows: int
    total: float = 0.0
    lowest: float = 1.0
    highest: float = 0.0
    n_given: int = 0
    n_idle: int = 0

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> PartFile:
        """What `to_data` described."""
        kinds = {"str": str, "int": int, "float": float}
        return cls(
            **{field.name: kinds[str(field.type)](data[field.name]) for field in fields(cls)}
        )


def part_name(coin: int, part: int) -> str:
    """Where the rows of a coin in one part are, relative to the folder of a model."""
    return f"parted/{coin}/part-{part:05d}.parquet"


def write_frame(folder: Any, name: str, frame: pl.DataFrame) -> tuple[str, int]:
    """Write a Parquet file, whole or not at all; its SHA-256 and size."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    content = buffer.getbuffer()
    target = Path(folder).expanduser() / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SavedModelError(
            f"{target.parent} cannot be made: {problem.strerror or problem}."
        ) from problem
    with whole_file(target, SavedModelError) as temporary, open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest(), len(content)


# Nothing that was saved shrinks more than this when it is packed; what does is made to fill memory.
_MOST_SHRUNK = 64
_SPARE_BYTES, _SPARE_CELLS = 2**28, 2**24


def check_packed(path: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse members of a zip file that would unpack to far more than they are.

    What a member says of its size is what is read of it at most.
    """
    ways = {entry.compress_type for entry in entries}
    if not ways <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise SavedModelError(f"{path} is packed in a way in which no model is saved.")
    size = sum(entry.file_size for entry in entries)
    packed = min(sum(entry.compress_size for entry in entries), path.stat().st_size)
    if size > _SPARE_BYTES + _MOST_SHRUNK * packed:
        raise SavedModelError(
            f"{path} has {packed:,} bytes that would unpack to {size:,}: no saved model does that."
        )


def read_parquet(content: bytes, where: str) -> pl.DataFrame:
    """A frame of the content of a Parquet file that is not far larger than it looks."""
    try:
        rows = pl.scan_parquet(io.BytesIO(content))
        n_rows, n_columns = rows.select(pl.len()).collect().item(), len(rows.collect_schema())
        if n_rows * n_columns > _SPARE_CELLS + _MOST_SHRUNK * len(content):
            raise SavedModelError(
                f"{where} has {len(content):,} bytes that would unpack to {n_rows:,} rows of "
                f"{n_columns:,} columns: no saved model does that."
            )
        return pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
        raise SavedModelError(f"{where} is no Parquet file ({problem}).") from None


class RowFiles(Protocol):
    """Where part files are."""

    def read(self, name: str) -> bytes:
        """The content of a file; OSError or KeyError if there is none."""

    def where(self, name: str) -> str:
        """The file in words."""


@dataclass(frozen=True)
class FolderSource:
    """Files in a folder."""

    folder: Path

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def where(self, name: str) -> str:
        return str(self.folder / name)


@dataclass(frozen=True)
class ZipSource:
    """Members of a zip file."""

    path: Path

    def read(self, name: str) -> bytes:
        with zipfile.ZipFile(self.path) as archive:
            check_packed(self.path, [archive.getinfo(name)])
            return archive.read(name)

    def where(self, name: str) -> str:
        return f"{name} in {self.path}"


def read_content(source: RowFiles, file: PartFile) -> bytes:
    """The content of a part file, if it is what was written."""
    where = source.where(file.name)
    try:
        content = source.read(file.name)
    except (OSError, KeyError, zipfile.BadZipFile) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise SavedModelError(
            f"{where} cannot be read ({reason}). Rows of this model are there: bring the file "
            "back, or fit again."
        ) from None
    if len(content) != file.size or hashlib.sha256(content).hexdigest() != file.sha256:
        raise SavedModelError(
            f"{where} is damaged: it is not what was written with this model. Bring the right file "
            "back, or fit again."
        )
    return content


def read_frame(source: RowFiles, file: PartFile) -> pl.DataFrame:
    """The rows of a part."""
    frame = read_parquet(read_content(source, file), source.where(file.name))
    if len(frame) != file.n_rows:
        raise SavedModelError(
            f"{source.where(file.name)} has {len(frame):,} rows; {file.n_rows:,} belong there."
        )
    return frame
