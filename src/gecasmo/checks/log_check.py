"""`check`: look a log over, alone or with a model in mind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.checks.counts import are_counts, check_alone, check_counts
from gecasmo.checks.findings import Findings, LogCheck, row_text, session_text
from gecasmo.checks.flat import check_flatness
from gecasmo.checks.graph import check_tangle
from gecasmo.checks.identified import check_identified, find_tangles, look
from gecasmo.checks.information import check_randomising, inform
from gecasmo.checks.pages import check_clicks, check_notes, check_pages
from gecasmo.checks.subject import (
    LONGEST,
    QUICK_PAGES,
    CheckedModel,
    as_model,
    begin,
    choose_pages,
    expect,
    predict,
    quick_states,
)
from gecasmo.checks.traffic import check_cells, check_traffic
from gecasmo.compiler.symmetry import mixing_coins
from gecasmo.encoding import EncodedLog
from gecasmo.encoding.columns import history
from gecasmo.encoding.observations import (
    observe,
    observed_columns,
    symbols_of,
    unrecorded_signals,
)
from gecasmo.errors import GecasmoError, ModelError, either
from gecasmo.estimation.em import DEFAULT_RESTARTS
from gecasmo.forms import FormState
from gecasmo.logs import ClickLog
from gecasmo.model import Model
from gecasmo.model.click_model import without_numbers
from gecasmo.model.log_parts import Partitioned, in_memory, is_stored, some_partitions
from gecasmo.model.page_run import find_impossible
from gecasmo.model.stories import shown_pages
from gecasmo.report import counted, listed, percent

Bools = NDArray[np.bool_]
Tell = Callable[[str], None]
# Of a stored log about so many pages are looked at.
STORED_PAGES = 200_000


def check(
    log: Any,
    model: Any = None,
    *,
    few: int = 10,
    top: int = 5,
    randomise: float = 0.01,
    seed: int = 0,
    tell: Tell | None = None,
) -> LogCheck:
    """Say what is wrong with a log and, for a model, what it can and cannot be asked.

    Parameters
    ----------
    log : ClickLog or StoredLog
        From `read_log` or `open_log`. Of a large stored log, all pages of some queries are looked
        at, and the first finding says so.
    model : str, class or model, optional
        A name of the zoo, a model class, or a model with forms of its own, fitted or not. One that
        is not fitted gets a quick fit on a part of the log, and stays as it is.
    few : int
        Rows with fewer (expected) trials than this have little data.
    top : int
        How many examples to give.
    randomise : float
        The share of pages that might be shown in random order, to see what that would buy.
    seed : int
        Seed of random samples.
    tell : callable, optional
        Is told what is being done, in a few words.

    Returns
    -------
    LogCheck
        Prints as text; also has `findings`, `tables`, `worst` and `to_dict()`.

    Examples
    --------
    >>> import gecasmo
    >>> from gecasmo.checks import check
    >>> log = gecasmo.read_log({"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2],
    ...                         "click": [0, 0]})
    >>> check(log).worst
    'error'
    """
    for name, number in (("few", few), ("top", top)):
        if not isinstance(number, (int, np.integer)) or number < 1:
            raise ModelError(f"{name}={number!r}: a whole number of at least one is needed.")
    if not 0 < randomise < 1:
        raise ModelError(f"randomise={randomise!r}: a share between 0 and 1 is wanted.")
    say = tell or (lambda words: None)
    chosen = None if model is None else as_model(model)
    parts = []
    if is_stored(log):
        chosen, log, part = _sampled(chosen, log, seed)
        parts.append(part)
    log = in_memory(log)
    say("looking at pages and clicks")
    parts.append(check_notes(log, top))
    if are_counts(log) and log.n_results:
        parts.append(check_counts(log, few))
    else:
        parts += [check_pages(log, top), check_clicks(log, top)]
        say("counting pairs and repeats")
        parts.append(check_traffic(log, few, top))
    if chosen is not None:
        parts.append(check_alone(chosen, log))
    if chosen is not None and log.n_results and log.weight.sum() > 0:
        parts += _check_model(chosen, log, few, top, randomise, seed, say)
    return LogCheck.of(parts, None if chosen is None else chosen.name)


def _sampled(
    model: Model | None, log: Partitioned, seed: int
) -> tuple[Model | None, ClickLog, Findings]:
    """Some queries of a stored log, with all their pages, and a remark that says so."""
    view = model if model is not None and model.is_fitted else None
    view, pages = some_partitions(view, log, STORED_PAGES, seed)
    # What is counted here are pages as they were shown.
    pages = shown_pages(pages, 5 * STORED_PAGES)
    part = Findings()
    n_pages = int(getattr(log, "n_sessions", pages.n_sessions))
    if pages.n_sessions < n_pages:
        part.add(
            "info",
            "sample",
            f"Of {counted(n_pages, 'stored page')}, {pages.n_sessions:,} were looked at: all pages "
            "of some queries, as good as drawn at random. Numbers below are of these.",
        )
    return view or model, pages, part


def _check_model(
    model: Model, log: ClickLog, few: int, top: int, randomise: float, seed: int, say: Tell
) -> list[Findings]:
    part = Findings()
    say(f"looking for pages that {model.name} rules out")
    try:
        log = model.viewed(log)
        encoded = model.encode(log, "e_step")
        states = model.states() if model.is_fitted else begin(model, encoded.rows)
        impossible, possible = check_impossible(model, log, encoded, states, top)
    except GecasmoError as error:
        first, *more = str(error).split("\n")
        part.add(
            "error",
            "model",
            f"{model.name} cannot be used on this log: {first}",
            advice=" ".join(line.strip() for line in more),
        )
        return [part]
    parts = [part, impossible]
    numbers = model.traced_automaton.observed_columns()
    if numbers:
        part.add(
            "info",
            "model",
            f"{model.name} also sees users through {listed(numbers)}, which is left out of what "
            "follows: less is open than is said here of clicks alone.",
        )
        model = without_numbers(model)
        encoded = model.encode(log, "e_step")
        states = {coin: states[coin] for coin in model.forms}
    rest = log if possible.all() else log.take(possible)
    if not rest.n_results or not rest.weight.sum() > 0:
        return parts
    if not model.is_fitted:
        say(f"a quick fit of {model.name}")
        states = quick_states(model, rest, seed) or states
        n_pages = min(QUICK_PAGES, rest.n_sessions)
        part.facts["quick_fit_pages"] = n_pages
        part.add(
            "info",
            "model",
            f"{model.name} is not fitted: expected flips and standard errors below are those of a "
            f"quick fit on {counted(n_pages, 'page')}.",
        )
    if model.is_exchangeable:
        part.add(
            "warning",
            "local optima",
            f"Parts of {model.name} can be exchanged for each other, as the components of a "
            "mixture can: its likelihood has several optima, and which part is called what means "
            "nothing.",
            advice=f"Fits start {DEFAULT_RESTARTS} times at random and keep the best; compare fits "
            "with other seeds, EM(seed=...), before you believe one.",
        )
    elif mixing := mixing_coins(model.automaton):
        part.add(
            "info",
            "local optima",
            f"{model.name} mixes kinds of pages, which {listed(mixing)} "
            f"{'decides' if len(mixing) == 1 else 'decide'} before the first result: its "
            "likelihood may have several optima.",
            advice="A fit starts once, where forms begin; "
            + either("EM(restarts=5)", "in Python, EM(restarts=5)")
            + " looks elsewhere, too, and keeps the best.",
        )
    subject = CheckedModel(model, rest, states, model.is_fitted)
    if rest is log:
        subject.encoded = encoded
    parts.append(check_cells(subject, few, top))
    try:
        parts += _look_closer(subject, randomise, seed, top, say)
    except GecasmoError as error:
        part.add("info", "model", f"A closer look at {model.name} was not possible: {error}")
    return parts


def _look_closer(
    subject: CheckedModel, randomise: float, seed: int, top: int, say: Tell
) -> Iterator[Findings]:
    """What takes the scores of single results, and so looks at a sample of pages."""
    model = subject.model
    n_rows = [len(rows) for rows in subject.encoded.rows]
    say("choosing pages for a closer look")
    sample = choose_pages(model, subject.log)
    if sample is None:
        part = Findings()
        part.add(
            "info",
            "identified",
            f"All pages have more than {LONGEST} results, too many to "
            "find out what can be told apart.",
        )
        yield part
        return
    say("telling parameters apart")
    tangles = find_tangles(model, sample.log, seed)
    looked = look(model, sample.log, seed)
    for tangle in tangles:
        yield check_tangle(subject, tangle, looked, top)
    yield check_identified(model, sample, looked, tangles, n_rows)
    say("looking for flat directions")
    known = inform(subject, sample, tangles, n_rows, seed)
    if known is not None:
        yield check_flatness(subject, known, tangles, top)
        say("shuffling pages")
        yield check_randomising(subject, sample, known, randomise, top)


def check_impossible(
    model: Model, log: ClickLog, encoded: EncodedLog, states: dict[str, FormState], top: int
) -> tuple[Findings, Bools]:
    """What was found, and which sessions are possible."""
    part = Findings()
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
    observed = observed_columns(log, structure.traced)
    structure = structure.of_log(unrecorded_signals(log, structure.traced), observed)
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
