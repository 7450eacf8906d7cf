# ruff: noqa: E402 (the imports are timed)
"""DBN with logistic attraction and satisfaction, trained by CLAX in minibatches.

Run by the Python of an environment of CLAX's own, on a log that `linear_log.py` wrote:

    ENV/bin/pip install clax-models==0.1.1 jax==0.7.2 jaxlib==0.7.2 flax==0.11.2 optax==0.2.8
    ENV/bin/python benchmarks/clax_linear.py LOG.npz OUT.json [--epochs N --batch-size N --lr X]

CLAX is used as in its examples: `Trainer`, AdamW, batches in the order of the log. Differences:
batches are cut from arrays in memory, which is faster than its own loaders that collate page by
page in Python; and no LayerNorm of the features, which would make it another model. The pages
that do not fill the last batch are left out. Seconds of training contain neither compiling nor
the checks on held-out pages. A run that stopped too early is close to its own best: for the time
to a limit, give the limit of a long run with `--limit`.
"""

from __future__ import annotations

import time

_BEGAN = time.perf_counter()

import argparse
import json
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from clax import DynamicBayesianNetwork, Trainer
from clax.metrics import LogLikelihood
from clax.parameters import LinearParameter, LinearParameterConfig
from flax import nnx
from flax.training.early_stopping import EarlyStopping
from numpy.typing import NDArray

from clax_clock import Clock

IMPORT_SECONDS = time.perf_counter() - _BEGAN
PACKAGES = ("clax-models", "jax", "jaxlib", "flax", "optax", "numpy")
TOLERANCES = (0.01, 0.001, 0.0001)
HELD_OUT_BATCH = 10_000


class Pages:
    """A loader for CLAX: each time it is iterated, `begin()` and the next `n_batches`."""

    def __init__(
        self,
        item: NDArray[np.int32],
        clicks: NDArray[np.bool_],
        features: NDArray[np.float32],
        batch_size: int,
        n_batches: int,
        begin: Callable[[], None],
    ) -> None:
        self.item, self.features, self.begin = item, features, begin
        self.clicks = clicks.astype(np.float32)
        self.mask = np.ones((batch_size, item.shape[1]), bool)
        self.n_batches, self.n_done = n_batches, 0

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        self.begin()
        batch_size = len(self.mask)
        for _ in range(self.n_batches):
            first = self.n_done % (len(self.item) // batch_size) * batch_size
            part = slice(first, first + batch_size)
            self.n_done += 1
            yield {
                "query_doc_features": self.features[self.item[part]],
                "clicks": self.clicks[part],
                "mask": self.mask,
            }


def main() -> None:
    options = _parse()
    with np.load(options.log) as file:
        figures = train_model(dict(file), options)
    options.out.write_text(json.dumps(figures, indent=1) + "\n")


def train_model(log: dict[str, NDArray[Any]], options: argparse.Namespace) -> dict[str, Any]:
    features, n_ranks = log["features"], log["item"].shape[1]
    steps_per_epoch = len(log["item"]) // options.batch_size
    steps_per_check = max(1, steps_per_epoch // options.checks)
    n_checks = max(1, round(options.epochs * steps_per_epoch / steps_per_check))

    model = make_model(features.shape[1], options.seed)
    clock = Clock()

    def finish_training() -> None:
        jax.block_until_ready(nnx.state(model))
        clock.stop()

    train = Pages(
        log["item"], log["clicks"], features, options.batch_size, steps_per_check, clock.start
    )
    n_held_out = len(log["held_out_item"])
    batch_size = min(HELD_OUT_BATCH, n_held_out)
    if n_held_out % batch_size:
        raise SystemExit(f"{n_held_out:,} held-out pages are no multiple of {batch_size:,}.")
    held_out = Pages(
        log["held_out_item"],
        log["held_out_clicks"],
        features,
        batch_size,
        n_held_out // batch_size,
        finish_training,
    )
    rate = options.lr
    if options.decay:
        rate = optax.cosine_decay_schedule(options.lr, n_checks * steps_per_check)
    trainer = Trainer(optax.adamw(rate), n_checks, EarlyStopping(patience=n_checks))
    table = trainer.train(model, train, held_out, {"ll": LogLikelihood()})

    scores: NDArray[np.float64] = n_ranks * table["val_ll"].to_numpy(float)
    seconds = np.cumsum(clock.laps)
    limit = float(scores.max()) if options.limit is None else options.limit
    return {
        "versions": {name: version(name) for name in PACKAGES},
        "options": {name: value for name, value in vars(options).items() if name not in _PATHS},
        "n_pages": len(log["item"]),
        "steps_per_epoch": steps_per_epoch,
        "import_seconds": IMPORT_SECONDS,
        "compile_seconds": sum(clock.compile_laps),
        "seconds_per_epoch": float(np.median(clock.laps)) / steps_per_check * steps_per_epoch,
        "epochs": [(i + 1) * steps_per_check / steps_per_epoch for i in range(n_checks)],
        "seconds": seconds.tolist(),
        "held_out_log_likelihood": scores.tolist(),
        "limit": limit,
        "seconds_to_within": {
            str(one): _time_to(limit - one, scores, seconds) for one in TOLERANCES
        },
        "weights": {
            "attraction": coefficients(model.attraction),
            "satisfaction": coefficients(model.satisfaction),
            "continuation": float(model.continuation.prob()[0]),
        },
    }


def make_model(n_features: int, seed: int) -> DynamicBayesianNetwork:
    """Attraction and satisfaction linear in the features of an item, one continuation for all."""
    linear = LinearParameterConfig("query_doc_features", n_features, input_norm=None)
    return DynamicBayesianNetwork(attraction=linear, satisfaction=linear, rngs=nnx.Rngs(seed))


def coefficients(parameter: LinearParameter) -> dict[str, Any]:
    linear = parameter.linear
    return {"weights": linear.kernel.value[:, 0].tolist(), "bias": float(linear.bias.value[0])}


_PATHS = ("log", "out")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=float, default=5)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of AdamW")
    parser.add_argument("--decay", action="store_true", help="let it fall to 0, as a cosine")
    parser.add_argument("--checks", type=int, default=1, help="held-out checks an epoch")
    parser.add_argument("--limit", type=float, help="log-likelihood to approach (the run's best)")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def _time_to(
    score: float, scores: NDArray[np.float64], seconds: NDArray[np.float64]
) -> float | None:
    """Seconds until the held-out pages score this much and never less again; None if never."""
    below = np.flatnonzero(scores < score)
    first = below[-1] + 1 if len(below) else 0
    return float(seconds[first]) if first < len(seconds) else None


if __name__ == "__main__":
    main()
