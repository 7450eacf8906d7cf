"""Very long pages, very small numbers, and other sizes that nobody asks for until they do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gecasmo import DBN, EM, PBM, SDBN, UBM, ClickModel, Parameter, flip, read_log
from oracle.two_rate import TwoRate, dbn_counts
from strategies.cases import make_plain
from strategies.checks import close_to

LONG = 10_000


def long_log(clicks: np.ndarray, docs: np.ndarray | None = None) -> Any:
    n = len(clicks)
    return read_log(
        {
            "session": np.zeros(n, int),
            "query": np.zeros(n, int),
            "doc": np.arange(n) if docs is None else docs,
            "rank": np.arange(1, n + 1),
            "click": clicks,
        }
    )


def attractions(n: int = LONG) -> np.ndarray:
    return np.random.default_rng(3).uniform(0.05, 0.6, n)


def by_pair(values: np.ndarray) -> dict[Any, float]:
    return {(0, doc): float(value) for doc, value in enumerate(values)}


def counted(frame: Any) -> np.ndarray:
    """Heads and tails in the order of documents."""
    ordered = frame.sort("doc") if "doc" in frame.columns else frame
    return ordered.select("heads", "tails").to_numpy()


@pytest.mark.parametrize("last_click", [8_999, 0, 9_999, None])
def test_dbn_on_a_page_of_ten_thousand(last_click: int | None) -> None:
    alpha, sigma, gamma = attractions(), attractions()[::-1].copy(), 0.97
    clicks = np.zeros(LONG, bool)
    if last_click is not None:
        clicks[: last_click + 1] = (
            np.random.default_rng(4).random(last_click + 1) < alpha[: last_click + 1]
        )
        clicks[last_click] = True
    model = DBN.with_values(
        attraction=by_pair(alpha), satisfaction=by_pair(sigma), continuation=gamma
    )
    log = long_log(clicks)
    closed = TwoRate(alpha, [gamma] * LONG, gamma * (1 - sigma), clicks)
    close_to(model.log_likelihood(log)[0], closed.log_likelihood())
    close_to(model.predict_clicks(log), closed.marginal())
    close_to(model.predict_conditional_clicks(log), closed.conditional())
    close_to(model.posterior(log)["reached"].to_numpy(), closed.examination(), 1e-9)
    counts = model.expected_counts(log)
    satisfied, continued = dbn_counts(closed, sigma, gamma)
    close_to(counted(counts["attraction"]), closed.attraction_counts(), 1e-9)
    close_to(counted(counts["satisfaction"]), satisfied, 1e-9)
    close_to(counted(counts["continuation"])[0], continued, 1e-9)
    fitted = DBN().fit(log, EM(3, tol=0, accelerate=False))
    assert np.isfinite(fitted.history["objective"].to_numpy()).all()


def test_sdbn_without_a_click_on_a_page_of_ten_thousand() -> None:
    alpha = attractions()
    model = SDBN.with_values(attraction=by_pair(alpha), satisfaction=0.4)
    log = long_log(np.zeros(LONG, bool))
    close_to(model.log_likelihood(log)[0], np.log1p(-alpha).sum())
    counts = counted(model.expected_counts(log)["attraction"])
    close_to(counts, np.column_stack([np.zeros(LONG), np.ones(LONG)]))


@pytest.mark.parametrize("name", ["PBM", "UBM"])
def test_models_without_a_chain_on_a_page_of_ten_thousand(name: str) -> None:
    n = LONG if name == "PBM" else 2_000  # the marginal of UBM is quadratic
    alpha = attractions(n)
    clicks = np.random.default_rng(5).random(n) < 0.1
    log = long_log(clicks)
    gamma = 0.3
    model = (PBM if name == "PBM" else UBM).with_values(
        examination=gamma, attraction=by_pair(alpha)
    )
    seen = gamma * alpha
    close_to(model.log_likelihood(log)[0], np.log(np.where(clicks, seen, 1 - seen)).sum())
    close_to(model.predict_clicks(log), seen)
    counts = counted(model.expected_counts(log, augmentation="full")["attraction"])
    heads = np.where(clicks, 1.0, alpha * (1 - gamma) / (1 - seen))
    close_to(counts, np.column_stack([heads, 1 - heads]))


def test_ubm_likelihood_on_a_page_of_ten_thousand() -> None:
    alpha = attractions()
    clicks = np.random.default_rng(6).random(LONG) < 0.05
    log = long_log(clicks)
    model = UBM.with_values(examination=0.5, attraction=by_pair(alpha))
    close_to(model.log_likelihood(log)[0], np.log(np.where(clicks, alpha / 2, 1 - alpha / 2)).sum())
    fitted = UBM().fit(log, EM(2, tol=0, accelerate=False))
    assert np.isfinite(fitted.history["objective"].to_numpy()).all()


class Classes(ClickModel):
    """Two kinds of users with click rates of their own."""

    kind = Parameter()
    rate = Parameter("doc")
    other_rate = Parameter("doc")

    def start(self, user: Any) -> None:
        user.kind = flip(self.kind)

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.rate if user.kind else self.other_rate):
            user.click()


@pytest.mark.parametrize("first_rate", [0.0, 0.5])
def test_one_class_may_explain_a_long_page_immensely_better(first_rate: float) -> None:
    """Even if it is impossible, or hopeless, from the first result on."""
    n = 3_000
    clicks = np.zeros(n, bool)
    clicks[0] = True
    docs = np.minimum(np.arange(n), 1)
    model = make_plain(
        Classes.with_values(kind=0.5, rate={0: first_rate, 1: 0.01}, other_rate={0: 0.9, 1: 0.7})
    )
    log = long_log(clicks, docs)
    one = math.log(0.5 * first_rate) + (n - 1) * math.log(0.99) if first_rate else -math.inf
    two = math.log(0.5 * 0.9) + (n - 1) * math.log(0.3)
    total = np.logaddexp(one, two)
    close_to(model.log_likelihood(log)[0], total)
    share = math.exp(one - total)
    for augmentation in ("minimal", "full"):
        counts = model.expected_counts(log, augmentation=augmentation)
        close_to(counts["kind"].select("heads", "tails").row(0), (share, 1 - share))
        rate = dict(zip(counts["rate"]["doc"], counts["rate"]["tails"], strict=True))
        close_to(rate[1], share * (n - 1))
    posterior = model.posterior(log)
    close_to(posterior["start_kind_heads"].to_numpy(), np.full(n, share))
    close_to(posterior["rate_flipped"].to_numpy(), np.full(n, share))
    assert model.decode(log)["start_kind"][0] == ("heads" if share > 0.5 else "tails")
    drawn = model.sample_stories(log, seed=0)["start_kind"][0]
    assert drawn == ("heads" if share > 0.5 else "tails")


@pytest.mark.parametrize("click", [False, True])
def test_a_page_of_one(click: bool) -> None:
    log = long_log(np.array([click]))
    model = DBN.with_values(attraction=0.3, satisfaction=0.4, continuation=0.8)
    close_to(model.log_likelihood(log), [math.log(0.3 if click else 0.7)])
    counts = model.expected_counts(log)
    assert counts["attraction"].row(0)[2:] == ((1.0, 0.0) if click else (0.0, 1.0))
    for coin in ("satisfaction", "continuation"):  # nothing can come of them any more
        assert counts[coin].select("heads", "tails").row(0) == (0.0, 0.0)


def test_a_page_without_a_click() -> None:
    log = long_log(np.zeros(3, bool))
    model = DBN.with_values(attraction=0.3, satisfaction=0.4, continuation=0.8)
    wanted = 0.7 * (0.2 + 0.8 * 0.7 * (0.2 + 0.8 * 0.7))
    close_to(model.log_likelihood(log), [math.log(wanted)])


@pytest.mark.parametrize("tiny", [1e-300, 1e-160])
def test_very_small_probabilities(tiny: float) -> None:
    clicks = np.array([True, True, True, False])
    log = long_log(clicks)
    model = DBN.with_values(attraction=0.5, satisfaction=0.25, continuation=tiny)
    closed = TwoRate([0.5] * 4, [tiny] * 4, [tiny * 0.75] * 4, clicks)
    close_to(model.log_likelihood(log)[0], closed.log_likelihood())
    counts = model.expected_counts(log)
    satisfied, continued = dbn_counts(closed, [0.25] * 4, tiny)
    close_to(counted(counts["satisfaction"]), satisfied)
    close_to(counted(counts["continuation"])[0], continued)
    rare = DBN.with_values(attraction=tiny, satisfaction=0.25, continuation=0.5)
    close_to(
        rare.log_likelihood(log)[0],
        TwoRate([tiny] * 4, [0.5] * 4, [0.375] * 4, clicks).log_likelihood(),
    )
    close_to(counted(rare.expected_counts(log)["attraction"])[:3], [[1, 0]] * 3)
    for one in (model, rare):
        close_to(one.posterior(log)["reached"].to_numpy()[:3], np.ones(3))
        assert one.decode(log)["continuation"].to_list()[:2] == ["heads", "heads"]
        assert one.sample_stories(log)["continuation"].to_list()[:2] == ["heads", "heads"]


@pytest.mark.parametrize(
    ("attraction", "satisfaction", "continuation", "clicks", "likelihood"),
    [
        (1.0, 0.0, 1.0, [1, 1, 1], 1.0),
        (0.0, 0.5, 0.5, [0, 0, 0], 1.0),
        (1.0, 1.0, 0.5, [1, 0, 0], 1.0),
        (0.5, 1.0, 1.0, [0, 1, 0], 0.25),
        (0.5, 0.0, 0.0, [1, 0, 0], 0.5),
    ],
)
def test_probabilities_of_zero_and_one(
    attraction: float, satisfaction: float, continuation: float, clicks: Any, likelihood: float
) -> None:
    log = long_log(np.array(clicks, bool))
    model = DBN.with_values(
        attraction=attraction, satisfaction=satisfaction, continuation=continuation
    )
    close_to(np.exp(model.log_likelihood(log)), [likelihood])
    for frame in model.expected_counts(log).values():
        assert np.isfinite(frame.select("heads", "tails").to_numpy()).all()


def test_the_same_document_all_over_a_page() -> None:
    clicks = np.array([False, True, False])
    log = long_log(clicks, np.zeros(3, int))
    model = DBN.with_values(attraction={(0, 0): 0.4}, satisfaction={(0, 0): 0.3}, continuation=0.9)
    closed = TwoRate([0.4] * 3, [0.9] * 3, [0.9 * 0.7] * 3, clicks)
    close_to(model.log_likelihood(log)[0], closed.log_likelihood())
    counts = model.expected_counts(log)
    satisfied, continued = dbn_counts(closed, [0.3] * 3, 0.9)
    close_to(counted(counts["attraction"])[0], np.sum(closed.attraction_counts(), axis=0))
    close_to(counted(counts["satisfaction"])[0], np.sum(satisfied, axis=0))
    close_to(counted(counts["continuation"])[0], continued)


def test_five_hundred_page_lengths_take_one_kernel() -> None:
    generator = np.random.default_rng(7)
    lengths = generator.permutation(np.arange(1, 501))
    sessions = np.repeat(np.arange(500), lengths)
    docs = generator.integers(0, 50, len(sessions))
    ranks = np.concatenate([np.arange(1, n + 1) for n in lengths])
    clicks = generator.random(len(sessions)) < 0.05
    alpha, sigma, gamma = attractions(50), attractions(100)[50:], 0.95
    log = read_log(
        {
            "session": sessions,
            "query": np.zeros(len(sessions), int),
            "doc": docs,
            "rank": ranks,
            "click": clicks,
        }
    )
    model = DBN.with_values(
        attraction=by_pair(alpha), satisfaction=by_pair(sigma), continuation=gamma
    )
    found = model.log_likelihood(log)
    wanted, total = [], np.zeros(2)
    for i in range(500):
        here = sessions == i
        page = TwoRate(
            alpha[docs[here]], [gamma] * lengths[i], gamma * (1 - sigma[docs[here]]), clicks[here]
        )
        wanted.append(page.log_likelihood())
        total += dbn_counts(page, sigma[docs[here]], gamma)[1]
    close_to(found, wanted)
    close_to(counted(model.expected_counts(log)["continuation"])[0], total, 1e-9)
    [library] = model._libraries.values()
    assert {kernel for kernel, *_ in library._kernels} <= {"filter", "e_step", "e_step_scaled"}
