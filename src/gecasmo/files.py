"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gecasmo.errors import GecasmoError


@contextmanager
def whole_file(
    path: Any, error: type[GecasmoError] = GecasmoError, keep_suffix: bool = False
) -> Iterator[Path]:
    """A temporary path beside `path`, moved there when the block ends well, else removed.

    `keep_suffix` is for writers that tell the format by how the name ends. What the system refuses
    (no such folder, no permission, a full disk) is told as `error`.
    """
    target = Path(path).expanduser()
    # Beside the target, since only a move within one file system is a single step.
    ending = f".part{target.suffix}" if keep_suffix else ".part"
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}{ending}")
    try:
        yield temporary
        temporary.replace(target)
    except OSError as problem:
        temporary.unlink(missing_ok=True)
        if not target.parent.is_dir():
            raise error(
                f"{target} cannot be written: there is no folder {target.parent}."
            ) from None
        raise error(f"{target} cannot be written: {problem.strerror or problem}.") from problem
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def scratch_folder(path: Any, error: type[GecasmoError] = GecasmoError) -> Iterator[Path]:
    """A folder beside `path` for what is to become part of it, removed when the block ends."""
    target = Path(path).expanduser()
    folder = target.with_name(f".{target.name}.{uuid.uuid4().hex}.pieces")
    try:
        folder.mkdir()
        yield folder
    except OSError as problem:
        if not target.absolute().parent.is_dir():
            raise error(
                f"{target} cannot be written: there is no folder {target.parent}."
            ) from None
        raise error(f"{target} cannot be written: {problem.strerror or problem}.") from problem
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(fresh: Path, target: Path) -> None:
    """Move a folder to its place; what was there goes when the new one stands."""
    if not target.is_dir():
        fresh.rename(target)
        return
    old = target.with_name(f".{target.name}.{uuid.uuid4().hex}.old")
    target.rename(old)
    try:
        fresh.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
