"""Logs of a ranker that knows what is good: what is seldom shown is worse than what is usual."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

import gecasmo
from gecasmo import DBN, PBM, ClickLog, Empirical, Table, read_log

N_QUERIES, N_DOCS, N_SHOWN, N_PAGES = 40, 15, 6, 3_000
EXAMINED = np.array([1.0, 0.75, 0.55, 0.42, 0.33, 0.27])
SEEDS = [0, 1, 2]
ONE = Table(prior=Empirical(by=()))  # one prior for all rows


@cache
def shown_well(kind: str, seed: int, is_same: bool = False) -> tuple[ClickLog, np.ndarray]:
    """Pages with the best of 15 candidates on top, as far as the ranker knows, and how attractive
    these are, `[query, candidate]`; documents are the same in all queries, or of one query."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1.2, 1.0, (1 if is_same else N_QUERIES, N_DOCS))
    logits = np.broadcast_to(logits, (N_QUERIES, N_DOCS))
    rate = 1 / (1 + np.exp(-logits))
    query = rng.choice(N_QUERIES, N_PAGES, p=rng.dirichlet(np.full(N_QUERIES, 0.5)))
    score = logits[query] + rng.normal(0, 0.5, (N_PAGES, N_DOCS))
    docs = np.argsort(-score, axis=1)[:, :N_SHOWN]
    attracted = rng.random(docs.shape) < rate[query[:, None], docs]
    if kind == "PBM":
        seen = rng.random(docs.shape) < EXAMINED
    else:
        stays = rng.random(docs.shape) < 0.85
        stays &= ~(attracted & (rng.random(docs.shape) < 0.4))
        seen = np.hstack([np.ones((N_PAGES, 1), bool), np.cumprod(stays, axis=1)[:, :-1] > 0])
    name = docs if is_same else docs + N_DOCS * query[:, None]
    log = read_log(
        {
            "session": np.repeat(np.arange(N_PAGES), N_SHOWN),
            "query": np.repeat(query, N_SHOWN),
            "doc": name.ravel(),
            "rank": np.tile(np.arange(1, N_SHOWN + 1), N_PAGES),
            "click": (attracted & seen).ravel(),
        }
    )
    return log, rate


def model_of(kind: str, form: Any = None) -> Any:
    form = form or Table()
    if kind == "PBM":
        return PBM(attraction=form, examination=Table(fixed={1: 1.0}))
    return DBN(attraction=form, satisfaction=form)


@cache
def fitted(kind: str, seed: int, is_default: bool, is_same: bool = False) -> Any:
    form = Table() if is_default else ONE
    return model_of(kind, form).fit(shown_well(kind, seed, is_same)[0])


def of_pairs(model: Any, rate: np.ndarray) -> tuple[Any, np.ndarray]:
    """What a model says of the pairs of a log, and the truth."""
    frame = model.estimates("attraction").sort("query", "doc")
    return frame, rate[frame["query"].to_numpy(), frame["doc"].to_numpy() % N_DOCS]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["PBM", "DBN"])
def test_pairs_that_are_seldom_shown_are_not_overrated(kind: str, seed: int) -> None:
    _, rate = shown_well(kind, seed)
    bias, order = [], []
    for is_default in (True, False):
        frame, truth = of_pairs(fitted(kind, seed, is_default), rate)
        off = frame["probability"].to_numpy() - truth
        bias.append(abs(off[frame["trials"].to_numpy() < 5].mean()))
        order.append(spearmanr(frame["probability"].to_numpy(), truth)[0])
    assert bias[0] < bias[1] / 2
    assert bias[0] < 0.05
    assert order[0] > order[1] + 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_examination_is_found_within_its_errors(seed: int) -> None:
    """If low ranks had worse documents and nobody knew, they would seem to be less looked at."""
    frame = fitted("PBM", seed, True).estimates("examination").sort("rank")
    off = (frame["probability"].to_numpy() - EXAMINED)[1:] / frame["spread"].to_numpy()[1:]
    assert np.abs(off).max() < 4
    assert (frame["spread"].to_numpy()[1:] < 0.15).all()


@pytest.mark.parametrize("kind", ["PBM", "DBN"])
def test_documents_that_are_the_same_in_all_queries_are_found_to_be(kind: str) -> None:
    """As good as if the model had been told so, on pages that it has not seen."""
    log, _ = shown_well(kind, 0, is_same=True)
    train, test = log.split(0.3, seed=1)
    default, told, apart = (
        model_of(kind, form).fit(train) for form in (Table(), Table(key="doc"), ONE)
    )
    priors = default.states_["attraction"].priors
    effects = {effect.name: effect.spread for effect in priors.effects}
    lines = [
        abs(priors.slopes[0, part.start])
        for smooth, part in zip(priors.smooths, priors.parts(), strict=True)
        if smooth.name.endswith("of document")
    ]
    assert max([effects.get("doc", 0.0), *lines]) > 0.3
    assert default.score(test) > told.score(test) - 0.003
    assert default.score(test) > apart.score(test)


# -- pairs that were never shown ------------------------------------------------------------------
def never_shown(log: Any) -> dict[str, list[int]]:
    """All candidates of queries with many pages that no page has shown."""
    frame = log.to_frame()
    shown = set(frame.select("query", "doc").unique().rows())
    often = frame.group_by("query").len().filter(pl.col("len") > 600)["query"]
    pairs = [(q, d) for q in often for d in range(q * N_DOCS, (q + 1) * N_DOCS)]
    left = [pair for pair in pairs if pair not in shown]
    return {"query": [q for q, _ in left], "doc": [d for _, d in left]}


@pytest.mark.parametrize("kind", ["PBM", "DBN"])
def test_pairs_never_shown_are_worse_than_those_shown(kind: str) -> None:
    log, rate = shown_well(kind, 0)
    model = fitted(kind, 0, True)
    asked = never_shown(log)
    assert len(asked["query"]) > 10
    unseen = model.estimates("attraction", asked)["probability"].to_numpy()
    frame, _ = of_pairs(model, rate)
    assert unseen.max() < frame["probability"].mean()
    truth = rate[np.array(asked["query"]), np.array(asked["doc"]) % N_DOCS]
    one = fitted(kind, 0, False).estimates("attraction", asked)["probability"].to_numpy()
    assert abs(unseen.mean() - truth.mean()) < abs(one.mean() - truth.mean()) / 2


@pytest.mark.parametrize("kind", ["PBM", "DBN"])
@pytest.mark.parametrize("is_same", [False, True])
def test_a_saved_model_says_the_same_to_the_last_bit(
    kind: str, is_same: bool, tmp_path: Path
) -> None:
    log, _ = shown_well(kind, 0, is_same)
    model = fitted(kind, 0, True, is_same)
    model.save(tmp_path / "m.gecasmo")
    again = gecasmo.load(tmp_path / "m.gecasmo")
    asked = {"query": [0, 1, 2, 3, 999, 999], "doc": [14, 29, 3, 9_999, 4, 9_999]}
    for coin in model.forms:
        assert again.estimates(coin).equals(model.estimates(coin))
    assert again.estimates("attraction", asked).equals(model.estimates("attraction", asked))
    assert np.array_equal(again.log_likelihood(log), model.log_likelihood(log))
    new = read_log(
        {
            "session": [0, 0, 1, 1],
            "query": [0, 0, 999, 999],
            "doc": [9_998, 2, 1, 9_999],
            "rank": [1, 2, 1, 2],
            "click": [0, 1, 1, 0],
        }
    )
    assert np.array_equal(again.log_likelihood(new), model.log_likelihood(new))
