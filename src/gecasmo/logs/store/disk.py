"""Memory and disk: amounts as people say them, room that is left, and files that are whole.

A file is written whole or not at all, also when the power is cut; a full disk is told so.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError, GecasmoError
from gecasmo.files import FULL
from gecasmo.frames import write_one_batch

_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
# Below this, what the interpreter and its threads need besides is more.
SMALLEST_MEMORY = 64 * 10**6
# Files take whole blocks, and a disk that is full to the last byte serves nobody.
SPARE_SHARE = 1.05


def parse_bytes(amount: int | str, what: str = "memory") -> int:
    """Read an amount such as "4GB", "512 MiB" or 4000000000; messages name it as `what`."""
    if isinstance(amount, int) and not isinstance(amount, bool) and amount > 0:
        return amount
    if isinstance(amount, str) and (found := _AMOUNT.fullmatch(amount)):
        number, unit, binary = found.groups()
        power = " kmgt".index(unit.lower() or " ")
        if bytes_ := int(float(number) * (1024 if binary else 1000) ** power):
            return bytes_
    raise ClickLogError(
        f"{what}={amount!r}: an amount such as '4GB', '500MB' or a number of bytes is needed."
    )


def in_bytes(amount: float) -> str:
    """Say an amount of bytes in words, such as "1.5 GB"."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if amount >= scale:
            return f"{amount / scale:.1f} {unit}"
    return f"{amount:.0f} bytes"


def free_bytes(folder: Path) -> int:
    """How much can still be written where a folder is, or will be."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def disk_need(
    n_pages: int,
    n_results: int,
    n_rows: int = 0,
    *,
    page_bytes: float = 0.0,
    result_bytes: float = 1.25,
    row_bytes: float = 0.0,
) -> int:
    """Estimate the bytes of files that hold something for each page, result and row of a table.

    Rows are those of all parameter tables; a stored log has a row a pair of query and document. The
    defaults are those of a stored log without ids: a byte for the document, a bit for the click.
    """
    need = n_pages * page_bytes + n_results * result_bytes + n_rows * row_bytes
    return int(need * SPARE_SHARE)


def check_disk(
    folder: Path,
    needs: Mapping[str, int],
    *,
    advice: str = "",
    error: type[GecasmoError] = ClickLogError,
) -> None:
    """Refuse work whose files will not fit on the disk.

    `needs` are the bytes still to be written, by what they are for; `advice` says what to try.
    """
    free, need = free_bytes(folder), sum(needs.values())
    if need <= free:
        return
    listed = ", ".join(f"{in_bytes(amount)} for {what}" for what, amount in needs.items())
    raise error(
        f"{folder}: there is not enough room on the disk: about {in_bytes(need)} are needed "
        f"({listed}), and {in_bytes(free)} are free.{f' {advice}' if advice else ''}"
    )


class DiskFullError(ClickLogError):
    """The disk is full; what was done so far is kept, and goes on when there is room."""


@contextmanager
def telling_full_disk(
    path: Path,
    full: type[GecasmoError] = DiskFullError,
    other: type[GecasmoError] | None = ClickLogError,
    advice: str = "make room and run the same again, and it is resumed here.",
) -> Iterator[None]:
    """Within this block, what the system refuses to write is told in words.

    A full disk is told as `full`, with advice; anything else as `other`, where None leaves it.
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
    return is_unknown or problem.errno in FULL


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


def arrow_bytes(frame: pl.DataFrame) -> bytes:
    """A frame as an Arrow IPC file that can be mapped into memory: not compressed, one piece."""
    buffer = io.BytesIO()
    write_one_batch(frame, buffer)
    return buffer.getvalue()
