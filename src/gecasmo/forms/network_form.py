"""What forms with a network behind a coin have in common, whatever the network reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError, either
from gecasmo.forms.form import Bools, Floats, Form
from gecasmo.forms.networks import squares

if TYPE_CHECKING:
    from torch import nn


class Coding(Protocol):
    """How rows are put before a network."""

    def known(self, rows: Rows) -> Bools:
        """Tell of which rows everything was there in the fit."""


class NetworkState(Protocol):
    """A network with its weights, and how rows are put before it."""

    @property
    def coding(self) -> Coding:
        """How rows are put before it."""

    @property
    def network(self) -> nn.Module:
        """The network."""


class NetworkForm(Form):
    """A form whose probabilities are logits of a network."""

    recipe: Any  # how it is trained, with `weight_decay`

    def answers(self, state: Any, rows: Rows) -> Floats:
        """Ask the network for the logits of rows."""
        raise NotImplementedError

    def predict(self, state: NetworkState, rows: Rows) -> Floats:
        from scipy.special import expit

        probability: Floats = expit(self.logits(state, rows))
        return probability

    def logits(self, state: NetworkState, rows: Rows) -> Floats:
        """Give the logits of rows; what is no number is refused."""
        logits = self.answers(state, rows)
        broken = ~np.isfinite(logits)
        if broken.any():
            first = rows.features(self.columns).row(int(np.argmax(broken)), named=True)
            raise ModelError(
                f"The module of {self!r} answers {int(broken.sum()):,} of {len(rows):,} rows with "
                f"something that is no number (first: {first})."
            )
        return logits

    def known(self, state: NetworkState, rows: Rows) -> Bools:
        """Tell of which rows every level was there in the fit."""
        return state.coding.known(rows)

    def penalty(self, state: NetworkState) -> float:
        return float(-0.5 * self.recipe.weight_decay * squares(state.network))

    def summary(self, state: NetworkState) -> str:
        return f"{sum(weight.numel() for weight in state.network.parameters()):,} weights"

    def to_frame(self, state: NetworkState) -> pl.DataFrame:
        """Show the weights by name, with their shapes."""
        weights = dict(state.network.named_parameters())
        return pl.DataFrame(
            {
                "weights": list(weights),
                "shape": [" x ".join(map(str, value.shape)) or "1" for value in weights.values()],
                "number": [value.numel() for value in weights.values()],
            },
            schema={"weights": pl.String, "shape": pl.String, "number": pl.Int64},
        )


def module_is_missing(kind: str) -> SavedModelError:
    """The error for a file that has the weights of a network, and not the network."""
    return SavedModelError(
        f"Its network is a {kind}, of which a file can only hold the weights. "
        + either(
            "Give the module: gecasmo.load(path, modules={coin: module}).",
            "It can be loaded in Python only, with its module.",
        )
    )
