"""Answers of a fitted model as Spark data frames, partition by partition.

They are about the pages of a Spark data frame, or graded judgments.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import polars as pl

from gecasmo.errors import ModelError
from gecasmo.evaluation import Evaluation
from gecasmo.judgments import FIXED_CUTS, PairParts, Question, judge, relevance_frame
from gecasmo.kernels.threads import using_threads
from gecasmo.model.answers import KINDS, conditional_frame, marginal_frame
from gecasmo.model.base import Impossible, Model
from gecasmo.model.log_parts import part_view
from gecasmo.model.page_run import Filtered
from gecasmo.model.relevance import coins_of_relevance
from gecasmo.spark.frame_log import FrameLog, open_log
from gecasmo.spark.messages import ask_parts, telling
from gecasmo.spark.session import quiet, require_frame, require_spark
from gecasmo.spark.shipped_model import ShippedModel


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

    Columns and partitions are told as for `fit`; the answer is that of `model.evaluate`, which
    takes `open_log(dataframe)`, too. A model whose rows are in files has to be in a folder that
    all executors reach; each reads only the rows that it needs.
    """
    _check(model, dataframe, impossible)
    columns: Any = {"session": session, "query": query, "doc": doc, "rank": rank, "click": click}
    log: Any = open_log(dataframe, **columns, weight=weight, partitions=partitions, check=check)
    return model.evaluate(log, impossible=impossible)


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
    DataFrame
        A data frame with session, query, doc, rank, click, `unseen` (names of coins whose row was
        never fitted) and `probability`. It is worked out when it is asked for, by `.write` for
        example.
    """
    _check(model, dataframe, impossible)
    if kind not in KINDS:
        raise ModelError(f"kind={kind!r}: choose 'conditional' or 'marginal'.")
    columns: Any = {"session": session, "query": query, "doc": doc, "rank": rank, "click": click}
    log = open_log(dataframe, **columns, weight=weight, partitions=partitions, check=check)
    shipped, reading = ShippedModel.of(model), log.reading
    schema = _answer_schema(log)
    with quiet():
        from pyspark.sql.pandas.types import to_arrow_schema

        # Texts are of the kind that the session is set to.
        large = dataframe.sparkSession.conf.get(
            "spark.sql.execution.arrow.useLargeVarTypes", "false"
        )
        types = to_arrow_schema(schema, prefers_large_types=large == "true")

    def predictions(number: int, table: pl.DataFrame) -> Any:
        view, pages = reading.part(shipped, number, table)
        with using_threads(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind == "conditional":
                filtered = Filtered(view, pages, impossible, warn=False)
                return _arrow(conditional_frame(view, pages, filtered)).cast(types)
            return _arrow(marginal_frame(view, pages)).cast(types)

    return log.by_part(model, predictions, schema)


def _answer_schema(log: FrameLog) -> Any:
    """The columns of predictions, with the types that ids have in the data frame."""
    from pyspark.sql import types as T

    given = {field.name: field.dataType for field in log.frame.schema.fields}

    def kind(role: str) -> Any:
        names = log.columns[role]
        if not names:
            return T.LongType()  # sessions that were numbered
        found = [getattr(given[name], "elementType", given[name]) for name in names]
        if isinstance(log.reading.roles[role], str):
            return found[0]
        return T.StructType([T.StructField(n, k) for n, k in zip(names, found, strict=True)])

    roles = ("session", "query", "doc") if log.columns["query"] else ("session", "doc")
    fields = [
        *((role, kind(role)) for role in roles),
        ("rank", T.IntegerType()),
        ("click", T.BooleanType()),
        ("unseen", T.ArrayType(T.StringType())),
        ("probability", T.DoubleType()),
    ]
    return T.StructType([T.StructField(name, dtype) for name, dtype in fields])


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

    def pairs(number: int) -> pl.DataFrame | None:
        """The pairs of a part, if it has any."""
        view = part_view(shipped.model(), number, n_parts)
        coins = [c for c in coins_of_relevance(view) if view.forms[c].has_posterior]
        tables = [view.states()[coin] for coin in coins]
        if not any(len(table.rows) for table in tables if "query" in table.rows.keys):
            return None
        with using_threads(1):
            return relevance_frame(view, None, question.level)

    def seen(number: int) -> Any:
        """What cut points are found by."""
        frame = pairs(number)
        return None if frame is None else question.seen(frame)

    has_cuts = question.rule in FIXED_CUTS
    heard = {} if has_cuts else ask_parts(spark, range(n_parts), seen)
    cuts = question.cuts(some for some in heard.values() if some is not None)
    with quiet():
        schema = from_arrow_schema(_arrow(like).schema)
        as_asked = to_arrow_schema(schema)

    @telling
    def graded(number: int) -> list[Any]:
        frame = pairs(number)
        if frame is None:
            return []
        with using_threads(1):
            return list(_arrow(question.graded(frame, cuts).frame).cast(as_asked).to_batches())

    def grade(batches: Any) -> Iterator[Any]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from graded(number)

    with quiet():
        return spark.range(0, n_parts, 1, n_parts).mapInArrow(grade, schema)


def _arrow(frame: pl.DataFrame) -> Any:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
