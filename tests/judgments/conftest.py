"""Judgment tests run kernels as plain Python and have a model whose estimates they choose."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from judgment_examples import Believer, fitted_dbn, searches

from gecasmo.judgments import pairs
from gecasmo.model.drawn_estimates import possible_estimates
from gecasmo.testing import plain_python


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    with plain_python():
        yield


@pytest.fixture(autouse=True)
def chosen_estimates_err_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates that a test chose have no errors in common."""

    def possible(model, coin, rows, n_draws):
        if not isinstance(model, Believer):
            return possible_estimates(model, coin, rows, n_draws)
        found, shape = model.estimates(coin, rows=rows), (len(rows), n_draws)
        told = (found[name].to_numpy()[:, None] for name in ("probability", "spread"))
        return tuple(np.broadcast_to(own, shape) for own in told)

    monkeypatch.setattr(pairs, "possible_estimates", possible)


@pytest.fixture(scope="session")
def log():
    return searches()


@pytest.fixture(scope="session")
def model(log):
    return fitted_dbn(log)


@pytest.fixture
def believer() -> Believer:
    return Believer.example()
