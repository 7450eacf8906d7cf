"""OpenSearch, Search Relevance Workbench: the body of PUT _plugins/_search_relevance/judgments."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from gecasmo.judgments.counting import Told
from gecasmo.judgments.errors import JudgmentsError
from gecasmo.judgments.formats.joining import join_opensearch
from gecasmo.judgments.formats.writing import JudgmentFormat, Options

# What the plugin accepts as a name and as a description.
_NAME, _DESCRIPTION = 50, 250
_FORBIDDEN = '"\\<>'


def write(judgments: Told, pairs: pl.DataFrame, path: Path, options: Options) -> list[str]:
    name = f"{judgments.model} judgments"[:_NAME] if options.name is None else options.name
    if not name or len(name) > _NAME or any(c in _FORBIDDEN for c in name):
        raise JudgmentsError(
            f"name={name!r}: OpenSearch takes 1 to {_NAME} characters, without {_FORBIDDEN}."
        )
    description = (
        f"gecasmo: relevance is {judgments.relevance_is}; rule {judgments.grading}; "
        f"{sum(options.left_out(judgments))} pairs left out for lack of data"
    )
    ratings: dict[str, list[dict[str, str]]] = {}
    for query, doc, rating in pairs.select("query", "doc", "written").iter_rows():
        ratings.setdefault(query, []).append({"docId": doc, "rating": f"{rating:.3f}"})
    body = {
        "name": name,
        "description": "".join(c for c in description if c not in _FORBIDDEN)[:_DESCRIPTION],
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [{"query": query, "ratings": rated} for query, rated in ratings.items()],
    }
    path.write_text(json.dumps(body, ensure_ascii=False, indent=1), encoding="utf-8")
    return []


OPENSEARCH = JudgmentFormat(
    "opensearch",
    "OpenSearch search-relevance judgments, JSON",
    (".json",),
    write,
    options=("query", "name", "ratings", "include"),
    join=join_opensearch,
)
