"""A part as plain arrays, to be kept in files or sent to another machine, and back again.

In files they are packets, of which nothing is read before it is needed. (Not NumPy's own format:
its header is parsed as Python, which several threads of CPython 3.11 cannot do at once.) Arrays
whose values follow from a few numbers (all the same, or rising in even steps) are told by these.

Checksums are looked at when a process reads a file first: damage is told. Then numbers are held
against what they index, since kernels do not look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
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
from gecasmo.estimation.packets import read_packet, write_packet
from gecasmo.estimation.part import Part
from gecasmo.files import synced
from gecasmo.forms import Form, TableState
from gecasmo.kernels.library import Library
from gecasmo.kernels.plan import CoinPlan, Plan, Scope
from gecasmo.language.parameter import HISTORY_KEYS
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
        """Memory that the arrays take."""
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
        "observed": encoded.plan.observed and list(encoded.plan.observed),
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
    stored: PartArrays,
    blueprint: Blueprint,
    n_rows: Mapping[int, int],
    threads: int = 1,
    is_known: bool = False,
) -> Part:
    """The part that was taken down; `n_rows` says how many rows global coins have in all.

    A ValueError, KeyError, TypeError or IndexError tells that arrays and words do not fit together;
    who has looked at them before says `is_known`.
    """
    words, arrays = stored.words, stored.arrays
    observed = words.get("observed")
    plan = Plan(
        tuple(map(_coin_plan, words["plan"])),
        _names(words["unrecorded"]),
        None if observed is None else _names(observed),
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
    library, with_missing = blueprint.library(plan), bool(words["with_missing"])
    if not is_known:
        machine = library.structure.machine(blueprint.augmentation, with_missing)
        encoded.check(len(machine.observations))
        _check_rows(arrays, rows, n_rows, local)
        _check_numbers(words)
    expectation = Expectation(encoded, library, blueprint.augmentation, with_missing, threads)
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


def _coin_plan(words: Mapping[str, Any]) -> CoinPlan:
    """A coin of a plan. Kernels are written from it, so it is made of what we know only."""
    scopes: tuple[Scope, ...] = ("global", "page", "result")
    scope = scopes[scopes.index(words["scope"])]
    history = tuple(HISTORY_KEYS[HISTORY_KEYS.index(key)] for key in words["history"])
    if type(words["codes"]) is not int or not -1 <= words["codes"] < len(words) + 2**16:
        raise ValueError("its plan has odd numbers")
    plan = CoinPlan(scope, words["codes"], history, words["based"] is True)
    if plan.codes < 0 and plan != CoinPlan("global"):
        raise ValueError("its plan has a coin that reads no rows, and yet has some")
    return plan


def _names(names: Sequence[Any]) -> tuple[str, ...]:
    if not all(isinstance(name, str) for name in names):
        raise ValueError("its columns have odd names")
    return tuple(names)


def _check_rows(
    arrays: Arrays, rows: Sequence[Rows], n_rows: Mapping[int, int], local: Mapping[int, Any]
) -> None:
    """Refuse arrays of rows that are longer or shorter than these, or point beyond others."""
    for name, array in arrays.items():
        kind, _, rest = name.partition(".")
        if kind not in ("begin", "fixed", "index", "typical"):
            continue
        number = int(rest.partition(".")[0])
        is_right = array.shape == (len(rows[number]),)
        if kind == "index":
            is_right &= array.dtype == np.int64 and number in n_rows
            is_right &= bool(((array >= 0) & (array < n_rows.get(number, 0))).all())
        else:
            is_right &= array.dtype == (bool if kind == "fixed" else float)
            is_right &= number in local or kind == "typical"
        if not is_right:
            raise ValueError(f"its array {name!r} does not fit the others")


def _check_numbers(words: Mapping[str, Any]) -> None:
    numbers = [words["n_pages"], words["constant"]]
    chances = [x for _, *both in words["begin"] for x in both if x is not None]
    is_right = type(words["number"]) is int and words["number"] >= 0
    is_right &= all(isinstance(x, int | float) for x in (*numbers, *chances))
    is_right &= all(0 <= x <= 1 for x in chances) and bool(np.isfinite(numbers).all())
    if not is_right:
        raise ValueError("its words have odd numbers")


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
_PAGES = "pages.packet"


class PartFiles:
    """The folder with the parts of a fit."""

    def __init__(self, folder: Path, is_kept: bool = True) -> None:
        self.folder, self.is_kept = folder, is_kept

    def write(self, stored: PartArrays) -> int:
        """Keep a part; how many bytes that takes."""
        own = self.folder / f"{stored.words['number']:05d}"
        with telling_full_disk_of_fit(own):
            own.mkdir(parents=True, exist_ok=True)
            for number, _, _ in stored.words["begin"]:
                write_packet(own / f"rows{number}.packet", stored.rows(number), self.is_kept)
            write_pages(own / _PAGES, stored.words, stored.arrays, self.is_kept)
            if self.is_kept:
                synced(own)
                synced(self.folder)
            return sum(path.stat().st_size for path in own.iterdir())

    def n_bytes(self) -> int:
        """What the pages of all parts take."""
        return sum(path.stat().st_size for path in self.folder.rglob(_PAGES))

    def read(self, number: int, is_known: bool = False) -> PartArrays:
        """A part; most of it is not read yet if it `is_known`, as checksums were looked at."""
        own = self.folder / f"{number:05d}"
        with telling_damage(own / _PAGES):
            words, arrays = read_pages(own / _PAGES, is_known)

        def rows(coin: int) -> pl.DataFrame:
            path = own / f"rows{coin}.packet"
            with telling_damage(path):
                frame: pl.DataFrame = read_kept(path)
                if not isinstance(frame, pl.DataFrame) or frame.height != words["n_rows"][coin]:
                    raise ValueError("it has other rows")
            return frame

        return PartArrays(words, arrays, rows)


def read_kept(path: Path) -> Any:
    """What a packet in the folder of a fit holds."""
    with telling_damage(path):
        return read_packet(path)


@contextmanager
def telling_damage(path: Path) -> Iterator[None]:
    """Within this block, what does not fit together is told as damage of a file."""
    odd = (OSError, ValueError, LookupError, TypeError, AttributeError, MemoryError, OverflowError)
    damaged = (*odd, StopIteration, pl.exceptions.PolarsError, pl.exceptions.PanicException)
    try:
        yield
    except CheckpointError:
        raise
    except damaged as problem:
        raise CheckpointError(
            f"{path} is damaged ({problem}). Remove the folder of this fit, and fit again."
        ) from None


def telling_full_disk_of_fit(folder: Path) -> AbstractContextManager[None]:
    """Say what to do when the disk is full while a fit is under way."""
    advice = "make room and fit again with the same checkpoint folder."
    return telling_full_disk(folder, CheckpointError, None, advice)


def write_pages(path: Path, words: Any, arrays: Arrays, sync: bool = False) -> None:
    """Write words and arrays into one file."""
    short = {name: _in_few_numbers(array) for name, array in arrays.items()}
    long = {name: array for name, array in arrays.items() if short[name] is None}
    write_packet(path, (words, {n: few for n, few in short.items() if few}, long), sync)


def read_pages(path: Path, is_known: bool = False) -> tuple[dict[str, Any], Arrays]:
    """The words and arrays of such a file."""
    words, short, long = read_packet(path, is_mapped=True, is_known=is_known)
    arrays = {**long, **{name: _spelt_out(few) for name, few in short.items()}}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("an array of it is none")
    return words, arrays


_WORTH_A_LOOK = 64
_LARGEST_STEP = 2**48  # rows and places are far below it, and sums of such numbers are exact


def _in_few_numbers(array: NDArray[Any]) -> dict[str, Any] | None:
    if array.ndim != 1 or len(array) < _WORTH_A_LOOK or array.dtype.kind not in "iuf":
        return None
    first, step = array[0].item(), array[1].item() - array[0].item()
    if step != 0 and (array.dtype.kind == "f" or max(abs(first), abs(step)) > _LARGEST_STEP):
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
    if max(abs(short["first"]), abs(short["step"])) > _LARGEST_STEP:
        raise ValueError("its numbers are too large")
    numbers = short["first"] + short["step"] * np.arange(short["length"], dtype=np.int64)
    spelt: NDArray[Any] = numbers.astype(kind)
    return spelt
