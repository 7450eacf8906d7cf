"""Whether batches hold the same columns, so that they can be put together."""

from __future__ import annotations

from collections.abc import Sequence

from gecasmo.errors import ClickLogError
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.store.batches import Schema
from gecasmo.logs.store.layout import Layout
from gecasmo.logs.store.pieces import Piece

Types = dict[str, str]


def types_of_table(schema: Schema, columns: Sequence[str]) -> Types:
    """The types with which columns of tables are read, to be said of each batch."""
    return {name: repr(schema.get(name)) for name in columns}


def types_of_log(piece: Piece) -> Types:
    """The types of what is taken of a log, to be said of each batch."""
    of_pages = {name: f"{dtype} (a value a page)" for name, dtype in piece.runs.schema.items()}
    return of_pages | {name: str(dtype) for name, dtype in piece.results.schema.items()}


def refuse_queries(log: ClickLog, layout: Layout, name: str) -> None:
    """Refuse a log with queries after logs that have none; they would be lost."""
    if log.has_query and not layout.has_query:
        raise ClickLogError(f"ingest: {name} has queries, while the first log has none.")


def refuse_other_types(first: Types, types: Types, name: str) -> None:
    """Refuse a log with other types than the first has."""
    for column, type_ in first.items():
        if types[column] != type_:
            raise ClickLogError(
                f"ingest: the column {column!r} holds {type_} in the first log, and "
                f"{types[column]} in {name}."
            )
