"""The kernels of the Gibbs sampler for rows: their law, and the evidence of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln

from gecasmo.hashes import mix, mixed
from gecasmo.kernels.library import compiling
from gecasmo.kernels.static.beta_steps import draw_rows, normals, spread_bits, weigh_counts
from gecasmo.kernels.static.row_sweeps import n_chunks_of, sweep
from gecasmo.kernels.threads import using_threads

NONE = np.zeros(0, bool)


def drawn(key: int, base: Any, counts: Any, is_given: Any = NONE, odds: float = 1.0) -> Any:
    weights, moments = np.full(counts.shape, 0.5), np.full(counts.shape, 0.25)
    with np.errstate(over="ignore"):
        given = [np.uint64(mixed(key)), base, odds, 1.0, counts, is_given, weights, moments]
        sweep(draw_rows, counts.shape[1], given)
    return weights, moments


@pytest.mark.parametrize(
    ("heads", "tails"), [(1, 1), (0.5, 0.5), (0.02, 0.02), (0.3, 5), (2, 0.7), (40, 3), (1e6, 2e6)]
)
def test_rows_have_their_beta_distribution(heads: float, tails: float) -> None:
    n = 20_000
    base = np.stack([np.full(n, heads), np.full(n, tails)])
    weights, moments = drawn(3, base, np.zeros((2, n)))
    law = stats.beta(heads, tails)
    # By the smaller side, which is not rounded.
    below, above = law.cdf(weights[1]), stats.beta(tails, heads).cdf(weights[0])
    uniform = np.where(weights[1] < 0.5, below, 1 - above)
    assert stats.kstest(uniform, "uniform").pvalue > 0.01
    assert np.allclose(weights.sum(axis=0), 1.0, atol=1e-12)
    assert np.allclose(moments[0], law.mean())
    assert np.allclose(moments[1], law.var() + law.mean() ** 2)
    # Neighbours, and the next sweep, have nothing to do with each other.
    again, _ = drawn(4, base, np.zeros((2, n)))
    for one, other in ((weights[1, 1:], weights[1, :-1]), (weights[1], again[1])):
        assert abs(stats.spearmanr(one, other).statistic) < 4.5 / np.sqrt(n)


def test_two_normal_numbers_of_every_stream() -> None:
    n = 40_000
    with np.errstate(over="ignore"):
        streams = spread_bits(np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    x, y, u, logs = np.empty((4, n))
    with np.errstate(over="ignore"):
        normals(n, streams, x, y, u, logs, np.empty(n, np.uint64), np.empty((2, n), np.int64))
    assert stats.kstest(x, "norm").pvalue > 0.01
    assert stats.kstest(y, "norm").pvalue > 0.01
    # All directions alike, whatever the length.
    angle = np.arctan2(y, x) / (2 * np.pi) % 1
    assert stats.kstest(angle, "uniform").pvalue > 0.01
    assert abs(stats.spearmanr(angle, x**2 + y**2).statistic) < 4.5 / np.sqrt(n)


def test_same_bits_on_any_number_of_threads_and_without_compiling() -> None:
    rng = np.random.default_rng(1)
    n = 5_000
    base = rng.gamma(1.0, 1.0, (2, n)) + 0.02
    counts = rng.poisson(2.0, (2, n)).astype(float)
    is_given = rng.random(n) < 0.2
    with using_threads(1):
        one = drawn(5, base, counts, is_given, 1.3)
    with using_threads(3):
        three = drawn(5, base, counts, is_given, 1.3)
    assert all((a == b).all() for a, b in zip(one, three, strict=True))
    assert (one[0][:, is_given] == 0.5).all()
    assert (one[1][:, is_given] == 0.25).all()
    some = slice(0, 300)
    token = compiling.set(False)
    try:
        plain = drawn(5, base[:, some], counts[:, some], is_given[some], 1.3)
    finally:
        compiling.reset(token)
    assert np.allclose(plain[0], one[0][:, some], rtol=1e-9, atol=0)


def test_the_evidence_of_counts_is_that_of_beta_functions() -> None:
    rng = np.random.default_rng(2)
    n = 3_000
    base = rng.gamma(1.0, 1.0, (2, n)) + 0.02
    counts = (rng.poisson(3.0, (2, n)) * rng.choice([0, 1, 5, 100], n)).astype(float)
    counts[:, 0] = 5e8, 3.0
    is_given = rng.random(n) < 0.2
    hypers = rng.normal(0, [1, 2], (4, 2))
    hypers[3] = 20.0, 24.0
    odds, scale = np.exp(hypers.T)
    sums = np.zeros((4, n_chunks_of(n)))
    sweep(weigh_counts, n, [base, odds, scale, counts, is_given, sums])
    for number in range(4):
        mean = base[0] * odds[number] / (base[0] * odds[number] + base[1])
        strength = scale[number] * base.sum(axis=0)
        a, b = np.maximum([strength * mean, strength * (1 - mean)], 0.02)[:, ~is_given]
        tails, heads = counts[:, ~is_given]
        wanted = (betaln(a + heads, b + tails) - betaln(a, b)).sum()
        assert np.isclose(sums[number].sum(), wanted, rtol=1e-6 if number == 3 else 1e-10)


def test_one_number_from_several() -> None:
    numbers = [0, 3, -5, 2**70 + 1]
    found = np.zeros(1, np.uint64)
    for number in numbers:
        found = mix(found ^ np.array([number % 2**64], np.uint64))
    assert mixed(*numbers) == int(found[0])
