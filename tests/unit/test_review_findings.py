"""Mistakes that reviewers found once, so that nobody makes them again."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import gecasmo
from gecasmo import DBN, EM, PBM, ClickModel, Fixed, Parameter, Table, flip
from gecasmo.encoding.columns import dense
from gecasmo.encoding.rows import Rows, history_of, lift
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.simulation import random_pages
from gecasmo.testing import ModelCheckError, check_model
from strategies.zoo import SHAPES, with_columns_of


def small_log(**columns: list) -> gecasmo.ClickLog:
    table = {
        "session": [1, 1, 1, 2, 2, 2],
        "query": ["q"] * 6,
        "doc": ["a", "b", "c", "b", "a", "c"],
        "rank": [1, 2, 3] * 2,
        "click": [1, 0, 0, 1, 0, 1],
    }
    return gecasmo.read_log({**table, **columns})


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint64])
def test_distinct_numbers_keep_their_values(dtype: type) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, 0, info.max - 1, info.min], dtype=dtype)
    codes, distinct = dense(values)
    np.testing.assert_array_equal(distinct[codes], values)
    near_the_end = np.array([info.max, info.max - 2, info.max], dtype=dtype)
    codes, distinct = dense(near_the_end)
    np.testing.assert_array_equal(distinct[codes], near_the_end)


def test_ids_of_every_integer_type() -> None:
    for values in (
        pl.Series([-100, 0, 100, 0, -100, 100], dtype=pl.Int8),
        pl.Series([2**64 - 1, 2**64 - 2, 0, 0, 2**64 - 1, 2**64 - 2], dtype=pl.UInt64),
        pl.Series([2**100, 1, 2, 1, 2**100, 2], dtype=pl.Int128),
    ):
        log = small_log(doc=values)
        model = DBN().fit(log)
        assert set(model.parameters["attraction"]["doc"]) == set(values)
        assert np.isfinite(model.score(log))


@pytest.mark.parametrize("name", ["CountingDCM", "CountingSDBN"])
def test_counting_models_predict_without_looking_at_clicks_below(name: str) -> None:
    counting = gecasmo.models.CATALOGUE[name]
    exact = gecasmo.models.CATALOGUE[name.removeprefix("Counting")]
    log = small_log()
    model = counting().fit(log)
    twin = exact.with_values(
        **{coin: frame.drop("heads", "tails") for coin, frame in model.parameters.items()}
    )
    changed = log.with_signals({"click": [True, False, True, True, False, False]})
    for seen in (log, changed):
        np.testing.assert_allclose(model.log_likelihood(seen), twin.log_likelihood(seen))
        np.testing.assert_allclose(
            model.predict_conditional_clicks(seen), twin.predict_conditional_clicks(seen)
        )
    before, after = map(model.predict_conditional_clicks, (log, changed))
    np.testing.assert_array_equal(before[:3], after[:3])
    assert "is_last_click" not in model.simulate(log).columns


def test_a_parameter_of_two_classes_keeps_its_name_in_both() -> None:
    class Borrower(ClickModel):
        liking = DBN.attraction

        def browse(self, user, result):
            if flip(self.liking):
                user.click()

    assert Borrower().automaton.parameters == ("liking",)
    assert DBN().automaton.parameters == ("attraction", "satisfaction", "continuation")


def test_a_program_cannot_ask_for_what_it_has_to_explain() -> None:
    class Oracle(ClickModel):
        a = Parameter()

        def browse(self, user, result):
            if flip(self.a) and result.click:
                user.click()

    with pytest.raises(ModelError, match=r"asks for result\.click, which is what it has"):
        _ = Oracle().automaton

    class Odd(ClickModel):
        a = Parameter()

        def browse(self, user, result):
            if flip(self.a):
                user.emit("rank")

    with pytest.raises(ModelError, match="'rank' cannot be a signal"):
        _ = Odd().automaton


def test_no_count_is_negative() -> None:
    quality = np.random.default_rng(1).uniform(0.1, 0.9, (3, 6))
    for seed in range(40):
        pages = random_pages(60, seed, n_queries=3, quality=quality, length=4, noise=0.0)
        truth = PBM.with_values(examination=0.7, attraction=0.4)
        log = truth.simulate(pages, seed=seed)
        model = PBM(examination=Table(fixed={1: 1.0}))
        model.fit(log, EM(max_iter=20, tol=0))
        for frame in model.parameters.values():
            assert frame["tails"].min() >= 0
            assert frame["heads"].min() >= 0


def test_textbook_dbn_counts_attraction_after_leaving() -> None:
    """Textbooks flip attraction at every result, seen or not; written as a program it does too."""

    class Textbook(ClickModel):
        attraction = Parameter("query", "doc")
        satisfaction = Parameter("query", "doc")
        continuation = Parameter()

        def start(self, user):
            user.gone = False

        def browse(self, user, result):
            attracted = flip(self.attraction)
            if user.gone:
                return
            if attracted:
                user.click()
                user.gone = flip(self.satisfaction)
            if not user.gone:
                user.gone = not flip(self.continuation)

    values = {
        "attraction": {("q", "a"): 0.4, ("q", "b"): 0.3, ("q", "c"): 0.6},
        "satisfaction": {("q", "a"): 0.5, ("q", "b"): 0.2, ("q", "c"): 0.7},
        "continuation": 0.8,
    }
    log = small_log()
    textbook, dbn = Textbook.with_values(**values), DBN.with_values(**values)
    np.testing.assert_allclose(textbook.log_likelihood(log), dbn.log_likelihood(log))
    reached = dbn.posterior(log)["reached"].to_numpy()
    alpha = np.array([values["attraction"]["q", doc] for doc in log.column("doc")])
    attracted = np.where(log.click, 1.0, alpha * (1 - reached))
    counts = textbook.expected_counts(log, augmentation="full")["attraction"]
    for doc, heads, tails in counts.select("doc", "heads", "tails").rows():
        here = (log.column("doc") == doc).to_numpy()
        assert heads == pytest.approx(attracted[here].sum(), abs=1e-12)
        assert tails == pytest.approx((1 - attracted[here]).sum(), abs=1e-12)
    # Minimal hidden data knows that nothing follows from attraction after leaving.
    assert textbook.automaton.n_states == dbn.automaton.n_states == 2


def test_the_exam_fails_on_what_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    real = DBN.predict_clicks
    monkeypatch.setattr(DBN, "predict_clicks", lambda *a, **k: real(*a, **k) * np.nan)
    with pytest.raises(ModelCheckError, match="FAIL enumeration gives the same click"):
        check_model(DBN, compiled=False)


def test_the_exam_knows_every_key() -> None:
    class Odd(ClickModel):
        one = Parameter("result")
        two = Parameter("row")

        def browse(self, user, result):
            if flip(self.one) and flip(self.two):
                user.click()

    assert check_model(Odd, compiled=False).passed


def test_weights_in_the_summary() -> None:
    log = gecasmo.read_log({**small_log().to_frame().to_dict(), "w": [10.0] * 6}, weight="w")
    model = DBN().fit(log)
    assert f"log-likelihood per session {model.score(log):.4f}" in repr(model)


def test_a_start_from_a_fixed_coin_on_another_log() -> None:
    log = small_log()
    by_pair = Fixed(0.4, key=("query", "doc"))
    first = DBN(satisfaction=by_pair).fit(log)
    again = DBN(satisfaction=by_pair).fit(log.take(np.array([0])), start=first)
    assert len(again.parameters["satisfaction"]) == 3


@pytest.mark.parametrize("value", [(0.3, 0.5), (0.3,), (Fixed(0.2), 0.5)])
def test_values_in_odd_tuples(value: tuple) -> None:
    with pytest.raises(ModelError, match="give a number, a dictionary by key"):
        gecasmo.GCTR.with_values(click_rate=value)


def test_a_number_for_all_rows_leaves_none_unseen() -> None:
    model = DBN.with_values(attraction=0.3, satisfaction={("q", "a"): 0.5}, continuation=0.9)
    frame = model.predict_clicks(small_log(), frame=True)
    assert frame["unseen"].to_list()[:2] == [[], ["satisfaction"]]


def test_numpy_numbers_as_fixed_rows_can_be_saved(tmp_path) -> None:
    model = PBM(examination=Table(fixed={np.int64(1): 1.0})).fit(small_log())
    model.save(tmp_path / "m")
    again = gecasmo.load(tmp_path / "m")
    np.testing.assert_array_equal(
        again.predict_clicks(small_log()), model.predict_clicks(small_log())
    )


def test_nothing_to_evaluate() -> None:
    model = DBN.with_values(attraction=0.3, satisfaction=0.5, continuation=0.9)
    log = gecasmo.read_log({**small_log().to_frame().to_dict(), "w": [0.0] * 6}, weight="w")
    for ask in (model.score, model.evaluate):
        with pytest.raises(ClickLogError, match="nothing to evaluate"):
            ask(log)
    with pytest.raises(ClickLogError, match="The dict lacks the columns"):
        model.score({"session": [1]})


def test_lift_gives_every_row_with_every_history() -> None:
    rows = Rows(("rank",), [pl.Series("rank", [1, 2, 5])], 3)
    keys = ("last_click", "rank", "clicks_above")
    sizes = {"last_click": 3, "clicks_above": 2}
    assert history_of(keys) == ["last_click", "clicks_above"]
    parts = list(lift(rows, keys, sizes, rows_at_once=6))
    assert [place for place, _ in parts] == [slice(0, 6), slice(6, 12), slice(12, 18)]
    frame = pl.concat(part.frame for _, part in parts)
    assert frame.columns == list(keys)
    for place, (last, rank, above) in enumerate(frame.rows()):
        row = [1, 2, 5].index(rank)
        assert place == (row * 3 + last) * 2 + above


def test_a_lagged_coin_cannot_know_the_clicks_above() -> None:
    from pathlib import Path

    file = Path(__file__).parents[1] / "matrices" / "matrices.json"
    model = gecasmo.matrices.read(file, "czm", phi_S=Table(key=("doc", "last_click")))
    with pytest.raises(ModelError, match="belongs to the previous result"):
        model.fit(small_log())


def test_pandas_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    table = small_log().to_frame().to_dict(as_series=False)
    monkeypatch.setattr("gecasmo.logs.formats.table._has_pyarrow", lambda: False)
    log = gecasmo.read_log(pd.DataFrame(table))
    assert log.to_frame().to_dict(as_series=False) == table


@pytest.mark.parametrize("name", [*SHAPES, "czm", "ubm"])
def test_the_source_that_is_shown_is_the_source_that_runs(name: str) -> None:
    from pathlib import Path

    from gecasmo.kernels.library import COUNTING_KERNELS, KERNELS, LIFTED_KERNELS

    file = Path(__file__).parents[1] / "matrices" / "matrices.json"
    zoo = gecasmo.models.CATALOGUE
    model = zoo[name]() if name in zoo else gecasmo.matrices.read(file, name)
    log = with_columns_of(model, small_log())
    for kernel in KERNELS:
        encoded = model.encode(log, kernel, lifted=kernel in LIFTED_KERNELS)
        library = model.library(encoded.plan, counting=kernel in COUNTING_KERNELS)
        assert model.source(kernel).endswith("\n\n" + library.source(kernel))


def test_numbers_for_all_rows_ask_for_no_columns() -> None:
    columns = {"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2], "click": [1, 0]}  # no query
    model = DBN.with_values(attraction=0.4, satisfaction=0.3, continuation=0.8)
    expected = [0.4, (0.6 + 0.4 * 0.7) * 0.8 * 0.4]
    np.testing.assert_allclose(model.predict_clicks(gecasmo.read_log(columns)), expected)


def test_estimates_with_pseudo_counts_are_the_mean_that_their_interval_is_about() -> None:
    columns = {"session": [1, 2, 3], "doc": ["a"] * 3, "rank": [1] * 3, "click": [1, 1, 0]}
    model = gecasmo.DCTR(click_rate=Table(key="doc", pseudo_counts=(0, 0)))
    row = model.fit(gecasmo.read_log(columns)).estimates("click_rate").row(0, named=True)
    assert model.parameters["click_rate"]["probability"].item() == pytest.approx(2 / 3)  # the mode
    # Pseudo-counts below a half count as a half here: two heads and one tail give Beta(2.5, 1.5).
    assert row["probability"] == pytest.approx(2.5 / 4, rel=1e-6)
    assert row["spread"] == pytest.approx((2.5 * 1.5 / (4**2 * 5)) ** 0.5, rel=1e-5)
