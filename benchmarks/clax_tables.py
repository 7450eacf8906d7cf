# ruff: noqa: E402 (the imports are timed)
"""DBN and UBM with a parameter for every pair, trained by CLAX in minibatches.

Run by the Python of CLAX's own environment, on a log that `rivals.py` wrote:

    ENV/bin/python benchmarks/clax_tables.py DBN LOG.npz OUT.json [--lr X --batch-size N ...]

CLAX is used as in its examples: its models with their default parameters, `Trainer`, AdamW,
batches in the order of the log. Two differences, both in its favour: batches are cut from arrays
in memory, which is faster than its loaders that collate page by page in Python, and seconds of
training contain neither compiling nor the checks, of which there may be several an epoch. With
`--validation 0.1` it is judged by a tenth of the training pages, which it does not see, and stops
by itself; without, it runs for so many epochs on all training pages and is judged by the others.
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
from clax import DynamicBayesianNetwork, Trainer, UserBrowsingModel
from clax.metrics import LogLikelihood
from flax import nnx
from flax.training.early_stopping import EarlyStopping
from numpy.typing import NDArray

from clax_clock import Clock

IMPORT_SECONDS = time.perf_counter() - _BEGAN
PACKAGES = ("clax-models", "jax", "jaxlib", "flax", "optax", "numpy")
HELD_OUT_BATCH = 10_000


class Pages:
    """A loader for CLAX: each time it is iterated, `begin()` and the next `n_batches`."""

    def __init__(
        self,
        docs: NDArray[np.int32],
        clicks: NDArray[np.uint8],
        batch_size: int,
        checks: int,
        begin: Callable[[], None],
    ) -> None:
        self.docs, self.clicks, self.begin = docs, clicks.astype(np.float32), begin
        n_pages, n_ranks = docs.shape
        self.positions = np.tile(np.arange(1, n_ranks + 1, dtype=np.int32), (batch_size, 1))
        self.mask = np.ones((batch_size, n_ranks), bool)
        firsts = range(0, n_pages, batch_size)
        self.parts = [slice(first, min(first + batch_size, n_pages)) for first in firsts]
        self.n_batches, self.n_done = max(1, len(self.parts) // checks), 0

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        self.begin()
        for _ in range(self.n_batches):
            part = self.parts[self.n_done % len(self.parts)]
            self.n_done += 1
            size = part.stop - part.start
            yield {
                "query_doc_ids": self.docs[part],
                "clicks": self.clicks[part],
                "positions": self.positions[:size],
                "mask": self.mask[:size],
            }


def main() -> None:
    options = _parse()
    after_import = peak_megabytes()
    with np.load(options.log) as file:
        log = {name: file[name] for name in ("docs", "clicks", "n_train", "n_pairs")}
    figures = train_model(log, options)
    figures |= {"import_megabytes": after_import, "peak_megabytes": peak_megabytes()}
    options.out.write_text(json.dumps(figures, indent=1) + "\n")


def train_model(log: dict[str, NDArray[Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Train on the first pages, look at the next; with validation both are training pages."""
    n_train, n_ranks = int(log["n_train"]), log["docs"].shape[1]
    n_seen = n_train
    if options.validation:
        n_train = round((1 - options.validation) * n_train)
    else:
        n_seen = len(log["docs"])
    docs = log["docs"] + 1  # 0 is CLAX's padding
    model = make_model(options.model, int(log["n_pairs"]), n_ranks, options.seed)
    clock = Clock()

    def finish_training() -> None:
        jax.block_until_ready(nnx.state(model))
        clock.stop()

    train = Pages(
        *[docs[:n_train], log["clicks"][:n_train], options.batch_size, options.checks],
        clock.start,
    )
    checked = slice(n_train, n_seen)
    held_out = Pages(docs[checked], log["clicks"][checked], HELD_OUT_BATCH, 1, finish_training)
    epochs_per_check = len(train) / len(train.parts)
    n_checks = max(1, round(options.epochs / epochs_per_check))
    patience = round(options.patience / epochs_per_check) if options.validation else n_checks
    stopping = EarlyStopping(patience=patience, min_delta=1e-5)
    trainer = Trainer(optax.adamw(options.lr), n_checks, stopping)
    began = time.perf_counter()
    table = trainer.train(model, train, held_out, {"ll": LogLikelihood()})
    everything = time.perf_counter() - began

    return {
        "versions": {name: version(name) for name in PACKAGES},
        "options": {name: value for name, value in vars(options).items() if name not in _PATHS},
        "n_pages": n_train,
        "import_seconds": IMPORT_SECONDS,
        "compile_seconds": sum(clock.compile_laps),
        "call_seconds": everything,
        "seconds_per_epoch": float(np.median(clock.laps)) / epochs_per_check,
        "epochs": [(number + 1) * epochs_per_check for number in range(len(clock.laps))],
        "seconds": np.cumsum(clock.laps).tolist(),
        "held_out": (n_ranks * table["val_ll"].to_numpy(float)).tolist(),
    }


def make_model(name: str, n_pairs: int, n_ranks: int, seed: int) -> nnx.Module:
    """The model with CLAX's default parameters: one of its own for every pair."""
    if name == "DBN":
        return DynamicBayesianNetwork(query_doc_pairs=n_pairs, rngs=nnx.Rngs(seed))
    return UserBrowsingModel(positions=n_ranks, query_doc_pairs=n_pairs, rngs=nnx.Rngs(seed))


def peak_megabytes() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10


_PATHS = ("log", "out")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=("DBN", "UBM"))
    parser.add_argument("log", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=float, default=100, help="at most")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of AdamW")
    parser.add_argument("--checks", type=int, default=1, help="held-out checks an epoch")
    parser.add_argument("--patience", type=float, default=2, help="epochs without a gain, then end")
    parser.add_argument("--validation", type=float, default=0, help="share of training pages")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


if __name__ == "__main__":
    main()
