"""Arrays in files of a folder, of which nothing is read before it is needed.

An array is a file in NumPy's own format. Arrays whose values follow from a few numbers (all the
same, or rising in even steps) take no file: the folder's `words.json` says what they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import CheckpointError

_WORTH_A_LOOK = 64


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]], words: Any = None) -> int:
    """Write arrays into a folder that is made for them; how many bytes that took."""
    folder.mkdir(parents=True, exist_ok=True)
    described: dict[str, Any] = {}
    n_bytes = 0
    for name, array in arrays.items():
        short = _in_few_numbers(array)
        if short is None:
            path = folder / f"{name}.npy"
            with open(path, "wb") as file:
                np.save(file, array, allow_pickle=False)
                n_bytes += file.tell()
            short = {"bytes": path.stat().st_size}
        described[name] = short
    text = json.dumps({"words": words, "arrays": described}).encode()
    # Last, and in one step: a folder with words is a whole one.
    temporary = folder / "words.json.part"
    temporary.write_bytes(text)
    temporary.replace(folder / "words.json")
    return n_bytes + len(text)


def read_arrays(folder: Path) -> tuple[dict[str, NDArray[Any]], Any]:
    """The arrays of a folder, as far as possible without reading them, and its words."""
    try:
        described = json.loads((folder / "words.json").read_bytes())
        arrays = {
            name: _read(folder / f"{name}.npy", short)
            for name, short in described["arrays"].items()
        }
        return arrays, described["words"]
    except CheckpointError:
        raise
    except (OSError, ValueError, KeyError) as problem:
        raise CheckpointError(
            f"{folder} is damaged ({problem}). Remove the folder of this fit, and fit again."
        ) from None


def write_numbers(path: Path, arrays: Mapping[str, NDArray[np.float64]]) -> None:
    """Write arrays of numbers into one file: how long its header is, a header, and the numbers."""
    header = json.dumps({name: len(array) for name, array in arrays.items()}).encode()
    header += b" " * (-(len(header) + 8) % 64)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array, np.float64).data)


def read_numbers(path: Path) -> dict[str, NDArray[np.float64]]:
    """The arrays of such a file."""
    try:
        content = np.fromfile(path, np.uint8)
        start = 8 + int.from_bytes(content[:8].tobytes(), "little")
        lengths = json.loads(content[8:start].tobytes())
        if len(content) != start + 8 * sum(lengths.values()):
            raise ValueError("it does not have the length that it says")
        numbers = content[start:].view(np.float64)
    except (OSError, ValueError) as problem:
        raise CheckpointError(
            f"{path} is damaged ({problem}). Remove the folder of this fit, and fit again."
        ) from None
    cuts = np.cumsum([0, *lengths.values()])
    return {
        name: numbers[first:last]
        for name, first, last in zip(lengths, cuts[:-1], cuts[1:], strict=True)
    }


def _read(path: Path, short: Mapping[str, Any]) -> NDArray[Any]:
    if "step" in short:
        return _spelt_out(short)
    size = path.stat().st_size if path.exists() else -1
    if size != short["bytes"]:
        found = "is missing" if size < 0 else f"has {size:,} bytes instead of {short['bytes']:,}"
        raise CheckpointError(f"{path} {found}. Remove the folder of this fit, and fit again.")
    # Copy on write, because kernels are compiled for arrays that may be written to.
    mapped = np.load(path, mmap_mode="c", allow_pickle=False) if size > 4096 else np.load(path)
    array: NDArray[Any] = np.asarray(mapped)
    return array


def _in_few_numbers(array: NDArray[Any]) -> dict[str, Any] | None:
    if array.ndim != 1 or len(array) < _WORTH_A_LOOK or array.dtype.kind not in "iuf":
        return None
    first, step = array[0].item(), array[1].item() - array[0].item()
    if array.dtype.kind == "f" and step != 0:
        return None
    short = {"first": first, "step": step, "length": len(array), "type": array.dtype.str}
    # A few values tell apart nearly all arrays that are something else.
    few = array[:_WORTH_A_LOOK]
    if not np.array_equal(_spelt_out({**short, "length": len(few)}), few):
        return None
    return short if np.array_equal(_spelt_out(short), array) else None


def _spelt_out(short: Mapping[str, Any]) -> NDArray[Any]:
    kind = np.dtype(short["type"])
    if short["step"] == 0:
        return np.full(short["length"], short["first"], kind)
    numbers = short["first"] + short["step"] * np.arange(short["length"], dtype=np.int64)
    spelt: NDArray[Any] = numbers.astype(kind)
    return spelt
