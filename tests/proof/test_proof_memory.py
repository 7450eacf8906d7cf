"""No kernel reads what it has not written, and a coin of the result above is that of the result
above."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gecasmo.compiler import Automaton, Edge, Literal
from gecasmo.model.click_model import AutomatonModel
from strategies.cases import Case, cases, make_plain
from strategies.checks import close_to, many
from strategies.zoo import ZooCase

_empty = np.empty


def poisoned(shape: Any, dtype: Any = float, **options: Any) -> Any:
    """Memory in which everything that was not written is no number."""
    array = _empty(shape, dtype, **options)
    if array.dtype.kind == "f":
        array[...] = np.nan
    return array


def answers(model: Any, log: Any) -> list[Any]:
    posterior = model.posterior(log)
    found = [
        model.log_likelihood(log),
        model.predict_clicks(log),
        model.predict_conditional_clicks(log),
        *(posterior[c].to_numpy() for c in posterior.columns if posterior[c].dtype.is_float()),
    ]
    for augmentation in ("minimal", "full"):
        for frame in model.expected_counts(log, augmentation=augmentation).values():
            found.append(frame.select("heads", "tails").to_numpy())
    for told in (model.decode(log), model.sample_stories(log, seed=4)):
        found.append(told["reached"].to_numpy())
    return found


@many(30)
@given(case=cases())
def test_kernels_read_only_what_they_have_written(case: Case) -> None:
    wanted = answers(case.model, case.log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "empty", poisoned)
        found = answers(case.model, case.log)
    for one, other in zip(found, wanted, strict=True):
        close_to(one, other)


def lagged_sdbn() -> AutomatonModel:
    """SDBN as the paper writes it: satisfaction falls on the way to the next result."""
    a, no = Literal("attraction", True), Literal("attraction", False)
    done, more = Literal("satisfaction", True, 1), Literal("satisfaction", False, 1)
    edges = (
        Edge(0, 1, ("click",), (a,)),
        Edge(0, 0, (), (no,)),
        Edge(1, 2, (), (done,)),
        Edge(1, 1, ("click",), (more, a)),
        Edge(1, 0, (), (more, no)),
        Edge(2, 2),
    )
    automaton = Automaton(
        parameters=("attraction", "satisfaction"),
        signals=("click",),
        states=("reading", "clicked above", "gone"),
        initial=(Edge(-1, 0),),
        edges=edges,
        gone=2,
    )
    keys = {"attraction": ("query", "doc"), "satisfaction": ("query", "doc")}
    return AutomatonModel(automaton, keys)


@pytest.mark.parametrize("is_poisoned", [False, True])
def test_a_coin_of_the_result_above(is_poisoned: bool) -> None:
    case = ZooCase("SDBN", seed=40, n_pages=30)
    model = case.model()
    tables = {coin: frame.drop("heads", "tails") for coin, frame in model.parameters.items()}
    lagged = make_plain(lagged_sdbn().with_values(**tables))
    with pytest.MonkeyPatch.context() as patch:
        if is_poisoned:
            patch.setattr(np, "empty", poisoned)
        close_to(lagged.log_likelihood(case.log), model.log_likelihood(case.log))
        close_to(lagged.predict_clicks(case.log), model.predict_clicks(case.log))
        close_to(
            lagged.predict_conditional_clicks(case.log), model.predict_conditional_clicks(case.log)
        )
        found, wanted = lagged.expected_counts(case.log), model.expected_counts(case.log)
        for coin, frame in wanted.items():
            keys = ["query", "doc"]
            close_to(
                found[coin].sort(keys).select("heads", "tails").to_numpy(),
                frame.sort(keys).select("heads", "tails").to_numpy(),
            )
        assert np.isfinite(lagged.posterior(case.log)["satisfaction_heads"].to_numpy()).all()
        lagged.decode(case.log)
        lagged.sample_stories(case.log)
