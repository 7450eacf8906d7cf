"""A part as plain arrays, to be kept in files or sent to another machine, and back again.

An array is a file with its numbers and nothing else, of which nothing is read before it is needed;
type and shape are in the folder's `words.json`. (Not NumPy's own format: its header is parsed as
Python, which several threads of CPython 3.11 cannot do at once.) Arrays whose values follow from a
few numbers (all the same, or rising in even steps) take no file: `words.json` says what they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import EncodedLog, Rows
from gecasmo.errors import CheckpointError
from gecasmo.estimation.coins import Coin
from gecasmo.estimation.expectation import Expectation
from gecasmo.estimation.packets import DamagedPacketError, read_packet, write_packet
from gecasmo.estimation.part import Part
from gecasmo.forms import Form, TableState
from gecasmo.kernels.library import Library
from gecasmo.kernels.plan import CoinPlan, Plan
from gecasmo.logs.store.disk import telling_full_disk

Arrays = dict[str, NDArray[Any]]

# What only answers about single pages need, and fits do not.
_NOT_KEPT = {"log", "page_of_session", "ranks"}
_OTHERWISE = {"plan", "rows"}


@dataclass(frozen=True)
class Blueprint:
    """What all parts of a fit have in common.

    Parameters
    ----------
    coins : name and form of every coin
    library : the kernels for a plan
    augmentation : "minimal" or "full"
    """

    coins: Sequence[tuple[str, Form]]
    library: Callable[[Plan], Library]
    augmentation: str


@dataclass(frozen=True)
class PartArrays:
    """A part as arrays, the rows of its local coins, and a few words about them."""

    words: dict[str, Any]
    arrays: Arrays
    rows: Callable[[int], pl.DataFrame]

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


def take_down(part: Part) -> PartArrays:
    """A part as arrays."""
    expectation = part.expectation
    encoded = expectation.encoded
    arrays: Arrays = {}
    numbers: dict[str, Any] = {}
    for field in fields(EncodedLog):
        value = getattr(encoded, field.name)
        if field.name in _NOT_KEPT | _OTHERWISE:
            continue
        if isinstance(value, np.ndarray):
            arrays[field.name] = value
        elif isinstance(value, list) and any(isinstance(item, np.ndarray) for item in value):
            numbers[field.name] = len(value)
            arrays |= {f"{field.name}.{place}": item for place, item in enumerate(value)}
        else:
            numbers[field.name] = value
    begin: dict[int, Any] = {}
    for number, state in part.local.items():
        given = state.probability
        is_plain = len(given) == 0 or bool((given == given[0]).all())
        begin[number] = float(given[0]) if is_plain and len(given) else None
        if not is_plain:
            arrays[f"begin.{number}"] = given
        if state.is_fixed is not None:
            arrays[f"fixed.{number}"] = state.is_fixed
    arrays |= {f"index.{number}": index for number, index in part.index.items()}
    for number, typical in part.typical.items():
        arrays |= {f"typical.{number}.{name}": values for name, values in typical.items()}
    words = {
        "number": part.number,
        "plan": [coin._asdict() for coin in encoded.plan.coins],
        "unrecorded": list(encoded.plan.unrecorded),
        "encoded": numbers,
        "n_rows": [len(rows) for rows in encoded.rows],
        "keys": [list(rows.keys) for rows in encoded.rows],
        "with_missing": expectation.with_missing,
        "constant": part.constant,
        "n_pages": part.n_pages,
        "begin": [[number, value, part.local[number].otherwise] for number, value in begin.items()],
    }
    frames = {number: encoded.rows[number] for number in part.local}
    return PartArrays(words, arrays, lambda number: frames[number].frame)


def set_up(
    stored: PartArrays, blueprint: Blueprint, n_rows: Mapping[int, int], threads: int = 1
) -> Part:
    """The part that was taken down; `n_rows` says how many rows global coins have in all."""
    words, arrays = stored.words, stored.arrays
    plan = Plan(
        tuple(CoinPlan(**{**coin, "history": tuple(coin["history"])}) for coin in words["plan"]),
        tuple(words["unrecorded"]),
    )
    local = {number: (value, otherwise) for number, value, otherwise in words["begin"]}
    rows = [
        _KeptRows(keys, n, stored.rows, number) if number in local else Rows((), (), n)
        for number, (keys, n) in enumerate(zip(words["keys"], words["n_rows"], strict=True))
    ]
    by_form: dict[int, Rows] = {}
    for number, (_, form) in enumerate(blueprint.coins):
        if form.columns:  # coins that share such a form share its rows
            rows[number] = by_form.setdefault(id(form), rows[number])
    given: dict[str, Any] = dict.fromkeys(_NOT_KEPT)
    for field in fields(EncodedLog):
        if field.name in _NOT_KEPT | _OTHERWISE:
            continue
        if field.name in arrays:
            given[field.name] = arrays[field.name]
        elif f"{field.name}.0" in arrays:
            places = range(words["encoded"][field.name])
            given[field.name] = [arrays[f"{field.name}.{place}"] for place in places]
        else:
            given[field.name] = words["encoded"][field.name]
    encoded = EncodedLog(plan=plan, rows=rows, **given)
    expectation = Expectation(
        encoded,
        blueprint.library(plan),
        blueprint.augmentation,
        words["with_missing"],
        threads,
    )
    coins = [Coin(name, form, own) for (name, form), own in zip(blueprint.coins, rows, strict=True)]
    begin = {}
    for number, (value, otherwise) in local.items():
        probability = arrays.get(f"begin.{number}")
        if probability is None:
            probability = np.full(len(rows[number]), value if value is not None else 0.5)
        begin[number] = TableState(
            rows[number], probability, otherwise, arrays.get(f"fixed.{number}")
        )
    return Part(
        coins,
        expectation,
        words["n_pages"],
        words["constant"],
        words["number"],
        begin,
        _numbered(arrays, "index"),
        n_rows,
        _typical(arrays),
    )


def _numbered(arrays: Arrays, kind: str) -> dict[int, NDArray[np.int64]]:
    return {
        int(name.removeprefix(f"{kind}.")): array
        for name, array in arrays.items()
        if name.startswith(f"{kind}.")
    }


def _typical(arrays: Arrays) -> dict[int, dict[str, NDArray[np.float64]]]:
    found: dict[int, dict[str, NDArray[np.float64]]] = {}
    for label, array in arrays.items():
        kind, _, rest = label.partition(".")
        if kind == "typical":
            number, _, name = rest.partition(".")
            found.setdefault(int(number), {})[name] = array
    return found


class _KeptRows(Rows):
    """Rows whose keys are kept elsewhere, and only fetched when somebody looks at them."""

    def __init__(
        self, keys: Sequence[str], n_rows: int, fetch: Callable[[int], pl.DataFrame], number: int
    ) -> None:
        super().__init__(keys, (), n_rows)
        self._fetch, self._number = fetch, number

    @cached_property
    def frame(self) -> pl.DataFrame:
        return self._fetch(self._number)


# -- files ---------------------------------------------------------------------------------------
class PartFiles:
    """The folder with the parts of a fit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, stored: PartArrays) -> int:
        """Keep a part; how many bytes that takes."""
        own = self.folder / f"{stored.words['number']:05d}"
        own.mkdir(parents=True, exist_ok=True)
        with telling_full_disk_of_fit(own):
            n_bytes = 0
            for number, _, _ in stored.words["begin"]:
                path = own / f"rows{number}.packet"
                write_packet(path, stored.rows(number))
                n_bytes += path.stat().st_size
            return n_bytes + write_arrays(own, stored.arrays, stored.words)

    def n_bytes(self) -> int:
        """What all parts take."""
        return sum(path.stat().st_size for path in self.folder.rglob("*.array"))

    def read(self, number: int) -> PartArrays:
        """A part, most of it not yet read."""
        own = self.folder / f"{number:05d}"
        arrays, words = read_arrays(own)
        return PartArrays(words, arrays, lambda coin: read_kept(own / f"rows{coin}.packet"))


def read_kept(path: Path) -> Any:
    """What a packet in the folder of a fit holds."""
    try:
        return read_packet(path)
    except (OSError, DamagedPacketError) as problem:
        raise CheckpointError(
            f"{path} is damaged ({problem}). Remove the folder of this fit, and fit again."
        ) from None


def telling_full_disk_of_fit(folder: Path) -> AbstractContextManager[None]:
    """Say what to do when the disk is full while a fit is under way."""
    advice = "make room and fit again with the same checkpoint folder."
    return telling_full_disk(folder, CheckpointError, None, advice)


_WORTH_A_LOOK = 64


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]], words: Any = None) -> int:
    """Write arrays into a folder that is made for them; how many bytes that took."""
    folder.mkdir(parents=True, exist_ok=True)
    described: dict[str, Any] = {}
    n_bytes = 0
    for name, array in arrays.items():
        short = _in_few_numbers(array)
        if short is None:
            with open(folder / f"{name}.array", "wb") as file:
                file.write(np.ascontiguousarray(array).data)
            n_bytes += array.nbytes
            short = {"bytes": array.nbytes, "type": array.dtype.str, "shape": array.shape}
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
            name: _read(folder / f"{name}.array", short)
            for name, short in described["arrays"].items()
        }
        return arrays, described["words"]
    except CheckpointError:
        raise
    except (OSError, ValueError, KeyError) as problem:
        raise CheckpointError(
            f"{folder} is damaged ({problem}). Remove the folder of this fit, and fit again."
        ) from None


def _read(path: Path, short: Mapping[str, Any]) -> NDArray[Any]:
    if "step" in short:
        return _spelt_out(short)
    size = path.stat().st_size if path.exists() else -1
    if size != short["bytes"]:
        found = "is missing" if size < 0 else f"has {size:,} bytes instead of {short['bytes']:,}"
        raise CheckpointError(f"{path} {found}. Remove the folder of this fit, and fit again.")
    kind, shape = np.dtype(short["type"]), tuple(short["shape"])
    if size <= 4096:
        return np.fromfile(path, kind).reshape(shape)
    # Copy on write, because kernels are compiled for arrays that may be written to.
    array: NDArray[Any] = np.asarray(np.memmap(path, kind, "c", shape=shape))
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
