"""How relevant CLAX finds pairs: its DBN and UBM trained on every log of a folder.

Run by the Python of CLAX's own environment, on logs that `judged.py` wrote:

    ENV/bin/python benchmarks/clax_judged.py FOLDER

For LOG.npz there is then LOG.clax.npz with the relevance of every pair by DBN and by UBM. Each is
trained with two settings, those of `rivals.py`, on nine tenths of the pages; the other tenth says
which is better and after how many epochs to stop; then that trains on all pages.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optax
from clax import Trainer
from clax.metrics import LogLikelihood
from flax import nnx
from flax.training.early_stopping import EarlyStopping
from numpy.typing import NDArray

from clax_tables import make_model

MODELS = ("DBN", "UBM")
SETTINGS = {"small batches": (64, 0.01), "large steps": (512, 0.03)}  # pages a batch, rate
MOST_EPOCHS = 60
PATIENCE = 2
VALIDATION = 0.1
PAIRS_AT_A_TIME = 2_000  # the number of pairs is rounded up to this: what was compiled fits again
SEED = 42


class Pages:
    """A loader for CLAX: pages in the order of the log; a pair of -1 is an empty place."""

    def __init__(
        self, pairs: NDArray[np.int32], clicks: NDArray[np.bool_], batch_size: int
    ) -> None:
        self.pairs, self.mask = pairs + 1, pairs >= 0  # 0 is CLAX's padding
        self.clicks = clicks.astype(np.float32)
        self.batch_size = min(batch_size, len(pairs))

    def __len__(self) -> int:
        return -(-len(self.pairs) // self.batch_size)

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        for first in range(0, len(self.pairs), self.batch_size):
            part = slice(first, first + self.batch_size)
            places = np.arange(1, self.pairs.shape[1] + 1, dtype=np.int32)
            yield {
                "query_doc_ids": self.pairs[part],
                "clicks": self.clicks[part],
                "positions": np.broadcast_to(places, self.pairs[part].shape),
                "mask": self.mask[part],
            }


class Contestant:
    """One model with one setting; CLAX compiles for each trainer, so it keeps one."""

    def __init__(self, name: str, setting: str) -> None:
        self.name = name
        self.batch_size, rate = SETTINGS[setting]
        self.trainer = Trainer(optax.adamw(rate), MOST_EPOCHS)

    def train(
        self,
        pairs: NDArray[np.int32],
        clicks: NDArray[np.bool_],
        n_train: int,
        n_pairs: int,
        n_epochs: int | None = None,
    ) -> tuple[nnx.Module, list[float]]:
        """The model after the first `n_train` pages, and its scores on the others by epoch."""
        model = make_model(self.name, n_pairs, pairs.shape[1], SEED)
        self.trainer.epochs = n_epochs or MOST_EPOCHS
        patience = MOST_EPOCHS if n_epochs else PATIENCE
        self.trainer.early_stopping = EarlyStopping(patience=patience, min_delta=1e-5)
        train = Pages(pairs[:n_train], clicks[:n_train], self.batch_size)
        checked = Pages(pairs[n_train:], clicks[n_train:], len(pairs))
        table = self.trainer.train(model, train, checked, {"ll": LogLikelihood()})
        return model, table["val_ll"].to_numpy(float).tolist()


def relevance(
    contestants: list[Contestant], pairs: NDArray[np.int32], clicks: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Of every pair, by the better contestant trained on all pages."""
    n_kept = round((1 - VALIDATION) * len(pairs))
    n_pairs = -(-int(pairs.max() + 1) // PAIRS_AT_A_TIME) * PAIRS_AT_A_TIME
    tried = [one.train(pairs, clicks, n_kept, n_pairs)[1] for one in contestants]
    best = int(np.argmax([max(scores) for scores in tried]))
    n_epochs = int(np.argmax(tried[best])) + 1
    # It wants pages to look at, so a tenth is there twice; what it sees of them changes nothing.
    again = np.concatenate([pairs, pairs[n_kept:]]), np.concatenate([clicks, clicks[n_kept:]])
    model, _ = contestants[best].train(*again, len(pairs), n_pairs, n_epochs)
    every = np.arange(1, pairs.max() + 2, dtype=np.int32)[None]
    logarithm = np.asarray(model.predict_relevance({"query_doc_ids": every}), np.float64)
    found: NDArray[np.float64] = np.exp(logarithm.reshape(-1))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    contestants = {name: [Contestant(name, one) for one in SETTINGS] for name in MODELS}
    for path in sorted(folder.glob("*.log.npz")):
        with np.load(path) as file:
            pairs, clicks = file["pairs"], file["clicks"]
        found = {name: relevance(ones, pairs, clicks) for name, ones in contestants.items()}
        np.savez(folder / path.name.replace(".log.npz", ".clax.npz"), **found)


if __name__ == "__main__":
    main()
