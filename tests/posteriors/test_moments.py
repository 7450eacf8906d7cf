"""Integrals of rows' likelihoods under Beta priors, against closed forms and plain sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import betaln, digamma, expit, polygamma

from gecasmo.estimation.posteriors.likelihood import Asked, Places, RowLikelihood, multiplied
from gecasmo.estimation.posteriors.moments import Believing, row_moments_of
from gecasmo.kernels.static.row_grid import WIDEST
from strategies.checks import many


def of_flips(
    heads: float, tails: float, hidden: list[tuple[float, float]], prior: tuple[float, float]
) -> RowLikelihood:
    """The likelihood of one row that fell so often, and of pages that are linear in it."""
    n = 2 + len(hidden)
    h = np.array([1.0, 0.0, *(pair[0] for pair in hidden)])
    t = np.array([0.0, 1.0, *(pair[1] for pair in hidden)])
    weight = np.array([heads, tails, *[1.0] * len(hidden)])
    places = Places(
        *(np.zeros(n, np.uint32), h, t, np.full(n, 0.4), weight),
        *(np.zeros(n, np.int32), np.zeros((1, 1))),
    )
    asked = Asked(0, np.array([0.4]), np.array(prior, float)[:, None], np.ones(1, bool))
    first, found = multiplied(places, asked)
    assert (first, len(found)) == (0, 1)
    return found


@many(60)
@given(
    heads=st.sampled_from([0, 1, 3, 40, 5_000, 200_000]),
    tails=st.sampled_from([0, 1, 7, 90, 20_000, 800_000]),
    a=st.floats(0.05, 60),
    b=st.floats(0.05, 60),
)
def test_observed_flips_have_the_textbook_posterior(
    heads: int, tails: int, a: float, b: float
) -> None:
    assume(heads + tails > 0)  # otherwise the row is not known
    likelihood = of_flips(heads, tails, [], (a, b))
    moments = row_moments_of(likelihood, np.array([0]), np.array([[a], [b]]))
    x, y = heads + a, tails + b
    # Thirty-two points: some in a million, which shows where one flip in 20,000 came up heads.
    assert moments.mean[0] == pytest.approx(x / (x + y), rel=1e-5, abs=1e-5)
    variance = x * y / (x + y) ** 2 / (x + y + 1)
    assert moments.deviation[0] == pytest.approx(np.sqrt(variance), rel=2e-3, abs=5e-6)
    if np.log(y / x) + 6 * np.sqrt(1 / x + 1 / y) > WIDEST and heads > 0:
        return  # part of it is beyond the widest logits, where likelihoods count as level
    assert moments.log_p[0] == pytest.approx(digamma(x) - digamma(x + y), rel=0.02, abs=1e-3)
    assert moments.log_q[0] == pytest.approx(digamma(y) - digamma(x + y), rel=0.02, abs=1e-3)
    spread = polygamma(1, x) - polygamma(1, x + y)
    assert moments.var_p[0] == pytest.approx(spread, rel=0.1, abs=1e-6)


@many(40)
@given(
    hidden=st.lists(st.tuples(st.floats(0, 0.5), st.floats(1e-3, 0.5)), min_size=1, max_size=40),
    a=st.floats(0.2, 20),
    b=st.floats(0.2, 20),
)
def test_hidden_flips_against_a_fine_sum(
    hidden: list[tuple[float, float]], a: float, b: float
) -> None:
    at = 0.4
    likelihood = of_flips(0, 0, hidden, (a, b))
    moments = row_moments_of(likelihood, np.array([0]), np.array([[a], [b]]))
    # A fine sum over the logit, where nothing is infinite at the ends.
    x = np.linspace(-80, 80, 400_001)
    p, q = expit(x), expit(-x)
    density = p**a * q**b
    for h, t in hidden:
        density *= (h / at - t / (1 - at)) * p + t / (1 - at) + 1 - h - t
    total = density.sum()
    assert moments.mean[0] == pytest.approx((density * p).sum() / total, rel=3e-4)
    assert moments.square[0] == pytest.approx((density * p * p).sum() / total, rel=3e-4)


def test_no_flips_leave_the_prior() -> None:
    """Rows that were shown and never flipped count as unknown: their prior is all there is."""
    a, b = 2.0, 5.0
    likelihood = of_flips(0, 0, [], (a, b))
    assert not likelihood.known.any()
    asked = Asked(0, np.array([0.4]), np.array([[a], [b]]), np.ones(1, bool))
    beliefs = Believing([asked])
    beliefs.take(asked, 0, likelihood)
    [(mean, deviation)] = beliefs.finish()
    assert mean[0] == pytest.approx(a / (a + b), rel=1e-12)
    assert deviation[0] == pytest.approx(np.sqrt(a * b / (a + b + 1)) / (a + b), rel=1e-12)


def test_one_sure_head_has_the_integral_of_its_posterior() -> None:
    likelihood = of_flips(1, 0, [], (2.0, 5.0))
    moments = row_moments_of(likelihood, np.array([0]), np.array([[2.0], [5.0]]))
    # The largest value of a likelihood is 0, here that of log p at the last point.
    top = likelihood.low[0] + 31 * likelihood.step[0]
    assert moments.log_integral[0] + np.log(expit(top)) == pytest.approx(betaln(3, 5), rel=1e-6)
