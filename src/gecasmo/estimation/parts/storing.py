"""A part as plain arrays, to be kept in files or sent to another machine, and back again."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import EncodedLog, Rows
from gecasmo.estimation.expectation import Expectation
from gecasmo.estimation.parts.part import Part
from gecasmo.estimation.problem import Coin, Problem
from gecasmo.forms import Form, TableState
from gecasmo.kernels.library import Library
from gecasmo.kernels.plan import CoinPlan, Plan

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
class StoredPart:
    """A part as arrays, the rows of its local coins, and a few words about them."""

    words: dict[str, Any]
    arrays: Arrays
    rows: Callable[[int], pl.DataFrame]

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


def take_down(part: Part) -> StoredPart:
    """A part as arrays."""
    expectation = part.problem.expectation
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
    for number, state in part.begin.items():
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
        "encoded": numbers,
        "n_rows": [len(rows) for rows in encoded.rows],
        "keys": [list(rows.keys) for rows in encoded.rows],
        "with_missing": expectation.with_missing,
        "constant": part.problem.constant,
        "n_pages": part.problem.n_pages,
        "begin": [[number, value, part.begin[number].otherwise] for number, value in begin.items()],
    }
    frames = {number: encoded.rows[number] for number in part.begin}
    return StoredPart(words, arrays, lambda number: frames[number].frame)


def set_up(
    stored: StoredPart, blueprint: Blueprint, n_rows: Mapping[int, int], threads: int = 1
) -> Part:
    """The part that was taken down; `n_rows` says how many rows shared coins have in all."""
    words, arrays = stored.words, stored.arrays
    plan = Plan(
        tuple(CoinPlan(**{**coin, "history": tuple(coin["history"])}) for coin in words["plan"])
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
    problem = Problem(coins, expectation, words["n_pages"], False, words["constant"])
    begin = {}
    for number, (value, otherwise) in local.items():
        probability = arrays.get(f"begin.{number}")
        if probability is None:
            probability = np.full(len(rows[number]), value if value is not None else 0.5)
        begin[number] = TableState(
            rows[number], probability, otherwise, arrays.get(f"fixed.{number}")
        )
    return Part(
        words["number"],
        problem,
        begin,
        _numbered(arrays, "index"),
        n_rows,
        _typical(arrays),
    )


def to_bytes(stored: StoredPart) -> bytes:
    """A part in one piece: words, arrays in the format of NumPy, rows as Arrow."""
    buffer = io.BytesIO()
    local = [number for number, _, _ in stored.words["begin"]]
    frames = {}
    for number in local:
        frame = io.BytesIO()
        stored.rows(number).write_ipc(frame)
        frames[number] = frame.getvalue()
    header = json.dumps(
        {
            "words": stored.words,
            "arrays": list(stored.arrays),
            "frames": [[number, len(data)] for number, data in frames.items()],
        }
    ).encode()
    buffer.write(len(header).to_bytes(8, "little") + header)
    for array in stored.arrays.values():
        np.save(buffer, array, allow_pickle=False)
    for data in frames.values():
        buffer.write(data)
    return buffer.getvalue()


def from_bytes(data: bytes) -> StoredPart:
    """The part that such bytes hold."""
    buffer = io.BytesIO(data)
    header = json.loads(buffer.read(int.from_bytes(buffer.read(8), "little")))
    arrays = {name: np.load(buffer, allow_pickle=False) for name in header["arrays"]}
    frames = {number: buffer.read(size) for number, size in header["frames"]}
    return StoredPart(
        header["words"], arrays, lambda number: pl.read_ipc(io.BytesIO(frames[number]))
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
