"""Merge a new log into a fitted model: what is known goes on as a prior of what is new.

Nothing here knows a model, and nothing a form: a form that can be updated has a `memory`
(forms/memory.py) that turns the past into a prior of the rows of the new log, and adds both up in
the end. docs/updates.md has the mathematics.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gecasmo.errors import ClickLogError, GecasmoWarning, ModelError, either, option, tell
from gecasmo.estimation import EM, Problem, Solution
from gecasmo.estimation.coins import States
from gecasmo.estimation.posteriors.learner import Posteriors
from gecasmo.estimation.posteriors.past import Leaning, LearnedPast, merged_leans
from gecasmo.estimation.posteriors.sample import SampledPages
from gecasmo.estimation.shared_errors import SharedErrors
from gecasmo.forms.memory import Memory
from gecasmo.kernels.threads import using_threads
from gecasmo.logs import ClickLog
from gecasmo.model.fit import FitReport, check_settings
from gecasmo.model.fit_pairs import merged_pairs, pairs_of_fit
from gecasmo.model.log_parts import as_log, whole_view
from gecasmo.model.part_builder import Builder, Settings
from gecasmo.model.solution import progress_bar, solve

if TYPE_CHECKING:
    from gecasmo.estimation import Method
    from gecasmo.model.base import Impossible, Model


def update_model(
    model: Model,
    log: ClickLog,
    decay: float,
    method: Method | None,
    threads: int | None,
    progress: bool | None,
    impossible: Impossible,
    intervals: bool = True,
) -> None:
    """Update `model` in place; it stays as it is if anything goes wrong."""
    log = as_log(log)
    method = _checked(model, log, decay, method, impossible, threads)
    began = time.perf_counter()
    memories = _memories(model, decay)
    twin = model.copy()
    twin.forms = {coin: memory.form for coin, memory in memories.items()}
    build = Builder(twin, log, Settings(method, None, impossible), threads)
    part = build.part()
    problem = Problem.of(part, twin.is_exchangeable)
    states = _begin(problem, memories)
    learned = _learned(problem, memories, build)
    for number, own in learned.items():
        states[number] = own.begun(states[number])
    problem.given_start = States(states)
    leanings = _leanings(problem, memories)
    pasts = {number: own.past for number, own in learned.items()}
    sample = SampledPages(part, is_all=True)
    posteriors = Posteriors(problem, sample, build.typical, pasts, leanings)
    with progress_bar(model.name, progress) as show, using_threads(threads):
        solution = solve(problem, method, show, posteriors, intervals)
    best = solution.best.states
    for leaning in leanings.values():
        leaning.memory.lean(leaning.shift(best))
    for number, own in learned.items():
        own.conclude(best[number], leanings[number].shift(best))
    _keep(model, memories, problem, solution, decay, build, posteriors.errors)
    model.pairs_ = merged_pairs(model.pairs_, pairs_of_fit(model, build.log), decay)
    assert model.report_ is not None
    model.report_.seconds = time.perf_counter() - began


def _fit_again(arguments: str = "log") -> str:
    return either(f"fit({arguments}, start=model)", "`gecasmo fit MODEL LOG --start FIT`")


def _checked(
    model: Model, log: Any, decay: Any, method: Any, impossible: Any, threads: int | None
) -> EM:
    method = EM() if method is None else method
    if not isinstance(method, EM):
        raise ModelError(
            f"update(method={method!r}): an update uses EM; for other methods fit again, "
            f"with {_fit_again('log, method')}."
        )
    is_number = isinstance(decay, (int, float, np.number)) and not isinstance(decay, bool)
    if not (is_number and 0 < decay <= 1):
        raise ModelError(
            f"{option('decay', decay)}: a number above 0 and at most 1 is wanted, the weight of "
            f"the past."
        )
    if not isinstance(log, ClickLog):
        raise ClickLogError(
            "update() takes a ClickLog, the pages of a day or so: gecasmo.read_log(source) makes "
            f"one. For a log that does not fit into memory, fit again: {_fit_again()}."
        )
    if log.n_results == 0:
        raise ClickLogError("There is nothing to learn: the log has no results.")
    check_settings(Settings(method, None, impossible), None, threads)
    model.states(whole=False)  # says so if there is none
    if model.report_ is None:
        raise ModelError(
            f"This {model.name} has probabilities but no log behind them, so nothing says how "
            f"much they should count against the new log: {_fit_again()} continues from them."
        )
    if model.report_.constraints:
        raise ModelError(
            f"This {model.name} was fitted under constraints, and an update would not keep them. "
            f"Fit again, on old and new pages: {_fit_again()}."
        )
    return replace(method, restarts=1)  # there is one place to start from


def _memories(model: Model, decay: float) -> dict[str, Memory]:
    """What each coin remembers; coins that share a form remember together."""
    model = whole_view(model)  # rows in files are read, and stay in memory
    assert model.report_ is not None
    memories: dict[str, Memory] = {}
    by_form: dict[int, Memory] = {}
    for coin, form in model.forms.items():
        again = f"Fit again instead, on old and new pages: {_fit_again()}."
        if form.columns and id(form) in by_form:
            memories[coin] = by_form[id(form)]
            continue
        try:
            memory = form.memory(model.states()[coin], model.report_.counts[coin], decay)
        except ModelError as error:
            raise ModelError(f"The coin '{coin}' cannot be updated: {error}. {again}") from None
        if memory is None:
            raise ModelError(
                f"The form {form!r} of '{coin}' cannot be updated: it does not say how much its "
                f"past is worth. {again}"
            )
        memories[coin] = by_form[id(form)] = memory
    return memories


def _begin(problem: Problem, memories: dict[str, Memory]) -> list[Any]:
    firsts = [problem.coins[tie[0]] for tie in problem.ties]
    return problem.spread([memories[coin.name].begin(coin.rows) for coin in firsts])


def _leanings(problem: Problem, memories: dict[str, Memory]) -> dict[int, Leaning]:
    """How the past of rows depends on global coins, by number of a coin."""
    tables = {
        number: (coin.name, memory)
        for number, coin in enumerate(problem.coins)
        if (memory := memories[coin.name].of_rows) is not None
    }
    return {number: Leaning.of(memory, tables) for number, (_, memory) in tables.items()}


def _learned(
    problem: Problem, memories: dict[str, Memory], build: Builder
) -> dict[int, LearnedPast]:
    """The past of learned priors, by number of a coin."""
    found = {}
    for number, coin in enumerate(problem.coins):
        memory = memories[coin.name].of_rows
        if memory is not None and memory.is_learned:
            found[number] = LearnedPast(memory, build.typical.get(coin.name, {}))
    return found


def _keep(
    model: Model,
    memories: dict[str, Memory],
    problem: Problem,
    solution: Solution,
    decay: float,
    build: Builder,
    errors: SharedErrors | None,
) -> None:
    before, best = model.report_, solution.best
    assert before is not None
    states: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    for tie in problem.ties:
        names = [problem.coins[number].name for number in tie]
        state, total = memories[names[0]].merged(best.states[tie[0]], problem.counts(tie, best))
        if memories[names[0]].of_rows is not None:
            state = replace(state, leans=merged_leans(names[0], memories, best.states[tie[0]]))
        for number, name in zip(tie, names, strict=True):
            states[name] = state
            # Coins that share a form have counts of their own, of the new rows.
            counts[name] = total if len(tie) == 1 else best.counts.tables[number]
        _tell(model, names, state, total)
    model.states_ = {coin: states[coin] for coin in model.forms}
    model.errors_ = errors and _of_all_rows(errors, memories)
    model.report_ = FitReport(
        history=solution.history,
        converged=solution.converged,
        interrupted=solution.interrupted,
        n_sessions=before.n_sessions + build.log.n_sessions,
        total_weight=decay * before.total_weight + problem.n_pages,
        n_dropped=before.n_dropped + build.n_dropped,
        n_floored=before.n_floored + build.n_floored,
        n_evaluations=solution.n_evaluations,
        objective=best.objective,
        log_likelihood=decay * before.log_likelihood + best.log_likelihood,
        counts={coin: counts[coin] for coin in model.forms},
    )


def _of_all_rows(errors: SharedErrors, memories: Mapping[str, Memory]) -> SharedErrors:
    """How errors go together, for old and new rows of global coins; of rows that the new log has
    not met nothing but their own is known."""
    tables = {coin: memories[coin].of_rows for coin in errors.numbers}
    places = {
        coin: (table.union.place, len(table.rows))
        for coin, table in tables.items()
        if table is not None
    }
    return errors.spread_over(places)


def _tell(model: Model, coins: list[str], state: Any, counts: Any) -> None:
    """What a user should know about a form."""
    tails, heads = counts
    for remark in model.forms[coins[0]].remarks(state, heads, tails):
        which = " and ".join(f"'{coin}'" for coin in coins)
        tell(f"The coin {which}: {remark}.", GecasmoWarning)
