"""What a chart says, read back from its specification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl


def tables(chart: Any) -> list[pl.DataFrame]:
    """The data sets inside a chart; making the specification also validates it."""
    return [pl.DataFrame(rows) for rows in chart.to_dict()["datasets"].values()]


def table_with(chart: Any, *columns: str) -> pl.DataFrame:
    """The data set that has these columns."""
    found = [frame for frame in tables(chart) if set(columns) <= set(frame.columns)]
    assert found, f"no data set with {columns}"
    return found[0]


def words(chart: Any) -> str:
    """Title and subtitle as one text."""
    title = chart.to_dict()["title"]
    return " ".join([title["text"], *title.get("subtitle", [])])


def parts(specification: Any) -> Iterator[dict[str, Any]]:
    """Every dictionary inside a specification."""
    if isinstance(specification, dict):
        yield specification
        for value in specification.values():
            yield from parts(value)
    elif isinstance(specification, list):
        for value in specification:
            yield from parts(value)


def encodings(chart: Any) -> list[dict[str, Any]]:
    """The encodings of all layers."""
    return [part["encoding"] for part in parts(chart.to_dict()) if "encoding" in part]
