"""Slopes of global coins with rows integrated out, against exact integrals.

A page's likelihood is a polynomial of its rows' probabilities, and Gauss and Jacobi's rule
integrates polynomials against a Beta prior without error. So the integrated likelihood of a small
log is known to rounding, and its derivative by a global coin is a difference of two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit, roots_jacobi

from gecasmo import CCM, DBN, PBM, UBM, read_log
from gecasmo.estimation import Expectation
from gecasmo.estimation.coins import as_weights
from gecasmo.estimation.posteriors.likelihood import Asked
from gecasmo.estimation.posteriors.sweeps import Sweeps, look_through
from gecasmo.forms.priors import Priors, pseudo_counts
from gecasmo.testing import plain_python
from strategies.checks import many

Page = tuple[list[str], list[int], float]  # documents from the top, clicks, weight
Values = dict[Any, float]  # of global coins, by (coin, row)
LEFT = 1e-3  # a step in logits


def log_of(pages: list[Page]) -> Any:
    rows = [
        (number, "q", doc, rank, click, weight)
        for number, (docs, clicks, weight) in enumerate(pages)
        for rank, (doc, click) in enumerate(zip(docs, clicks, strict=True), 1)
    ]
    names = ("session", "query", "doc", "rank", "click", "weight")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return read_log(columns, weight="weight")


def prior_of(mean: float, strength: float) -> np.ndarray:
    """The Beta prior that slopes of a regression give to all rows."""
    priors = Priors.vague((), ())
    slopes = np.array([[logit(mean)], [np.log(strength)]])
    level, log_strength = replace(priors, slopes=slopes).linear({}, 1)
    return pseudo_counts(level, np.zeros(1), log_strength)[:, 0]


def swept(
    model: Any, log: Any, row_coins: dict[str, np.ndarray], times: int = 1, streamed: bool = False
) -> Values:
    """The slopes of the integrated log-likelihood by logits of global coins, as sweeps find
    them."""
    encoded = model.encode(log, "e_step", "minimal")
    expectation = Expectation(encoded, model.library(encoded.plan, counting=True), "minimal")
    names = list(model.forms)
    weights = [
        as_weights(np.asarray(form.predict(model.states()[coin], rows)))
        for (coin, form), rows in zip(model.forms.items(), encoded.rows, strict=True)
    ]
    asked = []
    for coin, prior in row_coins.items():
        number = names.index(coin)
        n = len(encoded.rows[number])
        own = np.repeat(prior[:, None], n, axis=1)
        asked.append(Asked(number, weights[number][1], own, np.ones(n, bool)))
    if streamed:
        counts = look_through(expectation, weights, asked, lambda *_: None)
    else:
        sweeps = Sweeps(expectation)
        for _ in range(times):
            counts = sweeps.run(weights, asked).counts
    found = {}
    for number, coin in enumerate(names):
        if coin in row_coins:
            continue
        heads, tails = counts.heads(number), counts.tails(number)
        keys = encoded.rows[number].frame.rows() or [()]
        p = weights[number][1]
        slopes = heads * (1 - p) - tails * p
        found |= {(coin, *key): slope for key, slope in zip(keys, slopes, strict=True)}
    return found


def expected(f: Callable[..., Any], priors: list[np.ndarray], n_points: int) -> float:
    """The mean of a polynomial of independent probabilities with Beta distributions."""
    nodes, weights = [], []
    for a, b in priors:
        x, w = roots_jacobi(n_points, b - 1, a - 1)
        nodes.append((x + 1) / 2)
        weights.append(w / w.sum())
    total = np.ones(1)
    for w in weights:
        total = np.multiply.outer(total, w)
    return float((f(*np.meshgrid(*nodes, indexing="ij")) * total[0]).sum())


def slope(log_likelihood: Callable[[Values], float], values: Values, coin: Any) -> float:
    """The derivative by the logit of a global coin: a difference, without its largest error."""

    def moved(by: float) -> float:
        return log_likelihood(values | {coin: float(expit(logit(values[coin]) + by))})

    near = (moved(LEFT) - moved(-LEFT)) / (2 * LEFT)
    far = (moved(2 * LEFT) - moved(-2 * LEFT)) / (4 * LEFT)
    return (4 * near - far) / 3


# -- pages that do not tie rows together ----------------------------------------------------------
def place_of(rank: int, clicks: list[int], is_ubm: bool) -> tuple[Any, ...]:
    """The row of examination: the rank, and that of the last click above."""
    above = [r for r in range(1, rank) if clicks[r - 1]]
    return ("examination", rank, max(above, default=0)) if is_ubm else ("examination", rank)


def by_rows(pages: list[Page], prior: np.ndarray, is_ubm: bool) -> Callable[[Values], float]:
    """The integrated log-likelihood where each row speaks for itself."""

    def log_likelihood(values: Values) -> float:
        total = 0.0
        for doc in {doc for docs, _, _ in pages for doc in docs}:
            shown = [
                (values[place_of(rank, clicks, is_ubm)], clicks[rank - 1], int(weight))
                for docs, clicks, weight in pages
                for rank, own in enumerate(docs, 1)
                if own == doc
            ]

            def likelihood(p: np.ndarray, shown: list[Any] = shown) -> np.ndarray:
                factors = [(e * p if c else 1 - e * p) ** w for e, c, w in shown]
                return np.prod(factors, axis=0)

            total += np.log(expected(likelihood, [prior], 40))
        return total

    return log_likelihood


def pages_of_few(n_docs: int) -> Any:
    page = st.tuples(
        st.permutations("abc"[:n_docs]).map(lambda docs: list(docs)[:2]),
        st.lists(st.integers(0, 1), min_size=2, max_size=2),
        st.sampled_from([1.0, 1.0, 2.0]),
    )
    return st.lists(page, min_size=1, max_size=6)


PRIORS = {"mean": st.floats(0.25, 0.75), "strength": st.floats(5.0, 20.0)}


@pytest.mark.parametrize("is_ubm", [False, True], ids=["PBM", "UBM"])
@many(25)
@given(pages=pages_of_few(3), examined=st.floats(0.1, 0.95), start=st.floats(0.1, 0.9), **PRIORS)
def test_rows_that_no_page_ties_together(
    is_ubm: bool, pages: list[Page], examined: float, start: float, mean: float, strength: float
) -> None:
    """Exact, wherever rows begin and however often pages are looked at."""
    prior = prior_of(mean, strength)
    top = {(1, 0): 1.0} if is_ubm else {1: 1.0}
    low = {(2, 0): examined, (2, 1): 0.6} if is_ubm else {2: examined}
    kind = UBM if is_ubm else PBM
    model = kind.with_values(attraction=start, examination=top | low)
    exact = by_rows(pages, prior, is_ubm)
    values = {
        ("examination", *(key if is_ubm else (key,))): value for key, value in (top | low).items()
    }
    with plain_python():
        once, twice, streamed = (
            swept(model, log_of(pages), {"attraction": prior}, **how)
            for how in ({}, {"times": 2}, {"streamed": True})
        )
    shown = [key for key in once if key[1] == 2]
    assert shown
    for key in shown:
        truth = slope(exact, values, key)
        for found in (once, twice, streamed):
            assert found[key] == pytest.approx(truth, abs=1e-5)


def test_rows_at_their_means_would_be_something_else() -> None:
    """So that the test above can fail."""
    pages: list[Page] = [(["a", "b"], [0, 0], 1.0), (["b", "a"], [1, 0], 1.0)]
    found, exact = of_second_rank(pages, prior_of(0.3, 5.0))
    model = PBM.with_values(attraction=0.3, examination={1: 1.0, 2: 0.5})
    with plain_python():
        sure = swept(model, log_of(pages), {"attraction": 1e5 * prior_of(0.3, 5.0)})
    assert found == pytest.approx(exact, abs=1e-5)
    assert abs(sure["examination", 2] - exact) > 0.01


@pytest.mark.parametrize("mean", [0.02, 0.05, 0.1, 0.95])
@pytest.mark.parametrize("strength", [1.5, 2.0, 5.0])
def test_priors_with_less_than_a_flip(mean: float, strength: float) -> None:
    """Much of such a prior lies below one in a million, and has to be counted."""
    pages: list[Page] = [(["a", "b"], [0, 0], 1.0), (["b", "c"], [0, 1], 1.0)]
    found, exact = of_second_rank(pages, prior_of(mean, strength))
    assert found == pytest.approx(exact, abs=1e-4)


def of_second_rank(pages: list[Page], prior: np.ndarray) -> tuple[float, float]:
    """The slope by the examination of the second rank: as sweeps find it, and as it is."""
    key, values = ("examination", 2), {("examination", 1): 1.0, ("examination", 2): 0.5}
    model = PBM.with_values(attraction=0.3, examination={1: 1.0, 2: 0.5})
    with plain_python():
        found = swept(model, log_of(pages), {"attraction": prior})[key]
    return found, slope(by_rows(pages, prior, False), values, key)


# -- pages that do: every row on one page ---------------------------------------------------------
def dbn_page(clicks: list[int], rows: list[Any], values: Values) -> Any:
    """The probability of a page's clicks; `rows` are attractions, then satisfactions."""
    n, goes_on = len(clicks), values[("continuation",)]
    reads, gone = 1.0, 0.0
    for click, a, s in zip(clicks, rows[:n], rows[n:], strict=True):
        if click:
            stays = reads * a * (1 - s)
            gone = reads * a * s + stays * (1 - goes_on)
        else:
            stays = reads * (1 - a)
            gone = gone + stays * (1 - goes_on)
        reads = stays * goes_on
    return reads + gone


def ccm_page(clicks: list[int], rows: list[Any], values: Values) -> Any:
    """As above; a click flips attraction once more."""
    skip, click_, satisfied = (
        values[(f"continuation_after_{name}",)] for name in ("skip", "click", "satisfaction")
    )
    reads, gone = 1.0, 0.0
    for click, a in zip(clicks, rows, strict=True):
        if click:
            goes_on = a * satisfied + (1 - a) * click_
            gone, reads = reads * a * (1 - goes_on), reads * a * goes_on
        else:
            gone, reads = gone + reads * (1 - a) * (1 - skip), reads * (1 - a) * skip
    return reads + gone


def by_pages(
    pages: list[Page], page_likelihood: Any, priors: list[np.ndarray]
) -> Callable[[Values], float]:
    """The integrated log-likelihood where each page has rows of its own."""

    def log_likelihood(values: Values) -> float:
        total = 0.0
        for docs, clicks, _ in pages:
            own = [prior for prior in priors for _ in docs]

            def likelihood(*rows: np.ndarray, clicks: list[int] = clicks) -> np.ndarray:
                return page_likelihood(clicks, list(rows), values)

            total += np.log(expected(likelihood, own, 4))
        return total

    return log_likelihood


def all_clicks(n: int) -> list[Page]:
    """A page for each way to click, with documents of its own."""
    return [
        ([f"{number} {rank}" for rank in range(n)], list(clicks), 1.0)
        for number, clicks in enumerate(product([0, 1], repeat=n))
    ]


def compared(model: Any, page_likelihood: Any, pages: list[Page], priors: dict[str, Any]) -> None:
    values = {
        (coin,): float(state.otherwise)
        for coin, state in model.states().items()
        if coin not in priors
    }
    exact = by_pages(pages, page_likelihood, list(priors.values()))
    with plain_python():
        found = [swept(model, log_of(pages), priors, times=times) for times in (1, 2)]
    for key in values:
        truth = slope(exact, values, key)
        assert abs(truth) > 1e-3, key  # there is something to be told
        for one in found:
            assert one[key] == pytest.approx(truth, abs=1e-5), key


@many(8)
@given(goes_on=st.floats(0.1, 0.9), start=st.floats(0.1, 0.9), n=st.integers(2, 3), **PRIORS)
def test_dbn_with_rows_on_one_page_each(
    goes_on: float, start: float, n: int, mean: float, strength: float
) -> None:
    model = DBN.with_values(attraction=start, satisfaction=1 - start, continuation=goes_on)
    priors = {"attraction": prior_of(mean, strength), "satisfaction": prior_of(1 - mean, 3.0)}
    pages = all_clicks(n)
    pages[1:2] = []  # so that nothing cancels
    compared(model, dbn_page, pages, priors)


@many(12)
@given(
    goes_on=st.tuples(*[st.floats(0.1, 0.9)] * 3),
    start=st.floats(0.1, 0.9),
    n=st.integers(2, 3),
    **PRIORS,
)
def test_ccm_with_rows_that_are_flipped_twice(
    goes_on: tuple[float, ...], start: float, n: int, mean: float, strength: float
) -> None:
    """Means of p^2 and p (1 - p) stand for all that a twice flipped row may be."""
    names = [f"continuation_after_{name}" for name in ("skip", "click", "satisfaction")]
    model = CCM.with_values(attraction=start, **dict(zip(names, goes_on, strict=True)))
    compared(model, ccm_page, all_clicks(n), {"attraction": prior_of(mean, strength)})
