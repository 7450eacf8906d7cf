"""The likelihood of rows on points: three ways to get it, and plain products to judge them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_examples import places, said

from gecasmo.estimation.posteriors import likelihood as likelihood_module
from gecasmo.estimation.posteriors import moments as moments_module
from gecasmo.estimation.posteriors.few_rows import copied_places, repeats
from gecasmo.estimation.posteriors.likelihood import (
    Asked,
    Places,
    RowLikelihood,
    multiplied,
    nothing_known,
)
from gecasmo.estimation.posteriors.moments import Moments, row_moments_of
from gecasmo.kernels.static.row_grid import copy_places, find_repeats
from gecasmo.testing import plain_python
from strategies.checks import many


def answers(found: Places, asked: Asked, is_few: bool) -> tuple[RowLikelihood, Moments]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(likelihood_module, "_FEW_PLACES", 10**9 if is_few else 0)
        patch.setattr(moments_module, "_FEW_ROWS", 10**9 if is_few else 0)
        first, known = multiplied(found, asked)
        likelihood = nothing_known(len(asked.probability))
        own = slice(first, first + len(known))
        for name in ("low", "step", "values", "known"):
            getattr(likelihood, name)[own] = getattr(known, name)
        return likelihood, row_moments_of(likelihood, np.arange(len(likelihood)), asked.prior)


def same(one: RowLikelihood, other: RowLikelihood, tolerance: float) -> None:
    assert np.array_equal(one.known, other.known)
    for name in ("low", "step", "values"):
        difference = np.abs(getattr(one, name) - getattr(other, name))
        assert difference.max(initial=0.0) <= tolerance


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
        few, few_moments = answers(found, asked, True)
        kernel, moments = answers(found, asked, False)
    same(few, kernel, 1e-10)
    for one, other in zip(few_moments, moments, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_compiled_and_plain_are_the_same_bits() -> None:
    found, asked = places(3, 400, 30, 2)
    with plain_python():
        plain, plain_moments = answers(found, asked, False)
    compiled, moments = answers(found, asked, False)
    same(plain, compiled, 0.0)
    for one, other in zip(plain_moments, moments, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("is_few", [True, False])
def test_values_are_what_places_say(is_few: bool) -> None:
    found, asked = places(5, 120, 6, 2)
    with plain_python():
        likelihood, _ = answers(found, asked, is_few)
    says = (found.exact > 0) | (found.heads + found.tails > 0)
    on_pages = np.unique(found.rows[says & (found.weight != 0)])
    assert np.array_equal(np.flatnonzero(likelihood.known), on_pages[asked.wanted[on_pages]])
    for row in np.flatnonzero(likelihood.known):
        x = likelihood.low[row] + likelihood.step[row] * np.arange(32)
        p = 1 / (1 + np.exp(-x))
        total = np.zeros(32)
        for place in np.flatnonzero(found.rows == row):
            total += found.weight[place] * np.log(said(found, place, p))
        np.testing.assert_allclose(likelihood.values[row], total - total.max(), atol=1e-9)


@pytest.mark.parametrize("is_few", [True, False])
def test_products_that_floats_cannot_hold(is_few: bool) -> None:
    """Five hundred pages that each say 1 - 0.9999 p: at p = 1 a product of 1e-2000."""
    n = 500
    found = Places(
        *(np.zeros(n, np.uint32), np.zeros(n), np.full(n, 0.9998), np.full(n, 0.5)),
        *(np.ones(n), np.zeros(n, np.int32), np.zeros((1, 1))),
    )
    asked = Asked(0, np.array([0.5]), np.full((2, 1), 2.0), np.ones(1, bool))
    with plain_python():
        likelihood, moments = answers(found, asked, is_few)
    x = likelihood.low[0] + likelihood.step[0] * np.arange(32)
    told = n * np.log(1.9996 / (1 + np.exp(x)) + 0.0002)
    np.testing.assert_allclose(likelihood.values[0], told - told.max(), atol=1e-8)
    assert moments.mean[0] == pytest.approx(2 / (n + 4), rel=1e-2)


def test_rows_of_which_nothing_is_known_have_the_moments_of_their_own_prior() -> None:
    likelihood = nothing_known(6)
    likelihood.values[2] = -0.1 * np.arange(32)
    prior = np.array([[1.0, 1.0, 1.0, 2.0, 1.0, 1.0], [3.0, 3.0, 3.0, 5.0, 3.0, 4.0]])
    with plain_python(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments_module, "_FEW_ROWS", 0)
        moments = row_moments_of(likelihood, np.arange(6), prior)
    usual = prior[0] / prior.sum(axis=0)
    known = np.array([0, 1, 3, 4, 5])
    np.testing.assert_allclose(moments.mean[known], usual[known], rtol=1e-4)
    assert moments.mean[2] != pytest.approx(usual[2], rel=1e-2)


@many(40)
@given(st.lists(st.lists(st.integers(0, 5), max_size=7), min_size=1, max_size=6))
def test_repeats_against_counting(pages: list[list[int]]) -> None:
    starts = np.cumsum([0, *map(len, pages)])
    rows = np.array([row for page in pages for row in page], np.uint32)
    times, is_first = repeats(starts, rows)
    assert times.tolist() == [page.count(row) for page in pages for row in page]
    assert is_first.tolist() == [
        row not in page[:n] for page in pages for n, row in enumerate(page)
    ]
    found = np.zeros(1, np.bool_)
    find_repeats(starts, rows, found)
    assert found[0] == (times.max(initial=1) > 1)


@many(40)
@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=5), min_size=1, max_size=5),
    st.integers(1, 3),
    st.data(),
)
def test_copies_of_pages_against_lists(
    pages: list[list[int]], n_points: int, data: st.DataObject
) -> None:
    starts = np.cumsum([0, *map(len, pages)])
    rows = np.array([row for page in pages for row in page], np.uint32)
    chosen = data.draw(st.lists(st.integers(0, len(pages) - 1), min_size=1, max_size=6))
    own = [data.draw(st.sampled_from(pages[page])) for page in chosen]
    every = [
        (place, len(rows) + point if rows[place] == row else place)
        for page, row in zip(chosen, own, strict=True)
        for point in range(n_points)
        for place in range(starts[page], starts[page + 1])
    ]
    kernel = np.empty((2, len(every)), np.uint32)
    given_own = np.array(own, np.uint32)
    copy_places(starts, rows, np.array(chosen), given_own, n_points, *kernel)
    assert list(zip(*kernel.tolist(), strict=True)) == every
    plainly = copied_places(starts, rows, np.array(chosen), given_own, n_points)
    assert list(zip(*(one.tolist() for one in plainly), strict=True)) == every


def test_a_long_page_is_worth_a_closer_look() -> None:
    found = np.zeros(1, np.bool_)
    find_repeats(np.array([0, 201]), np.arange(201, dtype=np.uint32), found)
    assert found[0]
