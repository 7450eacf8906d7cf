"""Writing files that are whole or not there, also after a power cut; a full disk is told so."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError, GecasmoError
from gecasmo.logs.store.sizes import free_bytes, in_bytes


class DiskFullError(ClickLogError):
    """The disk is full; what was done so far is kept, and goes on when there is room."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def telling_full_disk(
    path: Path,
    full: type[GecasmoError] = DiskFullError,
    other: type[GecasmoError] | None = ClickLogError,
    advice: str = "make room and run the same again, and it goes on from here.",
) -> Iterator[None]:
    """Within this block, what the system refuses to write is told in words.

    Parameters
    ----------
    path
        What is written.
    full
        Raised when the disk is full.
    other
        Raised for anything else that the system refuses; None leaves it as it is.
    advice
        What to do about a full disk.
    """
    try:
        yield
    except OSError as problem:
        if _is_full(problem):
            raise full(
                f"{path} cannot be written: the disk is full ({in_bytes(free_bytes(path))} "
                f"free). Nothing is lost: {advice}"
            ) from problem
        if other is None:
            raise
        raise other(f"{path} cannot be written: {problem.strerror or problem}.") from problem


def _is_full(problem: OSError) -> bool:
    # Writers of arrays do not say which error it was; others, at least, have a class for it.
    is_unknown = problem.errno is None and type(problem) is OSError
    return is_unknown or problem.errno in _FULL


def write_whole(path: Path, data: bytes | memoryview) -> None:
    """Write a file under a temporary name, push it to the disk, and move it to its place."""
    temporary = path.with_name(f"{path.name}.part")
    with telling_full_disk(path):
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole."""
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())


def sync_folder(folder: Path) -> None:
    """Push the names of new files to the disk."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def arrow_bytes(frame: pl.DataFrame) -> bytes:
    """A frame as an Arrow IPC file that can be mapped into memory: not compressed, one piece."""
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="uncompressed", record_batch_size=max(frame.height, 1))
    return buffer.getvalue()
