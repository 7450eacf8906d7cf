"""Judgment files that search tools import: Quepid, OpenSearch, Elasticsearch.

What each of them accepts is written down as JSON schemas in `tests/judgments/consumer_schemas.py`,
with the source that it was read from.
"""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from gecasmo.errors import option
from gecasmo.judgments.files import (
    JudgmentFormat,
    WriteOptions,
    join_json,
    join_tables,
    with_texts,
    without_breaks,
)
from gecasmo.judgments.grades import JUDGED, JudgmentsError
from gecasmo.judgments.judged import Judgments
from gecasmo.report import counted

# What OpenSearch accepts as a name and as a description.
_NAME, _DESCRIPTION = 50, 250
_FORBIDDEN = '"\\<>'
# What Quepid accepts as the name of a Book, and as a query or document.
_BOOK_NAME, _BOOK_TEXT = 255, 500


# -- Quepid: query, docid, rating ----------------------------------------------------------------
# OpenSearch Dashboards reads the same file when judgments are imported by hand.
def write_quepid(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write a rating for each pair; remarks tell what Quepid will drop."""
    for name in ("query", "doc"):
        without_breaks(pairs[name], "quepid")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("query", "docid", "rating"))
        writer.writerows(pairs.select("query", "doc", "written").iter_rows())
    remarks = []
    for name in ("query", "doc"):
        texts = pairs[name].unique(maintain_order=True)
        quoted = texts.filter(texts.str.contains('"', literal=True))
        if len(quoted):
            remarks.append(
                f"{len(quoted):,} of {name} hold a quotation mark, such as {quoted[0]!r}; Quepid's "
                "import by hand drops these marks"
            )
        padded = texts.filter(texts.str.strip_chars() != texts)
        if len(padded):
            remarks.append(
                f"{len(padded):,} of {name} begin or end with white space, such as {padded[0]!r}; "
                "Quepid drops it"
            )
    return remarks


QUEPID = JudgmentFormat(
    "quepid",
    "Quepid ratings, CSV",
    (".quepid.csv",),
    write_quepid,
    options=("query", "ratings", "include"),
    join=join_tables,
)


# -- Quepid's Book: all pairs, for people to continue with -----------------------------------------
# A pair with a grade has a judgement with a rating; any other one has a judgement that is marked
# "judge later", so that it stands in the queue of human judges. Explanations say what is known.
def write_book(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write a Book with every pair, judged or to be judged."""
    name = f"{judgments.model} judgments" if options.name is None else options.name
    if not name or len(name) > _BOOK_NAME:
        raise JudgmentsError(f"{option('name', name)}: Quepid takes 1 to {_BOOK_NAME} characters.")
    pairs = with_texts(pairs, BOOK, options)
    for column in ("query", "doc"):
        long = pairs.filter(pl.col(column).str.len_chars() > _BOOK_TEXT)
        if len(long):
            raise JudgmentsError(
                f"{len(long):,} pairs have a {column} of more than {_BOOK_TEXT} characters, which "
                f"Quepid does not take, such as {long[column][0][:40]!r}..."
            )
    scale = [str(grade) for grade in range(judgments.grading.grades)]
    head = {
        "name": name,
        "show_rank": False,
        "support_implicit_judgements": True,
        "scale": scale,
        # Older versions look for a scorer of this name, which every Quepid has; newer ones read
        # the scale.
        "scorer": {"name": "nDCG@10", "scale": scale},
        "query_doc_pairs": [_judgement(row, options) for row in pairs.iter_rows(named=True)],
    }
    path.write_text(json.dumps(head, ensure_ascii=False, indent=1), encoding="utf-8")
    later = int((pairs["verdict"] != JUDGED).sum())
    return [f"{counted(later, 'pair')} marked to be judged later"] if later else []


def _judgement(row: dict[str, Any], options: WriteOptions) -> dict[str, Any]:
    is_judged = row["verdict"] == JUDGED
    rating = row["rating"] if options.ratings == "float" else row["grade"]
    interval = "no interval"
    if row["low"] is not None:
        interval = f"interval {row['low']:.3f} to {row['high']:.3f}"
    told = f"relevance {row['relevance']:.3f}, {interval}, {row['examinations']:.1f} examinations"
    if is_judged and row["grade_probability"] is not None:
        told += f", right with probability {row['grade_probability']:.2f}"
    judgement = {
        "rating": round(float(rating), 3) if is_judged else None,
        "unrateable": False,
        "judge_later": not is_judged,
        "explanation": f"clicks: {told}",
    }
    return {"query_text": row["query"], "doc_id": row["doc"], "judgements": [judgement]}


BOOK = JudgmentFormat(
    "quepid-book",
    "Quepid Book, JSON, with pairs to be judged later",
    (".book.json",),
    write_book,
    is_graded=False,
    options=("query", "name", "ratings"),
    join=partial(join_json, "query_doc_pairs"),
)


# -- OpenSearch: PUT _plugins/_search_relevance/judgments ----------------------------------------
def write_opensearch(
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


OPENSEARCH = JudgmentFormat(
    "opensearch",
    "OpenSearch search-relevance judgments, JSON",
    (".json",),
    write_opensearch,
    options=("query", "name", "ratings", "include"),
    join=partial(join_json, "judgmentRatings"),
)


# -- Elasticsearch: POST index/_rank_eval --------------------------------------------------------
def write_elasticsearch(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write the body of a request: a search for each query with its ratings, one template."""
    ratings: dict[str, list[dict[str, Any]]] = {}
    for query, doc, grade in pairs.select("query", "doc", "grade").iter_rows():
        rated = {"_index": options.index, "_id": doc, "rating": grade}
        ratings.setdefault(query, []).append(rated)
    search = {"query": {"multi_match": {"query": "{{query}}"}}}
    body = {
        "templates": [{"id": "search", "template": {"source": search}}],
        "metric": {"dcg": {"k": 10, "normalize": True}},
        "requests": [
            {"id": query, "template_id": "search", "params": {"query": query}, "ratings": rated}
            for query, rated in ratings.items()
        ],
    }
    path.write_text(json.dumps(body, ensure_ascii=False, indent=1), encoding="utf-8")
    return ["its template searches all fields; put your own search in its place"]


ELASTICSEARCH = JudgmentFormat(
    "elasticsearch",
    "Elasticsearch _rank_eval request, JSON",
    (".rank_eval.json",),
    write_elasticsearch,
    options=("query", "index"),
    required=("index",),
    join=partial(join_json, "requests"),
)
