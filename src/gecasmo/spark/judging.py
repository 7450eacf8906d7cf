"""Graded judgments as a Spark data frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from gecasmo.forms import TableState
from gecasmo.judgments.grading import FIXED_CUTS
from gecasmo.judgments.judge import judge
from gecasmo.judgments.pairs import relevance_frame
from gecasmo.judgments.parted import in_parts
from gecasmo.judgments.question import Question
from gecasmo.kernels.running import using_threads
from gecasmo.model.base import Model
from gecasmo.model.streaming import part_view
from gecasmo.spark.needs import require_spark
from gecasmo.spark.shipping import ShippedModel
from gecasmo.spark.telling import hearing, quiet, telling


def judgments(
    model: Model,
    spark: Any,
    *,
    grades: int = 4,
    rule: str = "informative",
    thresholds: Sequence[float] | None = None,
    level: float = 0.9,
    max_width: float | None = 0.4,
    min_examinations: float = 10.0,
    min_probability: float = 0.5,
    min_order: float = 0.8,
) -> Any:
    """Grade every pair of query and document that a fitted model knows, as a Spark data frame.

    Parameters
    ----------
    model : fitted model
        If its rows are in files, executors read them, and each grades the pairs of some parts;
        what cut points are found by comes to the driver: of "informative" how many pairs there are
        of which belief, of rules of quantiles the relevances of pairs with enough data.
    spark : SparkSession
    grades, rule, thresholds, level, max_width, min_examinations, min_probability, min_order
        As for `gecasmo.judgments.judge`.

    Returns
    -------
    A data frame with the columns of `model.judgments().frame`.
    """
    require_spark()
    options: dict[str, Any] = {
        "rule": rule,
        "grades": grades,
        "thresholds": thresholds,
        "level": level,
        "max_width": max_width,
        "min_examinations": min_examinations,
        "min_probability": min_probability,
        "min_order": min_order,
    }
    sources = in_parts(model, None)
    if sources is None:
        with quiet():
            return spark.createDataFrame(_arrow(judge(model, **options).frame))
    # One part is judged here, to hear of options that make no sense and to see the columns.
    first = next((view for _, view, _ in sources), part_view(model, 0, sources.n_parts))
    like = judge(first, **options).frame.clear()
    return _by_executors(model, spark, Question(**options), sources.n_parts, like)


def _by_executors(
    model: Model, spark: Any, question: Question, n_parts: int, like: pl.DataFrame
) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    sent = spark.sparkContext.broadcast(ShippedModel.of(model))
    numbers = spark.sparkContext.parallelize(range(n_parts), n_parts)
    if question.rule in FIXED_CUTS:
        cuts = question.cuts([])
    else:
        with hearing():
            cuts = question.cuts(_seen(numbers, sent, question, n_parts))
    with quiet():
        schema = from_arrow_schema(_arrow(like).schema)
        as_asked = to_arrow_schema(schema)

    def grade(batches: Any) -> Iterator[Any]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                own = part_view(sent.value.model(), number, n_parts)
                if has_pairs(own):
                    table = _arrow(telling(graded)(own, question, cuts))
                    yield from table.cast(as_asked).to_batches()

    with quiet():
        return spark.range(0, n_parts, 1, n_parts).mapInArrow(grade, schema)


def _seen(numbers: Any, sent: Any, question: Question, n_parts: int) -> Iterator[Any]:
    """What cut points are found by, part by part."""

    def look(number: int) -> Any:
        view = part_view(sent.value.model(), number, n_parts)
        return telling(seen)(view, question)

    return iter(numbers.map(look).toLocalIterator(prefetchPartitions=True))


def has_pairs(view: Model) -> bool:
    """Whether a part has rows to be judged."""
    states = (view.states()[coin] for coin in view.relevance)
    tables = [state for state in states if isinstance(state, TableState)]
    return any(len(table.rows) for table in tables if "query" in table.rows.keys)


def seen(view: Model, question: Question) -> Any:
    """What cut points are found by, of the pairs of a part."""
    if not has_pairs(view):
        return np.zeros((2, 0), np.int64) if question.rule == "informative" else np.zeros(0)
    with using_threads(1):
        frame = relevance_frame(view, None, question.level)
    return question.seen(frame)


def graded(view: Model, question: Question, cuts: Any) -> pl.DataFrame:
    """The judgments of the pairs of a part."""
    with using_threads(1):
        frame = relevance_frame(view, None, question.level)
    return question.judgments(view, frame, cuts).frame


def _arrow(frame: pl.DataFrame) -> Any:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
