"""Records of JSON that are not one a line: lists, responses of _search, dumps of an index."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from gecasmo.frames import read_json
from gecasmo.logs.inputs import HEAD

_SPACE = re.compile(r"\s*")
_RESPONSE = re.compile(rb'"hits"\s*:\s*\{')


def first_of(text: str) -> dict[str, Any]:
    """Return the first record of a JSON list, or of a response of _search, from its beginning."""
    begins = re.search(r'^\s*\[\s*(?=\{)|^\s*\{.*?"hits"\s*:\s*\[\s*(?=\{)', text, re.DOTALL)
    if begins is None:
        return {}
    try:
        found, _ = json.JSONDecoder().raw_decode(text, begins.end())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def lines_of_lists(data: bytes) -> bytes | None:
    """Write records of JSON lists, and of responses of _search, one a line; None if none is there.

    Several may follow each other, as they do when results are asked for page by page.
    """
    if data.lstrip()[:1] != b"[" and b'"hits"' not in data[:HEAD]:
        return None
    try:
        text = data.decode()
        decoder = json.JSONDecoder(object_pairs_hook=first_of_pairs)
        place, found = 0, []
        while (place := _SPACE.match(text, place).end()) < len(text):  # type: ignore[union-attr]
            value, place = decoder.raw_decode(text, place)
            found += value if isinstance(value, list) else _hits_of(value)
    except (ValueError, RecursionError):
        return None  # whoever reads the lines will tell
    if not found or not all(isinstance(record, dict) for record in found):
        return None
    return "\n".join(json.dumps(record) for record in found).encode()


def _hits_of(value: Any) -> list[Any]:
    hits = value.get("hits") if isinstance(value, dict) else None
    inner = hits.get("hits") if isinstance(hits, dict) else None
    return inner if isinstance(inner, list) else [value]


def first_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON, in which the first of equal keys counts, as it does in Polars."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else dict(reversed(pairs))


def is_one_value(text: bytes) -> bool:
    """Whether a text is a list or a response of _search, by its beginning, and not lines."""
    return text[:1] == b"[" or (text[:1] == b"{" and bool(_RESPONSE.search(text[:HEAD])))


def table_of_texts(texts: Sequence[bytes]) -> pl.DataFrame:
    """Read texts of JSON as one table: lines, lists of objects, or responses of _search."""
    if len(texts) > 1 or texts[0][:1] != b"[":  # Polars reads one list by itself, and faster
        texts = [lines_of_lists(text) or text if is_one_value(text) else text for text in texts]
    return _without_wrapping(read_json(b"\n".join(texts), infer_schema_length=None))


def _without_wrapping(table: pl.DataFrame) -> pl.DataFrame:
    """Take rows out of what a response of _search, or a dump of an index, wraps around them."""
    if "_source" not in table.columns or not isinstance(table.schema["_source"], pl.Struct):
        return table
    return table if table["_source"].null_count() else table["_source"].struct.unnest()
