"""`check`: look a log over, alone or with a model in mind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gecasmo.checkup.findings import Checkup, Part
from gecasmo.checkup.flat import check_flatness
from gecasmo.checkup.graph import check_tangle
from gecasmo.checkup.identified import check_identified, find_tangles, look
from gecasmo.checkup.impossible import check_impossible
from gecasmo.checkup.information import check_randomising, inform
from gecasmo.checkup.pages import check_clicks, check_notes, check_pages
from gecasmo.checkup.sample import LONGEST, choose_pages
from gecasmo.checkup.subject import QUICK_PAGES, Subject, as_model, begin, quick_states
from gecasmo.checkup.traffic import check_cells, check_traffic
from gecasmo.errors import GecasmoError, ModelError
from gecasmo.logs import ClickLog
from gecasmo.model import Model
from gecasmo.model.stories import shown_pages
from gecasmo.model.streaming import Partitioned, in_memory, is_stored, some_partitions
from gecasmo.report import counted

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
) -> Checkup:
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
    Checkup
        Prints as text; also has `findings`, `tables`, `worst` and `to_dict()`.

    Examples
    --------
    >>> import gecasmo
    >>> from gecasmo.checkup import check
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
    parts += [check_notes(log, top), check_pages(log, top), check_clicks(log, top)]
    say("counting pairs and repeats")
    parts.append(check_traffic(log, few, top))
    if chosen is not None and log.n_results and log.weight.sum() > 0:
        parts += _check_model(chosen, log, few, top, randomise, seed, say)
    return Checkup.of(parts, None if chosen is None else chosen.name)


def _sampled(
    model: Model | None, log: Partitioned, seed: int
) -> tuple[Model | None, ClickLog, Part]:
    """Some queries of a stored log, with all their pages, and a remark that says so."""
    view = model if model is not None and model.is_fitted else None
    view, pages = some_partitions(view, log, STORED_PAGES, seed)
    # What is counted here are pages as they were shown.
    pages = shown_pages(pages, 5 * STORED_PAGES)
    part = Part()
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
) -> list[Part]:
    part = Part()
    say(f"looking for pages that {model.name} rules out")
    try:
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
    subject = Subject(model, rest, states, model.is_fitted)
    if rest is log:
        subject.encoded = encoded
    parts.append(check_cells(subject, few, top))
    try:
        parts += _look_closer(subject, randomise, seed, top, say)
    except GecasmoError as error:
        part.add("info", "model", f"A closer look at {model.name} was not possible: {error}")
    return parts


def _look_closer(
    subject: Subject, randomise: float, seed: int, top: int, say: Tell
) -> Iterator[Part]:
    """What takes the scores of single results, and so looks at a sample of pages."""
    model = subject.model
    n_rows = [len(rows) for rows in subject.encoded.rows]
    say("choosing pages for a closer look")
    sample = choose_pages(model, subject.log)
    if sample is None:
        part = Part()
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
