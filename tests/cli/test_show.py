"""`gecasmo show`: pages that are one file, with nothing in them but data and our scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import fail, succeed

from gecasmo.browser import model_data, page_of
from gecasmo.models import CATALOGUE


def test_the_command_writes_a_page_of_a_fit(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    fit, page = tmp_path / "dbn.fit", tmp_path / "model.html"
    succeed("fit", "DBN", str(root / "tests/parity/log.csv"), "-o", str(fit), "--quiet")
    said = succeed("show", str(fit), "-o", str(page), "--queries", "1")
    assert "DBN with 1 query" in said.output
    text = page.read_text(encoding="utf-8")
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert data["is_fitted"]
    assert data["left_out"] > 0
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_texts_of_a_log_stay_texts() -> None:
    data = model_data(CATALOGUE["DBN"]()) | {"name": "</script><script>alert(1)</script>"}
    page = page_of(data)
    assert "<script>alert" not in page


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    said = fail("show", "Nobody", "-o", tmp_path / "x.html")
    assert "Nobody" in said
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "NCM",
            "NCM cannot be shown in a browser: its coin 'click_rate' has a probability for each",
        ),
        ("PSCM", "PSCM cannot be shown in a browser: it follows users who go over a page several"),
    ],
)
def test_what_cannot_be_shown_says_why(tmp_path: Path, name: str, reason: str) -> None:
    said = " ".join(fail("show", name, "-o", tmp_path / "x.html").split())
    assert reason in said
    assert said.count(". ") == 0
    assert not (tmp_path / "x.html").exists()
