"""Make examples/shop.csv.gz: four weeks of searches in a small shop for sports goods.

The shoppers are made up. They read downwards, click what attracts them, leave when satisfied or
tired (a DBN), and buy some of what satisfied them. The ranker is good, but noisy, and wrong about
some products. One visitor is a robot. So the truth is known: `true_shop()` has it.

Run it with `python examples/make_shop_log.py`; the same seed writes the same log.
"""

from __future__ import annotations

import argparse
import gzip
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

import gecasmo

SEED = 20250303
N_PAGES = 5_000
CONTINUATION = 0.88
PURCHASE = 0.4  # of those who are satisfied
# Queries, the most frequent first, and what kind of product each is for.
QUERIES = {
    "running shoes": "shoe",
    "hiking boots": "boot",
    "rain jacket": "jacket",
    "backpack": "pack",
    "trail running shoes": "shoe",
    "tent 2 person": "tent",
    "yoga mat": "mat",
    "winter jacket": "jacket",
    "sleeping bag": "bag",
    "football": "ball",
    "headlamp": "lamp",
    "waterproof boots": "boot",
    "cycling helmet": "helmet",
    "shoes": "shoe",
    "daypack 20l": "pack",
    "swim goggles": "goggle",
    "tennis racket": "racket",
    "water bottle": "bottle",
    "ski goggles": "goggle",
    "basketball": "ball",
    "camping tent": "tent",
    "badminton set": "racket",
    "climbing helmet": "helmet",
    "down sleeping bag": "bag",
    "thermos": "bottle",
    "kids running shoes": "shoe",
    "fleece jacket": "jacket",
    "bike light": "lamp",
    "pilates mat": "mat",
    "ultralight backpack": "pack",
}
ROBOT = "u-7777"


def make_shop(rng: np.random.Generator) -> pl.DataFrame:
    """What the shop could show for each query, how good it is, and what the ranker thinks."""
    kinds = sorted(set(QUERIES.values()))
    products = {
        kind: [f"{kind}-{number:04d}" for number in np.sort(rng.choice(1000, 26, replace=False))]
        for kind in kinds
    }
    quality = {doc: rng.normal() for docs in products.values() for doc in docs}
    rows = []
    for query, kind in QUERIES.items():
        for doc in rng.permutation(products[kind])[: rng.integers(14, 25)]:
            # A product is good by itself and for the query; the ranker sees that through a fog.
            fit = 0.6 * quality[doc] + 0.8 * rng.normal()
            attraction = _expit(-1.9 + 0.8 * fit)
            satisfaction = _expit(-0.4 + 0.5 * fit + 0.8 * rng.normal())
            rows.append((query, str(doc), attraction, satisfaction, fit + 0.7 * rng.normal()))
    names = ["query", "doc", "attraction", "satisfaction", "score"]
    return pl.DataFrame(rows, schema=names, orient="row")


def _expit(value: float) -> float:
    return float(1 / (1 + np.exp(-value)))


def make_pages(shop: pl.DataFrame, n_pages: int, rng: np.random.Generator) -> pl.DataFrame:
    """Who saw what, when; a row a result, without clicks."""
    popularity = np.arange(1, len(QUERIES) + 1) ** -1.1
    query = rng.choice(list(QUERIES), n_pages, p=popularity / popularity.sum())
    user = rng.integers(0, max(1, n_pages // 3), n_pages)
    seconds = np.sort(rng.integers(0, 28 * 24 * 3600, n_pages))
    length = rng.choice([6, 8, 10], n_pages, p=[0.35, 0.15, 0.5])
    by_query = {name: frame for (name,), frame in shop.group_by("query")}
    pages = []
    for page in range(n_pages):
        offered = by_query[query[page]]
        score = offered["score"].to_numpy() + 0.7 * rng.normal(size=len(offered))
        best = np.argsort(-score)[: length[page]]
        moment = datetime(2025, 3, 3) + timedelta(seconds=int(seconds[page]))
        pages.append(
            offered[best]
            .select("query", "doc")
            .with_columns(
                session=pl.lit(f"s-{page + 1:05d}"),
                user=pl.lit(f"u-{user[page]:04d}"),
                timestamp=pl.lit(moment.isoformat(sep=" ")),
                rank=pl.int_range(1, len(best) + 1),
            )
        )
    return pl.concat(pages)


def true_model(shop: pl.DataFrame) -> gecasmo.DBN:
    """How the shoppers behave."""
    row = pl.col("query"), pl.col("doc")
    return gecasmo.DBN.with_values(
        attraction=shop.select(*row, probability="attraction"),
        satisfaction=shop.select(*row, probability="satisfaction"),
        continuation=CONTINUATION,
    )


def with_purchases(seen: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Some of what satisfied is bought; a column `satisfaction` tells what did."""
    satisfied = (seen["satisfaction"] == "heads").fill_null(False).to_numpy()
    return seen.with_columns(purchase=pl.Series(satisfied & (rng.random(len(seen)) < PURCHASE)))


def with_robot(seen: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """A visitor who clicks on everything, on one long page in 200."""
    long = seen.group_by("session", maintain_order=True).len().filter(pl.col("len") == 10)
    sessions = long["session"].to_numpy()
    robot = pl.col("session").is_in(rng.choice(sessions, len(sessions) // 200, replace=False))
    return seen.with_columns(
        user=pl.when(robot).then(pl.lit(ROBOT)).otherwise("user"),
        click=pl.col("click") | robot,
        purchase=pl.col("purchase") & ~robot,
    )


def true_shop(seed: int = SEED) -> pl.DataFrame:
    """What nobody knows in life: the true attraction and satisfaction of every pair."""
    return make_shop(np.random.default_rng(seed)).select(
        "query", "doc", "attraction", "satisfaction"
    )


def make_log(n_pages: int, seed: int) -> pl.DataFrame:
    """The whole log, as the shop would keep it."""
    rng = np.random.default_rng(seed)
    shop = make_shop(rng)
    pages = make_pages(shop, n_pages, rng)
    log, hidden = true_model(shop).simulate(pages, seed=seed, truth=True)
    result = ["session", "rank"]
    seen = log.to_frame().join(
        hidden.select(*result, "satisfaction"), on=result, maintain_order="left"
    )
    seen = with_robot(with_purchases(seen, rng), rng)
    return seen.select(
        session_id="session",
        user_id="user",
        timestamp="timestamp",
        search_term="query",
        product_id="doc",
        position="rank",
        clicked=pl.col("click").cast(pl.Int8),
        purchased=pl.col("purchase").cast(pl.Int8),
    )


def write_gzip(frame: pl.DataFrame, path: Path) -> None:
    """A packed CSV file without the time of its making, so that it is the same whenever made."""
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(frame.write_csv().encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    beside = Path(__file__).with_name("shop.csv.gz")
    parser.add_argument("--pages", type=int, default=N_PAGES, help="how many searches")
    parser.add_argument("--seed", type=int, default=SEED, help="of all that is random")
    parser.add_argument("--output", "-o", type=Path, default=beside, help="where to")
    asked = parser.parse_args()
    log = make_log(asked.pages, asked.seed)
    write_gzip(log, asked.output)
    print(f"{asked.pages:,} pages, {len(log):,} rows, {log['clicked'].sum():,} clicks")


if __name__ == "__main__":
    main()
