"""--plots of `fit`, `compare` and `check`."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import fail, succeed, succeed_with_json

pytest.importorskip("altair")
pytest.importorskip("vl_convert")


def test_a_fit_is_drawn(folder: Path, log_file: Path) -> None:
    data = succeed_with_json("fit", "DBN", log_file, "-o", "dbn.fit", "--plots", "charts")
    names = {Path(path).name for path in data["plots"]}
    assert names >= {"convergence.png", "examination.png", "relevance_against_ctr.png"}
    assert {path.name for path in Path("charts").iterdir()} == names
    assert (folder / data["plots"][0]).read_bytes().startswith(b"\x89PNG")


def test_a_comparison_is_drawn_as_pages(folder: Path, log_file: Path) -> None:
    found = succeed(
        *("compare", log_file, "PBM", "--bootstrap", "10", "--plots", "charts"),
        *("--plots-format", "svg"),
    )
    assert "Charts: charts/perplexity_conditional.svg" in found.stderr
    assert "<svg" in Path("charts/calibration.svg").read_text(encoding="utf-8")


def test_a_file_in_the_place_of_the_folder(folder: Path, log_file: Path) -> None:
    Path("charts").write_text("", encoding="utf-8")
    said = fail("fit", "DBN", log_file, "-o", "dbn.fit", "--plots", "charts")
    assert "--plots charts: that is a file; name a folder." in said
    assert not Path("dbn.fit").exists()


def test_without_the_extra(folder: Path, log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "altair", None)
    said = fail("fit", "DBN", log_file, "-o", "dbn.fit", "--plots", "charts")
    assert '--plots needs the package altair: pip install "gecasmo[plots]"' in said
    assert not Path("dbn.fit").exists()
