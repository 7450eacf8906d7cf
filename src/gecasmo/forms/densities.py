"""The form of numbers that users are seen through: a distribution per value of a hidden state.

All densities of one column are one form, since a value is told apart by how much likelier it is
under one of them than under another. Kernels get these ratios, each to the likeliest, as if they
were probabilities of heads; what they leave out, the density under the likeliest, is the same for
all hidden paths and is added to the log-likelihood afterwards (`log_scale`). Expected heads are how
much of each value belongs to each density, and the M-step fits each to its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import polars as pl

from gecasmo.encoding.features import is_missing
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.forms.families import NARROWEST, Family, family_from_data
from gecasmo.forms.form import Bools, Floats, Form, Posterior

# Nothing that is possible gets weight 0.
_SMALLEST = 1e-290
# What the densities of a state are at the rows that it was last asked about: a fit asks for each
# several times, as a weight, for the likelihood, and to see how far it has moved.
_known: WeakKeyDictionary[DensityState, tuple[ref[Rows], Floats, Bools]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class DensityState:
    """A distribution per coin, and per coin the one of all values, which starts and widths go by.

    Both lack numbers where a fit has seen no value at all.
    """

    families: Mapping[str, Family]
    common: Mapping[str, Family]
    n_values: Mapping[str, float]  # by coin, how many values are expected to be its own
    is_one: bool = False  # whether all values are the same

    @property
    def is_known(self) -> bool:
        """Whether all distributions have their numbers."""
        return all(family.is_known for family in self.families.values())


class Densities(Form):
    """The densities of one column: `families` has the kind of each, by coin."""

    missing = "unobserved"
    is_joint = True

    def __init__(self, column: str, families: Mapping[str, Family]) -> None:
        self.column, self.families = column, dict(families)
        self.columns = (column,)

    def column_of(self, coin: str) -> str | None:
        return self.column if coin in self.families else None

    # -- values --------------------------------------------------------------------------------
    def check(self, values: pl.Series) -> None:
        """Refuse a column of which some value cannot be."""
        if not values.dtype.is_numeric() and values.dtype != pl.Null:
            raise ClickLogError(
                f"The model observes '{self.column}' as a number, but the column holds "
                f"{values.dtype}."
            )
        kinds = list(dict.fromkeys(self.families.values()))
        x = values.cast(pl.Float64).to_numpy()
        wrong = ~is_missing(values) & ~self._is_possible(x)
        if wrong.any():
            row = int(np.argmax(wrong))
            where = min((kind.where for kind in kinds), key=len) if len(kinds) == 1 else ""
            told = where or " and ".join(f"{kind!r}: {kind.where}" for kind in kinds)
            raise ClickLogError(
                f"The model observes '{self.column}' as {kinds[0]!r}, which has {told}, but "
                f"{int(wrong.sum()):,} of {len(x):,} results have another value (first: row {row} "
                f"has {x[row]:g}). Where it was not recorded it is to be null."
            )

    def _is_possible(self, x: Floats) -> Bools:
        low = max(kind.low for kind in self.families.values())
        high = min(kind.high for kind in self.families.values())
        with np.errstate(invalid="ignore"):
            return np.isfinite(x) & (x > low) & (x < high)

    def _values(self, rows: Rows) -> tuple[Floats, Bools]:
        """The value of each row, and which rows have one."""
        if self.column not in rows.keys:
            return np.full(len(rows), np.nan), np.zeros(len(rows), bool)
        column = rows.frame[self.column]
        return column.cast(pl.Float64).to_numpy(), ~is_missing(column)

    def _log_densities(self, state: DensityState, rows: Rows) -> tuple[Floats, Bools]:
        """`[coin, row]`, 0 where there is no value; and which rows have one."""
        known = _known.get(state)
        if known is not None and known[0]() is rows:
            return known[1], known[2]
        found, seen = self._log_densities_of(state, rows)
        _known[state] = (ref(rows), found, seen)
        return found, seen

    def _log_densities_of(self, state: DensityState, rows: Rows) -> tuple[Floats, Bools]:
        x, seen = self._values(rows)
        found = np.zeros((len(self.families), len(rows)))
        if not seen.any():
            return found, seen
        if not state.is_known:
            raise ModelError(
                f"Nothing is known of how '{self.column}' is spread: the fit has seen no value."
            )
        for place, coin in enumerate(self.families):
            found[place, seen] = state.families[coin].log_density(x[seen])
        return found, seen

    # -- what every form does --------------------------------------------------------------------
    def begin(self, rows: Rows, generator: np.random.Generator | None) -> DensityState:
        x, seen = self._values(rows)
        if not seen.any():
            return DensityState(self.families, self.families, dict.fromkeys(self.families, 0.0))
        ones = np.ones(int(seen.sum()))
        common = {coin: kind.fitted(x[seen], ones) for coin, kind in self.families.items()}
        families, is_one = common, bool((x[seen] == x[seen][0]).all())
        if generator is not None and not is_one:
            families = {
                coin: start.moved(generator.normal(0, 0.5, len(start.vector(start))))
                for coin, start in common.items()
            }
        return DensityState(families, common, dict.fromkeys(self.families, 0.0), is_one)

    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: DensityState) -> DensityState:
        sides = np.stack([tails, heads])
        return self.fit_together(rows, dict.fromkeys(self.families, sides), previous)

    def fit_together(
        self, rows: Rows, counts: Mapping[str, Floats], previous: DensityState
    ) -> DensityState:
        x, seen = self._values(rows)
        families, n_values = dict(previous.families), dict(previous.n_values)
        if previous.is_one:  # then there is nothing to be told apart
            n_values = {coin: float(sides[1][seen].sum()) for coin, sides in counts.items()}
            return replace(previous, n_values=n_values)
        for coin, sides in counts.items():
            weight = sides[1][seen]
            n_values[coin] = float(weight.sum())
            if not n_values[coin] > 0:
                continue
            before, common = families[coin], previous.common[coin]
            after = before.fitted(x[seen], weight, common)
            # It is the optimum, but for rounding.
            # Sums are not left to BLAS, which adds in an order that goes by its threads.
            change = after.log_density(x[seen]) - before.log_density(x[seen])
            families[coin] = after if (weight * change).sum() >= 0 else before
        return replace(previous, families=families, n_values=n_values)

    def probabilities(self, state: DensityState, rows: Rows, coin: str) -> Floats:
        """How likely each value is under one of the densities, the likeliest being 1."""
        logs, seen = self._log_densities(state, rows)
        own = logs[list(self.families).index(coin)] - logs.max(axis=0)
        return np.where(seen, np.maximum(np.exp(own), _SMALLEST), 1.0)

    def log_scale(self, state: DensityState, rows: Rows) -> Floats:
        logs, _ = self._log_densities(state, rows)
        found: Floats = logs.max(axis=0)
        return found

    def predict(self, state: DensityState, rows: Rows) -> Floats:
        """How much each value speaks for the last of the densities against the first; only to tell
        how far a fit has moved."""
        from scipy.special import expit

        found: Floats = expit(self.logits(state, rows))
        return found

    def logits(self, state: DensityState, rows: Rows) -> Floats:
        logs, seen = self._log_densities(state, rows)
        first = logs[0] if len(logs) > 1 else np.zeros(len(rows))
        return np.where(seen, np.clip(logs[-1] - first, -30.0, 30.0), 0.0)

    def drawn_values(self, state: DensityState, coin: str, share: Floats) -> Floats:
        """Give the value below which each share of those of one density lies."""
        if not state.is_known:
            raise ModelError(f"Nothing is known of how '{self.column}' is spread.")
        return state.families[coin].quantile(share)

    # -- as a vector ---------------------------------------------------------------------------
    def vector(self, state: DensityState) -> Floats:
        if not state.is_known or state.is_one:
            return np.zeros(0)
        own = [state.families[coin].vector(state.common[coin]) for coin in self.families]
        return np.concatenate(own)

    def from_vector(self, state: DensityState, vector: Floats) -> DensityState:
        if not len(vector):
            return state
        families, start = {}, 0
        for coin in self.families:
            common = state.common[coin]
            size = len(common.vector(common))
            families[coin] = common.moved(vector[start : start + size])
            start += size
        return replace(state, families=families)

    @property
    def has_score(self) -> bool:
        return True

    def score_together(
        self, state: DensityState, rows: Rows, counts: Mapping[str, Floats]
    ) -> Floats:
        if not len(self.vector(state)):
            return np.zeros(0)
        x, seen = self._values(rows)
        own = []
        for coin in self.families:
            slopes = state.families[coin].slopes(x[seen], state.common[coin])
            own.append((slopes * counts[coin][1][seen]).sum(axis=1))
        return np.concatenate(own)

    def squares(self, state: DensityState, rows: Rows, weight: Floats) -> Floats:
        return np.full(len(self.vector(state)), weight.sum())

    # -- for people ----------------------------------------------------------------------------
    def options(self) -> dict[str, Any]:
        return {"column": self.column, "families": self.families}

    def __repr__(self) -> str:
        kinds = dict.fromkeys(map(repr, self.families.values()))
        return f"Density({', '.join(kinds)}) of {self.column}"

    def to_frame(self, state: DensityState) -> pl.DataFrame:
        lines = [
            {"density": coin, "column": self.column, "kind": type(family).__name__}
            | family.numbers()
            | {"values": state.n_values[coin]}
            for coin, family in state.families.items()
        ]
        return pl.DataFrame(lines, infer_schema_length=None)

    def summary(self, state: DensityState) -> str:
        own = [f"{family!r}" for family in state.families.values()]
        return "; ".join(own) if state.is_known else "nothing observed"

    def remarks(self, state: DensityState, heads: Floats, tails: Floats) -> list[str]:
        if not state.is_known:
            return [f"'{self.column}' is recorded nowhere, so how it is spread is not learned"]
        if state.is_one:
            return [
                f"'{self.column}' has one value wherever it is recorded, so it tells nothing, and "
                "its width is made up"
            ]
        told = []
        for coin, family in state.families.items():
            if state.n_values[coin] == 0:
                told.append(f"no value of '{self.column}' is taken to be one of {coin}")
            elif family.is_narrowest(state.common[coin]):
                told.append(
                    f"{coin} is as narrow as it may be, {NARROWEST:.0%} of the width of all "
                    f"values: nearly all that it has of '{self.column}' are one value"
                )
        return told

    def posterior(
        self, state: DensityState, rows: Rows, probability: Floats, counts: Floats | None
    ) -> Posterior:
        raise ModelError(
            f"'{self.column}' is observed, not flipped: its densities have no probabilities to be "
            "estimated. model.parameters shows them."
        )

    # -- given, and in files -----------------------------------------------------------------------
    def given(self, values: Any, keys: tuple[str, ...], coin: str) -> DensityState:
        kind = self.families[coin]
        if type(values) is not type(kind):
            raise ModelError(
                f"{coin}={values!r}: a distribution is wanted, such as "
                f"{type(kind).__name__}({', '.join(kind.numbers())})."
            )
        known = {coin: values.checked(coin)}
        return DensityState(known, known, {coin: 0.0})

    def given_together(self, values: Mapping[str, Any]) -> DensityState:
        own = [self.given(value, (), coin).families for coin, value in values.items()]
        known = {coin: family for one in own for coin, family in one.items()}
        return DensityState(known, known, dict.fromkeys(known, 0.0))

    def invented(self, generator: np.random.Generator) -> DensityState:
        x = np.array([0.2, 0.4, 0.5, 0.7])
        made = {
            coin: begun.moved(generator.normal(0, 0.5, len(begun.vector(begun))))
            for coin, kind in self.families.items()
            for begun in [kind.fitted(x, np.ones(len(x)))]
        }
        return DensityState(made, made, dict.fromkeys(made, 0.0))

    def adopted(self, state: DensityState, rows: Rows) -> DensityState | None:
        begun = self.begin(rows, None)
        kinds = {coin: type(family) for coin, family in self.families.items()}
        if {coin: type(family) for coin, family in state.families.items()} != kinds:
            return None
        if not (state.is_known and begun.is_known):
            return state if state.is_known else begun
        return replace(begun, families=state.families)

    def starting_at(self, state: DensityState, rows: Rows, probability: Floats) -> DensityState:
        return state

    def to_data(self, state: DensityState) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
        lines = [
            {
                "coin": coin,
                "kind": type(family).__name__,
                "numbers": family.numbers(),
                "common": state.common[coin].numbers(),
                "values": state.n_values[coin],
            }
            for coin, family in state.families.items()
        ]
        return {"column": self.column, "densities": lines}, {}

    @classmethod
    def from_data(cls, data: dict[str, Any], parts: Any) -> tuple[Densities, DensityState]:
        lines: Sequence[Any] = data["densities"]
        families = {line["coin"]: family_from_data(line) for line in lines}
        common = {
            line["coin"]: family_from_data({**line, "numbers": line["common"]}) for line in lines
        }
        form = cls(str(data["column"]), {coin: type(f)() for coin, f in families.items()})
        counts = {line["coin"]: float(line["values"]) for line in lines}
        return form, DensityState(families, common, counts)
