"""Does a model order documents as people who judged them would?

Human judgments are a frame or file with query, doc and grade, made to fit a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, GecasmoError, extra, option
from gecasmo.logs import ClickLog
from gecasmo.logs.side_tables import read_side_table
from gecasmo.model.base import Model
from gecasmo.model.relevance import factor_probability, factors_of
from gecasmo.model.structured import as_frame
from gecasmo.report import counted

Floats = NDArray[np.float64]
RELEVANCE_METRICS = ("ndcg", "auc", "kendall")

INSTALL = "gecasmo[relevance]"
HIGHEST_GRADE = 30  # gains are 2^grade - 1, and trec_eval counts them in 32 bits
_NEEDED = ("query", "doc", "grade")


def relevance_of(model: Model, pairs: pl.DataFrame) -> tuple[Floats | None, str]:
    """The product of what a model calls relevance, per pair; or None and why not."""
    if not model.relevance:
        return None, "the model does not say what relevance is"
    product = np.ones(len(pairs))
    for factor in factors_of(model):
        try:
            product = product * factor_probability(model, factor, pairs)
        except GecasmoError as problem:
            return None, str(problem)
    return product, ""


def relevance_metrics(
    grades: HumanGrades, score: Floats, at: int, seed: int = 0
) -> dict[str, tuple[float | None, str]]:
    """nDCG, AUC and Kendall's tau by name, each a mean over queries, or None with the reason.

    nDCG has gains 2^grade - 1 and discounts log2(rank + 1). AUC is the probability that a document
    with a positive grade stands above one without; half if they are level. Kendall's tau is
    tau-b; 0 where the model holds all documents of a query for equal. Queries with one grade
    only have neither of the two.
    """
    frame = grades.frame.select("query", "grade").with_columns(score=pl.Series(score))
    of_query = [
        (part["grade"].to_numpy(), part["score"].to_numpy())
        for part in frame.partition_by("query", maintain_order=True)
    ]
    areas = [area(grade > 0, value) for grade, value in of_query if (grade == 0).any()]
    taus = [kendall(grade, value) for grade, value in of_query if len(np.unique(grade)) > 1]
    one_grade = "no judged query has documents of different grades"
    return {
        "ndcg": (ndcg(of_query, at, seed), ""),
        "auc": _mean(areas, "every judged document has a positive grade"),
        "kendall": _mean(taus, one_grade),
    }


def _mean(values: list[float], reason: str) -> tuple[float | None, str]:
    return (float(np.mean(values)), "") if values else (None, reason)


def ndcg(of_query: list[tuple[NDArray[np.int64], Floats]], at: int, seed: int) -> float:
    """The mean nDCG of queries, each with grades and scores of its documents.

    Of ir-measures' own formulas the exponential one needs Perl; with gains of our own the other
    one is the same. Two things would spoil the order: trec_eval keeps scores in 32 bits and sorts
    level ones by document id. So it gets places instead of scores, and ids drawn by lot.
    """
    measures = extra("ir_measures", "nDCG against human judgments", INSTALL)
    generator = np.random.default_rng([seed, 30])
    gains = {int(grade): 2 ** int(grade) - 1 for pairs, _ in of_query for grade in np.unique(pairs)}
    truth: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    for number, (pairs, score) in enumerate(of_query):
        place = np.unique(score, return_inverse=True)[1]
        ids = [f"d{lot:09d}" for lot in generator.permutation(len(pairs))]
        truth[str(number)] = dict(zip(ids, map(int, pairs), strict=True))
        run[str(number)] = dict(zip(ids, map(float, place), strict=True))
    measure = measures.nDCG(gains=gains) @ at
    return float(measures.pytrec_eval.calc_aggregate([measure], truth, run)[measure])


def area(is_relevant: NDArray[np.bool_], score: Floats) -> float:
    """The area under the ROC curve, from the sum of ranks."""
    from scipy.stats import rankdata

    n_relevant = int(is_relevant.sum())
    n_other = len(is_relevant) - n_relevant
    above = float(rankdata(score)[is_relevant].sum()) - n_relevant * (n_relevant + 1) / 2
    return above / (n_relevant * n_other)


def kendall(grade: NDArray[np.int64], score: Floats) -> float:
    """Kendall's tau-b; 0 if all scores are level, since then nothing is put in order."""
    from scipy.stats import kendalltau

    if len(np.unique(score)) < 2:
        return 0.0
    return float(kendalltau(grade, score).statistic)


@dataclass(frozen=True)
class HumanGrades:
    """`frame` has query, doc, grade and whatever else was given, for queries with a positive
    grade; `n_skipped` is the number of queries without one."""

    frame: pl.DataFrame
    n_queries: int
    n_skipped: int


def _named(*given: str) -> str:
    return option("judgments", *given, of="compare")


def grades(given: Any, log: ClickLog, notes: list[str]) -> HumanGrades:
    """Read and check judgments, with ids of the types that the log has."""
    if not log.has_query:
        raise ClickLogError(f"{_named()}: judgments are about queries, and the log has no queries.")
    frame = read_grades(given)
    lost = [name for name in _NEEDED if name not in frame.columns]
    if lost:
        raise ClickLogError(
            f"{_named()}: no column {' and no '.join(map(repr, lost))}. There is: "
            f"{', '.join(frame.columns)}."
        )
    for name in _NEEDED:
        if frame[name].null_count():
            row = int(frame[name].is_null().arg_max() or 0)
            raise ClickLogError(f"{_named()}: row {row} has no {name}.")
    if frame.is_empty():
        raise ClickLogError(f"{_named()}: there are no judgments.")
    frame = frame.with_columns(
        _as_in(log.column("query"), frame["query"]),
        _as_in(log.column("doc"), frame["doc"]),
        _whole(frame["grade"]),
    )
    twice = frame.select("query", "doc").is_duplicated()
    if twice.any():
        query, doc = frame.select("query", "doc").row(int(twice.arg_max() or 0))
        raise ClickLogError(
            f"{_named()}: the pair of query {query!r} and doc {doc!r} is judged twice."
        )
    n_all = frame["query"].n_unique()
    # Judges mark spam with negative grades; it gains nothing, as what is not relevant.
    frame = frame.with_columns(pl.col("grade").clip(lower_bound=0)).filter(
        pl.col("grade").max().over("query") > 0
    )
    n_queries = frame["query"].n_unique()
    if not n_queries:
        raise ClickLogError(f"{_named()}: no judged query has a positive grade.")
    _tell(frame, log, n_all - n_queries, notes)
    return HumanGrades(frame, n_queries, n_all - n_queries)


def read_grades(given: Any) -> pl.DataFrame:
    """A frame as it is; a .csv, .tsv or .parquet file; any other file as TREC qrels."""
    if not isinstance(given, str | Path):
        return as_frame(given, "judgments")
    path = Path(given).expanduser()
    found = read_side_table(path, _named(str(given)))
    if found is not None:
        return found
    try:
        measures = extra("ir_measures", "Reading TREC qrels", INSTALL)
        lines = list(measures.read_trec_qrels(str(path)))
    except OSError as problem:
        raise ClickLogError(f"{_named(str(given))}: {problem}") from problem
    except (ValueError, IndexError) as problem:
        raise ClickLogError(
            f"{_named(str(given))}: neither a .csv, .tsv, .jsonl or .parquet file nor TREC "
            "qrels (query, iteration, doc, grade)."
        ) from problem
    return pl.DataFrame(
        {
            "query": [line.query_id for line in lines],
            "doc": [line.doc_id for line in lines],
            "grade": [line.relevance for line in lines],
        },
        schema={"query": pl.String, "doc": pl.String, "grade": pl.Int64},
    )


def _as_in(own: pl.Series, given: pl.Series) -> pl.Series:
    """Ids in the type of the log: files of judgments often hold numbers as text, and back."""
    dtype = pl.String() if isinstance(own.dtype, pl.Categorical | pl.Enum) else own.dtype
    try:
        return given.cast(dtype)
    except pl.exceptions.PolarsError:
        raise ClickLogError(
            f"{_named()}: ids of the column {given.name!r} are {given.dtype} there and "
            f"{own.dtype} in the log, and do not become that (first: {given[0]!r})."
        ) from None


def _whole(values: pl.Series) -> pl.Series:
    try:
        whole = values.cast(pl.Int64)
        is_whole = bool((whole.cast(pl.Float64) == values.cast(pl.Float64)).all())
    except pl.exceptions.PolarsError:
        is_whole = False
    if not is_whole:
        raise ClickLogError(f"{_named()}: grades are whole numbers, 0 for what is not relevant.")
    highest = int(whole.to_numpy().max())
    if highest > HIGHEST_GRADE:
        raise ClickLogError(
            f"{_named()}: there is a grade {highest}, and the gain of a grade is "
            f"2^grade - 1; grades above {HIGHEST_GRADE} make no sense so."
        )
    return whole


def _tell(frame: pl.DataFrame, log: ClickLog, n_skipped: int, notes: list[str]) -> None:
    if n_skipped:
        queries = counted(n_skipped, "judged query has", "judged queries have")
        notes.append(f"{queries} no positive grade: skipped.")
    ids = [log.column(name).cast(frame[name].dtype) for name in ("query", "doc")]
    unseen = len(frame.join(pl.DataFrame(ids).unique(), on=["query", "doc"], how="anti"))
    if unseen:
        notes.append(
            f"{unseen:,} of {len(frame):,} judged pairs were never in training: models order them "
            "by their priors."
        )
