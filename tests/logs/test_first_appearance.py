"""Numbers by first appearance against a dictionary, for values in any order."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecasmo.logs.pages import number_by_first_appearance


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=12), st.booleans())
@pytest.mark.parametrize("dtype", [pl.Int32, pl.String, pl.Float64])
def test_against_a_dictionary(dtype: type[pl.DataType], values: list, is_sorted: bool) -> None:
    if is_sorted:
        values = sorted(value for value in values if value is not None)
    numbers: dict = {}
    wanted = [numbers.setdefault(value, len(numbers)) for value in values]
    found, firsts = number_by_first_appearance(pl.Series(values, dtype=pl.Int32).cast(dtype))
    assert found.tolist() == wanted
    assert firsts.tolist() == [values.index(value) for value in numbers]
