"""Several logs as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from gecasmo.logs.clicklog import ClickLog


def joined(logs: Sequence[ClickLog]) -> ClickLog:
    """The pages of some logs with the same columns, one log after the other.

    Parameters
    ----------
    logs
        At least one; no session may be in two of them.

    Returns
    -------
    ClickLog
    """
    if len(logs) == 1:
        return logs[0]
    before = np.cumsum([0, *(log.n_sessions for log in logs)])
    page = np.concatenate(
        [log.page.astype(np.uint32) + np.uint32(n) for log, n in zip(logs, before, strict=False)]
    )
    columns = [log.to_frame().select(logs[0].columns) for log in logs]
    by_page = [log.page_columns for log in logs if log.page_columns is not None]
    everywhere = [n for n in logs[0].columns if all(n in frame.columns for frame in by_page)]
    return ClickLog(
        pl.concat(columns, how="vertical_relaxed", rechunk=True),
        page,
        pl.concat([log.sessions for log in logs]),
        np.concatenate([log.weight for log in logs]),
        pages=pl.concat([frame.select(everywhere) for frame in by_page])
        if len(by_page) == len(logs)
        else None,
        notes=logs[0].notes,
    )
