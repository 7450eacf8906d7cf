"""Ids and names that would break a picture, a page or a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import altair
import polars as pl
import pytest
from reading import tables, words

from gecasmo import DBN, RCTR, UBM, ClickLog, read_log
from gecasmo.compiler.automaton_json import from_data, to_data
from gecasmo.errors import GecasmoError
from gecasmo.evaluation import compare
from gecasmo.model.base import Model
from gecasmo.model.click_model import AutomatonModel
from gecasmo.plots import comparison_charts, fit_charts, log_charts, save, save_all, story
from gecasmo.testing import plain_python

NASTY = "\x1b[31mred\x07\x00\x9b\u202e\ufffe\uffff"
SHOWN = "?[31mred??????"
DRAWERS = Path(__file__).parents[2] / "src" / "gecasmo" / "plots"


def texts(value: Any) -> Iterator[str]:
    """All texts of a specification."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


def assert_harmless(chart: Any) -> None:
    for text in texts(chart.to_dict()):
        assert not set(text) & set(NASTY[0] + NASTY[8:]), repr(text)


@pytest.fixture(scope="module")
def nasty(frame: pl.DataFrame) -> ClickLog:
    named = {
        name: pl.concat_str(pl.lit(NASTY), pl.col(name)) for name in ("session", "query", "doc")
    }
    return read_log(frame.with_columns(**named), weight="times")


@pytest.fixture(scope="module")
def model(nasty: ClickLog) -> Model:
    with plain_python():
        fitted = DBN().fit(nasty, progress=False)
    fitted.name = f"DBN {NASTY}"
    return fitted


def test_every_chart_of_a_fit(model: Model, nasty: ClickLog) -> None:
    charts = fit_charts(model, nasty)
    charts["story"] = story(model, nasty, f"{NASTY}s0")
    assert len(charts) == 6
    for chart in [*charts.values(), *log_charts(nasty).values()]:
        assert_harmless(chart)
    assert words(charts["story"]).startswith(f"DBN {SHOWN}: the story of session {SHOWN}s0, query")
    shown = pl.concat(tables(charts["story"]), how="diagonal")["doc"].unique().to_list()
    assert set(shown) <= {f"{SHOWN}d{number}" for number in range(6)}
    # What is drawn by its name is still found by it.
    drawn = charts["ctr_by_rank"].to_dict()
    names = {row["model"] for rows in drawn["datasets"].values() for row in rows if "model" in row}
    assert names == {f"DBN {SHOWN}"}
    assert f"DBN {SHOWN}" in set(texts(drawn["vconcat"]))


def test_every_chart_of_a_comparison(nasty: ClickLog) -> None:
    found = compare(nasty, {NASTY: RCTR, "UBM": UBM}, bootstrap=0)
    for chart in comparison_charts(found).values():
        assert_harmless(chart)


@pytest.mark.parametrize("suffix", ["svg", "png", "html", "json"])
def test_files(model: Model, nasty: ClickLog, tmp_path: Path, suffix: str) -> None:
    path = save(story(model, nasty, f"{NASTY}s0"), tmp_path / f"story.{suffix}")
    content = path.read_bytes()
    if suffix == "svg":
        said = " ".join(ElementTree.fromstring(content.decode()).itertext())
        assert f"session {SHOWN}s0" in said
    assert b"\x1b[31" not in content if suffix != "html" else b"\\u001b[31" not in content


def test_charts_of_others_are_saved_too(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [f"x{NASTY}"], "b": [1]})
    chart = altair.Chart(frame, title=f"{NASTY}\nbelow").mark_bar().encode(x="a:N", y="b:Q")
    said = save(chart, tmp_path / "own.svg").read_text(encoding="utf-8")
    assert SHOWN in " ".join(ElementTree.fromstring(said).itertext())
    assert save(chart, tmp_path / "own.png").read_bytes()[:4] == b"\x89PNG"
    assert chart.to_dict()["title"] == f"{NASTY}\nbelow"  # the user's own chart is not touched


@pytest.mark.parametrize("key", [("rank",), ("rank", "last_click")])
def test_names_of_coins(nasty: ClickLog, key: tuple[str, ...]) -> None:
    """A model from a file can call its coins what it likes."""
    said = json.dumps(to_data(RCTR().structure.traced))
    automaton = from_data(json.loads(said.replace('"click_rate"', json.dumps(NASTY))))
    model = AutomatonModel(automaton, {NASTY: key})
    with plain_python():
        model.fit(nasty, progress=False)
    assert_harmless(model.plot.examination(coin=NASTY))
    assert_harmless(model.plot.relevance_against_ctr(nasty, coin=NASTY))
    assert_harmless(story(model, nasty, f"{NASTY}s0"))


def test_file_names(model: Model, tmp_path: Path) -> None:
    chart = model.plot.convergence()
    saved = save_all({"a/b\\c\x1b?": chart, "..": chart}, tmp_path / "new", "json")
    assert [path.name for path in saved] == ["a_b_c__.json", "...json"]
    assert {path.parent for path in saved} == {tmp_path / "new"}
    with pytest.raises(GecasmoError, match="Two charts would be saved as 'a_b'"):
        save_all({"a/b": chart, "a\x00b": chart}, tmp_path / "other", "json")
    assert not (tmp_path / "other").exists()


def test_ids_of_several_columns_and_of_bytes(frame: pl.DataFrame) -> None:
    def charts(log: ClickLog) -> list[Any]:
        with plain_python():
            fitted = DBN().fit(log, progress=False)
        return [fitted.plot.relevance_against_ctr(log), story(fitted, log, "s0")]

    shop = frame.with_columns(shop=pl.lit("x\x1b"))
    for log in (
        read_log(shop, doc=["shop", "doc"]),
        read_log(frame.with_columns(pl.col("doc").cast(pl.Binary))),
    ):
        for chart in charts(log):
            assert_harmless(chart)
            docs = [row["doc"] for rows in chart.to_dict()["datasets"].values() for row in rows]
            assert all(isinstance(doc, str) for doc in docs)


def test_all_data_go_one_way() -> None:
    """Who draws rows in another way than by `chart_of` draws whatever is in them."""
    for path in DRAWERS.glob("*.py"):
        if path.name != "theme.py":
            assert "Chart(" not in path.read_text().replace("Chart(alt.Data(values=", ""), path
