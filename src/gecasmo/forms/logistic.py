"""Logistic regression: a row's logit is linear in its features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms import saved
from gecasmo.forms.features import (
    ByRows,
    DesignMatrix,
    FeatureCoding,
    check_categorical,
    check_missing,
    collinear,
    learn_coding,
)
from gecasmo.forms.form import Bools, Floats, Form, Parts, Posterior, as_columns, as_key
from gecasmo.forms.linear import (
    Optimum,
    PastCoefficients,
    WeightedRegression,
    logistic_normal,
    probabilities,
)

if TYPE_CHECKING:
    from gecasmo.forms.memory import Memory

# The covariance of more coefficients than this is not worked out.
MOST_WITH_ERRORS = 1000


@dataclass(frozen=True, eq=False)
class LogisticState:
    """Coefficients of the standardised features: intercept, numeric columns, levels."""

    coding: FeatureCoding
    coefficients: Floats
    covariance: Floats | None = None
    is_exact: bool = True  # whether the covariance knows that flips are hidden
    is_known: NDArray[np.bool_] | None = None  # of which coefficients the data say something
    is_separated: bool = False
    past: PastCoefficients | None = None  # only during an update: what earlier logs say
    designs: ByRows = field(default_factory=ByRows)


class Logistic(Form):
    """A logistic regression on feature columns.

    Numbers are standardised inside; texts get one coefficient per level, as deviations from the
    average level, and a level that the fit has not seen counts as average.

    Parameters
    ----------
    *columns : str
        Columns of the log (or of a frame given as `features`), or "rank", "page_length",
        "last_click", "distance", "clicks_above".
    l2 : float
        Precision of a normal prior on each coefficient of the standardised features, not on the
        intercept. The default 1 hardly matters with a thousand clicks and keeps rare levels in
        bounds; with 0 data that a feature separates have no estimate, which is warned about.
    intercept : bool
        Whether the logit has a constant part.
    categorical : str or sequence of str
        Columns of numbers that are names of categories, such as "rank".
    missing : "raise" or "mean"
        What to do with missing and infinite values: refuse them, or take the mean of the column
        (of texts: a level of their own).
    key : str or tuple of str
        Rows by these columns instead of one row per combination of features. The features must
        then be the same wherever the key is; `key="result"` makes every shown result a row.

    Examples
    --------
    >>> from gecasmo import DBN, Logistic
    >>> model = DBN(attraction=Logistic("bm25", "price"), continuation=Logistic("device"))
    >>> model.keys["continuation"]
    ('device',)
    """

    def __init__(
        self,
        *columns: str,
        l2: float = 1.0,
        intercept: bool = True,
        categorical: str | Sequence[str] = (),
        missing: str = "raise",
        key: str | tuple[str, ...] | None = None,
    ) -> None:
        self.columns = as_columns(columns, "Logistic")
        if not 0 <= l2 < np.inf:
            raise ModelError(f"Logistic(l2={l2!r}): a number that is not negative is wanted.")
        self.l2 = float(l2)
        self.intercept = bool(intercept)
        self.categorical = check_categorical(categorical, self.columns, "Logistic")
        self.missing = check_missing(missing, "Logistic")
        self.key = as_key(key)

    # -- the protocol --------------------------------------------------------------------------
    def begin(self, rows: Rows, generator: np.random.Generator | None) -> LogisticState:
        coding = learn_coding(rows, self.columns, self.categorical, centre=self.intercept)
        n = int(self.intercept) + len(coding.numeric) + sum(coding.n_levels.values())
        coefficients = np.zeros(n)
        if generator is not None:
            # Coins must differ from each other for mixture components to part.
            n_first = 1 + len(coding.numeric) if self.intercept else n
            coefficients[:n_first] += generator.normal(size=n_first)
        return LogisticState(coding, coefficients)

    def fit(
        self, rows: Rows, heads: Floats, tails: Floats, previous: LogisticState
    ) -> LogisticState:
        solution = self.regression(rows, heads, tails, previous).maximise(previous.coefficients)
        return self.moved(previous, solution)

    def moved(self, previous: LogisticState, solution: Optimum) -> LogisticState:
        """Give a state the coefficients that a regression has found."""
        coefficients = solution.coefficients
        if self.intercept:
            # What all levels have in common belongs to the intercept: no prediction changes but
            # that of a level never seen, which is the average.
            coefficients = coefficients.copy()
            for block in state_blocks(previous):
                common = coefficients[block].mean() if block.stop > block.start else 0.0
                coefficients[block] -= common
                coefficients[0] += common
        return replace(
            previous,
            coefficients=coefficients,
            covariance=None,
            is_known=None,
            is_separated=solution.is_separated,
        )

    def predict(self, state: LogisticState, rows: Rows) -> Floats:
        return probabilities(self.logits(state, rows))

    def known(self, state: LogisticState, rows: Rows) -> Bools:
        """Tell of which rows every level was there in the fit."""
        return state.coding.known(rows)

    def penalty(self, state: LogisticState) -> float:
        precision = self.precision(len(state.coefficients))
        penalty = -0.5 * float((precision * state.coefficients**2).sum())
        return penalty if state.past is None else penalty + state.past.value(state.coefficients)

    def remarks(self, state: LogisticState, heads: Floats, tails: Floats) -> list[str]:
        # Without an intercept a constant column stands in for one.
        constant = state.coding.constant if self.intercept else ()
        remarks = [f"the column '{name}' is constant, so it says nothing" for name in constant]
        n_heads, n_tails = float(heads.sum()), float(tails.sum())
        runs_away = state.is_separated or self._runs_away(state)
        if runs_away and min(n_heads, n_tails) < 1e-4 * (n_heads + n_tails):
            side = "tails" if n_heads < n_tails else "heads"
            remarks.append(
                f"as far as the log shows it always comes up {side}: the best intercept would be "
                "infinite. It was stopped where a larger one would gain nothing"
            )
        elif runs_away:
            terms = self.terms(state)
            largest = terms[int(np.argmax(np.abs(state.coefficients)))]
            remarks.append(
                "its features separate heads from tails: the best coefficients would be infinite "
                f"(largest: {largest}). They were stopped where larger ones would gain nothing; "
                f"l2 > 0 or "
                "fewer features give an estimate"
            )
        mixed = collinear(state.coding, next(iter(state.designs.values()), None), self.intercept)
        if mixed:
            remarks.append(
                f"the columns {', '.join(mixed)} are collinear: only their combined effect is "
                "known, and the smallest coefficients with that effect are given"
            )
        if len(state.coefficients) > MOST_WITH_ERRORS:
            remarks.append("it has too many coefficients for standard errors")
        if state.covariance is not None and not state.is_exact:
            remarks.append(
                "it has too many coefficients for exact standard errors; those given do not "
                "include the uncertainty of other rows and coins"
            )
        return remarks

    def _runs_away(self, state: LogisticState) -> bool:
        """Whether some coefficient is on its way to infinity, step by step of the fit: it is large
        and the log says next to nothing against any other."""
        if state.covariance is None:
            return False
        is_open = np.sqrt(np.maximum(np.diag(state.covariance), 0.0)) > 10
        if state.is_known is not None:
            is_open |= ~state.is_known
        return bool(np.any((np.abs(state.coefficients) > 10) & is_open))

    def vector(self, state: LogisticState) -> Floats:
        return state.coefficients

    def from_vector(self, state: LogisticState, vector: Floats) -> LogisticState:
        return replace(state, coefficients=vector, covariance=None, is_known=None)

    def logits(self, state: LogisticState, rows: Rows) -> Floats:
        return self.design(state, rows).times(state.coefficients)

    def score(self, state: LogisticState, rows: Rows, heads: Floats, tails: Floats) -> Floats:
        residual = heads - (heads + tails) * self.predict(state, rows)
        precision = self.precision(len(state.coefficients))
        slope = self.design(state, rows).transposed_times(residual)
        slope = slope - precision * state.coefficients
        return slope if state.past is None else slope + state.past.slope_at(state.coefficients)

    def informed(
        self,
        state: LogisticState,
        covariance: Floats,
        is_exact: bool = True,
        unknown: Floats | None = None,
    ) -> LogisticState:
        is_known = None
        if unknown is not None and unknown.size:
            change = self._to_units(state)
            size = np.abs(change).max(axis=1) * np.abs(unknown).max(axis=0, keepdims=True).T
            is_known = (np.abs(change @ unknown) <= 1e-4 * size.T).all(axis=1)
        return replace(state, covariance=covariance, is_exact=is_exact, is_known=is_known)

    def logit_deviation(self, state: LogisticState, rows: Rows) -> Floats | None:
        if state.covariance is None:
            return None
        if state.is_known is not None and not state.is_known.all():
            return np.full(len(rows), np.nan)  # what a coefficient may be, nobody knows
        variance = self.design(state, rows).quadratic(state.covariance)
        # A level never seen counts as average, and may be as far from it as any.
        unseen = sum(levels < 0 for levels in state.coding.apply(rows).levels)
        own = np.where(unseen, np.inf if self.l2 == 0 else 1 / max(self.l2, 1e-300), 0.0)
        deviation = np.sqrt(np.maximum(variance, 0.0) + unseen * own)
        return np.where(np.isfinite(deviation), deviation, np.nan)

    def posterior(
        self, state: LogisticState, rows: Rows, probability: Floats, counts: Floats | None
    ) -> Posterior:
        """Tell how sure it is of what features say of rows."""
        found = super().posterior(state, rows, probability, counts)
        deviation = self.logit_deviation(state, rows)
        if deviation is None:
            return found
        mean, spread = logistic_normal(self.logits(state, rows), deviation)
        mean = np.where(np.isnan(deviation), probability, mean)
        return replace(found, mean=mean, spread=spread)

    def squares(self, state: LogisticState, rows: Rows, weight: Floats) -> Floats:
        return self.design(state, rows).squares(weight)

    def n_coefficients(self, state: LogisticState) -> int:
        return len(state.coefficients)

    def information(self, state: LogisticState, rows: Rows, weight: Floats) -> Floats:
        nothing = np.zeros(len(rows))
        return self.regression(rows, nothing, nothing, state).information(weight)

    def adopted(self, state: LogisticState, rows: Rows) -> LogisticState:
        """Make a state with the same effects; scales and levels are learned anew."""
        begun = self.begin(rows, None)
        old, new = state.coding, begun.coding
        n = int(self.intercept) + len(new.numeric)
        is_alike = (
            old.numeric == new.numeric
            and list(old.levels) == list(new.levels)
            and all(old.levels[name].dtype == new.levels[name].dtype for name in new.levels)
            and len(state.coefficients) == n + sum(old.n_levels.values())
        )
        if not is_alike:
            return begun
        first = state.coefficients[:n].copy()
        slopes = first[int(self.intercept) :]
        if self.intercept:
            first[0] += float(slopes @ ((new.shift - old.shift) / old.scale))
        slopes *= new.scale / old.scale
        parts = [first]
        for block, (name, values) in zip(state_blocks(state), new.levels.items(), strict=True):
            effects = np.append(state.coefficients[block], 0.0)
            parts.append(effects[old.level_numbers(values, name)])
        return replace(begun, coefficients=np.concatenate(parts))

    def trainable(self, state: LogisticState, rows: Rows) -> Any:
        from gecasmo.forms.trainable import TrainableLogistic

        return TrainableLogistic(self, state, rows)

    def memory(self, state: LogisticState, counts: Floats, decay: float) -> Memory:
        from gecasmo.forms.memory import LogisticMemory

        return LogisticMemory(self, state, decay)

    def summary(self, state: LogisticState) -> str:
        return f"{len(state.coefficients):,} coefficients"

    # -- for people ----------------------------------------------------------------------------
    def coefficients(self, state: LogisticState) -> pl.DataFrame:
        """Show coefficients in the units of the columns, with standard errors and odds ratios."""
        values = self._in_units(state)
        error = np.full(len(values), np.nan)
        if state.covariance is not None:
            change = self._to_units(state)
            spread = (change @ state.covariance * change).sum(axis=1)
            error = np.sqrt(np.maximum(spread, 0.0))
            if state.is_known is not None:
                error = np.where(state.is_known, error, np.nan)
            error[self._idle(state)] = np.nan
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return pl.DataFrame(
                {
                    "term": self.terms(state),
                    "coefficient": values,
                    "standard_error": pl.Series(error, nan_to_null=True),
                    "z": pl.Series(np.where(error > 0, values / error, np.nan), nan_to_null=True),
                    "odds_ratio": np.exp(values),
                }
            )

    to_frame = coefficients

    def terms(self, state: LogisticState) -> list[str]:
        """Name the coefficients."""
        terms = ["intercept"] if self.intercept else []
        terms += state.coding.numeric
        for name, levels in state.coding.levels.items():
            terms += [f"{name}={level}" for level in levels.to_list()]
        return terms

    def _in_units(self, state: LogisticState) -> Floats:
        """Turn coefficients of the standardised features into those of the columns."""
        coding, first = state.coding, int(self.intercept)
        values = state.coefficients.copy()
        slopes = values[first : first + len(coding.numeric)]
        slopes /= coding.scale
        if self.intercept:
            values[0] -= float(slopes @ coding.shift)
            for block in state_blocks(state):
                common = values[block].mean() if block.stop > block.start else 0.0
                values[block] -= common
                values[0] += common
        return values

    def _to_units(self, state: LogisticState) -> Floats:
        """Make the matrix by which `_in_units` turns coefficients into those of the columns.

        The common part of a category's effects belongs to the intercept; only that makes the
        errors of the levels those of deviations from the average level.
        """
        coding = state.coding
        change = np.eye(len(state.coefficients))
        first = int(self.intercept)
        for number, (shift, scale) in enumerate(zip(coding.shift, coding.scale, strict=True)):
            change[first + number, first + number] = 1 / scale
            if self.intercept:
                change[0, first + number] = -shift / scale
        # A constant column has no effect of its own, and so none on the intercept's error.
        change[0, self._idle(state)] = 0.0
        for block in state_blocks(state):
            if self.intercept:
                change[block, block] -= 1 / (block.stop - block.start)
                change[0, block] = 1 / (block.stop - block.start)
        return change

    def _idle(self, state: LogisticState) -> list[int]:
        """Tell where the coefficients of constant columns stand, which an intercept makes idle."""
        names = state.coding.numeric
        if not self.intercept:
            return []
        return [1 + place for place, name in enumerate(names) if name in state.coding.constant]

    # -- keeping -------------------------------------------------------------------------------
    def to_data(self, state: LogisticState) -> tuple[dict[str, Any], Parts]:
        coding, frames = state.coding.to_data()
        data = {
            **self.options(),
            "coding": coding,
            "is_exact": state.is_exact,
            "is_separated": state.is_separated,
        }
        table = pl.DataFrame({"coefficient": state.coefficients})
        if state.is_known is not None:
            table = table.with_columns(pl.Series("is_known", state.is_known))
        parts = {**frames, "coefficients": table}
        if state.covariance is not None:
            parts["covariance"] = pl.DataFrame({"covariance": state.covariance.ravel()})
        return data, parts

    @classmethod
    def from_data(cls, data: dict[str, Any], parts: Any) -> tuple[Logistic, LogisticState]:
        form = cls.from_options(data)
        coding = FeatureCoding.from_data(data["coding"], parts)
        n = int(form.intercept) + len(coding.numeric) + sum(coding.n_levels.values())
        table, part = parts["coefficients"], "the coefficients of a regression"
        coefficients = saved.column(table, "coefficient", part, shape=(n,))
        is_known = saved.flags(table, "is_known", part) if "is_known" in table.columns else None
        covariance = None
        if "covariance" in parts:
            part = "the errors of a regression"
            flat = saved.column(parts["covariance"], "covariance", part, shape=(n * n,))
            covariance = flat.reshape(n, n)
            saved.numbers(np.diag(covariance), "The variances of coefficients", least=0)
        exact, separated = bool(data["is_exact"]), bool(data["is_separated"])
        return form, LogisticState(coding, coefficients, covariance, exact, is_known, separated)

    # -- the mathematics -----------------------------------------------------------------------
    def design(self, state: LogisticState, rows: Rows) -> DesignMatrix:
        """Make the design matrix of some rows; kept for as long as the rows are."""
        if rows not in state.designs:
            features = state.coding.apply(rows)
            sizes = list(state.coding.n_levels.values())
            state.designs[rows] = DesignMatrix(features, sizes, self.intercept)
        design: DesignMatrix = state.designs[rows]
        return design

    def precision(self, n: int) -> Floats:
        """Strength of the ridge penalty for each coefficient; the intercept has none."""
        precision = np.full(n, self.l2)
        if self.intercept:
            precision[0] = 0.0
        return precision

    def regression(
        self,
        rows: Rows,
        heads: Floats,
        tails: Floats,
        state: LogisticState,
    ) -> WeightedRegression:
        """Write the M-step as a regression."""
        design = self.design(state, rows)
        precision = self.precision(design.n_columns)
        return WeightedRegression(design, heads, tails, precision, past=state.past)


class Intercept(Logistic):
    """A regression on nothing: what all rows of a sum without features have in common. Its prior is
    so wide that only a coin which always fell the same way is held by it."""

    def __init__(self) -> None:
        self.columns, self.categorical, self.key = (), (), None
        self.l2, self.intercept, self.missing = 0.01, True, "raise"

    def precision(self, n: int) -> Floats:
        return np.full(n, self.l2)


def state_blocks(state: LogisticState) -> list[slice]:
    """Tell where the coefficients of each categorical column stand: last, one after the other."""
    sizes = list(state.coding.n_levels.values())
    ends = len(state.coefficients) - sum(sizes) + np.cumsum([0, *sizes])
    return [slice(int(a), int(b)) for a, b in pairwise(ends)]
