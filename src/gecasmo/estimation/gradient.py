"""Gradient descent on the marginal likelihood, in minibatches of pages, with PyTorch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gecasmo.encoding import EncodedLog, Rows
from gecasmo.encoding.folds import N_BUCKETS
from gecasmo.errors import ConvergenceWarning, ImpossibleSessionError, ModelError, extra, tell
from gecasmo.estimation.coins import Coin, Evaluated, as_weights
from gecasmo.estimation.em import Progress, Record, Solution
from gecasmo.estimation.expectation import Expectation
from gecasmo.estimation.problem import Problem
from gecasmo.forms import FormState
from gecasmo.forms.networks import one_thread, width
from gecasmo.logs.runs import Integers, rows_of_runs

if TYPE_CHECKING:
    import torch

    from gecasmo.forms.trainable import Trainable

_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "adagrad": "Adagrad"}


@dataclass(frozen=True)
class Gradient:
    """Minibatch training of all forms at once; the E-step of a batch is its gradient.

    EM is exact and needs no learning rate; this is for large networks, whose M-step would be
    training anyway. The epoch that scores best is kept, not the last.

    Parameters
    ----------
    optimizer : str or callable
        "adam", "adamw", "adagrad", "sgd", or a function of parameters and `lr=`, such as
        `torch.optim.RMSprop`.
    lr : float
        The learning rate.
    epochs : int
        How often to go through the log.
    batch_size : int
        Pages of a batch.
    validation : float or ClickLog, optional
        Pages by which epochs are judged: a share of the sessions, which are then not trained on,
        or another log. By default the objective on the training pages.
    patience : int, optional
        Stop after so many epochs without a better one.
    augmentation : "minimal" or "full"
        As for `EM`; the gradient is the same.
    seed : int
        Seed of the order of pages, and of the share.
    """

    optimizer: Any = "adam"
    lr: float = 0.01
    epochs: int = 50
    batch_size: int = 256
    validation: Any = None
    patience: int | None = None
    augmentation: str = "minimal"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "patience"):
            value = getattr(self, name)
            if value is not None and (value != int(value) or value < 1):
                raise ModelError(f"Gradient({name}={value!r}): a whole number of at least one.")
        if not 0 < self.lr < math.inf:
            raise ModelError(f"Gradient(lr={self.lr!r}): a positive number is wanted.")
        if not callable(self.optimizer) and self.optimizer not in _OPTIMIZERS:
            raise ModelError(
                f"Gradient(optimizer={self.optimizer!r}): choose one of {', '.join(_OPTIMIZERS)} "
                "or give a function of parameters and lr."
            )
        if isinstance(self.validation, (int, float)) and not 0 < self.validation < 1:
            raise ModelError(
                f"Gradient(validation={self.validation!r}): a share between 0 and 1, or a ClickLog."
            )

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        """Maximise the objective of a problem."""
        extra("torch", "Gradient", "gecasmo[torch]")
        return _Descent(self, problem, progress).run()


def _trainable(coin: Coin, state: FormState) -> Trainable:
    """The form of a coin as something to train."""
    made: Trainable | None = coin.form.trainable(state, coin.rows)
    if made is None:
        raise ModelError(
            f"Gradient cannot train the form {coin.form!r} of '{coin.name}': it has no gradient. "
            "Use EM, or a Torch, Logistic, Sum or Table form."
        )
    return made


class _Descent:
    """One run of gradient descent."""

    def __init__(self, method: Gradient, problem: Problem, progress: Progress | None) -> None:
        self.method, self.problem, self.progress = method, problem, progress
        # Components of a mixture that start alike would never part.
        is_random = problem.is_exchangeable and problem.given_start is None
        states = problem.begin(np.random.default_rng(method.seed) if is_random else None)
        self.parts = [_trainable(problem.coins[n], states[n]) for n, *_ in problem.ties]
        self.part_of = {n: number for number, tie in enumerate(problem.ties) for n in tie}
        parts = map(problem.parts.part, problem.parts.numbers)
        encoded = [part.expectation.encoded for part in parts]
        self.longest = max(own.max_length for own in encoded)
        # By the weight of an average batch: by its own, pages beside a heavy one would count less.
        n_batches = sum(_n_batches(own, method.batch_size) for own in encoded)
        self.usual = max(sum(float(own.weight.sum()) for own in encoded) / n_batches, 1e-300)
        self.optimizer = self._optimizer()
        self.history: list[Record] = []
        self.n_evaluations = 0
        self.began = time.perf_counter()

    def run(self) -> Solution:
        from gecasmo.forms.networks import own_randomness

        # Dropout draws from PyTorch's own stream, which is put back afterwards.
        with own_randomness(self.method.seed, self._device()):
            return self._run()

    def _device(self) -> torch.device:
        import torch

        moved = (parameter for part in self.parts for parameter in part.parameters())
        return next((p.device for p in moved if p.device.type == "cuda"), torch.device("cpu"))

    def _run(self) -> Solution:
        generator = np.random.default_rng(self.method.seed)
        best, best_score = self._look(0)
        begun = best
        since, converged, interrupted = 0, False, False
        try:
            for epoch in range(1, self.method.epochs + 1):
                if not self._train(generator):
                    self._warn(epoch)
                    break
                there, score = self._look(epoch)
                if score > best_score:
                    best, best_score, since = there, score, 0
                else:
                    since += 1
                if self.method.patience is not None and since >= self.method.patience:
                    converged = True
                    break
        except KeyboardInterrupt:
            interrupted = True
        if best is begun and self.optimizer is not None and len(self.history) > 1:
            tell(
                "No epoch was better than the start, so the model is as it began. A smaller lr "
                f"than {self.method.lr:g} may help.",
                ConvergenceWarning,
            )
        return Solution(best, self.history, converged, interrupted, True, self.n_evaluations)

    def _optimizer(self) -> Any:
        import torch

        chosen = self.method.optimizer
        make = chosen if callable(chosen) else getattr(torch.optim, _OPTIMIZERS[chosen])
        moved = [parameter for part in self.parts for parameter in part.parameters()]
        return make(moved, lr=self.method.lr) if moved else None

    def _train(self, generator: np.random.Generator) -> bool:
        """One epoch; whether everything stayed finite."""
        import torch

        if self.optimizer is None:
            return True
        moved = [parameter for part in self.parts for parameter in part.parameters()]
        size = self.method.batch_size
        with one_thread(size * self.longest * width(moved)):
            for batch in self._batches(size, generator):
                try:
                    loss = self._loss(batch)
                except ImpossibleSessionError:
                    return False  # logits so far out that a probability is zero
                if not torch.isfinite(loss):
                    return False
                self.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()
        return all(bool(torch.isfinite(parameter).all()) for parameter in moved)

    def _batches(self, size: int, generator: np.random.Generator) -> Iterator[Batch]:
        """All pages in batches, part after part; the order of parts and pages is drawn anew."""
        parts = self.problem.parts
        for number in generator.permutation(list(parts.numbers)):
            part = parts.part(int(number))
            whole = part.expectation.encoded
            for pages in shuffled(whole, size, generator):
                batch = batch_of(whole, pages)
                used = [
                    own if part.index.get(coin) is None else part.index[coin][own]
                    for coin, own in enumerate(batch.used)
                ]
                yield Batch(batch.encoded, used, part.expectation)

    def _loss(self, batch: Batch) -> torch.Tensor:
        """Minus the objective per page, as this batch shows it."""
        from gecasmo.estimation.autograd import differentiable_log_likelihood

        whole = batch.of
        expectation = Expectation(
            batch.encoded, whole.library, whole.augmentation, whole.with_missing, threads=1
        )
        logits: dict[int, torch.Tensor] = {}
        made: dict[tuple[int, int], torch.Tensor] = {}
        for n, coin in enumerate(batch.encoded.plan.coins):
            # Coins with one form and one key need their logits only once.
            key = (self.part_of[n], coin.codes)
            if key not in made:
                made[key] = self.parts[self.part_of[n]].logits(batch.used[n])
            logits[n] = made[key]
        if any(not bool(values.isfinite().all()) for values in logits.values()):
            logits, given = self._without_certain(logits)
        else:
            given = {}
        total = differentiable_log_likelihood(expectation, logits, given) / self.usual
        penalty = sum(part.penalty() for part in self.parts)
        return -(total + penalty / max(self.problem.n_pages, 1e-300))

    def _without_certain(
        self, logits: dict[int, torch.Tensor]
    ) -> tuple[dict[int, torch.Tensor], dict[int, Any]]:
        """Coins of probability 0 or 1 are given, not moved."""
        import torch

        moved, given = {}, {}
        for n, values in logits.items():
            if values.requires_grad or bool(values.isfinite().all()):
                moved[n] = values
            else:
                given[n] = as_weights(torch.sigmoid(values.double()).numpy())
        return moved, given

    def _look(self, epoch: int) -> tuple[Evaluated, float]:
        """Evaluate where we are; the score is what epochs are judged by."""
        states = self.problem.spread([part.state() for part in self.parts])
        there = self.problem.evaluate(states)
        self.n_evaluations += 1
        score = there.objective
        held_out = self.problem.held_out
        if held_out is not None:
            score = held_out.evaluate(states).log_likelihood  # minus infinity if impossible
        seconds = time.perf_counter() - self.began
        self.history.append(Record(epoch, there.objective, there.log_likelihood, seconds))
        if self.progress is not None:
            per_page = there.objective / max(self.problem.n_pages, 1.0)
            self.progress(epoch, self.method.epochs, per_page)
        return there, score if math.isfinite(score) else -math.inf

    def _warn(self, epoch: int) -> None:
        tell(
            f"The loss was no longer a number in epoch {epoch}; the model has the best state "
            f"before that. A smaller lr than {self.method.lr:g} may help.",
            ConvergenceWarning,
        )


# -- minibatches -----------------------------------------------------------------------------------
class Batch(NamedTuple):
    """An encoded log of some pages; `used[coin]` are the row numbers that its rows stand for, and
    `of` is the E-step of all the pages that these were taken from."""

    encoded: EncodedLog
    used: list[Integers]
    of: Any = None


def shuffled(whole: EncodedLog, size: int, generator: np.random.Generator) -> list[Integers]:
    """The pages of each batch of so many, in an order drawn anew."""
    return np.array_split(generator.permutation(whole.n_pages), _n_batches(whole, size))


def _n_batches(whole: EncodedLog, size: int) -> int:
    return max(1, -(-whole.n_pages // size))


def batch_of(whole: EncodedLog, pages: Integers) -> Batch:
    """Some pages of an encoded log, as an encoded log of their own with only the rows they use."""
    lengths = np.diff(whole.obs_start)
    by_pattern = rows_of_runs(whole.obs_start[pages], lengths[pages])
    by_page_shown = rows_of_runs(whole.row_start[pages], lengths[pages])
    start = np.concatenate([[0], np.cumsum(lengths[pages])]).astype(np.int64)
    codes, rows_of = [], []
    page = np.repeat(pages, lengths[pages])
    for number in range(len(whole.codes)):
        plan = next(coin for coin in whole.plan.coins if coin.codes == number)
        if plan.scope == "page":
            picked = whole.page_rows(number)[pages]
        else:
            # What clicks above decide is kept per page; the rest is shared by pages that
            # show the same.
            places = by_pattern if plan.history else by_page_shown
            picked = whole.rows_at(number, page, places)
        distinct, renumbered = np.unique(picked, return_inverse=True)
        codes.append(renumbered.astype(np.uint32))
        rows_of.append(distinct.astype(np.int64))
    used = [
        np.arange(len(rows)) if coin.codes < 0 else rows_of[coin.codes]
        for coin, rows in zip(whole.plan.coins, whole.rows, strict=True)
    ]
    # One bucket for all: a batch is small, and its sums are taken in one go.
    bucket_start = np.full(N_BUCKETS + 1, len(pages), np.int64)
    bucket_start[0] = 0
    # Kernels are those of the whole, which may count from a row of each page: here the first.
    n_first = [len(pages) if len(first) else 0 for first in whole.first_rows]
    encoded = replace(
        whole,
        first_rows=[np.zeros(n, np.uint32) for n in n_first],
        bucket_rows=[np.zeros(0, np.int64)] * len(whole.rows),
        rows=[Rows((), (), len(numbers)) for numbers in used],
        codes=codes,
        obs=np.ascontiguousarray(whole.obs[by_pattern]),
        obs_start=start,
        row_start=start[:-1].copy(),
        weight=whole.weight[pages],
        bucket_start=bucket_start,
        shifts=[8] * len(whole.shifts),
    )
    return Batch(encoded, used)
