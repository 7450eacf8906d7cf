"""Writing files so that nobody ever sees half of one.

Only a regular file is ever replaced. Links are followed to what they lead to; pipes, devices and
descriptors that are open already take what was written, when it is whole.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from gecasmo.errors import GecasmoError
from gecasmo.report import printable_lines

STANDARD_OUTPUT = Path("/dev/stdout")
_BEGUN = re.compile(r"\.gecasmo-[0-9a-f]{32}\.part")
_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/self/fd/\d+")


def is_stream(path: Any) -> bool:
    """Whether what is written to a path goes through it: a pipe, a device, standard output."""
    text = os.path.expanduser(path)
    if _DESCRIPTOR.fullmatch(text):
        return True
    try:
        mode = os.stat(text).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def followed(path: Any) -> Path:
    """Where a path leads to: itself, or the end of the links that it is."""
    named = os.path.expanduser(path)
    return Path(os.path.realpath(named) if os.path.islink(named) else named)


def beside(target: Path, ending: str) -> Path:
    """A name that nobody has, in the folder of a target, however long the target's own name is."""
    return target.with_name(f".gecasmo-{uuid.uuid4().hex}.{ending}")


def leftovers(folder: Path) -> list[Path]:
    """Files in a folder that somebody who was killed had begun to write."""
    return [path for path in folder.iterdir() if _BEGUN.fullmatch(path.name) and path.is_file()]


@contextmanager
def whole_file(path: Any, error: type[GecasmoError] = GecasmoError) -> Iterator[Path]:
    """An empty file to write to, put in the place of `path` when the block ends well, else removed.

    A file that is replaced keeps its permissions, and what replaces it is on the disk before it
    does. What the system refuses (no such folder, no permission, a full disk) is told as `error`.
    """
    named = Path(os.path.expanduser(path))
    with _told(named, error):
        if is_stream(named):
            with tempfile.TemporaryDirectory(prefix="gecasmo-") as folder:
                temporary = Path(folder) / "content"
                temporary.touch()
                yield temporary
                _pour(temporary, named)
            return
        # Beside the target, since only a move within one file system is a single step.
        target = followed(named)
        temporary = beside(target, "part")
        before = target.stat() if target.is_file() else None
        try:
            # Nobody may read it on the way who could not read what it replaces.
            mode = 0o666 if before is None else 0o666 & before.st_mode | 0o600
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
            mode = stat.S_IMODE((before or temporary.stat()).st_mode)
            yield temporary
            synced(temporary)
            temporary.chmod(mode)  # a writer may have moved a file of its own here
            if before is not None and hasattr(os, "chown"):
                with suppress(PermissionError):
                    os.chown(temporary, before.st_uid, before.st_gid)
            temporary.replace(target)
            synced(target.parent)
        finally:
            temporary.unlink(missing_ok=True)


def synced(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":
        return  # cannot be opened there
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _pour(temporary: Path, path: Path) -> None:
    """Write a file into a pipe, a device or an open descriptor."""
    with temporary.open("rb") as content:
        if path == STANDARD_OUTPUT:
            write_to_standard_output(content)
            return
        is_open = _DESCRIPTOR.fullmatch(str(path)) is not None
        number = 2 if path.name == "stderr" else path.name
        with open(os.dup(int(number)) if is_open else path, "wb") as stream:
            shutil.copyfileobj(content, stream)


def write_to_standard_output(content: IO[bytes]) -> None:
    """Copy a file to a pipe, after what was printed; on a terminal it is only looked at."""
    sys.stdout.flush()
    if sys.stdout.isatty():
        sys.stdout.write(printable_lines(content.read().decode(errors="replace")))
    else:
        shutil.copyfileobj(content, sys.stdout.buffer)
    sys.stdout.flush()


@contextmanager
def scratch_folder(path: Any, error: type[GecasmoError] = GecasmoError) -> Iterator[Path]:
    """A folder for what is to become part of `path`, removed when the block ends."""
    named = Path(os.path.expanduser(path))
    with _told(named, error):
        target = Path(tempfile.gettempdir(), "x") if is_stream(named) else named
        folder = beside(followed(target), "pieces")
        try:
            folder.mkdir(0o700)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _told(target: Path, error: type[GecasmoError]) -> Iterator[None]:
    """Say what the system refuses in words; a reader of a pipe who has gone is no fault."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise error(refused(target, problem)) from problem


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def refused(target: Path, problem: OSError) -> str:
    """Say why a file could not be written, and what to do about a full disk."""
    why = f"{problem.strerror or problem}."
    if problem.errno in FULL:
        why = "the disk is full. Make room, and run the same again."
    elif not target.absolute().parent.is_dir():
        why = f"there is no folder {target.parent}."
    return f"{target} cannot be written: {why}"


def put_in_place(fresh: Path, target: Path) -> None:
    """Move a folder to its place; what was there goes when the new one stands."""
    if not target.is_dir():
        fresh.rename(target)
        return
    old = beside(target, "old")
    target.rename(old)
    try:
        fresh.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def locked_file(path: Path) -> IO[bytes] | None:
    """Lock a file, made if need be, until what is returned is closed; None if another holds it.

    A link is not followed, and nothing is cut off, whatever somebody has put there.
    """
    flags = os.O_RDWR | os.O_CREAT
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # each on some systems only
        flags |= getattr(os, name, 0)
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
