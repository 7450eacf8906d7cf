"""Tables in files: Parquet, CSV, TSV and JSON lines, packed or not, or from a pipe."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence

import polars as pl

from gecasmo.errors import ClickLogError, option
from gecasmo.logs.inputs import Input, Opened
from gecasmo.logs.lines import BYTE_ORDER_MARK, check_utf8, shortened
from gecasmo.logs.notes import Notebook
from gecasmo.logs.values import integers_where_exact

PARQUET_SUFFIXES = (".parquet", ".pq")
TEXT_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
# One half of a character in JSON, without the other half after it or before it.
_LONE_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
PACKED = ("", ".gz", ".zst")
SEPARATORS = {"csv": ",", "tsv": "\t"}
_TITLES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}


def kind_of_name(name: str) -> str | None:
    """Say what a file holds, from its name: "parquet", "csv", "tsv", "json" or None."""
    lower = name.lower()
    if lower.endswith(PARQUET_SUFFIXES):
        return "parquet"
    for suffix, kind in TEXT_SUFFIXES.items():
        if lower.endswith(tuple(suffix + packing for packing in PACKED)):
            return kind
    return None


def kind_of_content(file: Input) -> str:
    """Say what a pipe holds, from its first bytes."""
    if file.is_parquet:
        return "parquet"
    start = file.head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if start[:1] in (b"{", b"["):
        return "json"
    return "tsv" if b"\t" in start.split(b"\n")[0] else "csv"


def read_table_files(
    inputs: Opened, id_columns: Sequence[str], max_line: int, notes: Notebook
) -> pl.DataFrame:
    """Read the files of a table.

    Parameters
    ----------
    inputs
        The files, all of one kind.
    id_columns
        Names of the columns that hold ids; in CSV and TSV these keep their exact text.
    max_line
        The longest line allowed in text, in bytes.
    notes
        Where it is noted what was met.

    Returns
    -------
    pl.DataFrame

    Raises
    ------
    ClickLogError
        When a file cannot be read.
    """
    kinds = {_kind(file) for file in inputs}
    if len(kinds) > 1 or None in kinds:
        endings = ", ".join((*PARQUET_SUFFIXES, *TEXT_SUFFIXES))
        raise ClickLogError(
            f"{inputs.label} does not look like one kind of log file; the name should end in "
            f"{endings} (text also .gz or .zst), or {option('format')} should name a format."
        )
    kind = kinds.pop()
    try:
        if kind == "parquet":
            return _read_parquet(inputs)
        if kind == "json":
            return _read_json(inputs, max_line)
        return read_separated(inputs, str(kind), id_columns, max_line, notes)
    except (pl.exceptions.PolarsError, OSError) as error:
        if kind != "parquet":
            _explain_text(inputs, str(kind), max_line)
        raise ClickLogError(f"{inputs.label} cannot be read: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _kind(file: Input) -> str | None:
    return kind_of_content(file) if file.path is None else kind_of_name(file.name)


def _read_parquet(inputs: Opened) -> pl.DataFrame:
    paths = [str(file.path) for file in inputs if file.path is not None]
    if len(paths) < len(inputs):
        return pl.read_parquet(inputs[0].for_parquet())
    return pl.scan_parquet(paths, glob=False, hive_partitioning=False).collect()


def _read_json(inputs: Opened, max_line: int) -> pl.DataFrame:
    contents = [_json_text(file, max_line) for file in inputs]
    if not any(contents):
        raise ClickLogError(f"{inputs.label} is empty: there are no rows in it.")
    if len(contents) == 1 and contents[0][:1] == b"[":
        return pl.read_json(io.BytesIO(contents[0]), infer_schema_length=None)
    return pl.read_ndjson(io.BytesIO(b"\n".join(contents)), infer_schema_length=None)


def _json_text(file: Input, max_line: int) -> bytes:
    data = file.content(max_line).removeprefix(BYTE_ORDER_MARK)
    _refuse_halves(data, file.name)
    return data.strip()


def _refuse_halves(data: bytes, name: str) -> None:
    """Refuse halves of characters: Polars would leave them out, and make different ids one."""
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


def _explain_text(inputs: Opened, kind: str, max_line: int) -> None:
    """Find the line at fault, which a reader made for speed does not name."""
    for file in inputs:
        data = file.content(max_line)
        check_utf8(data, file.name)
        if kind == "json" and data.lstrip()[:1] != b"[":
            _check_json(data, file.name)
        if kind in SEPARATORS:
            refuse_ragged(data, file.name, separator_of(file, kind))


def _check_json(data: bytes, name: str) -> None:
    for number, line in enumerate(data.removeprefix(BYTE_ORDER_MARK).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            fault = "" if isinstance(json.loads(line), dict) else "a JSON object was expected"
        except ValueError as error:
            fault = f"not valid JSON ({error})"
        except RecursionError:
            fault = "JSON nested too deeply"
        if fault:
            example = shortened(line.decode())
            raise ClickLogError(f"{name}, line {number}: {fault}. The line is {example}.")


def separator_of(file: Input, kind: str) -> str:
    """Say what stands between the fields of a file, from its first line.

    Parameters
    ----------
    file
        The file.
    kind
        What it is by its name: "csv" or "tsv".

    Returns
    -------
    str
        The separator that the name promises, unless only another one is in the header.
    """
    head = file.head.removeprefix(BYTE_ORDER_MARK).lstrip(b"\r\n").split(b"\n")[0]
    bare = re.sub(rb'"[^"]*"', b"", head).decode(errors="replace")
    usual = SEPARATORS[kind]
    return usual if usual in bare else max((usual, *_TITLES), key=bare.count)


def read_separated(
    inputs: Opened, kind: str, id_columns: Sequence[str], max_line: int, notes: Notebook
) -> pl.DataFrame:
    """Read the files of a table.

    Parameters
    ----------
    inputs
        The files.
    kind
        What they are by their names: "csv" or "tsv".
    id_columns
        Names of the columns that hold ids; these keep their exact text.
    max_line
        The longest line allowed, in bytes.
    notes
        Where it is noted what was met.

    Returns
    -------
    pl.DataFrame
    """
    for file in inputs:
        # Polars tells of other text in the rows, and puts marks for it into the header.
        check_utf8(file.head[: file.head.find(b"\n") + 1], file.name)
    separator = _separator(inputs, kind, notes)
    paths = [file.plain_path for file in inputs]
    sources: list[str] | list[bytes]
    if None in paths:
        sources = [file.content(max_line) for file in inputs]
    else:
        sources = [path for path in paths if path is not None]
        for file in inputs:
            file.check_lines(max_line)
    table = pl.scan_csv(
        sources,
        glob=False,
        separator=separator,
        schema_overrides=dict.fromkeys(id_columns, pl.String),
        infer_schema_length=None,
        infer_schema_files=len(sources),
    ).collect()
    return table.with_columns(
        integers_where_exact(table[name]) for name in id_columns if name in table.columns
    )


def refuse_ragged(data: bytes, name: str, separator: str) -> None:
    """Refuse text with a line that has more fields than the header, naming the line.

    Parameters
    ----------
    data
        The text, which is UTF-8.
    name
        How messages call it.
    separator
        What stands between the fields.

    Raises
    ------
    ClickLogError
    """
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
                raise ClickLogError(
                    f"{name}, line {number}: {len(row)} fields with {_TITLES[separator]} between, "
                    f"but the first line names {len(header)}. Is there one in a text that needs "
                    f"quotes? The line is {shortened(separator.join(row))}."
                )
    except csv.Error:
        return  # it cannot say more than Polars did


def _separator(inputs: Opened, kind: str, notes: Notebook) -> str:
    found = [separator_of(file, kind) for file in inputs]
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
            f"{_TITLES[SEPARATORS[kind]]}; they were read so.",
        )
    return found[0]
