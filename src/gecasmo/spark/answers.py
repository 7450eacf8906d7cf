"""Answers of a fitted model as Spark data frames, partition by partition.

They are about the pages of a Spark data frame, or graded judgments.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from gecasmo.errors import ModelError
from gecasmo.evaluation import Evaluation, EvaluationSums, finished
from gecasmo.evaluation.metrics import CalibrationSums, PerplexitySums
from gecasmo.judgments import FIXED_CUTS, PairParts, Question, judge, relevance_frame
from gecasmo.kernels.threads import using_threads
from gecasmo.logs import ClickLog
from gecasmo.logs.notes import Note
from gecasmo.logs.roles import Given
from gecasmo.model.answers import conditional_frame, marginal_frame
from gecasmo.model.base import Impossible, Model
from gecasmo.model.log_parts import part_view
from gecasmo.model.page_run import Filtered, Tally
from gecasmo.spark.messages import ask_parts, pack, telling, unpack
from gecasmo.spark.runner import tell_notes
from gecasmo.spark.session import quiet, require_frame, require_spark
from gecasmo.spark.shipped_model import ShippedModel
from gecasmo.spark.source import FrameReading, FrameSource, open_source

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
    shipped, reading = ShippedModel.of(model), source.reading

    def sums(number: int, table: pl.DataFrame) -> bytes:
        view, log = viewed(shipped, reading, number, table)
        with using_threads(1):
            return pack((EvaluationSums.of(view, log, impossible), log.notes))

    kinds = (EvaluationSums, Tally, PerplexitySums, CalibrationSums, Note)
    heard = [unpack(answer, *kinds) for answer in source.ask(sums).values()]
    tell_notes([notes for _, notes in heard])
    total: EvaluationSums = heard[0][0]
    for more, _ in heard[1:]:
        total = total + more
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
    shipped, reading = ShippedModel.of(model), source.reading
    schema = answer_schema(source)
    with quiet():
        types = _as_arrow(dataframe.sparkSession, schema)

    def predictions(number: int, table: pl.DataFrame) -> Any:
        found = viewed(shipped, reading, number, table)
        return _arrow(_predictions(*found, kind, impossible)).cast(types)

    return source.by_part(predictions, schema)


def roles_of(
    session: Given, query: Given, doc: Given, rank: Given, click: Given, weight: Given
) -> dict[str, Given]:
    """The columns by role, as `read_log` has them."""
    given = (session, query, doc, rank, click, weight)
    return dict(zip(ROLES, given, strict=True))


def viewed(
    shipped: ShippedModel, reading: FrameReading, number: int, table: pl.DataFrame
) -> tuple[Model, ClickLog]:
    """A partition of the log, and the model as far as it matters there."""
    view = part_view(shipped.model(), number, reading.n_parts)
    return view, reading.log(table, number)


def _predictions(view: Model, log: ClickLog, kind: str, impossible: Impossible) -> pl.DataFrame:
    with using_threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "conditional":
            return conditional_frame(view, log, Filtered(view, log, impossible, warn=False))
        return marginal_frame(view, log)


def answer_schema(source: FrameSource) -> Any:
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
    every_pair: bool = False,
) -> Any:
    """Grade pairs of query and document that a fitted model knows, as a Spark data frame.

    Parameters
    ----------
    model : fitted model
        If its rows are in files, executors read them, and each grades the pairs of some parts;
        what cut points are found by comes to the driver: of "informative" how many pairs there are
        of which belief, of rules of quantiles the relevances of pairs.
    spark : SparkSession
    grades, rule, thresholds, level, max_width, min_examinations, min_probability, min_order
    every_pair
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
        "every_pair": every_pair,
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

    shipped = ShippedModel.of(model)
    if question.rule in FIXED_CUTS:
        cuts = question.cuts([])
    else:
        heard = ask_parts(
            spark,
            range(n_parts),
            lambda number: pack(seen(part_view(shipped.model(), number, n_parts), question)),
        )
        cuts = question.cuts(map(unpack, heard.values()))
    with quiet():
        schema = from_arrow_schema(_arrow(like).schema)
        as_asked = to_arrow_schema(schema)

    def grade(batches: Any) -> Iterator[Any]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                own = part_view(shipped.model(), number, n_parts)
                if has_pairs(own):
                    table = _arrow(telling(graded)(own, question, cuts))
                    yield from table.cast(as_asked).to_batches()

    with quiet():
        return spark.range(0, n_parts, 1, n_parts).mapInArrow(grade, schema)


def has_pairs(view: Model) -> bool:
    """Whether a part has rows to be judged."""
    tables = [view.states()[coin] for coin in view.relevance if view.forms[coin].has_posterior]
    return any(len(table.rows) for table in tables if "query" in table.rows.keys)


def seen(view: Model, question: Question) -> Any:
    """What cut points are found by, of the pairs of a part."""
    if not has_pairs(view):
        return np.zeros((2, 0), np.int64)
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
