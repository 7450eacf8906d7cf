"""Corners: odd pages, odd ids, what rarely happens."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from unit_examples import Mixture, dbn, pages

from gecasmo import (
    DBN,
    EM,
    GCTR,
    PBM,
    RCTR,
    UBM,
    ClickModel,
    CountingDCM,
    CountingSDBN,
    Fixed,
    Parameter,
    Table,
    flip,
    read_log,
)
from gecasmo.compiler import Automaton
from gecasmo.errors import GecasmoWarning, KernelCacheWarning, ModelError, SavedModelError
from gecasmo.kernels import cache


# -- pages -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [DBN, UBM])
def test_a_page_of_one_result(model: type[ClickModel]) -> None:
    log = read_log({"session": [1], "query": ["q"], "doc": ["a"], "rank": [1], "click": [0]})
    fitted = model().fit(log)
    assert fitted.log_likelihood(log)[0] == pytest.approx(np.log1p(-fitted.predict_clicks(log)[0]))


def test_sixty_page_lengths_and_one_kernel() -> None:
    lengths = np.arange(1, 61)
    log = read_log(
        {
            "session": np.repeat(lengths, lengths),
            "query": np.zeros(lengths.sum(), np.int64),
            "doc": np.concatenate([np.arange(n) for n in lengths]),
            "rank": np.concatenate([np.arange(1, n + 1) for n in lengths]),
            "click": np.zeros(lengths.sum(), np.int64),
        }
    )
    model = DBN.with_values(attraction=0.5, satisfaction=0.5, continuation=1.0)
    np.testing.assert_allclose(model.log_likelihood(log), lengths * np.log(0.5))
    assert len(model._libraries) == 1


def test_a_very_long_page_does_not_underflow() -> None:
    n = 3_000
    columns = {"session": [1] * n, "doc": range(n), "rank": range(1, n + 1), "click": [1] * n}
    log = read_log(columns)
    model = GCTR.with_values(click_rate=1e-3)
    assert model.log_likelihood(log)[0] == pytest.approx(n * np.log(1e-3))
    doc = Table(key="doc")
    deep = DBN.with_values(attraction=(doc, 1e-3), satisfaction=(doc, 0.5), continuation=0.5)
    expected = n * np.log(1e-3) + (n - 1) * np.log(0.25)
    assert deep.log_likelihood(log)[0] == pytest.approx(expected)
    counts = deep.expected_counts(log)
    assert counts["attraction"]["heads"].to_numpy() == pytest.approx(np.ones(n))


def test_one_document_twice_on_a_page() -> None:
    log = read_log(
        {"session": [1, 1], "query": ["q", "q"], "doc": ["a", "a"], "rank": [1, 2], "click": [1, 1]}
    )
    model = PBM(examination=Fixed(1.0)).fit(log)
    row = model.parameters["attraction"]
    assert row.rows() == [("q", "a", 0.75, 2.0, 0.0)]


def test_probabilities_at_the_ends_and_next_to_them() -> None:
    log = dbn(1.0, 0.0, 1.0).simulate(pages(3), seed=0)
    assert dbn(1.0, 0.0, 1.0).log_likelihood(log).tolist() == [0.0] * 3
    tiny = dbn(1e-300, 0.0, 1.0)
    assert tiny.log_likelihood(log) == pytest.approx(np.full(3, 3 * np.log(1e-300)))
    heads = tiny.expected_counts(log)["attraction"]["heads"].sum()
    assert heads == pytest.approx(9)


def test_gaps_in_ranks_are_kept() -> None:
    log = read_log({"session": [1] * 3, "doc": list("abc"), "rank": [2, 5, 9], "click": [1, 0, 1]})
    assert sorted(RCTR().fit(log).parameters["click_rate"]["rank"]) == [2, 5, 9]
    rows = UBM(attraction=Table(key="doc")).fit(log).parameters["examination"]
    assert set(rows.select("rank", "last_click").rows()) == {(2, 0), (5, 2), (9, 2)}


def test_sessions_of_several_columns_without_queries() -> None:
    columns = {"user": ["u", "u", "v"], "day": [1, 1, 1], "doc": [1, 2, 1], "rank": [1, 2, 1]}
    log = read_log({**columns, "click": [0, 1, 1]}, session=["user", "day"])
    assert GCTR().fit(log).parameters["click_rate"]["heads"].to_list() == [2.0]


# -- counting models -------------------------------------------------------------------------------
def test_the_last_click_is_found_in_any_order_of_rows() -> None:
    log = read_log(
        {
            "session": [1, 2, 1, 1, 2],
            "query": ["q"] * 5,
            "doc": ["c", "a", "a", "b", "b"],
            "rank": [3, 1, 1, 2, 2],
            "click": [0, 0, 1, 1, 0],
        }
    )
    table = CountingSDBN().fit(log).parameters["satisfaction"].sort("doc")
    assert dict(zip(table["doc"], table["heads"], strict=True)) == {"a": 0, "b": 1, "c": 0}
    continuation = CountingDCM().fit(log).parameters["continuation"].sort("rank")
    assert continuation["heads"].to_list() == [1, 0, 0]
    assert continuation["tails"].to_list() == [0, 1, 0]


# -- forms -----------------------------------------------------------------------------------------
def test_rows_that_were_never_flipped_are_reported() -> None:
    log = read_log(
        {"session": [1, 1], "query": ["q", "q"], "doc": ["a", "b"], "rank": [1, 2], "click": [0, 0]}
    )
    model = DBN(satisfaction=Table((0, 0), start=0.3))
    with pytest.warns(GecasmoWarning) as caught:
        model.fit(log)
    message = str(caught[0].message)
    assert "The coin 'satisfaction': 2 of 2 rows were never flipped" in message
    assert "keep their start value 0.3 (first: {'query': 'q', 'doc': 'a'})" in message
    assert caught[0].filename == __file__
    assert model.parameters["satisfaction"]["probability"].to_list() == pytest.approx([0.3, 0.3])


def test_fixed_values_can_be_given_by_form() -> None:
    model = DBN.with_values(attraction=Fixed(0.4), satisfaction=0.5, continuation=Fixed(0.9))
    assert model.parameters["continuation"]["probability"].to_list() == [0.9]


def test_a_loaded_model_starts_another(tmp_path: Path) -> None:
    log = pages(20)
    fitted = PBM(examination=Fixed(0.7)).fit(log, EM(max_iter=3, tol=0))
    again = PBM(examination=Fixed(0.7)).fit(log, EM(max_iter=1, tol=0), start=fitted)
    assert again.history["objective"][0] == pytest.approx(fitted.history["objective"][-1])


def test_text_ids_of_every_flavour_match() -> None:
    fitted = GCTR(click_rate=Table(key="doc")).fit(pages(5))
    frame = pages(5).to_frame().with_columns(pl.col("doc").cast(pl.Categorical))
    np.testing.assert_array_equal(
        fitted.predict_clicks(read_log(frame)), fitted.predict_clicks(pages(5))
    )


def test_whole_numbers_of_every_size_match() -> None:
    fitted = RCTR.with_values(click_rate={1: 0.25})
    frame = pages(2).to_frame().with_columns(pl.col("rank").cast(pl.Int16))
    assert fitted.predict_clicks(read_log(frame))[0] == 0.25


# -- automata --------------------------------------------------------------------------------------
def test_automata_as_json() -> None:
    automaton = Mixture().automaton
    assert Automaton.from_json(automaton.to_json()) == automaton
    for text in ("", "{", "nonsense", "[1, 2]"):
        with pytest.raises(SavedModelError):
            Automaton.from_json(text)


def test_many_guards_make_too_many_cases() -> None:
    class Guarded(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            names = [f"column_{n}" for n in range(11)]
            if sum(bool(getattr(result, name)) for name in names) > 5 and flip(self.coin):
                user.click()

    log = pages(1, 2, **{f"column_{n}": [True, False] for n in range(11)})
    with pytest.raises(ModelError, match="make more than 1,024 different cases at a result"):
        Guarded().fit(log)


def test_edges_of_a_state() -> None:
    automaton = DBN().automaton
    assert automaton.edges_from(0) == automaton.by_source()[0]


# -- compiling in this process ---------------------------------------------------------------------
def test_a_cache_that_cannot_be_used_is_said_once(
    compiled: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GECASMO_CACHE_DIR", str(tmp_path / "file" / "cache"))
    source = "def filter(out):\n    for i in range(len(out)):\n        out[i] = {}.0\n"
    out = np.zeros(2)
    with pytest.warns(KernelCacheWarning, match="cannot be kept in") as caught:
        kernel = cache.compiled_kernel(source.format(3), "filter", [out])
    cache.compiled_kernel(source.format(4), "filter", [out])  # a second warning would be an error
    assert len(caught) == 1
    kernel(out)
    assert out.tolist() == [3.0, 3.0]


def test_a_cache_in_a_new_folder(
    compiled: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GECASMO_CACHE_DIR", str(tmp_path / "new"))
    source = "def filter(out):\n    out[0] = 42.0\n"
    out = np.zeros(1)
    kernel = cache.compiled_kernel(source, "filter", [out])
    kernel(out)
    assert out[0] == 42
    assert cache.compiled_kernel(source, "filter", [out]) is kernel
    assert len(list((tmp_path / "new" / "kernels").glob("*.kernel"))) == 1


# -- the command line's own errors -----------------------------------------------------------------
def test_errors_of_ours_end_with_code_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gecasmo.cli import main

    monkeypatch.setattr(sys, "argv", ["gecasmo", "describe", "XYZ"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert capsys.readouterr().err.startswith("ModelError: There is no model 'XYZ'.")


def test_the_size_of_a_repr_is_bounded() -> None:
    class Long(ClickModel):
        """Many lines, many states."""

        coin = Parameter("doc")

        def start(self, user):
            user.seen = 0

        def browse(self, user, result):
            # one
            # two
            # three
            # four
            # five
            # six
            # seven
            # eight
            # nine
            # ten
            # eleven
            # twelve
            # thirteen
            # fourteen
            # fifteen
            # sixteen
            # seventeen
            # eighteen
            # nineteen
            # twenty
            # twenty-one
            # twenty-two
            if flip(self.coin):
                user.click()
            user.seen = min(user.seen + 1, 40)
            if user.seen == 40:
                user.leave()

    text = repr(Long())
    assert "more lines" in text
    assert "more edges" in text
    assert len(text.splitlines()) < 70


def test_nothing_warns_in_an_ordinary_day() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = DBN().fit(pages(30))
        fitted.evaluate(pages(30, seed=2))
        fitted.posterior(pages(30))
