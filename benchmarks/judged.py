"""How well rankings of documents by relevance follow the truth: gecasmo, CLAX and click rates.

    make judged
    PYTHONPATH=. python -m benchmarks.judged --logs 1 --only "DBN good" --no-clax    # quick

Logs with known truth (`worlds.py`, and the shop of the examples). Every contestant says how
relevant the pairs are that the log shows. Writes results/judged.md. CLAX runs in an environment of
its own, `.clax`, which is made when it is missing; if it cannot be had, its columns say "-".
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import spearmanr

import gecasmo
from benchmarks.clax_environment import clax_python
from benchmarks.markdown import table
from benchmarks.world_models import fit_quietly
from benchmarks.worlds import RANKERS, draw_pages, make_world

ROOT = Path(__file__).parent.parent
OUTPUT = Path(__file__).parent / "results" / "judged.md"
N_LOGS = 3
N_PAGES = 8_000
FREQUENT = 20  # impressions
DEPTH = 5
STRUCTURES = ("pair", "document", "mixture")
SHAPE = {"n_queries": 100, "n_candidates": 20, "n_docs": 300, "traffic": "zipf"}
HEAVY = {"n_queries": 400, "n_candidates": 25, "ranker": "good", "traffic": "zipf"}
HEAVY_PAGES = 20_000
SHOP = "the shop of the examples"
HEAVY_TAIL = "DBN good, heavy tail"
CONTESTANTS = ("CTR", "COEC", "CLAX DBN", "CLAX UBM", "gecasmo DBN", "gecasmo UBM")
MEASURES = {
    "all": "Spearman, all pairs that were shown",
    "frequent": f"Spearman, pairs with at least {FREQUENT} impressions",
    "query": f"nDCG@{DEPTH}, mean over queries",
    "traffic": f"nDCG@{DEPTH}, mean over pages",
}
_BEGAN = time.perf_counter()

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Judged:
    """A log and what is true of its pairs."""

    results: pl.DataFrame  # a row a result: session, query, doc, rank, click, pair (a number)
    pairs: pl.DataFrame  # a row a pair, in the order of its number: query, doc, true

    @classmethod
    def make(cls, results: pl.DataFrame, truth: pl.DataFrame) -> Judged:
        """From results without numbers of pairs, and the true relevance by query and doc."""
        pairs = results.select("query", "doc").unique(maintain_order=True).with_row_index("pair")
        numbered = results.join(pairs, on=["query", "doc"], maintain_order="left")
        known = pairs.join(truth, on=["query", "doc"], how="left", maintain_order="left")
        return cls(numbered, known)

    def arrays(self) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Pairs and clicks by page and rank; -1 is an empty place."""
        page = self.results["session"].rank("dense").to_numpy() - 1
        rank = self.results["rank"].to_numpy() - 1
        pairs = np.full((page.max() + 1, rank.max() + 1), -1, np.int32)
        clicks = np.zeros(pairs.shape, bool)
        pairs[page, rank] = self.results["pair"].to_numpy()
        clicks[page, rank] = self.results["click"].to_numpy()
        return pairs, clicks


def names_of_logs() -> list[str]:
    grid = [f"{m} {r} {s}" for m in ("DBN", "UBM") for r in RANKERS for s in STRUCTURES]
    return [SHOP, HEAVY_TAIL, *grid]


def make_log(name: str, seed: int) -> Judged:
    """One of the logs, with its truth."""
    if name == SHOP:
        return shop()
    if name == HEAVY_TAIL:
        world, n_pages = make_world("DBN", seed, **HEAVY), HEAVY_PAGES
    else:
        model, ranker, structure = name.split()
        world = make_world(model, seed, ranker=ranker, structure=structure, **SHAPE)
        n_pages = N_PAGES
    results = pl.DataFrame(draw_pages(world, n_pages, seed).columns)
    return Judged.make(results, world.frame(world.relevance).rename({"probability": "true"}))


def shop() -> Judged:
    """The log that people meet first, robot and all; the script that made it knows the truth."""
    spec = importlib.util.spec_from_file_location("shop", ROOT / "examples" / "make_shop_log.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    results = pl.read_csv(ROOT / "examples" / "shop.csv.gz").select(
        session="session_id",
        query="search_term",
        doc="product_id",
        rank="position",
        click=pl.col("clicked") == 1,
    )
    relevance = pl.col("attraction") * pl.col("satisfaction")
    return Judged.make(results, script.true_shop().select("query", "doc", true=relevance))


def click_rates(log: Judged) -> dict[str, Floats]:
    """Clicks over impressions, and over the clicks that their ranks would have got."""
    expected = log.results.with_columns(expected=pl.col("click").mean().over("rank"))
    sums = expected.group_by("pair").agg(pl.len(), pl.col("click", "expected").sum()).sort("pair")
    clicks = sums["click"].to_numpy()
    return {"CTR": clicks / sums["len"].to_numpy(), "COEC": clicks / sums["expected"].to_numpy()}


def by_gecasmo(log: Judged, model: str) -> Floats:
    """The product of the coins that make a document relevant, from `fit(log)` as it comes."""
    read = gecasmo.read_log(log.results.drop("pair"))
    fitted = fit_quietly(getattr(gecasmo, model)(), read)
    found = log.pairs
    for coin in fitted.relevance:
        rows = fitted.estimates(coin).select("query", "doc", pl.col("probability").alias(coin))
        found = found.join(rows, on=["query", "doc"], how="left", maintain_order="left")
    values: Floats = found.select(fitted.relevance).to_numpy().prod(axis=1)
    return values


def measures(log: Judged, score: Floats) -> dict[str, float]:
    """How well an order of pairs follows the truth."""
    true = log.pairs["true"].to_numpy()
    shown = np.bincount(log.results["pair"].to_numpy(), minlength=len(true))
    often = shown >= FREQUENT
    query = log.pairs["query"].rank("dense").to_numpy() - 1
    pages = log.results.group_by("query").agg(pl.col("session").n_unique())
    weight = log.pairs.join(pages, on="query", maintain_order="left")["session"].to_numpy()
    weight = weight[np.unique(query, return_index=True)[1]]
    by_query = _gained(query, score, true) / _gained(query, true, true)
    return {
        "all": float(spearmanr(score, true).statistic),
        "frequent": float(spearmanr(score[often], true[often]).statistic),
        "query": float(by_query.mean()),
        "traffic": float(np.average(by_query, weights=weight)),
    }


def _gained(query: NDArray[np.int64], score: Floats, true: Floats) -> Floats:
    """Discounted gain by query of the first few in the order of the score, ties by lot."""
    lot = np.random.default_rng(0).random(len(score))
    order = np.lexsort((lot, -score, query))
    _, first, size = np.unique(query[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(first, size)
    gain = np.where(place < DEPTH, true[order] / np.log2(place + 2), 0.0)
    return np.bincount(query[order], weights=gain)


def start_clax(folder: Path) -> subprocess.Popen[bytes] | None:
    """CLAX begins to train on the logs of the folder, beside us; None if it cannot be had."""
    try:
        python = clax_python(_say)
    except (OSError, subprocess.CalledProcessError) as error:
        _say(f"No CLAX: {error}")
        return None
    script = str(ROOT / "benchmarks" / "clax_judged.py")
    errors = (folder / "errors.txt").open("wb")
    return subprocess.Popen(
        [str(python), script, str(folder)], stdout=subprocess.DEVNULL, stderr=errors
    )


def run(names: list[str], n_logs: int, clax: bool) -> dict[str, list[dict[str, Any]]]:
    """By log, for each seed: measures by contestant."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="gecasmo-benchmark-") as place:
        folder = Path(place)
        logs = {}
        for name in names:
            for seed in range(1 if name == SHOP else n_logs):
                log = logs[name, seed] = make_log(name, seed)
                pairs, clicks = log.arrays()
                np.savez(folder / f"{len(logs):03}.log.npz", pairs=pairs, clicks=clicks)
        rival = start_clax(folder) if clax else None
        for (name, seed), log in logs.items():
            _say(f"{name}, {seed}")
            scores = click_rates(log) | {
                f"gecasmo {model}": by_gecasmo(log, model) for model in ("DBN", "UBM")
            }
            found[name].append({who: measures(log, score) for who, score in scores.items()})
        if rival is not None:
            _say("waiting for CLAX")
            if rival.wait():
                _say((folder / "errors.txt").read_text())
            for number, (name, seed) in enumerate(logs, start=1):
                theirs = folder / f"{number:03}.clax.npz"
                if theirs.exists():
                    with np.load(theirs) as file:
                        scores = {f"CLAX {model}": file[model] for model in file.files}
                    log = logs[name, seed]
                    found[name][seed] |= {who: measures(log, s) for who, s in scores.items()}
    return found


def as_markdown(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A table for each measure; the best of a row in bold."""
    lines = []
    for measure, words in MEASURES.items():
        rows = []
        for name, logs in found.items():
            means = [
                np.mean([one[who][measure] for one in logs]) if who in logs[-1] else np.nan
                for who in CONTESTANTS
            ]
            rows.append([name, *_cells(np.round(means, 3))])
        lines += [f"## {words}", "", *table(["log", *CONTESTANTS], rows)]
    return lines


def _cells(means: Floats) -> list[str]:
    best = np.nanmax(means)
    texts = [f"**{mean:.3f}**" if mean == best else f"{mean:.3f}" for mean in means]
    return ["-" if np.isnan(mean) else text for mean, text in zip(means, texts, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=N_LOGS, help="simulated logs of each kind")
    parser.add_argument("--only", default="", help="logs with this in their name")
    parser.add_argument("--no-clax", dest="clax", action="store_false")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    asked = parser.parse_args()
    names = [name for name in names_of_logs() if asked.only in name]
    parts = [
        "# Rankings of documents against the truth",
        "",
        "Made by `make judged`. Pairs that a log shows are ordered by how relevant a contestant",
        "finds them. Relevance is attraction times satisfaction where people click as DBN says, as",
        "in the shop, else attraction. CTR is clicks over impressions, COEC clicks over those that",
        f"the ranks would have got. Logs of each kind, to take means of: {asked.logs}; one shop.",
        "",
        *as_markdown(run(names, asked.logs, asked.clax)),
    ]
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    asked.output.write_text("\n".join(parts).rstrip() + "\n")
    print(asked.output.read_text())


def _say(text: str) -> None:
    print(f"[{time.perf_counter() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
