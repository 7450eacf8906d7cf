"""Networks from features to logits: make them, call them, look at what they answer.

PyTorch is imported inside functions only, so that everything else works without it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gecasmo.errors import ModelError
from gecasmo.forms.coding import CodedFeatures, FeatureCoding
from gecasmo.forms.form import Floats

if TYPE_CHECKING:
    import torch
    from torch import nn

Inputs = tuple[Any, ...]  # tensors with a row per row

# Logits are kept within these bounds, so that no page becomes impossible by rounding.
FAR = 30.0
_ROWS_AT_ONCE = 65_536
_LARGE = 4_000_000


@dataclass(frozen=True)
class Sizes:
    """What a network has to fit; a function that makes a module is called with this.

    `n_numeric` is the number of numeric columns, `n_levels` the number of levels of each
    categorical one. Levels count from 1, and 0 is a level that the fit has not seen, so an
    embedding needs `n_levels[column] + 1` rows.
    """

    n_numeric: int
    n_levels: dict[str, int]


@contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers from a seed; whoever else draws from PyTorch's stream notices nothing."""
    import torch

    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def one_thread(n_numbers: int) -> Iterator[None]:
    """Small networks are faster on one thread; on a busy machine two wait for each other.

    `n_numbers` is about how many numbers a layer has to look at.
    """
    import torch

    before = torch.get_num_threads()
    if before == 1 or n_numbers > _LARGE:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_network(
    module: nn.Module | Callable[[Sizes], nn.Module], coding: FeatureCoding, device: torch.device
) -> nn.Module:
    """A network of our own from what the user gave: a module, or a function that makes one."""
    from torch import nn

    sizes = Sizes(len(coding.numeric), coding.n_levels)
    made = module if isinstance(module, nn.Module) else module(sizes)
    if not isinstance(made, nn.Module):
        raise ModelError(
            f"The function given to Torch made a {type(made).__name__}; a torch.nn.Module is "
            "wanted."
        )
    if type(made) is nn.Sequential and len(made) and type(made[-1]) is nn.Sigmoid:
        raise ModelError(
            "The module ends with a Sigmoid, so it answers with probabilities; Torch wants logits. "
            "Leave the Sigmoid out."
        )
    return copy.deepcopy(made).to(device).eval()


def shake(network: nn.Module) -> None:
    """New random weights: layers that can draw theirs do, other weights are moved a little."""
    import torch

    with torch.no_grad():
        for layer in network.modules():
            reset = getattr(layer, "reset_parameters", None)
            if callable(reset):
                reset()
                continue
            for weight in layer.parameters(recurse=False):
                weight.add_(torch.randn_like(weight), alpha=0.1)


def inputs_of(features: CodedFeatures, network: nn.Module, device: torch.device) -> Inputs:
    """What a network is called with: numeric columns, levels, or both."""
    import torch

    inputs = []
    if features.numeric.shape[1]:
        numeric = torch.as_tensor(features.numeric, dtype=number_type(network))
        inputs.append(numeric.to(device))
    if features.levels:
        levels = np.stack(features.levels, axis=1) + 1
        inputs.append(torch.as_tensor(levels, dtype=torch.int64).to(device))
    return tuple(inputs)


def number_type(network: nn.Module) -> torch.dtype:
    """The type of a network's weights; float32 if it has none."""
    import torch
    from torch.nn.parameter import is_lazy

    for weight in network.parameters():
        if weight.is_floating_point() and not is_lazy(weight):
            return weight.dtype
    return torch.float32


def call(network: nn.Module, inputs: Inputs) -> torch.Tensor:
    """One logit per row, or a clear refusal."""
    import torch

    n_rows = len(inputs[0])
    try:
        answer = network(*inputs)
    except IndexError as error:
        raise ModelError(
            f"The module cannot be called with {_described(inputs)}: {error}. Levels count from 1, "
            "with 0 for those never seen, so an embedding of n levels has n + 1 rows; a function "
            "that makes the module is told how many levels there are."
        ) from error
    except (RuntimeError, TypeError, ValueError) as error:
        raise ModelError(
            f"The module cannot be called with {_described(inputs)}: {error}"
        ) from error
    if not isinstance(answer, torch.Tensor):
        raise ModelError(
            f"The module answers with a {type(answer).__name__}; a tensor with one logit per row "
            "is wanted."
        )
    if tuple(answer.shape) not in ((n_rows,), (n_rows, 1)) or not answer.is_floating_point():
        raise ModelError(
            f"The module answers {n_rows} rows with a tensor of shape {tuple(answer.shape)} and "
            f"type {answer.dtype}; one logit per row is wanted, as floating-point numbers of shape "
            f"({n_rows},) or ({n_rows}, 1)."
        )
    return answer.reshape(n_rows)


def answers(network: nn.Module, inputs: Inputs) -> Floats:
    """The logit of every row, within bounds, as the network answers when it is not learning."""
    import torch

    parts = []
    with (
        torch.no_grad(),
        one_thread(min(len(inputs[0]), _ROWS_AT_ONCE) * width(network.parameters())),
    ):
        for first in range(0, len(inputs[0]), _ROWS_AT_ONCE):
            chunk = tuple(each[first : first + _ROWS_AT_ONCE] for each in inputs)
            parts.append(call(network, chunk).cpu().double().numpy())
    return np.clip(np.concatenate(parts), -FAR, FAR) if parts else np.zeros(0)


def width(weights: Iterable[torch.Tensor]) -> int:
    """About how many numbers per row the widest layer of a network reads."""
    from torch.nn.parameter import is_lazy

    made = (weight for weight in weights if not is_lazy(weight))
    return max((int(weight.shape[-1]) for weight in made if weight.dim() > 1), default=1)


def weights_of(network: nn.Module) -> dict[str, torch.Tensor]:
    """The weights and buffers of a network, as copies in main memory."""
    return {
        name: value.detach().cpu().clone().contiguous()
        for name, value in network.state_dict().items()
    }


def is_finite(network: nn.Module) -> bool:
    """Whether all weights are numbers."""
    import torch

    values = network.state_dict().values()
    return all(bool(torch.isfinite(v).all()) for v in values if v.is_floating_point())


def squares(network: nn.Module) -> float:
    """The sum of the squares of all weights."""
    return float(sum(float(w.detach().double().pow(2).sum()) for w in network.parameters()))


def _described(inputs: Inputs) -> str:
    return " and ".join(f"{tuple(each.shape)} {each.dtype}" for each in inputs)


def as_device(device: Any) -> torch.device:
    """A device by name, if this machine has it."""
    import torch

    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, TypeError, AssertionError, ValueError) as error:
        raise ModelError(f"Torch(device={device!r}) is not to be had here: {error}") from None
    return found


def at_hand(device: str) -> str:
    """The device that a file names, or the processor where there is no such device."""
    try:
        return str(as_device(device))
    except ModelError:
        return "cpu"


def extend(network: nn.Module, earlier: nn.Module) -> bool:
    """Give a network the weights of an earlier one; whether these fit.

    Where it has more rows (levels of an embedding that have come since), those stay as they are.
    """
    ours, theirs = network.state_dict(), earlier.state_dict()
    if ours.keys() != theirs.keys():
        return False
    for name, value in ours.items():
        first = int(value.dim() > 0 and len(value) > len(theirs[name]))
        if value.shape[first:] != theirs[name].shape[first:]:
            return False
    for name, value in ours.items():
        given = theirs[name].to(value.device)
        (value[: len(given)] if value.dim() else value).copy_(given)
    return True
