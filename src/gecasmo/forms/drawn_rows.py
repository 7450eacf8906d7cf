"""Rows of a table as they might be, given that what they have in common is only known roughly.

Learned priors are regressions whose slopes have errors, and so have coins that all pages share. If
one of these is off, all rows that lean on it are off in the same way: in means over many rows that
does not cancel. Here slopes and global coins are drawn; each draw gives every row a Beta
distribution of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.forms.form import Floats
from gecasmo.forms.priors import Priors, pseudo_counts, within_reach
from gecasmo.forms.table_state import TableState, floor_of, prior_of, worth_of

_LEAST = 1e-3  # heads or tails of a row
_FLATTEST = 0.05  # no direction of slopes is known less, as information


@dataclass(frozen=True)
class DrawnSlopes:
    """Slopes of learned priors less those that were found, `[draw, which, slope]`; and how far down
    rows are that no page shows, in deviations."""

    moves: Floats
    further: Floats

    @classmethod
    def of(cls, priors: Priors, n_draws: int, seed: tuple[int, ...]) -> DrawnSlopes:
        """Draw them by the information on slopes.

        How steep lines are is for the log to tell. That they were found to be level is no reason
        to be sure of it, so what was learned of their steepness is left out.
        """
        rng = np.random.default_rng(seed)
        further = rng.normal(size=n_draws)
        if priors.information is None:
            return cls(np.zeros((n_draws, *priors.slopes.shape)), further)
        information = np.array(priors.information)
        smooths = zip(priors.parts(), priors.smooths, strict=True)
        for steep, (part, smooth) in zip(priors.steepness[0], smooths, strict=True):
            if smooth.is_open[0]:
                information[part.start, part.start] -= steep**-2 - smooth.steepest[0] ** -2
        values, vectors = np.linalg.eigh((information + information.T) / 2)
        root = vectors / np.sqrt(np.maximum(values, _FLATTEST))
        drawn = rng.normal(size=(n_draws, len(values))) @ root.T
        return cls(drawn.reshape(n_draws, *priors.slopes.shape), further)


@dataclass(frozen=True)
class Moved:
    """Where what rows have in common is instead of where it was found.

    Parameters
    ----------
    shared : by global coin, how far the logits of its rows are away
    slopes : of the learned prior, `[which, slope]`, how far they are away
    scatter : the share of its own variance by which each row strays
    """

    shared: Mapping[str, Floats]
    slopes: Floats | None = None
    scatter: float = 1.0


def moved_rows(state: TableState, places: NDArray[np.int64], moved: Moved) -> Floats:
    """Heads and tails of rows of the fit, `[heads or tails, row]`, that go along with what they
    have in common."""
    prior = prior_of(state)
    worth = np.maximum(worth_of(state) + floor_of(state, prior), _LEAST)[places]
    prior = prior[:, places]
    mean = (state.probability if state.centre is None else state.centre)[places]
    found = np.stack([worth * mean, worth * (1 - mean)])
    if state.priors is not None and moved.slopes is not None:
        typical = {name: values[places] for name, values in (state.typical or {}).items()}
        further = replace(state.priors, slopes=moved.slopes).sums(typical, len(places))
        strength = prior.sum(axis=0)
        middle, worth = _bounded(
            np.log(prior[0] / prior[1]) + further[0], np.log(strength) + further[1]
        )
        mean, strength = 1 / (1 + np.exp(-middle)), np.exp(worth)
        found += np.stack([strength * mean, strength * (1 - mean)]) - prior
    for coin, leans in (state.leans or {}).items():
        if coin in moved.shared:
            more = moved.shared[coin] @ leans[:, places]
            found += np.stack([more, -more])
    drawn: Floats = np.maximum(found, _LEAST)
    return drawn


def drawn_rows(
    state: TableState, places: NDArray[np.int64], slopes: DrawnSlopes, shared: Mapping[str, Floats]
) -> Floats:
    """Heads and tails of rows of the fit, `[heads or tails, row, draw]`.

    Parameters
    ----------
    state : with learned priors and evidence
    places : of the rows among those of the state
    slopes : of the priors, drawn
    shared : by global coin, logits less those that were found, `[its row, draw]`
    """
    assert state.evidence is not None
    assert state.priors is not None
    prior, evidence = prior_of(state)[:, places], state.evidence[:, places]
    typical = {name: values[places] for name, values in (state.typical or {}).items()}
    basis = state.priors.basis(typical, len(places))
    strength = prior.sum(axis=0)
    middle = np.log(prior[0] / prior[1])[:, None] + basis @ slopes.moves[:, 0].T
    worth = np.log(strength)[:, None] + basis @ slopes.moves[:, 1].T
    middle, worth = _bounded(middle, worth)
    mean, strength = 1 / (1 + np.exp(-middle)), np.exp(worth)
    more = np.zeros(middle.shape)
    for coin, leans in (state.leans or {}).items():
        if coin in shared:
            more += leans[:, places].T @ shared[coin]
    found = np.stack(
        [
            evidence[0][:, None] + strength * mean + more,
            evidence[1][:, None] + strength * (1 - mean) - more,
        ]
    )
    drawn: Floats = np.maximum(found, _LEAST)
    return drawn


def drawn_unseen(priors: Priors, rows: Rows, slopes: DrawnSlopes) -> Floats:
    """Heads and tails of rows that no page shows, `[heads or tails, row, draw]`."""
    believed = priors.unseen_beliefs(rows)
    moves = slopes.moves
    further = np.array([believed.further(priors.slopes[0] + own) for own in moves[:, 0]])
    now = believed.further(priors.slopes[0])
    middle = believed.linear[0][:, None] + believed.basis @ moves[:, 0].T
    middle = middle + (further * (1 + slopes.further) - now)
    worth = believed.linear[1][:, None] + believed.basis @ moves[:, 1].T
    middle, worth = _bounded(middle, worth)
    variance = np.repeat(believed.variance, middle.shape[1])
    found = pseudo_counts(middle.ravel(), variance, worth.ravel())
    return np.maximum(found.reshape(2, *middle.shape), _LEAST)


def _bounded(middle: Floats, worth: Floats) -> tuple[Floats, Floats]:
    both = within_reach(np.stack([middle.ravel(), worth.ravel()]))
    return both[0].reshape(middle.shape), both[1].reshape(middle.shape)
