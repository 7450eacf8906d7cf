"""What search tools accept, as JSON schemas, read from their source.

Quepid (o19s/quepid): `app/services/book_importer.rb` takes name, show_rank,
support_implicit_judgements, scale (newer versions) or scorer.name (older ones, which want a scorer
of that name in the database; `db/seeds.rb` puts nDCG@10 there), and query_doc_pairs; each of these
is created with all its keys but judgements, so a key that is no column is an error.
`app/models/query_doc_pair.rb`: query_text and doc_id are there, query_text has at most 500
characters, doc_id is a column of 500. `app/models/judgement.rb`: a rating is there unless the
judgement is unrateable or judge_later; a pair has one judgement of a user at most.
`app/services/ratings_importer.rb` reads the rows of a CSV by place: query, docid, rating, stripped.

OpenSearch (opensearch-project/search-relevance): `rest/RestPutJudgmentAction.java` and
`judgments/ImportJudgmentsProcessor.java` take name, description, type and judgmentRatings; docId is
not empty, and rating is a *text* that `Float.parseFloat` reads. `utils/TextValidationUtil.java`: a
name has 1 to 50 characters, a description at most 250, both without quotation marks, backslashes
and angle brackets.

Elasticsearch (elastic/elasticsearch, modules/rank-eval): `RankEvalSpec.java` takes requests (at
least one), metric, templates and max_concurrent_searches; `RatedRequest.java` id, ratings, and
either request or template_id with params, and no document twice; `RatedDocument.java` _index, _id
(neither empty) and rating, a whole number that is written as a vInt, so not negative;
`DiscountedCumulativeGain.java` k, normalize and unknown_doc_rating. Unknown keys are errors.
"""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string", "minLength": 1}


def only(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """An object with these keys and no others."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def many(items: dict[str, Any], least: int = 1) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


_RATED = only({"rating": {"type": "number"}})["properties"]
QUEPID_JUDGEMENT = {
    **only(
        {"rating": {"type": ["number", "null"]}},
        unrateable={"type": "boolean"},
        judge_later={"type": "boolean"},
        user_email=TEXT,
        explanation={"type": "string", "maxLength": 65_535},
    ),
    "anyOf": [
        {"properties": _RATED},
        {"properties": {"judge_later": {"const": True}}, "required": ["judge_later"]},
        {"properties": {"unrateable": {"const": True}}, "required": ["unrateable"]},
    ],
}
QUEPID_BOOK = only(
    {
        "name": {**TEXT, "maxLength": 255},
        "show_rank": {"type": "boolean"},
        "support_implicit_judgements": {"type": "boolean"},
        "scale": many(TEXT, 2),
        "scorer": {"type": "object", "properties": {"name": {"const": "nDCG@10"}}},
        "query_doc_pairs": many(
            only(
                {"query_text": {**TEXT, "maxLength": 500}, "doc_id": {**TEXT, "maxLength": 500}},
                position={"type": ["integer", "null"]},
                document_fields={"type": ["string", "null"]},
                information_need={"type": "string"},
                notes={"type": "string"},
                options={"type": "object"},
                judgements={**many(QUEPID_JUDGEMENT), "maxItems": 1},  # all by nobody in particular
            )
        ),
    }
)

_PLAIN = {**TEXT, "pattern": r'^[^"\\<>]*$'}
OPENSEARCH = only(
    {
        "name": {**_PLAIN, "maxLength": 50},
        "type": {"const": "IMPORT_JUDGMENT"},
        "judgmentRatings": many(
            only(
                {
                    "query": TEXT,
                    "ratings": many(
                        only({"docId": TEXT, "rating": {**TEXT, "pattern": r"^-?\d+(\.\d+)?$"}})
                    ),
                }
            )
        ),
    },
    description={**_PLAIN, "maxLength": 250},
)

ELASTICSEARCH = only(
    {
        "requests": many(
            only(
                {
                    "id": {"type": "string"},
                    "template_id": {"type": "string"},
                    "params": {"type": "object", "minProperties": 1},
                    "ratings": {
                        **many(
                            only(
                                {
                                    "_index": TEXT,
                                    "_id": TEXT,
                                    "rating": {"type": "integer", "minimum": 0},
                                }
                            )
                        ),
                        "uniqueItems": True,
                    },
                },
                summary_fields=many(TEXT),
            )
        ),
        "metric": only(
            {
                "dcg": only(
                    {},
                    k={"type": "integer"},
                    normalize={"type": "boolean"},
                    unknown_doc_rating={"type": "integer"},
                )
            }
        ),
    },
    templates=many(only({"id": TEXT, "template": only({"source": {"type": "object"}})})),
    max_concurrent_searches={"type": "integer"},
)
