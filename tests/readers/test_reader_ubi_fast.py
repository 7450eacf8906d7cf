"""Records of UBI read all at once, and one by one: the same records, notes and errors."""

from __future__ import annotations

import datetime
import io
import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reader_helpers import MORE, SAMPLES, read_noting

from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs import read_log
from gecasmo.logs.formats import ubi_records
from gecasmo.logs.formats.moments import moments_of_numbers, moments_of_texts, read_moment
from gecasmo.logs.formats.ubi_records import PlainRecords, Records, table_of_lines
from gecasmo.logs.inputs import Input, Opened
from gecasmo.logs.notes import Notebook

Found = tuple[list[dict[str, Any]], list[dict[str, Any]], list[Any]] | str


def records_of(data: bytes) -> Found:
    """The queries, events and notes of a file, or the message of the error."""
    records = Records()
    notes = Notebook(place=records.place)
    try:
        records.read(Opened("log", [Input("log", raw=data)]), 10_000)
    except ClickLogError as error:
        return str(error)
    records.take_notes(notes)
    return records.queries.to_dicts(), records.events.to_dicts(), notes.notes


def fast(data: bytes) -> Found:
    """Leave to the slow reader only the lines that do not fit, and none beside them."""
    with patch.object(ubi_records, "FEW", 1):
        return records_of(data)


class NothingPlain(PlainRecords):
    """Leaves all records of a table to be read one by one."""

    def __init__(self, table: pl.DataFrame, is_json: bool = False) -> None:
        super().__init__(table, is_json)
        self.is_odd = pl.repeat(True, table.height, eager=True)


def slow(data: bytes) -> Found:
    nothing = (pl.Series(dtype=pl.Int64), pl.DataFrame(schema=ubi_records.RECORD))
    with (
        patch.object(ubi_records, "table_of_lines", lambda data, lines: nothing),
        patch.object(ubi_records, "PlainRecords", NothingPlain),
    ):
        return records_of(data)


texts = st.sampled_from(
    ["a", "", "q1", "12", "é😀", 'a"b', "a\\b", "a\nb", "\x7f", '{"object": 1}']
)
numbers = st.sampled_from([0, 7, -3, 10**17, 10**18 - 1, 10**18, 10**25, 1.5, 2.0, 1e300])
scalars = texts | numbers | st.booleans() | st.none()
ids = st.one_of(st.just("q1"), st.just("q2"), scalars, st.just(["x\n"]), st.just({}))
times = st.one_of(
    st.sampled_from(
        [
            "2026-03-01T10:00:00.000Z",
            "2026-03-01T10:00:00+00:00",
            "2026-03-01T10:00:00.123456",
            "2026-02-30T10:00:00Z",
            "yesterday",
            "1772359200000",
            1772359200000,
        ]
    ),
    scalars,
)
ordinals = st.one_of(st.integers(0, 3), scalars, st.just([1]))
hits = st.one_of(
    st.lists(texts, max_size=3), st.lists(st.integers(0, 3), max_size=3), scalars, st.just([None])
)
attributes = st.one_of(
    st.fixed_dictionaries(
        {"object": st.fixed_dictionaries({"object_id": ids})},
        optional={"position": st.fixed_dictionaries({"ordinal": ordinals}), "more": scalars},
    ),
    st.fixed_dictionaries({}, optional={"object": scalars, "position": st.just({})}),
    scalars,
)
shared = {"client_id": ids, "session_id": ids, "timestamp": times, "other": scalars | hits}
queries = st.fixed_dictionaries(
    {"query_id": ids},
    optional={"user_query": ids, "query_response_hit_ids": hits, "action_name": st.none()} | shared,
)
events = st.fixed_dictionaries(
    {"action_name": st.sampled_from(["click", "impression", 5]), "query_id": ids},
    optional={
        "event_attributes": attributes,
        "event_attributes.object.object_id": ids,
        "object_id": ids,
        "position.ordinal": ordinals,
    }
    | shared,
)
wrapped = st.one_of(
    st.builds(lambda record: {"_index": "ubi", "_source": record}, queries | events),
    st.just({"index": {"_index": "ubi"}}),
    st.fixed_dictionaries({}, optional={"index": scalars, "_source": scalars}),
)


@st.composite
def lines(draw: st.DrawFn) -> str:
    record = draw(queries | events | wrapped)
    record = dict(draw(st.permutations(list(record.items()))))
    separators = draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\t", " : ")]))
    return json.dumps(record, ensure_ascii=draw(st.booleans()), separators=separators)


@st.composite
def damaged(draw: st.DrawFn, text: st.SearchStrategy[str]) -> str:
    """A line with one stroke that went wrong, or with a key that comes twice."""
    line = draw(text)
    at = draw(st.integers(0, len(line)))
    if draw(st.booleans()) and line.endswith("}") and len(line) > 2:
        return f'{line[:-1]}, "query_id": "again"}}'
    strokes = [
        "",
        '"',
        "\\",
        "\\ud800",
        "\\u00e9",
        "{",
        "}",
        "[",
        ",",
        ":",
        "0",
        "-",
        ".",
        "e",
        " ",
    ]
    return line[:at] + draw(st.sampled_from([*strokes, "\x01", "true", "\ufeff"])) + line[at + 1 :]


@settings(deadline=None, max_examples=40 * MORE)
@given(st.lists(lines(), min_size=1, max_size=8), st.data())
def test_lines_read_fast_are_the_lines_read_slowly(written: list[str], data: st.DataObject) -> None:
    # Lines of one shape, so that one is the sample of the others.
    twins = [data.draw(damaged(st.just(line))) for line in written if data.draw(st.booleans())]
    every = data.draw(st.permutations(written + data.draw(st.sampled_from([[], twins, [""]]))))
    content = "\n".join(every).encode()
    if content.strip():
        assert fast(content) == slow(content)


EVENT = '{"action_name": "click", "query_id": "q", "timestamp": 5, "event_attributes": %s}'
PLACE = '{"object": {"object_id": "d"}, "position": {"ordinal": %s}}'


@settings(deadline=None, max_examples=40 * MORE)
@given(
    st.text(alphabet='0123456789-+.eE "\\u,]}:[{tnaN\x00é', max_size=12),
    st.sampled_from(["%s", '"%s"', "[%s]", '["a", %s]', '{"a": %s}']),
    st.sampled_from(["other", "query_id", "timestamp", "event_attributes", "client_id"]),
)
@example("1.-5", "%s", "other")
@example("--5", "%s", "other")
@example("007", "%s", "timestamp")
@example("-0", "%s", "query_id")
@example("\\ud83d\\ude00", '"%s"', "other")
@example("\\ud83d", '"%s"', "other")
@example("{}", '"%s"', "event_attributes")
@example('{\\"object\\": {\\"object_id\\": \\"x\\"}}', '"%s"', "event_attributes")
def test_a_line_that_looks_like_the_sample(value: str, around: str, key: str) -> None:
    plain = [EVENT % (PLACE % number) for number in (1, 2)]
    for odd in (
        EVENT % (PLACE % (around % value)),
        (EVENT % (PLACE % 3))[:-1] + f', "{key}": {around % value}}}',
    ):
        like = odd.replace(around % value, around % "7")
        content = "\n".join([*plain, like, odd, like]).encode()
        assert fast(content) == slow(content)


def usual_lines() -> list[str]:
    return [
        *(SAMPLES / "ubi.ndjson").read_text().splitlines(),
        *(SAMPLES / "ubi_bulk.ndjson").read_text().splitlines(),
        *(SAMPLES / "ubi_odd.ndjson").read_text().splitlines(),
    ]


def plain_lines(written: list[str]) -> tuple[list[int], PlainRecords]:
    """Which lines are in the table, and how they are read."""
    rows, table = table_of_lines("\n".join(written).encode(), pl.Series(written))
    return rows.to_list(), PlainRecords(table, is_json=True)


def test_usual_lines_are_read_fast() -> None:
    written = usual_lines()
    rows, plain = plain_lines(written)
    assert rows == list(range(len(written)))
    records = [json.loads(line) for line in written]
    n_events = sum("action_name" in record for record in records)
    n_bulk = sum("index" in record for record in records)
    assert plain.is_odd.sum() == n_bulk
    read = plain.frame.filter(~plain.is_odd)
    assert read["action"].count() == n_events
    assert read["action"].null_count() == len(records) - n_events - n_bulk


@pytest.mark.parametrize("wrap", [False, True])
def test_a_line_that_does_not_fit_costs_only_few_others(wrap: bool) -> None:
    plain = [EVENT % (PLACE % n) for n in range(1, 501)]
    if wrap:
        plain = [f'{{"_index": "ubi_events", "_source": {line}}}' for line in plain]
    odd = EVENT % '"{}"'
    written = [*plain[:250], odd, "", *plain[250:]]
    rows, _ = plain_lines(written)
    if hasattr(pl, "read_lines"):  # old versions take the odd line, too
        assert 400 < len(rows) < 501
        assert 250 not in rows
    content = "\n".join(written).encode()
    with_odd = records_of(content)
    assert with_odd == slow(content) == fast(content)
    assert len(with_odd[1]) == 501


def test_the_first_of_equal_keys_counts() -> None:
    line = '{"query_id": "q", "user_query": "a", "query_id": "r"}'
    found = fast(line.encode())
    assert found == slow(line.encode())
    assert found[0][0]["page"] == "q"


def test_a_list_within_a_list_is_no_text_within_a_list() -> None:
    lists = (r'["a\n"]', '[["a"]]', '["a"]', "[[1]]")
    content = "\n".join(f'{{"query_id": "q", "query_response_hit_ids": {hits}}}' for hits in lists)
    found = fast(content.encode())
    assert found == slow(content.encode())
    assert [query["hits"] for query in found[0]] == [["a\n"], ["['a']"], ["a"], ["[1]"]]


@pytest.mark.parametrize("name", ["ubi.ndjson", "ubi_odd.ndjson", "ubi_bulk.ndjson"])
def test_whole_logs_are_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text((SAMPLES / name).read_text().replace('"q2"', '"q\\u0032"'))
    expected, expected_notes = read_noting(path)
    with patch.object(ubi_records, "PlainRecords", NothingPlain):
        log, notes = read_noting(path)
    assert log.to_frame().equals(expected.to_frame())
    assert log.notes == expected.notes
    assert notes == expected_notes


moments = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='milliseconds')}Z"),
    st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='seconds')}+00:00"),
    st.datetimes().map(lambda moment: f"{moment.isoformat(sep=' ')}-03:30"),
    st.integers(-(10**15), 10**15).map(str),
    st.from_regex(r"[0-2][0-9]{3}-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]Z?\n?"),
    st.text(max_size=8),
    st.sampled_from(["2026-03-01T10:00:00ZZ", "2026-03-01T10:00:00Z+00:00", "9" * 5000, "٣"]),
    st.none(),
)


@settings(deadline=None, max_examples=40 * MORE)
@given(st.lists(moments, max_size=8))
def test_times_in_texts(written: list[str | None]) -> None:
    found = moments_of_texts(pl.Series(written, dtype=pl.String))
    assert found.to_list() == [read_moment(text) for text in written]


@settings(deadline=None, max_examples=40 * MORE)
@given(
    st.lists(
        st.integers(-(2**63), 2**63 - 1)
        | st.integers(-(10**14), 3 * 10**14)
        | st.sampled_from([-62135596800000, -62135596800001, 253402300799999, 253402300800000]),
        max_size=6,
    )
)
def test_times_in_numbers(written: list[int]) -> None:
    found = moments_of_numbers(pl.Series(written, dtype=pl.Int64))
    assert found.to_list() == [read_moment(number) for number in written]


def column(values: list[Any], *types: Any) -> st.SearchStrategy[Callable[[int], pl.Series]]:
    """A column of one of some types; 8 values of it are drawn again and again."""
    drawn = st.lists(st.sampled_from(values), min_size=8, max_size=8)
    return st.builds(
        lambda picked, dtype: lambda n: pl.Series((picked * n)[:n], dtype=dtype, strict=False),
        drawn,
        st.sampled_from(types),
    )


moment = datetime.datetime(2026, 3, 1, 10, 0, 0, 123456)
DATETIMES = [pl.Datetime("us"), pl.Datetime("ms", "UTC"), pl.Datetime("ns", "Europe/Paris")]
text_columns = column([None, "1", "q", "7"], pl.String) | column([None, 1, 2], pl.Int32, pl.UInt64)
odd_texts = column([None, 1, 0], pl.Float64, pl.Boolean, pl.Null)
id_columns = st.one_of(text_columns, text_columns, text_columns, odd_texts)
ordinal_columns = st.one_of(
    column([None, 0, 1, 2], pl.Int64, pl.Float64, pl.UInt8, pl.Null),
    column([1.5, 1.0, float("nan"), float("inf"), 1e300], pl.Float64),
    column([-1, 2], pl.Int32),
    column([2**63], pl.UInt64),
    column(["1"], pl.String),
)
hit_columns = st.one_of(
    column([None, ["a", None], []], pl.List(pl.String)),
    column([None, [1, 2], []], pl.List(pl.Int16), pl.List(pl.Float64)),
    column([None, "a"], pl.String),
    column([None], pl.Null),
)
time_columns = st.one_of(
    column([None, moment, moment.replace(year=1931)], *DATETIMES),
    column([None, "2026-03-01T10:00:00Z", "soon"], pl.String),
    column([None, 1772359200000, -(10**17)], pl.Int64, pl.Float64),
    column([None, moment.date()], pl.Date),
)


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    height = draw(st.integers(1, 8))
    kinds: dict[str, st.SearchStrategy[Callable[[int], pl.Series]]] = {
        "query_id": id_columns,
        "action_name": column([None, "click", "view"], pl.String),
        "user_query": id_columns,
        "client_id": id_columns,
        "timestamp": time_columns,
        "query_response_hit_ids": hit_columns,
        "object_id": id_columns,
        "position.ordinal": ordinal_columns,
        "event_attributes.object.object_id": id_columns,
        "event_attributes.position.ordinal": ordinal_columns,
    }
    names = ["query_id", *(name for name in list(kinds)[1:] if draw(st.booleans()))]
    table = pl.DataFrame([draw(kinds[name])(height).alias(name) for name in names])
    if draw(st.booleans()):
        holes = [draw(st.lists(st.booleans(), min_size=height, max_size=height)) for _ in range(2)]
        parts = {
            "object": draw(st.sampled_from(["object_id", "other"])),
            "position": draw(st.sampled_from(["ordinal", "other"])),
        }
        inner = []
        for part, key in parts.items():
            values = draw(id_columns if part == "object" else ordinal_columns)(height)
            struct = pl.DataFrame([values.alias(key)]).to_struct(part)
            whole = draw(st.sampled_from([struct, struct, values.alias(part)]))
            inner.append(pl.select(pl.when(pl.Series(holes[0])).then(whole).alias(part)))
        both = pl.concat(inner, how="horizontal").to_struct("event_attributes")
        attributes = pl.select(pl.when(pl.Series(holes[1])).then(both)).to_series()
        table = table.with_columns(attributes.alias("event_attributes"))
    return table


@settings(deadline=None, max_examples=40 * MORE)
@given(tables())
def test_tables_read_fast_are_the_tables_read_slowly(table: pl.DataFrame) -> None:
    data = io.BytesIO()
    table.write_parquet(data)
    assert fast(data.getvalue()) == slow(data.getvalue())


def test_usual_tables_are_read_fast() -> None:
    records = [json.loads(line) for line in (SAMPLES / "ubi_odd.ndjson").read_text().splitlines()]
    plain = PlainRecords(pl.DataFrame(records, infer_schema_length=None))
    assert not plain.is_odd.any()
    assert plain.frame["action"].null_count() == 8
    assert plain.is_undated.arg_true().to_list() == [12]


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.ndjson"
    whole = '{"query_id": "q", "user_query": "\\ud83d\\ude00", "query_response_hit_ids": ["d"]}'
    path.write_text(whole)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickLogWarning)
        assert read_log(path).session_column("query").to_list() == ["😀"]
    path.write_text(f"{whole}\n{whole}".replace("\\ude00", "", 2))
    with pytest.raises(ClickLogError, match=r"line 1: a text has half a character"):
        read_log(path)


def test_a_position_beyond_all_pages_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.ndjson"
        path.write_text(EVENT % (PLACE % "1e300"))
        with pytest.raises(ClickLogError, match=r"line 1: position.ordinal is too large .*1e\+300"):
            read_log(path)
