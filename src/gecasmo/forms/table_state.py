"""What is known of the rows of a table, what logs say of them as heads and tails, and both as data.

Expected counts would claim more than was seen, since hidden flips count in them as if they had been
looked at. So a row's evidence is worth as many flips as its posterior is narrow.

A table whose rows are in files (`forms/parted_table.py`) is asked by the same methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.averages import EXPOSURE
from gecasmo.encoding.rows import Rows
from gecasmo.errors import SavedModelError
from gecasmo.forms import saved
from gecasmo.forms.form import Floats
from gecasmo.forms.priors import Effect, Priors, Unseen
from gecasmo.forms.typical import SmoothFunction

Answer = TypeVar("Answer")

# No posterior is worth less than this, in flips.
_LEAST = 1e-6
# No draw is nearer to certainty: rounded to 0 or 1 it would make what people did impossible.
_NEAREST_DRAW = 1e-8
# In spreads, pseudo-counts of less than half a flip a side count as that much, since otherwise a
# single click would be certainty.
_FLOOR = 0.5


@dataclass(frozen=True)
class TableState:
    """A probability per row; `otherwise` is the answer for rows that are not there.

    `pseudo` are the heads and tails added to every row, or, `[heads or tails, row]`, to each: those
    that `priors` are worth, if they were learned. `typical` is what these depend on. `centre` and
    `spread` are each row's posterior mean and standard deviation; with a learned prior the mean is
    the probability itself. `evidence` is what the log said of each row, global coins held, in heads
    and tails beyond the pseudo-counts. `leans` is by how many heads in place of tails that would
    differ if global coins did: by coin, `[its row, row]`, for each logit.
    """

    rows: Rows
    probability: Floats
    otherwise: float
    is_fixed: NDArray[np.bool_] | None = None
    is_constant: bool = False  # `otherwise` is meant for every row there is
    pseudo: Floats | tuple[float, float] = (1.0, 1.0)
    priors: Priors | None = None
    typical: Mapping[str, Floats] | None = None
    spread: Floats | None = None
    centre: Floats | None = None
    evidence: Floats | None = None
    leans: Mapping[str, Floats] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.probability)

    @property
    def has_prior(self) -> bool:
        """Whether rows that were never flipped have an answer other than their start."""
        return self.priors is not None or bool(np.any(np.add(*self.pseudo) > 0))

    @property
    def has_given(self) -> bool:
        """Whether some rows were given, not estimated."""
        return self.is_constant or (self.is_fixed is not None and bool(self.is_fixed.any()))

    @property
    def in_files(self) -> None:
        """Its rows are in memory."""

    def ask(self, question: Callable[[TableState, Rows], Answer], rows: Rows) -> Answer:
        """Ask about rows; of a table in files, the parts that they belong to."""
        return question(self, rows)

    def parts(self) -> Iterator[tuple[TableState, Floats | None]]:
        """Go through all rows, with their expected tails and heads if it knows them."""
        yield self, None

    def whole(self) -> tuple[TableState, Floats | None]:
        """Have all rows in memory, with the same."""
        return self, None

    def idle(self, flips: Floats) -> tuple[int, dict[str, Any]]:
        """Count the rows without flips that were not given, and show the first."""
        is_idle = flips <= 0
        if self.is_fixed is not None:
            is_idle &= ~self.is_fixed
        if not is_idle.any():
            return 0, {}
        return int(is_idle.sum()), self.rows.frame.row(int(np.argmax(is_idle)), named=True)

    def summary(self) -> str:
        """Say in a few words what was learned."""
        if self.n_rows == 1:
            return f"= {self.probability[0]:.4f}"
        if not self.n_rows:
            return f"= {self.otherwise:.4f} for all"
        words = f"{self.n_rows:,} rows, mean {self.probability.mean():.4f}"
        if self.priors is None:
            return words
        strength = np.sum(self.pseudo, axis=0)
        worth = float(np.exp(np.log(strength).mean()))
        low, middle, high = np.quantile(self.pseudo[0] / strength, (0.05, 0.5, 0.95))
        usual = f"{middle:.3f}" if high - low < 0.002 else f"{middle:.3f} ({low:.3f} to {high:.3f})"
        return f"{words}; prior mean {usual}, worth {worth:.3g} flips"

    def of_rows(self, places: NDArray[np.int64]) -> TableState:
        """Choose some of the rows."""

        def of(values: Any) -> Any:
            if isinstance(values, Mapping):
                return {name: of(own) for name, own in values.items()}
            return values[..., places] if isinstance(values, np.ndarray) else values

        chosen = pl.Series(places)
        columns = [self.rows.frame[key].gather(chosen) for key in self.rows.keys]
        by_row = ("probability", "is_fixed", "pseudo", "spread", "centre", "evidence")
        return replace(
            self,
            rows=Rows(self.rows.keys, columns, len(places)),
            **{name: of(getattr(self, name)) for name in (*by_row, "typical", "leans")},
        )


def prior_of(state: TableState) -> Floats:
    """Tell the pseudo-counts of each row, `[heads or tails, row]`."""
    n = len(state.probability)
    return np.stack([np.broadcast_to(np.asarray(side, float), (n,)) for side in state.pseudo])


def floor_of(state: TableState, prior: Floats) -> Floats:
    """Tell what spreads add to the prior of each row, in flips."""
    floor = 0.0 if state.priors is not None else _FLOOR
    added: Floats = np.maximum(floor - prior, 0.0).sum(axis=0)
    return added


def strength_of(mean: Any, spread: Any) -> Floats:
    """Tell the flips that a Beta distribution with this mean and deviation is worth."""
    inside = np.clip(mean, 1e-12, 1 - 1e-12)
    ratio = inside * (1 - inside) / np.maximum(np.asarray(spread, float), 1e-12) ** 2
    strength: Floats = np.maximum(ratio - 1, _LEAST)
    return strength


def evidence(state: TableState, strength: Any) -> Floats:
    """Tell heads and tails of rows beyond their pseudo-counts if both are worth `strength`.

    Added to the pseudo-counts they have their highest at the probability that the row has. They may
    be negative: hidden flips can make a posterior wider than it was; the sum never is.
    """
    strength = np.maximum(strength, _LEAST)
    together = np.stack([strength * state.probability, strength * (1 - state.probability)])
    beyond: Floats = together - prior_of(state)
    return beyond if state.is_fixed is None else np.where(state.is_fixed, 0.0, beyond)


def worth_of(state: TableState) -> Floats:
    """Tell the flips that the evidence of rows and their pseudo-counts are worth together."""
    assert state.evidence is not None
    worth: Floats = (state.evidence + prior_of(state)).sum(axis=0)
    return worth


def posterior_evidence(state: TableState, mean: Floats, spread: Floats) -> Floats:
    """Tell the evidence behind posterior means and deviations of rows, all else held."""
    return evidence(state, strength_of(mean, spread) - floor_of(state, prior_of(state)))


def informed_evidence(state: TableState, information: Floats, factor: float = 1.0) -> Floats:
    """Tell the evidence behind the information on each row's logit, prior included, if the
    whole log says `factor` times as much as the part that told."""
    slope = np.maximum(state.probability * (1 - state.probability), 1e-12)
    prior = prior_of(state).sum(axis=0)
    return evidence(state, prior + factor * np.maximum(information / slope - prior, 0.0))


def capped(state: TableState, found: Floats, counts: Floats) -> Floats:
    """Hold evidence to what expected flips are worth; hidden flips only take away.

    Where it is worth as much but for rounding nothing was hidden, and then it is just that much.
    """
    flips = counts.sum(axis=0)
    worth = found.sum(axis=0)
    worth = np.where(worth > (1 - 1e-3) * flips, flips, worth)
    return evidence(state, prior_of(state).sum(axis=0) + worth)


def beta_draws(mean: Floats, spread: Floats, rng: np.random.Generator) -> Floats:
    """Draw from the Beta distributions with these means and standard deviations."""
    unsure = (spread > 0) & (mean > 0) & (mean < 1)
    values = np.array(mean, dtype=np.float64)
    p, s = values[unsure], spread[unsure]
    strength = np.maximum(p * (1 - p) / s**2 - 1, 1e-3)
    values[unsure] = drawn_inside(p * strength, (1 - p) * strength, rng)
    return values


def drawn_inside(heads: Floats, tails: Floats, rng: np.random.Generator) -> Floats:
    """Draw from Beta distributions; nothing that is drawn is certain."""
    found: Floats = np.clip(rng.beta(heads, tails), _NEAREST_DRAW, 1 - _NEAREST_DRAW)
    return found


# -- as data: JSON and frames ------------------------------------------------------------------
# Columns of a saved table beside its keys and probabilities.
_PRIOR = ("*prior heads*", "*prior tails*")
_EVIDENCE = ("*heads*", "*tails*")
_TYPICAL, _LEANS = "*typical*", "*leans*"
_TABLE = "a table"


def state_to_data(state: TableState) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    """Describe a state by JSON and frames."""
    columns: dict[str, Any] = {"probability": state.probability, "*fixed*": state.is_fixed}
    columns |= {"*spread*": state.spread, "*centre*": state.centre}
    if state.evidence is not None:
        columns |= zip(_EVIDENCE, state.evidence, strict=True)
    for coin, leans in (state.leans or {}).items():
        columns |= {f"{_LEANS}{number}*{coin}": own for number, own in enumerate(leans)}
    data: dict[str, Any] = {
        "keys": list(state.rows.keys),
        "otherwise": state.otherwise,
        "is_constant": state.is_constant,
    }
    frames: dict[str, pl.DataFrame] = {}
    if state.priors is not None:
        columns |= zip(_PRIOR, state.pseudo, strict=True)
        columns |= {f"{_TYPICAL}{name}": own for name, own in (state.typical or {}).items()}
        data["priors"], frames = _priors_to_data(state.priors)
    series = [pl.Series(name, own) for name, own in columns.items() if own is not None]
    return data, {"table": pl.DataFrame([*state.rows.frame.get_columns(), *series]), **frames}


def state_from_data(
    data: dict[str, Any], frames: Mapping[str, pl.DataFrame], pseudo: tuple[float, float]
) -> TableState:
    """Make the state that was described; `pseudo` are the pseudo-counts of its form."""
    like = TableState(
        Rows(data["keys"], (), 0),
        np.zeros(0),
        saved.number(data["otherwise"], "What a table says of other rows", least=0, most=1),
        is_constant=bool(data.get("is_constant", False)),
        pseudo=pseudo,
        priors=_priors_from_data(data["priors"], frames) if "priors" in data else None,
    )
    return read_rows(frames["table"], like)


def read_rows(table: pl.DataFrame, like: TableState) -> TableState:
    """Read the rows of a frame; what they have in common is taken from another state."""

    def read(name: str, **bounds: Any) -> Floats | None:
        return saved.column(table, name, _TABLE, **bounds) if name in table.columns else None

    def pair(names: tuple[str, str], **bounds: Any) -> Floats:
        return np.stack([saved.column(table, name, _TABLE, **bounds) for name in names])

    leans: dict[str, list[Floats]] = {}
    typical: dict[str, Floats] = {}
    for name in table.columns:
        if name.startswith(_LEANS):
            coin = name.removeprefix(_LEANS).split("*", 1)[1]
            leans.setdefault(coin, []).append(saved.column(table, name, _TABLE))
        elif name.startswith(_TYPICAL):
            typical[name.removeprefix(_TYPICAL)] = saved.column(table, name, _TABLE)
    keys, is_learned = like.rows.keys, like.priors is not None
    return replace(
        like,
        rows=Rows(keys, saved.columns(table, keys, _TABLE), len(table)),
        probability=saved.column(table, "probability", _TABLE, least=0, most=1),
        is_fixed=saved.flags(table, "*fixed*", _TABLE) if "*fixed*" in table.columns else None,
        # NaN is a spread that nothing tells, which only tables without a learned prior have.
        spread=read("*spread*", least=0, most=0.5, unknown=not is_learned),
        centre=read("*centre*", least=0, most=1),
        evidence=pair(_EVIDENCE) if _EVIDENCE[0] in table.columns else None,
        leans={coin: np.stack(own) for coin, own in leans.items()} or None,
        pseudo=pair(_PRIOR, above=0) if is_learned else like.pseudo,
        typical=(typical or None) if is_learned else None,
    )


def _priors_to_data(priors: Priors) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    frames = {
        f"effect{number}": pl.DataFrame(
            [
                effect.values.alias(effect.name),
                pl.Series("*mean*", effect.mean),
                pl.Series("*variance*", effect.variance),
            ]
        )
        for number, effect in enumerate(priors.effects)
    }
    data: dict[str, Any] = {
        "smooths": [
            {**vars(one), "knots": one.knots.tolist(), "centre": one.centre.tolist()}
            for one in priors.smooths
        ],
        "slopes": priors.slopes.tolist(),
        "spreads": priors.spreads.tolist(),
        "steepness": priors.steepness.tolist(),
        "effects": [{"name": one.name, "spread": one.spread} for one in priors.effects],
        "information": None if priors.information is None else priors.information.tolist(),
    }
    if priors.unseen is not None:
        unseen = priors.unseen
        data["unseen"] = {"slopes": unseen.slopes.tolist(), "variance": unseen.variance}
        pages = pl.DataFrame({"pages": unseen.pages})
        if len(unseen.place):
            pages = pages.with_columns(pl.Series("place", unseen.place))
        if unseen.query is not None:
            pages = pages.with_columns(unseen.query.alias("query"))
        frames["pages"] = pages
    return data, frames


def _priors_from_data(data: dict[str, Any], frames: Mapping[str, pl.DataFrame]) -> Priors:
    told = "The {} of a learned prior"
    smooths = tuple(_smooth_from_data(one) for one in data["smooths"])
    sides, size = (2, len(smooths)), 1 + sum(one.size for one in smooths)
    effects = []
    for number, one in enumerate(data["effects"]):
        part, frame, name = f"effect {number}", frames[f"effect{number}"], str(one["name"])
        (values,) = saved.columns(frame, [name], part)
        spread = saved.number(one["spread"], f"The spread of {part}", least=0)
        mean = saved.column(frame, "*mean*", part)
        # Effects that do not stray are certain.
        bounds = {"above": 0} if spread > 0 else {"least": 0}
        variance = saved.column(frame, "*variance*", part, **bounds)
        effects.append(Effect(name, values, mean, variance, spread))
    spreads, steepness = (
        saved.numbers(np.reshape(data[name], sides), told.format(name), sides, least=0)
        for name in ("spreads", "steepness")
    )
    information = data["information"]
    if information is not None:
        square = (2 * size, 2 * size)
        information = saved.numbers(information, told.format("information"), square)
    return Priors(
        smooths,
        saved.numbers(data["slopes"], told.format("slopes"), (2, size)),
        spreads,
        steepness,
        tuple(effects),
        _unseen_from_data(data["unseen"], frames["pages"], smooths) if "unseen" in data else None,
        information,
    )


def _smooth_from_data(one: dict[str, Any]) -> SmoothFunction:
    told = f"The {{}} of the function of {one['name']}"
    knots = saved.numbers(one["knots"], told.format("knots"))
    if knots.ndim != 1 or len(knots) < 2 or not (np.diff(knots) > 0).all():
        raise SavedModelError(f"{told.format('knots')} do not rise.")
    return SmoothFunction(
        str(one["name"]),
        knots,
        saved.numbers(one["centre"], told.format("centre"), (len(knots) - 1,)),
        str(one["times"]),
        saved.number(one["usual"], told.format("usual value")),
        saved.number(one["spread"], told.format("spread"), above=0),
        saved.number(one["beyond"], told.format("end")),
    )


def _unseen_from_data(
    data: dict[str, Any], pages: pl.DataFrame, smooths: tuple[SmoothFunction, ...]
) -> Unseen:
    part = "the pages of a prior"
    shape = (2, 1 + sum(one.size for one in smooths if one.name == EXPOSURE and not one.times))
    return Unseen(
        saved.numbers(data["slopes"], "The slopes of unseen rows", shape),
        saved.number(data["variance"], "The variance of unseen rows", least=0),
        pages["query"] if "query" in pages.columns else None,
        saved.column(pages, "pages", part, least=0),
        saved.column(pages, "place", part) if "place" in pages.columns else np.zeros(0),
    )
