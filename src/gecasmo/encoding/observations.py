"""What each result shows, as the small numbers of a machine."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler.automaton import LAST_RESULT, RECORDED, Automaton, Guard
from gecasmo.compiler.hide import UNRECORDED, UNRECORDED_ON_PAGE
from gecasmo.encoding.features import is_missing
from gecasmo.errors import ClickLogError
from gecasmo.kernels.library import observation_dtype
from gecasmo.kernels.machine import IMPOSSIBLE, MISSING, Machine
from gecasmo.logs import ClickLog
from gecasmo.logs.arrays import look_up, narrowest
from gecasmo.report import counted

# A signal that every log has, made from its clicks: whether a result is the last one clicked on
# its page. It tells of clicks below, so fits may use it and predictions may not.
LAST_CLICK = "is_last_click"


def unrecorded_signals(log: ClickLog, automaton: Automaton) -> tuple[str, ...]:
    """The signals of a model that the log has not recorded at some results: they are null there."""
    named = (name for name in automaton.signals if name != "click" and name in log.columns)
    return tuple(name for name in named if log.column(name).null_count())


def observed_columns(log: ClickLog, automaton: Automaton) -> tuple[str, ...]:
    """The columns through which users are seen that have a number somewhere in the log."""
    named = (name for name in automaton.observed_columns() if name in log.columns)
    return tuple(name for name in named if not is_missing(log.column(name)).all())


def check_observed(log: ClickLog, automaton: Automaton) -> None:
    """Refuse numbers at results that show nothing with which users are seen through them."""
    for column in automaton.observed_columns():
        guard = Guard(RECORDED + column, True)
        telling = [edge.symbol for edge in automaton.edges if guard in edge.guards]
        if not telling:
            continue  # there are none
        bits = {name: 1 << number for number, name in enumerate(automaton.signals)}
        allowed = {sum(bits[name] for name in symbol) for symbol in telling}
        recorded = boolean_column(log, guard.column, "observes")
        odd = recorded & ~np.isin(symbols_of(log, automaton), list(allowed))
        if odd.any():
            row = int(np.argmax(odd))
            shown = sorted({" and ".join(symbol) or "nothing" for symbol in telling})
            raise ClickLogError(
                f"The model observes '{column}' only at results that show {' or '.join(shown)}, "
                f"but {counted(int(odd.sum()), 'other result has', 'other results have')} a value "
                f"(first: row {row} has {log.column(column)[row]}). It is to be null there."
            )


def boolean_column(log: ClickLog, name: str, why: str) -> NDArray[np.bool_]:
    """A yes/no column of the log, or a clear refusal; a signal that is not recorded is a no."""
    if name == "click":
        return log.click
    if name == LAST_CLICK:
        return _is_last_click(log)
    if name == LAST_RESULT:
        return _is_last_result(log)
    if name.startswith(UNRECORDED):
        return log.column(name.removeprefix(UNRECORDED)).is_null().to_numpy()
    if name.startswith(UNRECORDED_ON_PAGE):
        column = log.column(name.removeprefix(UNRECORDED_ON_PAGE))
        return ~on_page(log, column.is_not_null().to_numpy())
    if name.startswith(RECORDED):
        return ~is_missing(log.column(name.removeprefix(RECORDED)))
    if name not in log.columns:
        raise ClickLogError(
            f"The model {why} '{name}', and the log has no such column.\n"
            f"  It has: {', '.join(log.columns)}."
        )
    column = log.column(name)
    if why == "emits" and column.null_count():
        column = column.fill_null(False) if column.dtype == pl.Boolean else column.fill_null(0)
    if column.dtype == pl.Null:
        return np.zeros(len(column), np.bool_)
    if column.null_count():
        raise ClickLogError(
            f"The model {why} '{name}', but {column.null_count():,} of {len(column):,} results "
            "have no value there."
        )
    if column.dtype == pl.Boolean:
        return column.to_numpy().astype(bool)
    if column.dtype.is_numeric():
        values = column.to_numpy()
        wrong = (values != 0) & (values != 1)
        if not wrong.any():
            return values.astype(bool)
        row = int(np.argmax(wrong))
        raise ClickLogError(
            f"The model {why} '{name}' as yes or no, but "
            f"{counted(int(wrong.sum()), 'value is', 'values are')} neither 0 nor 1 "
            f"(first: row {row} has {values[row]})."
        )
    raise ClickLogError(
        f"The model {why} '{name}' as yes or no, but the column holds {column.dtype}."
    )


def on_page(log: ClickLog, values: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether it is true of some result of the page, at all of its results."""
    return np.bincount(log.page, weights=values, minlength=log.n_sessions)[log.page] > 0


def _is_last_result(log: ClickLog) -> NDArray[np.bool_]:
    is_last = np.zeros(log.n_results, bool)
    is_last[log.order[log.starts[1:][log.lengths > 0] - 1]] = True
    return is_last


def signal_column(log: ClickLog, automaton: Automaton, signal: str) -> NDArray[np.bool_]:
    """Where a signal is shown. One of the page is shown by its last result, wherever the log has
    it: a page has it if one of its rows says so."""
    column = boolean_column(log, signal, "emits")
    if signal in automaton.page_signals:
        column = on_page(log, column) & _is_last_result(log)
    return column


def _is_last_click(log: ClickLog) -> NDArray[np.bool_]:
    """True at the last click of each page."""
    click = log.click[log.order]
    total = np.concatenate([[0], np.cumsum(click)])
    clicks_so_far = total[1:] - np.repeat(total[log.starts[:-1]], log.lengths)
    clicks_in_all = np.repeat(total[log.starts[1:]] - total[log.starts[:-1]], log.lengths)
    is_last = np.empty(log.n_results, bool)
    is_last[log.order] = click & (clicks_so_far == clicks_in_all)
    return is_last


def classes_of(log: ClickLog, machine: Machine) -> NDArray[np.int64]:
    """The class of guards that each result falls into, in the order of the log's rows."""
    result = np.zeros(log.n_results, np.int64)
    if machine.n_classes == 1:
        return result
    position = _positions(log)
    columns: dict[str, NDArray[np.bool_]] = {}
    for guards, number in zip(machine.cases, machine.case_classes, strict=True):
        inside = np.ones(log.n_results, bool)
        for guard in guards:
            if isinstance(guard, Guard):
                if guard.column not in columns:
                    columns[guard.column] = boolean_column(log, guard.column, "asks for")
                inside &= columns[guard.column] == guard.value
            else:
                inside &= position == guard.position
        result[inside] = number
    return result


def symbols_of(log: ClickLog, automaton: Automaton) -> NDArray[np.unsignedinteger]:
    """The signals of each result as a bit mask, in the order of the automaton's signals."""
    type_ = narrowest(1 << len(automaton.signals))
    columns = (signal_column(log, automaton, signal) for signal in automaton.signals)
    mask: NDArray[np.unsignedinteger] = np.zeros(log.n_results, type_)
    for number, column in enumerate(columns):
        bits = column.view(np.uint8).astype(type_, copy=False)
        mask = mask | (bits << type_(number)) if number else bits
    return mask


def observe(
    log: ClickLog,
    automaton: Automaton,
    machine: Machine,
    missing: NDArray[np.bool_] | None = None,
) -> NDArray[np.unsignedinteger]:
    """The observation number of each result, in the order of the log's rows.

    `missing` marks results whose signals are not to be looked at.
    """
    table = np.zeros((machine.n_classes, 1 << len(automaton.signals)), np.int64)
    bits = {name: 1 << number for number, name in enumerate(automaton.signals)}
    unseen = np.zeros(machine.n_classes, np.int64)
    for number, (case, symbol) in enumerate(machine.observations):
        if symbol == IMPOSSIBLE:
            table[case][table[case] == 0] = number
    for number, (case, symbol) in enumerate(machine.observations):
        if symbol == MISSING:
            unseen[case] = number
        elif symbol != IMPOSSIBLE:
            table[case, sum(bits[name] for name in symbol)] = number
    if machine.n_classes == 1 and missing is None and table.max() < 2**8:
        # One kind of result: what it shows is all that counts.
        narrow = table[0].astype(np.uint8)
        mask = symbols_of(log, automaton)
        is_same = np.array_equal(narrow, np.arange(len(narrow)))
        numbers = mask if is_same else look_up(narrow, mask)
        return numbers.astype(observation_dtype(machine), copy=False)
    classes = classes_of(log, machine)
    numbers = table[classes, symbols_of(log, automaton)]
    if missing is not None:
        unread = np.array(machine.unread, np.int64)
        numbers = np.where(missing, unseen[unread[classes]], numbers)
    return numbers.astype(observation_dtype(machine))


def check_lengths(log: ClickLog, automaton: Automaton) -> None:
    """A model defined for pages of T results cannot say anything of longer ones."""
    longest = int(log.lengths.max(initial=0))
    if automaton.page_length is not None and longest > automaton.page_length:
        which = log.sessions[int(np.argmax(log.lengths))]
        raise ClickLogError(
            f"The model is defined for pages of at most {automaton.page_length} results, but "
            f"session {which!r} has {longest}."
        )


def _positions(log: ClickLog) -> NDArray[np.int64]:
    """The place of each result in its page, from 1, in the order of the log's rows."""
    positions = np.empty(log.n_results, np.int64)
    first = np.repeat(log.starts[:-1], log.lengths)
    positions[log.order] = np.arange(log.n_results) - first + 1
    return positions
