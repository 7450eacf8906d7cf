"""How the integrated likelihood of rows bends with the mean and the strength of their prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.beliefs.moments import Moments
from gecasmo.forms.priors import Priors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class LogMoments(NamedTuple):
    """Means, variances and covariance of log p and log(1 - p)."""

    log_p: Floats
    log_q: Floats
    var_p: Floats
    var_q: Floats
    covariance: Floats

    @classmethod
    def of_beta(cls, a: Floats, b: Floats) -> LogMoments:
        """Those of Beta distributions."""
        from scipy.special import digamma, polygamma

        both, bend = digamma(a + b), polygamma(1, a + b)
        return cls(
            digamma(a) - both,
            digamma(b) - both,
            polygamma(1, a) - bend,
            polygamma(1, b) - bend,
            -bend,
        )

    @classmethod
    def of_rows(cls, moments: Moments) -> LogMoments:
        """Those of rows in view of all that is known."""
        return cls(*moments[3:])

    def at(self, places: Integers) -> LogMoments:
        """Some of them."""
        return LogMoments(*(values[places] for values in self))


@dataclass(frozen=True)
class Bends:
    """First and second derivatives of the logarithm of the integrated likelihood of each row by
    its pseudo-counts: what is known after looking, less what was known before."""

    after: LogMoments
    before: LogMoments
    group: Integers
    priors: Priors
    # How much of its group's pseudo-counts a row has, `[heads or tails, row]`.
    share: Floats | None = None

    def of_means(self) -> tuple[Floats, Floats]:
        """Slopes and bends by the logit of each group's mean."""
        s, m = self.priors.strength, self.priors.mean
        scale = s * m * (1 - m)
        slope, bend = self._along(scale, -scale)
        return slope, bend + (1 - 2 * m) * slope

    def of_strengths(self) -> tuple[Floats, Floats]:
        """Slopes and bends by the logarithm of each group's strength."""
        s, m = self.priors.strength, self.priors.mean
        slope, bend = self._along(s * m, s * (1 - m))
        return slope, bend + slope

    def _along(self, heads: Floats, tails: Floats) -> tuple[Floats, Floats]:
        """Derivatives when the pseudo-counts of each group move like this."""
        by = np.stack([heads[self.group], tails[self.group]])
        a, b = by if self.share is None else by * self.share
        after, before = self.after, self.before
        slope = a * (after.log_p - before.log_p) + b * (after.log_q - before.log_q)
        bend = a**2 * (after.var_p - before.var_p) + b**2 * (after.var_q - before.var_q)
        bend += 2 * a * b * (after.covariance - before.covariance)
        return self._sums(slope), self._sums(bend)

    def _sums(self, values: Floats) -> Floats:
        sums = np.bincount(self.group, weights=values, minlength=len(self.priors.logit))
        return sums.astype(np.float64)
