"""What learned priors rest on, each against the plain mathematics: derivatives of integrated
likelihoods, moments under uncertain means and under strong priors, and two special functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln, digamma, expit, logit, polygamma, roots_hermitenorm, roots_jacobi

from gecasmo.estimation.posteriors.likelihood import Asked, Places, RowLikelihood, multiplied
from gecasmo.estimation.posteriors.moments import narrow_moments_of
from gecasmo.estimation.posteriors.regression import Bends, _gammas, bends
from gecasmo.forms.priors import WEAKEST, pseudo_counts
from strategies.checks import close_to, many

Line = tuple[float, float]  # what a page says of a row: slope and level
AT = 0.4  # where heads and tails are counted
STEP = 0.02


def told(lines: list[Line], prior: np.ndarray) -> RowLikelihood:
    """The likelihood of a row of which pages say that."""
    slope, level = np.array(lines).T
    scale = slope * AT + level  # pages are counted where the row is, so that they say 1 there
    n = len(lines)
    places = Places(
        np.zeros(n, np.uint32),
        *((slope + level) * AT / scale, level * (1 - AT) / scale, np.full(n, AT)),
        *(np.ones(n), np.zeros(n, np.int32), np.zeros((1, 1))),
    )
    asked = Asked(0, np.array([AT]), prior[:, None], np.ones(1, bool))
    return multiplied(places, asked)[1]


def integrated(lines: list[Line], logit_mean: float, log_strength: float) -> float:
    """The logarithm of a row's integrated likelihood, by a rule that is exact for polynomials."""
    strength, mean = np.exp(log_strength), expit(logit_mean)
    x, w = roots_jacobi(16, strength * (1 - mean) - 1, strength * mean - 1)
    p = (x + 1) / 2
    value = np.prod([slope * p + level for slope, level in lines], axis=0)
    return float(np.log((value * w).sum() / w.sum()))


def differences(f: Callable[[float, float], float], m: float, s: float) -> Bends:
    """First and second derivatives, of the fourth order."""
    near = np.array([-2, -1, 0, 1, 2])
    first, second = np.array([1, -8, 0, 8, -1]) / 12, np.array([-1, 16, -30, 16, -1]) / 12
    grid = np.array([[f(m + STEP * i, s + STEP * j) for j in near] for i in near])
    return Bends(
        *(np.array([first @ grid[:, 2] / STEP]), np.array([first @ grid[2] / STEP])),
        np.array([second @ grid[:, 2] / STEP**2]),
        np.array([first @ grid @ first / STEP**2]),
        np.array([second @ grid[2] / STEP**2]),
    )


LINES = st.lists(
    st.one_of(
        st.tuples(st.floats(-0.95, -0.05), st.just(1.0)),  # not clicked, perhaps not seen
        st.tuples(st.floats(0.1, 1.0), st.floats(0.0, 0.3)),  # clicked, perhaps by another
    ),
    min_size=1,
    max_size=12,
)


@many(40)
@given(lines=LINES, mean=st.floats(0.2, 0.8), strength=st.floats(4.0, 200.0))
def test_derivatives_of_hidden_flips(lines: list[Line], mean: float, strength: float) -> None:
    m, s = float(logit(mean)), float(np.log(strength))
    likelihood = told(lines, strength * np.array([mean, 1 - mean]))
    found = bends(likelihood, np.array([0]), np.array([m]), np.array([s]))
    wanted = differences(lambda a, b: integrated(lines, a, b), m, s)
    for name in Bends._fields:
        close_to(getattr(found, name), getattr(wanted, name), 1e-3)


@many(40)
@given(
    counts=st.tuples(st.floats(0, 50), st.floats(0, 50)),
    mean=st.floats(0.02, 0.98),
    strength=st.floats(0.1, 5_000.0),
)
def test_derivatives_of_flips_that_were_seen(
    counts: tuple[float, float], mean: float, strength: float
) -> None:
    def exact(a: float, b: float) -> float:
        own = np.exp(b) * np.array([expit(a), expit(-a)])
        return float(betaln(*(own + counts)) - betaln(*own))

    m, s = float(logit(mean)), float(np.log(strength))
    evidence = np.array(counts)[:, None]
    found = bends(evidence, np.array([0]), np.array([m]), np.array([s]))
    wanted = differences(exact, m, s)
    for name in Bends._fields:
        close_to(getattr(found, name), getattr(wanted, name), 2e-4)


def test_rows_of_which_nothing_is_said_have_no_derivatives() -> None:
    evidence, at = np.zeros((2, 3)), np.array([-1.0, 0.0, 2.0])
    for bend in bends(evidence, np.arange(3), at, np.array([0.0, 3.0, 8.0])):
        close_to(bend, np.zeros(3), 1e-12)


# -- moments --------------------------------------------------------------------------------------
@many(60)
@given(
    at=st.floats(-4, 2),
    variance=st.floats(0, 1.0),
    log_strength=st.floats(float(WEAKEST), 7.0),
)
def test_pseudo_counts_have_the_moments_of_uncertain_means(
    at: float, variance: float, log_strength: float
) -> None:
    """As very many draws of the mean's logit would show them."""
    a, b = pseudo_counts(np.array([at]), np.array([variance]), np.array([log_strength]))[:, 0]
    x, w = roots_hermitenorm(80)
    means = expit(at + np.sqrt(variance) * x)
    w = w / w.sum()
    mean = float(w @ means)
    spread = float(w @ (means * (1 - means)) / (np.exp(log_strength) + 1) + w @ (means - mean) ** 2)
    assert a / (a + b) == pytest.approx(mean, rel=0.02)
    if mean * (1 - mean) / spread - 1 > np.exp(WEAKEST):
        assert a * b / (a + b) ** 2 / (a + b + 1) == pytest.approx(spread, rel=0.12)


@many(20)
@given(at=st.floats(-6, 6), log_strength=st.floats(-2.0, 9.0))
def test_pseudo_counts_of_means_that_are_known(at: float, log_strength: float) -> None:
    none, little = (
        pseudo_counts(np.array([at]), np.array([variance]), np.array([log_strength]))[:, 0]
        for variance in (0.0, 1e-12)
    )
    close_to(none, np.exp(log_strength) * expit(np.array([at, -at])), 1e-9)
    close_to(none, little, 1e-5)


@many(30)
@given(lines=LINES, mean=st.floats(0.02, 0.95), log_strength=st.floats(5.5, 9.2))
def test_moments_under_strong_priors(lines: list[Line], mean: float, log_strength: float) -> None:
    """The likelihood has been worked out for a weak prior, on points that lie far apart."""
    likelihood = told(lines, np.array([1.0, 2.0]))
    a, b = prior = np.exp(log_strength) * np.array([mean, 1 - mean])
    moments = narrow_moments_of(likelihood, np.array([0]), prior[:, None])
    width = np.sqrt(1 / a + 1 / b)
    x = logit(mean) + width * np.linspace(-12, 12, 20_001)
    log_p, log_q = -np.log1p(np.exp(-x)), -np.log1p(np.exp(x))
    p = np.exp(log_p)
    density = a * log_p + b * log_q
    density += sum(np.log(slope * p + level) for slope, level in lines)
    density = np.exp(density - density.max())
    density /= density.sum()
    means = {"mean": p, "log_p": log_p, "log_q": log_q}
    wanted = {name: float(density @ value) for name, value in means.items()}
    deviation = float(np.sqrt(density @ (p - wanted["mean"]) ** 2))
    # In units of how wide the posterior is.
    assert abs(moments.mean[0] - wanted["mean"]) < 0.01 * deviation
    assert moments.deviation[0] == pytest.approx(deviation, rel=0.01)
    for name, value in (("var_p", log_p), ("var_q", log_q)):
        centre = float(density @ value)
        spread = float(density @ (value - centre) ** 2)
        assert getattr(moments, name)[0] == pytest.approx(spread, rel=0.02)
        known = moments.log_p[0] if name == "var_p" else moments.log_q[0]
        assert abs(known - centre) < 0.01 * np.sqrt(spread)


@many(60)
@given(st.floats(1e-4, 1e6))
def test_derivatives_of_the_gamma_function(x: float) -> None:
    first, second = _gammas(np.array([x]))
    assert first[0] == pytest.approx(digamma(x), rel=1e-10, abs=1e-10)
    assert second[0] == pytest.approx(polygamma(1, x), rel=1e-10)
