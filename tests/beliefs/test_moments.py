"""Integrals of rows' likelihoods under Beta priors, against closed forms and plain sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln, digamma, expit, polygamma

from gecasmo.estimation.beliefs.likelihood import Asked, Places, RowLikelihood, multiplied
from gecasmo.estimation.beliefs.moments import row_moments_of
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
    likelihood = of_flips(heads, tails, [], (a, b))
    moments = row_moments_of(likelihood, np.array([0]), np.array([[a], [b]]))
    x, y = heads + a, tails + b
    # Thirty-two points: a few in a million, which shows where one flip in 20,000 came up heads.
    assert moments.mean[0] == pytest.approx(x / (x + y), rel=1e-5, abs=5e-6)
    variance = x * y / (x + y) ** 2 / (x + y + 1)
    assert moments.deviation[0] == pytest.approx(np.sqrt(variance), rel=2e-3, abs=5e-6)
    assert moments.log_p[0] == pytest.approx(digamma(x) - digamma(x + y), rel=0.02, abs=1e-3)
    assert moments.log_q[0] == pytest.approx(digamma(y) - digamma(x + y), rel=0.02, abs=1e-3)
    spread = polygamma(1, x) - polygamma(1, x + y)
    assert moments.var_p[0] == pytest.approx(spread, rel=0.1, abs=1e-6)


@many(40)
@given(
    hidden=st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)), min_size=1, max_size=40),
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
    a, b = 2.0, 5.0
    likelihood = of_flips(0, 0, [], (a, b))
    moments = row_moments_of(likelihood, np.array([0]), np.array([[a], [b]]))
    assert moments.mean[0] == pytest.approx(a / (a + b), rel=1e-6)
    assert moments.log_integral[0] == pytest.approx(betaln(a, b), rel=1e-6)
