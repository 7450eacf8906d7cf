"""Against human judgments: formulas by hand, files, and what is undefined."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from comparing_examples import known_models, ragged
from hypothesis import given, settings
from hypothesis import strategies as st

from gecasmo import EM, GCTR, PBM, Logistic, read_log
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.evaluation import compare
from gecasmo.evaluation.relevance import area, kendall, ndcg

FEW = EM(max_iter=2, tol=0)
JUDGED = pl.DataFrame(
    {
        "query": ["q0"] * 5 + ["q1"] * 3 + ["q2"] * 2 + ["q3"] * 2,
        "doc": ["d0", "d1", "d2", "d3", "d4", "d0", "d1", "d2", "d3", "d4", "d1", "d2"],
        "grade": [3, 0, 1, 2, 0, 1, 0, 4, 0, -2, 2, 2],
    }
)


def hand_ndcg(grade: Any, score: Any, at: int) -> float:
    def gain(grades: list[int]) -> float:
        return sum((2**g - 1) / np.log2(place + 2) for place, g in enumerate(grades[:at]))

    order = sorted(range(len(grade)), key=lambda i: -score[i])
    return gain([grade[i] for i in order]) / gain(sorted(grade, reverse=True))


def hand_area(grade: Any, score: Any) -> float:
    wins = [
        1.0 if score[i] > score[j] else 0.5 if score[i] == score[j] else 0.0
        for i, j in itertools.product(range(len(grade)), repeat=2)
        if grade[i] > 0 >= grade[j]
    ]
    return float(np.mean(wins))


def hand_tau(grade: Any, score: Any) -> float:
    pairs = list(itertools.combinations(range(len(grade)), 2))
    a = np.array([np.sign(grade[i] - grade[j]) for i, j in pairs])
    b = np.array([np.sign(score[i] - score[j]) for i, j in pairs])
    return float((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()))


graded = st.lists(st.integers(0, 4), min_size=2, max_size=7).filter(lambda g: max(g) > 0)


@settings(deadline=None, max_examples=50)
@given(graded, st.integers(0, 10_000), st.integers(1, 8))
def test_formulas_by_hand(grade: list[int], seed: int, at: int) -> None:
    score = np.random.default_rng(seed).random(len(grade))
    grades = np.array(grade)
    assert ndcg([(grades, score)], at, 0) == pytest.approx(hand_ndcg(grade, score, at), rel=1e-9)
    if min(grade) == 0:
        assert area(grades > 0, score) == pytest.approx(hand_area(grade, score))
        rough = np.round(score, 1)  # some are level
        assert area(grades > 0, rough) == pytest.approx(hand_area(grade, rough))
    if len(set(grade)) > 1:
        assert kendall(grades, score) == pytest.approx(hand_tau(grade, score))


def test_scores_that_differ_in_the_last_digits_are_not_level() -> None:
    """trec_eval would take them for equal in 32 bits."""
    grade = np.array([0, 3])
    for seed in range(5):
        assert ndcg([(grade, np.array([0.5, 0.5 + 1e-12]))], 2, seed) == 1
        assert ndcg([(grade, np.array([0.5 + 1e-12, 0.5]))], 2, seed) < 1


def test_level_documents_are_ordered_by_lot_not_by_name() -> None:
    grade, level = np.array([3, 2, 1, 0, 0]), np.zeros(5)
    drawn = {ndcg([(grade, level)], 5, seed) for seed in range(20)}
    assert len(drawn) > 5
    assert ndcg([(grade, level)], 5, 1) == ndcg([(grade, level)], 5, 1)
    assert kendall(grade, level) == 0
    assert area(grade > 0, level) == 0.5


def compared(judged: Any, models: Any = None, **options: Any) -> Any:
    return compare(
        ragged(30, 1),
        models or known_models(),
        heldout=ragged(20, 2),
        judgments=judged,
        bootstrap=0,
        method=FEW,
        **options,
    )


def test_a_model_orders_by_what_it_calls_relevance() -> None:
    found = compared(JUDGED, ndcg_at=3)
    table = {row["model"]: row for row in found.table.to_dicts()}
    for name, coins in (("DBN", ("attraction", "satisfaction")), ("PBM", ("attraction",))):
        model = known_models()[name]
        score = np.prod([model.probability(coin, JUDGED) for coin in coins], axis=0)
        parts = {
            query: [(max(g, 0), s) for q, g, s in zip(JUDGED["query"], JUDGED["grade"], score,
                                                      strict=True) if q == query]
            for query in ("q0", "q1", "q3")
        }  # fmt: skip
        lists = {query: list(zip(*pairs, strict=True)) for query, pairs in parts.items()}
        ndcgs = [hand_ndcg(*pair, 3) for pair in lists.values()]
        assert table[name]["ndcg"] == pytest.approx(np.mean(ndcgs))
        # q3 has one grade only: it says nothing about AUC and tau.
        two = [lists["q0"], lists["q1"]]
        assert table[name]["auc"] == pytest.approx(np.mean([hand_area(*pair) for pair in two]))
        assert table[name]["kendall"] == pytest.approx(np.mean([hand_tau(*pair) for pair in two]))
    assert found.setting.n_judged_queries == 3
    assert "1 judged query has no positive grade: skipped." in found.notes
    assert "nDCG@3" in str(found)


def test_models_without_relevance_are_undefined_not_zero() -> None:
    found = compared(JUDGED)
    table = {row["model"]: row for row in found.table.to_dicts()}
    for name in ("constant", "ranks"):
        assert table[name]["ndcg"] is table[name]["auc"] is table[name]["kendall"] is None
        assert "does not say what relevance is" in found.reasons[name]["ndcg"]
    assert "undefined" in str(found)


def test_features_of_judged_pairs_come_with_the_judgments() -> None:
    log = ragged(30, 1).to_frame().with_columns(price=pl.col("doc").str.slice(1).cast(pl.Float64))
    clicks = read_log(log, weight="weight")
    model = PBM(attraction=Logistic("price"), examination=0.9)
    options = {"heldout": clicks, "bootstrap": 0, "method": FEW}
    found = compare(clicks, [model], judgments=JUDGED, **options)
    assert "price" in found.reasons["PBM"]["ndcg"]
    priced = JUDGED.with_columns(price=pl.col("doc").str.slice(1).cast(pl.Float64))
    found = compare(clicks, [model], judgments=priced, **options)
    assert "PBM" not in found.reasons
    assert 0 < found.table.row(by_predicate=pl.col("model") == "PBM", named=True)["ndcg"] <= 1


def test_when_every_document_is_relevant() -> None:
    found = compared(JUDGED.filter(pl.col("query") == "q3"))
    row = found.table.row(by_predicate=pl.col("model") == "DBN", named=True)
    assert row["ndcg"] == 1
    assert row["auc"] is None
    assert "positive grade" in found.reasons["DBN"]["auc"]
    assert "different grades" in found.reasons["DBN"]["kendall"]


def test_pairs_never_shown_are_counted() -> None:
    other = pl.DataFrame({"query": ["q9"], "doc": ["d0"], "grade": [1]})
    found = compared(pl.concat([JUDGED, other]))
    seen = set(ragged(30, 1).to_frame().select("query", "doc").rows())
    kept = JUDGED.filter(pl.col("query") != "q2").select("query", "doc").rows()
    n_unseen = 1 + sum(pair not in seen for pair in kept)
    assert any(note.startswith(f"{n_unseen} of 11 judged pairs were never") for note in found.notes)


# -- files -----------------------------------------------------------------------------------------
def test_every_kind_of_file_says_the_same(tmp_path: Path) -> None:
    JUDGED.write_csv(tmp_path / "judged.csv")
    JUDGED.write_csv(tmp_path / "judged.tsv", separator="\t")
    JUDGED.write_parquet(tmp_path / "judged.parquet")
    lines = [f"{query} 0 {doc} {grade}\n" for query, doc, grade in JUDGED.rows()]
    (tmp_path / "judged.qrels").write_text("".join(lines))
    expected = compared(JUDGED).table.select("model", "ndcg", "auc", "kendall")
    for path in (*tmp_path.iterdir(), str(tmp_path / "judged.qrels"), JUDGED.to_pandas()):
        found = compared(path).table.select("model", "ndcg", "auc", "kendall")
        assert found.equals(expected), path


def test_ids_of_qrels_are_text_those_of_a_log_may_be_numbers(tmp_path: Path) -> None:
    frame = (
        ragged(30, 1).to_frame().with_columns(pl.col("query", "doc").str.slice(1).cast(pl.Int64))
    )
    log = read_log(frame, weight="weight")
    (tmp_path / "qrels").write_text("1 0 2 3\n1 0 4 0\n")
    found = compare(log, ["PBM"], judgments=tmp_path / "qrels", bootstrap=0, method=FEW)
    row = found.table.row(by_predicate=pl.col("model") == "PBM", named=True)
    score = found.models["PBM"].probability("attraction", {"query": [1, 1], "doc": [2, 4]})
    assert row["auc"] == float(score[0] > score[1]) + 0.5 * float(score[0] == score[1])
    (tmp_path / "qrels").write_text("first 0 2 3\n")
    with pytest.raises(ClickLogError, match="'query' are String there and Int64 in the log"):
        compare(log, ["PBM"], judgments=tmp_path / "qrels", method=FEW)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.drop("grade", "doc"), "no column 'doc' and no 'grade'"),
        (lambda f: f.with_columns(grade=pl.lit(0.5)), "grades are whole numbers"),
        (lambda f: f.with_columns(grade=pl.lit("good")), "grades are whole numbers"),
        (lambda f: f.with_columns(grade=pl.lit(31)), "there is a grade 31"),
        (lambda f: pl.concat([f, f[3:4]]), "query 'q0' and doc 'd3' is judged twice"),
        (lambda f: f.with_columns(doc=pl.lit(None, pl.String)), "row 0 has no doc"),
        (lambda f: f.clear(), "there are no judgments"),
    ],
)
def test_bad_judgments(change: Any, words: str) -> None:
    with pytest.raises(ClickLogError, match=words):
        compared(change(JUDGED))


def test_no_positive_grade_at_all() -> None:
    with pytest.raises(ClickLogError, match="no judged query has a positive grade"):
        compared(JUDGED.with_columns(grade=pl.lit(0)))


def test_bad_files(tmp_path: Path) -> None:
    for name, text in (("not_there.csv", None), ("not_there", None), ("broken.qrels", "a b\n"),
                       ("words.qrels", "q 0 d good\n"), ("broken.parquet", "nothing")):  # fmt: skip
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        with pytest.raises(ClickLogError, match=name):
            compared(path)
    with pytest.raises(ModelError, match="A data frame is wanted for 'judgments'"):
        compared(5)


def test_judgments_need_queries() -> None:
    log = read_log(ragged(20, 1).to_frame().drop("query"), weight="weight")
    with pytest.raises(ClickLogError, match="the log has no queries"):
        compare(log, ["GCTR"], judgments=JUDGED, method=FEW)


def test_without_ir_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(ModelError, match=r'pip install "gecasmo\[relevance\]"'):
        compared(JUDGED)
    compared(None, {"constant": GCTR.with_values(click_rate=0.3)})
