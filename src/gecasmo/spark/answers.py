"""Answers of a fitted model about the pages of a Spark data frame, partition by partition."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import polars as pl

from gecasmo.errors import ModelError
from gecasmo.evaluation.evaluate import Evaluation, finished
from gecasmo.evaluation.sums import EvaluationSums
from gecasmo.kernels.running import using_threads
from gecasmo.logs import ClickLog
from gecasmo.logs.roles import Given
from gecasmo.model.answers import conditional_frame, marginal_clicks
from gecasmo.model.base import Impossible, Model
from gecasmo.model.impossible import Filtered
from gecasmo.model.streaming import part_view
from gecasmo.spark.cutting import Reading
from gecasmo.spark.needs import require_frame
from gecasmo.spark.parts import tell_notes
from gecasmo.spark.shipping import ShippedModel
from gecasmo.spark.source import Source, open_source
from gecasmo.spark.telling import hearing, quiet, telling

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
            frame = marginal_clicks(view, log, True)
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
