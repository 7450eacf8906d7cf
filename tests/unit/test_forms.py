"""Tables and constants: rows get a probability from heads and tails."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from unit_examples import pages

from gecasmo import EM, GCTR, PBM, UBM, Fixed, Table
from gecasmo.encoding import Rows
from gecasmo.errors import ModelError


def rows(*docs: str) -> Rows:
    return Rows(("doc",), [pl.Series("doc", docs, dtype=pl.String)], len(docs))


def fitted(table: Table, heads: list[float], tails: list[float]) -> np.ndarray:
    docs = rows(*"abcdef"[: len(heads)])
    state = table.fit(docs, np.array(heads), np.array(tails), table.begin(docs, None))
    return table.predict(state, docs)


# -- pseudo-counts ---------------------------------------------------------------------------------
def test_pseudo_counts_are_added_to_heads_and_tails() -> None:
    assert fitted(Table((2, 3)), [5, 0, 0], [2, 4, 0]) == pytest.approx([7 / 12, 2 / 9, 2 / 5])


def test_without_pseudo_counts_a_row_without_counts_keeps_its_start() -> None:
    found = fitted(Table((0, 0), start=0.3), [3, 0, 0, 2], [1, 2, 0, 0])
    assert found.tolist() == [0.75, 0.0, 0.3, 1.0]


def test_one_sided_pseudo_counts() -> None:
    assert fitted(Table((0, 1)), [0, 1], [0, 0]).tolist() == [0.0, 0.5]


@pytest.mark.parametrize(
    ("table", "answer"),
    [(Table(), 0.5), (Table((1, 3)), 0.25), (Table((0, 0), start=0.2), 0.2), (Table((2, 0)), 1.0)],
)
def test_rows_never_seen(table: Table, answer: float) -> None:
    docs = rows("a", "b")
    state = table.fit(docs, np.array([9.0, 1.0]), np.array([1.0, 9.0]), table.begin(docs, None))
    asked = rows("z", "b", "a")
    found = table.predict(state, asked)
    assert found[0] == answer
    assert found[1] < found[2]
    assert table.known(state, asked).tolist() == [False, True, True]


def test_the_penalty_is_the_logarithm_of_the_prior() -> None:
    table, docs = Table((2, 3)), rows("a", "b")
    state = table.begin(docs, None)
    assert table.penalty(state) == pytest.approx(2 * 5 * np.log(0.5))
    moved = table.fit(docs, np.array([4.0, 0.0]), np.array([0.0, 4.0]), state)
    p = table.predict(moved, docs)
    assert table.penalty(moved) == pytest.approx((2 * np.log(p) + 3 * np.log(1 - p)).sum())


def test_no_pseudo_counts_no_penalty_even_at_the_ends() -> None:
    table, docs = Table((0, 0)), rows("a", "b")
    state = table.fit(docs, np.array([1.0, 0.0]), np.array([0.0, 1.0]), table.begin(docs, None))
    assert table.predict(state, docs).tolist() == [1.0, 0.0]
    assert table.penalty(state) == 0.0


def test_the_m_step_maximises_what_it_should() -> None:
    table, docs = Table((1.5, 0.5)), rows("a")
    heads, tails = np.array([2.0]), np.array([5.0])
    state = table.fit(docs, heads, tails, table.begin(docs, None))
    best = table.predict(state, docs)[0]

    def goal(p: float) -> float:
        other = table.from_vector(state, np.log([p / (1 - p)]))
        return 2 * np.log(p) + 5 * np.log(1 - p) + table.penalty(other)

    assert goal(best) > max(goal(best - 0.01), goal(best + 0.01))


# -- start, fixed, key -----------------------------------------------------------------------------
def test_start() -> None:
    assert Table(start=0.2).begin(rows("a", "b"), None).probability.tolist() == [0.2, 0.2]


def test_random_starts_differ_by_coin_more_than_by_row() -> None:
    docs = rows(*map(str, range(200)))
    starts = [Table().begin(docs, np.random.default_rng(seed)).probability for seed in range(20)]
    means = [start.mean() for start in starts]
    assert np.std(means) > 3 * np.mean([start.std() for start in starts])
    assert all(0 < start.min() < start.max() < 1 for start in starts)


def test_fixed_rows_stay_exactly() -> None:
    table, docs = Table(fixed={"b": 1.0, "c": 0.25, "nowhere": 0.5}), rows("a", "b", "c")
    state = table.begin(docs, np.random.default_rng(0))
    assert state.probability[1:].tolist() == [1.0, 0.25]
    state = table.fit(docs, np.array([1.0, 0.0, 7.0]), np.array([1.0, 9.0, 0.0]), state)
    assert state.probability.tolist() == [0.5, 1.0, 0.25]
    moved = table.from_vector(state, np.zeros(3) + 2.0)
    assert moved.probability[1:].tolist() == [1.0, 0.25]
    assert table.penalty(state) == pytest.approx(2 * np.log(0.5))  # a given row has no prior


def test_a_fixed_row_answers_also_where_the_log_did_not_have_it() -> None:
    table = Table(fixed={"z": 0.9})
    docs = rows("a")
    state = table.fit(docs, np.ones(1), np.ones(1), table.begin(docs, None))
    assert table.predict(state, rows("a", "z", "y")).tolist() == [0.5, 0.9, 0.5]


@pytest.mark.parametrize(
    ("model", "fixed", "row"),
    [
        (PBM, {1: 1.0}, pl.col("rank") == 1),
        (UBM, {(1, 0): 1.0}, (pl.col("rank") == 1) & (pl.col("last_click") == 0)),
    ],
)
@pytest.mark.parametrize("accelerate", [True, False])
def test_the_scale_is_anchored_exactly(model, fixed, row, accelerate: bool) -> None:
    fit = model(examination=Table(fixed=fixed)).fit(
        pages(20), EM(max_iter=9, tol=0, accelerate=accelerate)
    )
    table = fit.parameters["examination"]
    assert table.filter(row)["probability"].to_list() == [1.0]
    others = table.filter(~row)["probability"]
    assert others.is_between(0, 1, closed="none").all()


def test_key_replaces_the_declared_one() -> None:
    fit = GCTR(click_rate=Table(key=["query", "rank"])).fit(pages())
    assert fit.parameters["click_rate"].columns[:2] == ["query", "rank"]
    assert len(fit.parameters["click_rate"]) == 6


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (Table(), "Table()"),
        (Table((0.5, 2), start=0.1), "Table(pseudo_counts=(0.5, 2), start=0.1)"),
        (Table(fixed={1: 1.0}, key="rank"), "Table('rank', fixed={1: 1.0})"),
        (Table(key=("a", "b")), "Table('a', 'b')"),
        (Fixed(0.9), "Fixed(0.9)"),
        (Fixed(0.9, key="doc"), "Fixed(0.9, key='doc')"),
    ],
)
def test_forms_print_as_they_are_written(table: object, text: str) -> None:
    assert repr(table) == text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"pseudo_counts": 1}, "two numbers"),
        ({"pseudo_counts": (1, 2, 3)}, "two numbers"),
        ({"pseudo_counts": ("a", "b")}, "two numbers"),
        ({"pseudo_counts": (-1, 1)}, "must not be negative"),
        ({"pseudo_counts": (float("nan"), 1)}, "must not be negative"),
        ({"start": 0.0}, "strictly between 0 and 1"),
        ({"start": 1}, "strictly between 0 and 1"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        Table(**arguments)


@pytest.mark.parametrize(
    ("fixed", "complaint"),
    [
        ({1: 1.5}, "must be probabilities"),
        ({(1, 2): 0.5}, "is named by \\(rank\\), but \\(1, 2\\) has 2 parts"),
        ({"first": 0.5}, "same type of ids"),
        ({1: "much"}, "must be numbers"),
        ({1: 0.5, (1,): 0.5}, "twice"),
    ],
)
def test_fixed_rows_that_make_no_sense(fixed: dict, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        PBM(examination=Table(fixed=fixed)).fit(pages())


def test_a_coin_without_key_has_no_rows_to_fix() -> None:
    with pytest.raises(ModelError, match=r"use Fixed\(value\)"):
        GCTR(click_rate=Table(fixed={1: 0.5})).fit(pages())


# -- Fixed -----------------------------------------------------------------------------------------
def test_fixed_never_moves() -> None:
    log = pages(20)
    model = PBM(attraction=Fixed(0.75)).fit(log)
    frame = model.parameters["attraction"]
    assert frame["probability"].to_list() == [0.75]  # one row will do, whatever the key
    by_key = PBM(attraction=Fixed(0.75, key=("query", "doc"))).fit(log).parameters["attraction"]
    assert len(by_key) == 8  # with a key, rows are counted all the same
    assert by_key["heads"].sum() == pytest.approx(frame["heads"][0])
    assert model.forms["attraction"].penalty(model.states()["attraction"]) == 0.0


@pytest.mark.parametrize("value", [True, "0.5", None, 2, -1])
def test_fixed_wants_a_probability(value: object) -> None:
    with pytest.raises(ModelError, match="a probability between 0 and 1 is wanted"):
        Fixed(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0])
def test_fixed_at_the_ends(value: float) -> None:
    assert Fixed(value).predict(rows("a"), rows("a")).tolist() == [float(value)]
