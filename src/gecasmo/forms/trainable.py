"""Forms as torch parameters: what gradient descent on the marginal likelihood moves.

Only imported where PyTorch is in use. A form of one's own takes part if its
`trainable(state, rows)` returns such an object.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.forms.form import Form, FormState
from gecasmo.forms.networks import FAR, Inputs, call
from gecasmo.forms.sequences import Sequences, call_pages

if TYPE_CHECKING:
    from gecasmo.forms.fixed import Fixed
    from gecasmo.forms.logistic import Logistic, LogisticState
    from gecasmo.forms.recurrent import Recurrent, RecurrentState
    from gecasmo.forms.sum import Sum, SumState
    from gecasmo.forms.table import Table
    from gecasmo.forms.table_state import TableState
    from gecasmo.forms.torch import Torch, TorchState

Integers = NDArray[np.int64]


class Trainable(ABC):
    """A form during gradient descent."""

    @abstractmethod
    def parameters(self) -> Sequence[torch.Tensor]:
        """List what the optimiser moves."""

    @abstractmethod
    def logits(self, numbers: Integers) -> torch.Tensor:
        """Tell the logits of the rows with these numbers."""

    @abstractmethod
    def penalty(self) -> torch.Tensor:
        """Tell the logarithm of the prior, as the form's own `penalty`."""

    @abstractmethod
    def state(self) -> FormState:
        """Make the state where the form is now."""


class TrainableVector(Trainable):
    """A form by its vector, of which nothing but the logits has to be told."""

    def __init__(self, form: Form, state: FormState, start: Any) -> None:
        self.form, self.began = form, state
        self.free = torch.tensor(start, dtype=torch.float64, requires_grad=True)

    def parameters(self) -> Sequence[torch.Tensor]:
        return [self.free] if len(self.free) else []

    def penalty(self) -> torch.Tensor:
        return torch.zeros((), dtype=torch.float64)

    def state(self) -> FormState:
        return self.form.from_vector(self.began, self.free.detach().numpy().copy())


class TrainableTable(TrainableVector):
    """The logits of a table's rows; given ones stay."""

    def __init__(self, form: Table, state: TableState) -> None:
        super().__init__(form, state, np.clip(form.vector(state), -30.0, 30.0))
        self.given = torch.as_tensor(form.vector(state).copy())
        self.is_fixed = None if state.is_fixed is None else torch.as_tensor(state.is_fixed.copy())

    def logits(self, numbers: Integers) -> torch.Tensor:
        every = self.free
        if self.is_fixed is not None:
            every = every.where(~self.is_fixed, self.given)
        chosen: torch.Tensor = every[torch.as_tensor(numbers)]
        return chosen

    def penalty(self) -> torch.Tensor:
        open_rows = slice(None) if self.is_fixed is None else ~self.is_fixed
        a, b = (torch.as_tensor(counts) for counts in self.began.pseudo)
        if a.ndim:
            a, b = a[open_rows], b[open_rows]
        free, sigmoid = self.free[open_rows], torch.nn.functional.logsigmoid
        total: torch.Tensor = (a * sigmoid(free)).sum() + (b * sigmoid(-free)).sum()
        return total


class TrainableConstant(TrainableVector):
    """A probability that is given: nothing moves."""

    def __init__(self, form: Fixed, state: Rows, rows: Rows) -> None:
        super().__init__(form, state, form.vector(state))
        probability = torch.as_tensor(form.predict(state, rows))
        self.given: torch.Tensor = torch.special.logit(probability)

    def logits(self, numbers: Integers) -> torch.Tensor:
        return self.given[torch.as_tensor(numbers)]


class TrainableLogistic(TrainableVector):
    """The coefficients of a regression."""

    def __init__(self, form: Logistic, state: LogisticState, rows: Rows) -> None:
        super().__init__(form, state, state.coefficients)
        self.precision = torch.as_tensor(form.precision(len(state.coefficients)))
        design = form.design(state, rows)
        self.numeric = torch.as_tensor(design.numeric)
        self.levels = [torch.as_tensor(levels) for levels in design.levels]
        self.starts = [int(start) for start in design.starts]

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


class TrainableSum(Trainable):
    """The covariates of a sum, and the effects of its tables."""

    def __init__(self, form: Sum, state: SumState, inner: Trainable) -> None:
        self.form, self.began, self.inner = form, state, inner
        self.free = [
            torch.tensor(table.effects, dtype=torch.float64, requires_grad=True)
            for table in state.tables
        ]
        self.numbers = [torch.as_tensor(found) for found in form.level_numbers(state, state.rows)]

    def parameters(self) -> Sequence[torch.Tensor]:
        return [*self.inner.parameters(), *self.free]

    def logits(self, numbers: Integers) -> torch.Tensor:
        rows = torch.as_tensor(numbers)
        total = self.inner.logits(numbers)
        for effects, levels in zip(self.free, self.numbers, strict=True):
            total = total + effects[levels[rows]]
        if self.form.link == "logit":
            return total
        log_ndtr = torch.special.log_ndtr
        logits: torch.Tensor = log_ndtr(total) - log_ndtr(-total)
        return logits

    def penalty(self) -> torch.Tensor:
        total = self.inner.penalty().to(torch.float64)
        for effects, table in zip(self.free, self.began.tables, strict=True):
            total = total - 0.5 * (effects**2).sum() / table.spread**2
            total = total - len(effects) * float(np.log(table.spread))
        return total

    def state(self) -> SumState:
        effects = [each.detach().numpy().copy() for each in self.free]
        return self.form.with_effects(self.began, self.inner.state(), effects)


class TrainableNetwork(Trainable):
    """A copy of a state's network that may change."""

    def __init__(self, form: Torch, state: TorchState, inputs: Inputs) -> None:
        self.form, self.began, self.inputs = form, state, inputs
        self.network = copy.deepcopy(state.network)

    def parameters(self) -> Sequence[torch.Tensor]:
        return [weight for weight in self.network.parameters() if weight.requires_grad]

    def logits(self, numbers: Any) -> torch.Tensor:
        rows = torch.as_tensor(numbers)
        self.network.train(len(rows) > 1)
        logits = call(self.network, tuple(each[rows.to(each.device)] for each in self.inputs))
        return logits.cpu().double().clamp(-FAR, FAR)

    def penalty(self) -> torch.Tensor:
        decay = self.form.recipe.weight_decay
        total = torch.zeros((), dtype=torch.float64)
        if decay:
            for weight in self.network.parameters():
                total = total - 0.5 * decay * weight.pow(2).sum().cpu().double()
        return total

    def state(self) -> TorchState:
        network = copy.deepcopy(self.network).eval()
        return replace(self.began, network=network, moments=None)


class TrainablePages(Trainable):
    """A copy of a state's network that reads pages, and may change."""

    def __init__(self, form: Recurrent, state: RecurrentState, sequences: Sequences) -> None:
        self.form, self.began, self.sequences = form, state, sequences
        self.network = copy.deepcopy(state.network)

    def parameters(self) -> Sequence[torch.Tensor]:
        return [weight for weight in self.network.parameters() if weight.requires_grad]

    def logits(self, numbers: Integers) -> torch.Tensor:
        pages = np.unique(self.sequences.page_of_row[numbers])
        self.network.train(len(pages) > 1)
        rows, found = [], []
        for table in self.sequences.tables(pages):
            rows.append(table.ravel())
            inputs = self.sequences.inputs(table)
            found.append(call_pages(self.network, inputs, self.form.one_pass).reshape(-1))
        # A batch has whole pages, and perhaps not all of their rows.
        there = np.concatenate(rows)
        order = np.argsort(there)
        place = order[np.searchsorted(there, numbers, sorter=order)]
        logits = torch.cat(found)[torch.as_tensor(place)]
        return logits.cpu().double().clamp(-FAR, FAR)

    def penalty(self) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for weight in self.network.parameters():
            total = total - 0.5 * self.form.recipe.weight_decay * weight.pow(2).sum().cpu().double()
        return total

    def state(self) -> RecurrentState:
        network = copy.deepcopy(self.network).eval()
        self.form.require_causal(network, self.sequences)
        return replace(self.began, network=network)
