"""Moves along ridges: what it is to slide, where ridges are found, and that chains get along."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from gecasmo import DBN, PBM, Gibbs, Table, read_log
from gecasmo.errors import ClickLogWarning
from gecasmo.estimation import gibbs
from gecasmo.kernels.library import compiling
from gecasmo.kernels.static.row_sweeps import n_chunks_of, sweep
from gecasmo.kernels.static.slide_steps import slide, slide_rows
from gecasmo.kernels.threads import using_threads
from gecasmo.simulation.simulated import demo_log

NONE = np.zeros(0, bool)
SAME = np.ones(2)


def slid(weights: Any, side: int, by: float, base: Any, *priors: Any, is_given: Any = NONE) -> Any:
    before, after = priors or (SAME, SAME)
    moved, sums = np.empty_like(weights), np.zeros(n_chunks_of(weights.shape[1]))
    sweep(
        slide_rows,
        weights.shape[1],
        [side, by, base, before, after, is_given, weights, moved, sums],
    )
    return moved, sums


def rows(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    p = rng.beta(0.4, 0.6, n).clip(1e-12, 1 - 1e-12)
    return np.stack([1 - p, p]), rng.gamma(1.0, 3.0, (2, n)) + 0.02


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("by", [-1.5, -0.01, 0.3, 1.0])
def test_sliding_moves_logits_of_a_power(side: int, by: float) -> None:
    weights, base = rows(500, 1)
    moved, _ = slid(weights, side, by, base)
    p, then = weights[side], moved[side]
    middling = (p > 0.4) & (p < 0.999)
    wanted = expit(logit(p[middling] ** 32) + 32 * by) ** (1 / 32)
    np.testing.assert_allclose(then[middling], wanted, rtol=1e-9)
    small = np.maximum(p, p * np.exp(by)) < 0.3
    np.testing.assert_allclose(then[small], p[small] * np.exp(by), rtol=1e-9)
    np.testing.assert_allclose(moved.sum(axis=0), 1.0, atol=1e-14)
    back, _ = slid(moved, side, -by, base)
    np.testing.assert_allclose(back, weights, rtol=1e-7)
    twice, _ = slid(slid(weights, side, by / 3, base)[0], side, 2 * by / 3, base)
    np.testing.assert_allclose(twice, moved, rtol=1e-8)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("priors", [(SAME, SAME), (np.array([0.7, 3.0]), np.array([0.9, 0.4]))])
def test_the_gain_is_that_of_density_and_room(side: int, priors: Any) -> None:
    weights, base = rows(300, 2)
    weights = weights.clip(1e-6, 1 - 1e-6)
    weights /= weights.sum(axis=0)
    is_given = np.arange(300) % 7 == 0
    moved, sums = slid(weights, side, 0.25, base, *priors, is_given=is_given)
    assert (moved[:, is_given] == weights[:, is_given]).all()
    total = 0.0
    for (odds, scale), at, sign in zip(priors, (weights, moved), (-1, 1), strict=True):
        mean = base[0] * odds / (base[0] * odds + base[1])
        strength = scale * base.sum(axis=0)
        a, b = np.maximum([strength * mean, strength * (1 - mean)], 0.02)
        total += sign * stats.beta(a, b).logpdf(at[1])[~is_given].sum()
    # Room by a difference, on the scale of logits, where it is exact for p near 0 and 1.
    ends = []
    for step in (1e-5, -1e-5):
        x = logit(weights[side]) + step
        p, q = expit(x), expit(-x)
        ends.append([slide(a, b, np.exp(0.25), np.exp(8.0))[:2] for a, b in zip(p, q, strict=True)])
    up, down = (np.log([a / b for a, b in end]) for end in ends)
    room = np.log((up - down) / 2e-5)
    for at, sign in ((weights, -1), (moved, 1)):
        room = room + sign * np.log(at[0] * at[1])
    assert np.isclose(sums.sum(), total + room[~is_given].sum(), rtol=1e-6, atol=1e-4)


def test_same_bits_on_any_number_of_threads_and_without_compiling() -> None:
    weights, base = rows(5_000, 3)
    priors = np.array([0.7, 3.0]), np.array([0.9, 0.4])
    with using_threads(1):
        one = slid(weights, 1, 0.2, base, *priors)
    with using_threads(3):
        three = slid(weights, 1, 0.2, base, *priors)
    assert all((a == b).all() for a, b in zip(one, three, strict=True))
    token = compiling.set(False)
    try:
        plain = slid(weights[:, :200], 1, 0.2, base[:, :200], *priors)
    finally:
        compiling.reset(token)
    np.testing.assert_allclose(plain[0], one[0][:, :200], rtol=1e-12)


LOG, _ = demo_log(1500, 3)


def walks_of(monkeypatch: pytest.MonkeyPatch, model: Any, method: Gibbs) -> Any:
    """A fit, and along which ridges its first chain walked."""
    found: list[Any] = []
    concluded = gibbs._Chains._concluded

    def watched(self: Any, interrupted: bool) -> Any:
        names = {rows.number: rows.coin.name for rows in self.rows}
        for walk in self.chains[0].walks:
            found.append({names[k]: (side, length) for k, side, length in walk.ridge.slides})
        return concluded(self, interrupted)

    monkeypatch.setattr(gibbs._Chains, "_concluded", watched)
    return model.fit(LOG, method), found


@pytest.mark.filterwarnings("ignore:The chains of Gibbs")
def test_a_ridge_is_found_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    short = Gibbs(draws=2, warmup=100, chains=1)
    _, found = walks_of(monkeypatch, PBM(), short)
    (ridge,) = found
    # Examination up, attraction down by as much, and no click changes.
    (one, up), (other, down) = ridge["examination"], ridge["attraction"]
    assert (one, other) == (1, 1)
    assert up / down == pytest.approx(-1, abs=0.15)
    # Where examination of the first rank is given, there is none; nor does DBN have one.
    held = PBM(examination=Table(pseudo_counts=(1, 1), fixed={1: 1.0}))
    for model in (held, DBN()):
        _, found = walks_of(monkeypatch, model, short)
        assert not found


@pytest.mark.filterwarnings("ignore:The chains of Gibbs")
def test_chains_walk_along_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In as many sweeps chains get farther along the ridge than without moves: by 1.7 to 2.6 times
    in square on logs of this kind. Independent draws are too few to be counted well."""
    with pytest.warns(ClickLogWarning, match="guessed"):
        log = read_log("examples/shop.csv.gz").take(np.arange(1_500))
    method = Gibbs(draws=600, warmup=300, chains=2)
    walked = PBM().fit(log, method).draws("examination")
    monkeypatch.setattr(gibbs, "find_ridges", lambda *given: [])
    stuck = PBM().fit(log, method).draws("examination")
    places = [np.log(draws).mean(axis=2) for draws in (walked, stuck)]  # how much is examined
    farther, far = (np.square(at[:, 6:] - at[:, :-6]).mean() for at in places)
    assert farther > 1.3 * far
