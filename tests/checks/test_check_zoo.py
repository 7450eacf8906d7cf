"""What no clicks can tell of the younger models of the zoo, and where fits may end elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checked_logs import pages_log, random_clicks

from gecasmo import BSS, DBN, ClickLog, Intents, Picky, Table, TrustPBM, TwoRate
from gecasmo.checks import check
from gecasmo.testing.subject import random_log


@pytest.fixture(scope="module")
def log() -> ClickLog:
    rng = np.random.default_rng(1)
    pages = [[str(d) for d in rng.permutation(list("abcde"))[:3]] for _ in range(30)]
    return pages_log(pages, random_clicks(pages, 0.4, 2))


def by_doc(make: Any, **forms: Any) -> Any:
    coins = {"attraction": Table(key="doc")}
    return make(**coins, **forms)


def found(log: ClickLog, model: Any, about: str) -> list[Any]:
    return [one for one in check(log, model).findings if one.topic == about]


ANCHORS = {"examination": Table(fixed={1: 1.0}), "trust": Table(fixed={3: 0.0})}


def test_trust_bias_needs_two_anchors(log: ClickLog) -> None:
    said = found(log, by_doc(TrustPBM), "product")
    assert [(one.severity, one.count) for one in said] == [("warning", 2)]
    assert "examination, attraction and trust can make up for each other" in said[0].message
    one_short = found(log, by_doc(TrustPBM, examination=ANCHORS["examination"]), "product")
    assert [one.count for one in one_short] == [1]
    fixed = found(log, by_doc(TrustPBM, **ANCHORS), "product")
    assert [one.severity for one in fixed] == ["info"]


def test_noise_clicks_need_to_be_known_or_explained(log: ClickLog) -> None:
    said = found(log, by_doc(BSS), "product")
    assert [(one.severity, one.count) for one in said] == [("warning", 2)]
    assert found(log, by_doc(BSS, care=0.9, noise=0.1), "product")[0].severity == "info"


def test_mixtures_have_local_optima_and_others_have_none(log: ClickLog) -> None:
    intents = Intents(attraction=Table(key="doc"), intent=Table(key=()))
    (said,) = found(log, intents, "local optima")
    assert said.severity == "warning"
    assert "which part is called what means nothing" in said.message
    assert "start 5 times at random" in said.advice
    (said,) = found(log, by_doc(Picky), "local optima")
    assert said.severity == "info"
    assert "which pickiness decides before the first result" in said.message
    assert "EM(restarts=5)" in said.advice
    for model in (by_doc(TwoRate), by_doc(DBN, satisfaction=Table(key="doc"))):
        assert not found(log, model, "local optima")


def test_intents_have_no_scale_of_their_own(log: ClickLog) -> None:
    """Also where pages are so few that the shares of intents cannot be told either."""
    truth = Intents.with_values(intent=0.5, examination=0.5, attraction=0.5)
    few = truth.simulate(random_log(Intents(), [3] * 8, seed=1, n_docs=20), seed=2)
    for pages, model in ((log, by_doc(Intents, intent=Table(key=()))), (few, Intents())):
        (said,) = found(pages, model, "product")
        assert said.severity == "warning"
        assert "cannot be estimated from any clicks unless something is given" in said.message
    anchored = by_doc(Intents, intent=Table(key=()), examination=Table(fixed={(1, 0): 1.0}))
    assert [one.severity for one in found(log, anchored, "product")] == ["info"]
