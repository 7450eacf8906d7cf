"""Links: how a number without bounds, the predictor of a row, becomes a probability.

With the logit it is the logarithm of the odds; with the probit, how far above zero something lies
that has normal noise of deviation one.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from gecasmo.errors import ModelError
from gecasmo.forms.form import Floats
from gecasmo.forms.logits import expit, logit

# Logits are cut off here where they become probabilities: beyond, a double cannot tell 1 - p from
# 0, and what is very unlikely would count as impossible. Probits are cut off at the same odds.
_FARTHEST, _FARTHEST_PROBIT = 36.0, 8.2
_LOG_ROOT = 0.5 * float(np.log(2 * np.pi))
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_PIECE = 8192


class Link(Protocol):
    """What the likelihood of heads and tails needs to know of a link."""

    name: str

    def probability(self, predictor: Floats) -> Floats:
        """Tell probabilities, of which none is 0 or 1."""

    def predictor(self, probability: Floats) -> Floats:
        """Tell the predictors of probabilities."""

    def log_likelihood(self, heads: Any, tails: Any, predictor: Floats) -> Floats:
        """Tell heads log p + tails log(1 - p), row by row."""

    def slopes(self, heads: Floats, tails: Floats, predictor: Floats) -> tuple[Floats, Floats]:
        """Differentiate that once, and twice with the sign turned: slope and information."""


class _Logit:
    name = "logit"

    def probability(self, predictor: Floats) -> Floats:
        return expit(np.clip(predictor, -_FARTHEST, _FARTHEST))

    def predictor(self, probability: Floats) -> Floats:
        return logit(probability)

    def log_likelihood(self, heads: Any, tails: Any, predictor: Floats) -> Floats:
        # One exponential gives both logarithms.
        rest = np.log1p(np.exp(-np.abs(predictor)))
        value: Floats = heads * predictor - (heads + tails) * (np.maximum(predictor, 0.0) + rest)
        return value

    def slopes(self, heads: Floats, tails: Floats, predictor: Floats) -> tuple[Floats, Floats]:
        small = np.exp(-np.abs(predictor))
        total = heads + tails
        probability = np.where(predictor >= 0, 1.0, small) / (1.0 + small)
        return heads - total * probability, total * small / (1.0 + small) ** 2


class _Probit:
    name = "probit"

    def probability(self, predictor: Floats) -> Floats:
        from scipy.special import ndtr

        probability: Floats = ndtr(np.clip(predictor, -_FARTHEST_PROBIT, _FARTHEST_PROBIT))
        return probability

    def predictor(self, probability: Floats) -> Floats:
        from scipy.special import ndtri

        predictor: Floats = ndtri(probability)
        return predictor

    def log_likelihood(self, heads: Any, tails: Any, predictor: Floats) -> Floats:
        from scipy.special import log_ndtr

        value: Floats = heads * log_ndtr(predictor) + tails * log_ndtr(-predictor)
        return value

    def slopes(self, heads: Floats, tails: Floats, predictor: Floats) -> tuple[Floats, Floats]:
        from scipy.special import log_ndtr

        density = -0.5 * predictor**2 - _LOG_ROOT
        up, down = (np.exp(density - log_ndtr(side)) for side in (predictor, -predictor))
        bent = heads * up * (up + predictor) + tails * down * (down - predictor)
        return heads * up - tails * down, np.maximum(bent, 0.0)


LINKS: dict[str, Link] = {"logit": _Logit(), "probit": _Probit()}
LOGIT = LINKS["logit"]


def link_named(name: Any, form: str) -> Link:
    """Find a link by its name."""
    if not isinstance(name, str) or name not in LINKS:
        raise ModelError(f"{form}(link={name!r}): choose {' or '.join(map(repr, LINKS))}.")
    return LINKS[name]


def normal_moments(link: Link, predictor: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    """Tell mean and standard deviation of probabilities whose predictors are normal."""
    mean, spread = np.empty(len(predictor)), np.empty(len(predictor))
    share = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()
    for first in range(0, len(predictor), _PIECE):
        own = slice(first, first + _PIECE)
        values = link.probability(predictor[own, None] + deviation[own, None] * _NODES)
        mean[own] = values @ share
        spread[own] = np.sqrt((values - mean[own, None]) ** 2 @ share)
    return mean, spread
