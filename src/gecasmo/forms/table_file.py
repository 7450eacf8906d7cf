"""Tables as data: JSON and frames, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.forms.priors import Effect, Empirical, Priors, Unseen
from gecasmo.forms.table import Table, as_pseudo_counts
from gecasmo.forms.table_state import TableState
from gecasmo.forms.typical import SmoothFunction

# Columns of rows with learned priors.
_HEADS, _TAILS, _TYPICAL = "*prior heads*", "*prior tails*", "*typical*"
_LEANS = "*leans*"
_EVERYTHING = "everything"


def to_data(form: Table, state: TableState) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    """A table's form and state as JSON and frames."""
    data: dict[str, Any] = {
        "pseudo_counts": list(form.pseudo_counts),
        "start": form.start,
        "key": None if form.key is None else list(form.key),
        "fixed": list(map(list, _as_items(form.fixed))),
        "keys": list(state.rows.keys),
        "otherwise": state.otherwise,
        "is_constant": state.is_constant,
        "is_default": form.is_default,
        "prior": None if form.prior is None else _by(form.prior),
    }
    frame = form.to_frame(state)
    if state.is_fixed is not None:
        frame = frame.with_columns(pl.Series("*fixed*", state.is_fixed))
    if state.spread is not None:
        frame = frame.with_columns(pl.Series("*spread*", state.spread))
    if state.centre is not None:
        frame = frame.with_columns(pl.Series("*centre*", state.centre))
    if state.evidence is not None:
        sides = zip(("*heads*", "*tails*"), state.evidence, strict=True)
        frame = frame.with_columns(pl.Series(name, side) for name, side in sides)
    for coin, leans in (state.leans or {}).items():
        names = (f"{_LEANS}{number}*{coin}" for number in range(len(leans)))
        frame = frame.with_columns(pl.Series(n, own) for n, own in zip(names, leans, strict=True))
    frames = {"table": frame}
    if state.priors is not None:
        sides = zip((_HEADS, _TAILS), state.pseudo, strict=True)
        frame = frame.with_columns(pl.Series(name, side) for name, side in sides)
        typical = (state.typical or {}).items()
        frames["table"] = frame.with_columns(
            pl.Series(f"{_TYPICAL}{name}", values) for name, values in typical
        )
        data["priors"], others = _priors_to_data(state.priors)
        frames |= others
    return data, frames


def from_data(
    cls: type[Table], data: dict[str, Any], frames: dict[str, pl.DataFrame]
) -> tuple[Table, TableState]:
    """What `to_data` described."""
    prior = data.get("prior")
    pseudo_counts = as_pseudo_counts(data["pseudo_counts"])
    is_free = prior is not None or data.get("is_default", False)
    form = cls(
        pseudo_counts=None if is_free else pseudo_counts,
        start=data["start"],
        fixed={tuple(key): value for key, value in data["fixed"]},
        key=None if data["key"] is None else tuple(data["key"]),
        prior=None if prior is None else Empirical(None if prior == _EVERYTHING else prior),
    )
    frame = frames["table"]
    keys = tuple(data["keys"])
    rows = Rows(keys, [frame[key] for key in keys], len(frame))
    probability = frame["probability"].to_numpy().astype(np.float64)
    otherwise = float(data["otherwise"])
    if not np.all((np.r_[probability, otherwise] >= 0) & (np.r_[probability, otherwise] <= 1)):
        raise ModelError("a table holds numbers that are no probabilities")
    state = TableState(
        rows,
        probability,
        otherwise,
        is_fixed=frame["*fixed*"].to_numpy() if "*fixed*" in frame.columns else None,
        is_constant=bool(data.get("is_constant", False)),
        pseudo=form.pseudo_counts,
        spread=frame["*spread*"].to_numpy() if "*spread*" in frame.columns else None,
        centre=frame["*centre*"].to_numpy() if "*centre*" in frame.columns else None,
        evidence=_evidence(frame),
        leans=_leans(frame),
    )
    return form, _with_priors(state, data, frames)


def _evidence(frame: pl.DataFrame) -> Any:
    if "*heads*" not in frame.columns:
        return None
    evidence = frame.select("*heads*", "*tails*").to_numpy().T.copy()
    if not np.isfinite(evidence).all():
        raise ModelError("what a table remembers of its logs are no numbers")
    return evidence


def _leans(frame: pl.DataFrame) -> dict[str, Any] | None:
    found: dict[str, list[Any]] = {}
    for column in frame.columns:
        if column.startswith(_LEANS):
            coin = column.removeprefix(_LEANS).split("*", 1)[1]
            found.setdefault(coin, []).append(frame[column].to_numpy())
    leans = {coin: np.stack(own) for coin, own in found.items()}
    if not all(np.isfinite(own).all() for own in leans.values()):
        raise ModelError("what a table remembers of its logs are no numbers")
    return leans or None


def _with_priors(
    state: TableState, data: dict[str, Any], frames: dict[str, pl.DataFrame]
) -> TableState:
    if "priors" not in data:
        return state
    table = frames["table"]
    pseudo = table.select(_HEADS, _TAILS).to_numpy().T.copy()
    typical = {
        column.removeprefix(_TYPICAL): table[column].to_numpy()
        for column in table.columns
        if column.startswith(_TYPICAL)
    }
    if not (np.isfinite(pseudo).all() and (pseudo > 0).all()):
        raise ModelError("a learned prior makes no sense")
    priors = _priors_from_data(data["priors"], frames)
    return replace(state, priors=priors, pseudo=pseudo, typical=typical or None)


def _by(prior: Empirical) -> Any:
    return _EVERYTHING if prior.by is None else list(prior.by)


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
            {
                "name": one.name,
                "knots": one.knots.tolist(),
                "centre": one.centre.tolist(),
                "times": one.times,
                "usual": one.usual,
                "beyond": one.beyond,
                "spread": one.spread,
            }
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


def _priors_from_data(data: dict[str, Any], frames: dict[str, pl.DataFrame]) -> Priors:
    smooths = tuple(
        SmoothFunction(
            str(one["name"]),
            np.array(one["knots"], float),
            np.array(one["centre"], float),
            str(one["times"]),
            float(one["usual"]),
            float(one["spread"]),
            float(one["beyond"]),
        )
        for one in data["smooths"]
    )
    effects = []
    for number, one in enumerate(data["effects"]):
        frame = frames[f"effect{number}"]
        mean, variance = frame["*mean*"].to_numpy(), frame["*variance*"].to_numpy()
        effects.append(
            Effect(one["name"], frame[one["name"]], mean, variance, float(one["spread"]))
        )
    unseen = None
    if "unseen" in data:
        pages = frames["pages"]
        query = pages["query"] if "query" in pages.columns else None
        slopes = np.array(data["unseen"]["slopes"], float)
        place = pages["place"].to_numpy() if "place" in pages.columns else np.zeros(0)
        stray = float(data["unseen"]["variance"])
        unseen = Unseen(slopes, stray, query, pages["pages"].to_numpy(), place)
    told = data["information"]
    n_smooths = len(smooths)
    priors = Priors(
        smooths,
        np.array(data["slopes"], float),
        np.array(data["spreads"], float).reshape(2, n_smooths),
        np.array(data["steepness"], float).reshape(2, n_smooths),
        tuple(effects),
        unseen,
        None if told is None else np.array(told, float),
    )
    numbers = [priors.slopes, priors.spreads, *(one.knots for one in smooths)]
    numbers += [side for effect in effects for side in (effect.mean, effect.variance)]
    size = 1 + sum(one.size for one in smooths)
    is_sound = all(np.isfinite(one).all() for one in numbers) and all(
        len(one.centre) == one.size - 1 >= 1 and (np.diff(one.knots) > 0).all() for one in smooths
    )
    if not is_sound or priors.slopes.shape != (2, size) or (priors.spreads < 0).any():
        raise ModelError("a learned prior makes no sense")
    return priors


def _as_items(fixed: Mapping[Any, float]) -> list[tuple[list[Any], float]]:
    """Keys as lists of plain values, which JSON can hold."""
    items = []
    for key, value in fixed.items():
        parts = key if isinstance(key, tuple) else (key,)
        plain = [part.item() if isinstance(part, np.generic) else part for part in parts]
        odd = [part for part in plain if not isinstance(part, (str, int, float, bool))]
        if odd:
            raise SavedModelError(
                f"fixed={{{key!r}: ...}} cannot be saved: {type(odd[0]).__name__} has no place in "
                "JSON. Use texts or numbers as ids."
            )
        items.append((plain, float(value)))
    return items
