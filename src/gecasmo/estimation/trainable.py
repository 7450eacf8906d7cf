"""Forms as torch parameters: what gradient descent moves. Only imported where PyTorch is in use.

A form of one's own takes part if it has `trainable(state, rows)`, which returns such an object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms import Fixed, FormState, Logistic, Sum, Table

Integers = NDArray[np.int64]


class Trainable(Protocol):
    """A form during gradient descent."""

    def parameters(self) -> Sequence[torch.Tensor]:
        """What the optimiser moves."""

    def logits(self, numbers: Integers) -> torch.Tensor:
        """The logits of the rows with these numbers."""

    def penalty(self) -> torch.Tensor:
        """The logarithm of the prior, as the form's own `penalty`."""

    def state(self) -> FormState:
        """Where the form is now."""


def trainable(form: Any, state: FormState, rows: Rows, name: str) -> Trainable:
    """The form of a coin as something to train."""
    if hasattr(form, "trainable"):
        made: Trainable = form.trainable(state, rows)
        return made
    if isinstance(form, Table):
        return _TrainableTable(form, state)
    if isinstance(form, Fixed):
        return _TrainableConstant(form, state, rows)
    if isinstance(form, Logistic):
        return _TrainableLogistic(form, state, rows)
    if isinstance(form, Sum):
        inner = trainable(form.covariates, state.inner, rows, name)
        return _TrainableSum(form, state, inner)
    raise ModelError(
        f"Gradient cannot train the form {form!r} of '{name}': it has no gradient. Use EM, or a "
        "Torch, Logistic, Sum or Table form."
    )


class _TrainableTable:
    def __init__(self, form: Table, state: Any) -> None:
        self.form, self.began = form, state
        start = np.clip(form.vector(state), -30.0, 30.0)
        self.free = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        self.given = torch.as_tensor(form.vector(state).copy())
        self.is_fixed = None if state.is_fixed is None else torch.as_tensor(state.is_fixed.copy())

    def _all(self) -> torch.Tensor:
        return self.free if self.is_fixed is None else self.free.where(~self.is_fixed, self.given)

    def parameters(self) -> Sequence[torch.Tensor]:
        return [self.free]

    def logits(self, numbers: Integers) -> torch.Tensor:
        return self._all()[torch.as_tensor(numbers)]

    def penalty(self) -> torch.Tensor:
        open_rows = slice(None) if self.is_fixed is None else ~self.is_fixed
        a, b = (torch.as_tensor(counts) for counts in self.began.pseudo)
        if a.ndim:
            a, b = a[open_rows], b[open_rows]
        free, sigmoid = self.free[open_rows], torch.nn.functional.logsigmoid
        total: torch.Tensor = (a * sigmoid(free)).sum() + (b * sigmoid(-free)).sum()
        return total

    def state(self) -> Any:
        return self.form.from_vector(self.began, self.free.detach().numpy().copy())


class _TrainableConstant:
    def __init__(self, form: Fixed, state: Any, rows: Rows) -> None:
        self.began = state
        probability = torch.as_tensor(form.predict(state, rows))
        self.given: torch.Tensor = torch.special.logit(probability)

    def parameters(self) -> Sequence[torch.Tensor]:
        return []

    def logits(self, numbers: Integers) -> torch.Tensor:
        return self.given[torch.as_tensor(numbers)]

    def penalty(self) -> torch.Tensor:
        return torch.zeros((), dtype=torch.float64)

    def state(self) -> Any:
        return self.began


class _TrainableLogistic:
    def __init__(self, form: Logistic, state: Any, rows: Rows) -> None:
        self.form, self.began = form, state
        self.free = torch.tensor(state.coefficients, dtype=torch.float64, requires_grad=True)
        self.precision = torch.as_tensor(form.precision(len(state.coefficients)))
        design = form.design(state, rows)
        self.numeric = torch.as_tensor(design.numeric)
        self.levels = [torch.as_tensor(levels) for levels in design.levels]
        self.starts = [int(start) for start in design.starts]

    def parameters(self) -> Sequence[torch.Tensor]:
        return [self.free]

    def logits(self, numbers: Integers) -> torch.Tensor:
        rows = torch.as_tensor(numbers)
        n_dense = self.numeric.shape[1]
        logits = self.numeric[rows] @ self.free[:n_dense]
        for levels, start in zip(self.levels, self.starts, strict=True):
            level = levels[rows]
            effect = self.free[(start + level).clamp(min=0)]
            logits = logits + effect.where(level >= 0, torch.zeros_like(effect))
        return logits

    def penalty(self) -> torch.Tensor:
        return -0.5 * (self.precision * self.free**2).sum()

    def state(self) -> Any:
        return self.form.from_vector(self.began, self.free.detach().numpy().copy())


class _TrainableSum:
    def __init__(self, form: Sum, state: Any, inner: Trainable) -> None:
        self.form, self.began, self.inner = form, state, inner
        self.free = torch.tensor(state.offsets, dtype=torch.float64, requires_grad=True)

    def parameters(self) -> Sequence[torch.Tensor]:
        return [*self.inner.parameters(), self.free]

    def logits(self, numbers: Integers) -> torch.Tensor:
        return self.inner.logits(numbers) + self.free[torch.as_tensor(numbers)]

    def penalty(self) -> torch.Tensor:
        around = -0.5 * (self.free**2).sum() / self.began.spread**2
        around = around - len(self.free) * float(np.log(self.began.spread))
        total: torch.Tensor = self.inner.penalty().to(around.dtype) + around
        return total

    def state(self) -> Any:
        offsets = self.free.detach().numpy().copy()
        return replace(self.began, inner=self.inner.state(), offsets=offsets)
