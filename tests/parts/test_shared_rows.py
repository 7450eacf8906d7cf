"""Rows that parts share, against a dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecasmo import PBM, ClickLog, Table, read_log
from gecasmo.encoding import Rows, shared_rows
from gecasmo.encoding.shared_rows import SharedRows
from gecasmo.errors import ClickLogError, ModelError

KEYS = st.tuples(st.integers(-30, 30), st.sampled_from(["", "a", "b", "ä"]))


def rows_of(keys: list[tuple[Any, ...]], names: tuple[str, ...], **attached: list[Any]) -> Rows:
    columns = [pl.Series(name, [key[n] for key in keys]) for n, name in enumerate(names)]
    return Rows(names, columns, len(keys), {n: pl.Series(n, v) for n, v in attached.items()})


@pytest.mark.parametrize("n_hashes", [None, 3])
@settings(max_examples=60)
@given(parts=st.lists(st.lists(KEYS, unique=True, min_size=1), min_size=1, max_size=12))
def test_a_row_keeps_the_number_it_gets_first(parts: Any, n_hashes: int | None) -> None:
    hashes = shared_rows._hashes
    shared, numbers = SharedRows("coin"), {}
    with pytest.MonkeyPatch.context() as patch:
        if n_hashes is not None:  # many rows have the hash of another one
            patch.setattr(shared_rows, "_hashes", lambda frame: hashes(frame) % n_hashes)
        for keys in parts:
            index = shared.add(rows_of(keys, ("doc", "kind"), size=[7 * k[0] for k in keys]))
            assert index.tolist() == [numbers.setdefault(key, len(numbers)) for key in keys]
    found = shared.rows()
    assert len(found) == len(numbers)
    assert found.frame.rows() == list(numbers)
    assert found.attached["size"].to_list() == [7 * doc for doc, _ in numbers]


def test_few_blocks_are_looked_into_however_many_parts_there_are() -> None:
    shared = SharedRows("coin")
    for part in range(300):
        docs = np.arange(5 * part, 5 * part + 10)  # half of them were met before
        assert shared.add(Rows(("doc",), [pl.Series(docs)], 10)).tolist() == docs.tolist()
    assert len(shared.rows()) == 1505
    assert len(shared._blocks) <= np.log2(1505)


def test_numbers_of_other_widths_are_the_same_numbers() -> None:
    shared = SharedRows("coin")
    for dtype in (pl.Int64, pl.Int8, pl.UInt32, pl.Int64):
        rows = Rows(("doc",), [pl.Series([3, 1, 2], dtype=dtype)], 3)
        assert shared.add(rows).tolist() == [0, 1, 2]
    with pytest.raises(ModelError, match="'doc' holds Int64 in the model and String"):
        shared.add(rows_of([("a",)], ("doc",)))


@pytest.mark.parametrize(
    "series",
    [
        pl.Series([0.5, -0.0, float("nan")]),
        pl.Series(["x", "y", ""], dtype=pl.Categorical),
        pl.Series([{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}]),
        pl.Series([True, False]),
    ],
    ids=["numbers", "categories", "structs", "booleans"],
)
def test_keys_of_any_type_are_met_again(series: pl.Series) -> None:
    shared = SharedRows("coin")
    n = len(series)
    assert shared.add(Rows(("key",), [series[:-1]], n - 1)).tolist() == list(range(n - 1))
    again = series.reverse()
    if series.dtype == pl.Float64:
        again = pl.Series([float("nan"), 0.0, 0.5])  # zero has two signs
    assert shared.add(Rows(("key",), [again], n)).tolist() == [n - 1, *range(n - 2, -1, -1)]


def test_results_are_never_the_same_and_no_key_is_one_row() -> None:
    shared = SharedRows("coin")
    for start in (0, 3):
        rows = Rows(("result",), [pl.Series([0, 1, 2])], 3)
        assert shared.add(rows).tolist() == [start, start + 1, start + 2]
    assert shared.rows().frame["result"].to_list() == [0, 1, 2, 3, 4, 5]
    single = SharedRows("coin")
    for _ in range(2):
        assert single.add(Rows((), (), 1)).tolist() == [0]
    assert len(single.rows()) == 1


def test_features_that_differ_are_refused() -> None:
    shared = SharedRows("coin")
    shared.add(rows_of([(1,), (2,)], ("doc",), price=[1.0, None]))
    shared.add(rows_of([(3,), (2,)], ("doc",), price=[3.0, None]))
    with pytest.raises(ClickLogError, match=r"'price', a feature of 'coin'.*doc 3 has 3.0 and 4"):
        shared.add(rows_of([(4,), (1,), (3,)], ("doc",), price=[9.0, 1.0, 4.0]))


def test_a_stored_fit_may_have_no_row_of_its_parts_own(tmp_path: Path) -> None:
    log = Path(__file__).parents[1] / "parity" / "log.csv"
    model = PBM(attraction=Table(key="doc"))
    stored = model.copy().fit(ClickLog.ingest(log, tmp_path / "log.gclog"))
    with_all = model.fit(read_log(log))
    assert set(stored.estimates("attraction")["doc"]) == set(
        with_all.estimates("attraction")["doc"]
    )
    assert stored.score(read_log(log)) == pytest.approx(with_all.score(read_log(log)), abs=2e-3)
