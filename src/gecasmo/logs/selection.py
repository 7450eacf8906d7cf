"""Choices from a log: sessions picked, sessions for a test part, and signals put into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs.pages import number_by_first_appearance

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

FIXED = ("session", "query", "doc", "rank", "weight")


def as_mask(chosen: ArrayLike, n_sessions: int) -> NDArray[np.bool_]:
    """Turn a choice of sessions, by booleans or indices, into a boolean for each session."""
    array = np.asarray(chosen)
    if array.dtype == np.bool_:
        if array.shape != (n_sessions,):
            raise ClickLogError(
                f"take: the mask has shape {array.shape}, but there are {n_sessions} sessions."
            )
        return array
    mask = np.zeros(n_sessions, np.bool_)
    if array.size == 0:
        return mask
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ClickLogError(
            f"take needs a boolean for each session or indices of sessions, not {array.dtype}."
        )
    beyond = (array < 0) | (array >= n_sessions)
    if beyond.any():
        raise ClickLogError(
            f"take: there is no session with index {array[beyond][0]}; "
            f"the log has {n_sessions} sessions, numbered from 0."
        )
    mask[array] = True
    if int(mask.sum()) < len(array):
        twice = int(np.argmax(np.bincount(array) > 1))
        raise ClickLogError(
            f"take: session {twice} is asked for more than once; a log has each session once."
        )
    return mask


def as_signal(name: str, values: ArrayLike, n_results: int) -> pl.Series:
    """Turn a signal, with a boolean (or 0 or 1) for each result, into a column."""
    if name in FIXED:
        raise ClickLogError(f"with_signals cannot replace {name!r}; pages keep their results.")
    array = np.asarray(values)
    if array.shape != (n_results,):
        raise ClickLogError(
            f"with_signals: {name!r} has shape {array.shape}, but there are {n_results} results."
        )
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise ClickLogError(f"with_signals: {name!r} has values that are neither 0 nor 1.")
    return pl.Series(name, array.astype(np.bool_), dtype=pl.Boolean)


def in_test_part(
    log: ClickLog, *, test: float, by: str, seed: int, time: str | None
) -> NDArray[np.bool_]:
    """Say which sessions go to the test part; `ClickLog.split` explains the arguments."""
    if not 0 < test < 1:
        raise ClickLogError(f"split(test={test!r}): the share should be between 0 and 1.")
    if time is None:
        return _random_groups(log.session_column(by), test, by, seed)
    if by != "session":
        raise ClickLogError(f"split(by={by!r}, time={time!r}): split by a column or by time.")
    return _latest(log.session_column(time), test, time)


def _random_groups(groups: pl.Series, test: float, by: str, seed: int) -> NDArray[np.bool_]:
    if isinstance(groups.dtype, pl.Categorical | pl.Enum):
        # Enums sort in an order of their own; the same names should give the same split.
        groups = groups.cast(pl.String)
    number, firsts = number_by_first_appearance(groups)
    n_groups = len(firsts)
    if n_groups < 2:
        raise ClickLogError(
            f"split(by={by!r}): needs at least two different values, and the log has {n_groups}."
        )
    # Draw positions among the sorted values, so that the order of the rows plays no part.
    by_value = groups.gather(firsts).arg_sort().to_numpy()
    drawn = np.random.default_rng(seed).permutation(n_groups)[: _share(test, n_groups)]
    group_in_test = np.zeros(n_groups, np.bool_)
    group_in_test[by_value[drawn]] = True
    return group_in_test[number]


def _latest(times: pl.Series, test: float, name: str) -> NDArray[np.bool_]:
    missing = times.is_null()
    if times.dtype.is_float():
        missing = missing | times.is_nan()
    if missing.any():
        raise ClickLogError(
            f"split(time={name!r}): {int(missing.sum())} of {len(times)} sessions have no time."
        )
    if len(times) < 2:
        raise ClickLogError(f"split(time={name!r}): needs at least two sessions.")
    last_in_training = times.sort()[len(times) - _share(test, len(times)) - 1]
    in_test: NDArray[np.bool_] = np.asarray((times > last_in_training).to_numpy(), np.bool_)
    if not in_test.any():
        raise ClickLogError(
            f"split(time={name!r}): no session is later than the training part, because the "
            f"latest sessions all have the time {last_in_training!r}; try a larger test."
        )
    return in_test


def _share(test: float, count: int) -> int:
    return min(max(round(test * count), 1), count - 1)
