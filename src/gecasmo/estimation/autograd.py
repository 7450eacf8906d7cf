"""The log-likelihood as a function that PyTorch can differentiate; the E-step is its gradient.

By a coin's logit the derivative is heads - (heads + tails) theta, with the expected counts that the
E-step returns anyway. Only imported where PyTorch is in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.autograd.function import once_differentiable

from gecasmo.errors import ImpossibleSessionError
from gecasmo.estimation.expectation import Expectation

Floats = NDArray[np.float64]


def differentiable_log_likelihood(
    expectation: Expectation, logits: Mapping[int, torch.Tensor], others: Mapping[int, Floats]
) -> torch.Tensor:
    """The log-likelihood of an encoded log as a tensor.

    Parameters
    ----------
    expectation : the E-step of the log
    logits : by number of the coin, a logit per row
    others : by number of the coin, weights of those that are given
    """
    numbers = sorted(logits)
    total: torch.Tensor = _LogLikelihood.apply(  # type: ignore[no-untyped-call]
        expectation, numbers, others, *(logits[number] for number in numbers)
    )
    return total


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        expectation: Expectation,
        numbers: Sequence[int],
        others: Mapping[int, Floats],
        *logits: torch.Tensor,
    ) -> torch.Tensor:
        weights: dict[int, Floats] = dict(others)
        for number, given in zip(numbers, logits, strict=True):
            # Both sides from the logit itself: 1 - theta would lose the small ones.
            wide = given.detach().to("cpu", torch.float64)
            sides = torch.stack([torch.sigmoid(-wide), torch.sigmoid(wide)])
            weights[number] = np.ascontiguousarray(sides.numpy())
        counts = expectation.run([weights[number] for number in range(len(weights))])
        if counts.n_impossible:
            raise ImpossibleSessionError(
                f"{counts.n_impossible:,} pages have probability zero under these logits."
            )
        slopes = []
        for number, given in zip(numbers, logits, strict=True):
            tails, heads = counts.tables[number]
            down, up = weights[number]
            slopes.append(torch.as_tensor(heads * down - tails * up).to(given.device, given.dtype))
        ctx.save_for_backward(*slopes)
        like = logits[0] if logits else torch.zeros(0, dtype=torch.float64)
        return torch.as_tensor(counts.log_likelihood, dtype=torch.float64).to(
            like.device, like.dtype
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: torch.Tensor) -> tuple[Any, ...]:
        return (None, None, None, *(outer[0] * slope for slope in ctx.saved_tensors))
