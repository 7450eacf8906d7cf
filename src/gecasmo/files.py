"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

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
        to_disk(temporary)
        temporary.replace(target)
        to_disk(target.parent)
    except OSError as problem:
        temporary.unlink(missing_ok=True)
        raise error(_refused(target, problem)) from problem
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
        raise error(_refused(target, problem)) from problem
    finally:
        shutil.rmtree(folder, ignore_errors=True)


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _refused(target: Path, problem: OSError) -> str:
    why = f"{problem.strerror or problem}."
    if problem.errno in FULL:
        why = "the disk is full. Make room, and run the same again."
    elif not target.absolute().parent.is_dir():
        why = f"there is no folder {target.parent}."
    return f"{target} cannot be written: {why}"


def to_disk(path: Path) -> None:
    """Push a file, or the names in a folder, to the disk; before, a power cut would lose them."""
    is_folder = path.is_dir()
    if is_folder and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as problem:
        # Some file systems have no such thing for folders.
        if not is_folder or problem.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def locked_file(path: Path) -> IO[bytes] | None:
    """Lock a file, made if need be, until what is returned is closed; None if another holds it.

    A link is not followed, and nothing is cut off, whatever somebody has put there.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    file = os.fdopen(os.open(path, flags, 0o666), "rb+", buffering=0)
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except BaseException:
        file.close()
        raise
    return file


def link_in(folder: Path) -> Path | None:
    """A link somewhere in a folder, through which one would write to files elsewhere."""
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if (path := Path(here, name)).is_symlink():
                return path
    return None


def json_with_checksum(content: Mapping[str, Any]) -> bytes:
    """JSON that tells whether it is still what was written."""
    checksum = zlib.crc32(json.dumps(content).encode())
    return json.dumps({**content, "crc32": checksum}).encode()


def checked_json(data: bytes) -> dict[str, Any]:
    """What such JSON says; a ValueError where it was changed."""
    content = json.loads(data)
    if not isinstance(content, dict) or "crc32" not in content:
        raise ValueError("it has no checksum")
    if content.pop("crc32") != zlib.crc32(json.dumps(content).encode()):
        raise ValueError("its checksum differs")
    return content


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
