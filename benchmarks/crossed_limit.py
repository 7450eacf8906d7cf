"""What nobody could beat on crossed logs: a Bayesian who knows all but the effects.

    PYTHONPATH=. python -m benchmarks.crossed_limit --logs 2

He is told the intercept, the spreads of pairs, documents and queries, satisfaction and
continuation; he learns the effects from the log, and predicts by the mean attraction of each pair
under the exact posterior, which Hamiltonian Monte Carlo draws (leapfrog steps, step size tuned
before draws are kept). Forms have to learn all of that, so the difference is more than what they
leave on the table. Needs PyTorch, for derivatives. Figures go into results/crossed_limit.jsonl.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from benchmarks.crossed import CONTINUES, SATISFIES, SHOWN, WORLDS, crossed_log
from gecasmo import DBN, ClickLog

LIMITS = Path(__file__).parent / "results" / "crossed_limit.jsonl"
STEPS, WANTED = 12, 0.8
# Worlds in which the feature says nothing.
NAMES = [name for name, world in WORLDS.items() if world.get("slope", 0.5) == 0]


class Posterior:
    """The logarithm of the posterior of standardised effects, and what effects say of pairs."""

    def __init__(self, train: ClickLog, test: ClickLog, spreads: tuple[float, ...]) -> None:
        frame = train.to_frame()
        both = pl.concat([log.to_frame().select("query", "doc") for log in (train, test)])
        self.pairs = both.unique(maintain_order=True).with_row_index("pair")
        shown = frame.join(self.pairs, on=["query", "doc"], how="left", maintain_order="left")
        self.shown = torch.tensor(shown["pair"].to_numpy().astype(int).reshape(-1, SHOWN))
        self.click = torch.tensor(frame["click"].to_numpy().reshape(-1, SHOWN))
        self.query = torch.tensor(self.pairs["query"].to_numpy().astype(int))
        self.doc = torch.tensor(self.pairs["doc"].to_numpy().astype(int))
        self.spreads = spreads
        sizes = len(self.pairs), int(self.doc.max()) + 1, int(self.query.max()) + 1
        self.sizes, self.n = sizes, sum(sizes)

    def attraction(self, z: Any) -> Any:
        """Of each pair."""
        pair, doc, query = torch.split(z, self.sizes)
        of_pair, of_doc, of_query = self.spreads
        told = of_pair * pair + of_doc * doc[self.doc] + of_query * query[self.query]
        return torch.sigmoid(told - 1)

    def slope(self, z: Any) -> tuple[float, Any]:
        """The value at some effects, and its derivative."""
        z = z.detach().requires_grad_(True)
        attraction = self.attraction(z)[self.shown]
        stays = torch.ones(len(attraction), dtype=z.dtype)
        gone = torch.zeros_like(stays)
        value = -0.5 * (z**2).sum()
        goes_on = (1 - SATISFIES) * CONTINUES
        for rank in range(SHOWN):
            click, p = self.click[:, rank], attraction[:, rank]
            clicks, skips = stays * p, stays * (1 - p)
            stays = torch.where(click, clicks * goes_on, skips * CONTINUES)
            gone = torch.where(click, clicks * (1 - goes_on), gone + skips * (1 - CONTINUES))
            total = stays + gone
            value = value + torch.log(total).sum()
            stays, gone = stays / total, gone / total
        value.backward()
        return float(value.detach()), z.grad


def drawn_mean(
    slope: Callable[[Any], Any], told: Callable[[Any], Any], n: int, draws: int, seed: int
) -> tuple[Any, float]:
    """The mean of what is told of draws, a third as many before them left out; and the share of
    proposals that were taken."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    z = torch.zeros(n, dtype=torch.float64)
    value, rise = slope(z)
    size, warming, total, taken = 0.1, draws // 3, 0.0, 0
    for draw in range(warming + draws):
        speed = torch.randn(n, dtype=torch.float64)
        before = value - 0.5 * float((speed**2).sum())
        at, here, own = z, rise, size * rng.uniform(0.7, 1.3)
        for _ in range(STEPS):
            speed = speed + 0.5 * own * here
            at = at + own * speed
            reached, here = slope(at)
            speed = speed + 0.5 * own * here
        is_taken = np.log(rng.random()) < reached - 0.5 * float((speed**2).sum()) - before
        if is_taken:
            z, value, rise = at, reached, here
        if draw < warming:
            size *= float(np.exp(0.1 * (is_taken - WANTED)))
        else:
            total, taken = total + told(z).detach(), taken + is_taken
    return total / draws, taken / draws


def limit(name: str, seed: int, draws: int) -> dict[str, Any]:
    """Held-out log-likelihood a page on one log of a world."""
    began = time.process_time()
    torch.set_num_threads(1)
    train, test, _ = crossed_log(seed, **WORLDS[name])
    posterior = Posterior(train, test, WORLDS[name]["spreads"])
    mean, taken = drawn_mean(posterior.slope, posterior.attraction, posterior.n, draws, seed)
    rows = posterior.pairs.select("query", "doc").with_columns(probability=mean.numpy())
    model = DBN.with_values(attraction=rows, satisfaction=SATISFIES, continuation=CONTINUES)
    seconds = time.process_time() - began
    found = {"world": name, "seed": seed, "limit": model.score(test), "draws": draws}
    return found | {"taken": taken, "seconds": seconds}


def known_limits() -> list[dict[str, Any]]:
    """What was measured."""
    return [json.loads(line) for line in LIMITS.read_text().splitlines()] if LIMITS.exists() else []


def main() -> None:
    """Measure what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=2)
    parser.add_argument("--draws", type=int, default=600)
    options = parser.parse_args()
    there = {(one["world"], one["seed"]) for one in known_limits()}
    for seed in range(options.logs):
        for name in NAMES:
            if (name, seed) not in there:
                found = limit(name, seed, options.draws)
                with LIMITS.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                print(found, flush=True)


if __name__ == "__main__":
    main()
