"""Pages that the model says cannot happen: how many, why, and which."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.checkup.findings import Part, row_text, session_text
from gecasmo.checkup.subject import expect, predict
from gecasmo.encoding import EncodedLog
from gecasmo.encoding.columns import history
from gecasmo.encoding.observations import observe, symbols_of
from gecasmo.forms import FormState
from gecasmo.logs import ClickLog
from gecasmo.model import Model
from gecasmo.model.page_run import find_impossible
from gecasmo.report import counted, listed, percent

Bools = NDArray[np.bool_]


def check_impossible(
    model: Model, log: ClickLog, encoded: EncodedLog, states: dict[str, FormState], top: int
) -> tuple[Part, Bools]:
    """What was found, and which sessions are possible."""
    part = Part()
    possible = np.ones(log.n_sessions, bool)
    if expect(model, encoded, predict(model, states, encoded.rows)).n_impossible == 0:
        part.facts["impossible_pages"] = 0
        part.add("info", "impossible pages", f"No page is impossible under {model.name}.")
        return part, possible
    results, sessions = find_impossible(model, log, states, None)
    firsts = _first_of_each(log, results)
    reasons = _reasons(model, log, firsts)
    table = (
        pl.DataFrame({"reason": reasons, "rank": log.rank[firsts], "session": log.page[firsts]})
        .group_by("reason")
        .agg(
            pages=pl.len(),
            at_ranks=pl.col("rank").min().cast(pl.String)
            + pl.when(pl.col("rank").min() == pl.col("rank").max())
            .then(pl.lit(""))
            .otherwise(pl.lit(" to ") + pl.col("rank").max().cast(pl.String)),
            first=pl.col("session").min(),
        )
        .sort(["pages", "reason"], descending=[True, False])
    )
    n_pages = int(sessions.sum())
    first_session = log.sessions.gather(table["first"])
    part.tables["impossible"] = table.with_columns(
        share_of_all=pl.col("pages") / log.n_sessions,
        example=pl.Series([str(value) for value in first_session.to_list()]),
    ).drop("first")
    part.facts["impossible_pages"] = n_pages
    is_all, is_many = n_pages == log.n_sessions, n_pages > 0.05 * log.n_sessions
    part.add(
        "error" if is_all or is_many else "warning",
        "impossible pages",
        f"{counted(n_pages, 'page has', 'pages have')} probability 0 under {model.name} "
        f"({percent(n_pages, log.n_sessions)} of all): "
        + listed(f"{row['reason']} ({row['pages']:,})" for row in table.head(3).to_dicts())
        + (f", and {table.height - 3} other reasons" if table.height > 3 else "")
        + ".",
        count=n_pages,
        examples=[_example(model, log, states, row) for row in firsts[:top]],
        advice="fit, score and evaluate refuse such pages unless told impossible='drop' or "
        "'floor'. If there are many, the model does not describe these people: choose one that "
        "allows what they do.",
    )
    return part, ~sessions


def _first_of_each(log: ClickLog, results: Bools) -> NDArray[np.int64]:
    """The row of the first impossible result of each session that has one."""
    rows = log.order[results[log.order]]
    _, first = np.unique(log.page[rows], return_index=True)
    picked: NDArray[np.int64] = rows[first]
    return picked


def _reasons(model: Model, log: ClickLog, rows: NDArray[np.int64]) -> pl.Series:
    """Why each of these results is impossible, in words that group them."""
    automaton = model.counting_structure.traced
    masks = symbols_of(log, automaton)[rows]
    above, distance = (history(log, key)[rows] for key in ("clicks_above", "distance"))
    where = np.select(
        [_never_shown(model, log)[rows], above == 0, distance == 1],
        [", which the model never shows", " with no click above", " right below a click"],
        " further below a click",
    )
    words = {mask: _signal_words(automaton.signals, mask) for mask in np.unique(masks).tolist()}
    shown = np.array([words[mask] for mask in masks.tolist()], dtype=object)
    return pl.Series("reason", (shown + where).tolist())


def _signal_words(signals: tuple[str, ...], mask: int) -> str:
    there = [name for place, name in enumerate(signals) if mask >> place & 1]
    return f"a {' and '.join(there)}" if there else "no click"


def _never_shown(model: Model, log: ClickLog) -> Bools:
    """Which results show something that no edge shows, whatever came before."""
    structure = model.counting_structure
    machine = structure.machine("minimal")
    return observe(log, structure.traced, machine) >= machine.first_impossible


def _example(model: Model, log: ClickLog, states: dict[str, FormState], row: int) -> str:
    """The session, what it shows, and which coins there cannot fall otherwise."""
    session = int(log.page[row])
    one = log.take(np.array([session]))
    here = one.rank == log.rank[row]
    automaton = model.counting_structure.traced
    what = _signal_words(automaton.signals, int(symbols_of(one, automaton)[here][0]))
    last = int(history(one, "last_click")[here][0])
    after = f"after a click at rank {last}" if last else "with no click above"
    text = f"{session_text(log, session)}: {what} at rank {log.rank[row]} {after}"
    encoded = model.encode(one, "e_step", merge=False)
    certain = [
        f"{coin}{f' of {row_text(rows, number)}' if rows.keys else ''} is {values[number]:.0f}"
        for coin, rows, values in zip(
            model.forms, encoded.rows, predict(model, states, encoded.rows), strict=True
        )
        for number in np.flatnonzero((values == 0) | (values == 1))[:2]
    ]
    return text + (f" ({', '.join(certain[:3])})" if certain else "")
