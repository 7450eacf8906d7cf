"""Any classifier that follows scikit-learn's conventions."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError, extra
from gecasmo.forms.classifier_inputs import Inputs, final_step, inputs_from, learn_inputs
from gecasmo.forms.features import ByRows, FeatureCoding, check_categorical
from gecasmo.forms.form import Bools, Floats, Form, Parts, as_columns, as_key

# No answer is nearer to 0 or 1 than this: a forest is sure too early, and no page may become
# impossible for that.
NEAREST = 1e-6
# Up to this many rows a classifier works on one thread. Several gain nothing there, and wait for
# each other very long where processors are busy (HistGradientBoosting a hundred times longer).
FEW_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class EstimatorState:
    """A fitted classifier with the inputs it was fitted on; without one, a constant."""

    inputs: Inputs
    fitted: Any = None
    constant: float = 0.5
    following: Inputs | None = None  # for the next fit, if it is on other rows
    answers: ByRows = field(default_factory=ByRows)


class Estimator(Form):
    """Any scikit-learn classifier on feature columns: boosting, forests, pipelines, LightGBM.

    In each M-step a fresh copy is fitted on two rows for each row of the coin: one of class 1 with
    the expected heads as `sample_weight`, one of class 0 with the expected tails. It is taken if
    it explains them better than the classifier before; so a fit never loses, and ends when the
    classifier has no more to give. Probabilities are kept 1e-6 away from 0 and 1.

    Give the classifier a `random_state`: without one no two fits are the same. Rows with the same
    features are one row with a larger weight, and options that count samples, such as
    `min_samples_leaf`, count these, twice. Nothing but the classifier's own options keeps it from
    overfitting; compare models on sessions that were set apart.

    Parameters
    ----------
    classifier : object
        With `fit(X, y, sample_weight=...)` and `predict_proba`; in a pipeline the last step. It is
        copied, never changed.
    *columns : str
        Columns of the log (or of a frame given as `features`), or "rank", "page_length",
        "last_click", "distance", "clicks_above".
    categorical : str or sequence of str
        Columns of numbers that are names of categories, such as "rank".
    as_frame : bool
        By default the classifier gets a matrix: numbers as they are (not standardised), texts as a
        column of zeros and ones per level, sparse if it is wide. With True it gets a data frame
        with the columns themselves, for pipelines that begin with a ColumnTransformer; those
        listed as `categorical` come as categories, for boosting that treats these by itself.
        The frame is one of Polars for scikit-learn's classifiers, else one of pandas.
    missing : "raise", "mean" or "keep"
        What to do with missing and infinite values: refuse them, take the mean of the column (of
        texts: a level of their own), or hand them to the classifier as NaN.
    key : str or tuple of str
        Rows by these columns instead of one row per combination of features; see `Logistic`.

    Examples
    --------
    >>> from gecasmo import DBN, Estimator
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> boosting = HistGradientBoostingClassifier(max_iter=30, random_state=0)
    >>> model = DBN(attraction=Estimator(boosting, "bm25", "price"))
    >>> model.keys["attraction"]
    ('bm25', 'price')
    """

    def __init__(
        self,
        classifier: Any,
        *columns: str,
        categorical: str | Sequence[str] = (),
        as_frame: bool = False,
        missing: str = "raise",
        key: str | tuple[str, ...] | None = None,
    ) -> None:
        self.classifier, self._weight_name = _checked(classifier)
        self.columns = as_columns(columns, "Estimator")
        self.categorical = check_categorical(categorical, self.columns, "Estimator")
        if missing not in ("raise", "mean", "keep"):
            raise ModelError(f'Estimator(missing={missing!r}): choose "raise", "mean" or "keep".')
        self.as_frame = bool(as_frame)
        self.missing = missing
        self.key = as_key(key)

    def __repr__(self) -> str:
        parts = [self._name(), *(repr(column) for column in self.columns)]
        if self.categorical:
            parts.append(f"categorical={self.categorical!r}")
        if self.as_frame:
            parts.append("as_frame=True")
        if self.missing != "raise":
            parts.append(f"missing={self.missing!r}")
        if self.key is not None:
            parts.append(f"key={self.key[0]!r}" if len(self.key) == 1 else f"key={self.key!r}")
        return f"Estimator({', '.join(parts)})"

    # -- the protocol --------------------------------------------------------------------------
    def begin(self, rows: Rows, generator: np.random.Generator | None) -> EstimatorState:
        inputs = learn_inputs(
            rows, self.classifier, self.columns, self.categorical, self.as_frame, self.missing
        )
        logit = 0.0 if generator is None else float(generator.normal())
        return EstimatorState(inputs, constant=float(1 / (1 + np.exp(-logit))))

    def fit(
        self, rows: Rows, heads: Floats, tails: Floats, previous: EstimatorState
    ) -> EstimatorState:
        total_heads, total_tails = float(heads.sum()), float(tails.sum())
        if not total_heads + total_tails > 0:
            return previous
        inputs = previous.following or previous.inputs
        share = float(np.clip(total_heads / (total_heads + total_tails), NEAREST, 1 - NEAREST))
        candidates = [EstimatorState(inputs, constant=share)]
        if total_heads > 0 and total_tails > 0:
            fitted = self._fitted(inputs, rows, heads, tails)
            candidates.insert(0, EstimatorState(inputs, fitted))

        def value(state: EstimatorState) -> float:
            p = self.predict(state, rows)
            return float(heads @ np.log(p) + tails @ np.log1p(-p))

        best = max(candidates, key=value)
        return best if value(best) >= value(previous) else previous

    def predict(self, state: EstimatorState, rows: Rows) -> Floats:
        if state.fitted is None or not len(rows):
            return np.full(len(rows), state.constant)
        if rows not in state.answers:
            state.answers[rows] = self._ask(state.fitted, state.inputs.of(rows))
        answers: Floats = state.answers[rows]
        return answers

    def known(self, state: EstimatorState, rows: Rows) -> Bools:
        """Tell of which rows every level was there in the fit."""
        return state.inputs.known(rows)

    def remarks(self, state: EstimatorState, heads: Floats, tails: Floats) -> list[str]:
        remarks = [
            f"the column '{name}' is constant, so it says nothing"
            for name in state.inputs.coding.constant
        ]
        if state.fitted is None and heads.sum() > 0 and tails.sum() > 0:
            remarks.append(
                f"{self._name()} explains it no better than the same probability for all rows, "
                f"{state.constant:.3g}, which was taken. Its options may be too cautious, or "
                "change what its probabilities mean (class_weight does)"
            )
        return remarks

    def adopted(self, state: EstimatorState, rows: Rows) -> EstimatorState:
        """Keep the state, which answers until the next fit; levels are learned anew."""
        begun = self.begin(rows, None)
        old, new = state.inputs.coding, begun.inputs.coding
        if old.numeric != new.numeric or list(old.levels) != list(new.levels):
            return begun
        return replace(state, following=begun.inputs)

    # -- for people ----------------------------------------------------------------------------
    def to_frame(self, state: EstimatorState) -> pl.DataFrame:
        """Show importances or coefficients of what the classifier was given, if it has some."""
        last = final_step(state.fitted)
        importance = getattr(last, "feature_importances_", None)
        if importance is not None:
            terms = _terms(state, len(importance))
            return pl.DataFrame({"term": terms, "importance": np.asarray(importance, float)})
        coefficients = getattr(last, "coef_", None)
        if coefficients is not None and np.shape(coefficients)[0] == 1:
            dense = coefficients.toarray() if hasattr(coefficients, "toarray") else coefficients
            values = np.asarray(dense, float).ravel()
            start = np.ravel(getattr(last, "intercept_", ())).astype(float)
            terms = ["intercept"] * len(start) + _terms(state, len(values))
            return pl.DataFrame({"term": terms, "coefficient": np.concatenate([start, values])})
        constant = state.constant if state.fitted is None else None
        return pl.DataFrame(
            {"classifier": [self._name()], "constant": [constant]},
            schema_overrides={"constant": pl.Float64},
        )

    def _name(self) -> str:
        return " ".join(repr(self.classifier).split())

    # -- keeping -------------------------------------------------------------------------------
    def to_data(self, state: EstimatorState) -> tuple[dict[str, Any], Parts]:
        from gecasmo.forms.classifier_files import write_classifier

        described, content = write_classifier(self.classifier, state.fitted)
        coding, frames = state.inputs.coding.to_data()
        data = {
            "columns": list(self.columns),
            "categorical": list(self.categorical),
            "as_frame": self.as_frame,
            "missing": self.missing,
            "key": None if self.key is None else list(self.key),
            "constant": state.constant,
            "coding": coding,
            "classifier": described,
        }
        return data, {**frames, "classifier": content}

    @classmethod
    def from_data(cls, data: dict[str, Any], parts: Any) -> tuple[Estimator, EstimatorState]:
        from gecasmo.forms.classifier_files import read_classifier

        classifier, fitted = read_classifier(data["classifier"], parts["classifier"])
        form = cls(
            classifier,
            *data["columns"],
            categorical=tuple(data["categorical"]),
            as_frame=data["as_frame"],
            missing=data["missing"],
            key=None if data["key"] is None else tuple(data["key"]),
        )
        constant = float(data["constant"])
        if not 0 < constant < 1:
            raise SavedModelError("The constant of an estimator is no probability.")
        coding = FeatureCoding.from_data(data["coding"], parts)
        inputs = inputs_from(coding, classifier, form.categorical, form.as_frame, form.missing)
        return form, EstimatorState(inputs, fitted, constant)

    # -- the parts -----------------------------------------------------------------------------
    def _fitted(self, inputs: Inputs, rows: Rows, heads: Floats, tails: Floats) -> Any:
        """Fit a classifier on soft labels: a row of each class, with its weight."""
        up, down = np.flatnonzero(heads > 0), np.flatnonzero(tails > 0)
        labels = np.repeat([1, 0], [len(up), len(down)])
        weights = np.concatenate([heads[up], tails[down]])
        features = inputs.some(rows, np.concatenate([up, down]))
        fresh = extra("sklearn.base", "Estimator").clone(self.classifier)
        try:
            with _threads(len(labels)):
                fresh.fit(features, labels, **{self._weight_name: weights})
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"{self._name()} could not be fitted on {', '.join(self.columns)}: {error}"
            ) from error
        return fresh

    def _ask(self, fitted: Any, features: Any) -> Floats:
        with _threads(features.shape[0]):
            answer = np.asarray(fitted.predict_proba(features), dtype=np.float64)
        # Both classes were there in the fit, so there are two columns.
        heads = answer[:, list(getattr(fitted, "classes_", (0, 1))).index(1)]
        if not np.all(np.isfinite(heads)):
            raise ModelError(f"{self._name()} answers with numbers that are no probabilities.")
        return np.clip(heads, NEAREST, 1 - NEAREST)


def _checked(classifier: Any) -> tuple[Any, str]:
    """Copy a classifier that can do what is needed, and tell what it calls its weights."""
    base = extra("sklearn.base", "Estimator")
    validation = extra("sklearn.utils.validation", "Estimator")
    if isinstance(classifier, type):
        name = classifier.__name__
        raise ModelError(f"Estimator({name}): a classifier is an object: {name}().")
    name = " ".join(repr(classifier).split())
    lacking = [it for it in ("fit", "predict_proba") if not hasattr(classifier, it)]
    if lacking:
        raise ModelError(
            f"Estimator({name}): a classifier with {' and '.join(lacking)} is wanted. One that "
            "only decides can be given probabilities by sklearn's CalibratedClassifierCV."
        )
    weight_name, last = "sample_weight", classifier
    while hasattr(last, "steps"):
        weight_name = weight_name.replace("sample_weight", f"{last.steps[-1][0]}__sample_weight")
        last = last.steps[-1][1]
    if not (validation.has_fit_parameter(last, "sample_weight") or _hands_on(last)):
        raise ModelError(
            f"Estimator({name}): the fit of {type(last).__name__} takes no sample_weight, and "
            "expected heads and tails are weights. Choose a classifier that takes weights."
        )
    try:
        return base.clone(classifier), weight_name
    except TypeError as error:
        raise ModelError(
            f"Estimator({name}) cannot be copied ({error}). A class of your own has to derive from "
            "sklearn.base.BaseEstimator."
        ) from None


def _hands_on(classifier: Any) -> bool:
    """Whether a classifier made of others hands its options of fit to these, as voting does."""
    options = inspect.signature(classifier.fit).parameters.values()
    if not any(option.kind is option.VAR_KEYWORD for option in options):
        return False
    return bool({"estimator", "estimators"} & set(getattr(classifier, "get_params", dict)()))


def _threads(n_rows: int) -> AbstractContextManager[Any]:
    """Allow one thread for few rows, else as many as the classifier likes."""
    if n_rows > FEW_ROWS:
        return nullcontext()
    limits: AbstractContextManager[Any] = extra("threadpoolctl", "Estimator").threadpool_limits(1)
    return limits


def _terms(state: EstimatorState, n: int) -> list[str]:
    """Name what the last step of a classifier reads, as far as that can be known."""
    names = state.inputs.terms()
    if hasattr(state.fitted, "steps") and len(state.fitted.steps) > 1:
        given = None if state.inputs.as_frame else names
        try:
            names = [str(it) for it in state.fitted[:-1].get_feature_names_out(given)]
        except (AttributeError, ValueError):  # a step that does not tell
            names = []
    return names if len(names) == n else [f"feature {number}" for number in range(n)]
