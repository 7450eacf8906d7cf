"""Sweeps over the rows of large tables, against plain NumPy and SciPy; on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from gecasmo import DBN, read_log
from gecasmo.encoding.rows import Rows
from gecasmo.estimation import coins as steps
from gecasmo.forms import Table, TableState
from gecasmo.kernels.static import row_sweeps
from gecasmo.kernels.static.row_steps import CHUNK
from gecasmo.kernels.static.vector_math import exp_of, log_of
from gecasmo.kernels.threads import run_jobs, using_threads
from gecasmo.testing import plain_python
from strategies.checks import many


def example(seed: int, n_rows: int, each: bool, has_fixed: bool):
    """Three states of a table, counts, and now and then a probability of exactly 0 or 1."""
    rng = np.random.default_rng(seed)
    rows = Rows(("query",), (), n_rows)
    pseudo = rng.choice([0.0, 0.3, 4.0], (2, n_rows)) if each else (float(rng.integers(0, 2)), 0.0)
    is_fixed = rng.random(n_rows) < 0.2 if has_fixed else None
    states = []
    for _ in range(3):
        p = rng.beta(0.5, 0.5, n_rows)
        p[rng.random(n_rows) < 0.03] = 0.0
        p[rng.random(n_rows) < 0.03] = 1.0
        states.append(TableState(rows, p, 0.5, is_fixed, pseudo=pseudo))
    counts = rng.gamma(1.0, 3.0, (2, n_rows)) * (rng.random(n_rows) < 0.8)
    return rows, tuple(states), counts


def everything(rows: Rows, states, counts) -> list:
    """All that happens to a table between two E-steps."""
    form, flips = Table(), counts.sum(axis=0)
    move = steps.move_of(form, states)
    with np.errstate(invalid="ignore"):
        beyond = steps.extrapolated(form, states[2], move, 2.5)
    return [
        form.fit(rows, counts[1], counts[0], states[0]).probability,
        form.vector(states[0]),
        *move,
        *steps.lengths_of(form, rows, states, move, flips),
        beyond.probability,
        steps.squared_distance(form, rows, states[0], states[1], flips),
        form.penalty(states[0]),
    ]


def swept(*given_) -> list:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_sweeps, "FEWEST_ROWS", 0)
        return everything(*given_)


def close(one: list, other: list) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@many(30)
@given(
    seed=st.integers(0, 10**6), n_rows=st.integers(1, 40), each=st.booleans(), fixed=st.booleans()
)
def test_sweeps_against_numpy(seed: int, n_rows: int, each: bool, fixed: bool) -> None:
    case = example(seed, n_rows, each, fixed)
    with plain_python():
        close(swept(*case), everything(*case))


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
def test_compiled_sweeps_on_any_number_of_threads(each: bool, fixed: bool) -> None:
    case = example(7, 5 * CHUNK + 311, each, fixed)
    runs = []
    for threads in (1, 2, 3, 8):
        with using_threads(threads):
            runs.append(swept(*case))
    close(runs[0], everything(*case))
    for other in runs[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(runs[0], other, strict=True))


def test_a_small_table_is_left_to_numpy() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_sweeps, "sweep", None)
        everything(*example(1, 1000, False, False))
        with pytest.raises(TypeError):
            swept(*example(1, 1000, False, False))


def test_m_step_by_hand() -> None:
    """Counts, pseudo-counts, nothing at all, and a row that is given."""
    heads, tails = np.array([3.0, 0.0, 0.0, 5.0]), np.array([1.0, 0.0, 0.0, 5.0])
    pseudo = np.array([[1.0, 1.0, 0.0, 1.0], [1.0, 3.0, 0.0, 1.0]])
    is_fixed, before = np.array([False, False, False, True]), np.array([0.5, 0.5, 0.7, 0.9])
    with plain_python():
        found = row_sweeps.fitted(heads, tails, pseudo, is_fixed, before)
    assert found.tolist() == [4 / 6, 0.25, 0.7, 0.9]


@pytest.mark.parametrize("is_plain", [True, False])
def test_penalty_of_certain_rows(is_plain: bool) -> None:
    """A row at 0 costs nothing if no heads are added, and everything if some are."""
    p = np.array([0.0, 0.5])
    with plain_python():
        if is_plain:
            rows = Rows(("query",), (), 2)
            answers = [
                Table().penalty(TableState(rows, p, 0.5, pseudo=pseudo))
                for pseudo in ((0.0, 2.0), (2.0, 0.0))
            ]
        else:
            answers = [row_sweeps.penalty(p, pseudo, None) for pseudo in ((0.0, 2.0), (2.0, 0.0))]
    assert answers == [pytest.approx(2 * np.log(0.5)), -np.inf]


# -- logarithms and exponentials ------------------------------------------------------------------
@many(60)
@given(st.lists(st.floats(0.0, allow_nan=False), min_size=1, max_size=9))
def test_logarithms(values: list[float]) -> None:
    x = np.array(values)
    out, scratch = np.empty(len(x)), np.empty((2, len(x)), np.int64)
    log_of(len(x), x, out, scratch)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(out, np.log(x), rtol=1e-15, atol=0)


@many(60)
@given(st.lists(st.floats(-700.0, 700.0), min_size=1, max_size=9))
def test_exponentials(values: list[float]) -> None:
    x = np.array(values)
    out, scratch = np.empty(len(x)), np.empty((2, len(x)), np.int64)
    exp_of(len(x), x, out, scratch)
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-15, atol=0)


def test_logits_far_out_and_back() -> None:
    p = np.array([1e-300, 1e-17, 0.5, 0.5 + 1e-12, 1 - 1e-16, 0.0, 1.0])
    with plain_python():
        found = row_sweeps.logits(p)
        move = (found, np.zeros(7), np.zeros(7))
        back = row_sweeps.followed(move, 1.0, p, None)
    np.testing.assert_allclose(found, logit(p), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(back[:5], expit(found[:5]), rtol=1e-12)
    assert back[5:].tolist() == [0.0, 1.0]


# -- threads --------------------------------------------------------------------------------------
def test_jobs_may_start_jobs() -> None:
    seen = []

    def inner(number: int) -> None:
        seen.append(number)

    def outer(number: int) -> None:
        run_jobs(inner, [[10 * number + n] for n in range(4)])

    run_jobs(outer, [[n] for n in range(6)])
    assert sorted(seen) == sorted(10 * a + b for a in range(6) for b in range(4))


def test_a_job_that_fails_says_so_and_leaves_nobody_running() -> None:
    done = []

    def job(number: int) -> None:
        if number == 1:
            raise ValueError("the second job")
        done.append(number)

    with pytest.raises(ValueError, match="the second job"):
        run_jobs(job, [[n] for n in range(6)])
    n_done = len(done)
    run_jobs(job, [[7], [8]])
    assert len(done) == n_done + 2


def test_a_whole_fit_is_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Learned priors, row posteriors and widened spreads too, by the kernels for many rows."""
    from gecasmo.estimation import expectation
    from gecasmo.estimation.posteriors import likelihood, moments, polynomials

    monkeypatch.setattr(row_sweeps, "FEWEST_ROWS", 100)
    monkeypatch.setattr(likelihood, "_RESULTS_AT_ONCE", 3_000)
    monkeypatch.setattr(moments, "_FEW_ROWS", 100)
    for module in (likelihood, expectation, polynomials):
        monkeypatch.setattr(module, "_FEW_PLACES", 100)
    rng = np.random.default_rng(0)
    n_pages = 3_000
    query = rng.integers(0, 60, n_pages)
    log = read_log(
        {
            "session": np.repeat(np.arange(n_pages), 8),
            "query": np.repeat(query, 8),
            "doc": (np.argsort(rng.random((n_pages, 60)), axis=1)[:, :8]).ravel(),
            "rank": np.tile(np.arange(1, 9), n_pages),
            "click": rng.random(8 * n_pages) < 0.2,
        }
    )
    fits = [DBN().fit(log, threads=threads, progress=False) for threads in (1, 2, 3)]
    for coin in fits[0].forms:
        for other in fits[1:]:
            assert fits[0].estimates(coin).equals(other.estimates(coin))  # with intervals
    assert fits[0].history["objective"].equals(fits[1].history["objective"])
