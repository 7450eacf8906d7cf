"""Do promises of best pages hold? Simulated logs with an informed ranker, and known users.

    python -m benchmarks.pages [--logs N] [--first SEED] [--worlds DBN:3000,UBM-DBN:3000] [--speed]

Users are a DBN or a UBM with known probabilities. A ranker that knows their attraction up to noise
shows ten of twenty results of each query. A model is fitted to each log (the one of the users, or
another one), and the best page of each query is asked for: boldly (everything counts with what is
expected) and as by default. What the model promises by the same log, and what is to be expected by
cross-fitting, is compared with what the pages really bring. Times are measured in the same run.

A world is `users:pages`, `users-model:pages` if users are unlike the model, and a third number is
that of queries (else 30). Results are appended to `benchmarks/results/pages.jsonl`, log by log, and
the table is made of them: a run that was stopped goes on where it was, and several can run at a
time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gecasmo import DBN, UBM, ClickLog, read_log
from gecasmo.pages.candidates import Rules, as_candidates
from gecasmo.pages.chains import Chains
from gecasmo.pages.worth import Worth

RESULTS = Path(__file__).parent / "results"
QUERIES, DOCS, SIZE = 30, 20, 10
MODELS: dict[str, Any] = {"DBN": DBN, "UBM": UBM}
WORLDS = (
    "DBN:3000,DBN:30000,DBN:300000,UBM:3000,UBM:30000,UBM:300000,"
    "DBN:3000:300,UBM:3000:300,DBN-UBM:3000,UBM-DBN:3000"
)
# Logs with smaller seeds are those by which constants of `promise` were chosen.
FIRST = 30_000


class World(NamedTuple):
    """Users, the model that is fitted to their log, and how large the log is."""

    users: str
    model: str
    pages: int
    queries: int

    @classmethod
    def of(cls, text: str) -> World:
        """Read `users-model:pages:queries`."""
        who, pages, *queries = text.split(":")
        users, _, model = who.partition("-")
        return cls(users, model or users, int(pages), int(queries[0]) if queries else QUERIES)

    @property
    def is_believed(self) -> bool:
        """Whether users are as the model says."""
        return self.users == self.model


def world(
    users: str, seed: int, pages: int, queries: int = QUERIES
) -> tuple[Any, ClickLog, pl.DataFrame]:
    """Users, a log of a ranker that knows something of them, and its candidates."""
    rng = np.random.default_rng(seed)
    attraction = rng.beta(1.2, 4, (queries, DOCS))
    satisfaction = np.clip(0.5 * attraction + rng.beta(2, 3, (queries, DOCS)) * 0.6, 0.02, 0.95)
    rows = [(q, d) for q in range(queries) for d in range(DOCS)]
    attracts = dict(zip(rows, attraction.ravel().tolist(), strict=True))
    truth: Any
    if users == "DBN":
        satisfies = dict(zip(rows, satisfaction.ravel().tolist(), strict=True))
        truth = DBN.with_values(attraction=attracts, satisfaction=satisfies, continuation=0.85)
    else:
        looks = {
            (rank, last): 0.92 ** (rank - 1 - last) * (0.97 if last else 0.9)
            for rank in range(1, SIZE + 1)
            for last in range(rank)
        }
        truth = UBM.with_values(attraction=attracts, examination=looks)
    belief = np.log(attraction / (1 - attraction)) + rng.normal(0, 0.7, attraction.shape)
    query = rng.choice(queries, pages, p=_zipf(queries))
    noisy = belief[query] + rng.gumbel(0, 0.7, (pages, DOCS))
    shown = np.argsort(-noisy, axis=1)[:, :SIZE]
    frame = pl.DataFrame(
        {
            "session": np.repeat(np.arange(pages), SIZE),
            "query": np.repeat(query, SIZE),
            "doc": shown.ravel(),
            "rank": np.tile(np.arange(1, SIZE + 1), pages),
        }
    )
    rank = np.argsort(np.argsort(-belief, axis=1), axis=1) + 1
    candidates = pl.DataFrame(
        {
            "query": np.repeat(np.arange(queries), DOCS),
            "doc": np.tile(np.arange(DOCS), queries),
            "rank": np.where(rank <= SIZE, rank, 0).ravel(),
        }
    )
    seen = candidates.filter(pl.col("query").is_in(np.unique(query).tolist()))
    return truth, truth.simulate(frame, seed=seed), seen


def _zipf(n: int) -> np.ndarray:
    share = 1 / np.arange(1, n + 1) ** 0.7
    return share / share.sum()


def realised(truth: Any, log: ClickLog, candidates: pl.DataFrame, pages: pl.DataFrame) -> float:
    """What pages really bring over those shown, queries by their traffic."""
    shown = candidates.filter(pl.col("rank") > 0).sort("query", "rank")
    worth = {}
    for name, own in (("best", pages), ("shown", shown)):
        made = own.select(session="query", query="query", doc="doc", rank="rank")
        worth[name] = truth.page_value(made, "click", draws=0).frame
    both = worth["best"].join(worth["shown"], on="query", suffix="_shown")
    traffic = pl.DataFrame({"query": log.session_column("query")}).group_by("query").len()
    both = both.join(traffic, on="query")
    share = both["len"].to_numpy() / both["len"].sum()
    return float((both["worth"] - both["worth_shown"]).to_numpy() @ share)


def one(where: World, seed: int) -> dict[str, Any]:
    """One simulated log."""
    truth, log, candidates = world(where.users, seed, where.pages, where.queries)
    model = MODELS[where.model]().fit(log, progress=False)
    best = model.best_page(candidates, SIZE, log=log, effort=0, samples=40, seed=seed)
    bold = model.best_page(candidates, SIZE, quantile=0.5, min_examinations=0, effort=0, samples=0)
    assert best.promise is not None
    return {
        **where._asdict(),
        "seed": seed,
        "bold_promised": float(bold.queries["lift"].to_numpy() @ _share(log, bold.queries)),
        "bold_realised": realised(truth, log, candidates, bold.frame),
        "realised": realised(truth, log, candidates, best.frame),
        **{k: v for k, v in best.promise.to_dict().items() if k != "queries"},
    }


def _share(log: ClickLog, queries: pl.DataFrame) -> np.ndarray:
    traffic = pl.DataFrame({"query": log.session_column("query")}).group_by("query").len()
    found = queries.select("query").join(traffic, on="query", how="left", maintain_order="left")
    counts = found["len"].fill_null(0).to_numpy().astype(float)
    return counts / counts.sum()


def speed() -> list[dict[str, Any]]:
    """CPU seconds for 1,000 queries of 10 of 50, and pages valued a minute."""
    rng = np.random.default_rng(0)
    rows = [(q, d) for q in range(1000) for d in range(50)]
    frame = pl.DataFrame(rows, schema=["query", "doc"], orient="row")
    values, others = (
        dict(zip(rows, rng.beta(1.5, 4, len(rows)).tolist(), strict=True)) for _ in range(2)
    )
    dbn = DBN.with_values
    models = {
        "DBN, what attracts satisfies": dbn(
            attraction=values, satisfaction=values, continuation=0.85
        ),
        "DBN, both by themselves": dbn(attraction=values, satisfaction=others, continuation=0.85),
        "UBM": UBM.with_values(
            attraction=values,
            examination={(r, c): 0.9**r for r in range(1, 11) for c in range(r)},
        ),
    }
    found = []
    for name, model in models.items():
        candidates = as_candidates(frame)
        worth = Worth.of(model, "click")
        small = as_candidates(frame.filter(pl.col("query") < 2))
        Chains(model, small, 10, worth, Rules()).search(
            small.shown_pages(small.sizes(10)), 0
        )  # compiles
        clock = time.process_time()
        chains = Chains(model, candidates, 10, worth, Rules())
        pages = chains.search(candidates.shown_pages(chains.sizes), 0)
        searched = time.process_time() - clock
        # Pages that differ: equal ones are valued once.
        n_pages = 200_000
        shown = np.argsort(rng.random((n_pages, 50)), axis=1)[:, :10]
        read = read_log(
            {
                "session": np.repeat(np.arange(n_pages), 10),
                "query": np.repeat(np.arange(n_pages) % 1000, 10),
                "doc": shown.ravel(),
                "rank": np.tile(np.arange(1, 11), n_pages),
            },
            click=None,
        )
        model.page_value(read.take(np.arange(n_pages) < 1000), draws=0)  # compiles
        clock = time.process_time()
        model.page_value(read, draws=0)
        valued = time.process_time() - clock
        found.append(
            {
                "model": name,
                "seconds": searched,
                "gap": float(np.mean((pages.bound - pages.score) / pages.score)),
                "pages_a_minute": 60 * read.n_sessions / valued,
            }
        )
    return found


def table(rows: list[dict[str, Any]], speeds: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    lines = [
        "# Promises of best pages",
        "",
        "`make pages`; the first lines of `benchmarks/pages.py` say what is simulated. Lifts are "
        "clicks a page over the ranker's own page, means over logs. An interval covers if it holds "
        "what the pages really bring. Two constants (where the truth lies between both ends, and "
        "by how much draws are too narrow) were chosen by other logs than these, of users as the "
        "model says.",
        "",
        "| users | model | pages | queries | logs | bold: promised | realised | by default: by the "
        "same log | cross-fitted, half the log | to be expected | realised | width of the 90 % "
        "interval | covers |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    names = (*("bold_promised", "bold_realised", "plug_in", "crossed", "lift", "realised"),)
    groups: dict[tuple[bool, World], list[dict[str, Any]]] = {}
    for row in rows:
        where = _world(row)
        groups.setdefault((not where.is_believed, where), []).append(row)
    for (_, where), own in sorted(groups.items()):
        means = [f"{np.mean([row[name] for row in own]):+.4f}" for name in names]
        width = f"{np.mean([row['high'] - row['low'] for row in own]):.4f}"
        sizes = [f"{where.pages:,}", str(where.queries), str(len(own))]
        cells = [where.users, where.model, *sizes, *means, width, _covered(own)]
        lines.append(f"| {' | '.join(cells)} |")
    for said, is_believed in (("as the model says", True), ("unlike the model", False)):
        of_kind = [row for row in rows if _world(row).is_believed == is_believed]
        lines += ["", f"Users {said}: {_covered(of_kind)} of all {len(of_kind)} logs."]
    lines += [
        "",
        "Orders of 1,000 queries, 10 of 50 candidates, greedy with exchanges and the bound; and "
        "pages of ten results that are valued (seconds of processors):",
        "",
        "| model | CPU seconds | mean gap to the bound | pages valued a CPU minute |",
        "|---|---|---|---|",
    ]
    for row in speeds:
        cells = [row["model"], f"{row['seconds']:.1f}", f"{row['gap']:.1%}"]
        cells.append(f"{row['pages_a_minute']:,.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _covered(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    share = float(np.mean([row["low"] <= row["realised"] <= row["high"] for row in rows]))
    return f"{share:.0%} ± {np.sqrt(share * (1 - share) / len(rows)):.0%}"


def _world(row: dict[str, Any]) -> World:
    return World(*(row[name] for name in World._fields))


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def main() -> None:
    """Simulate, and write what was found after each log."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", type=int, default=40, help="logs of each world")
    parser.add_argument("--first", type=int, default=FIRST, help="seed of the first log")
    parser.add_argument("--worlds", default=WORLDS)
    parser.add_argument("--speed", action="store_true", help="only measure times again")
    options = parser.parse_args()
    path = RESULTS / "pages.jsonl"
    done = {(_world(row), row["seed"]) for row in _rows(path)}
    worlds = [World.of(text) for text in options.worlds.split(",")]
    for seed in range(options.first, options.first + (0 if options.speed else options.logs)):
        for where in worlds:
            if (where, seed) not in done:
                found = one(where, seed)
                with path.open("a") as file:
                    file.write(json.dumps(found) + "\n")
    text = table(_rows(path), speed())
    (RESULTS / "pages.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
