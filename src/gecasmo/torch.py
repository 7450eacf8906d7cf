"""Click models as losses: the log-likelihood of any compiled model, for your own training loop.

import gecasmo.torch

frames = gecasmo.torch.rows(model, log)                 # what the logits belong to
loss = -gecasmo.torch.log_likelihood(model, log, {"attraction": logits}) / len(log)
loss.backward()
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ModelError, extra
from gecasmo.estimation import Expectation
from gecasmo.estimation.coins import as_weights
from gecasmo.logs import ClickLog
from gecasmo.model import Model

if TYPE_CHECKING:
    import torch
else:
    torch = extra("torch", "gecasmo.torch", "gecasmo[torch]")

__all__ = ["Likelihood", "log_likelihood", "rows"]

Floats = NDArray[np.float64]


class Likelihood:
    """A log, encoded once for a model, whose likelihood can be asked for many logits.

    Parameters
    ----------
    model : Model
        Any model; it need not be fitted.
    log : ClickLog
    threads : int, optional
        By default all processors.

    Attributes
    ----------
    rows : dict of data frames
        By coin, the keys (and the features that its form reads) of the rows, in the order in
        which their logits are wanted.

    Examples
    --------
    >>> import torch, gecasmo.torch
    >>> from gecasmo import GCTR, read_log
    >>> log = read_log({"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2], "click": [1, 0]})
    >>> likelihood = gecasmo.torch.Likelihood(GCTR(), log)
    >>> logits = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    >>> total = likelihood({"click_rate": logits})
    >>> round(float(total), 4)
    -1.3863
    """

    def __init__(self, model: Model, log: ClickLog, threads: int | None = None) -> None:
        if model.traced_automaton.observes:
            raise ModelError(
                f"{model.name} observes numbers, whose densities have no logits: here are models "
                "of signals alone."
            )
        encoded = model.encode(log, "e_step")
        library = model.library(encoded.plan, counting=True)
        self.model = model
        self.expectation = Expectation(encoded, library, threads=threads)
        self._rows = dict(zip(model.forms, encoded.rows, strict=True))
        self.rows: dict[str, pl.DataFrame] = {}
        for coin, rows in self._rows.items():
            features = [c for c in model.forms[coin].columns if c not in rows.keys]
            more = rows.features(features).get_columns() if features else []
            self.rows[coin] = rows.frame.with_columns(more) if more else rows.frame

    def __call__(self, logits: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The log-likelihood of all sessions together, by their weights.

        `logits` has a tensor per coin, with a logit for each of its rows; coins that are not
        there are taken as the model has them.
        """
        from gecasmo.estimation.autograd import differentiable_log_likelihood

        self._check(logits)
        numbers = {coin: number for number, coin in enumerate(self._rows)}
        flat = {numbers[coin]: values.reshape(-1) for coin, values in logits.items()}
        others = {number: self._own(coin) for coin, number in numbers.items() if coin not in logits}
        return differentiable_log_likelihood(self.expectation, flat, others)

    def _own(self, coin: str) -> Floats:
        form, rows = self.model.forms[coin], self._rows[coin]
        if self.model.states_ is not None:
            state = self.model.states_[coin]
        elif form.constant is not None:
            state = form.begin(rows, None)
        else:
            raise ModelError(
                f"The logits of '{coin}' are missing, and the model has no probabilities of its "
                "own: give them, fit the model, or make the coin Fixed."
            )
        return as_weights(form.probabilities(state, rows, coin))

    def _check(self, logits: Mapping[str, Any]) -> None:
        for coin, values in logits.items():
            if coin not in self._rows:
                raise ModelError(
                    f"{self.model.name} has no coin '{coin}'. Its coins are: "
                    f"{', '.join(self._rows)}."
                )
            if not isinstance(values, torch.Tensor) or not values.is_floating_point():
                raise ModelError(f"The logits of '{coin}' must be a tensor of floats.")
            n = len(self._rows[coin])
            if values.shape not in ((n,), (n, 1)):
                raise ModelError(
                    f"The logits of '{coin}' have the shape {tuple(values.shape)}; its {n:,} rows "
                    f"need ({n},). gecasmo.torch.rows(model, log) says which rows these are."
                )
            if not bool(values.isfinite().all()):
                raise ModelError(f"The logits of '{coin}' are not all finite.")


_KEPT = 2
_Key = tuple[int, ...]
_known: WeakKeyDictionary[Model, OrderedDict[_Key, tuple[ClickLog, Likelihood]]] = (
    WeakKeyDictionary()
)


def _likelihood(model: Model, log: ClickLog) -> Likelihood:
    """The last few logs of a model stay encoded: one to train on, one to look at."""
    known = _known.setdefault(model, OrderedDict())
    # Another form or another frame of features makes other rows.
    parts = (*model.forms.values(), *model.features_.values())
    key = (id(log), *map(id, parts))
    if key not in known:
        while len(known) >= _KEPT:
            known.popitem(last=False)
        # A copy, so that what is kept does not keep the model itself alive.
        known[key] = (log, Likelihood(model.copy(), log))
    known.move_to_end(key)
    likelihood = known[key][1]
    likelihood.model.states_ = model.states_
    return likelihood


def log_likelihood(model: Model, log: ClickLog, logits: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The log-likelihood of a log under given logits, differentiable once.

    Parameters
    ----------
    model : Model
        Any model: of the zoo, your own, of matrices, or loaded. It need not be fitted.
    log : ClickLog
    logits : dict of tensors
        By coin, a logit for each of its rows in the order of `rows(model, log)`. Coins that are
        not there are taken as the model has them.

    Returns
    -------
    Tensor
        The total over sessions, by their weights, in the type of the logits.
    """
    return _likelihood(model, log)(logits)


def rows(model: Model, log: ClickLog) -> dict[str, pl.DataFrame]:
    """By coin, the rows that its logits belong to: key columns, and features of its form."""
    return _likelihood(model, log).rows
