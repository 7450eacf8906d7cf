"""Charts as files: real pictures, pages that need no network, and never half a file."""

from __future__ import annotations

import json
import re
import struct
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gecasmo import ClickLog, read_log
from gecasmo.errors import GecasmoError, ModelError
from gecasmo.model.base import Model
from gecasmo.plots import ctr_by_rank, files, pairs_by_impressions, save, save_all, story


def test_png_is_a_picture_wide_enough(log: ClickLog, tmp_path: Path) -> None:
    path = save(ctr_by_rank(log), tmp_path / "chart.png")
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width >= 800
    assert height >= 400
    assert [entry.name for entry in tmp_path.iterdir()] == ["chart.png"]


def test_svg_is_xml_with_the_words(log: ClickLog, tmp_path: Path) -> None:
    save(ctr_by_rank(log), str(tmp_path / "chart.SVG"))
    root = ElementTree.fromstring((tmp_path / "chart.SVG").read_text(encoding="utf-8"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    said = " ".join(root.itertext())
    assert "Click-through rate by rank" in said
    assert "rank" in said


def test_json_is_the_specification(log: ClickLog, tmp_path: Path) -> None:
    chart = ctr_by_rank(log)
    save(chart, tmp_path / "chart.json")
    assert json.loads((tmp_path / "chart.json").read_text(encoding="utf-8")) == chart.to_dict()


class Scripts(HTMLParser):
    """Collects what a browser would run and load."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.n_scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.n_scripts += tag == "script"
        for name, value in attrs:
            if name in ("src", "href") and value:
                self.loaded.append(value)


def test_html_needs_no_network_and_no_text_breaks_out(dbn: Model, tmp_path: Path) -> None:
    evil = "</script><script src='https://example.org/x.js'></script>"
    log = read_log(
        {
            "session": [1, 1],
            "query": [evil] * 2,
            "doc": [evil, "b"],
            "rank": [1, 2],
            "click": [1, 0],
        }
    )
    save(story(dbn, log, 1), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    seen = Scripts()
    seen.feed(page)
    assert seen.loaded == []
    assert seen.n_scripts == 2  # the library, and the chart
    assert not re.search(r"<script[^>]+src", page)
    assert "vegaEmbed" in page
    text = page[page.index("const spec = ") + len("const spec = ") :]
    specification, _ = json.JSONDecoder().raw_decode(text)
    drawn = next(iter(specification["datasets"].values()))
    assert drawn[0]["doc"].startswith("</script>")


def test_other_suffixes_are_refused(log: ClickLog, tmp_path: Path) -> None:
    chart = ctr_by_rank(log)
    for name in ("chart.gif", "chart"):
        with pytest.raises(GecasmoError, match=r"saved as one of \.png, \.svg, \.html, \.json"):
            save(chart, tmp_path / name)
    with pytest.raises(GecasmoError, match="suffix='pdf'"):
        save_all({"a": chart}, tmp_path / "new", suffix="pdf")
    assert list(tmp_path.iterdir()) == []


def test_something_else_than_a_chart(tmp_path: Path) -> None:
    with pytest.raises(GecasmoError, match=r"a chart is wanted.*not int"):
        save(3, tmp_path / "chart.png")
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_not_there(log: ClickLog, tmp_path: Path) -> None:
    with pytest.raises(GecasmoError, match="there is no folder"):
        save(ctr_by_rank(log), tmp_path / "none" / "chart.json")


def test_all_charts_into_a_new_folder(log: ClickLog, tmp_path: Path) -> None:
    charts = {"rates": ctr_by_rank(log), "pairs": pairs_by_impressions(log)}
    folder = tmp_path / "a" / "b"
    assert save_all(charts, folder, suffix=".json") == [
        folder / "rates.json",
        folder / "pairs.json",
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["pairs.json", "rates.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(GecasmoError, match="cannot be made"):
        save_all(charts, tmp_path / "file", suffix="json")


def test_a_failure_leaves_the_old_file(
    log: ClickLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "chart.json"
    target.write_text("old")

    def broken(self: Path, content: bytes) -> int:
        with self.open("wb") as half:
            half.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", broken)
    with pytest.raises(GecasmoError, match="the disk is full"):
        save(ctr_by_rank(log), target)
    assert target.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["chart.json"]


def test_the_users_own_settings_stay_and_do_not_matter(log: ClickLog, tmp_path: Path) -> None:
    import altair

    with altair.data_transformers.enable("json", prefix=str(tmp_path / "stray")):
        save(ctr_by_rank(log), tmp_path / "chart.svg")
        assert altair.data_transformers.active == "json"
    assert [entry.name for entry in tmp_path.iterdir()] == ["chart.svg"]


def _without(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)


def test_without_altair(log: ClickLog, dbn: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "altair")
    wanted = r'Drawing charts needs the package altair: pip install "gecasmo\[plots\]"'
    draws: list[Any] = [
        lambda: ctr_by_rank(log),
        lambda: pairs_by_impressions(log),
        dbn.plot.convergence,
        lambda: dbn.plot.story(log, "s0"),
        lambda: dbn.plot.relevance_against_ctr(log),
        lambda: dbn.plot.calibration(log),
        lambda: dbn.plot.examination(log),
    ]
    for draw in draws:
        with pytest.raises(ModelError, match=wanted):
            draw()


def test_without_the_converter(
    log: ClickLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = ctr_by_rank(log)
    _without(monkeypatch, "vl_convert")
    for suffix in ("png", "svg", "html"):
        with pytest.raises(ModelError, match="Saving charts needs the package vl_convert"):
            save(chart, tmp_path / f"chart.{suffix}")
    assert list(tmp_path.iterdir()) == []
    save(chart, tmp_path / "chart.json")


def test_pictures_are_sharp() -> None:
    assert files.SCALE >= 2
