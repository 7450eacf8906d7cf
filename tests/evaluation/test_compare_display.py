"""How a comparison looks: in a terminal, in a notebook and as JSON."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from typing import Any

import polars as pl
import pytest
from comparing_examples import known_models, ragged

from gecasmo import EM, GCTR, read_log
from gecasmo.evaluation import Comparison, compare
from gecasmo.report import counted, percent
from gecasmo.simulation import demo_log
from gecasmo.testing import plain_python

FEW = EM(max_iter=2, tol=0)
LONG = "A model whose name is <b>long</b> & " + "unbreakable" * 6


@pytest.fixture(scope="module")
def found() -> Comparison:
    from gecasmo.testing import plain_python

    models: dict[str, Any] = {
        **known_models(),
        LONG: GCTR.with_values(click_rate=1e-12),
        "CM": "CM",
    }
    judged = pl.DataFrame({"query": ["q1"] * 3, "doc": ["d0", "d1", "d2"], "grade": [0, 2, 1]})
    with plain_python():
        return compare(
            ragged(30, 1),
            models,
            heldout=ragged(40, 2),
            bootstrap=30,
            method=FEW,
            judgments=judged,
        )


def test_text_fits_a_hundred_columns_and_has_every_model(found: Comparison) -> None:
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines == [line.rstrip() for line in lines]
    for name in ("DBN", "UBM", "PBM", "ranks", "constant", "CM", "DCTR", "A model"):
        assert sum(line.startswith(f"  {name}") for line in lines) >= 4
    assert repr(found) == str(found)


def test_text_says_what_the_table_says(found: Comparison) -> None:
    text = str(found)
    for row in found.table.filter(pl.col("model").is_in(["DBN", "UBM"])).to_dicts():
        line = next(x for x in text.splitlines() if x.startswith(f"  {row['model']} "))
        assert f"{row['log_likelihood']:.4f}" in line
        assert f"[{row['log_likelihood_low']:.4f}, {row['log_likelihood_high']:.4f}]" in line
        for against in (found.best, found.setting.baseline):
            verdict = found.verdict(row["model"], against)
            assert (verdict or "itself") in line
    assert "30 bootstrap samples over 6 queries" in text
    for note in found.notes:
        assert " ".join(note.split())[:30] in " ".join(text.split())


def test_a_verdict_is_only_clear_when_its_interval_excludes_zero(found: Comparison) -> None:
    assert len(found.differences)
    for row in found.differences.to_dicts():
        if row["verdict"] == "no clear difference":
            assert row["low"] <= 1e-9
            assert row["high"] >= -1e-9
        else:
            assert row["low"] * row["high"] > 0
            is_higher = row["difference"] > 0
            assert row["verdict"] == (
                "better" if is_higher == (row["metric"] == "log_likelihood") else "worse"
            )


def test_json_holds_everything_and_no_nan(found: Comparison) -> None:
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert set(data) == {
        *("setting", "table", "by_rank", "differences", "calibration", "ctr_by_rank"),
        *("nested", "notes", "reasons"),
    }
    assert [row["model"] for row in data["table"]] == found.table["model"].to_list()
    for name in ("table", "by_rank", "differences", "calibration", "ctr_by_rank"):
        frame = getattr(found, name)
        assert len(data[name]) == len(frame)
        assert list(data[name][0]) == frame.columns
    for row in data["table"]:  # what is null has a reason
        for column, value in row.items():
            if value is None and not column.endswith(("_low", "_high")):
                assert data["reasons"][row["model"]][column]


class Checker(HTMLParser):
    """Open and closed tags have to match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_html_is_whole_and_escaped(found: Comparison) -> None:
    checker = Checker()
    checker.feed(found._repr_html_())
    assert checker.open == []
    assert "b" not in checker.seen
    assert LONG in "".join(checker.text)
    assert {"table", "th", "td", "li"} <= checker.seen


@pytest.mark.parametrize("rate", [1e-300, 1e-320])
def test_numbers_out_of_the_ordinary_still_fit(rate: float) -> None:
    models = {f"model number {i} of many": GCTR.with_values(click_rate=rate) for i in range(3)}
    found = compare(
        ragged(30, 1), models, heldout=ragged(40, 2, rate=1.0), bootstrap=20, method=FEW
    )
    text = str(found)
    assert max(map(len, text.splitlines())) <= 100
    row = found.table.row(by_predicate=pl.col("model") == "model number 1 of many", named=True)
    assert row["log_likelihood"] < -1000
    if rate < 1e-307:  # 2 to the bits is beyond all numbers: told, not hidden
        assert row["marginal_perplexity_pooled"] is row["marginal_gain"] is None
        told = found.reasons["model number 1 of many"]
        assert told["marginal_perplexity_pooled"] == "it is too large a number"
        assert told["marginal_gain"] == "a perplexity is too large a number"
    else:
        assert row["marginal_perplexity_pooled"] > 1e290
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_real_comparison(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = demo_log(1500, seed=2)
    found = compare(log, ["DBN", "PBM"], by="query", bootstrap=100)
    for width in (100, 80, 72):
        monkeypatch.setenv("COLUMNS", str(width))
        assert max(map(len, str(found).splitlines())) <= width
    assert found.table.null_count().row(0, named=True)["log_likelihood"] == 0
    assert any("never in training" in note for note in found.notes)


def test_tables_are_laid_out_for_the_terminal(
    found: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    for name in ("DBN", "UBM", "ranks"):  # every row is one line, with all of its numbers
        own = [line for line in lines if line.startswith(f"  {name} ")]
        assert len(own) >= 4
        row = found.table.row(by_predicate=pl.col("model") == name, named=True)
        for metric in ("log_likelihood", "marginal_perplexity_pooled", "brier", "ece", "ctr_rmse"):
            assert any(f"{row[metric]:.4f}" in line for line in own)
    headings = [line for line in lines if line.startswith("  model ")]
    assert len(headings) == sum(line.startswith("  DBN ") for line in lines)


def test_one_is_one_and_little_is_not_nothing() -> None:
    assert counted(1, "session") == "1 session"
    assert counted(2000, "query", "queries") == "2,000 queries"
    shares = (0.0, 1e-9, 0.0009, 0.25, 0.9999, 1.0)
    assert [percent(x, decimals=1, in_words=True) for x in shares] == [
        *("0.0 %", "fewer than 0.1 %", "fewer than 0.1 %", "25.0 %", "more than 99.9 %", "100.0 %")
    ]
    one = ragged(60, 3, weighted=False).take([0])
    found = compare(ragged(30, 1), ["GCTR"], heldout=one, bootstrap=0, method=FEW)
    assert "on 1 test session (" in str(found)
    assert str(GCTR.with_values(click_rate=0.4).evaluate(one)).startswith("GCTR on 1 session, ")


def test_a_small_share_of_new_documents_is_not_none() -> None:
    seen = {"session": list(range(2000)), "doc": ["a"] * 2000, "rank": [1] * 2000}
    test = read_log({**seen, "doc": ["a"] * 1999 + ["new"], "click": [0] * 2000})
    found = compare(
        read_log({**seen, "click": [0, 1] * 1000}), ["GCTR"], heldout=test, bootstrap=0, method=FEW
    )
    assert any(note.startswith("Fewer than 0.1 % of the test results show documents that")
               for note in found.notes)  # fmt: skip


# -- how large differences are ---------------------------------------------------------------------
def test_a_tiny_difference_is_called_tiny() -> None:
    """What is real need not matter: 0.0007 nats a page make a page 0.07 % less probable."""
    log, _ = demo_log(3_000, seed=4)
    rate = float(log.click.mean())
    models = {name: GCTR.with_values(click_rate=rate * factor) for name, factor in FACTORS.items()}
    with plain_python():
        found = compare(log, models, heldout=log, bootstrap=50, over="session", progress=False)
    gaps = found.differences.filter(metric="log_likelihood", against=found.best)
    by_model = {row["model"]: row for row in gaps.to_dicts()}
    text = str(found)
    for name in ("near", "far"):
        row = by_model[name]
        share = 100 * (1 - math.exp(row["difference"]))
        assert row["verdict"] == "worse"
        assert row["is_tiny"] == (abs(row["difference"]) < 0.005)
        said = found.size(name, found.best)
        assert said is not None
        assert f"{abs(row['difference']):.2g} ({percent(share / 100)})" in said
        assert said in text
    assert found.size(found.best, found.best) is None
    near, far = (found.size(name, found.setting.baseline) for name in ("near", "far"))
    assert near is not None
    assert far is not None
    assert far.startswith("worse by")
    other = found.differences.filter(pl.col("metric") != "log_likelihood")
    assert other["is_tiny"].null_count() == len(other)


FACTORS = {"exact": 1.0, "near": 1.02, "far": 1.6}


def test_a_notebook_gets_tables(found: Comparison) -> None:
    shown = found._repr_html_()
    assert shown.count("<table>") == shown.count("</table>") == 4
    assert "<pre>" not in shown
    assert "<b>long</b>" not in shown
    assert "&lt;b&gt;long&lt;/b&gt;" in shown
    best = next(iter(found.models.values()))
    with plain_python():
        scored = best.evaluate(ragged(10, 3), impossible="floor")
    page = scored._repr_html_()
    assert page.count("<table>") == 2
    assert "<pre>" not in page
    for name, value in scored.to_dict().items():
        assert f"{value:.4f}" in page, name


def test_the_perplexity_of_an_evaluation_can_be_read() -> None:
    model = known_models()["DBN"]
    with plain_python():
        scored = model.evaluate(ragged(10, 3), impossible="floor")
    frame = scored.perplexity
    assert frame.columns == ["of", "marginal", "conditional"]
    assert frame["of"].to_list()[:3] == ["arithmetic", "pooled", "rank 1"]
    assert frame["marginal"].to_list()[:2] == [scored.marginal.arithmetic, scored.marginal.pooled]
    assert frame["conditional"].to_list()[2:] == scored.by_rank["conditional"].to_list()
