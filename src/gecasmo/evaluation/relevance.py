"""Does a model order documents as people who judged them would?"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import GecasmoError
from gecasmo.evaluation.grades import INSTALL, Grades
from gecasmo.forms.extras import extra
from gecasmo.model.base import Model

Floats = NDArray[np.float64]
RELEVANCE_METRICS = ("ndcg", "auc", "kendall")


def relevance_of(model: Model, pairs: pl.DataFrame) -> tuple[Floats | None, str]:
    """The product of the coins that a model calls relevance, per pair; or None and why not."""
    if not model.relevance:
        return None, "the model does not say what relevance is"
    product = np.ones(len(pairs))
    for coin in model.relevance:
        try:
            product = product * model.probability(coin, pairs)
        except GecasmoError as problem:
            return None, str(problem)
    return product, ""


def relevance_metrics(
    grades: Grades, score: Floats, at: int, seed: int = 0
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
