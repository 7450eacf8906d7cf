"""Expectation-maximisation: its promises, its warnings and its refusals."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
from unit_examples import Mixture, Tired, dbn, pages

from gecasmo import CM, DBN, EM, GCTR, PBM, UBM, ClickModel, Fixed, Table, read_log
from gecasmo.encoding import Rows
from gecasmo.errors import (
    ClickLogError,
    ConvergenceWarning,
    ImpossibleSessionError,
    ModelError,
    NotFittedError,
)
from gecasmo.estimation import Problem
from gecasmo.forms import Form
from gecasmo.logs import ClickLog


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return pages(60, 3, seed=1)


def plain(model: Any) -> Any:
    """A model whose tables have fixed priors."""
    return model(**{coin: Table(pseudo_counts=(1, 1)) for coin in model().forms})


def climbs(history: pl.DataFrame) -> None:
    """The objective never falls within a round, where the prior is the same."""
    for number in history["round"].unique():
        found = history.filter(pl.col("round") == number)["objective"].to_numpy()
        assert (np.diff(found) > -1e-9).all()


def objective(model: ClickModel) -> float:
    return model.history["objective"][-1]


# -- the M-step and the counts ---------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 2, 7])
def test_exactly_n_m_steps(monkeypatch: pytest.MonkeyPatch, log: ClickLog, n: int) -> None:
    calls = []
    maximise = Problem.maximise
    monkeypatch.setattr(Problem, "maximise", lambda self, at: calls.append(1) or maximise(self, at))
    model = DBN().fit(log, EM(max_iter=n, tol=0, accelerate=False))
    assert len(calls) == n
    assert model.history["iteration"].to_list() == list(range(n + 1))


def test_n_steps_at_once_are_n_single_steps(log: ClickLog) -> None:
    at_once = DBN().fit(log, EM(max_iter=4, tol=0, accelerate=False))
    stepwise = DBN().fit(log, EM(max_iter=1, tol=0, accelerate=False))
    for _ in range(3):
        stepwise.fit(log, EM(max_iter=1, tol=0, accelerate=False), start=stepwise)
    for coin, frame in at_once.parameters.items():
        np.testing.assert_array_equal(
            frame["probability"], stepwise.parameters[coin]["probability"]
        )


@pytest.mark.parametrize("model", [DBN, PBM, UBM])
def test_reported_counts_belong_to_the_final_probabilities(model, log: ClickLog) -> None:
    fit = model().fit(log, EM(max_iter=3, tol=0))
    again = fit.expected_counts(log)
    for coin, frame in fit.parameters.items():
        np.testing.assert_allclose(frame["heads"], again[coin]["heads"], atol=1e-12)
        np.testing.assert_allclose(frame["tails"], again[coin]["tails"], atol=1e-12)


@pytest.mark.parametrize("pseudo_counts", [(1, 1), (2.5, 0.5)])
def test_at_the_fixed_point_counts_explain_probabilities(pseudo_counts, log: ClickLog) -> None:
    table = Table(pseudo_counts)
    model = DBN(attraction=table, satisfaction=table, continuation=table)
    model.fit(log, EM(max_iter=5000, tol=1e-16))
    a, b = pseudo_counts
    for frame in model.parameters.values():
        heads, tails = frame["heads"], frame["tails"]
        np.testing.assert_allclose(
            (heads + a) / (heads + tails + a + b), frame["probability"], atol=1e-6
        )


def test_counts_exclude_pseudo_counts() -> None:
    model = GCTR(click_rate=Table((10, 10))).fit(pages(10, 3))
    row = model.parameters["click_rate"]
    assert row["heads"][0] + row["tails"][0] == 30
    assert row["heads"][0] == pages(10, 3).click.sum()


def test_full_augmentation_counts_every_flip_and_reaches_the_same_end(log: ClickLog) -> None:
    fits = [
        plain(PBM).fit(log, EM(max_iter=3000, tol=1e-13, augmentation=kind))
        for kind in ("minimal", "full")
    ]
    assert objective(fits[0]) == pytest.approx(objective(fits[1]), abs=1e-6)
    flips = [
        f.parameters["attraction"].select("heads", "tails").sum().sum_horizontal()[0] for f in fits
    ]
    assert flips[1] == pytest.approx(log.n_results)
    assert flips[0] < flips[1]


# -- acceleration and stopping ---------------------------------------------------------------------
@pytest.mark.parametrize("model", [DBN, PBM, UBM, Tired])
def test_accelerated_and_plain_reach_the_same_objective(model, log: ClickLog) -> None:
    slow = plain(model).fit(log, EM(max_iter=3000, tol=1e-11, accelerate=False, restarts=1))
    fast = plain(model).fit(log, EM(max_iter=3000, tol=1e-11, restarts=1))
    assert objective(fast) == pytest.approx(objective(slow), abs=1e-5)
    assert fast.history["iteration"][-1] < slow.history["iteration"][-1]


@pytest.mark.parametrize("model", [DBN, PBM, UBM, Tired])
def test_the_objective_never_falls(model, log: ClickLog) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        climbs(model().fit(log, EM(max_iter=60, tol=1e-9)).history)


def test_a_guess_that_lowers_the_objective_is_dropped(monkeypatch, log: ClickLog) -> None:
    from gecasmo.estimation.problem import Problem

    def reckless(self, move, length):
        return [
            coin.form.from_vector(state, np.full(len(coin.rows), 9.0))
            for coin, state in zip(self.coins, move.twice, strict=True)
        ]

    monkeypatch.setattr(Problem, "extrapolated", reckless)
    found = DBN().fit(log, EM(max_iter=20, tol=0)).history["objective"].to_numpy()
    assert np.diff(found).min() > -1e-9
    assert found[-1] > found[0]


def test_the_history(log: ClickLog) -> None:
    history = plain(DBN).fit(log).history
    assert history.columns == [
        "iteration",
        "objective",
        "log_likelihood",
        "seconds",
        "round",
    ]
    assert history["iteration"][0] == 0
    assert history["iteration"].is_sorted()
    assert history["seconds"].is_sorted()
    assert (history["objective"] < history["log_likelihood"]).all()
    assert DBN().history.is_empty()


def test_the_objective_is_likelihood_plus_prior(log: ClickLog) -> None:
    model = plain(DBN).fit(log)
    prior = sum(
        (np.log(frame["probability"]) + np.log(1 - frame["probability"])).sum()
        for frame in model.parameters.values()
    )
    assert model.history["log_likelihood"][-1] == pytest.approx(model.log_likelihood(log).sum())
    assert objective(model) == pytest.approx(model.log_likelihood(log).sum() + prior)


def test_not_converging_says_what_to_do(log: ClickLog) -> None:
    with pytest.warns(ConvergenceWarning) as caught:
        model = DBN().fit(log, EM(max_iter=2, tol=1e-9))
    message = str(caught[0].message)
    assert "EM stopped after max_iter=2; the last step still gained" in message
    assert "in objective per page (tol=1e-09)" in message
    assert "Continue with fit(log, start=model), or raise max_iter." in message
    assert caught[0].filename == __file__
    assert model.report_ is not None
    assert not model.report_.converged
    assert "not converged" in repr(model)


def test_a_fit_that_was_asked_for_n_steps_does_not_complain(log: ClickLog) -> None:
    DBN().fit(log, EM(max_iter=2, tol=0))


def test_going_on_from_a_model(log: ClickLog) -> None:
    with pytest.warns(ConvergenceWarning):
        model = plain(DBN).fit(log, EM(max_iter=3, tol=1e-9))
    before = objective(model)
    model.fit(log, EM(max_iter=2000, tol=1e-9), start=model)
    assert model.history["objective"][0] == pytest.approx(before)
    assert objective(model) > before
    fresh = plain(DBN).fit(log, EM(max_iter=2000, tol=1e-9))
    assert objective(model) == pytest.approx(objective(fresh), abs=1e-5)


def test_starting_at_another_model_keeps_own_fixed_rows(log: ClickLog) -> None:
    other = PBM.with_values(examination=0.3, attraction=0.6)
    model = PBM(examination=Table(fixed={1: 1.0}))
    model.fit(log, EM(max_iter=1, tol=0), start=other)
    table = model.parameters["examination"].sort("rank")
    assert table["probability"][0] == 1.0
    at_start = (
        PBM.with_values(examination={1: 1.0, 2: 0.3, 3: 0.3}, attraction=0.6)
        .log_likelihood(log)
        .sum()
    )
    assert model.history["log_likelihood"][0] == pytest.approx(at_start)


# -- restarts --------------------------------------------------------------------------------------
def two_tastes(n_pages: int = 150) -> ClickLog:
    """Half of the users like d0 and d1, the others d2 and d3."""
    likes = {"d0": 0.9, "d1": 0.9, "d2": 0.1, "d3": 0.1}
    dislikes = {doc: 1 - chance for doc, chance in likes.items()}
    truth = Mixture.with_values(kind=0.5, taste_a=likes, taste_b=dislikes)
    return truth.simulate(pages(n_pages, 4), seed=3)


def test_a_mixture_finds_two_components() -> None:
    model = Mixture().fit(two_tastes(), EM(restarts=2))
    first = model.parameters["taste_a"].sort("doc")["probability"].to_numpy()
    second = model.parameters["taste_b"].sort("doc")["probability"].to_numpy()
    assert np.abs(first - second).min() > 0.5
    assert (first > second).tolist() in ([True, True, False, False], [False, False, True, True])


def test_equal_starts_never_part() -> None:
    log = two_tastes(60)
    equal = Mixture.with_values(kind=0.5, taste_a=0.5, taste_b=0.5)
    stuck = Mixture().fit(log, EM(max_iter=20, tol=0), start=equal)
    a, b = (stuck.parameters[f"taste_{kind}"]["probability"].to_numpy() for kind in "ab")
    np.testing.assert_allclose(a, b)
    assert objective(Mixture().fit(log, EM(restarts=2))) > objective(stuck) + 1


def test_restarts_are_reproducible() -> None:
    log = two_tastes(40)
    method = EM(max_iter=8, tol=0, restarts=3, seed=5)
    first, second = (Mixture().fit(log, method).parameters["taste_a"] for _ in range(2))
    assert first.equals(second)
    other = Mixture().fit(log, EM(max_iter=8, tol=0, restarts=3, seed=6)).parameters["taste_a"]
    assert not first.equals(other)


def test_more_restarts_never_end_worse() -> None:
    log = two_tastes(40)
    ends = [
        objective(Mixture().fit(log, EM(max_iter=6, tol=0, restarts=n, seed=2))) for n in (1, 3, 5)
    ]
    assert ends == sorted(ends)


def test_how_many_starts_a_model_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []
    begin = Problem.begin
    monkeypatch.setattr(
        Problem, "begin", lambda self, g: starts.append(g is not None) or begin(self, g)
    )
    log = pages(6)
    for model, method, n_random in [
        (Mixture(), EM(max_iter=1, tol=0), 5),
        (Mixture(), EM(max_iter=1, tol=0, restarts=2), 2),
        (DBN(), EM(max_iter=1, tol=0), 0),
        (DBN(), EM(max_iter=1, tol=0, restarts=3), 3),
    ]:
        starts.clear()
        model.fit(log, method)
        assert sum(starts) == n_random


# -- interruption ----------------------------------------------------------------------------------
def interrupt_after(monkeypatch: pytest.MonkeyPatch, n_calls: int) -> None:
    evaluate, calls = Problem.evaluate, []

    def counted(self, states, ahead=False):
        calls.append(1)
        if len(calls) > n_calls:
            raise KeyboardInterrupt
        return evaluate(self, states)

    monkeypatch.setattr(Problem, "evaluate", counted)


@pytest.mark.parametrize("n_calls", [1, 2, 5])
def test_ctrl_c_leaves_the_best_so_far(monkeypatch, log: ClickLog, n_calls: int) -> None:
    interrupt_after(monkeypatch, n_calls)
    with pytest.warns(ConvergenceWarning) as caught:
        model = DBN().fit(log, EM(accelerate=False, tol=0))
    assert f"EM was interrupted after {n_calls - 1} iterations." in str(caught[0].message)
    assert "best parameters so far; continue with fit(log, start=model)" in str(caught[0].message)
    monkeypatch.undo()
    assert model.report_ is not None
    assert model.report_.interrupted
    assert "interrupted" in repr(model)
    assert model.log_likelihood(log).sum() == pytest.approx(model.report_.log_likelihood)
    if n_calls > 1:
        same = DBN().fit(log, EM(max_iter=n_calls - 1, tol=0, accelerate=False))
        assert model.parameters["attraction"].equals(same.parameters["attraction"])


def test_ctrl_c_in_a_later_restart_keeps_the_best_of_all(monkeypatch) -> None:
    log = two_tastes(40)
    method = EM(max_iter=4, tol=0, accelerate=False, restarts=3)
    first = Mixture().fit(log, EM(max_iter=4, tol=0, accelerate=False, restarts=3, seed=0))
    for n_calls in (5, 6, 7):  # exactly between two starts, and soon after
        with monkeypatch.context() as patch:
            interrupt_after(patch, n_calls)
            with pytest.warns(ConvergenceWarning, match="interrupted"):
                model = Mixture().fit(log, method)
        assert model.is_fitted
        assert model.report_ is not None
        assert model.report_.interrupted
        assert objective(model) <= objective(first) + 1e-9


def test_ctrl_c_before_anything_is_known_leaves_the_model_alone(monkeypatch, log) -> None:
    interrupt_after(monkeypatch, 0)
    model = DBN()
    with pytest.raises(KeyboardInterrupt):
        model.fit(log)
    assert not model.is_fitted


# -- threads, order and weights --------------------------------------------------------------------
def test_any_number_of_threads_gives_the_same_bits(compiled: None) -> None:
    log = dbn().simulate(pages(8_000, 3, n_docs=30), seed=1)
    fits = [DBN().fit(log, EM(max_iter=5, tol=0), threads=n) for n in (1, 2, 3, 7)]
    for fit in fits[1:]:
        assert fit.history["objective"].equals(fits[0].history["objective"])
        for coin, frame in fit.parameters.items():
            assert frame.equals(fits[0].parameters[coin])


def test_weights_are_repetitions(log: ClickLog) -> None:
    frame = log.to_frame()
    times = {s: 1 + n % 3 for n, s in enumerate(log.sessions)}
    weighted = frame.with_columns(
        pl.col("session").replace_strict(times, return_dtype=pl.Float64).alias("n")
    )
    repeated = pl.concat(
        [
            frame.filter(pl.col("session").replace_strict(times) > copy).with_columns(
                pl.col("session") + f" copy {copy}"
            )
            for copy in range(3)
        ]
    )
    method = EM(max_iter=6, tol=0)
    first = DBN().fit(read_log(weighted, weight="n"), method)
    second = DBN().fit(read_log(repeated), method)
    key = ["query", "doc"]
    assert objective(first) == pytest.approx(objective(second), rel=1e-9)
    np.testing.assert_allclose(
        first.parameters["attraction"].sort(key)["probability"],
        second.parameters["attraction"].sort(key)["probability"],
        rtol=1e-9,
    )


def test_the_order_of_rows_plays_no_part(log: ClickLog) -> None:
    shuffled = read_log(log.to_frame().sample(fraction=1, shuffle=True, seed=1))
    method, key = EM(max_iter=5, tol=0), ["query", "doc"]
    first, second = DBN().fit(log, method), DBN().fit(shuffled, method)
    np.testing.assert_allclose(
        first.parameters["satisfaction"].sort(key)["probability"],
        second.parameters["satisfaction"].sort(key)["probability"],
        rtol=1e-9,
    )


# -- refusals --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"max_iter": 0}, "a whole number of at least one is needed"),
        ({"tol": -1}, "must not be negative"),
        ({"tol": float("nan")}, "must not be negative"),
        ({"augmentation": "some"}, "choose 'minimal' or 'full'"),
        ({"restarts": 0}, "at least one start is needed"),
    ],
)
def test_settings_that_make_no_sense(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        EM(**arguments)


@pytest.mark.parametrize("method", ["EM", EM, 50, {"max_iter": 3}])
def test_a_method_is_an_object(method: object, log: ClickLog) -> None:
    with pytest.raises(ModelError, match=r"method=.*EM\("):
        DBN().fit(log, method)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"impossible": "ignore"}, "choose 'raise', 'drop' or 'floor'"),
        ({"threads": 0}, "at least one is needed"),
        ({"threads": -2}, "at least one is needed"),
    ],
)
def test_arguments_of_fit(arguments: dict[str, Any], complaint: str, log: ClickLog) -> None:
    with pytest.raises(ModelError, match=complaint):
        DBN().fit(log, **arguments)


def test_fit_takes_a_click_log(log: ClickLog) -> None:
    for source in ([log], None, "log.csv"):
        with pytest.raises(ClickLogError, match=r"fit\(\) takes a ClickLog, which"):
            DBN().fit(source)  # type: ignore[arg-type]
    with pytest.raises(ClickLogError, match="The dict lacks the columns 'session'"):
        DBN().fit({"click": [1]})  # type: ignore[arg-type]


def test_an_empty_log(log: ClickLog) -> None:
    with pytest.raises(ClickLogError, match="the log has no results"):
        DBN().fit(log.take(np.zeros(len(log), bool)))


def test_starting_at_a_model_that_knows_nothing(log: ClickLog) -> None:
    with pytest.raises(NotFittedError, match="has no probabilities yet"):
        DBN().fit(log, start=DBN())


def test_starting_at_something_that_is_no_model(log: ClickLog) -> None:
    with pytest.raises(ModelError, match="start="):
        DBN().fit(log, start={"attraction": 0.5})  # type: ignore[arg-type]


def test_a_failed_fit_leaves_the_old_one(log: ClickLog) -> None:
    model = CM().fit(log, impossible="drop")
    before = model.parameters["attraction"]
    with pytest.raises(ImpossibleSessionError):
        model.fit(log)
    assert model.parameters["attraction"].equals(before)


# -- impossible pages ------------------------------------------------------------------------------
def one_bad_page() -> ClickLog:
    """The second page has two clicks, which CM says cannot happen."""
    return read_log(
        {
            "session": ["s1", "s1", "s2", "s2"],
            "query": ["q"] * 4,
            "doc": ["a", "b", "a", "b"],
            "rank": [1, 2, 1, 2],
            "click": [0, 1, 1, 1],
        }
    )


def test_impossible_pages_are_refused_by_name() -> None:
    with pytest.raises(ImpossibleSessionError) as caught:
        CM().fit(one_bad_page())
    message = str(caught.value)
    assert "1 of 2 sessions are impossible under CM" in message
    assert "First: session 's2' shows a click at rank 2" in message
    assert "impossible='drop'" in message
    assert "'floor'" in message


def test_impossible_pages_are_dropped() -> None:
    model = CM().fit(one_bad_page(), impossible="drop")
    table = model.parameters["attraction"].sort("doc")
    assert table["heads"].to_list() == [0, 1]
    assert table["tails"].to_list() == [1, 0]
    assert "1 impossible sessions left out" in repr(model)


def test_impossible_observations_are_floored() -> None:
    model = CM().fit(one_bad_page(), impossible="floor")
    table = model.parameters["attraction"].sort("doc")
    assert table["heads"].to_list() == [1, 1]  # a on the second page; b there adds nothing
    assert table["tails"].to_list() == [1, 0]
    assert "1 impossible observations floored" in repr(model)
    assert np.isfinite(objective(model))


def test_nothing_left() -> None:
    bad = one_bad_page().take(np.array([1]))
    with pytest.raises(ImpossibleSessionError, match="nothing is left to fit"):
        CM().fit(bad, impossible="drop")


# -- forms of other people -------------------------------------------------------------------------
class Stubborn(Form):
    """One probability for all rows, fitted badly: every other time it runs away."""

    def __init__(self, bad: str) -> None:
        self.key = None
        self.bad = bad
        self.n_fits = 0

    def begin(self, rows: Rows, generator: Any) -> tuple[Rows, float]:
        return rows, 0.5

    def fit(self, rows: Rows, heads: Any, tails: Any, previous: Any) -> tuple[Rows, float]:
        self.n_fits += 1
        is_bad = self.bad == "always" or (self.bad == "sometimes" and self.n_fits % 2 == 0)
        best = float(heads.sum() / (heads.sum() + tails.sum()))
        return rows, 0.001 if is_bad else best

    def predict(self, state: Any, rows: Rows) -> Any:
        return np.full(len(rows), state[1])

    def known(self, state: Any, rows: Rows) -> Any:
        return np.ones(len(rows), bool)

    def penalty(self, state: Any) -> float:
        return 0.0

    def to_frame(self, state: Any) -> pl.DataFrame:
        column = pl.Series("probability", np.full(len(state[0]), state[1]))
        return pl.DataFrame([*state[0].frame.get_columns(), column])


@pytest.mark.parametrize("accelerate", [True, False])
def test_a_form_that_sometimes_fails_is_held_back(accelerate: bool, log: ClickLog) -> None:
    model = DBN(continuation=Stubborn("sometimes"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(log, EM(max_iter=40, accelerate=accelerate))
    climbs(model.history)
    assert model.parameters["continuation"]["probability"][0] != 0.001


@pytest.mark.parametrize("accelerate", [True, False])
def test_a_form_that_always_fails_keeps_what_it_had(accelerate: bool, log: ClickLog) -> None:
    good = DBN().fit(log)
    model = DBN(continuation=Stubborn("always"))
    start = DBN.with_values(
        attraction=good.parameters["attraction"],
        satisfaction=good.parameters["satisfaction"],
        continuation=0.5,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(log, EM(max_iter=10, accelerate=accelerate), start=start)
    assert model.parameters["continuation"]["probability"][0] == 0.5
    climbs(model.history)


def test_when_no_form_improves_the_fit_stops_and_says_so(log: ClickLog) -> None:
    model = GCTR(click_rate=Stubborn("always"))
    with pytest.warns(ConvergenceWarning, match="No form could improve the objective any more"):
        model.fit(log)
    assert model.parameters["click_rate"]["probability"][0] == 0.5


def test_a_form_without_vector_is_fitted_like_any_other(log: ClickLog) -> None:
    own = GCTR(click_rate=Stubborn("never")).fit(log)
    assert own.parameters["click_rate"]["probability"][0] == pytest.approx(log.click.mean())


def test_constants_alone_converge_at_once(log: ClickLog) -> None:
    model = DBN(attraction=0.3, satisfaction=0.5, continuation=Fixed(0.9)).fit(log)
    assert model.report_ is not None
    assert model.report_.converged
    assert model.history["iteration"][-1] == 1


def test_a_progress_bar_on_request(log: ClickLog, capsys: pytest.CaptureFixture[str]) -> None:
    DBN().fit(log, EM(max_iter=3, tol=0), progress=True)
    DBN().fit(log, EM(max_iter=3, tol=0), progress=False)
    assert capsys.readouterr().out == ""
