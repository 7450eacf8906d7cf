"""Checks of what is picked from a log or put into it."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gecasmo.errors import ClickLogError

FIXED = ("session", "query", "doc", "rank", "weight")


def as_mask(chosen: ArrayLike, n_sessions: int) -> NDArray[np.bool_]:
    """Turn a choice of sessions into a boolean for each session.

    Parameters
    ----------
    chosen
        A boolean for each session, or indices of sessions.
    n_sessions
        How many sessions there are.

    Returns
    -------
    ndarray of bool

    Raises
    ------
    ClickLogError
        When the choice does not fit.
    """
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
    """Turn a signal into a column.

    Parameters
    ----------
    name
        The name of the signal.
    values
        A boolean (or 0 or 1) for each result.
    n_results
        How many results there are.

    Returns
    -------
    pl.Series

    Raises
    ------
    ClickLogError
        When the signal does not fit.
    """
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
