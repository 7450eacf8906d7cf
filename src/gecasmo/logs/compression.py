"""Compressed files: told by their first bytes, read to the very end, written without a date."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from gecasmo.errors import ClickLogError

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
ZIP = b"PK\x03\x04"
CHUNK = 1 << 20
LARGEST_WINDOW = 1 << 31


def compression_of(start: bytes) -> str | None:
    """Say how a file is compressed, from its first bytes: "gz", "zst" or None."""
    if start.startswith(GZIP):
        return "gz"
    return "zst" if start.startswith(ZSTD) else None


def refuse_archive(file: IO[bytes], name: str) -> None:
    """Refuse ZIP archives, of which saved fits are one kind.

    Parameters
    ----------
    file
        The file, at its start.
    name
        How messages call the file.

    Raises
    ------
    ClickLogError
    """
    if file.read(len(ZIP)) != ZIP:
        return
    try:
        is_fit = "manifest.json" in zipfile.ZipFile(file).namelist()
    except (zipfile.BadZipFile, OSError):
        is_fit = False
    if is_fit:
        raise ClickLogError(
            f"{name} is a fit that gecasmo saved, not a log. Give the log here; gecasmo.load reads "
            "the fit."
        )
    raise ClickLogError(
        f"{name} is a ZIP archive. Unpack it first; only .gz and .zst are read packed."
    )


def unpacked(file: IO[bytes], kind: str | None, name: str) -> Iterator[bytes]:
    """Read a file piece by piece, unpacking it.

    Parameters
    ----------
    file
        The file, at its start.
    kind
        "gz", "zst" or None.
    name
        How messages call the file.

    Yields
    ------
    bytes

    Raises
    ------
    ClickLogError
        When the compressed file is cut off or damaged.
    """
    try:
        if kind is None:
            yield from iter(lambda: file.read(CHUNK), b"")
        elif kind == "gz":
            with gzip.GzipFile(fileobj=file, mode="rb") as unzipped:
                # read1 hands out what there is before it meets the end of a file that was cut off.
                yield from iter(lambda: unzipped.read1(CHUNK), b"")
        else:
            yield from _unpacked_zstd(file, name)
    except EOFError:
        raise _cut_off(name) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ClickLogError(
            f"{name} cannot be read: the gzip file is damaged ({error}); copy or make it again."
        ) from error
    except OSError as error:
        raise ClickLogError(f"{name} cannot be read: {error.strerror or error}.") from error


def _unpacked_zstd(file: IO[bytes], name: str) -> Iterator[bytes]:
    import zstandard

    # Readers that hide the frames end quietly in the middle of one; a frame at a time tells.
    decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)
    frame, begun = decompressor.decompressobj(), False
    try:
        for piece in iter(lambda: file.read(CHUNK), b""):
            while piece:
                begun = True
                yield frame.decompress(piece)
                if not frame.eof:
                    break
                piece = frame.unused_data
                frame, begun = decompressor.decompressobj(), False
    except zstandard.ZstdError as error:
        raise ClickLogError(
            f"{name} cannot be read: the zstd file is damaged ({error}); copy or make it again."
        ) from error
    if begun:
        raise _cut_off(name)


def _cut_off(name: str) -> ClickLogError:
    return ClickLogError(
        f"{name} cannot be read: the compressed file ends too early; it was cut off, perhaps "
        "while it was copied or still being written. Copy or make it again."
    )


@contextmanager
def packed(path: Path, kind: str | None) -> Iterator[IO[bytes]]:
    """Open a file for writing, packing what is written.

    Parameters
    ----------
    path
        The file.
    kind
        "gz", "zst" or None.

    Yields
    ------
    file
        A binary file.
    """
    with path.open("xb") as file:
        if kind == "gz":
            # Without the name and the time, the same log makes the same file.
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipped:
                yield cast("IO[bytes]", zipped)
        elif kind == "zst":
            import zstandard

            writer: Any = zstandard.ZstdCompressor().stream_writer(file, closefd=False)
            with writer:
                yield writer
        else:
            yield file
