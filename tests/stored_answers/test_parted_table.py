"""Tables in files answer as tables in memory do."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_examples import fitted, parted, split_table

from gecasmo import DBN, Empirical, Table
from gecasmo.encoding import Rows
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.forms import TableState
from gecasmo.forms.parted_table import FolderSource, PartedTable, PartFile, part_of, write_part
from gecasmo.hashes import hash_values


def some_rows(state, seed=0):
    """Rows that are there, and rows that are not, of queries that are and are not."""
    known = state.rows.frame.sample(20, with_replacement=True, seed=seed)
    new = pl.DataFrame({"query": ["question 1", "never seen", "nor this"], "doc": [99, 1, 2]})
    frame = pl.concat([known, new.cast(known.schema)]).sample(fraction=1.0, shuffle=True, seed=seed)
    return Rows(("query", "doc"), frame.get_columns(), len(frame))


@pytest.mark.parametrize("n_parts", [1, 2, 16])
@pytest.mark.parametrize("coin", ["attraction", "satisfaction"])
def test_answers_are_those_of_the_table_in_memory(model, tmp_path, n_parts, coin):
    form, state = model.forms[coin], model.states()[coin]
    table = parted(model, tmp_path, n_parts).states_[coin]
    rows = some_rows(state)
    assert table.n_rows == len(state.rows)
    np.testing.assert_array_equal(form.predict(table, rows), form.predict(state, rows))
    np.testing.assert_array_equal(form.known(table, rows), form.known(state, rows))
    for found, wanted in zip(form.unseen(table, rows), form.unseen(state, rows), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert form.penalty(table) == pytest.approx(form.penalty(state), rel=1e-12)
    keys = ["query", "doc"]
    assert form.to_frame(table).sort(keys).equals(form.to_frame(state).sort(keys))


@pytest.mark.parametrize("by", ["query", "doc", ("doc", "query"), "exposure", "rank"])
def test_priors_of_groups_come_along(log, tmp_path, by):
    model = fitted(log, attraction=Table(prior=Empirical(by)), satisfaction=0.5)
    form, state = model.forms["attraction"], model.states()["attraction"]
    table = parted(model, tmp_path, 8).states_["attraction"]
    rows = some_rows(state)
    np.testing.assert_array_equal(form.predict(table, rows), form.predict(state, rows))
    for found, wanted in zip(form.unseen(table, rows), form.unseen(state, rows), strict=True):
        np.testing.assert_array_equal(found, wanted)
    told = [form.summary(one).split("; ")[1] for one in (table, state)]
    assert all(re.match(r"prior mean 0\.\d+.*, worth [\d.]+ flips", words) for words in told)
    assert told[0] == (
        f"prior mean {state.priors.mean:.3f}, worth {state.priors.strength:.3g} flips"
    )


def test_every_row_is_in_the_part_of_its_query(model, tmp_path):
    table = parted(model, tmp_path, 8).states_["attraction"]
    seen = 0
    for number, (state, counts) in enumerate(table.parts()):
        hashes = hash_values(state.rows.frame["query"])
        assert np.all(hashes >> np.uint64(61) == number)
        assert counts.shape == (2, len(state.rows))
        seen += len(state.rows)
    assert seen == table.n_rows


@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=30), st.integers(0, 6))
def test_the_part_of_a_query_depends_on_its_first_bits_only(queries, bits):
    column = pl.Series("query", queries, dtype=pl.String)
    found = part_of(column, 2**bits)
    wanted = [int(hash_values(column[i : i + 1])[0]) >> (64 - bits) for i in range(len(column))]
    assert found.tolist() == wanted


def test_the_whole_table_is_the_one_that_was_split(model, tmp_path):
    state = model.states()["satisfaction"]
    table = parted(model, tmp_path, 4).states_["satisfaction"]
    whole, counts = table.whole()
    order = np.argsort(part_of(state.rows.frame["query"], 4), kind="stable")
    for name in ("probability", "spread", "centre", "is_fixed", "evidence"):
        wanted, found = getattr(state, name), getattr(whole, name)
        if wanted is None:
            assert found is None
        else:
            np.testing.assert_array_equal(found, wanted[..., order])
    np.testing.assert_array_equal(counts, model.report_.counts["satisfaction"][:, order])
    assert table.has_given
    assert sum(file.n_given for file in table.files) == 1


def test_only_parts_that_are_asked_for_are_read(model, tmp_path):
    table = parted(model, tmp_path, 16).states_["attraction"]
    query = model.states()["attraction"].rows.frame["query"][0]
    mine = int(part_of(pl.Series([query]), 16)[0])
    for number, file in enumerate(table.files):
        if number != mine:
            (tmp_path / file.name).unlink()
    rows = Rows(("query", "doc"), [pl.Series([query] * 2), pl.Series([0, 1])], 2)
    assert len(model.forms["attraction"].predict(table, rows)) == 2
    with pytest.raises(SavedModelError, match=r"part-\d+\.parquet cannot be read"):
        table.whole()


def test_parts_without_rows_need_no_columns(model, tmp_path):
    """As a fit leaves them, which works nothing out for no rows."""
    form, state = model.forms["attraction"], model.states()["attraction"]
    table = split_table(tmp_path, 0, state, None, 32)
    empty = next(number for number, file in enumerate(table.files) if not file.n_rows)
    plain = TableState(Rows(("query", "doc"), [pl.Series([]), pl.Series([])], 0), np.zeros(0), 0.5)
    files = list(table.files)
    files[empty] = write_part(tmp_path, 0, empty, plain, np.zeros((2, 0)))
    again = PartedTable(state, files, FolderSource(tmp_path))
    assert len(again.whole()[0].rows) == len(state.rows)
    assert len(again.part(empty)[0].rows) == 0
    rows = some_rows(state)
    np.testing.assert_array_equal(form.predict(again, rows), form.predict(state, rows))


def test_no_rows_are_no_question(model, tmp_path):
    table = parted(model, tmp_path, 4).states_["attraction"]
    empty = model.states()["attraction"].rows.frame.clear()
    rows = Rows(("query", "doc"), empty.get_columns(), 0)
    assert len(model.forms["attraction"].predict(table, rows)) == 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "other"])
def test_a_damaged_part_is_refused(model, tmp_path, damage):
    table = parted(model, tmp_path, 2).states_["attraction"]
    file = tmp_path / table.files[1].name
    content = bytearray(file.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
    else:
        content = bytearray((tmp_path / table.files[0].name).read_bytes())
    file.write_bytes(content)
    with pytest.raises(SavedModelError, match=r"part-00001\.parquet is damaged"):
        table.part(1)
    table.part(0)


def test_rows_never_flipped_are_told(tmp_path):
    form = Table(pseudo_counts=(0, 0))
    rows = Rows(("query",), [pl.Series([f"q{i}" for i in range(9)])], 9)
    state = form.begin(rows, None)
    counts = np.ones((2, 9))
    counts[:, 4] = counts[:, 7] = 0.0
    table = split_table(tmp_path, 0, state, counts, 4)
    (told,) = form.remarks(table, *counts)
    assert "2 of 9 rows were never flipped" in told
    assert "keep their start value 0.5" in told
    assert "q4" in told or "q7" in told


def test_the_number_of_parts_is_a_power_of_two(model, tmp_path):
    table = parted(model, tmp_path, 4).states_["attraction"]
    with pytest.raises(ModelError, match=r"1, 2, 4, 8, \.\.\. parts, not 3"):
        PartedTable(table.like, table.files[:3], table.source)


def test_only_tables_by_query_come_in_parts(tmp_path):
    form = Table()
    state = form.begin(Rows(("doc",), [pl.Series([1, 2])], 2), None)
    with pytest.raises(ModelError, match="Only a table by query"):
        PartedTable(state, [PartFile("x", "", 0, 2)], FolderSource(tmp_path))


def test_a_table_in_parts_can_be_sent_to_workers(model, tmp_path):
    table = parted(model, tmp_path, 4).states_["attraction"]
    form, rows = model.forms["attraction"], some_rows(model.states()["attraction"])
    wanted = form.predict(table, rows)
    sent = pickle.loads(pickle.dumps(table))
    np.testing.assert_array_equal(form.predict(sent, rows), wanted)


def test_printing_reads_no_part(model, tmp_path: Path):
    twin = parted(model, tmp_path, 4)
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    text = repr(twin)
    assert f"{len(model.states()['attraction'].rows):,} rows in 4 parts, mean 0." in text


def test_given_values_can_be_split_too(tmp_path):
    values = pl.DataFrame({"query": ["a", "b"], "doc": [1, 1], "probability": [0.2, 0.7]})
    model = DBN.with_values(attraction=values, satisfaction=0.5, continuation=0.9)
    twin = parted(model, tmp_path, 2)
    asked = pl.DataFrame({"query": ["b", "a", "c"], "doc": [1, 1, 1]})
    wanted = model.probability("attraction", asked)
    np.testing.assert_array_equal(twin.probability("attraction", asked), wanted)
