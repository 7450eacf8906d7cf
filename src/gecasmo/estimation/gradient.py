"""Gradient descent on the marginal likelihood, in minibatches of pages, with PyTorch."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gecasmo.errors import ConvergenceWarning, ImpossibleSessionError, ModelError, extra, tell
from gecasmo.estimation.coins import Coin, Evaluated, as_weights
from gecasmo.estimation.em import Progress, Record, Solution
from gecasmo.estimation.expectation import Expectation
from gecasmo.estimation.minibatches import Batch
from gecasmo.estimation.problem import Problem
from gecasmo.forms import FormState
from gecasmo.forms.networks import one_thread, width

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
        with one_thread(size * self.problem.max_length * width(moved)):
            for batch in self.problem.minibatches(size, generator):
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
        # By the weight of an average batch: by its own, pages beside a heavy one would count less.
        usual = self.problem.encoded_weight / self.problem.n_minibatches(self.method.batch_size)
        total = differentiable_log_likelihood(expectation, logits, given) / max(usual, 1e-300)
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
