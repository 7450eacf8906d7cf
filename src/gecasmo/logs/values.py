"""What ids, clicks, ranks and weights may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.frames import WIDE
from gecasmo.logs.notes import Faults, counted_are

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

_EXACT = (pl.String, pl.Boolean, pl.Binary, pl.Date, pl.Datetime, pl.Time, pl.Duration, pl.Null)
MOST_WEIGHT = 2.0**53  # beyond it a page more or less is lost in the sum of all
LARGEST_RANK = np.iinfo(np.int32).max

YES = ("yes", "y", "true", "t")
NO = ("no", "n", "false", "f")
_COUNTS = "; clicks are whole numbers from 0"
_WORDS = "; clicks are whole numbers, booleans, or yes and no, y and n, true and false, t and f"
_SMALLER = "; divide all weights by the same number"
_TEXT = (pl.String, pl.Categorical, pl.Enum)

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def check_ids(values: pl.Series, title: str, faults: Faults) -> pl.Series | None:
    """Bring ids to one flavour of data type; None, and a fault, where it cannot be an id."""
    # For most types Polars knows without looking that there is none.
    if isinstance(values.dtype, pl.Struct) or values.null_count():
        faults.add_missing(title, missing_ids(values))
    wanted = _id_type(values.dtype)
    if wanted is None:
        if any(dtype.is_float() for dtype in _leaves(values.dtype)):
            why = "floats do not make reliable ids; cast it to an integer or to text first"
        else:
            why = "that cannot be an id; cast it to an integer or to text first"
        fault = f"{title}: the column holds {values.dtype}, and {why}"
        faults.add(f"{fault}, as in {_cast(values.dtype, title)}")
        return None
    return values if wanted == values.dtype else values.cast(wanted)


def missing_ids(values: pl.Series) -> pl.Series:
    """Say which ids are missing; an id of several columns is missing when a part of it is."""
    missing = values.is_null()
    if isinstance(values.dtype, pl.Struct):
        for field in values.dtype.fields:
            missing = missing | missing_ids(values.struct.field(field.name))
    return missing


def _id_type(dtype: pl.DataType) -> pl.DataType | None:
    """Return the data type such ids are kept in, or None when they are refused."""
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return pl.String()
    if dtype.is_integer() or isinstance(dtype, _EXACT):
        return dtype
    if isinstance(dtype, pl.Struct):
        fields = {field.name: _id_type(_instance(field.dtype)) for field in dtype.fields}
        known = {name: kind for name, kind in fields.items() if kind is not None}
        return pl.Struct(known) if len(known) == len(fields) else None
    return None


def _leaves(dtype: pl.DataType) -> list[pl.DataType]:
    if isinstance(dtype, pl.Struct):
        return [leaf for field in dtype.fields for leaf in _leaves(_instance(field.dtype))]
    return [dtype]


def _instance(dtype: PolarsDataType) -> pl.DataType:
    return dtype() if isinstance(dtype, type) else dtype


def _cast(dtype: pl.DataType, title: str) -> str:
    column = title.split("'")[1] if "'" in title else title
    if isinstance(dtype, pl.Struct):
        column = next(f.name for f in dtype.fields if _id_type(_instance(f.dtype)) is None)
    return f'df.with_columns(pl.col("{column}").cast(pl.String))'


def integers_where_exact(texts: pl.Series) -> pl.Series:
    """Turn ids read as text into integers when every one of them survives the way back.

    Type inference would read "007" and "7" as one id; here such a column stays text.
    """
    # A glance at the start spares a pass over a long column of plain words.
    for sample in (texts.head(100), texts):
        numbers = sample.cast(pl.Int64, strict=False)
        if not numbers.cast(pl.String).eq_missing(sample).all():
            return texts
    return numbers if numbers.null_count() < len(numbers) else texts


# Unlike other signals: after a left join of shown and clicked results, null is "no". A model would
# learn very different things from the two meanings, so nobody guesses.
_NO_CLICK = (
    "; write 0 where that means no click, as after a left join, and leave out pages whose clicks "
    "were not recorded, which say nothing about a model"
)


def check_clicks(values: pl.Series, title: str, faults: Faults) -> tuple[Bools, Floats | None]:
    """Read clicks: booleans, numbers of clicks, or words such as "yes" and "no".

    Where the column counts, it is also told how often each result was clicked.
    """
    if is_plain(values, 1):
        return np.asarray((values != 0).to_numpy(), dtype=np.bool_), None
    faults.add_missing(title, _missing(values), what_to_do=_NO_CLICK)
    if values.dtype == pl.Boolean:
        return np.asarray(values.fill_null(False).to_numpy(), dtype=np.bool_), None
    if isinstance(values.dtype, _TEXT):
        return _clicks_of_words(values, title, faults), None
    numbers, known = _numbers(values)
    broken = (np.floor(numbers) != numbers) | ~np.isfinite(numbers)
    _note(broken & known, "not whole numbers", values, title, faults, _COUNTS)
    _note((numbers < 0) & ~broken, "negative", values, title, faults, _COUNTS)
    return np.asarray(numbers > 0, dtype=np.bool_), numbers


def _clicks_of_words(values: pl.Series, title: str, faults: Faults) -> Bools:
    words = values.cast(pl.String).str.to_lowercase()
    yes = words.is_in(YES).fill_null(False).to_numpy()
    is_word = words.is_in((*YES, *NO)).fill_null(False).to_numpy()
    numbers, known = _numbers(values)
    wrong = known & ~is_word
    odd = wrong & np.isnan(numbers)
    if wrong.any() and not odd.any() and not is_word.any():
        column = title.split("'")[1] if "'" in title else title
        cast = f'; cast them first, as in df.with_columns(pl.col("{column}").cast(pl.Int64))'
        _note(wrong, "text, not numbers", values, title, faults, cast)
    else:
        # Numbers among words are wrong, too, but a word that is neither says more.
        _note(odd if odd.any() else wrong, "neither yes nor no", values, title, faults, _WORDS)
    return np.asarray(yes, dtype=np.bool_)


def check_ranks(
    values: pl.Series, title: str, faults: Faults, if_broken: str = ""
) -> tuple[NDArray[np.floating | np.integer], Bools]:
    """Read ranks, and say which of them can be used: the whole numbers from 0 on.

    `if_broken` is what to do about others than whole numbers.
    """
    if is_plain(values, LARGEST_RANK):
        return values.to_numpy(), np.ones(len(values), np.bool_)
    faults.add_missing(title, _missing(values))
    numbers, known = _numbers(values)
    broken = (np.floor(numbers) != numbers) | ~np.isfinite(numbers)
    negative = numbers < 0
    large = numbers > LARGEST_RANK
    _note(broken & known, "not whole numbers", values, title, faults, if_broken)
    _note(negative & known & ~broken, "negative", values, title, faults)
    _note(large & known & ~broken, f"larger than {LARGEST_RANK}", values, title, faults)
    if not ((broken | negative | large) & known).any():
        _note_text(values, known, title, faults)
    return numbers, known & ~broken & ~negative & ~large


def check_weights(values: pl.Series, title: str, faults: Faults) -> Floats:
    """Read weights, and note those that are negative or not finite."""
    # In a weight, "not a number" is the outcome of some division, not a value left out.
    faults.add_missing(title, values.is_null())
    numbers, _ = _numbers(values)
    known = ~values.is_null().to_numpy()
    # What is both, minus infinity, is told once.
    negative = (numbers < 0) & known
    broken = ~np.isfinite(numbers) & known & ~negative
    large = (numbers > MOST_WEIGHT) & ~broken
    _note(negative, "negative", values, title, faults)
    _note(broken, "not finite numbers", values, title, faults)
    _note(large, f"larger than {MOST_WEIGHT:.0f}", values, title, faults, _SMALLER)
    if not (negative | broken | large).any():
        _note_text(values, known, title, faults)
    return numbers


def check_total(weight: float, title: str, faults: Faults) -> None:
    """Refuse weights that add up to more than can be counted."""
    if not weight <= MOST_WEIGHT:
        faults.add(f"{title}: all add up to {weight:g}, more than {MOST_WEIGHT:.0f}{_SMALLER}")
        faults.raise_if_any()


def is_plain(values: pl.Series, high: int) -> bool:
    """Whether a column has nothing but integers from 0 to `high`: then nothing is at fault."""
    if not values.dtype.is_integer() or values.dtype in WIDE or values.null_count():
        return False
    # A series by itself would not be compared with what its type cannot hold.
    return bool(values.to_frame().select(pl.first().is_between(0, high).all()).item())


def _missing(values: pl.Series) -> pl.Series:
    missing = values.is_null()
    return missing | values.is_nan().fill_null(True) if values.dtype.is_float() else missing


def _numbers(values: pl.Series) -> tuple[Floats, Bools]:
    """Return the values as floats (NaN for all that is no number), and which are not missing."""
    known = (~_missing(values)).to_numpy().astype(np.bool_)
    if isinstance(values.dtype, _TEXT):
        # One odd value makes all of a column of a CSV file text; only that one should be told.
        read = values.cast(pl.String).cast(pl.Float64, strict=False)
        floats = read.fill_null(float("nan")).to_numpy()
    elif values.dtype.is_numeric():
        floats = values.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    else:
        floats = np.full(len(values), np.nan)
    return floats, known


def _note_text(values: pl.Series, known: Bools, title: str, faults: Faults) -> None:
    """Note numbers that are written as text."""
    if isinstance(values.dtype, _TEXT):
        _note(known, "text, not numbers", values, title, faults)


def _note(
    wrong: Bools, what: str, values: pl.Series, title: str, faults: Faults, advice: str = ""
) -> None:
    count = int(wrong.sum())
    if not count:
        return
    first = int(np.argmax(wrong))
    if count == 1:
        what = what.replace("numbers", "number").replace("not ", "not a ", 1)
    kind = "" if values.dtype.is_numeric() else f" (the column holds {values.dtype})"
    faults.add(
        f"{title}: {counted_are(count, 'value')} {what}{kind}, "
        f"first: {faults.row(first)} has {values[first]!r}{advice}"
    )
