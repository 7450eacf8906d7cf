"""The report in a real browser: the table of judgments is searched, sorted and turned over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gecasmo.browser.report_page import _judgment_table, _page, _table_data

N = 120


@pytest.fixture
def page(driver: Any, tmp_path: Path) -> Iterator[Any]:
    """A page with nothing but a table of pairs."""
    pairs = pl.DataFrame(
        {
            "query": [f"query {n % 3}" for n in range(N)],
            "doc": [f"doc {n:03d}" for n in range(N)],
            "impressions": [float(N - n) for n in range(N)],
            "examinations": [float(n) for n in range(N)],
            "relevance": [n * 7 % N / N for n in range(N)],
            "low": [None if n == 5 else 0.1 for n in range(N)],
            "high": [None if n == 5 else 0.9 for n in range(N)],
            "ctr": [0.25] * N,
        }
    )
    text = _page("A table", [("judgments", "Judgments", _judgment_table())], _table_data(pairs))
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    driver.set_window_size(1400, 1200)
    driver.get(file.as_uri())
    yield driver
    assert [entry["message"] for entry in driver.get_log("browser")] == []


def column(page: Any, number: int) -> list[str]:
    return [c.text for c in page.find_elements("css selector", f"#pairs td:nth-child({number})")]


def test_fifty_pairs_are_shown_at_a_time(page: Any) -> None:
    assert column(page, 2) == [f"doc {n:03d}" for n in range(50)]
    page.find_elements("css selector", "#paging button")[1].click()
    assert column(page, 2) == [f"doc {n:03d}" for n in range(50, 100)]
    assert "of 120 pairs" in page.find_element("id", "found").text


def test_pairs_are_searched_by_words(page: Any) -> None:
    page.find_element("id", "search").send_keys("DOC 11 query")
    assert column(page, 2) == ["doc 011", *(f"doc 11{n}" for n in range(10))]
    page.find_element("id", "search").send_keys(" nothing")
    assert column(page, 2) == []
    assert page.find_element("id", "found").text.startswith("0 of")


def test_pairs_are_sorted_by_their_heads(page: Any) -> None:
    head = page.find_element("css selector", "#pairs th[data-name=relevance] button")
    head.click()
    assert column(page, 3)[0] == "99.2 %"
    head.click()
    assert column(page, 3)[0] == "0.0 %"
    sorted_by = page.find_element("css selector", "#pairs th[data-name=relevance]")
    assert sorted_by.get_attribute("aria-sort") == "ascending"


def test_nothing_is_cut_on_paper(page: Any) -> None:
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.set_window_size(720, 1000)  # about A4
    wanted, there = page.execute_script(
        "const own = document.querySelector('#pairs').parentElement;"
        "return [own.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wanted <= there
    assert page.find_element("id", "printed").text == "Pairs 1 to 50 of 120; the file has all."
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_long_command_sticks_out_nowhere(driver: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    made = f"<ul><li>Command: gecasmo report a.fit /{'folder/' * 30}log.csv</li></ul>"
    file.write_text(_page("A page", [("made", "How this was made", made)], {}), encoding="utf-8")
    driver.set_window_size(500, 900)
    driver.get(file.as_uri())
    assert driver.execute_script(
        "const page = document.documentElement; return page.scrollWidth <= page.clientWidth"
    )
