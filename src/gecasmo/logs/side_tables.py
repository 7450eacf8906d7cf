"""Tables that are no logs: grades, runs, pairs, features, candidates.

They are read as logs are: two columns of one name are refused, and what Polars says of a damaged
file becomes one message, also if it panics.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from gecasmo.frames import read_json_lines
from gecasmo.logs.formats.table import check_header, kind_of_name
from gecasmo.logs.inputs import Input, naming

_SEPARATORS = {"csv": ",", "tsv": "\t"}


def read_side_table(
    path: Path, where: str, texts: Sequence[str] = (), all_texts: bool = False
) -> pl.DataFrame | None:
    """Read a .csv, .tsv, .jsonl (all also packed) or .parquet file; None for any other name.

    Parameters
    ----------
    path
        Of the file.
    where
        What it is called in messages.
    texts
        Columns of a text file that are texts, also if they look like numbers; `all_texts` are all.
    """
    kind = kind_of_name(path.name)
    if kind is None:
        return None
    file = Input(where, path)
    if kind == "parquet":
        return file.read_parquet()
    with naming(where, quietly=True):
        content = file.content()
        if kind == "json":
            return read_json_lines(content, infer_schema_length=None)
        separator = _SEPARATORS[kind]
        check_header(content, separator, where)
        options: dict[str, Any] = {"infer_schema": False}
        if not all_texts:
            options = {"infer_schema_length": None}
            options["schema_overrides"] = dict.fromkeys(texts, pl.String)
        return pl.read_csv(content, separator=separator, **options)
