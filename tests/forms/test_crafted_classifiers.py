"""A saved classifier is data: no file leads compiled code out of its memory."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skops")

import skops.io
from crafted_child import KINDS
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures
from sklearn.tree import DecisionTreeClassifier

from gecasmo.errors import SavedModelError
from gecasmo.forms.classifier_files import read_classifier, write_classifier
from gecasmo.forms.lightgbm_text import rewritten

MORE = int(os.environ.get("GECASMO_EXAMPLES", "1"))
RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=300), RNG.integers(0, 6, 300)])
Y = X[:, 0] + X[:, 1] + RNG.normal(size=300) > 3


def read(classifier: Any, **described: Any) -> Any:
    """What comes back of a classifier whose attributes somebody has changed."""
    described = {"format": "skops", "is_fitted": True, "versions": {}, **described}
    return read_classifier(described, skops.io.dumps(classifier))[1]


# -- scikit-learn ------------------------------------------------------------------------------
def boosting() -> GradientBoostingClassifier:
    return GradientBoostingClassifier(n_estimators=3, random_state=0).fit(X, Y)


def widened(it: Any) -> None:
    it.estimators_ = np.hstack([it.estimators_] * 40)


def widened_honestly(it: Any) -> None:
    widened(it)
    it.n_trees_per_iteration_ = 40


def of_other_features(it: Any) -> None:
    """Sparse rows write into as much room as the tree says that it needs."""
    narrow = DecisionTreeClassifier(max_depth=2).fit(X[:, :1], Y)
    narrow.n_features_in_ = 2
    it.estimators_[0] = narrow


def of_more_outputs(it: Any) -> None:
    it.estimators_[0].tree_ = (
        DecisionTreeClassifier(max_depth=2).fit(X, np.column_stack([Y, ~Y])).tree_
    )


def beginning_with_another(it: Any) -> None:
    it.init_ = LogisticRegression().fit(X, Y)


def classifier_in_a_regression(it: Any) -> None:
    it.estimators_[0, 0].tree_ = DecisionTreeClassifier(max_depth=2).fit(X, Y).tree_


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (boosting, widened),
        (boosting, widened_honestly),
        (boosting, beginning_with_another),
        (boosting, classifier_in_a_regression),
        (boosting, lambda it: setattr(it, "estimators_", it.estimators_.ravel())),
        (boosting, lambda it: setattr(it._loss, "is_multiclass", True)),
        (lambda: RandomForestClassifier(2, random_state=0).fit(X, Y), of_other_features),
        (lambda: RandomForestClassifier(2, random_state=0).fit(X, Y), of_more_outputs),
        (
            lambda: RandomForestClassifier(2, random_state=0).fit(X, Y),
            lambda it: setattr(it, "n_features_in_", 1),
        ),
    ],
)
def test_ensembles_that_no_fit_has_made_are_refused(
    make: Callable[[], Any], change: Callable[[Any], None]
) -> None:
    """Each aborted the process when it predicted, or wrote where it had no business."""
    classifier = make()
    assert np.array_equal(read(classifier).predict_proba(X), classifier.predict_proba(X))
    change(classifier)
    with pytest.raises(SavedModelError, match="The file holds"):
        read(classifier)


def histograms() -> Any:
    made = HistGradientBoostingClassifier(max_iter=2, categorical_features=[1], random_state=0)
    return made.fit(X, Y)


@pytest.mark.parametrize("category", [256.0, -1.0, 1e9, np.nan])
def test_categories_beyond_their_bits_are_refused(category: float) -> None:
    classifier = histograms()
    assert np.array_equal(read(classifier).predict_proba(X), classifier.predict_proba(X))
    # The column of categories comes first.
    classifier._bin_mapper.bin_thresholds_[0][0] = category
    with pytest.raises(SavedModelError, match="The file holds trees"):
        read(classifier)


def test_columns_that_get_lost_before_the_trees_are_refused() -> None:
    classifier = histograms()
    name, encoder, mask = classifier._preprocessor.transformers_[1]
    classifier._preprocessor.transformers_[1] = (name, encoder, np.zeros_like(mask))
    with pytest.raises(SavedModelError, match="The file holds trees"):
        read(classifier)


@pytest.mark.parametrize(
    "change",
    [
        lambda it: setattr(it, "_n_features_outs", [1]),
        lambda it: it._drop_idx_after_grouping.__setitem__(0, -1),
        lambda it: it._default_to_infrequent_mappings.__setitem__(0, None),
        lambda it: it._infrequent_indices.__setitem__(0, np.array([10**6])),
    ],
)
def test_encoders_with_columns_that_are_not_there_are_refused(change: Any) -> None:
    rng = np.random.default_rng(0)
    texts = rng.choice(6, (300, 1), p=[0.3, 0.3, 0.2, 0.1, 0.05, 0.05])
    encoder = OneHotEncoder(min_frequency=40, handle_unknown="infrequent_if_exist", drop="first")
    classifier = make_pipeline(encoder, LogisticRegression()).fit(texts, Y)
    assert np.array_equal(read(classifier).predict_proba(texts), classifier.predict_proba(texts))
    change(classifier.steps[0][1])
    with pytest.raises(SavedModelError, match="categories that no encoder has learned"):
        read(classifier)


def test_words_beyond_their_vocabulary_are_refused() -> None:
    words = np.array(["red", "blue", "red blue"])
    classifier = make_pipeline(CountVectorizer(), LogisticRegression()).fit(words, [0, 1, 1])
    read(classifier)
    classifier.steps[0][1].vocabulary_["red"] = 10**6
    with pytest.raises(SavedModelError, match="categories that no encoder has learned"):
        read(classifier)


def test_powers_that_take_for_ever_are_refused() -> None:
    classifier = make_pipeline(PolynomialFeatures(2), LogisticRegression()).fit(X, Y)
    assert np.array_equal(read(classifier).predict_proba(X), classifier.predict_proba(X))
    classifier.steps[0][1]._max_degree = 10**9
    with pytest.raises(SavedModelError, match="The file holds"):
        read(classifier)


def test_no_file_holds_sparse_matrices() -> None:
    """Compiled code follows their numbers, too."""
    with pytest.raises(SavedModelError, match="csr_matrix"):
        read(LogisticRegression().fit(X, Y).sparsify())


def test_random_numbers_come_from_within_their_state() -> None:
    source = np.random.RandomState(1)
    read(RandomForestClassifier(2, random_state=source).fit(X, Y))
    state = source.get_state(legacy=False)
    state["state"]["pos"] = 10**6
    source.set_state(state)
    with pytest.raises(SavedModelError, match="source of random numbers"):
        read(RandomForestClassifier(2, random_state=source))


def test_what_nobody_has_looked_at_is_refused() -> None:
    with pytest.raises(SavedModelError, match="contains IsolationForest, which is not loaded"):
        read(make_pipeline(ColumnTransformer([("a", IsolationForest(), [0])])))
    from sklearn.cluster import KMeans

    with pytest.raises(SavedModelError, match="contains KMeans, whose compiled code"):
        write_classifier(make_pipeline(KMeans(2), LogisticRegression()), None)


def test_a_classifier_does_not_grow_when_it_is_unpacked() -> None:
    content = skops.io.dumps(LogisticRegression(), compression=zipfile.ZIP_DEFLATED)
    described = {"format": "skops", "is_fitted": False, "versions": {}}
    with pytest.raises(SavedModelError, match="is packed"):
        read_classifier(described, content)


def test_an_array_that_says_it_is_larger_is_refused() -> None:
    classifier = LogisticRegression().fit(X, Y)
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(skops.io.dumps(classifier))) as old,
        zipfile.ZipFile(out, "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"(1, 2)", b"(9, 2)"))
    described = {"format": "skops", "is_fitted": True, "versions": {}}
    with pytest.raises(SavedModelError, match="cannot be read"):
        read_classifier(described, out.getvalue())


# -- LightGBM ----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def trees() -> str:
    """The text of some trees, one of them with categories."""
    lightgbm = pytest.importorskip("lightgbm")
    options = {"n_estimators": 3, "num_leaves": 5, "verbose": -1, "n_jobs": 1}
    classifier = lightgbm.LGBMClassifier(**options).fit(X, Y, categorical_feature=[1])
    text: str = classifier.booster_.model_to_string()
    return text


def test_trees_written_anew_say_the_same(trees: str) -> None:
    import lightgbm

    rows = np.vstack([X, [[np.nan, np.nan], [1e300, -5.0], [0.0, 99.0]]])
    once = rewritten(trees)
    assert rewritten(once) == once
    before, after = (lightgbm.Booster(model_str=text).predict(rows) for text in (trees, once))
    assert np.array_equal(before, after)


def with_line(text: str, name: str, change: Callable[[str], str]) -> str:
    line = next(line for line in text.split("\n") if line.startswith(f"{name}="))
    return text.replace(line, change(line), 1)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        # What the first word of a field is replaced by.
        ("split_feature", "99999", "asks for a feature that is not there"),
        ("left_child", "99999", "leads out of itself or in circles"),
        ("left_child", "0", "leads out of itself or in circles"),
        ("right_child", "-99999", "leads to a leaf that is not there"),
        ("threshold", "x", "cannot be read"),
        ("leaf_value", "", "another number of leaves than it says"),
        ("leaf_value", "nan", "cannot be read"),
        ("leaf_value", "1e999", "numbers that are too large"),
        ("num_leaves", "1000000000", "another number of leaves than it says"),
        ("num_cat", "7", "more categories than nodes"),
        ("cat_boundaries", "5", "categories that do not fit their table"),
        ("decision_type", "13", "decides in a way that is not known"),
        ("max_feature_idx", "5", "feature_names does not fit 6 features"),
        ("num_class", "2", "not a classifier with two classes"),
        ("objective", "multiclass", "objective is 'multiclass"),
        ("is_linear", "1", "linear trees"),
        ("Tree", "7", "where tree 0 should be there is 'Tree=7'"),
        ("version", "v99", "version is 'v99'"),
    ],
)
def test_trees_that_lead_astray_are_refused(
    trees: str, name: str, change: str, message: str
) -> None:
    """LightGBM itself would crash on most of them, or never end."""

    def first_word(line: str) -> str:
        return f"{name}={' '.join([change, *line.partition('=')[2].split(' ')[1:]]).strip()}"

    with pytest.raises(SavedModelError, match=message):
        rewritten(with_line(trees, name, first_word))


def test_sizes_of_trees_are_worked_out_anew(trees: str) -> None:
    import lightgbm

    lying = with_line(trees, "tree_sizes", lambda line: "tree_sizes=999999999 1 1")
    after = lightgbm.Booster(model_str=rewritten(lying)).predict(X)
    assert np.array_equal(after, lightgbm.Booster(model_str=trees).predict(X))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        # A field that comes again, behind the end of a tree.
        (
            lambda text: text.replace("\n\n\nTree=1", "\n\nleft_child=9 9 9 9\n\nTree=1"),
            "where tree 1 should be",
        ),
        (lambda text: with_line(text, "left_child", lambda line: f"{line}\n{line}"), "twice"),
        (lambda text: with_line(text, "version", lambda line: f"{line}\n{line}"), "twice"),
        (
            lambda text: with_line(text, "left_child", lambda line: f"{line}\x0bright_child=9"),
            "x0b",
        ),
        (lambda text: with_line(text, "left_child", lambda line: f"{line}\rleft_child=9"), r"\\r"),
        (lambda text: with_line(text, "leaf_value", lambda line: line + "\x00"), "x00"),
        (lambda text: text[: len(text) // 3], "no end|twice|number"),
        (lambda text: text.partition("\n")[2], "does not begin with 'tree'"),
        (lambda text: text.replace("end of trees", ""), "where tree 3 should be"),
        (lambda text: text.replace(":null", ":[[{}]]"), "categories of its columns"),
        (
            lambda text: with_line(text, "feature_names", lambda line: "feature_names=a a"),
            "the same",
        ),
    ],
)
def test_texts_that_two_readers_read_differently_are_refused(
    trees: str, change: Callable[[str], str], message: str
) -> None:
    assert change(trees) != trees
    with pytest.raises(SavedModelError, match=message):
        rewritten(change(trees))


def test_a_child_of_two_parents_is_refused(trees: str) -> None:
    """Whoever goes down both ways doubles their number at every node."""
    chain = "left_child=1 2 3 -1\nright_child=1 2 3 -2"
    left = next(line for line in trees.split("\n") if line.startswith("left_child="))
    right = next(line for line in trees.split("\n") if line.startswith("right_child="))
    with pytest.raises(SavedModelError, match="leads to one place in two ways"):
        rewritten(trees.replace(f"{left}\n{right}", chain, 1))


def test_options_of_a_file_name_no_files() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    described = {"format": "lightgbm", "is_fitted": False, "versions": {}}
    options = {"forcedsplits_filename": "/etc/passwd"}
    with pytest.raises(SavedModelError, match="names files or machines"):
        read_classifier({**described, "options": options}, b"")
    with pytest.raises(SavedModelError, match="only numbers, texts and truth values"):
        read_classifier({**described, "options": {"objective": {"a": 1}}}, b"")
    classifier = lightgbm.LGBMClassifier(min_data_in_leaf=3, data_sample_strategy="bagging")
    write_classifier(classifier, None)


# -- any damage --------------------------------------------------------------------------------
def asked(kind: str, first: int, last: int, tmp_path: Path) -> list[dict[str, Any]]:
    """How a process ended that read and asked so many changed files."""
    script, note = Path(__file__).with_name("crafted_child.py"), tmp_path / "case"
    command = [sys.executable, str(script), kind, str(first), str(last), str(note)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 10 * (last - first))
    case = note.read_text() if note.exists() else "none"
    assert done.returncode == 0, f"case {case} ended with {done.returncode}: {done.stderr[-800:]}"
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.skipif(MORE > 1, reason="the long version below does the same")
def test_changed_files_are_refused_or_answer(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    ends = asked("all", 0, 12, tmp_path)
    assert [end["kind"] for end in ends] == list(KINDS)
    assert sum(end["refused"] for end in ends) > 20
    assert sum(end["asked"] for end in ends) > 20


@pytest.mark.skipif(MORE == 1, reason="takes minutes; make soak")
@pytest.mark.parametrize("kind", KINDS)
def test_many_changed_files_are_refused_or_answer(kind: str, tmp_path: Path) -> None:
    if kind == "lightgbm":
        pytest.importorskip("lightgbm")
    asked(kind, 0, 200 * MORE, tmp_path)
