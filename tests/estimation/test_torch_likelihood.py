"""Click models as losses: whole zoo, start coins, pages by clicks above, a training loop."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import gecasmo.torch
from gecasmo import DBN, EM, ClickLog, ClickModel, Parameter, Table, flip, read_log
from gecasmo.models import CATALOGUE
from gecasmo.testing import plain_python
from strategies.zoo import SHAPES, with_columns_of


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    """Small logs; nothing needs to be compiled."""
    with plain_python():
        yield


def small_log(n_pages: int = 12, length: int = 3, **columns: Any) -> ClickLog:
    rng = np.random.default_rng(0)
    n = n_pages * length
    return read_log(
        {
            "session": np.repeat(np.arange(n_pages), length),
            "query": np.repeat(np.arange(n_pages) % 2, length),
            "doc": np.concatenate([rng.permutation(4)[:length] for _ in range(n_pages)]),
            "rank": np.tile(np.arange(1, length + 1), n_pages),
            "click": rng.random(n) < 0.3,
            **columns,
        }
    )


class Moody(ClickModel):
    """A coin flipped before the first result, one by the page, and one twice at a result."""

    mood = Parameter("query")
    attraction = Parameter("doc")
    patience = Parameter("clicks_above")

    def start(self, user: Any) -> None:
        user.keen = flip(self.mood)

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.attraction) and (user.keen or flip(self.attraction)):
            user.click()
        if not flip(self.patience):
            user.leave()


def random_logits(model: Any, log: ClickLog, dtype: Any = torch.float64) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    return {
        coin: torch.randn(len(frame), generator=generator, dtype=dtype).requires_grad_()
        for coin, frame in gecasmo.torch.rows(model, log).items()
    }


# What counting estimators rule out depends on the clicks; they have counts of their own.
ZOO = [CATALOGUE[name] for name in SHAPES if not name.startswith("Counting")]


@pytest.mark.parametrize("model", [*ZOO, Moody])
def test_gradients_are_those_of_finite_differences(model: type[ClickModel]) -> None:
    coins = dict.fromkeys(model._parameters(), 0.5)
    made = model()
    log = model.with_values(**coins).simulate(with_columns_of(made, small_log()), seed=2)
    logits = random_logits(made, log)

    def total(*values: torch.Tensor) -> torch.Tensor:
        given = dict(zip(logits, values, strict=True))
        return gecasmo.torch.log_likelihood(made, log, given)

    assert torch.autograd.gradcheck(total, tuple(logits.values()))


def test_weights_and_folded_pages_count() -> None:
    weight = np.repeat(np.arange(1.0, 13.0), 3)
    log = read_log(small_log(weight=weight).to_frame(), weight="weight")
    logits = random_logits(DBN(), log)
    total = gecasmo.torch.log_likelihood(DBN(), log, logits)
    frames = gecasmo.torch.rows(DBN(), log)
    values = {
        coin: frame.with_columns(probability=torch.sigmoid(logits[coin]).detach().numpy())
        if frame.width
        else float(torch.sigmoid(logits[coin]).detach()[0])
        for coin, frame in frames.items()
    }
    pages = DBN.with_values(**values).log_likelihood(log)
    assert float(total.detach()) == pytest.approx(float(pages @ log.weight), rel=1e-12)


def test_a_training_loop_ends_where_em_does() -> None:
    log = small_log(60)
    free = {"pseudo_counts": (0, 0)}
    em = DBN(attraction=Table(key="doc", **free), satisfaction=0.5, continuation=Table(**free)).fit(
        log, EM(tol=1e-12, max_iter=5000)
    )
    model = DBN(attraction=Table(key="doc"), satisfaction=0.5)
    likelihood = gecasmo.torch.Likelihood(model, log)
    logits = {
        coin: torch.zeros(len(likelihood.rows[coin]), dtype=torch.float64, requires_grad=True)
        for coin in ("attraction", "continuation")
    }
    optimizer = torch.optim.LBFGS(logits.values(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = -likelihood(logits) / log.n_sessions
        value.backward()
        return value

    optimizer.step(loss)
    assert -float(loss().detach()) == pytest.approx(
        em.report_.log_likelihood / log.n_sessions, abs=1e-4
    )


def test_a_second_derivative_is_refused() -> None:
    log = small_log()
    logits = random_logits(DBN(), log)
    total = gecasmo.torch.log_likelihood(DBN(), log, logits)
    (slope,) = torch.autograd.grad(total * total, logits["attraction"], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_what_is_remembered_of_a_model_goes_with_it() -> None:
    log, model = small_log(), DBN()
    gecasmo.torch.log_likelihood(model, log, random_logits(model, log))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
