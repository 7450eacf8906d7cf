"""What is known of the rows of a table, and what logs say of them as heads and tails.

Expected counts would claim more than was seen, since hidden flips count in them as if they had been
looked at. So a row's evidence is worth as many flips as its posterior is narrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.forms.form import Floats
from gecasmo.forms.priors import Priors

# No posterior is worth less than this, in flips.
_LEAST = 1e-6
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


def told_of_prior(pseudo: Floats) -> str:
    """Say in words what a learned prior says of rows."""
    strength = pseudo.sum(axis=0)
    mean, worth = pseudo[0] / strength, float(np.exp(np.log(strength).mean()))
    low, middle, high = np.quantile(mean, (0.05, 0.5, 0.95))
    usual = f"{middle:.3f}" if high - low < 0.002 else f"{middle:.3f} ({low:.3f} to {high:.3f})"
    return f"prior mean {usual}, worth {worth:.3g} flips"


def beta_draws(mean: Floats, spread: Floats, rng: np.random.Generator) -> Floats:
    """Draw from the Beta distributions with these means and standard deviations."""
    unsure = (spread > 0) & (mean > 0) & (mean < 1)
    values = np.array(mean, dtype=np.float64)
    p, s = values[unsure], spread[unsure]
    strength = np.maximum(p * (1 - p) / s**2 - 1, 1e-3)
    values[unsure] = rng.beta(p * strength, (1 - p) * strength)
    return values
