"""Intervals of propensities beside those of a Gibbs sampler, which draws all rows together."""

from __future__ import annotations

import numpy as np
import pytest

from gecasmo import DBN, PBM, UBM, ClickLog, ClickModel, Gibbs, Table, read_log
from gecasmo.errors import ConvergenceWarning, GecasmoWarning, without
from gecasmo.judgments import propensities

LIKED = {("q", d): p for d, p in enumerate((0.1, 0.9, 0.4, 0.3, 0.7, 0.5))}
# Examination is anchored low on the page, so that the scale of all the rest is uncertain.
_SEEN = {1: 0.6, 2: 0.45, 3: 0.34, 4: 0.22}
_SEEN_AFTER = {(r, c): (0.8, 0.5, 0.35, 0.3)[r - c - 1] for r in range(1, 5) for c in range(r)}
_PLAIN = {"pseudo_counts": (1.0, 1.0)}
_TRUTHS = {
    "PBM": (
        PBM.with_values(examination=_SEEN, attraction=LIKED),
        lambda: PBM(examination=Table(fixed={4: 0.22}), attraction=Table(**_PLAIN)),
    ),
    "UBM": (
        UBM.with_values(examination=_SEEN_AFTER, attraction=LIKED),
        lambda: UBM(examination=Table(fixed={(4, 0): 0.3}), attraction=Table(**_PLAIN)),
    ),
    "DBN": (
        DBN.with_values(attraction=LIKED, satisfaction=0.6, continuation=0.8),
        lambda: DBN(attraction=Table(**_PLAIN), satisfaction=Table(**_PLAIN)),
    ),
}


@pytest.mark.parametrize("name", _TRUTHS)
def test_intervals_are_about_those_of_exact_draws(name: str) -> None:
    """Drawn one by one, coins that share a scale lose it, and rows
    do not make up for coins: relative propensities then are far less certain than they are."""
    truth, make = _TRUTHS[name]
    log = truth.simulate(_pages(1500), seed=1)
    fitted = make().fit(log, progress=False)
    with without(ConvergenceWarning):  # of what nobody asks about here
        exact = make().fit(log, Gibbs(draws=400, warmup=200, chains=2, seed=1), progress=False)
    alone = fitted.copy()
    alone.errors_ = None

    def widths(model: ClickModel) -> np.ndarray:
        frame = propensities(model, log, draws=400)
        return (frame["propensity_high"] - frame["propensity_low"]).to_numpy()[1:]

    wanted = widths(exact)
    ratio, ratio_alone = widths(fitted) / wanted, widths(alone) / wanted
    assert ((ratio > 0.75) & (ratio < 1.3)).all(), ratio
    if name != "DBN":  # which has no coins that could lose their scale
        assert ratio_alone[0] > 1.6, ratio_alone
    if name == "PBM":  # without a log
        own, others = (propensities(model) for model in (fitted, alone))
        assert (own["propensity_high"] - own["propensity_low"])[2] < 0.8 * (
            others["propensity_high"] - others["propensity_low"]
        )[2]


def _pages(n: int) -> ClickLog:
    rng = np.random.default_rng(0)
    return read_log(
        {
            "session": np.repeat(np.arange(n), 4),
            "query": ["q"] * (n * 4),
            "doc": np.concatenate([rng.permutation(6)[:4] for _ in range(n)]),
            "rank": np.tile(np.arange(1, 5), n),
        },
        click=None,
    )


def test_what_pages_leave_open_does_not_come_apart() -> None:
    """Of PBM nobody knows the scale of examination, which is the same at all ranks."""
    rng = np.random.default_rng(3)
    rows = [(query, doc) for query in range(30) for doc in range(20)]
    attraction = rng.beta(1.2, 4, (30, 20))
    seen = {rank: 0.9 * 0.85 ** (rank - 1) for rank in range(1, 11)}
    liked = dict(zip(rows, attraction.ravel().tolist(), strict=True))
    truth = PBM.with_values(attraction=liked, examination=seen)
    query = rng.integers(30, size=30_000)
    belief = np.log(attraction / (1 - attraction)) + rng.normal(0, 0.7, attraction.shape)
    shown = np.argsort(-(belief[query] + rng.gumbel(0, 0.7, (30_000, 20))), axis=1)[:, :10]
    page = {
        "session": np.repeat(np.arange(30_000), 10),
        "query": np.repeat(query, 10),
        "doc": shown.ravel(),
        "rank": np.tile(np.arange(1, 11), 30_000),
    }
    log = truth.simulate(page, seed=3)
    with pytest.warns(GecasmoWarning, match="read the column propensity"):
        frame = propensities(PBM().fit(log, progress=False), log)
    relative = np.array(list(seen.values())) / 0.9
    low, high = frame["propensity_low"].to_numpy(), frame["propensity_high"].to_numpy()
    assert ((low <= relative + 1e-9) & (relative <= high + 1e-9)).mean() > 0.7
    assert (high - low < 0.15).all()
