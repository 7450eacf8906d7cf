"""Graded judgments as a Spark data frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from gecasmo.forms import TableState
from gecasmo.judgments.grading import by_cuts
from gecasmo.judgments.judge import judge
from gecasmo.judgments.pairs import relevance_frame
from gecasmo.judgments.parted import in_parts
from gecasmo.judgments.question import Question
from gecasmo.judgments.values import Relevances
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
    rule: str = "quantile",
    thresholds: Sequence[float] | None = None,
    level: float = 0.9,
    max_width: float | None = 0.4,
    min_examinations: float = 10.0,
) -> Any:
    """Grade every pair of query and document that a fitted model knows, as a Spark data frame.

    Parameters
    ----------
    model : fitted model
        If its rows are in files, executors read them, and each grades the pairs of some parts;
        only the relevances of pairs with enough data come to the driver, to find cut points.
    spark : SparkSession
    grades, rule, thresholds, level, max_width, min_examinations
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
    cuts = None
    if question.rule.startswith("quantile"):
        with hearing():
            cuts = _cuts(question, _relevances(numbers, sent, question, n_parts))
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


def _relevances(numbers: Any, sent: Any, question: Question, n_parts: int) -> Iterator[Any]:
    """The relevances of the pairs with enough data, part by part."""

    def look(number: int) -> Any:
        view = part_view(sent.value.model(), number, n_parts)
        return telling(relevances)(view, question)

    return iter(numbers.map(look).toLocalIterator(prefetchPartitions=True))


def _cuts(question: Question, found: Iterator[Any]) -> Any:
    values = Relevances()
    for some in found:
        values.add(some)
    return values.cuts(question.grades) if values.n else None


def has_pairs(view: Model) -> bool:
    """Whether a part has rows to be judged."""
    states = (view.states()[coin] for coin in view.relevance)
    tables = [state for state in states if isinstance(state, TableState)]
    return any(len(table.rows) for table in tables if "query" in table.rows.keys)


def relevances(view: Model, question: Question) -> Any:
    """The relevances of the pairs of a part that there is enough data for."""
    if not has_pairs(view):
        return np.zeros(0)
    with using_threads(1):
        frame = relevance_frame(view, None, question.level)
    return frame.filter(question.has_enough(frame))["relevance"].to_numpy()


def graded(view: Model, question: Question, cuts: Any) -> pl.DataFrame:
    """The judgments of the pairs of a part."""
    with using_threads(1):
        frame = relevance_frame(view, None, question.level)
    enough = question.has_enough(frame)
    some = frame.filter(enough)
    is_fixed = cuts is None
    grading = question.grading(some.clear()) if is_fixed else by_cuts(question.rule, cuts, some)
    return question.judgments(view, frame, enough, grading).frame


def _arrow(frame: pl.DataFrame) -> Any:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
