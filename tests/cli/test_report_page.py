"""`gecasmo report`: one page with everything in it, for people who do not run commands."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import fail, succeed

from gecasmo import DBN, read_log
from gecasmo.browser.report_page import (
    Report,
    _log_section,
    _table_data,
    misled_pairs,
    report_page,
)
from gecasmo.errors import for_the_command_line

LOG = Path(__file__).parents[1] / "parity" / "log.csv"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    succeed("fit", "DBN", LOG, "-o", folder / "dbn.fit", "--quiet")
    succeed("report", folder / "dbn.fit", LOG, "-o", folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def data_of(page: str) -> Any:
    return json.loads(page.split('id="data">')[1].split("</script>")[0])


def test_a_report_has_all_sections(page: str) -> None:
    titles = re.findall(r"<h2[^>]*>([^<]+)</h2>", page)
    assert titles == [
        "The log",
        "What users do",
        "How well the model predicts",
        "Where the model is wrong",
        "Judgments",
        "Where click rates mislead",
        "What another order would bring",
        "Three pages, told as stories",
        "How this was made",
    ]
    assert page.count("<svg") >= 6
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_report_says_what_to_paste() -> None:
    page = [("s", "q", f"d{rank}", rank, 1) for rank in range(1, 10)]
    others = [
        (f"p{n}", "q", f"d{rank}", rank, int(rank == n % 5 + 1))
        for n in range(60)
        for rank in range(1, 10)
    ]
    columns = ["session", "query", "doc", "rank", "click"]
    log = read_log(pl.DataFrame(page + others, columns, orient="row"))
    words = "'my log.csv' --doc url"
    with for_the_command_line():
        told = _log_section(log, words)
    asked = html.escape(f"gecasmo check {words} --drop-suspicious -o clean.parquet")
    assert f"<code>{asked}</code>" in told


def test_a_report_fetches_nothing(page: str) -> None:
    without_names = re.sub(r'xmlns(:\w+)?="[^"]+"', "", page)
    assert not re.search(r"https?://", without_names)
    assert "default-src 'none'" in page


def test_a_report_lists_the_pairs_of_the_log(page: str) -> None:
    columns = data_of(page)["columns"]
    pairs = pl.read_csv(LOG).select("query", "doc").n_unique()
    assert len(columns["doc"]) == pairs
    assert columns["impressions"] == sorted(columns["impressions"], reverse=True)
    assert all(0 <= p <= 1 for p in columns["relevance"])


def test_what_is_cut_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(report_page.__globals__, "_MOST_PAIRS", 20)
    log = read_log(LOG)
    made = report_page(Report(DBN().fit(log, progress=False), log))
    pairs = log.to_frame().group_by("query", "doc").len("impressions")
    assert f"The 20 most shown of {len(pairs):,} pairs are listed." in made
    listed = data_of(made)["columns"]["impressions"]
    assert listed == pairs["impressions"].sort(descending=True).head(20).to_list()


def test_ten_thousand_pairs_take_less_than_three_megabytes(page: str) -> None:
    n = 10_000
    frame = pl.DataFrame(
        {
            "query": [f"a query of some words {i % 997}" for i in range(n)],
            "doc": [f"product-{i:012d}" for i in range(n)],
            "impressions": [float(i) for i in range(n)],
            "examinations": [i / 3 for i in range(n)],
            **{c: [i / n for i in range(n)] for c in ("relevance", "low", "high", "ctr")},
            "grade": [i % 4 for i in range(n)],
            "grade_probability": [0.5] * n,
        }
    )
    own = len(json.dumps(_table_data(frame)))
    rest = len(page) - len(json.dumps(data_of(page)))
    assert own + rest < 3_000_000


def test_pairs_are_misled_by_their_place() -> None:
    pairs = pl.DataFrame(
        {
            "query": ["q"] * 4,
            "doc": ["top", "good", "deep", "rare"],
            "ctr": [0.5, 0.2, 0.1, 0.9],
            "relevance": [0.2, 0.3, 0.8, 0.9],
            "examinations": [100.0, 50.0, 20.0, 2.0],
        }
    )
    found = misled_pairs(pairs)
    assert found["doc"].to_list() == ["top", "deep"]
    assert found["by_ctr"].to_list() == [1, 3]
    assert found["by_relevance"].to_list() == [3, 1]


def test_a_comparison_can_be_mailed(tmp_path: Path) -> None:
    succeed("compare", LOG, "PBM", "--bootstrap", "0", "--report", tmp_path / "compared.html")
    page = (tmp_path / "compared.html").read_text(encoding="utf-8")
    titles = re.findall(r"<h2[^>]*>([^<]+)</h2>", page)
    assert titles == ["The log", "How well the models predict", "How this was made"]
    assert "PBM predicts best" in page


def test_a_report_does_not_replace_what_it_reads(tmp_path: Path) -> None:
    succeed("fit", "RCTR", LOG, "-o", tmp_path / "one.fit", "--quiet")
    said = fail("report", tmp_path / "one.fit", LOG, "-o", tmp_path / "one.fit")
    assert "would be lost" in " ".join(said.split())


def test_models_without_relevance_have_reports(tmp_path: Path) -> None:
    succeed("fit", "RCTR", LOG, "-o", tmp_path / "one.fit", "--quiet")
    succeed("report", tmp_path / "one.fit", LOG, "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Judgments" not in page
    assert data_of(page) == {}


def test_a_report_is_a_page_for_a_browser(tmp_path: Path) -> None:
    succeed("fit", "RCTR", LOG, "-o", tmp_path / "one.fit", "--quiet")
    said = " ".join(fail("report", tmp_path / "one.fit", LOG, "-o", tmp_path / "a.pdf").split())
    assert "its name has to end in .html. Print it from a browser, for a PDF." in said
    said = fail("compare", LOG, "PBM", "--bootstrap", "0", "--report", tmp_path / "a.csv")
    assert "its name has to end in .html." in " ".join(said.split())
    assert "end in .html" in fail("show", "DBN", "-o", tmp_path / "model.json")


def test_a_log_of_one_page_has_no_report(tmp_path: Path) -> None:
    succeed("fit", "RCTR", LOG, "-o", tmp_path / "one.fit", "--quiet")
    pl.read_csv(LOG).filter(session=0).write_csv(tmp_path / "page.csv")
    said = fail("report", tmp_path / "one.fit", tmp_path / "page.csv", "-o", tmp_path / "r.html")
    assert "the log has 1 page, and a report fits" in " ".join(said.split())
