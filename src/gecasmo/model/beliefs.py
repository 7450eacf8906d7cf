"""What a fitted model believes: draws from its posterior, for it and for others such as ArviZ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import ModelError
from gecasmo.forms import FormState
from gecasmo.hashes import mixed

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]


def draws_of(model: Model, coin: str | None, n: int, seed: int) -> Any:
    """See `Model.draws`."""
    states = model.states()
    if coin is None:
        if model.draws_ is None:
            raise ModelError(
                f"This {model.name} has no draws of its own: fit it with Gibbs(), or name a coin, "
                f"such as draws({next(iter(model.forms))!r}), to draw from what is believed of its "
                "rows."
            )
        return model.draws_
    if coin not in states:
        raise ModelError(
            f"{model.name} has no coin '{coin}'. Its coins are: {', '.join(model.forms)}."
        )
    if model.draws_ is not None and coin in model.draws_.rows:
        return model.draws_.rows[coin]
    if n < 1:
        raise ModelError(f"draws(n={n}): at least one is needed.")
    form, state = model.forms[coin], states[coin]
    if not form.has_posterior and form.constant is None:
        raise ModelError(
            f"The form {form!r} of '{coin}' has no posterior of rows to draw from; a Table has."
        )
    rng = np.random.default_rng(seed)
    drawn = [_probability(form, form.drawn(state, rng)) for _ in range(n)]
    return np.stack(drawn)[None]


def _probability(form: Any, state: FormState) -> Floats:
    found: Floats = form.to_frame(state)["probability"].to_numpy()
    return found


def drawn_states(model: Model, most: int, seed: int) -> Iterator[dict[str, FormState]]:
    """At most so many joint draws of the states of all coins: those of a fit by Gibbs, else each
    row from what is believed of it."""
    states = model.states()
    if model.draws_ is not None:
        for rows in model.draws_.chosen(most):
            yield {
                coin: replace(state, probability=rows[coin]) if coin in rows else state
                for coin, state in states.items()
            }
        return
    for number in range(most):
        rng = np.random.default_rng(mixed(seed, number))
        yield {coin: model.forms[coin].drawn(state, rng) for coin, state in states.items()}
