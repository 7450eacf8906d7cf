"""Amounts of memory and disk: said by people, asked of the system, and told in messages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from gecasmo.errors import ClickLogError, GecasmoError

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
# Below this, what the interpreter and its threads need besides is more.
SMALLEST_MEMORY = 64 * 10**6
# Files take whole blocks, and a disk that is full to the last byte serves nobody.
SPARE_SHARE = 1.05


def parse_bytes(amount: int | str, what: str = "memory") -> int:
    """Read an amount such as "4GB", "512 MiB" or 4000000000.

    Parameters
    ----------
    amount
        Bytes, or a text with a unit: kB, MB, GB, TB, or KiB, MiB, GiB, TiB.
    what
        How messages name the argument.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    ClickLogError
        When it is no such amount.

    Examples
    --------
    >>> parse_bytes("4GB")
    4000000000
    """
    if isinstance(amount, int) and not isinstance(amount, bool) and amount > 0:
        return amount
    found = _AMOUNT.fullmatch(amount) if isinstance(amount, str) else None
    if found is None or not (bytes_ := _bytes(*found.groups())):
        raise ClickLogError(
            f"{what}={amount!r}: an amount such as '4GB', '500MB' or a number of bytes is needed."
        )
    return bytes_


def _bytes(number: str, unit: str, binary: str) -> int:
    scale = _UNITS[unit.lower()]
    if binary and unit:
        scale = 1024 ** ("kmgt".index(unit.lower()) + 1)
    return int(float(number) * scale)


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

    Parameters
    ----------
    n_pages, n_results
        Of the log.
    n_rows
        Rows of parameter tables, over all tables; a stored log has a row a pair of query and
        document.
    page_bytes, result_bytes, row_bytes
        What each of them takes. The defaults are those of a stored log without ids: a byte for
        the document and a bit for the click.

    Returns
    -------
    int
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

    Parameters
    ----------
    folder
        Where the files go.
    needs
        Bytes still to be written, by what they are for.
    advice
        What to try, as a sentence.
    error
        What is raised.
    """
    free, need = free_bytes(folder), sum(needs.values())
    if need <= free:
        return
    listed = ", ".join(f"{in_bytes(amount)} for {what}" for what, amount in needs.items())
    raise error(
        f"{folder}: there is not enough room on the disk: about {in_bytes(need)} are needed "
        f"({listed}), and {in_bytes(free)} are free.{f' {advice}' if advice else ''}"
    )
