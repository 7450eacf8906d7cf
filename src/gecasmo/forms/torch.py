"""Any network: a module from the features of a row to its logit.

In files, well-known layers are JSON and weights safetensors; nothing is ever run. A module of
well-known layers is rebuilt from the file. Of any other only the weights are kept, and whoever
loads it has to bring the module.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError, extra
from gecasmo.forms import saved
from gecasmo.forms.features import (
    ByRows,
    FeatureCoding,
    check_categorical,
    check_missing,
    learn_coding,
)
from gecasmo.forms.form import Floats, Parts, as_columns, as_key
from gecasmo.forms.network_form import NetworkForm, module_is_missing
from gecasmo.forms.networks import (
    Trained,
    Training,
    TrainingRecipe,
    answers,
    as_device,
    at_hand,
    extend,
    inputs_of,
    make_network,
    own_randomness,
    shake,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

    from gecasmo.forms.networks import Inputs


@dataclass(frozen=True, eq=False)
class TorchState:
    """A network that nobody changes any more, and what its training goes on with."""

    coding: FeatureCoding
    network: nn.Module
    lr: float
    moments: Any = None
    round_number: int = 0
    note: str = ""
    inputs: ByRows = field(default_factory=ByRows)


class Torch(NetworkForm):
    """A PyTorch network behind a coin.

    The module gets standardised numbers as a float tensor (rows, numeric columns) and texts as an
    integer tensor (rows, categorical columns), in which 0 is a level that the fit has not seen
    and levels count from 1. It is called as `module(x)`, `module(c)` or `module(x, c)`, depending
    on which there are, and answers with one logit per row, no sigmoid.

    Each M-step goes on from the weights of the last one. Only what raises the objective is kept, so
    EM never falls.

    Parameters
    ----------
    module : torch.nn.Module or callable
        Left unchanged. A function gets an object with `n_numeric` and `n_levels` (by column) and
        returns a module: embeddings need to know how many levels there are, plus one.
    *columns : str
        The feature columns.
    categorical : str or sequence of str
        Columns of numbers that are names of categories.
    epochs, lr, batch_size : int, float, int
        Of Adam, in each M-step.
    weight_decay : float
        Precision of a normal prior on the weights, as `l2` of `Logistic`.
    device : str
        Where to train: "cpu", "cuda", ...
    seed : int
        Of the order of rows, and of dropout.
    missing, key
        As for `Logistic`.

    Examples
    --------
    >>> from torch import nn
    >>> from gecasmo import DBN, Torch
    >>> network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
    >>> model = DBN(attraction=Torch(network, "bm25", "price"))
    """

    def __init__(
        self,
        module: Any,
        *columns: str,
        categorical: str | Sequence[str] = (),
        epochs: int = 20,
        lr: float = 0.01,
        batch_size: int = 8192,
        weight_decay: float = 0.0,
        device: str = "cpu",
        seed: int = 0,
        missing: str = "raise",
        key: str | tuple[str, ...] | None = None,
    ) -> None:
        torch = extra("torch", "Torch", "gecasmo[torch]")
        is_usable = isinstance(module, torch.nn.Module) or callable(module)
        if isinstance(module, type) or not is_usable:
            raise ModelError(
                f"Torch({module!r}): a torch.nn.Module is wanted, or a function that makes one."
            )
        for name, value, least in (
            ("epochs", epochs, 1),
            ("batch_size", batch_size, 1),
            ("seed", seed, 0),
        ):
            if value != int(value) or value < least:
                raise ModelError(f"Torch({name}={value!r}): a whole number of at least {least}.")
        if not (0 < lr < np.inf and 0 <= weight_decay < np.inf):
            raise ModelError(
                f"Torch(lr={lr!r}, weight_decay={weight_decay!r}): a positive learning rate and a "
                "decay that is not negative are wanted."
            )
        self.module = module
        self.columns = as_columns(columns, "Torch")
        self.categorical = check_categorical(categorical, self.columns, "Torch")
        self.recipe = TrainingRecipe(
            int(epochs), float(lr), int(batch_size), float(weight_decay), int(seed)
        )
        self.device_name = str(device)
        self.device = as_device(device)
        self.missing = check_missing(missing, "Torch")
        self.key = as_key(key)

    def options(self) -> dict[str, Any]:
        made = vars(self) | vars(self.recipe) | {"device": self.device_name}
        return {name: made[name] for name in inspect.signature(type(self)).parameters}

    # -- the protocol --------------------------------------------------------------------------
    def begin(self, rows: Rows, generator: np.random.Generator | None) -> TorchState:
        coding = learn_coding(rows, self.columns, self.categorical)
        with own_randomness(self.recipe.seed, self.device):
            network = make_network(self.module, coding, self.device)
            state = TorchState(coding, network, self.recipe.lr)
            self.logits(state, rows)  # refuses what cannot be; lazy layers get their shape
        if generator is not None:
            with own_randomness(int(generator.integers(2**31)), self.device):
                shake(network)
        return state

    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: TorchState) -> TorchState:
        training = Training(self._inputs(previous, rows), heads, tails, self.recipe)
        return self._next(previous, self._improve(training, previous, None))

    def fit_around(
        self,
        rows: Rows,
        heads: Floats,
        tails: Floats,
        previous: TorchState,
        offsets: Floats,
        variance: float,
    ) -> tuple[TorchState, Floats]:
        inputs = self._inputs(previous, rows)
        training = Training(inputs, heads, tails, self.recipe, variance)
        trained = self._improve(training, previous, offsets)
        assert trained.offsets is not None
        return self._next(previous, trained), trained.offsets

    def answers(self, state: TorchState, rows: Rows) -> Floats:
        return answers(state.network, self._inputs(state, rows))

    def remarks(self, state: TorchState, heads: Floats, tails: Floats) -> list[str]:
        remarks = [
            f"the column '{name}' is constant, so it says nothing" for name in state.coding.constant
        ]
        return [*remarks, state.note] if state.note else remarks

    def adopted(self, state: TorchState, rows: Rows) -> TorchState:
        """Keep the weights if they mean the same; new levels come after the old ones."""
        begun = self.begin(rows, None)
        old, new = state.coding, begun.coding
        if old.numeric != new.numeric or list(old.levels) != list(new.levels):
            return begun
        levels = {}
        for name, values in new.levels.items():
            fresh = values.filter(pl.Series(old.level_numbers(values, name) < 0))
            levels[name] = pl.concat([old.levels[name], fresh.cast(old.levels[name].dtype)])
        coding = replace(old, levels=levels, constant=new.constant, _known=ByRows())
        with own_randomness(self.recipe.seed, self.device):
            network = make_network(self.module, coding, self.device)
            adopted = TorchState(coding, network, self.recipe.lr)
            self.logits(adopted, rows)
        return adopted if extend(network, state.network) else begun

    def trainable(self, state: TorchState, rows: Rows) -> Any:
        from gecasmo.forms.trainable import TrainableNetwork

        return TrainableNetwork(self, state, self._inputs(state, rows))

    # -- in files --------------------------------------------------------------------------------
    def to_data(self, state: TorchState) -> tuple[dict[str, Any], Parts]:
        coding, frames = state.coding.to_data()
        data = {
            **self.options(),
            "coding": coding,
            "module": describe(state.network),
            "class": type(state.network).__name__,
            "now": state.lr,
            "round_number": state.round_number,
        }
        return data, {**frames, "weights": weights_to_bytes(state.network)}

    @classmethod
    def from_data(
        cls, data: dict[str, Any], parts: Any, module: Any = None
    ) -> tuple[Torch, TorchState]:
        if module is None and data["module"] is None:
            raise module_is_missing(data["class"])
        made = module
        if module is None:
            # A fit of the loaded model starts from the weights of the file.
            made = rebuild(data["module"])
            load_weights(made, parts["weights"], data["class"])
        form = cls.from_options({**data, "device": at_hand(data["device"])}, made)
        coding = FeatureCoding.from_data(data["coding"], parts)
        network = make_network(form.module, coding, form.device)
        load_weights(network, parts["weights"], data["class"])
        lr = saved.number(data["now"], "The learning rate of a network", above=0)
        return form, TorchState(
            coding,
            network,
            lr,
            None,
            saved.whole_number(data["round_number"], "The round of a network"),
        )

    # -- training ------------------------------------------------------------------------------
    def _inputs(self, state: TorchState, rows: Rows) -> Inputs:
        if rows not in state.inputs:
            state.inputs[rows] = inputs_of(state.coding.apply(rows), state.network, self.device)
        inputs: Inputs = state.inputs[rows]
        return inputs

    def _improve(self, training: Training, previous: TorchState, offsets: Floats | None) -> Trained:
        return training.improve(
            previous.network, offsets, previous.lr, previous.moments, previous.round_number
        )

    @staticmethod
    def _next(previous: TorchState, trained: Trained) -> TorchState:
        if trained.network is None:
            return (
                previous
                if previous.note or not trained.note
                else replace(previous, note=trained.note)
            )
        return replace(
            previous,
            network=trained.network,
            lr=trained.lr,
            moments=trained.moments,
            round_number=previous.round_number + 1,
            note=trained.note or previous.note,
        )


# -- in files ----------------------------------------------------------------------------------
# Layers that can be rebuilt, with the arguments they are made of.
LAYERS: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features", "bias"),
    "Embedding": ("num_embeddings", "embedding_dim", "padding_idx"),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "BatchNorm1d": ("num_features", "eps", "momentum", "affine", "track_running_stats"),
    "Dropout": ("p",),
    "Flatten": ("start_dim", "end_dim"),
    "Identity": (),
    "ReLU": (),
    "LeakyReLU": ("negative_slope",),
    "ELU": ("alpha",),
    "GELU": ("approximate",),
    "SiLU": (),
    "Tanh": (),
    "Sigmoid": (),
    "Softplus": ("beta", "threshold"),
}
_TYPES = ("float16", "bfloat16", "float32", "float64")


def describe(network: nn.Module) -> dict[str, Any] | None:
    """Describe the layers of a network for JSON; None if some of them are not well known."""
    types = {str(weight.dtype).removeprefix("torch.") for weight in network.parameters()}
    n_layers = sum(1 for _ in network.named_modules(remove_duplicate=False))
    is_shared = n_layers > sum(1 for _ in network.modules())
    layer = _layer(network)
    if layer is None or is_shared or len(types) > 1 or not types <= set(_TYPES):
        return None
    return {"network": layer, "type": next(iter(types), "float32")}


def _layer(layer: nn.Module) -> dict[str, Any] | None:
    from torch import nn

    kind = type(layer).__name__
    has_hooks = bool(layer._forward_hooks or layer._forward_pre_hooks)
    if has_hooks or type(layer) is not getattr(nn, kind, None):
        return None
    if kind == "Sequential":
        parts = [_layer(part) for part in layer.children()]
        named = [str(number) for number in range(len(parts))]
        if None in parts or [name for name, _ in layer.named_children()] != named:
            return None
        return {"layer": kind, "parts": parts}
    if kind not in LAYERS:
        return None
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.sparse):
        return None
    arguments: dict[str, Any] = {}
    for name in LAYERS[kind]:
        value = getattr(layer, name)
        if name == "bias":
            value = value is not None
        arguments[name] = list(value) if isinstance(value, tuple) else value
    return {"layer": kind, **arguments}


def rebuild(described: dict[str, Any]) -> nn.Module:
    """Make the network that `describe` described, without its weights."""
    torch = extra("torch", "A network", "gecasmo[torch]")
    if described["type"] not in _TYPES:
        raise SavedModelError(f"Weights of type {described['type']!r} are not known.")
    # Without memory: no random start is drawn, and none is taken for sizes that a file only claims.
    with torch.device("meta"):
        network: nn.Module = _rebuild(described["network"])
    return network.to(getattr(torch, described["type"]))


def _rebuild(layer: dict[str, Any]) -> nn.Module:
    from torch import nn

    kind = layer["layer"]
    if kind == "Sequential":
        return nn.Sequential(*map(_rebuild, layer["parts"]))
    if kind not in LAYERS:
        raise SavedModelError(f"The layer {kind!r} is not known to this version.")
    made: nn.Module = getattr(nn, kind)(**{name: layer[name] for name in LAYERS[kind]})
    return made


def weights_to_bytes(network: nn.Module) -> bytes:
    """Write all weights and buffers as safetensors."""
    from safetensors.torch import save

    # Copies, since two names may stand for the same memory.
    values = network.state_dict().items()
    return save({name: v.detach().cpu().clone().contiguous() for name, v in values})


def load_weights(network: nn.Module, data: bytes, name: str) -> None:
    """Put saved weights into a network that must be made for them."""
    load = extra("safetensors.torch", "A saved network", "gecasmo[torch]").load
    try:
        weights: dict[str, torch.Tensor] = load(data)
    except Exception as error:
        raise SavedModelError(f"The weights of its network cannot be read ({error}).") from None
    wanted = network.state_dict()
    wrong = [key for key in {**wanted, **weights} if _kind(wanted, key) != _kind(weights, key)]
    if wrong:
        key = wrong[0]
        raise SavedModelError(
            f"The weights are those of another network than this {name}: {key} is "
            f"{_kind(weights, key)} in the file, and {_kind(wanted, key)} in the module."
        )
    floats = [value for value in weights.values() if value.is_floating_point()]
    if not all(bool(value.isfinite().all()) for value in floats):
        raise SavedModelError(f"The weights of its {name} are not all numbers.")
    if any(key.endswith("running_var") and bool((w < 0).any()) for key, w in weights.items()):
        raise SavedModelError(f"A variance among the weights of its {name} is negative.")
    has_memory = not any(value.is_meta for value in wanted.values())
    own = weights if has_memory else {key: value.clone() for key, value in weights.items()}
    network.load_state_dict(own, assign=not has_memory)


def _kind(values: dict[str, torch.Tensor], key: str) -> str:
    if key not in values:
        return "not there"
    value = values[key]
    shape = " x ".join(map(str, value.shape)) or "a number"
    return f"{shape} of {str(value.dtype).removeprefix('torch.')}"
