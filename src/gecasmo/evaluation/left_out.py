"""How well a model foretells each page from all others, without fitting it again for each.

Draws from the posterior are weighed as if one page had not been seen (leave-one-out by Pareto
smoothed importance sampling), which ArviZ does.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import GecasmoWarning, extra, without
from gecasmo.estimation import Gibbs
from gecasmo.logs import ClickLog
from gecasmo.model.base import Model

Floats = NDArray[np.float64]

# Where the weights of draws have a heavier tail, the score of a page is not to be relied on.
_HEAVY = 0.7


@dataclass(frozen=True)
class LeftOut:
    """The log-likelihood of each page given all others, and of how many it is not reliable."""

    pages: Floats
    n_unsure: int

    def minus(self, other: LeftOut) -> tuple[float, float]:
        """By how much the sum over all pages is higher, with its standard error."""
        each = self.pages - other.pages
        return float(each.sum()), float(np.sqrt(len(each) * each.var()))


def left_out(model: Model, log: ClickLog, method: Any, seed: int) -> LeftOut:
    """Fit a copy by Gibbs, and score each page by the others."""
    arviz = extra("arviz", "compare(loo=True)", "gecasmo[bayes]")
    if not isinstance(method, Gibbs):
        method = Gibbs(draws=500, warmup=250, chains=2, seed=seed)
    with without(GecasmoWarning), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of single pages; those are counted
        fitted = model.__sklearn_clone__().fit(log, method, progress=False)
        found = arviz.loo(fitted.to_arviz(log), pointwise=True)
    # Up to ArviZ 0.23, and from 1.0 on.
    each = found.elpd_i if hasattr(found, "elpd_i") else found.loo_i
    pages = np.asarray(each, np.float64).ravel()
    return LeftOut(pages, int((np.asarray(found.pareto_k) > _HEAVY).sum()))
