"""Networks from features to logits: make them, call them, train them.

The M-step is some epochs of Adam, of which only progress is kept. PyTorch is imported inside
functions only, so that everything else works without it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gecasmo.errors import ModelError
from gecasmo.forms.features import CodedFeatures, FeatureCoding
from gecasmo.forms.form import Floats
from gecasmo.forms.linear import binomial_log_likelihood, fit_offsets

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
    """Draw from a seed; whoever else draws from PyTorch's stream notices nothing."""
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
    """Use one thread for small networks; on a busy machine two wait for each other.

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
    """Make a network of our own from what the user gave: a module, or a function making one."""
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
    """Draw new weights: layers that can draw theirs do, other weights are moved a little."""
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
    """Make what a network is called with: numeric columns, levels, or both."""
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
    """Tell the type of a network's weights; float32 if it has none."""
    import torch
    from torch.nn.parameter import is_lazy

    for weight in network.parameters():
        if weight.is_floating_point() and not is_lazy(weight):
            return weight.dtype
    return torch.float32


def call(network: nn.Module, inputs: Inputs) -> torch.Tensor:
    """Ask for one logit per row, and refuse anything else."""
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
    """Tell the logit of every row, within bounds, as a network does when it is not learning."""
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
    """Tell about how many numbers per row the widest layer of a network reads."""
    from torch.nn.parameter import is_lazy

    made = (weight for weight in weights if not is_lazy(weight))
    return max((int(weight.shape[-1]) for weight in made if weight.dim() > 1), default=1)


def is_finite(network: nn.Module) -> bool:
    """Whether all weights are numbers."""
    import torch

    values = network.state_dict().values()
    return all(bool(torch.isfinite(v).all()) for v in values if v.is_floating_point())


def squares(network: nn.Module) -> float:
    """Sum the squares of all weights."""
    return float(sum(float(w.detach().double().pow(2).sum()) for w in network.parameters()))


def _described(inputs: Inputs) -> str:
    return " and ".join(f"{tuple(each.shape)} {each.dtype}" for each in inputs)


def as_device(device: Any) -> torch.device:
    """Find a device by name, if this machine has it."""
    import torch

    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, TypeError, AssertionError, ValueError) as error:
        raise ModelError(f"Torch(device={device!r}) is not available here: {error}") from None
    return found


def at_hand(device: str) -> str:
    """Choose the device that a file names, or the processor where there is no such device."""
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
class TrainingRecipe:
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
    recipe: TrainingRecipe
    variance: float | None = None

    def improve(
        self, start: nn.Module, offsets: Floats | None, lr: float, moments: Any, round_number: int
    ) -> Trained:
        """Look for a better network: steps are shortened until there is a gain."""
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
        """Work out what the M-step maximises, and the best offsets around this network."""
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
        """Try some epochs with one step length; keep the best, if it is better than the start."""
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
        """Go through all rows once, and sum the losses on the way."""
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
