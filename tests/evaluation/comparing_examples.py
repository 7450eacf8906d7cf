"""Small logs, models with known numbers, and the obvious way to compute every metric."""

from __future__ import annotations

from typing import Any

import numpy as np

from gecasmo import DBN, GCTR, PBM, RCTR, UBM, ClickLog, read_log

N_QUERIES, N_DOCS = 6, 5


def ragged(
    n_sessions: int = 40,
    seed: int = 0,
    weighted: bool = True,
    n_queries: int = N_QUERIES,
    rate: float = 0.35,
) -> ClickLog:
    """Pages of one to four results, some ranks left out, rows in no order."""
    rng = np.random.default_rng(seed)
    rows = []
    for session in range(n_sessions):
        length = int(rng.integers(1, 5))
        ranks = np.sort(rng.permutation(5)[:length]) + 1
        docs = rng.permutation(N_DOCS)[:length]
        query, weight = int(rng.integers(n_queries)), float(rng.choice([0.5, 1.0, 2.5]))
        rows += [
            (f"s{session}", f"q{query}", f"d{doc}", int(rank), bool(rng.random() < rate), weight)
            for rank, doc in zip(ranks, docs, strict=True)
        ]
    rows = [rows[place] for place in rng.permutation(len(rows))]
    names = ("session", "query", "doc", "rank", "click", "weight")
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    if weighted:
        return read_log(columns, weight="weight")
    del columns["weight"]
    return read_log(columns)


def known_models(seed: int = 0) -> dict[str, Any]:
    """Models with probabilities of their own, so that nothing has to be fitted."""
    rng = np.random.default_rng([seed, 1])
    pairs = {
        (f"q{q}", f"d{d}"): float(rng.uniform(0.1, 0.9))
        for q in range(N_QUERIES)
        for d in range(N_DOCS)
    }
    by_rank = {rank: float(rng.uniform(0.2, 0.9)) for rank in range(1, 6)}
    by_last = {(rank, last): 0.9 / (rank - last) for rank in by_rank for last in range(rank)}
    return {
        "DBN": DBN.with_values(attraction=pairs, satisfaction=pairs, continuation=0.8),
        "UBM": UBM.with_values(attraction=pairs, examination=by_last),
        "PBM": PBM.with_values(attraction=pairs, examination=by_rank),
        "ranks": RCTR.with_values(click_rate=by_rank),
        "constant": GCTR.with_values(click_rate=0.35),
    }


def by_hand(model: Any, log: ClickLog, weight: np.ndarray | None = None) -> dict[str, float]:
    """Every metric with an interval, result by result from what the model answers."""
    weight = log.weight if weight is None else weight
    logs = model.log_likelihood(log)
    found = {"log_likelihood": float((weight * logs).sum() / weight.sum())}
    row_weight = np.array([weight[page] for page in log.page])
    answers = {
        "conditional": model.predict_conditional_clicks(log),
        "marginal": model.predict_clicks(log),
    }
    for kind, chance in answers.items():
        bits = [
            -np.log2(p if clicked else 1 - p) for p, clicked in zip(chance, log.click, strict=True)
        ]
        values = []
        for rank in np.unique(log.rank):
            there = log.rank == rank
            if row_weight[there].sum() > 0:
                mean = np.average(np.array(bits)[there], weights=row_weight[there])
                values.append(2**mean)
        found[f"{kind}_perplexity_pooled"] = float(2 ** np.average(bits, weights=row_weight))
        found[f"{kind}_perplexity_arithmetic"] = float(np.mean(values))
    squares = (answers["marginal"] - log.click.astype(float)) ** 2
    found["brier"] = float(np.average(squares, weights=row_weight))
    return found
