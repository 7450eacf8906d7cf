"""The files that hold the rows of a table part by part, in a folder or in a zip file."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
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
    with whole_file(target, SavedModelError) as temporary, open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest(), len(content)


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
    try:
        frame = pl.read_parquet(io.BytesIO(read_content(source, file)))
    except pl.exceptions.PolarsError as problem:
        raise SavedModelError(
            f"{source.where(file.name)} is no Parquet file ({problem})."
        ) from None
    if len(frame) != file.n_rows:
        raise SavedModelError(
            f"{source.where(file.name)} has {len(frame):,} rows; {file.n_rows:,} belong there."
        )
    return frame
