"""Logs written by hand or drawn from known users, for which the right answers are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gecasmo import DBN, PBM, ClickLog, Table, read_log


def pages_log(
    pages: Sequence[Sequence[str]],
    clicks: Sequence[Sequence[int]] | None = None,
    queries: Sequence[str] | None = None,
    **more: Sequence[Any],
) -> ClickLog:
    """A log of pages given as lists of documents from rank 1 on; `more` has a value per page."""
    columns: dict[str, list[Any]] = {name: [] for name in ("session", "doc", "rank", "click")}
    given = dict(more) if queries is None else {"query": queries, **more}
    columns |= {name: [] for name in given}
    for number, docs in enumerate(pages):
        seen = [0] * len(docs) if clicks is None else clicks[number]
        columns["session"] += [f"s{number}"] * len(docs)
        columns["doc"] += docs
        columns["rank"] += range(1, len(docs) + 1)
        columns["click"] += seen
        for name, values in given.items():
            columns[name] += [values[number]] * len(docs)
    return read_log(columns, weight="weight" if "weight" in more else None)


def by_doc(model: type, **forms: Any) -> Any:
    """A model of the zoo with rows by document, for logs without queries."""
    coins = [name for name, p in model._parameters().items() if "doc" in p.keys]
    table = Table(key="doc", pseudo_counts=(1.0, 1.0))
    return model(**dict.fromkeys(coins, table), **forms)


def random_clicks(pages: Sequence[Sequence[str]], rate: float, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[int(x) for x in rng.random(len(page)) < rate] for page in pages]


def pbm_users(
    pages: Sequence[Sequence[str]], seed: int, *, clicks: int = 0, top: float = 0.9
) -> ClickLog:
    """Clicks of people who read rank 1 with probability `top`, and each next rank 10 % less."""
    docs = sorted({doc for page in pages for doc in page})
    rng = np.random.default_rng(seed)
    longest = max(map(len, pages))
    truth = PBM.with_values(
        attraction=(
            Table(key="doc"),
            dict(zip(docs, rng.uniform(0.2, 0.8, len(docs)), strict=True)),
        ),
        examination={rank: top * 0.9 ** (rank - 1) for rank in range(1, longest + 1)},
    )
    log: ClickLog = truth.simulate(pages_log(pages), seed=clicks)
    return log


def dbn_users(pages: Sequence[Sequence[str]], seed: int) -> ClickLog:
    docs = sorted({doc for page in pages for doc in page})
    rng = np.random.default_rng(seed)
    attraction, satisfaction = (
        dict(zip(docs, rng.uniform(0.3, 0.8, len(docs)), strict=True)) for _ in range(2)
    )
    truth = DBN.with_values(
        attraction=(Table(key="doc"), attraction),
        satisfaction=(Table(key="doc"), satisfaction),
        continuation=0.8,
    )
    log: ClickLog = truth.simulate(pages_log(pages), seed=seed)
    return log


def shelves(n_pages: int, n_shelves: int, length: int, swap: float, seed: int) -> list[list[str]]:
    """Each page shows one of some fixed lists of documents; a share of them in random order."""
    rng = np.random.default_rng(seed)
    pages = []
    for _ in range(n_pages):
        shelf = int(rng.integers(n_shelves))
        page = [f"d{shelf}{place}" for place in range(length)]
        pages.append([str(d) for d in rng.permutation(page)] if rng.random() < swap else page)
    return pages
