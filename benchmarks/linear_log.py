"""A simulated log whose people judge results by features: the rows of DBN are logistic.

Pages of ten distinct results out of 100,000 items, popular items often (zipf); which item is
popular has nothing to do with its features. NumPy alone, so that a rival's environment can read
what is written here. As a program it writes such a log and says what the truth scores on it:

    python benchmarks/linear_log.py LOG.npz [--pages N --held-out N --seed N]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

N_RANKS = 10
N_ITEMS = 100_000
ZIPF_EXPONENT = 0.8  # at 1, one item would be on most pages
_CHUNK = 100_000


@dataclass(frozen=True)
class LinearWeights:
    """`sigmoid(features @ attraction + attraction_bias)`, and so on: all that DBN needs."""

    attraction: NDArray[np.float64]
    attraction_bias: float
    satisfaction: NDArray[np.float64]
    satisfaction_bias: float
    continuation: float

    def attraction_of(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        return _sigmoid(features.astype(float) @ self.attraction + self.attraction_bias)

    def satisfaction_of(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        return _sigmoid(features.astype(float) @ self.satisfaction + self.satisfaction_bias)


TRUTH = LinearWeights(
    attraction=np.array([0.8, -0.6, 0.5, 0.4, -0.3, 0.2, 0.0, 0.0]),
    attraction_bias=-1.5,
    satisfaction=np.array([-0.4, 0.3, 0.7, -0.2, 0.6, 0.5, 0.0, 0.0]),
    satisfaction_bias=-0.3,
    continuation=0.9,
)


@dataclass(frozen=True)
class LinearLog:
    """`item[page, rank - 1]` is a row of `features`; the last two features have no effect."""

    item: NDArray[np.int32]
    clicks: NDArray[np.bool_]
    features: NDArray[np.float32]
    weights: LinearWeights

    @property
    def n_pages(self) -> int:
        return len(self.item)

    def part(self, pages: slice) -> LinearLog:
        return replace(self, item=self.item[pages], clicks=self.clicks[pages])

    def split(self, n_held_out: int) -> tuple[LinearLog, LinearLog]:
        """The pages to learn from and the last `n_held_out`; pages are independent."""
        n_train = self.n_pages - n_held_out
        return self.part(slice(n_train)), self.part(slice(n_train, None))


def linear_log(n_pages: int, seed: int = 1) -> LinearLog:
    """Draw features (standard normal), pages and clicks; the features depend on the seed alone."""
    features = np.random.default_rng([seed, 0]).standard_normal(
        (N_ITEMS, len(TRUTH.attraction)), np.float32
    )
    rng = np.random.default_rng([seed, 1, n_pages])
    item = _draw_pages(rng, n_pages)
    return LinearLog(item, _draw_clicks(rng, item, features), features, TRUTH)


def save_npz(log: LinearLog, n_held_out: int, path: Path) -> None:
    """The arrays that `clax_linear.py` reads."""
    train, held_out = log.split(n_held_out)
    np.savez(
        path,
        item=train.item,
        clicks=train.clicks,
        held_out_item=held_out.item,
        held_out_clicks=held_out.clicks,
        features=log.features,
    )


def log_likelihood(log: LinearLog, weights: LinearWeights) -> float:
    """The mean per page of the sum over ranks of log P(click or skip | clicks above)."""
    total = 0.0
    attraction = weights.attraction_of(log.features)
    satisfaction = weights.satisfaction_of(log.features)
    for first in range(0, log.n_pages, _CHUNK):
        item, clicks = log.item[first : first + _CHUNK], log.clicks[first : first + _CHUNK]
        examined = np.ones(len(item))
        for rank in range(N_RANKS):
            attracted, is_clicked = attraction[item[:, rank]], clicks[:, rank]
            clicked = examined * attracted
            total += np.log(np.where(is_clicked, clicked, 1 - clicked)).sum()
            examined = weights.continuation * np.where(
                is_clicked,
                1 - satisfaction[item[:, rank]],
                examined * (1 - attracted) / (1 - clicked),
            )
    return total / log.n_pages


def _draw_pages(rng: np.random.Generator, n_pages: int) -> NDArray[np.int32]:
    """Ten items a page; what the page already shows further up is drawn again."""
    border = np.cumsum(np.arange(1, N_ITEMS + 1, dtype=float) ** -ZIPF_EXPONENT)
    border /= border[-1]
    item = np.searchsorted(border, rng.random((n_pages, N_RANKS)), "right").astype(np.int32)
    pages = np.arange(n_pages)
    while len(pages):
        shown = item[pages]
        is_repeated = np.zeros(shown.shape, bool)
        for rank in range(1, N_RANKS):
            is_repeated[:, rank] = (shown[:, :rank] == shown[:, rank, None]).any(axis=1)
        shown[is_repeated] = np.searchsorted(border, rng.random(is_repeated.sum()), "right")
        item[pages] = shown
        pages = pages[is_repeated.any(axis=1)]
    return item


def _draw_clicks(
    rng: np.random.Generator, item: NDArray[np.int32], features: NDArray[np.float32]
) -> NDArray[np.bool_]:
    attraction, satisfaction = TRUTH.attraction_of(features), TRUTH.satisfaction_of(features)
    n_pages = len(item)
    clicks = np.zeros((n_pages, N_RANKS), bool)
    is_there = np.ones(n_pages, bool)
    for rank in range(N_RANKS):
        shown = item[:, rank]
        is_clicked = is_there & (rng.random(n_pages) < attraction[shown])
        is_satisfied = is_clicked & (rng.random(n_pages) < satisfaction[shown])
        clicks[:, rank] = is_clicked
        is_there &= ~is_satisfied & (rng.random(n_pages) < TRUTH.continuation)
    return clicks


def _sigmoid(logit: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-logit))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--pages", type=int, default=1_000_000, help="to learn from (1,000,000)")
    parser.add_argument("--held-out", type=int, default=100_000, help="further pages (100,000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    log = linear_log(options.pages + options.held_out, options.seed)
    save_npz(log, options.held_out, options.path)
    for name, part in zip(("train", "held out"), log.split(options.held_out), strict=True):
        print(
            f"{name}: {part.n_pages:,} pages, {part.clicks.sum(1).mean():.3f} clicks a page, "
            f"{log_likelihood(part, TRUTH):.6f} log-likelihood a page of the truth"
        )


if __name__ == "__main__":
    main()
