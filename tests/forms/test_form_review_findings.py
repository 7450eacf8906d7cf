"""What reviewers of the forms found, kept from coming back."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest

import gecasmo.torch
from gecasmo import DBN, EM, PBM, UBM, ClickLog, Gradient, Logistic, Sum, Table, read_log
from gecasmo.errors import ConvergenceWarning, GecasmoWarning, ModelError
from gecasmo.forms import Form
from gecasmo.simulation import paper_log

PLACE = ("item_x", "item_y")


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return paper_log(5, n_users=600).log


def sum_dbn() -> DBN:
    return DBN(attraction=Sum(Logistic(*PLACE), key="doc"), satisfaction=Table(key="doc"))


def test_a_fit_with_coefficients_ends_at_the_optimum(log: ClickLog) -> None:
    """EM gains little per page long before it is within a fraction of a standard error."""
    model = PBM(attraction=Logistic(*PLACE), examination=Logistic("rank"))
    usual = model.copy().fit(log)
    exact = model.copy().fit(log, EM(tol=1e-13, max_iter=5000))
    for coin in ("attraction", "examination"):
        a, b = usual.coefficients[coin], exact.coefficients[coin]
        apart = (a["coefficient"] - b["coefficient"]) / b["standard_error"]
        assert apart.abs().max() < 0.02
    assert np.diff(usual.history["objective"]).min() >= 0
    assert usual.report_ is not None
    assert usual.report_.objective == usual.history["objective"][-1]


def test_a_number_of_steps_is_that_number_also_for_a_sum(log: ClickLog) -> None:
    model = sum_dbn().fit(log, EM(max_iter=2, tol=0, accelerate=False))
    assert model.history["iteration"].to_list() == [0, 1, 2]
    assert model.states()["attraction"].spread == 1.0


def test_a_sum_that_is_not_converged_warns_once(log: ClickLog) -> None:
    with pytest.warns(ConvergenceWarning) as caught:
        sum_dbn().fit(log, EM(max_iter=1))
    assert len(caught) == 1


def test_gradient_leaves_the_spread_and_says_so(log: ClickLog) -> None:
    with pytest.warns(GecasmoWarning, match="The spread of attraction was not learned"):
        model = sum_dbn().fit(log, Gradient(epochs=2))
    assert model.states()["attraction"].spread == 1.0
    assert model.history["iteration"][-1] == 2
    given = DBN(attraction=Sum(Logistic(*PLACE), key="doc", spread=0.5), satisfaction=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given.fit(log, Gradient(epochs=2))


def test_objectives_in_the_history_are_under_one_prior(log: ClickLog) -> None:
    history = sum_dbn().fit(log).history
    assert history["round"][-1] > 1
    for number in history["round"].unique():
        objective = history.filter(history["round"] == number)["objective"].to_numpy()
        assert (np.diff(objective) > -1e-9).all()


def test_the_spread_is_shown(log: ClickLog) -> None:
    assert "around their features" in repr(sum_dbn().fit(log))


def test_the_probability_of_a_coin_at_every_result(log: ClickLog) -> None:
    model = UBM(attraction=Table(key="doc")).fit(log)
    attraction, examination = (model.probability(c, log) for c in ("attraction", "examination"))
    np.testing.assert_allclose(
        attraction * examination, model.predict_conditional_clicks(log), rtol=1e-12
    )


def test_other_features_make_other_rows_for_the_likelihood() -> None:
    log = read_log({"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2], "click": [1, 0]})
    model = PBM(attraction=Logistic("x", l2=1.0), examination=0.9)
    items = pl.DataFrame({"doc": ["a", "b"], "x": [0.0, 1.0]})
    for frame in (items, items.with_columns(x=pl.col("x") + 5)):
        model.fit(log, EM(max_iter=1, tol=0), features={"attraction": frame})
        assert gecasmo.torch.rows(model, log)["attraction"]["x"].sort().equals(frame["x"])


def test_coins_that_share_a_form_are_remarked_on_once(log: ClickLog) -> None:
    shared = Logistic("constant", *PLACE)
    same = read_log(log.to_frame().with_columns(constant=pl.lit(1.0)))
    with pytest.warns(GecasmoWarning, match="coins 'attraction' and 'satisfaction'") as caught:
        DBN(attraction=shared, satisfaction=shared).fit(same)
    assert len(caught) == 1


def test_what_the_model_explains_is_no_feature(log: ClickLog) -> None:
    with pytest.raises(ModelError, match="reads 'click', which is what the model is to explain"):
        DBN(attraction=Logistic("click"), satisfaction=0.5).fit(log)


# -- a stranger's findings ---------------------------------------------------------------------
SATISFIED = {"satisfaction": Table(key=())}


def described(log: ClickLog) -> ClickLog:
    by_user = pl.when(pl.col("user") % 2 == 0).then(pl.lit("a")).otherwise(pl.lit("b"))
    return read_log(log.to_frame().with_columns(device=by_user, constant=pl.lit(1000.0)))


def test_what_one_coin_leaves_open_takes_no_errors_from_another(log: ClickLog) -> None:
    """A category without prior has one level too many; that is its own affair."""
    forms = {"attraction": Logistic("item_x"), "continuation": Logistic("device", l2=0)}
    model = DBN(**forms, **SATISFIED).fit(described(log))
    for frame in model.coefficients.values():
        assert frame["standard_error"].null_count() == 0
        assert frame["standard_error"].max() < 1


def test_a_constant_column_leaves_the_error_of_the_intercept_alone(log: ClickLog) -> None:
    plain = DBN(attraction=Logistic("item_x"), **SATISFIED).fit(log)
    with pytest.warns(GecasmoWarning, match="'constant' is constant"):
        model = DBN(attraction=Logistic("item_x", "constant"), **SATISFIED).fit(described(log))
    with_it, without = (m.coefficients["attraction"]["standard_error"] for m in (model, plain))
    assert with_it[0] == pytest.approx(without[0], rel=1e-3)
    assert with_it[2] is None


def test_a_level_that_is_always_clicked_is_told_about(log: ClickLog) -> None:
    frame = described(log).to_frame()
    rare = pl.col("click") & (pl.col("rank") == 2)
    odd = frame.with_columns(kind=pl.when(rare).then(pl.lit("z")).otherwise("device"))
    with pytest.warns(GecasmoWarning, match=r"separate heads from tails.*kind=z"):
        DBN(attraction=Logistic("kind", l2=0), **SATISFIED).fit(read_log(odd))


@pytest.mark.parametrize(
    "form",
    [Logistic("item_x"), Logistic("item_x", key="doc"), Sum(Logistic("ranker"), key="doc")],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:The coin .* is constant")
def test_a_log_without_results_has_no_answers(form: Logistic, log: ClickLog) -> None:
    model = DBN(attraction=form, **SATISFIED).fit(log)
    nothing = log.take(np.zeros(log.n_sessions, bool))
    assert len(model.predict_clicks(nothing)) == 0
    assert len(model.posterior(nothing)) == 0


def test_a_key_is_no_feature() -> None:
    with pytest.raises(ModelError, match="'result' numbers the shown results"):
        Logistic("price", "result")


def test_one_form_has_one_frame_of_features(log: ClickLog) -> None:
    shared = Logistic("x", key="doc")
    frames = [pl.DataFrame({"doc": range(100), "x": np.arange(100) + n}) for n in (0.0, 1.0)]
    with pytest.raises(ModelError, match="share a form, so they have one frame of features"):
        DBN(attraction=shared, satisfaction=shared).fit(
            log, features=dict(zip(("attraction", "satisfaction"), frames, strict=True))
        )


@pytest.mark.parametrize("lr", [1e3, 1e6])
def test_descent_that_leads_nowhere_says_so(lr: float, log: ClickLog) -> None:
    model = DBN(attraction=Logistic("item_x"), **SATISFIED)
    with pytest.warns(ConvergenceWarning):
        model.fit(log, Gradient(lr=lr, epochs=2))
    assert np.isfinite(model.score(log))


class Turning(Form):
    """A form that answers as it should, until it is told otherwise."""

    key = ()
    answer = staticmethod(lambda n: np.full(n, 0.4))

    def begin(self, rows, generator):
        return "begun"

    def fit(self, rows, heads, tails, previous):
        return previous

    def predict(self, state, rows):
        return self.answer(len(rows))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda n: np.full(n + 1, 0.5), r"answers 1 rows with an array of shape \(2,\)"),
        (lambda n: np.full(0, 0.5), r"answers 1 rows with an array of shape \(0,\)"),
        (lambda n: np.full((n, 1), 0.5), r"with an array of shape \(1, 1\)"),
        (lambda n: 0.5, r"with an array of shape \(\)"),
        (lambda n: np.full(n, 1.5), r"no probability \(first: 1.5\)"),
        (lambda n: np.full(n, np.nan), r"no probability \(first: nan\)"),
        (lambda n: np.full(n, "0.5"), "answers with <U3; numbers from 0 to 1 are wanted"),
        (lambda n: np.full(n, 0.5 + 1j), "answers with complex128"),
        (lambda n: None, "answers with object"),
    ],
)
def test_wrong_answers_of_a_form_of_ones_own(answer, message: str, log: ClickLog) -> None:
    form = Turning()
    form.answer = answer
    with pytest.raises(ModelError, match=f"Turning.* of 'attraction' .*{message}"):
        DBN(attraction=form, **SATISFIED).fit(log)
    # Compiled code would read beyond a short answer, whoever asks.
    form = Turning()
    model = DBN(attraction=form, **SATISFIED).fit(log)
    form.answer = answer
    for ask in (
        model.predict_clicks,
        model.predict_conditional_clicks,
        model.log_likelihood,
        model.posterior,
        model.decode,
        model.expected_counts,
        model.evaluate,
        lambda log: model.simulate(log, seed=1),
        lambda log: model.probability("attraction", pl.DataFrame({"doc": [1]})),
        lambda log: DBN(attraction=Table(key=()), **SATISFIED).fit(log, start=model),
    ):
        with pytest.raises(ModelError, match=message):
            ask(log)


def test_rows_with_next_to_no_flips_send_no_coefficient_to_infinity() -> None:
    """Found by a soak run: a step of Newton's method as long as 1e293."""
    from gecasmo.forms.features import CodedFeatures, DesignMatrix
    from gecasmo.forms.linear import WeightedRegression

    levels = np.array([0, 1, 2, 3])
    design = DesignMatrix(CodedFeatures(np.zeros((4, 0)), (levels,)), [4], intercept=False)
    heads, tails = np.array([4e-7, 0.0, 1e-290, 3.0]), np.array([0.0, 9e-12, 0.0, 5.0])
    solution = WeightedRegression(design, heads, tails, np.zeros(4)).maximise(np.zeros(4))
    assert np.all(np.isfinite(solution.coefficients))
    assert np.abs(solution.coefficients).max() < 1e5
