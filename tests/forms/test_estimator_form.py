"""Any classifier as a form: soft labels, matrices and frames, refusals, files."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

import gecasmo
from gecasmo import DBN, EM, PBM, ClickLog, Estimator, Fixed, Logistic, Sum, Table, read_log
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ClickLogError, GecasmoWarning, ModelError, SavedModelError
from gecasmo.testing import plain_python

pytest.importorskip("sklearn")
pytest.importorskip("skops")

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import Birch
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    SplineTransformer,
    StandardScaler,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

SHORT = EM(max_iter=4, tol=0)


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    """These tests are about forms; nothing needs to be compiled."""
    with plain_python():
        yield


@pytest.fixture(scope="module")
def log() -> ClickLog:
    """Clicks that depend on price (a curve) and brand."""
    rng = np.random.default_rng(3)
    n_pages, length = 120, 4
    n = n_pages * length
    price = rng.uniform(-2, 2, n).round(2)
    brand = rng.choice(["acme", "best", "cult"], n)
    frame = pl.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), length),
            "query": np.repeat(np.arange(n_pages) % 10, length),
            "doc": rng.integers(0, 30, n),
            "rank": np.tile(np.arange(1, length + 1), n_pages),
            "price": price,
            "brand": brand,
            "gap": np.where(rng.random(n) < 0.2, np.nan, price),
            "same": np.ones(n),
        }
    )
    frame = frame.with_columns(
        pl.when(pl.Series(rng.random(n) < 0.1)).then(None).otherwise("brand").alias("maker")
    )
    likes = frame.select("price", "brand").unique().sort("price", "brand")
    logit = 1 - likes["price"] ** 2 + 1.5 * (likes["brand"] == "acme").cast(float)
    likes = likes.with_columns((1 / (1 + (-logit).exp())).alias("probability"))
    truth = DBN.with_values(
        attraction=(Table(key=("price", "brand")), likes), satisfaction=0.4, continuation=0.9
    )
    with plain_python():
        simulated: ClickLog = truth.simulate(read_log(frame, click=None), seed=1)
    return simulated


def dbn(form: Any) -> DBN:
    return DBN(attraction=form, satisfaction=Table(key=()))


def rows_of(**columns: Any) -> Rows:
    series = [pl.Series(name, values) for name, values in columns.items()]
    return Rows(tuple(columns), series, len(series[0]))


def columns_transformed(*numeric: str, texts: tuple[str, ...] = ("brand",)) -> ColumnTransformer:
    return ColumnTransformer(
        [
            ("numbers", StandardScaler(), list(numeric)),
            ("texts", OneHotEncoder(handle_unknown="ignore"), list(texts)),
        ]
    )


FOREST = RandomForestClassifier(10, min_samples_leaf=8, random_state=0)
BOOSTING = GradientBoostingClassifier(n_estimators=8, random_state=0)
HISTOGRAMS = HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5, random_state=0)
PIPELINE = make_pipeline(columns_transformed("price"), LogisticRegression())
BOTH = ("price", "brand")

FORMS = {
    "logistic": Estimator(LogisticRegression(), *BOTH),
    "forest": Estimator(FOREST, *BOTH),
    "boosting": Estimator(BOOSTING, *BOTH),
    "histograms": Estimator(HISTOGRAMS, *BOTH),
    "histograms, categories": Estimator(HISTOGRAMS, *BOTH, categorical="brand", as_frame=True),
    "histograms, missing": Estimator(
        HISTOGRAMS, "gap", "maker", categorical="maker", as_frame=True, missing="keep"
    ),
    "pipeline": Estimator(PIPELINE, *BOTH, as_frame=True),
    "scaled": Estimator(make_pipeline(StandardScaler(), LogisticRegression()), *BOTH),
    "pipeline in a pipeline": Estimator(
        make_pipeline(StandardScaler(), make_pipeline(SimpleImputer(), FOREST)), *BOTH
    ),
    "network": Estimator(MLPClassifier((4,), solver="lbfgs", random_state=0), *BOTH),
    "adam": Estimator(
        MLPClassifier((8,), learning_rate_init=0.05, tol=1e-3, random_state=0), "price"
    ),
    "bayes": Estimator(GaussianNB(), "price"),
    "tree": Estimator(DecisionTreeClassifier(max_depth=4, random_state=0), *BOTH),
    "bagging": Estimator(
        BaggingClassifier(FOREST, n_estimators=2, max_features=2, random_state=0), *BOTH
    ),
    "calibrated": Estimator(CalibratedClassifierCV(FOREST, cv=2, ensemble=False), "price"),
    "voting": Estimator(
        VotingClassifier([("a", FOREST), ("b", LogisticRegression())], voting="soft"), "price"
    ),
}


# -- every classifier ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FORMS)
def test_a_fit_climbs_and_a_saved_one_answers_the_same(
    name: str, log: ClickLog, tmp_path: Path
) -> None:
    form = FORMS[name]
    model = dbn(form).fit(log, SHORT)
    objective = model.history["objective"].to_numpy()
    assert objective[-1] > objective[0]
    assert np.all(np.diff(objective) >= -1e-9 * abs(objective[0]))
    assert model.states_["attraction"].fitted is not None
    assert "probability" not in model.parameters["attraction"].columns
    model.save(tmp_path / "model")
    again = gecasmo.load(tmp_path / "model")
    assert np.array_equal(again.predict_clicks(log), model.predict_clicks(log))
    assert repr(again.forms["attraction"]) == repr(form)
    assert again.parameters["attraction"].equals(model.parameters["attraction"])


def test_lightgbm_by_its_own_text(log: ClickLog, tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    classifier = lightgbm.LGBMClassifier(
        n_estimators=8, min_child_samples=5, random_state=0, n_jobs=1, verbose=-1
    )
    forms = [
        Estimator(classifier, *BOTH),
        Estimator(classifier, *BOTH, categorical="brand", as_frame=True),
        Estimator(classifier, "gap", "maker", categorical="maker", as_frame=True, missing="keep"),
    ]
    for form in forms:
        model = dbn(form).fit(log, SHORT)
        assert np.all(np.diff(model.history["objective"].to_numpy()) >= -1e-9)
        assert model.parameters["attraction"]["importance"].sum() > 0
        model.save(tmp_path / "model")
        again = gecasmo.load(tmp_path / "model")
        assert np.array_equal(again.predict_clicks(log), model.predict_clicks(log))
        assert again.parameters["attraction"].equals(model.parameters["attraction"])
        again.save(tmp_path / "twice")
        once_more = gecasmo.load(tmp_path / "twice")
        assert np.array_equal(once_more.predict_clicks(log), model.predict_clicks(log))
        again.fit(log, SHORT)  # with the options that were saved
        assert again.score(log) == pytest.approx(model.score(log), abs=1e-9)


def test_lightgbm_that_cannot_be_saved(log: ClickLog, tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    seeded = np.random.RandomState(0)
    odd = lightgbm.LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1, random_state=seeded)
    with pytest.raises(SavedModelError, match=r"random_state=RandomState.*cannot be saved"):
        dbn(Estimator(odd, "price")).fit(log, SHORT).save(tmp_path / "model")
    plain = lightgbm.LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1)
    piped = make_pipeline(columns_transformed("price"), plain)
    with pytest.raises(SavedModelError, match=r"lightgbm\.basic\.Booster.*stands alone"):
        dbn(Estimator(piped, *BOTH, as_frame=True)).fit(log, SHORT).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_an_unregularised_regression_is_the_logistic_form(log: ClickLog) -> None:
    """Two weighted rows for each soft label are the same likelihood."""
    exact = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
    pinned = {"satisfaction": Fixed(0.4), "continuation": Fixed(0.9)}
    ours = DBN(attraction=Logistic("price", "brand", l2=0), **pinned).fit(log)
    theirs = DBN(attraction=Estimator(exact, *BOTH), **pinned).fit(log, EM(accelerate=False))
    assert theirs.score(log) == pytest.approx(ours.score(log), abs=1e-5)
    slope = theirs.parameters["attraction"].filter(pl.col("term") == "price")["coefficient"][0]
    wanted = ours.coefficients["attraction"].filter(pl.col("term") == "price")["coefficient"][0]
    assert slope == pytest.approx(wanted, abs=0.01)


def test_trees_find_a_curve_that_a_line_cannot(log: ClickLog) -> None:
    curve = dbn(Estimator(HISTOGRAMS, *BOTH)).fit(log, EM(max_iter=20, tol=1e-5))
    line = dbn(Logistic(*BOTH)).fit(log)
    assert curve.score(log) > line.score(log) + 0.05
    middle, end = curve.probability("attraction", {"price": [0.0, 2.0], "brand": ["acme"] * 2})
    assert middle > 0.7
    assert end < 0.4


def test_fits_are_the_same_with_a_random_state(log: ClickLog) -> None:
    a, b = (dbn(Estimator(FOREST, *BOTH)).fit(log, SHORT) for _ in range(2))
    assert np.array_equal(a.predict_clicks(log), b.predict_clicks(log))


def test_the_classifier_of_the_user_is_never_touched(log: ClickLog) -> None:
    mine = RandomForestClassifier(3, min_samples_leaf=8, random_state=0)
    form = Estimator(mine, "price")
    dbn(form).fit(log, SHORT)
    assert not hasattr(mine, "estimators_")
    mine.set_params(n_estimators=99)
    assert form.classifier.n_estimators == 3


def test_a_fitted_model_can_be_sent_to_another_process(log: ClickLog) -> None:
    model = dbn(Estimator(FOREST, *BOTH)).fit(log, SHORT)
    again = pickle.loads(pickle.dumps(model.states_["attraction"]))
    rows = rows_of(price=[0.0, 1.0], brand=["acme", "new"])
    form = model.forms["attraction"]
    assert np.array_equal(
        form.predict(again, rows), form.predict(model.states_["attraction"], rows)
    )


def test_a_form_behind_two_coins_has_one_classifier(log: ClickLog) -> None:
    shared = Estimator(FOREST, "price")
    model = DBN(attraction=shared, satisfaction=shared).fit(log, SHORT)
    assert model.states_["attraction"] is model.states_["satisfaction"]
    apart = DBN(attraction=shared, satisfaction=Estimator(FOREST, "price")).fit(log, SHORT)
    assert apart.states_["attraction"] is not apart.states_["satisfaction"]


def test_rows_by_a_key_with_features_from_a_frame(log: ClickLog) -> None:
    rng = np.random.default_rng(0)
    docs = pl.DataFrame({"doc": np.arange(30), "length": rng.normal(size=30)})
    model = dbn(Estimator(FOREST, "length", key="doc"))
    model.fit(log, SHORT, features={"attraction": docs})
    assert model.probability("attraction", {"doc": [0, 29]}).shape == (2,)
    new = pl.DataFrame({"doc": [77], "length": [0.3]})
    assert model.with_features(attraction=new).probability("attraction", {"doc": [77]})[0] < 1


def test_other_models_and_start(log: ClickLog) -> None:
    pbm = PBM(attraction=Estimator(FOREST, *BOTH)).fit(log, SHORT)
    begun = PBM(attraction=Estimator(FOREST, *BOTH)).fit(log, SHORT, start=pbm)
    assert begun.history["objective"][0] == pytest.approx(pbm.history["objective"][-1])
    assert begun.history["objective"][-1] >= begun.history["objective"][0]
    # From a table: as near as the classifier comes.
    table = PBM(attraction=Table(key=BOTH)).fit(log)
    near = PBM(attraction=Estimator(FOREST, *BOTH)).fit(log, EM(max_iter=1, tol=0), start=table)
    assert near.is_fitted


def test_a_start_with_other_levels_answers_until_the_first_fit() -> None:
    form = Estimator(LogisticRegression(), "brand")
    old = rows_of(brand=["a", "b"])
    counts = np.array([9.0, 1.0]), np.array([1.0, 9.0])
    state = form.fit(old, *counts, form.begin(old, None))
    new = rows_of(brand=["b", "c"])
    adopted = form.adopted(state, new)
    assert np.array_equal(form.predict(adopted, new), form.predict(state, new))
    assert form.known(adopted, new).tolist() == [True, False]
    after = form.fit(new, *counts, adopted)
    assert form.known(after, new).all()
    # A column that was a text and is a number now has nothing to say.
    numbers = rows_of(brand=[1.0, 2.0])
    assert form.adopted(state, numbers).fitted is None


# -- the M-step ------------------------------------------------------------------------------------
class Recorder(ClassifierMixin, BaseEstimator):
    """Says what it was asked, and answers as told."""

    seen: ClassVar[list[tuple[Any, Any, Any]]] = []

    def __init__(self, answer: float = 0.5) -> None:
        self.answer = answer

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Recorder:
        self.seen.append((X, y, sample_weight))
        self.classes_ = np.array([1, 0])  # in an unusual order
        return self

    def predict_proba(self, X: Any) -> Any:
        heads = np.full(X.shape[0], self.answer)
        return np.column_stack([heads, 1 - heads])


def test_soft_labels_become_two_weighted_rows() -> None:
    Recorder.seen.clear()
    form = Estimator(Recorder(0.75), "x")
    rows = rows_of(x=[1.0, 2.0, 3.0])
    heads, tails = np.array([3.0, 0.0, 3.0]), np.array([1.0, 0.0, 0.0])
    state = form.fit(rows, heads, tails, form.begin(rows, None))
    ((features, labels, weights),) = Recorder.seen
    assert features.tolist() == [[1.0], [3.0], [1.0]]  # the row without weight is left out
    assert labels.tolist() == [1, 1, 0]
    assert weights.tolist() == [3.0, 3.0, 1.0]
    # A constant of 6/7 explains this better than the classifier's 0.75.
    assert form.predict(state, rows) == pytest.approx(6 / 7)


def test_a_worse_classifier_is_not_taken() -> None:
    rows = rows_of(x=[1.0, 2.0])
    heads, tails = np.array([9.0, 1.0]), np.array([1.0, 9.0])
    tree = Estimator(DecisionTreeClassifier(random_state=0), "x")
    good = tree.fit(rows, heads, tails, tree.begin(rows, None))
    assert tree.predict(good, rows) == pytest.approx([0.9, 0.1])
    stump = Estimator(Recorder(0.9), "x")
    assert stump.fit(rows, heads, tails, good) is good
    assert tree.fit(rows, 0 * heads, 0 * tails, good) is good
    broken = Estimator(Recorder(np.nan), "x")
    with pytest.raises(ModelError, match="not probabilities"):
        broken.fit(rows, heads, tails, good)


def test_probabilities_stay_away_from_zero_and_one() -> None:
    rows = rows_of(x=[1.0, 2.0])
    form = Estimator(DecisionTreeClassifier(random_state=0), "x")
    begun = form.begin(rows, None)
    sure = form.fit(rows, np.array([5.0, 0.0]), np.array([0.0, 5.0]), begun)
    assert form.predict(sure, rows).tolist() == [1 - 1e-6, 1e-6]
    one_class = form.fit(rows, np.array([5.0, 5.0]), np.zeros(2), begun)
    assert one_class.fitted is None
    assert form.predict(one_class, rows).tolist() == [1 - 1e-6] * 2
    assert form.remarks(one_class, np.array([5.0, 5.0]), np.zeros(2)) == []


def test_random_starts_differ() -> None:
    form, rows = Estimator(LogisticRegression(), "x"), rows_of(x=[1.0])
    generators = np.random.default_rng(0).spawn(2)
    a, b = (form.predict(form.begin(rows, it), rows)[0] for it in generators)
    assert a != b
    assert form.predict(form.begin(rows, None), rows).tolist() == [0.5]


def test_a_log_without_clicks_is_a_constant() -> None:
    nothing = read_log(
        {
            "session": [1, 1, 2, 2],
            "query": [1] * 4,
            "doc": [1, 2, 1, 2],
            "rank": [1, 2, 1, 2],
            "click": [False] * 4,
            "price": [1.0, 2.0, 1.0, 2.0],
        }
    )
    model = DBN(attraction=Estimator(FOREST, "price"), continuation=Fixed(0.9))
    model.fit(nothing, EM(max_iter=3, tol=0))
    assert model.probability("attraction", {"price": [1.5]})[0] < 0.5


# -- what the classifier is given ------------------------------------------------------------------
def given(form: Estimator, rows: Rows) -> Any:
    return form.begin(rows, None).inputs.of(rows)


def test_a_matrix_has_numbers_as_they_are_and_a_column_per_level() -> None:
    rows = rows_of(x=[10.0, 20.0], brand=["b", "a"], rank=[2, 1], new=[True, False])
    form = Estimator(LogisticRegression(), "x", "brand", "rank", "new", categorical="rank")
    assert given(form, rows).tolist() == [[10, 1, 0, 1, 0, 1], [20, 0, 1, 0, 1, 0]]
    state = form.begin(rows, None)
    assert state.inputs.terms() == ["x", "new", "brand=a", "brand=b", "rank=1", "rank=2"]
    unseen = rows_of(x=[5.0], brand=["z"], rank=[1], new=[True])
    assert state.inputs.of(unseen).tolist() == [[5, 1, 0, 0, 1, 0]]
    assert form.known(state, unseen).tolist() == [False]


def test_wide_matrices_are_sparse_if_the_classifier_takes_them() -> None:
    from scipy import sparse

    n = 60
    rows = rows_of(x=np.arange(n) / n, doc=[f"d{i:02}" for i in range(n)])
    wide = given(Estimator(LogisticRegression(), "x", "doc"), rows)
    assert sparse.issparse(wide)
    assert wide.format == "csr"
    written_out = given(Estimator(HISTOGRAMS, "x", "doc"), rows)
    assert isinstance(written_out, np.ndarray)
    assert np.array_equal(wide.toarray(), written_out)
    form = Estimator(LogisticRegression(), "x", "doc")
    counts = np.full(n, 2.0), np.arange(n) + 1.0
    state = form.fit(rows, *counts, form.begin(rows, None))
    assert form.predict(state, rows)[0] > form.predict(state, rows)[-1]
    assert len(form.to_frame(state)) == 1 + 1 + n


class Untold:
    """A classifier that is not derived from scikit-learn's, and tells nothing about itself."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Untold:
        assert isinstance(X, np.ndarray)
        self.share = float(np.average(y, weights=sample_weight))
        return self

    def predict_proba(self, X: Any) -> Any:
        return np.tile([1 - self.share, self.share], (len(X), 1))


def test_who_does_not_tell_gets_no_sparse_matrix() -> None:
    rows = rows_of(doc=[f"d{i}" for i in range(60)])
    form = Estimator(Untold(), "doc")
    state = form.fit(rows, np.full(60, 3.0), np.ones(60), form.begin(rows, None))
    assert form.predict(state, rows) == pytest.approx(0.75)


def test_missing_numbers_are_refused_filled_or_kept(log: ClickLog) -> None:
    with pytest.raises(ClickLogError, match=r"'gap', a feature of 'attraction', has .* missing"):
        dbn(Estimator(HISTOGRAMS, "gap")).fit(log, SHORT)
    rows = rows_of(x=[1.0, None, 3.0], brand=["a", None, "b"])
    mean = Estimator(LogisticRegression(), "x", "brand", missing="mean")
    assert given(mean, rows)[:, 0].tolist() == [1.0, 2.0, 3.0]
    assert given(mean, rows)[:, 1:].sum(axis=1).tolist() == [1, 1, 1]  # null is a level
    keep = Estimator(HISTOGRAMS, "x", "brand", missing="keep")
    assert np.isnan(given(keep, rows)[1, 0])
    # In a frame the same two words mean the same; texts stay missing.
    frame = given(Estimator(LogisticRegression(), *"xy", as_frame=True, missing="mean"), three())
    assert frame["x"].to_list() == [1.0, 2.0, 3.0]
    assert frame["y"].to_list() == ["a", None, "b"]
    frame = given(Estimator(LogisticRegression(), *"xy", as_frame=True, missing="keep"), three())
    assert np.isnan(frame["x"][1])
    dbn(Estimator(HISTOGRAMS, "gap", missing="keep")).fit(log, SHORT)
    dbn(Estimator(LogisticRegression(), "gap", "maker", missing="mean")).fit(log, SHORT)
    piped = make_pipeline(columns_transformed("gap", texts=("maker",)), HISTOGRAMS)
    dbn(Estimator(piped, "gap", "maker", as_frame=True, missing="keep")).fit(log, SHORT)


def three() -> Rows:
    return rows_of(x=[1.0, None, 3.0], y=["a", None, "b"])


def test_what_a_classifier_cannot_take_it_says(log: ClickLog) -> None:
    voting = VotingClassifier([("a", FOREST), ("b", KNeighborsClassifier())], voting="soft")
    with pytest.raises(ModelError, match=r"could not be fitted on price.*sample"):
        dbn(Estimator(voting, "price")).fit(log, SHORT)
    with pytest.raises(ModelError, match=r"could not be fitted on gap.*contains NaN"):
        dbn(Estimator(LogisticRegression(), "gap", missing="keep")).fit(log, SHORT)
    with pytest.raises(ModelError, match=r"could not be fitted on brand.*string"):
        dbn(Estimator(LogisticRegression(), "brand", as_frame=True)).fit(log, SHORT)


def test_frames_are_polars_for_scikit_learn_and_pandas_for_others() -> None:
    pandas = pytest.importorskip("pandas")
    rows = rows_of(x=[1.0, 2.0], brand=["b", "a"])
    own = given(Estimator(LogisticRegression(), "x", "brand", as_frame=True), rows)
    assert isinstance(own, pl.DataFrame)
    other = Estimator(Recorder(), "x", "brand", categorical="brand", as_frame=True)
    state = other.begin(rows, None)
    frame = state.inputs.of(rows)
    assert isinstance(frame, pandas.DataFrame)
    assert frame["brand"].tolist() == ["b", "a"]
    assert frame["brand"].cat.categories.tolist() == ["a", "b"]
    unseen = state.inputs.of(rows_of(x=[1.0], brand=["z"]))
    assert unseen["brand"].isna().tolist() == [True]
    assert other.predict(other.fit(rows, np.ones(2), np.ones(2), state), rows).tolist() == [0.5] * 2


def test_levels_never_seen_are_answered_and_told(log: ClickLog) -> None:
    for name in ("logistic", "pipeline", "histograms, categories"):
        model = dbn(FORMS[name]).fit(log, SHORT)
        asked = {"price": [0.0, 0.0], "brand": ["acme", "unheard of"]}
        answers = model.probability("attraction", asked)
        assert np.all((answers > 0) & (answers < 1))
        state = model.states_["attraction"]
        rows = rows_of(price=asked["price"], brand=asked["brand"])
        assert model.forms["attraction"].known(state, rows).tolist() == [True, False]


def test_a_constant_column_is_told(log: ClickLog) -> None:
    with pytest.warns(GecasmoWarning, match="'same' is constant"):
        dbn(Estimator(HISTOGRAMS, "price", "same")).fit(log, SHORT)
    with pytest.warns(GecasmoWarning) as said:
        dbn(Estimator(LogisticRegression(), "same")).fit(log, SHORT)
    texts = " ".join(str(it.message) for it in said)
    assert "explains it no better than the same probability for all rows" in texts


def test_two_hundred_thousand_levels() -> None:
    n = 200_000
    rows = rows_of(doc=pl.Series(np.arange(n)).cast(pl.String))
    quick = {"max_iter": 2, "tol": None, "learning_rate": "constant", "eta0": 0.5, "alpha": 0.0}
    form = Estimator(SGDClassifier(loss="log_loss", random_state=0, **quick), "doc")
    heads = np.where(np.arange(n) % 2, 2.0, 0.5)
    state = form.fit(rows, heads, 2.5 - heads, form.begin(rows, None))
    assert state.fitted is not None
    p = form.predict(state, rows)
    assert p[1::2].mean() > p[::2].mean() + 0.1
    unseen = rows_of(doc=["new"])
    assert form.known(state, unseen).tolist() == [False]
    dense = Estimator(HISTOGRAMS, "doc")
    with pytest.raises(ModelError, match=r"200,000 rows by 200,000 columns.*'doc' 200,000"):
        dense.fit(rows, heads, 2.5 - heads, dense.begin(rows, None))


# -- what people see -------------------------------------------------------------------------------
def test_what_was_learned(log: ClickLog) -> None:
    def learned(form: Estimator) -> pl.DataFrame:
        return dbn(form).fit(log, SHORT).parameters["attraction"]

    levels = ["brand=acme", "brand=best", "brand=cult"]
    forest = learned(FORMS["forest"])
    assert forest["term"].to_list() == ["price", *levels]
    assert forest["importance"].sum() == pytest.approx(1)
    logistic = learned(FORMS["logistic"])
    assert logistic["term"].to_list() == ["intercept", "price", *levels]
    assert logistic.columns == ["term", "coefficient"]
    assert learned(FORMS["scaled"])["term"].to_list() == ["intercept", "price", *levels]
    names = ["numbers__price", *(f"texts__{it.replace('=', '_')}" for it in levels)]
    assert learned(FORMS["pipeline"])["term"].to_list() == ["intercept", *names]
    histograms = learned(FORMS["histograms"])
    assert histograms["classifier"][0].startswith("HistGradientBoostingClassifier(")
    assert histograms["constant"].to_list() == [None]

    class Silent(BaseEstimator):
        def fit(self, X: Any, y: Any = None) -> Silent:
            return self

        def transform(self, X: Any) -> Any:
            return X

    silent = learned(Estimator(make_pipeline(Silent(), FOREST), *BOTH))
    assert silent["term"].to_list() == [f"feature {i}" for i in range(4)]


def test_the_form_shows_its_options() -> None:
    form = Estimator(GaussianNB(), "a", "b", categorical="b", as_frame=True, missing="keep")
    assert repr(form) == (
        "Estimator(GaussianNB(), 'a', 'b', categorical=('b',), as_frame=True, missing='keep')"
    )
    assert repr(Estimator(GaussianNB(), "a", key="doc")).endswith("'a', key='doc')")
    assert repr(Estimator(GaussianNB(), "a", key=("q", "doc"))).endswith("key=('q', 'doc'))")
    assert "\n" not in repr(Estimator(PIPELINE, "a"))


# -- refusals --------------------------------------------------------------------------------------
class Uncopied:
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> None: ...

    def predict_proba(self, X: Any) -> None: ...


@pytest.mark.parametrize(
    ("classifier", "message"),
    [
        (LogisticRegression, r"LogisticRegression\): a classifier is an object"),
        ("forest", "a classifier with fit and predict_proba is wanted"),
        (Ridge(), "a classifier with predict_proba is wanted"),
        (SVC(), "CalibratedClassifierCV"),
        (SGDClassifier(), "a classifier with predict_proba is wanted"),
        (KNeighborsClassifier(), "KNeighborsClassifier takes no sample_weight"),
        (make_pipeline(StandardScaler(), KNeighborsClassifier()), "takes no sample_weight"),
        (Pipeline([("scale", StandardScaler()), ("end", "passthrough")]), "predict_proba"),
        (Uncopied(), "cannot be copied"),
    ],
)
def test_what_is_no_classifier_is_refused_when_the_form_is_made(
    classifier: Any, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        Estimator(classifier, "price")


def test_other_mistakes() -> None:
    with pytest.raises(ModelError, match="names of columns"):
        Estimator(GaussianNB())
    with pytest.raises(ModelError, match="none of its columns"):
        Estimator(GaussianNB(), "a", categorical="b")
    with pytest.raises(ModelError, match='choose "raise", "mean" or "keep"'):
        Estimator(GaussianNB(), "a", missing="zero")
    with pytest.raises(ModelError, match="takes offsets"):
        Sum(Estimator(GaussianNB(), "a"))


def test_the_core_works_without_scikit_learn() -> None:
    code = """
import sys
sys.modules["sklearn"] = None  # as if it were not installed
import gecasmo
try:
    gecasmo.Estimator(object(), "price")
except gecasmo.errors.ModelError as error:
    print(error)
del sys.modules["sklearn"]
print([name for name in sys.modules if name.split(".")[0] in ("sklearn", "skops", "lightgbm")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        'Estimator needs the package sklearn: pip install "gecasmo[sklearn]"',
        "[]",
    ]


# -- files -----------------------------------------------------------------------------------------
def own_function(x: Any) -> Any:
    return x


class Derived(LogisticRegression):
    """A class that only this file knows."""


@pytest.mark.parametrize(
    ("classifier", "message"),
    [
        (make_pipeline(FunctionTransformer(lambda x: x), FOREST), "lambda"),
        (make_pipeline(FunctionTransformer(own_function), FOREST), "own_function"),
        (Derived(), r"Derived.*run anybody's code"),
        (Recorder(0.3), "Recorder"),
        (make_pipeline(SplineTransformer(), LogisticRegression()), "BSpline"),
        (
            make_pipeline(Birch(n_clusters=None), LogisticRegression()),
            r"cannot be saved without pickle.*Birch",
        ),
    ],
)
def test_what_could_run_code_is_refused_when_it_is_saved(classifier: Any, message: str) -> None:
    rows = rows_of(price=[1.0, 2.0, 3.0, 4.0])
    form = Estimator(classifier, "price")
    heads = np.array([3.0, 2.0, 1.0, 1.0])
    state = form.fit(rows, heads, 4 - heads, form.begin(rows, None))
    with pytest.raises(SavedModelError, match=message):
        form.to_data(state)


def test_a_function_of_numpy_is_a_name_that_skops_trusts() -> None:
    rows = rows_of(price=[1.0, 20.0])
    form = Estimator(make_pipeline(FunctionTransformer(np.log1p), LogisticRegression()), "price")
    state = form.fit(rows, np.array([3.0, 1.0]), np.array([1.0, 3.0]), form.begin(rows, None))
    again, loaded = Estimator.from_data(*form.to_data(state))
    assert np.array_equal(again.predict(loaded, rows), form.predict(state, rows))


def test_a_form_that_was_never_fitted_can_be_kept() -> None:
    rows = rows_of(price=[1.0, 2.0])
    classifiers = [FOREST]
    try:
        from lightgbm import LGBMClassifier

        classifiers.append(LGBMClassifier(n_estimators=3))
    except ImportError:
        pass
    for classifier in classifiers:
        form = Estimator(classifier, "price", key="doc")
        again, state = Estimator.from_data(*form.to_data(form.begin(rows, None)))
        assert state.fitted is None
        assert again.predict(state, rows).tolist() == [0.5, 0.5]
        assert again.classifier.get_params() == form.classifier.get_params()
        assert again.key == ("doc",)


def tampered(content: bytes, change: Any) -> bytes:
    """A skops file with its description changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(name, data))
    return out.getvalue()


def test_a_file_cannot_choose_what_is_made() -> None:
    form, rows = Estimator(LogisticRegression(), "price"), rows_of(price=[1.0, 2.0])
    state = form.fit(rows, np.array([3.0, 1.0]), np.array([1.0, 3.0]), form.begin(rows, None))
    data, parts = form.to_data(state)

    def evil(name: str, content: bytes) -> bytes:
        if name != "schema.json":
            return content
        schema = json.loads(content)
        schema["__module__"], schema["__class__"] = "subprocess", "Popen"
        return json.dumps(schema).encode()

    with pytest.raises(SavedModelError, match=r"subprocess\.Popen.*saved with scikit-learn"):
        Estimator.from_data(data, {**parts, "classifier": tampered(parts["classifier"], evil)})
    with pytest.raises(SavedModelError, match="cannot be read"):
        Estimator.from_data(data, {**parts, "classifier": b"nothing of the kind"})
    with pytest.raises(SavedModelError, match="'pickle' of a classifier is not known"):
        Estimator.from_data(
            {**data, "classifier": {**data["classifier"], "format": "pickle"}}, parts
        )
    with pytest.raises(SavedModelError, match="no probability"):
        Estimator.from_data({**data, "constant": 7}, parts)


@pytest.mark.parametrize(
    "classifier", [FOREST, BOOSTING, HISTOGRAMS], ids=["forest", "boosting", "histograms"]
)
@pytest.mark.parametrize("fault", ["child", "feature", "circle"])
def test_trees_that_lead_nowhere_are_refused(classifier: Any, fault: str) -> None:
    """scikit-learn would follow them out of its memory."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    form, rows = Estimator(classifier, "x"), rows_of(x=x)
    heads = np.where(x > 0, 3.0, 1.0)
    state = form.fit(rows, heads, 4 - heads, form.begin(rows, None))
    data, parts = form.to_data(state)

    def bend(name: str, content: bytes) -> bytes:
        if not name.endswith(".npy"):
            return content
        array = np.load(io.BytesIO(content))
        names = array.dtype.names or ()
        left = "left_child" if "left_child" in names else "left"
        if left not in names:
            return content
        feature = "feature" if "feature" in names else "feature_idx"
        array[feature if fault == "feature" else left][0] = {"circle": 0}.get(fault, 100_000)
        out = io.BytesIO()
        np.save(out, array)
        return out.getvalue()

    with pytest.raises(SavedModelError, match="trees that no classifier has grown"):
        Estimator.from_data(data, {**parts, "classifier": tampered(parts["classifier"], bend)})


def test_lightgbm_text_that_is_none() -> None:
    pytest.importorskip("lightgbm")
    from gecasmo.forms.classifier_files import read_classifier

    described = {"format": "lightgbm", "options": {}, "is_fitted": True, "versions": {}}
    with pytest.raises(SavedModelError, match="does not begin with 'tree'"):
        read_classifier(described, b"no trees")


def test_classifiers_that_trust_their_arrays_are_refused() -> None:
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    from gecasmo.forms.classifier_files import write_classifier

    for classifier in (SVC(probability=True), KNeighborsClassifier()):
        for whole in (classifier, make_pipeline(StandardScaler(), classifier)):
            with pytest.raises(SavedModelError, match="follows numbers of a file"):
                write_classifier(whole, None)


def test_saving_without_skops_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    form, rows = Estimator(GaussianNB(), "x"), rows_of(x=[1.0, 2.0])
    data, parts = form.to_data(form.begin(rows, None))
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(SavedModelError, match=r'pip install "gecasmo\[sklearn\]"'):
        form.to_data(form.begin(rows, None))
    with pytest.raises(SavedModelError, match=r'pip install "gecasmo\[sklearn\]"'):
        Estimator.from_data(data, parts)
