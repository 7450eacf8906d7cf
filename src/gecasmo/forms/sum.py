"""Sums of effects: what features say of a row, and what its query, its document, its rank add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.match import match
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.forms import saved
from gecasmo.forms.crossed import (
    FEW_ROWS,
    EffectBelief,
    Evidence,
    Propagation,
    counts_like,
)
from gecasmo.forms.features import ByRows, CodedFeatures, DesignMatrix
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
from gecasmo.forms.linear import WeightedRegression
from gecasmo.forms.links import link_named, normal_moments
from gecasmo.forms.logistic import Intercept
from gecasmo.forms.table import Table

Integers = NDArray[np.int64]
Keys = tuple[str, ...]

START_SPREAD = 1.0
# Spreads whose logarithms differ by less are the same, and those below are none.
_SAME, _NONE = 0.03, 0.05
# How often all rows of a large table are gone over in the end, and how exactly.
_LAST_ROUNDS, _ROUGHLY = 8, 3e-3
_OWN = "offset"


@dataclass(frozen=True, eq=False)
class Effects:
    """The effects of one table: its levels, an effect for each, and their spread. The effects of
    rows of their own have the rows for levels."""

    levels: pl.DataFrame
    effects: Floats
    spread: float
    is_own: bool

    @property
    def keys(self) -> Keys:
        """The columns that tell levels apart."""
        return tuple(self.levels.columns)


@dataclass(frozen=True, eq=False)
class SumState:
    """The state of the covariates and the effects of tables: the most likely ones, by which a fit
    climbs; and at its end what is believed of all."""

    rows: Rows
    inner: FormState
    tables: tuple[Effects, ...]
    belief: EffectBelief | None = None
    told: FormState | None = None  # the covariates as they are believed to be, with errors
    designs: ByRows = field(default_factory=ByRows)

    @property
    def spread(self) -> float:
        """The spread of the first table."""
        return self.tables[0].spread

    @property
    def offsets(self) -> Floats:
        """The effects of rows of their own."""
        return self.tables[-1].effects if self.has_own else np.zeros(len(self.rows))

    @property
    def has_own(self) -> bool:
        """Whether each row has an effect of its own."""
        return self.tables[-1].is_own

    @property
    def shared(self) -> tuple[Effects, ...]:
        """The tables whose levels several rows may have."""
        return self.tables[:-1] if self.has_own else self.tables


class Sum(Form):
    """A sum of effects: logit = what the features say + an effect of the row's level in each table.

    Effects are drawn from a normal distribution around zero. How much the levels of a table differ,
    its spread, is learned from the log with all effects integrated out. So a row with many flips
    follows its own data, a rare one its document, its query and its features, and a level that was
    never seen counts as zero, as uncertain as the spread says.

    Parameters
    ----------
    *parts : Table, Logistic or Torch
        Tables by their columns, `Table("query", "doc")`, and at most one regression (or network) on
        features. `Table()` has an effect for each row; it is there by itself if no other table is.
    link : "logit" or "probit"
        With the probit, the probability is that of a normal number around the sum to be positive.
    spread : float or sequence of float or None, optional
        The standard deviation of effects, of all tables or table by table. By default, and where it
        is None, it is learned: fits are repeated with better spreads until these settle.
    key : str or tuple of str
        Rows by these columns, and those of all tables. By default the columns of tables and of
        features; with `Table()`, the key that the model declares in place of features, which must
        then be the same wherever the key is. With `key="result"` every shown result has an effect,
        which only the fit uses: another log shows other results.

    Examples
    --------
    >>> from gecasmo import DBN, Logistic, Sum, Table
    >>> model = DBN(attraction=Sum(Logistic("bm25", "price")))
    >>> model.keys["attraction"]
    ('query', 'doc')
    >>> crossed = Sum(Table("query", "doc"), Table("doc"), Table("rank"))
    >>> DBN(attraction=crossed).keys["attraction"]
    ('query', 'doc', 'rank')
    """

    by_declared_key = True

    def __init__(
        self,
        *parts: Any,
        link: str = "logit",
        spread: Any = None,
        key: str | tuple[str, ...] | None = None,
    ) -> None:
        self.parts = parts
        self.covariates, tables = _sorted(parts)
        # The effects of rows of their own come last; several tables of one key are no sum.
        self.tables: tuple[Keys | None, ...] = tuple(tables) or (None,)
        self.is_linear = self.covariates.has_design
        self._link = link_named(link, "Sum")
        self.link = self._link.name
        self.spread = spread
        self._spreads = _spreads(spread, len(self.tables))
        self.learns_prior = None in self._spreads
        if not self.is_linear and (self.tables != (None,) or link != "logit"):
            raise ModelError(
                f"{self.covariates!r} stands in a Sum with the logit and Table() only, an effect "
                "for each row; other tables go with Logistic."
            )
        inner_key = self.covariates.key
        if inner_key is not None and key is not None and as_key(key) != inner_key:
            raise ModelError("Sum and its covariates name different keys; one key is enough.")
        self.key = as_key(key) if key is not None else self.covariates.key
        self.columns: tuple[str, ...] = self.covariates.columns
        self.missing: str = self.covariates.missing

    def options(self) -> dict[str, Any]:
        # A key that the covariates name is theirs to tell.
        return super().options() | ({} if self.covariates.key is None else {"key": None})

    def keys(self, declared: Keys, features: pl.DataFrame | None) -> Keys:
        """Tell the key columns: those that tables name, and the declared key or features."""
        named = [name for table in self.tables if table is not None for name in table]
        if self.key is not None:
            named = [*self.key, *named]
        elif None in self.tables:
            named = [*declared, *named]
        elif self.columns:
            given = () if features is None else features.columns
            others = [name for name in given if name not in self.columns]
            by = [name for name in declared if name in others] or others
            named += [*by, *(name for name in self.columns if name not in given)]
        return tuple(dict.fromkeys(named))

    @property
    def has_vector(self) -> bool:
        # Only a form that is linear in all it learns can be extrapolated.
        return self.covariates.has_vector

    # -- the protocol --------------------------------------------------------------------------
    def begin(self, rows: Rows, generator: np.random.Generator | None) -> SumState:
        inner = self.covariates.begin(rows, generator)
        tables = []
        for keys, spread in zip(self.tables, self._spreads, strict=True):
            is_own = keys is None or set(keys) == set(rows.keys)
            levels = rows.frame
            if not is_own:
                levels = levels.select(keys).unique(maintain_order=True)
            n = len(rows) if is_own else len(levels)
            tables.append(Effects(levels, np.zeros(n), spread or START_SPREAD, is_own))
        if sum(table.is_own for table in tables) > 1:
            raise ModelError(
                f"{self!r}: Table() has an effect for each row, and rows are by "
                f"{', '.join(rows.keys)}; one table of these is enough."
            )
        tables.sort(key=lambda table: table.is_own)
        return SumState(rows, inner, tuple(tables))

    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: SumState) -> SumState:
        own = previous.tables[-1]
        if not self.is_linear:
            inner, offsets = self.covariates.fit_around(
                rows, heads, tails, previous.inner, own.effects, own.spread**2
            )
            return self.with_effects(previous, inner, [offsets])
        regression = WeightedRegression(
            self.design(previous, rows),
            heads,
            tails,
            self._precision(previous),
            own.spread**2 if own.is_own else None,
            link=self._link,
        )
        start = self._columns(previous)
        found = regression.maximise(start, own.effects if own.is_own else None)
        n = len(self.covariates.vector(previous.inner))
        inner = self.covariates.moved(
            previous.inner, replace(found, coefficients=found.coefficients[:n])
        )
        effects = np.split(found.coefficients[n:], _ends(previous.shared)[:-1])
        if own.is_own:
            assert found.offsets is not None
            effects = [*effects[: len(previous.shared)], found.offsets]
        return self.with_effects(previous, inner, effects)

    def with_effects(self, state: SumState, inner: FormState, effects: Any) -> SumState:
        """Give the state other covariates and effects; what was believed is gone."""
        tables = tuple(
            replace(table, effects=own) for table, own in zip(state.tables, effects, strict=True)
        )
        return replace(state, inner=inner, tables=tables, belief=None, told=None)

    def predict(self, state: SumState, rows: Rows) -> Floats:
        if state.belief is None:
            return self._link.probability(self._predictor(state, rows))
        return self._believed_of(state, rows)[0]

    def known(self, state: SumState, rows: Rows) -> Bools:
        """Tell of which rows every level was there in the fit."""
        known = self.covariates.known(state.inner, rows)
        for table in state.tables:
            known = known & (self._numbers(state, table, rows) >= 0)
        return known

    def penalty(self, state: SumState) -> float:
        total = float(self.covariates.penalty(state.inner))
        for table in state.tables:
            total -= 0.5 * float((table.effects**2).sum()) / table.spread**2
            # The prior's own constant, so that a better spread also has the higher objective.
            total -= len(table.effects) * float(np.log(table.spread))
        return total

    def remarks(self, state: SumState, heads: Floats, tails: Floats) -> list[str]:
        return self.covariates.remarks(self._inner(state), heads, tails)

    # -- spreads, and what is believed -----------------------------------------------------------
    def tuned(
        self, state: SumState, rows: Rows, heads: Floats, tails: Floats, information: Floats
    ) -> SumState:
        """Find the spreads under which the rows are most likely, effects integrated out."""
        if not self.learns_prior or not len(rows):
            return state
        evidence = self._evidence(state, rows, heads, tails, information)
        before = np.array([table.spread for table in state.tables])
        run = Propagation(evidence, before, state.has_own, self._learned(state))
        found = run.run().spreads
        same = (np.abs(np.log(found / before)) < _SAME) | (np.maximum(found, before) < _NONE)
        if same.all():
            return state
        tables = tuple(
            replace(table, spread=float(spread))
            for table, spread in zip(state.tables, found, strict=True)
        )
        return replace(state, tables=tables, belief=None, told=None)

    def believed(
        self, state: SumState, rows: Rows, heads: Floats, tails: Floats, information: Floats
    ) -> SumState:
        """Work out what is believed of coefficients, effects and rows."""
        if not len(rows):
            return state
        evidence = self._evidence(state, rows, heads, tails, information)
        learned, spreads = self._learned(state), np.array([t.spread for t in state.tables])
        is_large = len(rows) > FEW_ROWS  # then spreads are known
        run = Propagation(evidence, spreads, state.has_own, learned & (not is_large), True)
        if learned.any() and not is_large:
            run.run()
            run.spreads, run.learned = run.usual_spreads(), np.zeros_like(learned)
        belief = run.run(_LAST_ROUNDS, _ROUGHLY) if is_large else run.run()
        return self._told(state, belief)

    def _told(self, state: SumState, belief: EffectBelief) -> SumState:
        """The state with a belief, and what follows from it."""
        inner = state.inner
        if self.is_linear:
            n = len(self.covariates.vector(inner))
            inner = self.covariates.from_vector(inner, belief.mean[:n])
            if len(belief.covariance) >= n:
                own = belief.covariance[:n, :n]
                inner = self.covariates.informed(inner, own, True, np.zeros((n, 0)))
        return replace(state, belief=belief, told=inner)

    def _learned(self, state: SumState) -> Bools:
        """Tell which spreads are learned, in the order of the state's tables."""
        given = dict(zip(self.tables, self._spreads, strict=True))
        names: list[Keys | None] = [table.keys for table in state.tables]
        if state.has_own and names[-1] not in given:
            names[-1] = next(
                keys for keys in self.tables if keys is None or set(keys) == set(state.rows.keys)
            )
        return np.array([given[name] is None for name in names])

    def _evidence(
        self, state: SumState, rows: Rows, heads: Floats, tails: Floats, information: Floats
    ) -> Evidence:
        """Sum up what the log says about each row by heads and tails that have the slope and the
        information found there."""
        p = np.clip(self.predict(state, rows), 1e-9, 1 - 1e-9)
        slope = heads - (heads + tails) * p
        told_heads, told_tails, sure = counts_like(p, slope, information)
        design, given = self.design(state, rows), np.zeros(len(rows))
        precision = self._precision(state)
        if not self.is_linear:
            given = self.covariates.logits(state.inner, rows)
        first = design.n_columns - sum(len(table.effects) for table in state.shared)
        ends = first + np.array([0, *_ends(state.shared)])
        places = tuple(slice(int(a), int(b)) for a, b in pairwise(ends))
        return Evidence(
            design,
            told_heads,
            told_tails,
            given,
            precision,
            places,
            self._link,
            self._predictor(state, rows),
            sure,
        )

    def _believed_of(self, state: SumState, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the probabilities of rows."""
        belief = state.belief
        assert belief is not None
        if rows is state.rows:
            return belief.probability, belief.deviation
        found, design = self._find(state, rows), self.design(state, rows)
        mean = design.times(belief.mean) + np.append(belief.own_mean, 0.0)[found]
        if not self.is_linear:
            mean = mean + self.covariates.logits(state.inner, rows)
        variance = np.maximum(belief.variance_of(design), 0.0)
        for table, spread in zip(state.tables, belief.spreads, strict=True):
            unseen = self._numbers(state, table, rows) < 0
            variance = variance + np.where(unseen, spread**2, 0.0)
        if not (found >= 0).any():
            return normal_moments(self._link, mean, np.sqrt(variance))
        variance = np.where(found >= 0, belief.row_variance[found], variance)
        # Rows of the fit, unless somebody asks what they would be with other features.
        same = (found >= 0) & (np.abs(mean - belief.row_mean[found]) < 1e-9)
        told = normal_moments(self._link, mean, np.sqrt(variance))
        kept = belief.probability[found], belief.deviation[found]
        return np.where(same, kept[0], told[0]), np.where(same, kept[1], told[1])

    def own_effects(self, state: SumState) -> tuple[Floats, Floats, float] | None:
        belief = state.belief
        if belief is None or not state.has_own:
            return None
        return belief.own_mean, belief.own_variance, float(belief.spreads[-1])

    def posterior(
        self, state: SumState, rows: Rows, probability: Floats, counts: Floats | None
    ) -> Posterior:
        """Tell how sure it is of rows, also of combinations of levels that the fit has not seen."""
        told = super().posterior(state, rows, probability, counts)
        found, trials = self._find(state, rows), np.zeros(len(rows))
        if counts is not None:
            trials = np.append(counts.sum(axis=0), 0.0)[found]
        told = replace(told, trials=trials)
        if state.belief is None or not self.is_linear:
            return told
        middle, spread = self._believed_of(state, rows)
        # What coefficients may be that the data say nothing about, nobody knows.
        deviation = self.covariates.logit_deviation(self._inner(state), rows)
        if deviation is not None:
            open_rows = np.isnan(deviation) & (found < 0)
            middle, spread = (
                np.where(open_rows, probability, middle),
                np.where(open_rows, np.nan, spread),
            )
        return Posterior(trials, middle, spread, self._rests_on(state, rows, trials))

    def _rests_on(self, state: SumState, rows: Rows, trials: Floats) -> NDArray[np.str_]:
        """Say whose effects an estimate has, row by row; its own if it was flipped."""
        features = "features" if self.columns else "prior"
        told = np.full(len(rows), "", dtype=object)
        for table in state.shared:
            seen = self._numbers(state, table, rows) >= 0
            name = " x ".join(table.keys)
            told = np.where(seen, np.where(told == "", name, told + f", {name}"), told)
        told = np.where(told == "", features, told)
        own = ", ".join(rows.keys) or "all"
        return np.where(trials > 0, own, told).astype(str)

    def coefficients(self, state: SumState) -> pl.DataFrame:
        """Show what the covariates have learned, as coefficients if they have some."""
        frame = self.covariates.to_frame(self._inner(state))
        return frame if self.link == "logit" else frame.drop("odds_ratio", strict=False)

    # -- for people, other logs and files ----------------------------------------------------------
    def adopted(self, state: SumState, rows: Rows) -> SumState | None:
        """Bring an earlier state to other rows: effects go with their levels."""
        begun = self.begin(rows, None)
        inner = self.covariates.adopted(state.inner, rows)
        known = {table.keys: table for table in state.tables}
        tables = []
        for table, learned in zip(begun.tables, self._learned(begun), strict=True):
            old = known.get(table.keys)
            if old is None:
                return None
            found = _numbered(table.levels, old.levels)
            spread = old.spread if learned else table.spread
            tables.append(replace(table, effects=np.append(old.effects, 0.0)[found], spread=spread))
        return replace(begun, inner=begun.inner if inner is None else inner, tables=tuple(tables))

    def trainable(self, state: SumState, rows: Rows) -> Any:
        inner = self.covariates.trainable(state.inner, rows)
        if inner is None:
            return None
        from gecasmo.forms.trainable import TrainableSum

        return TrainableSum(self, state, inner)

    def summary(self, state: SumState) -> str:
        if self.tables == (None,) and self.columns:
            return f"{len(state.rows):,} rows, spread {state.spread:.2g} around their features"
        spreads = ", ".join(
            f"{table.spread:.2g} ({' x '.join(table.keys) or 'all'})" for table in state.tables
        )
        return f"{len(state.rows):,} rows, spreads {spreads}"

    def to_frame(self, state: SumState) -> pl.DataFrame:
        rows, inner = state.rows, self._inner(state)
        by_features = self.covariates.logits(inner, rows)
        columns = [
            *rows.frame.get_columns(),
            pl.Series("probability", self.predict(state, rows)),
            pl.Series("by_features", self._link.probability(by_features)),
        ]
        for table, effects in zip(state.tables, self._effects(state), strict=True):
            name = _OWN if table.is_own else f"effect_{'_'.join(table.keys)}"
            columns.append(pl.Series(name, effects[self._numbers(state, table, rows)]))
        return pl.DataFrame(columns)

    def _effects(self, state: SumState) -> list[Floats]:
        """The effects of each table: their means, once these are known."""
        if state.belief is None:
            return [table.effects for table in state.tables]
        n_shared = sum(len(table.effects) for table in state.shared)
        means = state.belief.mean[len(state.belief.mean) - n_shared :]
        found = np.split(means, _ends(state.shared)[:-1])[: len(state.shared)]
        return [*found, state.belief.own_mean] if state.has_own else found

    def kept_features(self, state: SumState) -> Mapping[str, pl.Series]:
        return state.rows.attached

    def to_data(self, state: SumState) -> tuple[dict[str, Any], Parts]:
        rows, belief = state.rows, state.belief
        inner, parts = self.covariates.to_data(state.inner)
        frames: dict[str, Any] = {f"inner_{name}": part for name, part in parts.items()}
        numbers = []
        if belief is not None:
            numbers = [
                pl.Series("*mean*", belief.row_mean),
                pl.Series("*variance*", belief.row_variance),
                pl.Series("*probability*", belief.probability),
                pl.Series("*deviation*", belief.deviation),
                pl.Series("*own_mean*", belief.own_mean),
                pl.Series("*own_variance*", belief.own_variance),
            ]
            pair = {"mean": belief.mean, "variance": belief.variance}
            frames["columns"] = pl.DataFrame(pair)
            frames["covariance"] = pl.DataFrame({"covariance": belief.covariance.ravel()})
        attached = [rows.attached[name].alias(f"*{name}") for name in rows.attached]
        count = [pl.Series("*row*", np.arange(len(rows)))]
        frames["rows"] = pl.DataFrame([*rows.frame.get_columns(), *count, *numbers, *attached])
        for number, table in enumerate(state.tables):
            effects = pl.Series("*effect*", table.effects)
            levels = [] if table.is_own else table.levels.get_columns()
            frames[f"effects_{number}"] = pl.DataFrame([*levels, effects])
        described = {
            "covariates": self.covariates.name_in_files,
            "inner": inner,
            "tables": [None if keys is None else list(keys) for keys in self.tables],
            "is_written": any(isinstance(part, Table) for part in self.parts),
            "link": self.link,
            "given": list(self._spreads),
            "key": None if self.key is None else list(self.key),
            "keys": list(rows.keys),
            "attached": list(rows.attached),
            "spreads": [table.spread for table in state.tables],
            "own": [table.is_own for table in state.tables],
            "believed_spreads": None if belief is None else belief.spreads.tolist(),
        }
        return described, frames

    @classmethod
    def from_data(cls, data: dict[str, Any], parts: Any, **given: Any) -> tuple[Sum, SumState]:
        mine = {
            name.removeprefix("inner_"): part
            for name, part in parts.items()
            if name.startswith("inner_")
        }
        covariates, inner = form_named(data["covariates"]).from_data(data["inner"], mine, **given)
        named = [None if keys is None else tuple(keys) for keys in data["tables"]]
        tables = [Table(key=keys) for keys in named] if data["is_written"] else []
        written = [] if isinstance(covariates, Intercept) else [covariates]
        spreads = list(data["given"])
        form = cls(
            *tables,
            *written,
            link=data["link"],
            spread=None if set(spreads) == {None} else tuple(spreads) if tables else spreads[0],
            key=None if data["key"] is None else tuple(data["key"]),
        )
        frame, keys, part = parts["rows"], tuple(data["keys"]), "the rows of a sum"
        attached = {name: frame[f"*{name}"].alias(name) for name in data["attached"]}
        rows = Rows(keys, saved.columns(frame, keys, part), len(frame), attached)
        effects = []
        for number, (spread, is_own) in enumerate(zip(data["spreads"], data["own"], strict=True)):
            table, part = parts[f"effects_{number}"], "the effects of a sum"
            shape = (len(rows),) if is_own else None
            values = saved.column(table, "*effect*", part, shape=shape)
            levels = rows.frame if is_own else table.drop("*effect*")
            spread = saved.number(spread, "The spread of a sum", above=0)
            effects.append(Effects(levels, values, spread, bool(is_own)))
        state = SumState(rows, inner, tuple(effects))
        expected = {frozenset(keys if own is None else own) for own in form.tables}
        if {frozenset(table.keys) for table in effects} != expected or not effects:
            raise SavedModelError("The tables of a sum are not those that it was made of.")
        if any(table.is_own for table in effects[:-1]):
            raise SavedModelError("The rows of a sum have several effects of their own.")
        if data["believed_spreads"] is None:
            return form, state
        return form, form._with_belief(state, data, parts)

    def _with_belief(self, state: SumState, data: dict[str, Any], parts: Any) -> SumState:
        """Add what files tell of the belief."""
        frame, part, n = parts["rows"], "the beliefs of a sum", len(state.rows)
        pair, n_columns = parts["columns"], self.design(state, state.rows).n_columns
        flat = saved.column(parts["covariance"], "covariance", part)
        size = round(len(flat) ** 0.5)
        if size**2 != len(flat):
            raise SavedModelError("The covariance of a sum is no square.")
        if size not in (n_columns, self.design(state, state.rows).n_dense):
            raise SavedModelError("The covariance of a sum is not that of its columns.")
        spreads = saved.numbers(data["believed_spreads"], "Spreads", (len(state.tables),), above=0)
        belief = EffectBelief(
            saved.column(pair, "mean", part, shape=(n_columns,)),
            saved.column(pair, "variance", part, shape=(n_columns,), least=0),
            flat.reshape(size, size),
            saved.column(frame, "*own_mean*", part, shape=(n,)),
            saved.column(frame, "*own_variance*", part, shape=(n,), least=0),
            saved.column(frame, "*mean*", part, shape=(n,)),
            saved.column(frame, "*variance*", part, shape=(n,), least=0),
            saved.column(frame, "*probability*", part, shape=(n,), least=0, most=1),
            saved.column(frame, "*deviation*", part, shape=(n,), least=0),
            spreads,
        )
        return self._told(state, belief)

    # -- the parts -----------------------------------------------------------------------------
    def design(self, state: SumState, rows: Rows) -> DesignMatrix:
        """Make the design of some rows: features, and the levels of tables; kept for as long as the
        rows are."""
        if rows not in state.designs:
            features, sizes, n = CodedFeatures(np.zeros((len(rows), 0)), ()), [], len(rows)
            if self.is_linear:
                inner = self.covariates.design(state.inner, rows)
                features, sizes = CodedFeatures(inner.numeric, inner.levels), list(inner.sizes)
            levels = [self._numbers(state, table, rows) for table in state.shared]
            features = CodedFeatures(features.numeric, (*features.levels, *levels))
            sizes += [len(table.effects) for table in state.shared]
            assert len(features) == n
            state.designs[rows] = DesignMatrix(features, sizes, intercept=False)
        design: DesignMatrix = state.designs[rows]
        return design

    def _columns(self, state: SumState) -> Floats:
        """The numbers of all columns of the design."""
        first = [self.covariates.vector(state.inner)] if self.is_linear else []
        return np.concatenate([np.zeros(0), *first, *(table.effects for table in state.shared)])

    def _precision(self, state: SumState) -> Floats:
        """The precision of the prior of each column."""
        parts = [np.zeros(0)]
        if self.is_linear:
            parts = [self.covariates.precision(len(self.covariates.vector(state.inner)))]
        parts += [np.full(len(table.effects), table.spread**-2) for table in state.shared]
        return np.concatenate(parts)

    def _predictor(self, state: SumState, rows: Rows) -> Floats:
        """The most likely predictors."""
        predictor = self.design(state, rows).times(self._columns(state))
        if not self.is_linear:
            predictor = predictor + self.covariates.logits(state.inner, rows)
        if state.has_own:
            predictor = predictor + np.append(state.offsets, 0.0)[self._find(state, rows)]
        return predictor

    def logits(self, state: SumState, rows: Rows) -> Floats:
        if self.link == "logit" and state.belief is None:
            return self._predictor(state, rows)
        return super().logits(state, rows)

    def level_numbers(self, state: SumState, rows: Rows) -> list[Integers]:
        """Tell the number of each row's level, table by table."""
        return [self._numbers(state, table, rows) for table in state.tables]

    def _numbers(self, state: SumState, table: Effects, rows: Rows) -> Integers:
        """The number of each row's level in a table, -1 if it was never seen."""
        if table.is_own:
            return self._find(state, rows)
        return _numbered(rows.frame, table.levels)

    def _find(self, state: SumState, rows: Rows) -> Integers:
        """The places of rows among those of the fit."""
        if rows is state.rows:
            return np.arange(len(rows))
        if "result" in rows.keys:  # shown results, but not those of the fit: numbers mean nothing
            return np.full(len(rows), -1)
        if not rows.keys:
            return np.zeros(len(rows), np.int64)
        return match(rows.frame, state.rows.frame, rows.keys)

    def _inner(self, state: SumState) -> FormState:
        """The covariates as they are believed to be, once that is known."""
        return state.inner if state.told is None else state.told

    def vector(self, state: SumState) -> Floats:
        return np.concatenate([self._columns(state), *([state.offsets] if state.has_own else [])])

    def from_vector(self, state: SumState, vector: Floats) -> SumState:
        n = len(vector) - sum(len(table.effects) for table in state.tables)
        inner = self.covariates.from_vector(state.inner, vector[:n])
        return self.with_effects(state, inner, np.split(vector[n:], _ends(state.tables)[:-1]))


def _ends(tables: tuple[Effects, ...]) -> Integers:
    return np.cumsum([len(table.effects) for table in tables], dtype=np.int64)


def _numbered(frame: pl.DataFrame, levels: pl.DataFrame) -> Integers:
    """The place of each row's level, -1 if it is not there."""
    if not levels.columns:
        return np.zeros(len(frame), np.int64)
    return match(frame.select(levels.columns), levels, levels.columns)


def _sorted(parts: tuple[Any, ...]) -> tuple[Form, list[Keys | None]]:
    """Tell covariates from tables, and refuse what cannot stand in a sum."""
    if not parts:
        raise ModelError('Sum(): give its parts, such as Sum(Table("query", "doc"), Table("doc")).')
    others: list[Form] = []
    tables: list[Keys | None] = []
    for part in parts:
        if isinstance(part, Table):
            if part.key == ():
                raise ModelError(
                    f"Sum({part!r}): a table of one row is the intercept, which is there."
                )
            if repr(part) != repr(Table(key=part.key)):
                raise ModelError(
                    f"Sum({part!r}): in a sum a table has effects around zero, and only its "
                    'columns count: Table("query", "doc").'
                )
            tables.append(part.key)
        elif isinstance(part, Form) and (part.has_design or part.takes_offsets):
            others.append(part)
        else:
            raise ModelError(
                f"Sum({part!r}): its parts are tables and a form that takes offsets, such as "
                'Sum(Table("doc"), Logistic("price")) or Sum(Torch(module, "price")).'
            )
    if len(others) > 1:
        raise ModelError(
            f"Sum({others[0]!r}, {others[1]!r}): one regression on all columns is enough."
        )
    names = [None if keys is None else frozenset(keys) for keys in tables]
    for number, name in enumerate(names):
        if name in names[:number]:
            shown = "" if name is None else ", ".join(map(repr, tables[number] or ()))
            raise ModelError(f"Sum has Table({shown}) twice; an effect is counted once.")
    return (others[0] if others else Intercept()), tables


def _spreads(spread: Any, n_tables: int) -> tuple[float | None, ...]:
    """Check spreads, and tell one for each table; None is learned."""
    several = isinstance(spread, (tuple, list))
    each = list(spread) if several else [spread] * n_tables
    if len(each) != n_tables:
        raise ModelError(
            f"Sum(spread={spread!r}): one for all, or one for each of {n_tables} tables."
        )
    for one in each:
        is_number = isinstance(one, NUMBERS) and not isinstance(one, bool)
        if one is not None and not (is_number and 0 < one < np.inf):
            raise ModelError(f"Sum(spread={one!r}): a positive number is wanted.")
    return tuple(None if one is None else float(one) for one in each)
