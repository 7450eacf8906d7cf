"""Covariates plus a table: what features say of a row, and what its own data add to that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.match import match
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms import saved
from gecasmo.forms.fixed import NUMBERS
from gecasmo.forms.form import (
    Bools,
    Floats,
    Form,
    FormState,
    Parts,
    Posterior,
    as_key,
    form_named,
)
from gecasmo.forms.linear import fit_offsets, logistic_normal, probabilities

START_SPREAD = 1.0
_SPREADS = (1e-3, 1e3)
# So many rows are enough to learn the spread from.
_MOST_ROWS = 50_000
_NODES, _NODE_WEIGHTS = np.polynomial.hermite.hermgauss(15)
# What the spread may be, and how large it is thought to be before the log is seen. A density of
# zero at zero keeps intervals of a sparse log honest, of which the best spread may well be none at
# all (Chung et al. 2013).
_LEAST, _MOST, _USUAL = 0.02, 8.0, 2.0
_GRID = 13


@dataclass(frozen=True, eq=False)
class OffsetBeliefs:
    """What is known of the offsets of rows in the end: means and variances, coefficients held; and
    the deviation of an offset of which nothing was seen. The spread being unknown, too, is in both.
    """

    mean: Floats
    variance: Floats
    unseen: float


@dataclass(frozen=True, eq=False)
class SumState:
    """The state of the covariates, and an offset per row around what they say."""

    rows: Rows
    inner: FormState
    offsets: Floats
    spread: float
    beliefs: OffsetBeliefs | None = None  # only at the end of a fit


class Sum(Form):
    """A table on top of covariates: logit = what the features say + an offset of the row's own.

    Offsets are shrunk to zero by a normal prior. A row with many flips follows its own data, a
    rare one its features, and one never seen its features alone. How much rows differ beyond
    their features, the spread of the offsets, is learned from the log.

    Parameters
    ----------
    covariates : Logistic or Torch
        What the features say.
    spread : float, optional
        The standard deviation of the offsets, in logits. By default it is learned: fits are
        repeated with a better spread until it settles.
    key : str or tuple of str
        Rows by these columns instead of the key that the model declares. The features must be the
        same wherever the key is. With `key="result"` every shown result has an offset, which only
        the fit uses: another log shows other results.

    Examples
    --------
    >>> from gecasmo import DBN, Logistic, Sum
    >>> model = DBN(attraction=Sum(Logistic("bm25", "price")))
    >>> model.keys["attraction"]
    ('query', 'doc')
    """

    by_declared_key = True

    def __init__(
        self,
        covariates: Any,
        *,
        spread: float | None = None,
        key: str | tuple[str, ...] | None = None,
    ) -> None:
        if not (isinstance(covariates, Form) and covariates.takes_offsets):
            raise ModelError(
                f"Sum({covariates!r}): the covariates are a form that takes offsets, "
                'such as Sum(Logistic("price")) or Sum(Torch(module, "price")).'
            )
        is_number = isinstance(spread, NUMBERS) and not isinstance(spread, bool)
        if spread is not None and not (is_number and 0 < spread < np.inf):
            raise ModelError(f"Sum(spread={spread!r}): a positive number is wanted.")
        if covariates.key is not None and key is not None and as_key(key) != covariates.key:
            raise ModelError("Sum and its covariates name different keys; one key is enough.")
        self.covariates = covariates
        self.learns_prior = spread is None
        self.spread = None if spread is None else float(spread)
        self.key = as_key(key) if key is not None else covariates.key
        self.columns: tuple[str, ...] = covariates.columns
        self.missing: str = covariates.missing

    def options(self) -> dict[str, Any]:
        # A key that the covariates name is theirs to tell.
        return super().options() | ({} if self.covariates.key is None else {"key": None})

    @property
    def has_vector(self) -> bool:
        # Only a form that is linear in all it learns can be extrapolated.
        return self.covariates.has_vector

    @property
    def has_errors(self) -> bool:
        return self.covariates.has_errors

    # -- the protocol --------------------------------------------------------------------------
    def begin(self, rows: Rows, generator: np.random.Generator | None) -> SumState:
        inner = self.covariates.begin(rows, generator)
        return SumState(rows, inner, np.zeros(len(rows)), self.spread or START_SPREAD)

    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: SumState) -> SumState:
        inner, offsets = self.covariates.fit_around(
            rows, heads, tails, previous.inner, previous.offsets, previous.spread**2
        )
        return replace(previous, inner=inner, offsets=offsets, beliefs=None)

    def predict(self, state: SumState, rows: Rows) -> Floats:
        return probabilities(self.logits(state, rows))

    def known(self, state: SumState, rows: Rows) -> Bools:
        """Tell which rows have an offset of their own."""
        if self._is_elsewhere(state, rows):
            return np.zeros(len(rows), bool)
        return self._find(state, rows) >= 0

    def penalty(self, state: SumState) -> float:
        around = -0.5 * float((state.offsets**2).sum()) / state.spread**2
        # The prior's own constant, so that a better spread also has the higher objective.
        around -= len(state.offsets) * float(np.log(state.spread))
        return around + float(self.covariates.penalty(state.inner))

    def remarks(self, state: SumState, heads: Floats, tails: Floats) -> list[str]:
        return self.covariates.remarks(state.inner, heads, tails)

    def tuned(
        self, state: SumState, rows: Rows, heads: Floats, tails: Floats, information: Floats
    ) -> SumState:
        """Find the spread under which the rows are most likely, offsets integrated out.

        What the log says about the logit of a row is summed up by heads and tails that have the
        slope and the information found at the offset; with nothing hidden these are the very
        counts. The likelihood of a spread is then an integral over each row's offset.
        """
        if self.spread is not None or not len(state.offsets):
            return state
        from scipy.optimize import minimize_scalar

        like = _some(self._seen(state, rows, heads, tails, information))
        found = minimize_scalar(
            lambda log_spread: -_spread_likelihood(float(np.exp(log_spread)), *like),
            bounds=np.log(_SPREADS),
            method="bounded",
            options={"xatol": 1e-3},
        )
        better = float(np.exp(found.x))
        if abs(np.log(better / state.spread)) < 0.02:
            return state
        return replace(state, spread=better, beliefs=None)

    def _seen(
        self, state: SumState, rows: Rows, heads: Floats, tails: Floats, information: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Sum up what the log says about each row by heads and tails with the same slope and
        information; the third is what features say."""
        logits = self.covariates.logits(state.inner, rows)
        p = probabilities(self.logits(state, rows))
        slope = heads - (heads + tails) * p
        flips = information / (p * (1 - p))
        flips = np.maximum(flips, np.maximum(-slope / p, slope / (1 - p)))
        return flips * p + slope, flips * (1 - p) - slope, logits

    def believed(
        self, state: SumState, rows: Rows, heads: Floats, tails: Floats, information: Floats
    ) -> SumState:
        """Work out posterior means and variances of offsets, whatever the spread may be."""
        like = self._seen(state, rows, heads, tails, information)
        spreads, chances = np.array([state.spread]), np.ones(1)
        if self.spread is None and len(rows):
            spreads, chances = _likely_spreads(_some(like))
        mean, square = np.zeros(len(rows)), np.zeros(len(rows))
        for spread, chance in zip(spreads, chances, strict=True):
            middle, variance = offset_moments(float(spread), *like)
            mean += chance * middle
            square += chance * (variance + middle**2)
        variance = np.maximum(square - mean**2, 0.0)
        unseen = float(np.sqrt(chances @ spreads**2))
        return replace(state, beliefs=OffsetBeliefs(mean, variance, unseen))

    def posterior(
        self, state: SumState, rows: Rows, probability: Floats, counts: Floats | None
    ) -> Posterior:
        """Tell how sure it is of rows: what coefficients leave open, and what their offset does.

        The more a row's own data say, the less it leans on coefficients.
        """
        told = super().posterior(state, rows, probability, counts)
        found = np.full(len(rows), -1)
        if not self._is_elsewhere(state, rows):
            found = self._find(state, rows)
        trials = np.zeros(len(rows))
        if counts is not None:
            trials = np.append(counts.sum(axis=0), 0.0)[found]
        told = replace(told, trials=trials)
        deviation = self.covariates.logit_deviation(state.inner, rows)
        known = state.beliefs
        if deviation is None or known is None:
            return told
        own = ", ".join(rows.keys) or "all"
        told = replace(told, rests_on=np.where(trials > 0, own, told.rests_on))
        variance = np.append(known.variance, known.unseen**2)[found]
        leaning = np.minimum(variance / known.unseen**2, 1.0) * deviation
        logits = self.covariates.logits(state.inner, rows) + np.append(known.mean, 0.0)[found]
        mean, spread = logistic_normal(logits, np.sqrt(variance + leaning**2))
        mean = np.where(np.isnan(deviation), probability, mean)
        return replace(told, mean=mean, spread=spread)

    def coefficients(self, state: SumState) -> pl.DataFrame:
        """Show what the covariates have learned, as coefficients if they have some."""
        return self.covariates.to_frame(state.inner)

    def informed(
        self, state: SumState, covariance: Floats, is_exact: bool, unknown: Floats
    ) -> SumState:
        # As exact as they get: that errors of a sum are approximate is documented.
        inner = self.covariates.informed(state.inner, covariance, True, unknown)
        return replace(state, inner=inner)

    def n_coefficients(self, state: SumState) -> int:
        return self.covariates.n_coefficients(state.inner)

    def information(self, state: SumState, rows: Rows, weight: Floats) -> Floats:
        """Tell the information on the coefficients, offsets integrated out."""
        weight = weight / (1 + weight * state.spread**2)
        return self.covariates.information(state.inner, rows, weight)

    def adopted(self, state: SumState, rows: Rows) -> SumState:
        """Bring an earlier state to other rows: offsets go with their keys."""
        inner = self.covariates.adopted(state.inner, rows)
        if inner is None:
            inner = self.covariates.begin(rows, None)
        spread = state.spread if self.spread is None else self.spread
        return SumState(rows, inner, self._offsets(state, rows), spread)

    def trainable(self, state: SumState, rows: Rows) -> Any:
        inner = self.covariates.trainable(state.inner, rows)
        if inner is None:
            return None
        from gecasmo.forms.trainable import TrainableSum

        return TrainableSum(self, state, inner)

    def summary(self, state: SumState) -> str:
        return f"{len(state.offsets):,} rows, spread {state.spread:.2g} around their features"

    def to_frame(self, state: SumState) -> pl.DataFrame:
        from scipy.special import expit

        rows = state.rows
        logits = self.logits(state, rows)
        return pl.DataFrame(
            [
                *rows.frame.get_columns(),
                pl.Series("probability", expit(logits)),
                pl.Series("by_features", expit(logits - state.offsets)),
                pl.Series("offset", state.offsets),
            ]
        )

    def kept_features(self, state: SumState) -> Mapping[str, pl.Series]:
        return state.rows.attached

    # -- keeping -------------------------------------------------------------------------------
    def to_data(self, state: SumState) -> tuple[dict[str, Any], Parts]:
        data, parts = self.covariates.to_data(state.inner)
        rows = state.rows
        attached = [rows.attached[name].alias(f"*{name}") for name in rows.attached]
        numbers = [pl.Series("*offset*", state.offsets)]
        if state.beliefs is not None:
            numbers.append(pl.Series("*mean*", state.beliefs.mean))
            numbers.append(pl.Series("*variance*", state.beliefs.variance))
        table = pl.DataFrame([*rows.frame.get_columns(), *numbers, *attached])
        described = {
            "covariates": self.covariates.name_in_files,
            "inner": data,
            "given_spread": self.spread,
            "spread": state.spread,
            "unseen": None if state.beliefs is None else state.beliefs.unseen,
            "key": None if self.key is None else list(self.key),
            "keys": list(rows.keys),
            "attached": list(rows.attached),
        }
        return described, {**{f"inner_{k}": v for k, v in parts.items()}, "offsets": table}

    @classmethod
    def from_data(cls, data: dict[str, Any], parts: Any, **given: Any) -> tuple[Sum, SumState]:
        inner_parts = {k.removeprefix("inner_"): v for k, v in parts.items() if k != "offsets"}
        covariates, inner = form_named(data["covariates"]).from_data(
            data["inner"], inner_parts, **given
        )
        key = None if data["key"] is None else tuple(data["key"])
        form = cls(covariates, spread=data["given_spread"], key=key)
        table, keys = parts["offsets"], tuple(data["keys"])
        attached = {name: table[f"*{name}"].alias(name) for name in data["attached"]}
        part = "the offsets of a sum"
        rows = Rows(keys, saved.columns(table, keys, part), len(table), attached)
        offsets = saved.column(table, "*offset*", part)
        spread = saved.number(data["spread"], "The spread of a sum", above=0)
        beliefs = None
        if "*mean*" in table.columns or data.get("unseen") is not None:
            beliefs = OffsetBeliefs(
                saved.column(table, "*mean*", part),
                saved.column(table, "*variance*", part, least=0),
                saved.number(data["unseen"], "The spread of unseen offsets", above=0),
            )
        return form, SumState(rows, inner, offsets, spread, beliefs)

    # -- the parts -----------------------------------------------------------------------------
    def logits(self, state: SumState, rows: Rows) -> Floats:
        logits = self.covariates.logits(state.inner, rows)
        if self._is_elsewhere(state, rows):
            return logits
        return logits + (state.offsets if rows is state.rows else self._offsets(state, rows))

    def _is_elsewhere(self, state: SumState, rows: Rows) -> bool:
        """Whether these are shown results, but not those of the fit: numbers mean nothing then."""
        return "result" in rows.keys and rows is not state.rows

    def _offsets(self, state: SumState, rows: Rows) -> Floats:
        found = self._find(state, rows)
        # Rows that are not there read the zero that is put last.
        return np.append(state.offsets, 0.0)[found]

    def _find(self, state: SumState, rows: Rows) -> NDArray[np.int64]:
        if rows is state.rows:
            return np.arange(len(rows))
        if not rows.keys:
            return np.zeros(len(rows), np.int64)
        return match(rows.frame, state.rows.frame, rows.keys)

    def vector(self, state: SumState) -> Floats:
        return np.concatenate([self.covariates.vector(state.inner), state.offsets])

    def from_vector(self, state: SumState, vector: Floats) -> SumState:
        n = len(vector) - len(state.offsets)
        inner = self.covariates.from_vector(state.inner, vector[:n])
        return replace(state, inner=inner, offsets=vector[n:], beliefs=None)


def _some(like: tuple[Floats, Floats, Floats]) -> tuple[Floats, Floats, Floats]:
    """As many rows as it takes to learn a spread."""
    every = max(1, -(-len(like[0]) // _MOST_ROWS))
    heads, tails, logits = (values[::every] for values in like)
    return heads, tails, logits


def _likely_spreads(like: tuple[Floats, Floats, Floats]) -> tuple[Floats, Floats]:
    """What the spread may be, and how probable each is."""
    ends = np.log(_LEAST), np.log(_MOST)
    for _ in range(2):  # roughly, and then where it matters
        grid, step = np.linspace(*ends, _GRID, retstep=True)
        spreads = np.exp(grid)
        value = np.array([_spread_likelihood(float(one), *like) for one in spreads])
        value += 2 * grid - 0.5 * (spreads / _USUAL) ** 2  # by equal steps of the logarithm
        chances = np.exp(value - value.max())
        kept = chances > 1e-3
        ends = grid[kept][0] - step, grid[kept][-1] + step
    return spreads[kept], chances[kept] / chances[kept].sum()


def _spread_likelihood(spread: float, heads: Floats, tails: Floats, logits: Floats) -> float:
    """Tell the log-likelihood of rows around given logits, their offsets integrated out."""
    _, width, joint = _around(spread, heads, tails, logits)
    highest = joint.max(axis=1)
    integral = (np.exp(joint - highest[:, None]) * _NODE_WEIGHTS).sum(axis=1)
    return float((highest + np.log(integral * width / spread)).sum())


def offset_moments(spread: float, heads: Floats, tails: Floats, logits: Floats) -> Floats:
    """Tell posterior mean and variance of the offset of each row, `[which, row]`."""
    moments = np.empty((2, len(logits)))
    for first in range(0, len(logits), _MOST_ROWS):
        own = slice(first, first + _MOST_ROWS)
        at, _, joint = _around(spread, heads[own], tails[own], logits[own])
        share = np.exp(joint - joint.max(axis=1, keepdims=True)) * _NODE_WEIGHTS
        share /= share.sum(axis=1, keepdims=True)
        moments[0, own] = (share * at).sum(axis=1)
        moments[1, own] = (share * (at - moments[0, own, None]) ** 2).sum(axis=1)
    return moments


def _around(
    spread: float, heads: Floats, tails: Floats, logits: Floats
) -> tuple[Floats, Floats, Floats]:
    """Offsets for Gauss-Hermite quadrature around the best one of each row, how far apart they are,
    and the logarithm of what they are worth."""
    offsets = fit_offsets(heads, tails, logits, np.zeros_like(logits), spread**2)
    p = probabilities(logits + offsets)
    width = 1 / np.sqrt((heads + tails) * p * (1 - p) + 1 / spread**2)
    at = offsets[:, None] + np.sqrt(2) * width[:, None] * _NODES
    there = logits[:, None] + at
    joint = -heads[:, None] * np.logaddexp(0.0, -there) - tails[:, None] * np.logaddexp(0.0, there)
    return at, width, joint + _NODES**2 - 0.5 * at**2 / spread**2
