"""Tables with columns of any name, long or nested: Parquet, CSV, TSV, JSON lines, frames, dicts.

Written, a table appears whole, so that no reader ever sees half a file.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError, option
from gecasmo.files import is_stream, whole_file
from gecasmo.frames import scan_csv
from gecasmo.logs.formats.format import PAGE_NUMBER, Format, Head, ReadOptions, nested
from gecasmo.logs.formats.json_lists import is_one_value, table_of_texts
from gecasmo.logs.inputs import (
    BYTE_ORDER_MARK,
    MAX_LINE,
    Input,
    Lines,
    Opened,
    check_utf8,
    first_line,
    naming,
    open_inputs,
)
from gecasmo.logs.notes import Notebook
from gecasmo.logs.packed import packed
from gecasmo.logs.remote import RemoteTable
from gecasmo.logs.roles import lists_of
from gecasmo.logs.values import integers_where_exact
from gecasmo.report import shortened

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

PARQUET_SUFFIXES = (".parquet", ".pq")
TEXT_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
PACKED = ("", ".gz", ".zst")
SEPARATORS = {"csv": ",", "tsv": "\t"}
_TITLES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
# One half of a character in JSON, without the other half after it or before it.
_LONE_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


def sniff(head: Head) -> bool:
    """Say yes: what no other format claims is a table, or nothing."""
    return True


def read(source: Any, options: ReadOptions, notes: Notebook) -> pl.DataFrame:
    """Read a table as it stands: files, a frame of any library, or a dict of columns."""
    if isinstance(source, str | Path | Opened):
        return _read_files(open_inputs(source), options, notes)
    if isinstance(source, RemoteTable):
        return _read_remote(source, options)
    try:
        if isinstance(source, pl.DataFrame):
            return source
        if isinstance(source, pl.LazyFrame):
            return source.collect()
        if isinstance(source, Mapping):
            return _from_columns(source)
        if hasattr(source, "__arrow_c_stream__"):
            if type(source).__module__.startswith("pandas") and not _has_pyarrow():
                # pandas speaks Arrow only through PyArrow; plain lists say the same, slower.
                return _from_columns({str(name): source[name].tolist() for name in source})
            return pl.DataFrame(source)
    except Exception as error:
        # Each producer has its own errors (Polars, Arrow, DuckDB); none of them knows the task.
        raise ClickLogError(
            f"{source_label(source).capitalize()} cannot be read as a table: {first_line(error)}"
        ) from error
    raise ClickLogError(
        f"A {type(source).__name__} cannot be read. Give a Parquet or CSV path or glob, a Polars, "
        "pandas, PyArrow or DuckDB table (anything with __arrow_c_stream__), a dict of columns, "
        "or a list of dicts."
    )


def is_records(source: Any) -> bool:
    """Whether this is a list with a dict a row."""
    is_list = isinstance(source, list | tuple) and len(source) > 0
    return is_list and all(isinstance(row, Mapping) for row in source)


def table_of_records(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Make a table of rows; what a row lacks is missing."""
    try:
        return pl.from_dicts(rows, infer_schema_length=None)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        raise ClickLogError(
            f"The list of dicts cannot be read as a table: {first_line(error)}"
        ) from error


def _read_remote(source: RemoteTable, options: ReadOptions) -> pl.DataFrame:
    with naming(source.address, quietly=True):
        table = source.scan(options.id_columns).collect()
    if source.kind not in SEPARATORS:
        return table
    ids = [name for name in options.id_columns if name in table.columns]
    return table.with_columns(integers_where_exact(table[name]) for name in ids)


def source_label(source: object) -> str:
    """Say how messages call the source."""
    if isinstance(source, RemoteTable):
        return source.address
    if isinstance(source, Opened):
        return source.label
    if isinstance(source, str | Path):
        return str(source)
    return "the dict" if isinstance(source, Mapping) else "the data frame"


def _begins_with_a_list(column: Any) -> bool:
    """Whether a column of a dictionary holds lists; it may also be one value for all rows."""
    is_long = hasattr(column, "__len__") and not isinstance(column, str | Mapping)
    return is_long and len(column) > 0 and isinstance(column[0], list | tuple)


def columns_of(source: Any) -> tuple[tuple[str, ...], set[str] | None]:
    """Name the columns of a table without reading it, and those that hold lists, if one can tell.

    There are none where reading the table will tell why.
    """
    if isinstance(source, Mapping):
        lists = {str(n) for n, v in source.items() if _begins_with_a_list(v)}
        return tuple(map(str, source)), lists
    if isinstance(source, pl.DataFrame | pl.LazyFrame):
        known = source.collect_schema()
        return tuple(known), lists_of(known)
    columns = getattr(source, "columns", None)
    if columns is not None:
        return tuple(map(str, getattr(source, "column_names", columns))), None
    if not isinstance(source, Opened | RemoteTable):
        return (), None
    try:
        schema: Mapping[str, pl.DataType]
        if isinstance(source, RemoteTable):
            schema = source.scan().collect_schema()
        else:
            schema = _schema_of_file(source[0])
        return tuple(schema), lists_of(schema)
    except (pl.exceptions.PolarsError, ClickLogError, OSError, IndexError):
        return (), None


def _schema_of_file(file: Input) -> Mapping[str, pl.DataType]:
    kind = kind_of_file(file)
    if kind == "parquet":
        return file.parquet_schema()
    head = file.head[: file.head.rfind(b"\n") + 1] or file.head
    if kind == "json":
        text = head.removeprefix(BYTE_ORDER_MARK).strip()
        if is_one_value(text):  # whose end is at the end of the file
            text = whole_json_text(file.content(MAX_LINE), file.name)
        return table_of_texts([text]).schema
    separator = separator_of(file, kind or "csv") or SEPARATORS["csv"]
    return pl.read_csv(head, separator=separator, n_rows=0).schema


def _has_pyarrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def _from_columns(columns: Mapping[str, Any]) -> pl.DataFrame:
    try:
        return pl.DataFrame(dict(columns))
    except TypeError:
        return pl.DataFrame({name: _loose_numbers(values) for name, values in columns.items()})


def _loose_numbers(values: Any) -> Any:
    """Read a list such as [1, 0.5] as floats; Polars refuses to mix the two."""
    if not isinstance(values, list | tuple):
        return values
    is_mixed = {int, float} <= {type(value) for value in values}
    if is_mixed and all(isinstance(value, int | float) for value in values):
        return np.asarray(values, dtype=np.float64)
    return values


def kind_of_name(name: str) -> str | None:
    """Say what a file holds, from its name: "parquet", "csv", "tsv", "json" or None."""
    lower = name.lower()
    if lower.endswith(PARQUET_SUFFIXES):
        return "parquet"
    for suffix, kind in TEXT_SUFFIXES.items():
        if lower.endswith(tuple(suffix + packing for packing in PACKED)):
            return kind
    return None


def kind_of_file(file: Input) -> str | None:
    """Say what a file holds, from its name; a pipe has none, and is told by its first bytes."""
    if file.path is not None:
        return kind_of_name(file.name) or ("csv" if file.separator else None)
    if file.is_parquet:
        return "parquet"
    start = file.head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if start[:1] in (b"{", b"["):
        return "json"
    return "tsv" if b"\t" in start.split(b"\n")[0] else "csv"


def kind_of_files(inputs: Opened) -> str:
    """Say what all files of a table hold; an error where they are not of one kind."""
    kinds = {kind_of_file(file) for file in inputs}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        endings = ", ".join((*PARQUET_SUFFIXES, *TEXT_SUFFIXES))
        raise ClickLogError(
            f"{inputs.label} does not look like one kind of log file; the name should end in "
            f"{endings} (text also .gz or .zst), or {option('format')} should name a format; a "
            f"table of text under another name needs {option('separator')}."
        )
    if (said := inputs[0].separator) is not None and kind not in SEPARATORS:
        raise ClickLogError(
            f"{option('separator', said)}: {inputs.label} is no text with fields; leave it out."
        )
    return kind


def _read_files(inputs: Opened, options: ReadOptions, notes: Notebook) -> pl.DataFrame:
    kind = kind_of_files(inputs)
    try:
        if kind == "parquet":
            return _read_parquet(inputs)
        if kind == "json":
            return _read_json(inputs, options.max_line)
        return _read_separated(inputs, kind, options, notes)
    except (pl.exceptions.PolarsError, OSError) as error:
        if kind != "parquet":
            for file in inputs:
                data = file.content(options.max_line)
                explain_text(data, file.name, separator_of(file, kind))
        raise ClickLogError(f"{inputs.label} cannot be read: {first_line(error)}") from error


def _read_parquet(inputs: Opened) -> pl.DataFrame:
    files: Any = [file.for_parquet() for file in inputs]
    return pl.scan_parquet(files, glob=False, hive_partitioning=False).collect()


def _read_json(inputs: Opened, max_line: int) -> pl.DataFrame:
    contents = [whole_json_text(file.content(max_line), file.name) for file in inputs]
    if not any(contents):
        raise ClickLogError(f"{inputs.label} is empty: there are no rows in it.")
    return table_of_texts(contents)


def whole_json_text(data: bytes, name: str) -> bytes:
    """Return the text of JSON without what is around it; an error where it has half a character.

    Polars would leave such halves out, and make different ids one.
    """
    data = data.removeprefix(BYTE_ORDER_MARK)
    for found in _LONE_HALF.finditer(data):
        start = found.start()
        while start and data[start - 1 : start] == b"\\":
            start -= 1
        if (found.start() - start) % 2 == 0:  # else it is a backslash, and letters after it
            line = data.count(b"\n", 0, start) + 1
            raise ClickLogError(
                f"{name}, line {line}: a text has half a character, {found[0].decode()} (half of a "
                "pair of \\u)."
            )
    return data.strip()


def explain_text(data: bytes, name: str, separator: str | None) -> None:
    """Find the line at fault, which a reader made for speed does not name.

    Parameters
    ----------
    data
        The text.
    name
        How messages call it.
    separator
        What stands between the fields; None for JSON.

    Raises
    ------
    ClickLogError
        Where a line is found.
    """
    check_utf8(data, name)
    if separator is not None:
        _refuse_ragged(data, name, separator)
    elif data.lstrip()[:1] != b"[":
        for _ in Lines([(name, data.removeprefix(BYTE_ORDER_MARK))]).records():
            pass  # each is an object


def _refuse_ragged(data: bytes, name: str, separator: str) -> None:
    """Refuse text with a line that has more fields than the header, naming the line."""
    text = io.StringIO(data.removeprefix(BYTE_ORDER_MARK).decode(), newline="")
    rows = csv.reader(text, delimiter=separator)
    header: list[str] = []
    ended = 0
    try:
        for row in rows:
            # A text in quotes can go over several lines; the row is called by its first.
            number, ended = ended + 1, rows.line_num
            header = header or row
            if len(row) > len(header):
                title = _TITLES.get(separator, repr(separator))
                raise ClickLogError(
                    f"{name}, line {number}: {len(row)} fields with {title} between, but the "
                    f"first line names {len(header)}. Is there one in a text that needs quotes? "
                    f"The line is {shortened(repr(separator.join(row)), 80)}."
                )
    except csv.Error:
        return  # it cannot say more than Polars did


def separator_of(file: Input, kind: str) -> str | None:
    """Say what stands between the fields of a file; None for a kind that has none.

    That is the separator that the name promises, unless only another one is in the first line.
    """
    if kind not in SEPARATORS:
        return None
    if file.separator is not None:
        return file.separator
    bare = _bare_header(file)
    usual = SEPARATORS[kind]
    return usual if usual in bare else max((usual, *_TITLES), key=bare.count)


def _bare_header(file: Input) -> str:
    """The first line, without what is in quotes."""
    head = file.head.removeprefix(BYTE_ORDER_MARK).lstrip(b"\r\n").split(b"\n")[0]
    return re.sub(rb'"[^"]*"', b"", head).decode(errors="replace")


def as_separator(given: Any) -> str:
    """One character, as people write it; `tab` and `\\t` are one that shells do not let through."""
    found = {"tab": "\t", "\\t": "\t"}.get(given, given)
    is_one = isinstance(found, str) and len(found) == 1 and found.isascii()
    if not is_one or found.isalnum() or found in '"\r\n\0':
        raise ClickLogError(
            f"{option('separator', given)}: one character that is no letter, digit or quote, such "
            "as ; or |; 'tab' is one, too."
        )
    return str(found)


def is_separated_by(inputs: Opened, separator: str) -> bool:
    """Whether files are text in whose first line this stands."""
    kinds = {kind_of_file(file) or "csv" for file in inputs}
    return kinds <= set(SEPARATORS) and all(separator in _bare_header(file) for file in inputs)


def check_header(head: bytes, separator: str, name: str) -> None:
    """Refuse a first line that is not UTF-8, or has two columns of one name."""
    line = head[: head.find(b"\n") + 1] or head
    check_utf8(line, name)
    try:
        names = next(csv.reader([line.decode().strip("\r\n\ufeff")], delimiter=separator), [])
    except csv.Error:
        return  # whoever reads it will tell
    twice = next((column for column in names if column and names.count(column) > 1), None)
    if twice is not None:
        raise ClickLogError(
            f"{name}, line 1: {names.count(twice)} columns are called {twice!r}; rename all but "
            "one of them."
        )


def common_separator(inputs: Opened, kind: str, notes: Notebook) -> str:
    """Say what stands between the fields of all files; an unusual one is noted."""
    said: str | None = inputs[0].separator
    if said is not None:
        for file in inputs:
            if said not in _bare_header(file):
                first = shortened(repr(_bare_header(file)), 80)
                raise ClickLogError(
                    f"{option('separator', said)}: there is none in the first line of "
                    f"{file.name}, which is {first}."
                )
        return said
    found = [separator_of(file, kind) or SEPARATORS[kind] for file in inputs]
    for file, other in zip(inputs, found, strict=True):
        if other != found[0]:
            raise ClickLogError(
                f"{file.name} has {_TITLES[other]} between its fields, and {inputs[0].name} has "
                f"{_TITLES[found[0]]}; read them one by one."
            )
    if found[0] != SEPARATORS[kind]:
        notes.tell(
            "other separators",
            len(found),
            f"the fields are separated by {_TITLES[found[0]]} ({found[0]!r}) instead of "
            f"{_TITLES[SEPARATORS[kind]]}; they were read like that.",
        )
    return found[0]


def _read_separated(
    inputs: Opened, kind: str, options: ReadOptions, notes: Notebook
) -> pl.DataFrame:
    """Read CSV or TSV; the columns of ids keep their exact text, where that says more."""
    separator = common_separator(inputs, kind, notes)
    for file in inputs:
        # Polars tells of other text in the rows, and puts marks for it into the header.
        check_header(file.head.lstrip(b"\r\n"), separator, file.name)
    paths = [file.plain_path for file in inputs]
    sources: Sequence[str | bytes]
    if None in paths:
        sources = [file.content(options.max_line) for file in inputs]
    else:
        sources = [path for path in paths if path is not None]
        for file in inputs:
            file.check_lines(options.max_line)
    texts = dict.fromkeys(options.id_columns, pl.String)
    table = scan_csv(sources, texts, separator=separator).collect()
    return table.with_columns(
        integers_where_exact(table[name]) for name in options.id_columns if name in table.columns
    )


def write(log: ClickLog, path: Path) -> None:
    """Write a log as a table; `ClickLog.write` explains the kinds."""
    has_empty_pages = bool((log.lengths == 0).any())
    write_frame(_one_row_a_page(log) if has_empty_pages else log.to_frame(), path, has_empty_pages)


def write_frame(frame: pl.DataFrame, path: Path, has_empty_pages: bool = False) -> None:
    """Write a table of the kind that the name of the file says."""
    kind = kind_of_name(path.name) or ("csv" if is_stream(path) else None)
    if kind is None:
        raise ClickLogError(
            f"{path}: write to a name that ends in .parquet, .csv, .tsv or .jsonl (text also .gz "
            "or .zst), or name a format."
        )
    if kind in SEPARATORS:
        _refuse_nested(frame, has_empty_pages, path)
    if kind == "json":
        _refuse_odd_floats(frame, path)
    with whole_file(path, ClickLogError) as temporary:
        try:
            if kind == "parquet":
                frame.write_parquet(temporary)
                return
            with packed(temporary, path) as file:
                _write_text(frame, kind, file)
        except pl.exceptions.PolarsError as error:
            raise ClickLogError(f"{path} cannot be written: {first_line(error)}") from error


def _write_text(frame: pl.DataFrame, kind: str, file: IO[bytes]) -> None:
    if kind == "json":
        frame.write_ndjson(file)
    else:
        frame.write_csv(file, separator=SEPARATORS[kind])


def _refuse_nested(frame: pl.DataFrame, has_empty_pages: bool, path: Path) -> None:
    if has_empty_pages:
        raise ClickLogError(
            f"{path}: text files cannot hold pages without results; write to .parquet or .jsonl."
        )
    held_in_lists = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    if held_in_lists:
        raise ClickLogError(
            f"{path}: text files cannot hold the columns {', '.join(held_in_lists)}, "
            "which have several values a row; write to .parquet."
        )


def _refuse_odd_floats(frame: pl.DataFrame, path: Path) -> None:
    # JSON has no such numbers; they would come back as missing values.
    for name, dtype in frame.schema.items():
        flat = frame[name].explode() if isinstance(dtype, pl.List) else frame[name]
        if flat.dtype.is_float() and not flat.drop_nulls().is_finite().all():
            raise ClickLogError(
                f"{path}: JSON cannot hold the column {name!r}, which has numbers that are not "
                "finite; write to .parquet."
            )
        if flat.dtype == pl.Binary:
            raise ClickLogError(f"{path}: JSON cannot hold the column {name!r}, which is bytes.")


def _one_row_a_page(log: ClickLog) -> pl.DataFrame:
    """Lay a log out with one row a page, because a page without results has no row of its own."""
    single = [] if log.page_columns is None else log.page_columns.get_columns()
    pages = pl.DataFrame([log.sessions.alias("session"), *single])
    names = list(log.columns)
    if not np.all(log.weight == 1):
        pages = pages.with_columns(weight=pl.Series(log.weight))
        names.append("weight")
    results = log.to_frame().drop(pages.columns, strict=False)
    results = results.with_columns(pl.Series(PAGE_NUMBER, log.page))
    return nested(pages, results, PAGE_NUMBER).select(names)


TABLE = Format(
    "table",
    "a table",
    "Parquet, CSV, TSV or JSON lines with one row a result, or one row a page with lists",
    sniff,
    read,
    write,
)
