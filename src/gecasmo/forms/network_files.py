"""Networks in files: well-known layers as JSON, weights as safetensors; nothing is ever run.

A module of well-known layers is rebuilt from the file. Of any other only the weights are kept,
and whoever loads it has to bring the module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gecasmo.errors import SavedModelError, extra

if TYPE_CHECKING:
    import torch
    from torch import nn

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
    # Made without memory first, so that no random start is drawn: weights come from the file.
    with torch.device("meta"):
        network: nn.Module = _rebuild(described["network"])
    return network.to(getattr(torch, described["type"])).to_empty(device="cpu")


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
    network.load_state_dict(weights)


def _kind(values: dict[str, torch.Tensor], key: str) -> str:
    if key not in values:
        return "not there"
    value = values[key]
    shape = " x ".join(map(str, value.shape)) or "a number"
    return f"{shape} of {str(value.dtype).removeprefix('torch.')}"
