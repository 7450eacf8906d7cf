"""Tables as data: JSON and frames, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.forms.priors import Empirical, Exposures, Grouping, Level, Priors
from gecasmo.forms.table import Table, TableState, as_pseudo_counts


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
        "prior": None if form.prior is None else list(form.prior.by),
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
    frames = {"table": frame}
    if state.priors is not None and state.grouping is not None:
        priors, grouping = state.priors, state.grouping
        frames["table"] = frame.with_columns(pl.Series("*group*", grouping.number))
        frames["priors"] = pl.DataFrame(
            {
                "label": grouping.label,
                "logit": priors.logit,
                "log_strength": priors.log_strength,
            }
        )
        for number, (name, values, groups) in enumerate(grouping.levels):
            frames[f"level{number}"] = pl.DataFrame(
                [values.alias(name), pl.Series("*group*", groups)]
            )
        if grouping.exposures is not None:
            frames |= _exposure_frames(grouping.exposures)
        levels = (priors.mean_level, priors.strength_level)
        data["levels"] = [[level.centre, level.spread] for level in levels]
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
        prior=None if prior is None else Empirical(prior),
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
    )
    return form, _with_priors(state, data, frames)


def _evidence(frame: pl.DataFrame) -> Any:
    if "*heads*" not in frame.columns:
        return None
    evidence = frame.select("*heads*", "*tails*").to_numpy().T.copy()
    if not np.isfinite(evidence).all():
        raise ModelError("what a table remembers of its logs are no numbers")
    return evidence


def _with_priors(
    state: TableState, data: dict[str, Any], frames: dict[str, pl.DataFrame]
) -> TableState:
    from dataclasses import replace

    if "priors" not in frames:
        return state
    table = frames["priors"]
    priors = Priors(
        table["logit"].to_numpy(),
        table["log_strength"].to_numpy(),
        *(Level(float(centre), float(spread)) for centre, spread in data["levels"]),
    )
    number = frames["table"]["*group*"].to_numpy()
    levels: list[tuple[str, pl.Series, Any]] = []
    while f"level{len(levels)}" in frames:
        frame = frames[f"level{len(levels)}"]
        name = next(column for column in frame.columns if column != "*group*")
        levels.append((name, frame[name], frame["*group*"].to_numpy()))
    groups = [number, *(found for _, _, found in levels)]
    numbers = np.concatenate([priors.logit, priors.log_strength])
    if not np.isfinite(numbers).all() or any(
        len(g) and not (g.min() >= 0 and g.max() < len(table)) for g in groups
    ):
        raise ModelError("a learned prior makes no sense")
    exposures = _exposures(frames, len(table)) if "exposures" in frames else None
    grouping = Grouping(number, table["label"].to_list(), tuple(levels), exposures)
    pseudo = priors.pseudo_counts(number)
    return replace(state, priors=priors, grouping=grouping, pseudo=pseudo)


def _exposure_frames(exposures: Exposures) -> dict[str, pl.DataFrame]:
    pages = pl.DataFrame({"pages": exposures.pages})
    if exposures.query is not None:
        pages = pages.with_columns(exposures.query.alias("query"))
    lowest = np.concatenate([[-np.inf], exposures.cuts])
    shares = {
        f"share{group}": exposures.shares[:, group] for group in range(exposures.shares.shape[1])
    }
    return {"exposures": pl.DataFrame({"above": lowest} | shares), "pages": pages}


def _exposures(frames: dict[str, pl.DataFrame], n_groups: int) -> Exposures:
    table, pages = frames["exposures"], frames["pages"]
    shares = table.select(f"share{group}" for group in range(n_groups)).to_numpy()
    cuts = table["above"].to_numpy()[1:]
    if not (np.isfinite(shares).all() and np.isfinite(cuts).all() and (np.diff(cuts) > 0).all()):
        raise ModelError("the exposures of a learned prior make no sense")
    query = pages["query"] if "query" in pages.columns else None
    return Exposures(query, pages["pages"].to_numpy(), cuts, shares)


def _as_items(fixed: dict[Any, float]) -> list[tuple[list[Any], float]]:
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
