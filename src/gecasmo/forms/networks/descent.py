"""A network as gradient descent on the marginal likelihood moves it; see estimation/trainable.py.

Only imported where PyTorch is in use.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from gecasmo.forms.networks.calling import FAR, Inputs, call

if TYPE_CHECKING:
    from gecasmo.forms.torch import Torch, TorchState


class TrainableNetwork:
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
