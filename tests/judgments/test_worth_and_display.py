"""What is worth judging by hand, and how judgments look."""

from __future__ import annotations

import json
import re
import unicodedata

import numpy as np
import polars as pl
import pytest
from judgment_examples import judged_like
from scipy import stats

from gecasmo import PBM, Table, read_log
from gecasmo.judgments import JudgmentsError, judge


def test_worth_is_traffic_times_the_chance_of_another_grade():
    spread, trials = [0.1, 0.01, 0.1], [50.0, 400.0, 200.0]
    model = judged_like([0.5, 0.5, 0.9], spread=spread, trials=trials)
    found = judge(model, rule="threshold", thresholds=[0.25, 0.5, 0.75], max_width=1)
    pairs = found.worth_judging().pairs.sort("doc")
    for row, p, s, n in zip(pairs.rows(named=True), (0.5, 0.5, 0.9), spread, trials, strict=True):
        strength = p * (1 - p) / s**2 - 1
        below = stats.beta(p * strength, (1 - p) * strength).cdf([0, 0.25, 0.5, 0.75, 1])
        chances = np.diff(below)
        assert row["chance_wrong"] == pytest.approx(1 - chances.max(), abs=1e-9)
        assert row["likely_grade"] == np.argmax(chances)
        assert row["worth"] == pytest.approx(n * row["chance_wrong"])


def test_the_most_worthy_come_first_and_queries_sum_their_pairs():
    model = judged_like([0.5, 0.4, 0.3, 0.2], 2, spread=[0.1] * 4, trials=[10.0, 50.0, 20.0, 5.0])
    found = judge(model, rule="threshold", min_probability=0)
    worth = found.worth_judging(3)
    assert len(worth.pairs) == 3
    assert worth.pairs["worth"].is_sorted(descending=True)
    everything = found.worth_judging(99)
    sums = everything.pairs.group_by("query").agg(pl.sum("worth"), pl.sum("traffic"))
    both = everything.queries.join(sums, on="query")
    np.testing.assert_allclose(both["worth"], both["worth_right"])
    np.testing.assert_allclose(both["traffic"], both["traffic_right"])
    assert dict(everything.queries.select("query", "without_grade").rows()) == {"q0": 0, "q1": 1}
    assert everything.queries["worth"].is_sorted(descending=True)


def test_certain_pairs_are_not_worth_judging():
    found = judge(judged_like([0.4, 0.9], spread=[0.0, 0.0], low=[0.4, 0.9], high=[0.4, 0.9]))
    assert found.worth_judging().pairs["worth"].to_list() == [0, 0]


def test_traffic_can_come_from_a_log(model, log):
    found = judge(model)
    pairs = found.worth_judging(99, log=log).pairs
    shown = log.to_frame().group_by("query", "doc").len()
    both = pairs.join(shown, on=["query", "doc"])
    assert both["traffic"].to_list() == both["len"].to_list()
    numbered = read_log({"session": [1], "query": ["a"], "doc": [7], "rank": [1], "click": [0]})
    with pytest.raises(JudgmentsError, match="'doc' holds Int64 in the log"):
        found.worth_judging(log=numbered)
    without = read_log({"session": [1], "doc": ["a"], "rank": [1], "click": [0]})
    with pytest.raises(JudgmentsError, match="log lacks query"):
        found.worth_judging(log=without)


def test_judgments_by_document_have_no_queries_to_name(log):
    found = judge(PBM(attraction=Table(key="doc")).fit(log, progress=False))
    worth = found.worth_judging(2)
    assert worth.queries is None
    assert "queries" not in str(worth)


@pytest.mark.parametrize("n", [0, -3, 1.5, True])
def test_a_faulty_number_of_pairs(n, believer):
    with pytest.raises(JudgmentsError, match="at least 1"):
        judge(believer).worth_judging(n)


def columns(text):
    plain = unicodedata.normalize("NFC", text)
    return max(
        sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)
        for line in plain.splitlines()
    )


def test_the_text_says_what_matters_within_100_columns(model):
    found = judge(model)
    text = str(found)
    assert "relevance is attraction x satisfaction" in text
    assert "rule informative" in text
    others = {"ordered": found.n_ordered, "insufficient": found.n_insufficient}
    for name, count in {**found.by_grade, **others}.items():
        assert re.search(rf"^  {name} +{count:,} ", text, re.MULTILINE)
    assert columns(text) <= 100
    assert columns(str(found.worth_judging())) <= 100
    assert repr(found) == text
    assert len(found) == len(found.frame)


def test_long_wide_and_odd_ids_stay_within_100_columns():
    ids = ["鞋" * 60, "x" * 200, "line\nbreak", "e\u0301" * 50]
    model = judged_like([0.1, 0.2, 0.3, 0.4], query=ids, doc=ids, trials=[1e9] * 4)
    found = judge(model, grades=10)
    assert columns(str(found)) <= 100
    assert columns(str(found.worth_judging())) <= 100
    assert "line?break" in str(found)


@pytest.mark.parametrize("width", [80, 72])
def test_tables_are_laid_out_for_the_terminal(model, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    ids = ["鞋" * 60, "x" * 200, "y", "z"]
    wide = judge(judged_like([0.1, 0.2, 0.3, 0.4], query=ids, doc=ids, trials=[1e9] * 4))
    for found in (judge(model), wide):
        for text in (str(found), str(found.worth_judging())):
            assert columns(text) <= width
    lines = str(wide).splitlines()
    start = lines.index("most examined")
    assert len(lines) == start + 2 + 4  # a line per pair


def test_the_share_of_examinations_stands_beside_that_of_pairs():
    unsure = {"spread": [0.0, 0.0, 0.2, 0.2], "trials": [60.0, 35.0, 4.0, 1.0]}
    found = judge(judged_like([0.2, 0.6, 0.4, 0.41], **unsure), rule="threshold", min_order=0.99)
    assert found.examined_insufficient == pytest.approx(0.05)
    assert found.to_dict()["examinations_insufficient"] == pytest.approx(0.05)
    lines = [line.split() for line in str(found).splitlines()]
    assert ["grade", "pairs", "of", "pairs", "of", "examinations", "right", "order"] in lines
    order = found.frame.filter(pl.col("verdict") == "insufficient")["order"].mean()
    assert ["insufficient", "2", "50.0", "%", "5.0", "%", "-", f"{order:.2f}"] in lines
    assert ["0", "1", "25.0", "%", "60.0", "%", "1.00", "1.00"] in lines


def test_worth_has_a_legend_and_sensible_digits():
    model = judged_like([0.5123456], spread=[0.1], trials=[12345.678])
    worth = judge(model, rule="threshold", max_width=1).worth_judging()
    text = str(worth)
    assert "wrong: the probability that it is another" in text
    assert "worth: traffic x wrong" in " ".join(text.split())
    row = worth.pairs.row(0, named=True)
    line = next(line for line in text.splitlines() if line.startswith("  q0  "))
    assert line.split()[2:] == [
        *("0.512", str(row["likely_grade"]), f"{row['chance_wrong']:.2f}", "12,346"),
        f"{row['worth']:,.1f}",
    ]


def test_the_head_of_what_is_worth_judging(model):
    worth = judge(model).worth_judging(9)
    lines = worth.text(3).splitlines()
    assert lines[:5] == str(worth).splitlines()[:5]
    assert lines[5] == "  ... and 6 more"


def test_html_is_escaped_and_the_dictionary_is_json():
    model = judged_like([0.1, 0.2], doc=["<b>", "&"])
    found = judge(model)
    assert "<b>" not in found._repr_html_()
    assert "&lt;b&gt;" in found._repr_html_()
    data = json.loads(json.dumps(found.to_dict(rows=True)))
    assert data["judged"] + data["ordered"] + data["insufficient"] == data["pairs"]
    assert data["pairs"] == len(data["judgments"])
    assert "judgments" not in found.to_dict()
