"""The files of one partition: written whole, checked when read."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.store.compacting import Compact
from gecasmo.logs.store.writing import arrow_bytes, sync_folder, telling_full_disk, write_whole


def folder_of(log: Path, number: int) -> Path:
    """Where a partition is."""
    return log / f"partition-{number:05}"


def write_partition(folder: Path, compact: Compact) -> dict[str, Any]:
    """Write a partition; it appears under its name when all of it is on the disk.

    Parameters
    ----------
    folder
        Where to.
    compact
        What it holds.

    Returns
    -------
    dict
        The counts, and the size and checksum of each file, for the manifest.
    """
    temporary = folder.with_name(f"{folder.name}.part")
    with telling_full_disk(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    files = {}
    for field in fields(compact):
        frame = getattr(compact, field.name)
        # What is not there is the same for all, or not there: the facts tell.
        if isinstance(frame, pl.DataFrame) and frame.width and not _is_left_out(field.name, frame):
            data = arrow_bytes(frame)
            name = f"{field.name}.arrow"
            write_whole(temporary / name, data)
            files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    with telling_full_disk(folder):
        sync_folder(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.replace(folder)
        sync_folder(folder.parent)
    return {**compact.facts, "files": files}


def _is_left_out(name: str, frame: pl.DataFrame) -> bool:
    return name == "escapes" and frame.height == 0


def checked_file(folder: Path, name: str, entry: Mapping[str, Any]) -> bytes:
    """The content of a file of a partition, if it is what was written."""
    path = folder / name
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise ClickLogError(
            f"{path} cannot be read: {problem.strerror or problem}. It is a part of a stored log; "
            "ingest the log again."
        ) from problem
    if len(data) != entry["bytes"]:
        raise ClickLogError(
            f"{path} has {len(data):,} bytes instead of {entry['bytes']:,}: it was cut off or "
            "changed. It is a part of a stored log; ingest the log again."
        )
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise ClickLogError(
            f"{path} was changed since it was written: its checksum differs. It is a part of a "
            "stored log; ingest the log again."
        )
    return data


def read_frames(folder: Path, entry: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """Read the files of a partition, by their names without the ending."""
    return {
        name.removesuffix(".arrow"): pl.read_ipc(checked_file(folder, name, about))
        for name, about in entry["files"].items()
    }
