"""The generalised M-step of a network: some epochs of Adam, of which only progress is kept."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gecasmo.errors import ModelError
from gecasmo.forms.form import Floats
from gecasmo.forms.linear import binomial_log_likelihood, fit_offsets
from gecasmo.forms.networks.calling import (
    answers,
    call,
    is_finite,
    one_thread,
    own_randomness,
    squares,
    width,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

    from gecasmo.forms.networks.calling import Inputs

# What an attempt that gains nothing is followed by: so many more, each with a shorter step.
_ATTEMPTS = 4
_SHORTER = 0.25
# An attempt ends when so many epochs in a row gained nothing.
_PATIENCE = 5
# Of several batches an epoch: when the last one gained less than this share of all that the M-step
# has gained, a new E-step is worth more than another epoch.
_ENOUGH = 0.02
# A gain smaller than this, relative to the objective, may be rounding.
_ROUNDING = 1e-10

NOT_A_NUMBER = "its loss was no longer a number; the last good weights were kept"


@dataclass(frozen=True)
class Recipe:
    """How a network is trained."""

    epochs: int
    lr: float
    batch_size: int
    weight_decay: float
    seed: int


class Trained(NamedTuple):
    """Where training ended; `network` is None if nothing was gained.

    `lr` and `moments` are what the next M-step goes on with: near the optimum steps have to be
    short, and Adam that starts afresh would begin with long ones.
    """

    network: nn.Module | None
    offsets: Floats | None
    lr: float
    moments: Any
    note: str


@dataclass(frozen=True)
class Training:
    """The M-step of one network: expected heads and tails of its rows, and how to learn them.

    With `variance`, rows have offsets with a normal prior of that variance, which are found anew
    for every network that is looked at.
    """

    inputs: Inputs
    heads: Floats
    tails: Floats
    recipe: Recipe
    variance: float | None = None

    def improve(
        self, start: nn.Module, offsets: Floats | None, lr: float, moments: Any, round_number: int
    ) -> Trained:
        """A better network, if one is found: steps are shortened until there is a gain."""
        import torch

        used = np.flatnonzero(self.heads + self.tails > 0)
        value, offsets = self.value(start, offsets)
        if not len(used) or not _movable(start):
            return Trained(None, offsets, lr, moments, "")
        note = ""
        seed = int(np.random.default_rng([self.recipe.seed, round_number]).integers(2**62))
        size = min(self.recipe.batch_size, len(used)) * width(start.parameters())
        with own_randomness(seed, self.inputs[0].device), one_thread(size):
            order = torch.Generator().manual_seed(seed)
            for attempt in range(_ATTEMPTS):
                known = moments if attempt == 0 else None
                found, told = self._attempt(start, used, value, offsets, lr, known, order)
                note = note or told
                if found is not None:
                    # Room to grow again, should steps have become too short.
                    longer = min(2 * lr, self.recipe.lr) if attempt == 0 else lr
                    return found._replace(lr=longer, note=note)
                lr *= _SHORTER
        return Trained(None, offsets, lr, moments, note)

    def value(self, network: nn.Module, offsets: Floats | None) -> tuple[float, Floats | None]:
        """What the M-step maximises, and the best offsets around this network."""
        logits = answers(network, self.inputs)
        if not np.all(np.isfinite(logits)):
            return np.nan, offsets
        value = -0.5 * self.recipe.weight_decay * squares(network)
        if offsets is not None:
            assert self.variance is not None
            offsets = fit_offsets(self.heads, self.tails, logits, offsets, self.variance)
            logits = logits + offsets
            value -= 0.5 * float((offsets**2).sum()) / self.variance
        return value + binomial_log_likelihood(self.heads, self.tails, logits), offsets

    def _attempt(
        self,
        start: nn.Module,
        used: Any,
        first: float,
        offsets: Floats | None,
        lr: float,
        moments: Any,
        order: torch.Generator,
    ) -> tuple[Trained | None, str]:
        """Some epochs with one step length; the best of them, if it is better than the start."""
        import torch

        network = copy.deepcopy(start)
        optimizer = torch.optim.Adam(_movable(network), lr=lr)
        if moments is not None:
            optimizer.load_state_dict(copy.deepcopy(moments))
            optimizer.param_groups[0]["lr"] = lr
        best: Trained | None = None
        threshold = first + _ROUNDING * abs(first)
        since, highest = 0, first
        n_batches = -(-len(used) // self.recipe.batch_size)
        for _ in range(self.recipe.epochs):
            loss = self._epoch(network, optimizer, used, offsets, order, n_batches)
            if not (np.isfinite(loss) and is_finite(network)):
                return best, NOT_A_NUMBER
            value, offsets = self.value(network, offsets)
            if not np.isfinite(value):
                return best, NOT_A_NUMBER
            if value > threshold:
                threshold, since = value, 0
                state = copy.deepcopy(optimizer.state_dict())
                best = Trained(copy.deepcopy(network), offsets, lr, state, "")
                gain, highest = value - highest, value
                if n_batches > 1 and gain < _ENOUGH * (value - first):
                    break
            else:
                since += 1
                if since >= _PATIENCE:
                    break
        return best, ""

    def _epoch(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        used: Any,
        offsets: Floats | None,
        order: torch.Generator,
        n_batches: int,
    ) -> float:
        """Go through all rows once; the sum of the losses on the way."""
        import torch
        from torch.nn.functional import softplus

        device = self.inputs[0].device
        total = float((self.heads + self.tails).sum())
        places = torch.as_tensor(used)
        shuffled = torch.randperm(len(used), generator=order)
        losses = torch.zeros((), device=device)
        for numbers in torch.tensor_split(shuffled, n_batches):
            rows = places[numbers]
            network.train(len(rows) > 1)  # layers that look at the spread of a batch need two rows
            logits = call(network, tuple(each[rows.to(each.device)] for each in self.inputs))
            if offsets is not None:
                logits = logits + torch.as_tensor(offsets[rows]).to(device, logits.dtype)
            heads, tails = (
                torch.as_tensor(side[rows]).to(device, logits.dtype)
                for side in (self.heads, self.tails)
            )
            # Per flip of an average batch, so that the step does not depend on the log's size.
            scale = len(used) / (total * len(rows))
            loss = scale * (heads * softplus(-logits) + tails * softplus(logits)).sum()
            if self.recipe.weight_decay:
                decay = sum(weight.pow(2).sum() for weight in network.parameters())
                loss = loss + 0.5 * self.recipe.weight_decay / total * decay
            if not loss.requires_grad:
                raise ModelError("What the module answers does not depend on its weights.")
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses += loss.detach()
        network.eval()
        return float(losses)


def _movable(network: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in network.parameters() if weight.requires_grad]
