"""Which sessions make the test part."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs.pages import number_by_first_appearance


class HasSessionColumns(Protocol):
    """What splitting needs of a log."""

    @property
    def n_sessions(self) -> int:
        """Number of sessions."""

    def session_column(self, name: str) -> pl.Series:
        """Return one value a session."""


def in_test_part(
    log: HasSessionColumns, *, test: float, by: str, seed: int, time: str | None
) -> NDArray[np.bool_]:
    """Say which sessions go to the test part; `ClickLog.split` explains the arguments.

    Returns
    -------
    ndarray of bool

    Raises
    ------
    ClickLogError
        When there is no such split.
    """
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
