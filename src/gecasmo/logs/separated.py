"""Tables in text with separators: CSV, TSV, and what calls itself so."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.inputs import Input, Opened
from gecasmo.logs.lines import BYTE_ORDER_MARK, check_utf8, shortened
from gecasmo.logs.notes import Notebook
from gecasmo.logs.text_ids import integers_where_exact

SEPARATORS = {"csv": ",", "tsv": "\t"}
_TITLES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}


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
