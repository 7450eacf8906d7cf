"""Which models are special cases of others, and whether the larger ones are needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparing_examples import ragged

from gecasmo import (
    CM,
    DBN,
    DCTR,
    EM,
    GCTR,
    PBM,
    RCTR,
    SDBN,
    UBM,
    ClickModel,
    Fixed,
    Logistic,
    Parameter,
    ShopDBN,
    Table,
    flip,
    read_log,
)
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.evaluation import compare
from gecasmo.evaluation.embedding import embedding
from gecasmo.evaluation.nested import NestedTests, nestings
from gecasmo.testing import plain_python

LOG = ragged(30, 2, weighted=False)


class TwoKinds(ClickModel):
    """Two kinds of users, whose coins have names that end alike."""

    attraction = Parameter("query", "doc")
    hurry = Parameter()
    continuation = Parameter()
    hasty_continuation = Parameter()

    def start(self, user: Any) -> None:
        user.in_a_hurry = flip(self.hurry)

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.attraction):
            user.click()
        if not flip(self.hasty_continuation if user.in_a_hurry else self.continuation):
            user.leave()


class OneKind(ClickModel):
    """One of these kinds."""

    attraction = Parameter("query", "doc")
    continuation = Parameter()

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.attraction):
            user.click()
        if not flip(self.continuation):
            user.leave()


NESTED = [
    (SDBN(), DBN(), "continuation = 1"),
    (CM(), SDBN(), "satisfaction = 1"),
    (GCTR(), RCTR(), "click_rate does not depend on rank"),
    (RCTR(), PBM(), "examination = click_rate; attraction = 1"),
    (PBM(), UBM(), "examination does not depend on last_click"),
    (DBN(), DBN(continuation=Table("rank")), "continuation does not depend on rank"),
    (DBN(continuation=Fixed(0.7)), DBN(), ""),
    (OneKind(), TwoKinds(), "hurry = 0"),
    (DBN(attraction=Logistic("rank")), DBN(attraction=Table("rank", "doc")), "doc"),
]
APART = [
    (PBM(), DBN()),
    (RCTR(), DCTR()),
    (DBN(continuation=Table("rank")), DBN()),
    (DBN(), SDBN()),
    (TwoKinds(), OneKind()),
    (DBN(), DBN(continuation=Fixed(0.7))),
    (PBM(), PBM(examination=Table(fixed={1: 1.0}))),
    (DBN(), ShopDBN()),  # which explains purchases, too
]


def test_special_cases_are_recognised() -> None:
    with plain_python():
        for smaller, larger, words in NESTED:
            found = embedding(smaller, larger, LOG)
            assert found is not None, (smaller.name, larger.name)
            assert found.words.endswith(words)
        for smaller, larger in APART:
            assert embedding(smaller, larger, LOG) is None, (smaller.name, larger.name)
        found = embedding(OneKind(), TwoKinds(), LOG)
    # What users do who are not there does not matter.
    assert found is not None
    assert found.coins["hasty_continuation"] is None


def by_rank(n_pages: int, seed: int, last: float) -> Any:
    """Pages of three results, of which the second and third are clicked ever less."""
    rng = np.random.default_rng(seed)
    click = rng.random((n_pages, 3)) < np.linspace(0.6, last, 3)
    return read_log(
        {
            "session": np.repeat(np.arange(n_pages), 3),
            "query": np.zeros(3 * n_pages, int),
            "doc": np.argsort(rng.random((n_pages, 3)), axis=1).ravel(),
            "rank": np.tile([1, 2, 3], n_pages),
            "click": click.ravel(),
        }
    )


def test_p_values_tell_what_is_needed() -> None:
    models: dict[str, Any] = {"GCTR": GCTR(), "RCTR": RCTR()}
    with plain_python():
        needed, not_needed = (
            compare(by_rank(25, 1, last), models, nested=True, replicates=19, bootstrap=0)
            for last in (0.05, 0.6)
        )
        again = compare(by_rank(25, 1, 0.05), models, nested=True, replicates=19, bootstrap=0)
    assert needed.nested is not None
    assert not_needed.nested is not None
    assert needed.nested.equals(again.nested)  # for one seed the same
    (row,) = needed.nested.to_dicts()
    assert (row["smaller"], row["larger"]) == ("GCTR", "RCTR")
    assert row["special_case"] == "click_rate does not depend on rank"
    assert row["p"] == pytest.approx(1 / 20)  # no simulated log gained as much
    assert row["statistic"] > 3 * row["expected"]
    assert row["p_error"] == pytest.approx(np.sqrt(0.05 * 0.95 / 19))
    (other,) = not_needed.nested.to_dicts()
    assert other["p"] > 0.05
    assert "Is the larger model better" in str(needed)
    assert needed.to_dict()["nested"] == needed.nested.to_dicts()
    assert compare(by_rank(12, 1, 0.3), ["DCTR"], bootstrap=0).nested is None


def test_the_statistic_is_twice_the_gain_in_likelihood() -> None:
    log = by_rank(15, 3, 0.3)
    free = {coin: Table(pseudo_counts=(0, 0)) for coin in ("attraction", "examination")}
    with plain_python():
        fits = [
            model.fit(log, EM(tol=1e-9), intervals=False).score(log) * log.n_sessions
            for model in (DCTR(click_rate=free["attraction"]), PBM(**free))
        ]
        models: dict[str, Any] = {"DCTR": DCTR(), "PBM": PBM()}
        (pair,) = nestings(models, log, True, [])
        line = NestedTests(log, 19, 0, EM(tol=1e-9), enough=1).run(models, pair, None, [])
    assert line["statistic"] == pytest.approx(2 * (fits[1] - fits[0]), abs=1e-4)
    # A clear answer needs no more logs, and is the share of those that gained as much.
    assert line["p"] == pytest.approx(1 / line["simulated"]) or line["simulated"] == 19


def test_steps_are_told_to_their_end() -> None:
    told: list[tuple[str, int, int]] = []
    with plain_python():
        compare(
            by_rank(15, 2, 0.3),
            ["GCTR", "RCTR"],
            nested=True,
            replicates=19,
            bootstrap=0,
            tell=lambda *step: told.append(step),
        )
    assert any("testing GCTR in RCTR, log 2" in words for words, _, _ in told)
    done = [step for _, step, _ in told]
    assert done == sorted(done)
    assert told[-1][1] == told[-1][2]
    assert max(done[:-1]) <= told[-1][2]


def test_what_cannot_be_tested_is_said() -> None:
    log = by_rank(10, 4, 0.3)

    def refused(
        models: Any, told: str, kind: Any = ModelError, data: Any = log, **asked: Any
    ) -> Any:
        with plain_python(), pytest.raises(kind, match=told):
            compare(data, models, bootstrap=0, **{"nested": True, "replicates": 19} | asked)

    refused(["RCTR", "DCTR"], "No model here is a special case of another: RCTR and DCTR")
    refused(["RCTR"], "No model here is a special case of another.$")
    refused(["RCTR", "DCTR"], "no such model here", nested=[("RCTR", "DBN")])
    refused(["RCTR", "DCTR"], "pairs of names are wanted", nested=["RCTR"])
    refused(["RCTR", "DCTR"], "it is the same model", nested=[("RCTR", "RCTR")])
    refused(["DBN", "ShopDBN"], "one explains click", nested=[("DBN", "ShopDBN")])
    refused(["RCTR", "GCTR"], "at least 19", replicates=5)
    refused(["RCTR", "GCTR"], r"compare\(loo=...\) goes with nested", nested=False, loo=True)
    # A larger model that fits worse cannot be one.
    refused(["RCTR", "GCTR"], "GCTR fits the log worse than RCTR", nested=[("RCTR", "GCTR")])
    weighted = ragged(20, 2)
    refused(["GCTR", "RCTR"], "whole numbers", ClickLogError, weighted)
    with plain_python():
        found = compare(log, ["CM", "SDBN"], bootstrap=0, nested=True, replicates=19)
    assert found.nested is not None
    assert found.nested["p"].to_list() == [None]
    assert any("CM in SDBN was not tested" in note for note in found.notes)
    same = {"one": RCTR(), "other": RCTR(), "GCTR": GCTR()}
    with plain_python():
        found = compare(log, same, bootstrap=0, nested=True, replicates=19)
    assert any("say the same of all pages" in note for note in found.notes)
    assert found.nested is not None
    assert len(found.nested) == 2
    with plain_python():
        said = compare(log, ["RCTR", "GCTR"], bootstrap=0, nested=[("GCTR", "RCTR")], replicates=19)
    assert said.nested is not None
    assert not any("taken as said" in note for note in said.notes)  # it was found, too
