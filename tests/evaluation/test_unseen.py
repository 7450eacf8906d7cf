"""What a model was never fitted to is told by coin, by everything that answers about a log."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gecasmo import DBN, PBM, ClickLog, read_log
from gecasmo.testing import plain_python


def pages(queries: list[str], docs: list[str], n: int = 12, weight: float = 1.0) -> ClickLog:
    rng = np.random.default_rng(3)
    rows = [
        (f"{queries}{page}", queries[page % len(queries)], doc, rank, bool(rng.random() < 0.4))
        for page in range(n)
        for rank, doc in enumerate(docs, start=1)
    ]
    frame = pl.DataFrame(rows, ["session", "query", "doc", "rank", "click"], orient="row")
    return read_log(frame.with_columns(n=pl.lit(weight)), weight="n")


@pytest.fixture(scope="module")
def dbn() -> DBN:
    with plain_python():
        return DBN().fit(pages(["a", "b"], ["x", "y", "z"]), progress=False)


@pytest.mark.parametrize("queries", [["c"], ["a"], ["a", "c"]])
def test_an_evaluation_says_which_share_is_unseen(dbn: DBN, queries: list[str]) -> None:
    log = pages(queries, ["x", "y", "z"], weight=2.0)
    with plain_python():
        found = dbn.evaluate(log)
    share = queries.count("c") / len(queries)
    assert found.unseen == {"attraction": share, "satisfaction": share, "continuation": 0.0}
    said = " ".join(str(found).split())
    told = f"{100 * share:.0f} % of the results have no row of attraction and satisfaction"
    assert (told in said) == (share > 0)
    assert ("answers from its prior alone" in said) == (share > 0)


def test_coins_with_other_shares_are_told_apart() -> None:
    log = pages(["a"], ["x", "y"])
    with plain_python():
        model = PBM().fit(log, progress=False)
        found = model.evaluate(pages(["a"], ["x", "y", "z", "w"]))
    assert found.unseen == {"examination": 0.5, "attraction": 0.5}
    with plain_python():
        lower = model.evaluate(pages(["b"], ["x", "y", "z", "w"]))
    said = " ".join(str(lower).split())
    assert "50 % of the results have no row of examination and 100 % of the results" in said


def test_sums_of_parts_are_those_of_the_whole(dbn: DBN) -> None:
    from gecasmo.evaluation import EvaluationSums, finished

    log = pages(["a", "c", "d"], ["x", "y", "v"])
    with plain_python():
        whole = dbn.evaluate(log)
        halves = [log.take(np.arange(5)), log.take(np.arange(5, 12))]
        one, two = (EvaluationSums.of(dbn, half, "raise") for half in halves)
    assert finished(one + two, "DBN", "raise").unseen == pytest.approx(whole.unseen)


@pytest.mark.parametrize("kind", ["conditional", "marginal"])
def test_predictions_say_so_too(dbn: DBN, kind: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with plain_python():
        wrote = dbn.predict(pages(["a", "c"], ["x", "y"]), tmp_path / "p.csv", kind=kind)
        known = dbn.predict(pages(["a"], ["x", "y"]), tmp_path / "q.csv", kind=kind)
    assert wrote.unseen == {"attraction": 0.5, "satisfaction": 0.5, "continuation": 0.0}
    assert "50 % of the results have no row of attraction" in " ".join(str(wrote).split())
    assert "not in the fit" not in str(known)
    assert "weight" not in pl.read_csv(tmp_path / "q.csv").columns
