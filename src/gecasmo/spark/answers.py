"""Answers of a fitted model as Spark data frames, partition by partition.

They are about the pages of a Spark data frame, or graded judgments.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from gecasmo.errors import ModelError
from gecasmo.evaluation import Evaluation, EvaluationSums, finished
from gecasmo.judgments import FIXED_CUTS, PairParts, Question, judge, relevance_frame
from gecasmo.kernels.running import using_threads
from gecasmo.logs import ClickLog
from gecasmo.logs.roles import Given
from gecasmo.model.answers import conditional_frame, marginal_frame
from gecasmo.model.base import Impossible, Model
from gecasmo.model.page_run import Filtered
from gecasmo.model.streaming import part_view
from gecasmo.spark.parts import tell_notes
from gecasmo.spark.session import hearing, quiet, require_frame, require_spark, telling
from gecasmo.spark.shipping import ShippedModel
from gecasmo.spark.source import Reading, Source, open_source

ROLES = ("session", "query", "doc", "rank", "click", "weight")


def evaluate(
    model: Model,
    dataframe: Any,
    *,
    session: str | Sequence[str] | None = "session",
    query: str | None = "query",
    doc: str | Sequence[str] = "doc",
    rank: str | None = "rank",
    click: str | None = "click",
    weight: str | None = None,
    partitions: int | None = None,
    check: bool = True,
    impossible: Impossible = "raise",
) -> Evaluation:
    """Log-likelihood and perplexities of a fitted model on a Spark data frame.

    Columns and partitions are told as for `fit`; the answer is that of `model.evaluate`. A model
    whose rows are in files has to be in a folder that all executors reach; each reads only the
    rows that it needs.
    """
    _check(model, dataframe, impossible)
    roles = roles_of(session, query, doc, rank, click, weight)
    source = open_source(dataframe, roles, model, partitions, check=check)
    asked = _Asked(
        source.reading, dataframe.sparkSession.sparkContext.broadcast(ShippedModel.of(model))
    )
    with hearing(), quiet():
        heard = source.pieces().mapPartitionsWithIndex(asked.sums(impossible)).collect()
    tell_notes([notes for _, notes in heard])
    total: EvaluationSums = heard[0][0]
    for sums, _ in heard[1:]:
        total = total + sums
    return finished(total, model.name, impossible)


def predict(
    model: Model,
    dataframe: Any,
    *,
    kind: Literal["conditional", "marginal"] = "conditional",
    session: str | Sequence[str] | None = "session",
    query: str | None = "query",
    doc: str | Sequence[str] = "doc",
    rank: str | None = "rank",
    click: str | None = "click",
    weight: str | None = None,
    partitions: int | None = None,
    check: bool = True,
    impossible: Impossible = "raise",
) -> Any:
    """Click probabilities of all results, as a Spark data frame.

    Parameters
    ----------
    model : fitted model
    dataframe : Spark data frame, with columns told as for `fit`
    kind : "conditional" or "marginal"
        Given the signals above each result, or when no click is known.
    impossible : "raise", "drop" or "floor"
        What to do with pages of probability zero, for conditional probabilities only.

    Returns
    -------
    A data frame with session, query, doc, rank, click, `unseen` (names of coins whose row was
    never fitted) and `probability`. It is worked out when it is asked for, by `.write` for example.
    """
    _check(model, dataframe, impossible)
    if kind not in ("conditional", "marginal"):
        raise ModelError(f"kind={kind!r}: choose 'conditional' or 'marginal'.")
    roles = roles_of(session, query, doc, rank, click, weight)
    source = open_source(dataframe, roles, model, partitions, check=check)
    asked = _Asked(
        source.reading, dataframe.sparkSession.sparkContext.broadcast(ShippedModel.of(model))
    )
    schema = answer_schema(source)
    with quiet():
        answer = asked.table(kind, impossible, _as_arrow(dataframe.sparkSession, schema))
        return source.cuts().groupBy("part").applyInArrow(answer, schema)


def roles_of(
    session: Given, query: Given, doc: Given, rank: Given, click: Given, weight: Given
) -> dict[str, Given]:
    """The columns by role, as `read_log` has them."""
    given = (session, query, doc, rank, click, weight)
    return dict(zip(ROLES, given, strict=True))


class _Asked:
    """What executors are asked about partitions."""

    def __init__(self, reading: Reading, shipped: Any) -> None:
        self.reading, self.shipped = reading, shipped

    def sums(self, impossible: Impossible) -> Callable[[int, Any], Any]:
        """The sums of an evaluation."""

        def ask(number: int, pieces: Any) -> Any:
            found = telling(self.viewed)(number, pieces)
            if found is not None:
                view, log = found
                yield telling(_sums)(view, log, impossible), log.notes

        return ask

    def table(self, kind: str, impossible: Impossible, schema: Any) -> Callable[[Any, Any], Any]:
        """The click probabilities of a partition, with the types of an Arrow schema."""

        def ask(key: Any, cuts: Any) -> Any:
            pieces = [piece.as_py() for piece in cuts["piece"]]
            found = telling(self.viewed)(key[0].as_py(), pieces)
            assert found is not None  # a group has rows
            return telling(_predictions)(*found, kind, impossible).cast(schema)

        return ask

    def viewed(self, number: int, pieces: Any) -> tuple[Model, ClickLog] | None:
        """A partition of the log, and the model as far as it matters there."""
        table = self.reading.table(pieces)
        if table is None:
            return None
        model = self.shipped.value.model()
        return part_view(model, number, self.reading.n_parts), self.reading.log(table, number)


def _sums(view: Model, log: ClickLog, impossible: Impossible) -> EvaluationSums:
    with using_threads(1):
        return EvaluationSums.of(view, log, impossible)


def _predictions(view: Model, log: ClickLog, kind: str, impossible: Impossible) -> Any:
    with using_threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "conditional":
            frame = conditional_frame(view, log, Filtered(view, log, impossible, warn=False))
        else:
            frame = marginal_frame(view, log)
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def answer_schema(source: Source) -> Any:
    """The columns of predictions, with the types that ids have in the source."""
    from pyspark.sql import types as T

    given = {field.name: field.dataType for field in source.frame.schema.fields}

    def kind(role: str) -> Any:
        names = source.columns[role]
        if not names:
            return T.LongType()  # sessions that were numbered
        found = [_element(given[name]) for name in names]
        if isinstance(source.reading.roles[role], str):
            return found[0]
        return T.StructType([T.StructField(n, k) for n, k in zip(names, found, strict=True)])

    fields = [("session", kind("session"))]
    if source.has_query:
        fields.append(("query", kind("query")))
    fields += [
        ("doc", kind("doc")),
        ("rank", T.IntegerType()),
        ("click", T.BooleanType()),
        ("unseen", T.ArrayType(T.StringType())),
        ("probability", T.DoubleType()),
    ]
    return T.StructType([T.StructField(name, dtype) for name, dtype in fields])


def _as_arrow(session: Any, schema: Any) -> Any:
    """The types as Arrow has them; texts are of the kind that the session is set to."""
    from pyspark.sql.pandas.types import to_arrow_schema

    large = session.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false")
    return to_arrow_schema(schema, prefers_large_types=large == "true")


def _element(kind: Any) -> Any:
    from pyspark.sql.types import ArrayType

    return kind.elementType if isinstance(kind, ArrayType) else kind


def _check(model: Any, dataframe: Any, impossible: str) -> None:
    if not isinstance(model, Model):
        raise ModelError(f"A fitted model is wanted, not {type(model).__name__}.")
    model.states(whole=False)
    require_frame(dataframe)
    if impossible not in ("raise", "drop", "floor"):
        raise ModelError(f"impossible={impossible!r}: choose 'raise', 'drop' or 'floor'.")


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
    parts = PairParts.of(model, None)
    if not parts.in_files:
        with quiet():
            return spark.createDataFrame(_arrow(judge(model, **options).frame))
    # One part is judged here, to hear of options that make no sense and to see the columns.
    first = next((view for _, view, _ in parts), part_view(model, 0, parts.n_parts))
    like = judge(first, **options).frame.clear()
    return _by_executors(model, spark, Question(**options), parts.n_parts, like)


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
    tables = [view.states()[coin] for coin in view.relevance if view.forms[coin].has_posterior]
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
    return question.graded(frame, cuts).frame


def _arrow(frame: pl.DataFrame) -> Any:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
