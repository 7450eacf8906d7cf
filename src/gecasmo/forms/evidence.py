"""What logs say of the rows of a table, as heads and tails that say the same.

Expected counts would claim more than was seen, since hidden flips count in them as if they had been
looked at. So a row's evidence is worth as many flips as what is believed of it is narrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gecasmo.forms.form import Floats

if TYPE_CHECKING:
    from gecasmo.forms.table import TableState

# No belief is worth less than this, in flips.
_LEAST = 1e-6
# In spreads, pseudo-counts of less than half a flip a side count as that much, since otherwise a
# single click would be certainty.
_FLOOR = 0.5


def prior_of(state: TableState) -> Floats:
    """The pseudo-counts of each row, `[heads or tails, row]`."""
    n = len(state.probability)
    return np.stack([np.broadcast_to(np.asarray(side, float), (n,)) for side in state.pseudo])


def floor_of(state: TableState, prior: Floats) -> Floats:
    """What spreads add to the prior of each row, in flips."""
    floor = 0.0 if state.priors is not None else _FLOOR
    added: Floats = np.maximum(floor - prior, 0.0).sum(axis=0)
    return added


def strength_of(mean: Any, spread: Any) -> Floats:
    """The flips that a Beta distribution with this mean and standard deviation is worth."""
    inside = np.clip(mean, 1e-12, 1 - 1e-12)
    ratio = inside * (1 - inside) / np.maximum(np.asarray(spread, float), 1e-12) ** 2
    strength: Floats = np.maximum(ratio - 1, _LEAST)
    return strength


def evidence(state: TableState, strength: Any) -> Floats:
    """The heads and tails of rows beyond their pseudo-counts if together they are worth `strength`.

    Added to the pseudo-counts they have their highest at the probability that the row has. They may
    be negative: hidden flips can make a belief wider than it was; the sum never is.
    """
    strength = np.maximum(strength, _LEAST)
    together = np.stack([strength * state.probability, strength * (1 - state.probability)])
    beyond: Floats = together - prior_of(state)
    return beyond if state.is_fixed is None else np.where(state.is_fixed, 0.0, beyond)


def worth_of(state: TableState) -> Floats:
    """The flips that the evidence of rows and their pseudo-counts are worth together."""
    assert state.evidence is not None
    worth: Floats = (state.evidence + prior_of(state)).sum(axis=0)
    return worth


def believed_evidence(state: TableState, mean: Floats, spread: Floats) -> Floats:
    """The evidence behind posterior means and deviations of rows, all else held."""
    return evidence(state, strength_of(mean, spread) - floor_of(state, prior_of(state)))


def informed_evidence(state: TableState, information: Floats, factor: float = 1.0) -> Floats:
    """The evidence behind the information on each row's logit, that of its prior included, if the
    whole log says `factor` times as much as the part that told."""
    slope = np.maximum(state.probability * (1 - state.probability), 1e-12)
    prior = prior_of(state).sum(axis=0)
    return evidence(state, prior + factor * np.maximum(information / slope - prior, 0.0))


def capped(state: TableState, found: Floats, counts: Floats) -> Floats:
    """Evidence that is worth no more than the expected flips; hidden flips only take away.

    Where it is worth as much but for rounding nothing was hidden, and then it is just that much.
    """
    flips = counts.sum(axis=0)
    worth = found.sum(axis=0)
    worth = np.where(worth > (1 - 1e-3) * flips, flips, worth)
    return evidence(state, prior_of(state).sum(axis=0) + worth)
