"""Each step of encoding by NumPy, by a kernel as plain Python, and by the kernel compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gecasmo.encoding import columns
from gecasmo.logs import arrays
from gecasmo.testing import plain_python

Integers = NDArray[np.int64]
DTYPES = [np.uint8, np.int32, np.int64, np.uint32, np.uint64, np.bool_]


def every_way(call: Callable[[], Any], n_ways: int = 3) -> list[Any]:
    """What a step says by NumPy, by its kernel as it stands, and by the kernel compiled."""
    answers = []
    for way in range(n_ways):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrays, "LARGE_LOG", 10**9 if way == 0 else 0)
            with plain_python() if way == 1 else nullcontext():
                answers.append(call())
    return answers


def assert_all_equal(answers: list[Any]) -> None:
    for other in answers[1:]:
        np.testing.assert_array_equal(answers[0], other)


@st.composite
def pages(draw: st.DrawFn) -> tuple[Integers, Integers]:
    """Where pages start, and some of them in some order."""
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    starts = arrays.offsets(np.array(lengths))
    picked = draw(st.lists(st.integers(0, len(lengths) - 1), max_size=8))
    return starts, np.array(picked, np.int64)


def some_values(n: int, seed: int, dtype: Any, high: int = 3) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(0, high, n).astype(dtype)


@settings(deadline=None)
@given(pages(), st.integers(0, 99), st.sampled_from(DTYPES))
def test_results_of_pages(
    found: tuple[Integers, Integers], seed: int, dtype: type[np.generic]
) -> None:
    starts, picked = found
    values = some_values(int(starts[-1]), seed, dtype)
    target_start = arrays.offsets(np.diff(starts)[picked])
    wanted = [values[starts[page] : starts[page + 1]] for page in picked]
    answers = every_way(lambda: arrays.page_results(values, starts, picked, target_start))
    assert_all_equal([np.concatenate([values[:0], *wanted]), *answers])
    assert all(answer.dtype == values.dtype for answer in answers)


@settings(deadline=None)
@given(pages(), st.integers(0, 99), st.sampled_from([np.uint8, np.uint32]))
def test_hashes_of_pages(
    found: tuple[Integers, Integers], seed: int, dtype: type[np.generic]
) -> None:
    starts, picked = found
    columns = [some_values(int(starts[-1]), seed + n, dtype) for n in range(2)]
    answers = every_way(lambda: arrays.hash_pages(columns, starts, picked))
    assert_all_equal(answers)
    content = [
        tuple(tuple(column[starts[page] : starts[page + 1]]) for column in columns)
        for page in picked
    ]
    # Equal hashes are equal pages (of so few), and the other way round.
    assert len(set(content)) == len(set(answers[0].tolist()))
    assert len({*zip(content, answers[0].tolist(), strict=True)}) == len(set(content))


@settings(deadline=None)
@given(pages(), st.integers(0, 99))
def test_pages_that_differ(found: tuple[Integers, Integers], seed: int) -> None:
    starts, _ = found
    n_pages = len(starts) - 1
    columns = [some_values(int(starts[-1]), seed + n, np.uint8, 2) for n in range(2)]
    likes = np.random.default_rng(seed).integers(0, n_pages, n_pages)
    wanted = [
        any(
            column[starts[a] : starts[a + 1]].tolist() != column[starts[b] : starts[b + 1]].tolist()
            for column in columns
        )
        for a, b in enumerate(likes)
    ]
    answers = every_way(lambda: arrays.differing_pages(columns, starts, likes))
    assert_all_equal([wanted, *answers])


def numbered_by_hand(values: list[Any], run_start: list[int]) -> tuple[list[int], list[int]]:
    numbers, firsts = [], []
    for begin, end in pairwise(run_start):
        known: dict[Any, int] = {}
        for place in range(begin, end):
            if values[place] not in known:
                firsts.append(place)
            numbers.append(known.setdefault(values[place], len(known)))
    return numbers, firsts


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 5), max_size=6),
    st.integers(0, 99),
    st.sampled_from([np.uint32, np.int32, np.int64, np.uint8]),
)
def test_numbers_within_runs(lengths: list[int], seed: int, dtype: Any) -> None:
    run_start = arrays.offsets(np.array(lengths, np.int64))
    values = some_values(int(run_start[-1]), seed, dtype) - dtype(seed % 2)
    numbers, firsts = numbered_by_hand(values.tolist(), run_start.tolist())
    for found in every_way(lambda: arrays.number_runs(values, run_start)):
        np.testing.assert_array_equal(found.numbers, numbers)
        np.testing.assert_array_equal(found.first_at, firsts)
        assert found.n_distinct.sum() == len(firsts)


def test_runs_with_more_values_than_the_table_has_room_for() -> None:
    rng = np.random.default_rng(0)
    # Many values, then few, then values that only differ in their upper bits.
    runs = [rng.integers(0, 3000, 5000), rng.integers(0, 3, 10), np.arange(700) << 40]
    values = np.concatenate(runs)
    run_start = arrays.offsets(np.array([len(run) for run in runs]))
    numbers, firsts = numbered_by_hand(values.tolist(), run_start.tolist())
    for found in every_way(lambda: arrays.number_runs(values, run_start)):
        np.testing.assert_array_equal(found.numbers, numbers)
        np.testing.assert_array_equal(found.first_at, firsts)


@settings(deadline=None)
@given(pages(), st.integers(0, 99), st.sampled_from([np.int32, np.uint8]))
def test_what_clicks_above_say(found: tuple[Integers, Integers], seed: int, dtype: Any) -> None:
    starts, _ = found
    click = some_values(int(starts[-1]), seed, np.bool_, 2)
    place = np.arange(starts[-1]) - np.repeat(starts[:-1], np.diff(starts))
    rank = (2 * place + 1).astype(dtype)
    last, above = [], []
    for begin, end in pairwise(starts):
        for here in range(begin, end):
            clicked = [k for k in range(begin, here) if click[k]]
            last.append(rank[clicked[-1]] if clicked else 0)
            above.append(len(clicked))
    assert_all_equal([last, *every_way(lambda: arrays.last_click_ranks(click, rank, starts))])
    assert_all_equal([above, *every_way(lambda: arrays.numbers_of_clicks(click, starts))])


@settings(deadline=None)
@given(st.lists(st.integers(-50, 300), min_size=1), st.sampled_from([np.int16, np.int64]))
def test_dense_numbers(values: list[int], dtype: Any) -> None:
    for codes, distinct in every_way(lambda: arrays.dense(np.array(values, dtype))):
        np.testing.assert_array_equal(distinct[codes], values)
        assert distinct.tolist() == sorted(set(values))
        assert distinct.dtype == dtype


def test_dense_numbers_of_all_sizes() -> None:
    for values in ([2**63, 2**64 - 1, 2**63], [0, 2**40, 7], [2**63, 2**63 + 5]):
        for codes, distinct in every_way(lambda v=values: arrays.dense(np.array(v, np.uint64))):
            np.testing.assert_array_equal(distinct[codes], np.array(values, np.uint64))


def test_look_up_and_order() -> None:
    table, values = np.array([3, 1, 2], np.uint8), np.array([2, 0, 0, 1], np.uint8)
    assert_all_equal([[2, 3, 3, 1], *every_way(lambda: arrays.look_up(table, values))])
    for n_distinct in (100, 70_000, 2**33):
        numbers = np.random.default_rng(1).integers(0, min(n_distinct, 2**31), 1000)
        expected = np.argsort(numbers, kind="stable")
        np.testing.assert_array_equal(arrays.stable_order(numbers, n_distinct), expected)


@pytest.mark.parametrize(
    ("n", "expected"), [(0, np.uint8), (256, np.uint8), (257, np.uint16), (2**20, np.uint32)]
)
def test_narrowest(n: int, expected: type) -> None:
    assert arrays.narrowest(n) is expected


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "", "à", "a b"]), min_size=1))
def test_texts_are_numbered_as_they_appear(texts: list[str]) -> None:
    column = pl.Series("doc", texts)
    for codes, values in every_way(lambda: columns._code_values(column, "doc"), 2):
        assert values.gather(codes).to_list() == texts
        assert values.to_list() == list(dict.fromkeys(texts))
