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

from gecasmo.errors import ClickLogError
from gecasmo.logs.store.sizes import free_bytes, in_bytes


class DiskFullError(ClickLogError):
    """The disk is full; what was done so far is kept, and goes on when there is room."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def telling_full_disk(path: Path) -> Iterator[None]:
    """Within this block, what the system refuses to write is told in words."""
    try:
        yield
    except OSError as problem:
        if problem.errno in _FULL:
            raise DiskFullError(
                f"{path} cannot be written: the disk is full ({in_bytes(free_bytes(path.parent))} "
                "free). Nothing is lost: make room and run the same again, and it goes on from "
                "here."
            ) from problem
        raise ClickLogError(
            f"{path} cannot be written: {problem.strerror or problem}."
        ) from problem


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
