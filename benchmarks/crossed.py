"""Sums of effects: held-out likelihood on crossed logs, coverage of intervals, and speed.

    PYTHONPATH=. python -m benchmarks.priors --only crossed sum-intervals crossed-speed

Logs are made here in plain NumPy; nothing of the package but the reading of them takes part.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.markdown import table
from benchmarks.rivals_log import rivals_log
from gecasmo import DBN, ClickLog, Logistic, Sum, Table, read_log
from gecasmo.forms import Empirical
from gecasmo.judgments import relevance_frame

SHOWN, CONTINUES, SATISFIES = 8, 0.85, 0.4
# Spreads of pairs, documents and queries; how many queries; what the feature is worth.
WORLDS: dict[str, dict[str, Any]] = {
    "documents and queries matter": {"spreads": (0.4, 1.0, 0.7)},
    "the same, x says nothing": {"spreads": (0.4, 1.0, 0.7), "slope": 0.0},
    "documents matter, sparse": {"spreads": (0.4, 1.0, 0.3), "n_queries": 1000},
    "both matter much, pairs are rare": {
        **{"spreads": (0.4, 1.5, 1.0), "n_queries": 1500, "pages": 1500, "slope": 0.0},
    },
    "mostly pairs": {"spreads": (1.0, 0.4, 0.4)},
    "pairs alone": {"spreads": (1.0, 0.0, 0.0)},
}
FORMS: dict[str, Any] = {
    "`Table()`": Table,
    "one prior": lambda: Table(prior=Empirical(by=())),
    '`Table("doc")`': lambda: Table("doc"),
    '`Sum(Logistic("x"))`': lambda: Sum(Logistic("x")),
    "crossed": lambda: Sum(Table("query", "doc"), Table("doc"), Table("query"), Logistic("x")),
    "crossed, probit": lambda: Sum(
        Table("query", "doc"), Table("doc"), Table("query"), Logistic("x"), link="probit"
    ),
    "crossed, without x": lambda: Sum(Table("query", "doc"), Table("doc"), Table("query")),
}
# Which differences are told: of this form to that one.
COMPARED = [
    ("crossed", "`Table()`"),
    ("crossed", '`Table("doc")`'),
    ("crossed", '`Sum(Logistic("x"))`'),
    ("crossed, without x", "one prior"),
    ("crossed, without x", '`Table("doc")`'),
    ("crossed, without x", "`Table()`"),
]
TRUTH = "the truth"
SCORES = Path(__file__).parent / "results" / "crossed.jsonl"
# What the ranker goes by: features, all of relevance, and chance; pages; how far pairs stray.
RANKERS: dict[str, dict[str, Any]] = {
    "random order": {},
    "random order, sparse (1.5 looks a pair)": {"pages": 360},
    "by features": {"by_features": 1.0},
    "by features, sparse": {"by_features": 1.0, "pages": 360},
    "by features, strict, pairs stray far": {"by_features": 3.0, "chance": 0.3, "strays": 1.5},
    "half by what features do not tell": {"by_features": 0.5, "by_truth": 0.5},
    "all by relevance itself": {"by_truth": 1.0},
    "the same, strict, pairs stray far": {"by_truth": 3.0, "chance": 0.3, "strays": 1.5},
    "the same, with the mean rank as a feature": {
        **{"by_truth": 3.0, "chance": 0.3, "strays": 1.5, "with_rank": True},
    },
}


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def clicks(rng: Any, shown: Any, attraction: Any, satisfaction: Any) -> Any:
    """What is clicked: a DBN."""
    click, there = np.zeros(shown.shape, int), np.ones(len(shown), bool)
    for rank in range(shown.shape[1]):
        pair = shown[:, rank]
        click[:, rank] = there & (rng.random(len(shown)) < attraction[pair])
        leaves = (click[:, rank] == 1) & (rng.random(len(shown)) < satisfaction[pair])
        there &= ~leaves & (rng.random(len(shown)) < CONTINUES)
    return click


def as_frame(pairs: pl.DataFrame, shown: Any, click: Any) -> pl.DataFrame:
    n_pages, length = shown.shape
    return pairs[pl.Series(shown.ravel())].with_columns(
        session=pl.Series(np.repeat(np.arange(n_pages), length)),
        rank=pl.Series(np.tile(np.arange(1, length + 1), n_pages)),
        click=pl.Series(click.ravel()),
    )


def crossed_log(
    seed: int,
    spreads: Any,
    n_queries: int = 150,
    n_docs: int = 300,
    pages: int = 2000,
    slope: float = 0.5,
) -> tuple[ClickLog, ClickLog, DBN]:
    """Pages to learn from and pages to be judged by, of one world, and the truth."""
    rng = np.random.default_rng(seed)
    docs = np.argsort(rng.random((n_queries, n_docs)), axis=1)[:, :15]
    query = np.repeat(np.arange(n_queries), 15)
    doc, n = docs.ravel(), n_queries * 15
    x = rng.normal(size=n)
    pair, of_doc, of_query = spreads
    logit = -1 + slope * x + pair * rng.normal(size=n)
    logit += of_doc * rng.normal(size=n_docs)[doc] + of_query * rng.normal(size=n_queries)[query]
    pairs = pl.DataFrame({"query": query, "doc": doc, "x": x})
    found = []
    for _ in range(2):
        asked = rng.integers(0, n_queries, pages)
        place = np.argsort(rng.random((pages, 15)), axis=1)[:, :SHOWN]
        shown = asked[:, None] * 15 + place
        click = clicks(rng, shown, logistic(logit), np.full(n, SATISFIES))
        found.append(read_log(as_frame(pairs, shown, click)))
    attraction = pairs.select("query", "doc").with_columns(probability=logistic(logit))
    truth = DBN.with_values(attraction=attraction, satisfaction=SATISFIES, continuation=CONTINUES)
    return found[0], found[1], truth


def held_out(n_logs: int, resume: bool = False) -> list[str]:
    """Two tables: held-out log-likelihoods a page, and differences between forms, paired by log."""
    if not resume:
        SCORES.unlink(missing_ok=True)
    known = [json.loads(line) for line in SCORES.read_text().splitlines()] if resume else []
    scores: dict[tuple[str, int], dict[str, float]] = {
        (one["world"], one["seed"]): one["scores"] for one in known
    }
    for seed in range(n_logs):
        for name, world in WORLDS.items():
            if (name, seed) in scores:
                continue
            train, test, truth = crossed_log(seed, **world)
            found = {form: _fitted(make(), train).score(test) for form, make in FORMS.items()}
            found[TRUTH] = truth.score(test)
            scores[name, seed] = found
            with SCORES.open("a") as file:
                file.write(json.dumps({"world": name, "seed": seed, "scores": found}) + "\n")
    means, differences = [], []
    for name in WORLDS:
        own = [scores[name, seed] for seed in range(n_logs)]
        means.append(
            [name, *(f"{np.mean([one[form] for one in own]):.4f}" for form in (*FORMS, TRUTH))]
        )
        told = [_difference([one[a] - one[b] for one in own]) for a, b in COMPARED]
        differences.append([name, str(n_logs), *told])
    return [
        *table(["what matters", *FORMS, TRUTH], means),
        "",
        "What the first form of each column gains a page over the second: mean over logs, and its "
        "standard error.",
        "",
        *table(["what matters", "logs", *(f"{a} - {b}" for a, b in COMPARED)], differences),
    ]


def _difference(values: list[float]) -> str:
    return f"{np.mean(values):+.4f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"


def _fitted(attraction: Any, log: ClickLog) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DBN(attraction=attraction, satisfaction=Table(key=()))
        return model.fit(log, progress=False)


def ranked_log(
    seed: int,
    pages: int = 1800,
    strays: float = 0.7,
    by_features: float = 0.0,
    by_truth: float = 0.0,
    chance: float = 1.0,
    with_rank: bool = False,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """720 pairs with their truth, and a log of their pages."""
    rng = np.random.default_rng(seed)
    n_queries, n_docs = 60, 12
    n = n_queries * n_docs
    bm25, price = rng.normal(size=n), 100 + 30 * rng.normal(size=n)
    told = -1 + 0.9 * bm25 - 0.02 * (price - 100)
    logit = told + strays * rng.normal(size=n)
    attraction, satisfaction = logistic(logit), logistic(0.2 + 0.7 * bm25)
    own = rng.integers(0, n_queries, pages)[:, None] * n_docs + np.arange(n_docs)
    score = by_truth * logit[own] + by_features * told[own] + chance * rng.normal(size=own.shape)
    shown = np.take_along_axis(own, np.argsort(-score, axis=1)[:, :SHOWN], axis=1)
    pairs = pl.DataFrame(
        {
            "query": np.repeat(np.arange(n_queries), n_docs),
            "doc": np.arange(n),
            "bm25": bm25,
            "price": price,
            "attraction": attraction,
            "relevance_is": attraction * satisfaction,
        }
    )
    log = as_frame(
        pairs.select("query", "doc", "bm25", "price"),
        shown,
        clicks(rng, shown, attraction, satisfaction),
    )
    if with_rank:  # pages of the query that do not show a pair count as beyond the end
        times = np.bincount(own[:, 0] // n_docs, minlength=n_queries).repeat(n_docs)
        ranks = np.bincount(shown.ravel(), np.tile(np.arange(1.0, 9), pages), n)
        often = np.bincount(shown.ravel(), minlength=n)
        mean = (ranks + 10.5 * (times - often) + 6.5) / (times + 1)
        pairs = pairs.with_columns(mean_rank=pl.Series(mean))
        log = log.join(pairs.select("doc", "mean_rank"), on="doc", maintain_order="left")
    return pairs, log


def intervals(n_logs: int) -> list[str]:
    """A table of how often nominal 90 % intervals hold the truth."""
    rows = []
    for name, world in RANKERS.items():
        found = []
        columns = ("bm25", "price", *(["mean_rank"] if world.get("with_rank") else []))
        for seed in range(n_logs):
            pairs, log = ranked_log(seed, **world)
            model = DBN(attraction=Sum(Logistic(*columns)), satisfaction=Logistic("bm25"))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(log, progress=False)
            told = model.estimates("attraction", pairs).with_columns(truth=pairs["attraction"])
            judged = relevance_frame(model, None, 0.9)
            both = judged.join(pairs, on=["query", "doc"], how="left", maintain_order="left")
            is_shown = pairs["doc"].is_in(log["doc"].unique().implode()).to_numpy()
            fresh = ranked_log(1000 + seed, **world)[0].with_columns(pl.col("doc") + 10_000)
            new = model.estimates("attraction", fresh).with_columns(truth=fresh["attraction"])
            inside = _covered(told, told["truth"])
            found.append(
                [
                    inside[is_shown].mean(),
                    _covered(new, new["truth"]).mean(),
                    _covered(judged, both["relevance_is"]).mean(),
                    float((told["probability"] - told["truth"]).filter(pl.Series(is_shown)).mean()),
                    model.states()["attraction"].spread,
                ]
            )
        mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(n_logs)
        cells = [f"{100 * m:.1f} ± {100 * e:.1f} %" for m, e in zip(mean[:3], error, strict=False)]
        spread = f"{mean[4]:.2f} ({world.get('strays', 0.7):g})"
        rows.append([name, *cells, f"{mean[3]:+.3f}", spread])
    head = ["ranker", "attraction, shown", "new pairs", "relevance, shown", "bias", "spread (true)"]
    return table(head, rows)


def _covered(told: pl.DataFrame, truth: pl.Series) -> Any:
    return ((told["low"] <= truth) & (truth <= told["high"])).to_numpy()


def speed(sizes: list[int]) -> list[str]:
    """CPU seconds of fits of large logs, in one run."""
    rows = [row for n_pages in sizes for row in _timed(n_pages)]
    return table(["pages", "attraction", "its rows", "CPU s", "times `Table()`", "spreads"], rows)


def _timed(n_pages: int) -> list[list[str]]:
    # There every pair has a document of its own; here queries share them.
    frame = rivals_log(n_pages).train.to_frame().with_columns(pl.col("doc") % (n_pages // 20))
    log = read_log(frame)
    forms = {
        "`Table()`": {},
        "three tables": {"attraction": Sum(Table("query", "doc"), Table("doc"), Table("query"))},
    }
    rows, first = [], 0.0
    small = log.take(np.arange(2000))
    for name, form in forms.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            DBN(**form).fit(small, progress=False)  # compile first
            began = time.process_time(), time.perf_counter()
            model = DBN(**form).fit(log, progress=False)
        cpu, wall = time.process_time() - began[0], time.perf_counter() - began[1]
        first = first or cpu
        n_rows = len(model.parameters["attraction"])
        tables = getattr(model.states()["attraction"], "tables", ())
        spreads = ", ".join(f"{one.spread:.2f} ({' x '.join(one.keys)})" for one in tables)
        told = [f"{cpu:.1f}", f"{cpu / first:.2f}", spreads]
        rows.append([f"{n_pages:,}", name, f"{n_rows:,}", *told])
        print(name, f"{cpu:.1f} s of CPU, {wall:.1f} s", flush=True)
    return rows
