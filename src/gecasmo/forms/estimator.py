"""Any classifier that follows scikit-learn's conventions."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, extra
from gecasmo.forms import saved
from gecasmo.forms.features import (
    ByRows,
    FeatureCoding,
    as_floats,
    check_categorical,
    learn_coding,
)
from gecasmo.forms.form import Bools, Floats, Form, Parts, as_columns, as_key
from gecasmo.kernels.threads import default_threads

# No answer is nearer to 0 or 1 than this: a forest is sure too early, and no page may become
# impossible for that.
NEAREST = 1e-6
# Up to this many rows a classifier works on one thread. Several gain nothing there, and wait for
# each other very long where processors are busy (HistGradientBoosting a hundred times longer).
FEW_ROWS = 20_000

# From this many columns on a matrix is sparse, if the classifier takes that.
WIDE = 50
# The most numbers of a matrix that is written out: one gigabyte.
MOST_NUMBERS = 2**27


@dataclass(frozen=True, eq=False)
class Inputs:
    """How rows become what a classifier reads; learned once, from the rows of a fit.

    As a matrix: numbers as they are, then a column of zeros and ones per level of each categorical
    column, all zero for a level that was not there. As a frame: the columns themselves; those
    called categorical become categories, and levels that were not there are missing.
    """

    coding: FeatureCoding
    as_frame: bool
    missing: str
    in_pandas: bool  # frames are Polars' for scikit-learn and pandas' for everybody else
    takes_sparse: bool
    categorical: tuple[str, ...]
    _made: ByRows = field(default_factory=ByRows)

    def of(self, rows: Rows) -> Any:
        """Make the inputs of some rows, one line each; kept for as long as the rows are."""
        if rows not in self._made:
            features = rows.features(self.coding.columns)
            self._made[rows] = self._frame(features) if self.as_frame else self._matrix(features)
        return self._made[rows]

    def some(self, rows: Rows, chosen: NDArray[np.int64]) -> Any:
        """Choose the inputs of some rows, in that order."""
        made = self.of(rows)
        return made.iloc[chosen] if self.as_frame and self.in_pandas else made[chosen]

    def known(self, rows: Rows) -> NDArray[np.bool_]:
        """Tell of which rows every level was there in the fit."""
        features = rows.features(self.coding.columns)
        known = np.ones(len(rows), bool)
        for name in self.coding.levels:
            known &= self.coding.level_numbers(features[name], name) >= 0
        return known

    def terms(self) -> list[str]:
        """Name the columns of the matrix, or of the frame."""
        if self.as_frame:
            return list(self.coding.columns)
        levels = self.coding.levels.items()
        return [
            *self.coding.numeric,
            *(f"{name}={level}" for name, values in levels for level in values.to_list()),
        ]

    # -- a matrix ------------------------------------------------------------------------------
    def _matrix(self, features: pl.DataFrame) -> Any:
        numeric = np.empty((len(features), len(self.coding.numeric)))
        for place, name in enumerate(self.coding.numeric):
            numeric[:, place] = self._filled(as_floats(features[name]), name)
        levels = [self.coding.level_numbers(features[name], name) for name in self.coding.levels]
        sizes = list(self.coding.n_levels.values())
        n_columns = numeric.shape[1] + sum(sizes)
        # A missing number in a sparse matrix is more than most classifiers can take.
        if self.takes_sparse and n_columns > WIDE and not np.isnan(numeric).any():
            return _sparse(numeric, levels, sizes)
        self._check_size(len(features), n_columns)
        matrix = np.zeros((len(features), n_columns))
        matrix[:, : numeric.shape[1]] = numeric
        start = numeric.shape[1]
        for level, size in zip(levels, sizes, strict=True):
            there = np.flatnonzero(level >= 0)
            matrix[there, start + level[there]] = 1.0
            start += size
        return matrix

    def _check_size(self, n_rows: int, n_columns: int) -> None:
        if n_rows * n_columns <= MOST_NUMBERS:
            return
        sizes = ", ".join(f"'{name}' {size:,}" for name, size in self.coding.n_levels.items())
        raise ModelError(
            f"Estimator: {n_rows:,} rows by {n_columns:,} columns of zeros and ones are too many "
            f"to write out (levels: {sizes}), and this classifier takes no sparse matrix. Choose "
            "one that does (in a pipeline every step has to, such as StandardScaler("
            "with_mean=False)), leave out the column, or code it yourself with as_frame=True."
        )

    # -- a frame -------------------------------------------------------------------------------
    def _frame(self, features: pl.DataFrame) -> Any:
        columns = []
        for column in features.get_columns():
            name = column.name
            if name in self.categorical:
                levels = self.coding.levels[name].drop_nulls().cast(pl.String)
                column = column.cast(pl.String).cast(pl.Enum(levels), strict=False)
            elif name in self.coding.numeric and column.null_count():
                # Classifiers know a missing number as NaN.
                column = pl.Series(name, self._filled(as_floats(column), name))
            columns.append(column)
        frame = pl.DataFrame(columns)
        return _as_pandas(frame) if self.in_pandas else frame

    def _filled(self, values: Floats, name: str) -> Floats:
        if self.missing == "keep":
            return values
        mean = self.coding.mean[self.coding.numeric.index(name)]
        return np.where(np.isnan(values), mean, values)


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

    # -- the protocol --------------------------------------------------------------------------
    def begin(self, rows: Rows, generator: np.random.Generator | None) -> EstimatorState:
        inputs = self._inputs(learn_coding(rows, self.columns, self.categorical))
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
        try:
            learned = _learned(state)
        except Exception:  # a classifier that does not tell, or not as others do
            learned = None
        if learned is not None:
            return learned
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
        learned = {"constant": state.constant, "coding": coding, "classifier": described}
        return {**self.options(), **learned}, {**frames, "classifier": content}

    @classmethod
    def from_data(cls, data: dict[str, Any], parts: Any) -> tuple[Estimator, EstimatorState]:
        from gecasmo.forms.classifier_files import read_classifier

        classifier, fitted = read_classifier(data["classifier"], parts["classifier"])
        form = cls.from_options(data, classifier)
        constant = saved.number(data["constant"], "The constant of an estimator", least=0, most=1)
        constant = float(np.clip(constant, NEAREST, 1 - NEAREST))
        coding = FeatureCoding.from_data(data["coding"], parts)
        return form, EstimatorState(form._inputs(coding), fitted, constant)

    # -- the parts -----------------------------------------------------------------------------
    def _inputs(self, coding: FeatureCoding) -> Inputs:
        in_pandas = not type(final_step(self.classifier)).__module__.startswith("sklearn.")
        return Inputs(
            coding,
            self.as_frame,
            self.missing,
            self.as_frame and in_pandas,
            _takes_sparse(self.classifier),
            self.categorical,
        )

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
        n_rows = features.shape[0]
        try:
            with _threads(n_rows):
                answer = np.asarray(fitted.predict_proba(features), dtype=np.float64)
            # Both classes were there in the fit, so there are two columns.
            heads = answer[:, list(getattr(fitted, "classes_", (0, 1))).index(1)]
        except Exception as error:  # it is the user's own, or comes from a file
            raise ModelError(
                f"{self._name()} cannot tell the probabilities of {n_rows:,} rows: {error}"
            ) from error
        if heads.shape != (n_rows,) or not np.all(np.isfinite(heads)):
            raise ModelError(f"{self._name()} answers with numbers that are not probabilities.")
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
            f"Estimator({name}): a classifier with {' and '.join(lacking)} is wanted. sklearn's "
            f"CalibratedClassifierCV adds probabilities to a classifier that has none."
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
    """Allow one thread for few rows, else as many as fits may use."""
    limits: AbstractContextManager[Any] = threadpool_limits(
        1 if n_rows <= FEW_ROWS else default_threads()
    )
    return limits


def _learned(state: EstimatorState) -> pl.DataFrame | None:
    """Show importances or coefficients by name, as far as names can be known."""
    last = final_step(state.fitted)
    importance = getattr(last, "feature_importances_", None)
    if importance is not None:
        terms = _terms(state, len(importance))
        return pl.DataFrame({"term": terms, "importance": np.asarray(importance, float)})
    coefficients = getattr(last, "coef_", None)
    if coefficients is None or np.shape(coefficients)[0] != 1:
        return None
    dense = coefficients.toarray() if hasattr(coefficients, "toarray") else coefficients
    values = np.asarray(dense, float).ravel()
    start = np.ravel(getattr(last, "intercept_", ())).astype(float)
    terms = ["intercept"] * len(start) + _terms(state, len(values))
    return pl.DataFrame({"term": terms, "coefficient": np.concatenate([start, values])})


def _terms(state: EstimatorState, n: int) -> list[str]:
    names = state.inputs.terms()
    if hasattr(state.fitted, "steps") and len(state.fitted.steps) > 1:
        given = None if state.inputs.as_frame else names
        try:
            names = [str(it) for it in state.fitted[:-1].get_feature_names_out(given)]
        except Exception:  # a step that does not tell
            names = []
    return names if len(names) == n else [f"feature {number}" for number in range(n)]


def final_step(classifier: Any) -> Any:
    """Find the classifier at the end of a pipeline."""
    while hasattr(classifier, "steps"):
        classifier = classifier.steps[-1][1]
    return classifier


def _takes_sparse(classifier: Any) -> bool:
    utils = extra("sklearn.utils", "Estimator")
    try:
        return bool(utils.get_tags(classifier).input_tags.sparse)
    except AttributeError:  # a classifier that does not tell
        return False


def _sparse(numeric: Floats, levels: Sequence[NDArray[np.int64]], sizes: Sequence[int]) -> Any:
    from scipy import sparse

    blocks = [sparse.csr_matrix(numeric)]
    for level, size in zip(levels, sizes, strict=True):
        there = np.flatnonzero(level >= 0)
        ones = np.ones(len(there))
        blocks.append(
            sparse.csr_matrix((ones, (there, level[there])), shape=(len(level), size)),
        )
    return sparse.hstack(blocks, format="csr")


def _as_pandas(frame: pl.DataFrame) -> Any:
    """Make a pandas frame, without PyArrow."""
    pandas = extra("pandas", "Estimator(as_frame=True) with this classifier", "pandas")
    columns = {}
    for column in frame.get_columns():
        if isinstance(column.dtype, pl.Enum):
            codes = column.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
            levels = column.dtype.categories.to_list()
            columns[column.name] = pandas.Categorical.from_codes(codes, categories=levels)
        else:
            columns[column.name] = column.to_numpy()
    return pandas.DataFrame(columns)
