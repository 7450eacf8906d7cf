"""Files packed by gzip or zstd, read and written piece by piece, whatever they unpack to."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from gecasmo.errors import ClickLogError

CHUNK = 1 << 20
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
LARGEST_WINDOW = 1 << 28  # of zstd, which takes as much memory
_SKIPPED = range(0x184D2A50, 0x184D2A60)  # frames of zstd that hold something else


def unpacked(
    file: IO[bytes], kind: str | None, name: str, size: int | None = None
) -> Iterator[bytes]:
    """Read an open file piece by piece, unpacking it.

    Parameters
    ----------
    file
        The file, at its start.
    kind
        "gz", "zst" or None.
    name
        How messages call the file.
    size
        How much to read of a file that is not packed at a time, in bytes; -1 for all.

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
            yield from iter(lambda: file.read(size or CHUNK), b"")
        elif kind == "gz":
            with gzip.GzipFile(fileobj=file, mode="rb") as unzipped:
                # read1 hands out what there is before it meets the end of a file that was cut off.
                yield from iter(lambda: unzipped.read1(CHUNK), b"")
        else:
            yield from _in_chunks(_unpacked_zstd(file, name))
    except EOFError:
        raise _cut_off(name) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(name, "gzip", error) from error
    except OSError as error:
        raise ClickLogError(f"{name} cannot be read: {error.strerror or error}.") from error


def _unpacked_zstd(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Unpack a block at a time, at most 128 KB: a few bytes of zstd can be gigabytes.

    Each frame has a header, blocks that say how long they are and which is the last, and perhaps a
    checksum; so a frame that ends too early is told from one that is whole.
    """
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)
    try:
        while (start := file.read(18)) != b"":
            magic = int.from_bytes(start[:4], "little")
            if magic in _SKIPPED and len(start) >= 8:
                left = int.from_bytes(start[4:8], "little") - (len(start) - 8)
                if left < 0:
                    file.seek(left, io.SEEK_CUR)
                while left > 0 and (skipped := file.read(min(left, CHUNK))):
                    left -= len(skipped)
                continue
            if len(start) < 18 and ZSTD.startswith(start[:4]) and not _is_whole_header(start):
                raise EOFError
            known = zstandard.get_frame_parameters(start)
            if known.window_size > LARGEST_WINDOW:
                raise ClickLogError(
                    f"{name} cannot be read: unpacking it takes {known.window_size:,} bytes of "
                    f"memory, and at most {LARGEST_WINDOW:,} are granted; pack it again, without "
                    "zstd's --long."
                )
            size = zstandard.frame_header_size(start)
            file.seek(size - len(start), io.SEEK_CUR)
            frame = decompressor.decompressobj()
            frame.decompress(start[:size])
            is_last = False
            while not is_last:
                header = int.from_bytes(_exactly(file, 3), "little")
                is_last, kind, length = bool(header & 1), header >> 1 & 3, header >> 3
                length = 1 if kind == 1 else length  # a byte that is repeated
                yield frame.decompress(header.to_bytes(3, "little") + _exactly(file, length))
            if known.has_checksum:
                yield frame.decompress(_exactly(file, 4))
    except zstandard.ZstdError as error:
        raise _damaged(name, "zstd", error) from error


def _in_chunks(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Put small pieces together; what there is before a file ends too early is handed out, too."""
    waiting: list[bytes] = []
    held = 0
    try:
        for block in blocks:
            waiting.append(block)
            held += len(block)
            if held >= CHUNK:
                yield b"".join(waiting)
                waiting, held = [], 0
    except (EOFError, ClickLogError):
        yield b"".join(waiting)
        raise
    yield b"".join(waiting)


def _is_whole_header(start: bytes) -> bool:
    """Whether the beginning of a frame of zstd has all of its header."""
    if len(start) < 5:
        return False
    flags = start[4]
    of_content = (flags >> 5 & 1, 2, 4, 8)[flags >> 6]
    return len(start) >= 5 + (1 - (flags >> 5 & 1)) + (0, 1, 2, 4)[flags & 3] + of_content


def _exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _damaged(name: str, kind: str, error: Exception) -> ClickLogError:
    return ClickLogError(
        f"{name} cannot be read: the {kind} file is damaged ({error}); copy or make it again."
    )


def _cut_off(name: str) -> ClickLogError:
    return ClickLogError(
        f"{name} cannot be read: the compressed file ends too early; it was cut off, perhaps "
        "while it was copied or still being written. Copy or make it again."
    )


@contextmanager
def packed(temporary: Path, path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that packs what is written, if `path` ends in .gz or .zst."""
    suffix = path.suffix.lower()
    with temporary.open("wb") as file:
        if suffix == ".gz":
            # Without the name and the time, the same log makes the same file.
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipped:
                yield cast("IO[bytes]", zipped)
        elif suffix == ".zst":
            import zstandard

            writer: Any = zstandard.ZstdCompressor().stream_writer(file, closefd=False)
            with writer:
                yield writer
        else:
            yield file
