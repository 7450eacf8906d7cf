"""The two parts of a comparison: sessions to learn from, and others to be judged by."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog
from gecasmo.logs.pages import number_by_first_appearance
from gecasmo.model.streaming import is_stored
from gecasmo.report import counted, percent

FEW_CLUSTERS = 20


def train_and_test(
    log: ClickLog,
    heldout: ClickLog | None,
    *,
    test: float,
    by: str,
    seed: int,
    time: str | None,
    notes: list[str],
) -> tuple[ClickLog, ClickLog, str]:
    """Both parts, and how they came about in words."""
    for name, given in (("log", log), ("heldout", heldout)):
        if is_stored(given):
            raise ClickLogError(
                f"compare({name}=...) works in memory. Give it some partitions of the stored log, "
                "such as log.partition(0), which has all pages of some queries; or fit and "
                "evaluate each model on stored logs."
            )
        if given is not None and not isinstance(given, ClickLog):
            raise ClickLogError(
                f"compare({name}=...) takes a ClickLog, not {type(given).__name__}: "
                "read_log(source) makes one."
            )
    if heldout is not None:
        if time is not None or by != "session":
            raise ClickLogError(
                "compare(heldout=...): a held-out log is the test part as it is; leave out by= "
                "and time=."
            )
        _check_heldout(log, heldout, notes)
        return log, heldout, "tested on a log of its own"
    try:
        train, tested = log.split(test=test, by=by, seed=seed, time=time)
    except ClickLogError as problem:
        words = str(problem)
        if words.startswith("split("):
            raise ClickLogError(f"compare({words.removeprefix('split(')}") from problem
        flag = f"by={by!r}" if time is None else f"time={time!r}"
        raise ClickLogError(f"compare({flag}): {words}") from problem
    how = f"split by {by}, seed {seed}" if time is None else f"trained on the past by {time!r}"
    return train, tested, how


def _check_heldout(log: ClickLog, heldout: ClickLog, notes: list[str]) -> None:
    if log.has_query and not heldout.has_query:
        raise ClickLogError("compare(heldout=...): the held-out log has no column 'query'.")
    both = set(log.sessions.to_list()) & set(heldout.sessions.to_list())
    if both:
        notes.append(
            f"{counted(len(both), 'session id occurs', 'session ids occur')} in both logs: if "
            "these are the same sessions, the "
            "scores are too good."
        )


def require_something(log: ClickLog) -> None:
    """Refuse a mean over nothing."""
    if not log.n_results or not log.weight[log.page].sum() > 0:
        raise ClickLogError(
            "There is nothing to compare models on: the test part has no results, or all its "
            "pages weigh 0."
        )


def groups(
    log: ClickLog, over: str, has_bootstrap: bool, notes: list[str]
) -> tuple[NDArray[np.int64], str]:
    """The bootstrap's group of each session, and what it is a group by."""
    told: list[str] = []
    if over == "query" and not log.has_query:
        told.append("The log has no queries, so intervals are over sessions.")
        over = "session"
    try:
        values = log.session_column(over)
    except ClickLogError as problem:
        raise ClickLogError(f"compare(over={over!r}): {problem}") from problem
    number = number_by_first_appearance(values)[0].astype(np.int64)
    n_groups = len(np.unique(number[log.weight > 0]))
    n_sessions = int((log.weight > 0).sum())
    if n_groups < 2 and over != "session" and n_sessions > 1:
        told.append(
            f"The test part has one {over} only, so intervals are over sessions: they say nothing "
            f"about another {over}."
        )
        number, over, n_groups = np.arange(log.n_sessions), "session", n_sessions
    if n_groups < 2:
        told.append("The test part has one session only, so there are no intervals.")
    elif n_groups < FEW_CLUSTERS:
        told.append(
            f"The intervals rest on {n_groups} groups (by {over}) only: too few to trust their "
            "width."
        )
    if has_bootstrap:
        notes += told
    return number, over


def comparable(test: ClickLog, train: ClickLog, names: list[str]) -> tuple[pl.DataFrame, ...]:
    """The id columns of both parts, in types that can be matched; test first."""
    columns: tuple[list[pl.Series], list[pl.Series]] = ([], [])
    for name in names:
        here, there = (_plain(part.column(name)) for part in (test, train))
        if here.dtype != there.dtype:
            if not (here.dtype.is_integer() and there.dtype.is_integer()):
                raise ClickLogError(
                    f"compare(heldout=...): the column {name!r} is {here.dtype} there and "
                    f"{there.dtype} in the log; make them alike."
                )
            here, there = here.cast(pl.Int64), there.cast(pl.Int64)
        columns[0].append(here)
        columns[1].append(there)
    return pl.DataFrame(columns[0]), pl.DataFrame(columns[1])


def _plain(ids: pl.Series) -> pl.Series:
    return ids.cast(pl.String) if isinstance(ids.dtype, pl.Categorical | pl.Enum) else ids


def tell_unseen(train: ClickLog, test: ClickLog, notes: list[str]) -> None:
    """Note which share of the test results shows what was never shown in training."""
    weight = test.weight[test.page]
    total = float(weight.sum())
    for names, what in ((["doc"], "documents"), (["query", "doc"], "pairs of query and document")):
        if not all(name in part.columns for name in names for part in (train, test)):
            continue
        here, there = comparable(test, train, names)
        seen = here.join(
            there.unique().with_columns(is_seen=True), on=names, how="left", maintain_order="left"
        )["is_seen"].fill_null(False)
        part = float(weight[~seen.to_numpy()].sum()) / total
        if part > 0:
            told = percent(part, decimals=1, in_words=True)
            notes.append(
                f"{told[0].upper()}{told[1:]} of the test results show {what} that were never in "
                "training: for these a model can only answer from its prior."
            )
