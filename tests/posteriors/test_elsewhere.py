"""What is known of a row from all other pages: the kernel, NumPy, and plain products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_examples import places, said
from scipy.special import expit

from gecasmo.estimation.posteriors import likelihood as likelihood_module
from gecasmo.estimation.posteriors.likelihood import (
    Asked,
    Places,
    RowLikelihood,
    elsewhere,
    multiplied,
)
from gecasmo.testing import plain_python
from strategies.checks import many


def answers(
    found: Places, asked: Asked, is_few: bool, n_points: int = 33
) -> tuple[RowLikelihood, Any]:
    """What is known of rows, and at each place from all others; of an odd number of points the
    kernel leaves out none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(likelihood_module, "N_POINTS", n_points)
        patch.setattr(likelihood_module, "_FEW_PLACES", 10**9 if is_few else 0)
        first, known = multiplied(found, asked)
        return known, elsewhere(found, asked, first, known)


@many(25)
@given(
    seed=st.integers(0, 10**6),
    n_places=st.integers(1, 60),
    n_rows=st.integers(1, 8),
    degree=st.integers(0, 3),
)
def test_numpy_and_the_kernel_agree(seed: int, n_places: int, n_rows: int, degree: int) -> None:
    found, asked = places(seed, n_places, n_rows, degree)
    with plain_python():
        (_, few), (_, kernel) = (answers(found, asked, is_few) for is_few in (True, False))
    np.testing.assert_allclose(few, kernel, rtol=1e-9, atol=1e-12)


def test_compiled_and_plain_are_the_same_bits() -> None:
    found, asked = places(3, 400, 30, 2)
    for n_points in (32, 33):
        with plain_python():
            _, plain = answers(found, asked, False, n_points)
        _, compiled = answers(found, asked, False, n_points)
        assert np.array_equal(plain, compiled)


def test_half_of_the_points_are_about_enough() -> None:
    """The kernel leaves out every other one where nothing lies beyond the ends."""
    off = []
    for seed in range(30):
        found, asked = places(seed, 40, 6, seed % 4)
        asked = replace(asked, prior=np.maximum(asked.prior, 0.8))
        with plain_python():
            (_, half), (_, full) = (answers(found, asked, few, 32) for few in (False, True))
        off.append(np.abs(half[0] / full[0] - 1))
    assert np.quantile(np.concatenate(off), 0.9) < 1e-3
    assert np.concatenate(off).max() < 0.1


@pytest.mark.parametrize("is_few", [True, False])
@many(15)
@given(seed=st.integers(0, 10**6), n_places=st.integers(1, 40), degree=st.integers(0, 3))
def test_against_products_over_all_other_places(
    is_few: bool, seed: int, n_places: int, degree: int
) -> None:
    """On a fine grid; a page that counts several times is left out once."""
    n_rows = 4
    found, asked = places(seed, n_places, n_rows, degree)
    found.weight[found.weight < 1] = 1.0
    asked = replace(asked, prior=np.maximum(asked.prior, 0.8), wanted=np.ones(n_rows, bool))
    with plain_python():
        _, (mean, square) = answers(found, asked, is_few)
    x = np.linspace(-30.0, 30.0, 6_001)
    p, q = expit(x), expit(-x)
    for row in np.unique(found.rows):
        own = np.flatnonzero(found.rows == row)
        a, b = asked.prior[:, row]
        logs = {place: np.log(np.maximum(said(found, place, p), 1e-300)) for place in own}
        for place in own:
            density = a * np.log(p) + b * np.log(q) - logs[place]
            density += sum(found.weight[other] * logs[other] for other in own)
            density = np.exp(density - density.max())
            density /= density.sum()
            assert mean[place] == pytest.approx((density * p).sum(), rel=2e-3, abs=1e-4)
            assert square[place] == pytest.approx((density * p * p).sum(), rel=2e-3, abs=1e-4)


@pytest.mark.parametrize("is_few", [True, False])
def test_a_row_on_one_page_is_known_by_its_prior(is_few: bool) -> None:
    """Whatever that page says: its own clicks are no part of it."""
    found, asked = places(8, 12, 12, 2)
    found = replace(found, rows=np.arange(12, dtype=np.uint32), weight=np.ones(12))
    asked = replace(asked, prior=np.maximum(asked.prior, 1.0), wanted=np.ones(12, bool))
    with plain_python():
        _, (mean, square) = answers(found, asked, is_few)
    a, b = asked.prior
    np.testing.assert_allclose(mean, a / (a + b), rtol=1e-3)
    np.testing.assert_allclose(square, a * (a + 1) / (a + b) / (a + b + 1), rtol=2e-3)
