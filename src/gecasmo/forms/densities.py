"""The form of numbers that users are seen through: a distribution per value of a hidden state.

All densities of one column are one form, since a value is told apart by how much likelier it is
under one of them than under another. Kernels get these ratios, each to the likeliest, as if they
were probabilities of heads; what they leave out, the density under the likeliest, is the same for
all hidden paths and is added to the log-likelihood afterwards (`log_scale`). Expected heads are how
much of each value belongs to each density, and the M-step fits each to its share.

With keys, such as a device, each value of these has a distribution of its own for every value of
the hidden state, and values that a fit has not met have that of all together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.features import is_missing
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.forms.families import NARROWEST, Family, family_from_data
from gecasmo.forms.form import Bools, Floats, Form, Posterior
from gecasmo.forms.logits import expit

if TYPE_CHECKING:
    from gecasmo.forms.memory import Memory

# Nothing that is possible gets weight 0.
_SMALLEST = 1e-290
# What the densities of a state are at the rows that it was last asked about: a fit asks for each
# several times, as a weight, for the likelihood, and to see how far it has moved.
_known: WeakKeyDictionary[DensityState, tuple[ref[Rows], Floats, Bools]] = WeakKeyDictionary()
# And the values of rows, which are read once.
_read: WeakKeyDictionary[Rows, dict[Any, Any]] = WeakKeyDictionary()

Group = tuple[Any, ...]  # a value of each key


class Seen(NamedTuple):
    """The values of rows: where there are any, all of them, and by group the places among these
    with the values there."""

    at: Bools
    x: Floats
    groups: Mapping[Group, tuple[NDArray[np.int64], Floats]]


@dataclass(frozen=True, eq=False)
class DensityState:
    """A distribution per coin, and per coin the one of all values, which starts and widths go by.

    Both lack numbers where a fit has seen no value at all. `by_key` has a distribution per coin for
    each group of rows, if there are keys; then `families` are those of all groups together.
    """

    families: Mapping[str, Family]
    common: Mapping[str, Family]
    n_values: Mapping[str, float]  # by coin, how many values are expected to be its own
    is_one: bool = False  # whether all values are the same
    by_key: Mapping[Group, Mapping[str, Family]] = field(default_factory=dict)
    n_by_key: Mapping[Group, Mapping[str, float]] = field(default_factory=dict)
    # In an update, what values of earlier logs are worth: where they were, and how many; by group,
    # or None for all together.
    past: Mapping[Group | None, Mapping[str, tuple[Floats, Floats]]] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether all distributions have their numbers."""
        return all(family.is_known for family in self.families.values())

    def of(self, group: Group) -> Mapping[str, Family]:
        """The distributions of a group, by coin; those of all together if it was not met."""
        return self.by_key.get(group, self.families)

    @property
    def free(self) -> list[Mapping[str, Family]]:
        """The distributions that values are held against: of groups, if there are any."""
        return list(self.by_key.values()) or [self.families]


class Densities(Form):
    """The densities of one column: `families` has the kind of each, by coin."""

    missing = "unobserved"
    is_joint = True

    def __init__(self, column: str, families: Mapping[str, Family], by: Sequence[str] = ()) -> None:
        self.column, self.families, self.by = column, dict(families), tuple(by)
        self.columns = (column, *self.by)

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

    def _values(self, rows: Rows) -> Seen:
        """The values of rows, and whose they are."""
        known = _read.setdefault(rows, {})
        if self.columns not in known:
            known[self.columns] = self._read(rows)
        found: Seen = known[self.columns]
        return found

    def _read(self, rows: Rows) -> Seen:
        if self.column not in rows.keys:
            return Seen(np.zeros(len(rows), bool), np.zeros(0), {})
        column = rows.frame[self.column]
        at = ~is_missing(column)
        x = _kept(column.cast(pl.Float64).to_numpy()[at])
        if not self.by:
            return Seen(at, x, {})
        groups = rows.frame.select(self.by).filter(pl.Series(at))
        _check_groups(groups)
        places = _places(groups)
        return Seen(at, x, {group: (own, _kept(x[own])) for group, own in places.items()})

    def _log_densities(self, state: DensityState, rows: Rows) -> tuple[Floats, Bools]:
        """`[coin, row]`, 0 where there is no value; and which rows have one."""
        known = _known.get(state)
        if known is not None and known[0]() is rows:
            return known[1], known[2]
        found = self._log_densities_of(state, rows)
        at = self._values(rows).at
        _known[state] = (ref(rows), found, at)
        return found, at

    def _log_densities_of(self, state: DensityState, rows: Rows) -> Floats:
        seen = self._values(rows)
        found = np.zeros((len(self.families), len(rows)))
        if not len(seen.x):
            return found
        if not state.is_known:
            raise ModelError(
                f"Nothing is known of how '{self.column}' is spread: the fit has seen no value."
            )
        for line, coin in zip(found, self.families, strict=True):
            own = np.empty(len(seen.x))
            if not self.by:
                own = state.families[coin].log_density(seen.x)
            for group, (places, x) in seen.groups.items():
                own[places] = state.of(group)[coin].log_density(x)
            line[seen.at] = own
        return found

    # -- what every form does --------------------------------------------------------------------
    def begin(self, rows: Rows, generator: np.random.Generator | None) -> DensityState:
        seen = self._values(rows)
        nothing = dict.fromkeys(self.families, 0.0)
        if not len(seen.x):
            return DensityState(self.families, self.families, nothing)
        ones = np.ones(len(seen.x))
        common = {coin: kind.fitted(seen.x, ones) for coin, kind in self.families.items()}
        families, is_one = common, bool((seen.x == seen.x[0]).all())
        if generator is not None and not is_one:
            families = {
                coin: start.moved(generator.normal(0, 0.5, len(start.vector(start))))
                for coin, start in common.items()
            }
        by_key = dict.fromkeys(seen.groups, families)
        return DensityState(
            families, common, nothing, is_one, by_key, dict.fromkeys(by_key, nothing)
        )

    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: DensityState) -> DensityState:
        sides = np.stack([tails, heads])
        return self.fit_together(rows, dict.fromkeys(self.families, sides), previous)

    def fit_together(
        self, rows: Rows, counts: Mapping[str, Floats], previous: DensityState
    ) -> DensityState:
        seen = self._values(rows)
        weights = {coin: sides[1][seen.at] for coin, sides in counts.items()}
        families, n_values = self._fitted(previous.families, seen.x, weights, previous, None)
        by_key, n_by_key = dict(previous.by_key), dict(previous.n_by_key)
        for group in previous.by_key:
            places, x = seen.groups.get(group, _NOTHING)
            own = {coin: weight[places] for coin, weight in weights.items()}
            of = previous.by_key[group]
            by_key[group], n_by_key[group] = self._fitted(of, x, own, previous, group)
        return replace(
            previous, families=families, n_values=n_values, by_key=by_key, n_by_key=n_by_key
        )

    def _fitted(
        self,
        before: Mapping[str, Family],
        x: Floats,
        weights: Mapping[str, Floats],
        previous: DensityState,
        group: Group | None,
    ) -> tuple[Mapping[str, Family], Mapping[str, float]]:
        """The distributions of some values, by coin, and how many values are each one's own."""
        families, n_values = dict(before), {}
        for coin, weight in weights.items():
            n_values[coin] = float(weight.sum())
            if previous.is_one:  # then there is nothing to be told apart
                continue
            values = x
            if coin in previous.past.get(group, {}):
                earlier, times = previous.past[group][coin]
                values, weight = np.concatenate([x, earlier]), np.concatenate([weight, times])
            if not weight.sum() > 0:
                continue
            after = before[coin].fitted(values, weight, previous.common[coin])
            # It is the optimum, but for rounding.
            # Sums are not left to BLAS, which adds in an order that goes by its threads.
            change = after.log_density(values) - before[coin].log_density(values)
            families[coin] = after if (weight * change).sum() >= 0 else before[coin]
        return families, n_values

    def penalty(self, state: DensityState) -> float:
        """What earlier logs say, in an update."""
        total = 0.0
        for group, by_coin in state.past.items():
            if group is None and state.by_key:
                continue  # that of all together is only for groups yet to come
            own = state.families if group is None else state.of(group)
            for coin, (x, times) in by_coin.items():
                total += float((times * own[coin].log_density(x)).sum())
        return total

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
        return expit(self.logits(state, rows))

    def logits(self, state: DensityState, rows: Rows) -> Floats:
        logs, seen = self._log_densities(state, rows)
        first = logs[0] if len(logs) > 1 else np.zeros(len(rows))
        return np.where(seen, np.clip(logs[-1] - first, -30.0, 30.0), 0.0)

    def drawn_values(
        self, state: DensityState, coin: str, share: Floats, groups: pl.DataFrame
    ) -> Floats:
        """Give the value below which each share of those of one density lies; `groups` has the keys
        at each place."""
        if not state.is_known:
            raise ModelError(f"Nothing is known of how '{self.column}' is spread.")
        if not state.by_key:
            return state.families[coin].quantile(share)
        found = np.empty(len(share))
        for group, at in _places(groups.select(self.by)).items():
            found[at] = state.of(group)[coin].quantile(share[at])
        return found

    # -- as a vector ---------------------------------------------------------------------------
    def vector(self, state: DensityState) -> Floats:
        if not state.is_known or state.is_one:
            return np.zeros(0)
        own = [
            by_coin[coin].vector(state.common[coin])
            for by_coin in state.free
            for coin in self.families
        ]
        return np.concatenate(own)

    def from_vector(self, state: DensityState, vector: Floats) -> DensityState:
        if not len(vector):
            return state
        moved, start = [], 0
        for _ in state.free:
            own = {}
            for coin, common in state.common.items():
                size = len(common.vector(common))
                own[coin] = common.moved(vector[start : start + size])
                start += size
            moved.append(own)
        if not state.by_key:
            return replace(state, families=moved[0])
        return replace(state, by_key=dict(zip(state.by_key, moved, strict=True)))

    @property
    def has_score(self) -> bool:
        return True

    def score_together(
        self, state: DensityState, rows: Rows, counts: Mapping[str, Floats]
    ) -> Floats:
        if not len(self.vector(state)):
            return np.zeros(0)
        seen = self._values(rows)
        own = []
        for group, by_coin in zip(state.by_key or [None], state.free, strict=True):
            places: Any = slice(None)
            here = seen.x
            if group is not None:
                places, here = seen.groups.get(group, _NOTHING)
            past = state.past.get(group, {})
            for coin in self.families:
                common, weight = state.common[coin], counts[coin][1][seen.at][places]
                slopes = by_coin[coin].slopes(here, common)
                total = (slopes * weight).sum(axis=1)
                if coin in past:
                    x, times = past[coin]
                    total = total + (by_coin[coin].slopes(x, common) * times).sum(axis=1)
                own.append(total)
        return np.concatenate(own)

    def squares(self, state: DensityState, rows: Rows, weight: Floats) -> Floats:
        return np.full(len(self.vector(state)), weight.sum())

    # -- for people ----------------------------------------------------------------------------
    def options(self) -> dict[str, Any]:
        return {"column": self.column, "families": self.families, "by": self.by}

    def __repr__(self) -> str:
        kinds = [*dict.fromkeys(map(repr, self.families.values())), *map(repr, self.by)]
        return f"Density({', '.join(kinds)}) of {self.column}"

    def to_frame(self, state: DensityState) -> pl.DataFrame:
        nowhere = dict.fromkeys(self.by)
        groups = [(nowhere, state.families, state.n_values)] + [
            (dict(zip(self.by, group, strict=True)), own, state.n_by_key[group])
            for group, own in state.by_key.items()
        ]
        lines = [
            {"density": coin, "column": self.column}
            | keys
            | {"kind": type(family).__name__}
            | family.numbers()
            | {"values": n_values[coin]}
            for keys, by_coin, n_values in groups
            for coin, family in by_coin.items()
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
        if isinstance(values, Mapping) and self.by and values:
            return self._given_by_key(values, coin)
        if type(values) is not type(kind):
            raise ModelError(
                f"{coin}={values!r}: a distribution is wanted, such as "
                f"{type(kind).__name__}({', '.join(kind.numbers())})."
            )
        known = {coin: values.checked(coin)}
        return DensityState(known, known, {coin: 0.0})

    def _given_by_key(self, values: Mapping[Any, Any], coin: str) -> DensityState:
        """A distribution for each value of the keys; that of the first serves others."""
        by_key: dict[Group, dict[str, Family]] = {}
        for value, own in values.items():
            group = value if isinstance(value, tuple) else (value,)
            if len(group) != len(self.by):
                raise ModelError(
                    f"{coin}={{{value!r}: ...}}: a value of each of {', '.join(self.by)} is wanted."
                )
            by_key[group] = {coin: self.given(own, (), coin).families[coin]}
        first = next(iter(by_key.values()))
        none = {group: {coin: 0.0} for group in by_key}
        return DensityState(first, first, {coin: 0.0}, False, by_key, none)

    def given_together(self, values: Mapping[str, Any]) -> DensityState:
        own = [self.given(value, (), coin) for coin, value in values.items()]
        known = {coin: family for one in own for coin, family in one.families.items()}
        groups = dict.fromkeys(group for one in own for group in one.by_key)
        by_key = {
            group: {coin: f for one in own for coin, f in one.of(group).items()} for group in groups
        }
        nothing = dict.fromkeys(known, 0.0)
        none = dict.fromkeys(groups, nothing)
        return DensityState(known, known, nothing, False, by_key, none)

    def invented(self, generator: np.random.Generator, log: pl.DataFrame) -> DensityState:
        x = np.array([0.2, 0.4, 0.5, 0.7])

        def some() -> dict[str, Family]:
            begun = {coin: kind.fitted(x, np.ones(len(x))) for coin, kind in self.families.items()}
            return {
                coin: start.moved(generator.normal(0, 0.5, len(start.vector(start))))
                for coin, start in begun.items()
            }

        made, nothing = some(), dict.fromkeys(self.families, 0.0)
        groups = log.select(self.by).unique(maintain_order=True).rows() if self.by else []
        by_key = {group: some() for group in groups[1:]}  # of one group nothing is known
        return DensityState(made, made, nothing, False, by_key, dict.fromkeys(by_key, nothing))

    def adopted(self, state: DensityState, rows: Rows) -> DensityState | None:
        begun = self.begin(rows, None)
        kinds = {coin: type(family) for coin, family in self.families.items()}
        if {coin: type(family) for coin, family in state.families.items()} != kinds:
            return None
        if not (state.is_known and begun.is_known):
            return state if state.is_known else begun
        by_key = {group: state.of(group) for group in begun.by_key}
        return replace(begun, families=state.families, by_key=by_key)

    def memory(self, state: DensityState, counts: Floats, decay: float) -> Memory:
        from gecasmo.forms.memory import DensityMemory

        return DensityMemory(self, state, decay)

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
            | self._groups_data(state, coin)
            for coin, family in state.families.items()
        ]
        data = {"column": self.column, "densities": lines}
        if self.by:
            data |= {"keys": list(self.by), "groups": list(map(list, state.by_key))}
        return data, {}

    def _groups_data(self, state: DensityState, coin: str) -> dict[str, Any]:
        if not self.by:
            return {}
        numbers = [own[coin].numbers() for own in state.by_key.values()]
        return {"by_key": numbers, "n_by_key": [own[coin] for own in state.n_by_key.values()]}

    @classmethod
    def from_data(cls, data: dict[str, Any], parts: Any) -> tuple[Densities, DensityState]:
        lines: Sequence[Any] = data["densities"]
        families = {line["coin"]: family_from_data(line) for line in lines}
        common = {
            line["coin"]: family_from_data({**line, "numbers": line["common"]}) for line in lines
        }
        keys = tuple(map(str, data.get("keys", ())))
        groups = [tuple(group) for group in data.get("groups", ())]
        by_key: dict[Group, dict[str, Family]] = {group: {} for group in groups}
        n_by_key: dict[Group, dict[str, float]] = {group: {} for group in groups}
        for line in lines if keys else ():
            both = zip(groups, line["by_key"], line["n_by_key"], strict=True)
            for group, numbers, n_values in both:
                if len(group) != len(keys):
                    raise ValueError("groups of other keys")
                by_key[group][line["coin"]] = family_from_data({**line, "numbers": numbers})
                n_by_key[group][line["coin"]] = float(n_values)
        kinds = {coin: type(family)() for coin, family in families.items()}
        form = cls(str(data["column"]), kinds, keys)
        counts = {line["coin"]: float(line["values"]) for line in lines}
        return form, DensityState(families, common, counts, False, by_key, n_by_key)


def _places(groups: pl.DataFrame) -> dict[Group, NDArray[np.int64]]:
    """By value of the keys, the rows that have it."""
    keys = groups.columns
    listed = groups.with_row_index("*place*").group_by(keys, maintain_order=True).all()
    values, places = listed.select(keys).rows(), listed["*place*"]
    return {
        group: own.to_numpy().astype(np.int64) for group, own in zip(values, places, strict=True)
    }


def _kept(x: Floats) -> Floats:
    """Values that stay as they are, so that others may remember what follows from them."""
    x.flags.writeable = False
    return x


def _check_groups(groups: pl.DataFrame) -> None:
    """Refuse keys that a file could not keep."""
    for name in groups.columns:
        type_ = groups[name].dtype
        textual = type_ in (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Null)
        if not (textual or type_.is_integer()):
            raise ModelError(
                f"A Density by '{name}' wants texts, whole numbers or yes and no there, and the "
                f"column holds {type_}."
            )
        if groups[name].null_count():
            raise ClickLogError(
                f"A Density depends on '{name}', but {groups[name].null_count():,} values that are "
                "observed have none there."
            )


_NOTHING: tuple[NDArray[np.int64], Floats] = np.zeros(0, np.int64), np.zeros(0)
