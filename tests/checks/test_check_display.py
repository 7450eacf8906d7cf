"""The check as text, HTML and data."""

from __future__ import annotations

import json
import re
from datetime import date

import polars as pl
import pytest
from checked_logs import by_doc, pages_log, random_clicks, shelves

from gecasmo import PBM
from gecasmo.checks import Finding, LogCheck, check
from gecasmo.checks.findings import summed_up
from gecasmo.report import TextTable


def test_severities_order_findings_and_give_the_verdict() -> None:
    empty = LogCheck([], {}, {})
    assert (empty.worst, empty.verdict) == ("info", "fine")
    assert str(empty).startswith("Verdict on this log: FINE (no findings)")
    mild = LogCheck([Finding("info", "a", "b"), Finding("warning", "c", "d")], {}, {})
    assert (mild.worst, mild.verdict) == ("warning", "be careful")
    bad = LogCheck([Finding("error", "a", "b")], {}, {}, "PBM")
    assert bad.verdict == "do not trust"
    assert str(bad).startswith("Verdict on this log for PBM: DO NOT TRUST (1 error)")


def test_text_fits_and_begins_with_the_worst() -> None:
    pages = shelves(60, 3, 3, 0.0, 0)
    log = pages_log(pages, random_clicks(pages, 0.3, 1), ["a long query <b> " * 20] * 60)
    checked = check(log, by_doc(PBM))
    lines = str(checked).splitlines()
    assert all(len(line) <= 100 for line in lines)
    marks = [line.split()[0] for line in lines if line.startswith(("ERROR", "WARNING", "info"))]
    assert marks == sorted(marks, key=["ERROR", "WARNING", "info"].index)
    assert marks[0] == "ERROR"
    assert any(line.startswith("Clicks by rank") for line in lines)
    html = checked._repr_html_()
    assert "<b> " not in html.replace("<b style", "").split("</b>")[-1]
    assert html.count("<table>") == sum(t.height > 0 for t in checked.tables.values())


def test_html_escapes_what_logs_contain() -> None:
    pages = [["<script>", "b", "<script>"]] * 3
    html = check(pages_log(pages, [[1, 0, 0]] * 3))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_data_is_plain_json() -> None:
    checked = LogCheck(
        [Finding("warning", "a", "b", 3, ("x",), "do")],
        {"t": pl.DataFrame({"day": [date(2024, 1, 2)], "x": [float("inf")]})},
        {"n": float("nan")},
        None,
    )
    data = json.loads(checked.to_json())
    assert data["findings"] == [
        {
            "severity": "warning",
            "topic": "a",
            "message": "b",
            "count": 3,
            "examples": ["x"],
            "advice": "do",
        }
    ]
    assert data["tables"]["t"] == [{"day": "2024-01-02", "x": None}]
    assert data["facts"] == {"n": None}
    assert (data["verdict"], data["worst"]) == ("be careful", "warning")


def test_tables_are_laid_out_for_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    pages = shelves(60, 3, 3, 0.0, 0)
    log = pages_log(pages, random_clicks(pages, 0.3, 1), ["a long query <b> " * 20] * 60)
    checked = check(log, by_doc(PBM))
    assert max(map(len, str(checked).splitlines())) <= 80
    numbers = pl.DataFrame(
        {"name": ["x" * 30, "y"]} | {f"number_{i}": [123456789 + i, i] for i in range(9)}
    )
    lines = list(TextTable.of(numbers).lines())
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for i in range(9):  # numbers are never cut; what has no room stands below, with its name
        assert f"{123456789 + i:,}" in text
    assert sum(line.startswith("  xxxx") for line in lines) == 3
    assert not any("number" in line and "..." in line for line in lines)
    monkeypatch.setenv("COLUMNS", "20")
    assert max(map(len, str(checked).splitlines())) > 60  # nothing is laid out for so little


def test_one_is_one() -> None:
    log = pages_log([["a", "b"], ["c", "d"]], [[1, 0], [0, 0]], ["p", "q"])
    text = " ".join(str(check(log, "DBN")).split())
    assert "A query comes once on average." in text
    assert "1 was ever clicked, 0 were seen at more than one rank." in text
    assert not re.search(r"\b1 (flips|pages|times|clicks|results|were|have)\b", text)


def test_no_id_commands_the_terminal() -> None:
    red = "\x1b[31m\x07\x9b"
    table = pl.DataFrame({"query": [red], "pages": [3]})
    checked = LogCheck([Finding("info", "a", red, examples=(red,))], {"pairs": table}, {}, red)
    text = str(checked)
    assert text.count("?[31m") == 4
    assert not set(text) & set(red[0] + red[-2:])
    assert checked.to_dict()["tables"]["pairs"][0]["query"] == red  # data stay exact


def test_names_of_parameters_are_summed_up() -> None:
    assert summed_up(["x", "y of rank 1", "y of rank 2"]) == "x and y of rank 1; rank 2"
    assert summed_up([f"y of {i}" for i in range(5)]) == "y of 0; 1; 2 and 2 more"
