"""OpenSearch, Search Relevance Workbench: the body of PUT _plugins/_search_relevance/judgments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from gecasmo.errors import option
from gecasmo.judgments.formats.format import JudgmentFormat, WriteOptions
from gecasmo.judgments.grades import JudgmentsError
from gecasmo.judgments.judged import Judgments

# What the plugin accepts as a name and as a description.
_NAME, _DESCRIPTION = 50, 250
_FORBIDDEN = '"\\<>'


def write(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write the body of a request, with the ratings of each query."""
    name = f"{judgments.model} judgments"[:_NAME] if options.name is None else options.name
    if not name or len(name) > _NAME or any(c in _FORBIDDEN for c in name):
        raise JudgmentsError(
            f"{option('name', name)}: OpenSearch takes 1 to {_NAME} characters, without "
            f"{_FORBIDDEN}."
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


def join_opensearch(pieces: Sequence[Path], target: Path, judgments: Judgments) -> None:
    """The ratings of all queries under the head of the first file."""
    end = "[]\n}"
    with target.open("w", encoding="utf-8") as out:
        for number, piece in enumerate(pieces):
            body = json.loads(piece.read_text(encoding="utf-8"))
            ratings = body["judgmentRatings"]
            if not number:
                head = json.dumps({**body, "judgmentRatings": []}, ensure_ascii=False, indent=1)
                out.write(head.removesuffix(end) + "[")
            texts = [json.dumps(rated, ensure_ascii=False, indent=1) for rated in ratings]
            out.write(("," if number else "") + "\n" + ",\n".join(texts))
        out.write("\n]\n}")


OPENSEARCH = JudgmentFormat(
    "opensearch",
    "OpenSearch search-relevance judgments, JSON",
    (".json",),
    write,
    options=("query", "name", "ratings", "include"),
    join=join_opensearch,
)
