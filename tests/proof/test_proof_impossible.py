"""Pages of probability zero: refused, left out, or counted as 1e-8."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given

from gecasmo import CM, DBN, EM, ClickModel, Parameter, flip, read_log
from gecasmo.errors import GecasmoWarning, ImpossibleSessionError
from gecasmo.estimation import Expectation
from gecasmo.estimation.coins import as_weights
from oracle.brute_force import filter_floored, floored_counts
from strategies.cases import Case, cases, make_plain
from strategies.checks import close_to, many
from strategies.trees import HISTORY, as_model

FLOOR = 1e-8


def without_history(case: Case) -> bool:
    """Whether no coin looks at clicks above: what was not looked at then leaves no trace."""
    return not any(key in HISTORY for keys in case.program.keys.values() for key in keys)


def impossible_sessions(case: Case) -> np.ndarray:
    bad = [case.oracles[i].likelihood(case.shown[i]) == 0 for i in case.session_of]
    return np.array(bad)


def floored_log(case: Case) -> np.ndarray:
    pages = [filter_floored(case.oracles[i], case.shown[i]) for i in case.session_of]
    return np.array([np.log([p or FLOOR for p in page.shown]).sum() for page in pages])


@many(40)
@given(cases(possible=False))
def test_raise_names_the_number_of_sessions(case: Case) -> None:
    bad = impossible_sessions(case)
    if not bad.any():
        assert np.isfinite(case.model.log_likelihood(case.log)).all()
        return
    for question in (
        case.model.log_likelihood,
        case.model.score,
        case.model.evaluate,
        case.model.predict_conditional_clicks,
    ):
        with pytest.raises(ImpossibleSessionError, match=f"^{bad.sum()} of {len(bad)} sessions"):
            question(case.log)


@many(40)
@given(cases(possible=False))
def test_drop_leaves_sessions_out(case: Case) -> None:
    bad = impossible_sessions(case)
    assume(bad.any() and not bad.all())
    wanted = np.array([case.oracles[i].likelihood(case.shown[i]) for i in case.session_of])[~bad]
    weights = case.log.weight[~bad]
    with pytest.warns(GecasmoWarning, match="left out"):
        found = case.model.log_likelihood(case.log, impossible="drop")
    close_to(found, np.log(wanted))
    with pytest.warns(GecasmoWarning, match="left out"):
        score = case.model.score(case.log, impossible="drop")
    close_to(score, np.average(np.log(wanted), weights=weights))
    with pytest.warns(GecasmoWarning, match="left out"):
        clicks = case.model.predict_conditional_clicks(case.log, impossible="drop")
    kept = {i for i, is_bad in zip(case.session_of, bad, strict=True) if not is_bad}
    conditional = [
        case.oracles[i].conditional_click(case.shown[i], place)
        for i, place in zip(case.table["session"], case.place_of, strict=True)
        if i in kept
    ]
    close_to(clicks, conditional)
    evaluation = case.model.evaluate(case.log, impossible="drop")
    assert evaluation.n_impossible == bad.sum()
    assert evaluation.n_sessions == (~bad).sum()
    close_to(evaluation.log_likelihood, score)


@many(40)
@given(cases(possible=False))
def test_floor_goes_on_as_if_nothing_had_been_seen(case: Case) -> None:
    assume(without_history(case))
    found = case.model.log_likelihood(case.log, impossible="floor")
    close_to(found, floored_log(case))
    close_to(
        case.model.score(case.log, impossible="floor"),
        np.average(floored_log(case), weights=case.log.weight),
    )
    clicks = case.model.predict_conditional_clicks(case.log, impossible="floor")
    for row, (i, place) in enumerate(zip(case.table["session"], case.place_of, strict=True)):
        close_to(clicks[row], filter_floored(case.oracles[i], case.shown[i]).click[place])
    evaluation = case.model.evaluate(case.log, impossible="floor")
    assert evaluation.n_impossible == impossible_sessions(case).sum()
    assert np.isfinite(list(evaluation.to_dict().values())).all()


def missing_counts(case: Case, augmentation: Any, kernel: str) -> dict[Any, Any]:
    """Expected counts where impossible observations are passed over."""
    model, table = case.model, case.table
    pages = [filter_floored(o, s) for o, s in zip(case.oracles, case.shown, strict=True)]
    missing = np.array(
        [pages[i].missing[t] for i, t in zip(table["session"], case.place_of, strict=True)]
    )
    encoded = model.encode(case.log, "e_step", augmentation, True, missing=missing)
    run = Expectation(
        encoded, model.library(encoded.plan, counting=True), augmentation, True, threads=1
    )
    if kernel == "e_step_scaled":
        run.is_small = False
    weights = [
        as_weights(np.asarray(form.predict(model.states()[coin], rows), dtype=np.float64))
        for (coin, form), rows in zip(model.forms.items(), encoded.rows, strict=True)
    ]
    counts = run.run(weights)
    assert counts.n_impossible == 0
    found = {}
    for number, (coin, rows) in enumerate(zip(model.forms, encoded.rows, strict=True)):
        for name, (tails, heads) in zip(
            rows.frame.rows() if rows.keys else [()], counts.tables[number].T, strict=True
        ):
            found[coin, name] = (heads, tails)
    seen = sum(
        w * np.log([p for p in page.shown if p > 0]).sum()
        for w, page in zip(case.weights, pages, strict=True)
    )
    close_to(counts.log_likelihood, seen)
    return found


@pytest.mark.parametrize("kernel", ["e_step", "e_step_scaled"])
@many(40)
@given(case=cases(possible=False))
def test_floored_results_are_missing_data(kernel: str, case: Case) -> None:
    """Their flips count only as far as they decide what comes after: the score is the same."""
    assume(without_history(case))
    wanted: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for weight, oracle, shown in zip(case.weights, case.oracles, case.shown, strict=True):
        for key, (heads, tails) in floored_counts(filter_floored(oracle, shown)).items():
            wanted[key][0] += weight * heads
            wanted[key][1] += weight * tails
    found = missing_counts(case, "full", kernel)
    least = missing_counts(case, "minimal", kernel)
    for key in found.keys() | wanted.keys():
        theta = case.values(*key)
        score = wanted[key][0] * (1 - theta) - wanted[key][1] * theta
        for counts in (found, least):
            heads, tails = counts.get(key, (0.0, 0.0))
            close_to(heads * (1 - theta) - tails * theta, score, 1e-9)


@many(25)
@given(cases(possible=False))
def test_fit_with_every_policy(case: Case) -> None:
    """Whatever is asked, a fit ends with finite numbers, and counts what it did."""
    model = make_plain(as_model(case.program)())
    method = EM(max_iter=3, tol=0, accelerate=False, restarts=1)
    try:
        model.fit(case.log, method, threads=1)
        n_bad = 0
    except ImpossibleSessionError as error:
        n_bad = int(str(error).split()[0])
        assert not model.is_fitted
    for policy in ("drop", "floor"):
        if policy == "drop" and n_bad == case.log.n_sessions:
            with pytest.raises(ImpossibleSessionError, match="nothing is left"):
                model.fit(case.log, method, threads=1, impossible=policy)
            continue
        model.fit(case.log, method, threads=1, impossible=policy)
        report = model.report_
        assert report is not None
        assert report.n_dropped == (n_bad if policy == "drop" else 0)
        assert (report.n_floored > 0) == (policy == "floor" and n_bad > 0)
        assert np.isfinite(model.history["objective"].to_numpy()).all()
        assert (np.diff(model.history["objective"].to_numpy()) > -1e-9).all()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GecasmoWarning)
            value = model.score(case.log, impossible=policy)
        assert np.isfinite(value)
        for frame in model.parameters.values():
            assert np.isfinite(frame.select("probability", "heads", "tails").to_numpy()).all()


def two_clicks() -> Any:
    return read_log(
        {
            "session": [1, 1, 1, 2, 2],
            "query": ["q"] * 5,
            "doc": ["a", "b", "c", "a", "b"],
            "rank": [1, 2, 3, 1, 2],
            "click": [1, 0, 1, 0, 1],
        }
    )


def test_cascade_model_with_two_clicks_by_hand() -> None:
    model = CM.with_values(attraction=0.3)
    log = two_clicks()
    close_to(
        model.log_likelihood(log, impossible="floor"),
        [np.log(0.3) + np.log(FLOOR), np.log(0.7) + np.log(0.3)],
    )
    close_to(model.predict_conditional_clicks(log, impossible="floor"), [0.3, 0.0, 0.0, 0.3, 0.3])
    fitted = CM().fit(log, EM(max_iter=1, tol=0, accelerate=False), impossible="floor")
    # heads + 1 over heads + tails + 2; the third result of session 1 counts for nothing.
    table = {row[1]: row[2] for row in fitted.parameters["attraction"].rows()}
    close_to([table["a"], table["b"], table["c"]], [2 / 4, 2 / 3, 1 / 2])
    assert fitted.report_ is not None
    assert fitted.report_.n_floored == 1


def test_an_observation_the_program_can_never_show() -> None:
    class Shop(ClickModel):
        """Nobody buys without a click."""

        a = Parameter()
        b = Parameter("clicks_above")

        def browse(self, user: Any, result: Any) -> None:
            if flip(self.a):
                user.click()
                if flip(self.b):
                    user.emit("buy")
                    user.leave()

    model = make_plain(Shop.with_values(a=0.4, b={0: 0.5, 1: 0.25, 2: 0.125}))
    log = read_log(
        {
            "session": [1, 1, 2, 2],
            "query": ["q"] * 4,
            "doc": ["x", "y"] * 2,
            "rank": [1, 2] * 2,
            "click": [0, 1, 1, 1],
            "buy": [1, 1, 1, 1],
        }
    )
    # Session 1 buys without a click; session 2 goes on after buying.
    found = model.log_likelihood(log, impossible="floor")
    first = np.log(FLOOR) + np.log((1 - 0.4 * 0.5) * 0.4 * 0.5)
    second = np.log(0.4 * 0.5) + np.log(FLOOR)
    close_to(found, [first, second])


def test_two_odd_observations_do_not_share_a_history() -> None:
    """Both are impossible at the first result, but only one of them is a click."""

    class Odd(ClickModel):
        a = Parameter("clicks_above")

        def browse(self, user: Any, result: Any) -> None:
            if flip(self.a):
                user.click()
                user.emit("buy")

    model = make_plain(Odd.with_values(a={0: 0.5, 1: 0.25}))
    log = read_log(
        {
            "session": [1, 1, 2, 2],
            "query": ["q"] * 4,
            "doc": ["x", "y"] * 2,
            "rank": [1, 2] * 2,
            "click": [1, 0, 0, 0],
            "buy": [0, 0, 1, 0],
        }
    )
    close_to(
        model.log_likelihood(log, impossible="floor"),
        [np.log(FLOOR) + np.log(0.75), np.log(FLOOR) + np.log(0.5)],
    )


def test_evaluate_says_how_many_results_make_perplexity_infinite() -> None:
    model = DBN.with_values(attraction=0.5, satisfaction=1.0, continuation=1.0)
    log = two_clicks()
    with pytest.raises(ImpossibleSessionError):
        model.evaluate(log)
    floored = model.evaluate(log, impossible="floor")
    assert floored.n_impossible == 1
    assert np.isfinite(floored.conditional.pooled)
