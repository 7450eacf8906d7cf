"""Worlds with known truth: who searches, what is shown, what is clicked. Plain NumPy.

Nothing here comes from the package but the reading of the finished log, so that a mistake there
cannot hide here. A world has the true coins of a model, documents for every query, a ranker, and
traffic; `draw_pages` lets people search in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo import ClickLog, read_log

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PAGE_SIZE = 10
MODELS = ("DBN", "PBM", "UBM", "DCM", "CCM", "SDBN")
SATISFIED = ("DBN", "SDBN")  # those with a coin `satisfaction`
RANKERS = ("random", "good", "adversarial")
STRUCTURES = ("pair", "document", "each", "query", "mixture", "bimodal")
SHARING = ("document", "each", "mixture")  # structures in which queries share documents

RANKER_NOISE = 0.3  # what the ranker gets wrong about a pair; the spread of relevance is 1
RANKER_JITTER = 0.2  # what it changes from page to page: some ranks up or down
ZIPF = 1.3
# Of a UBM, every examination but the first, which is 1. A truth of 1 is in no interval.
UBM_FACTOR = 0.9


@dataclass(frozen=True)
class World:
    """Arrays by query and candidate, and the coins that all pages share."""

    model: str
    ranker: str
    docs: Ints
    attraction: Floats
    satisfaction: Floats | None
    shared: dict[str, Any]  # by coin a number, or numbers by key
    scores: Floats  # what the ranker thinks of the candidates
    traffic: Floats  # share of the pages, by query

    @property
    def relevance(self) -> Floats:
        """How likely a result attracts and, where the model knows that, satisfies."""
        return self.attraction if self.satisfaction is None else self.attraction * self.satisfaction

    def truth(self) -> dict[str, Any]:
        """By coin: a frame of query, doc and probability, or the values of a shared coin."""
        rows = {"attraction": self.attraction, "satisfaction": self.satisfaction}
        found = {coin: self.frame(value) for coin, value in rows.items() if value is not None}
        return found | self.shared

    def frame(self, value: Floats) -> pl.DataFrame:
        """An array by query and candidate as rows of query, doc and probability."""
        n_queries, n_candidates = self.docs.shape
        return pl.DataFrame(
            {
                "query": np.repeat(np.arange(n_queries), n_candidates),
                "doc": self.docs.ravel(),
                "probability": value.ravel(),
            }
        )


@dataclass(frozen=True)
class Pages:
    """What was shown and clicked: a query a page, documents and clicks by page and rank."""

    query: Ints
    docs: Ints
    clicks: Bools

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """A row a result."""
        n_pages, n_ranks = self.docs.shape
        return {
            "session": np.repeat(np.arange(n_pages), n_ranks),
            "query": np.repeat(self.query, n_ranks),
            "doc": self.docs.ravel(),
            "rank": np.tile(np.arange(1, n_ranks + 1), n_pages),
            "click": self.clicks.ravel(),
        }


def as_log(pages: Pages) -> ClickLog:
    """The one step through the package."""
    return read_log(pl.DataFrame(pages.columns))


def make_world(
    model: str,
    seed: int,
    *,
    n_queries: int = 100,
    n_candidates: int = 20,
    n_docs: int = 300,
    ranker: str = "random",
    structure: str = "pair",
    traffic: str = "zipf",
) -> World:
    """Draw a world; `n_docs` counts where queries share documents."""
    rng = np.random.default_rng([seed, 1])
    shape = n_queries, n_candidates
    docs = _draw_docs(rng, shape, n_docs, shared=structure in SHARING)
    attraction = _draw_values(rng, docs, structure, beta=(1, 3))
    satisfaction = _draw_values(rng, docs, structure, beta=(2, 2)) if model in SATISFIED else None
    relevance = attraction if satisfaction is None else attraction * satisfaction
    return World(
        model,
        ranker,
        docs,
        attraction,
        satisfaction,
        shared_coins(model),
        _think_of(rng, relevance),
        _share_traffic(n_queries, traffic),
    )


def shared_coins(model: str) -> dict[str, Any]:
    """What is true of all pages, under the names and keys of the model."""
    ranks = range(1, PAGE_SIZE + 1)
    if model == "PBM":
        return {"examination": {rank: rank**-0.7 for rank in ranks}}
    if model == "UBM":
        places = [(rank, last) for rank in ranks for last in range(rank)]
        later = {(rank, last): UBM_FACTOR * (rank - last) ** -0.6 for rank, last in places}
        return {"examination": later | {(1, 0): 1.0}}
    if model == "DCM":
        return {"continuation": {rank: 0.5 + 0.04 * rank for rank in ranks}}
    if model == "DBN":
        return {"continuation": 0.85}
    if model == "CCM":
        return {
            "continuation_after_skip": 0.91,
            "continuation_after_click": 0.70,
            "continuation_after_satisfaction": 0.25,
        }
    return {}


def _draw_docs(
    rng: np.random.Generator, shape: tuple[int, int], n_docs: int, *, shared: bool
) -> Ints:
    """The candidates of every query: of its own, or some of all documents."""
    if not shared:
        return np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    return np.argsort(rng.random((shape[0], n_docs)), axis=1)[:, : shape[1]].astype(np.int64)


def _draw_values(
    rng: np.random.Generator, docs: Ints, structure: str, beta: tuple[float, float]
) -> Floats:
    """True probabilities of pairs; what they have in common is the structure."""
    mean = beta[0] / sum(beta)
    centre = np.log(mean / (1 - mean))
    by_query = rng.normal(size=(len(docs), 1))
    by_pair = rng.normal(size=docs.shape)
    if structure in ("pair", "each"):
        return rng.beta(*beta, docs.shape)
    if structure == "document":
        return rng.beta(*beta, docs.max() + 1)[docs]
    if structure == "query":
        return _expit(centre + 1.0 * by_query + 0.4 * by_pair)
    if structure == "mixture":
        by_doc = rng.normal(size=docs.max() + 1)[docs]
        return _expit(centre + 0.8 * by_doc + 0.6 * by_query + 0.6 * by_pair)
    if structure == "bimodal":
        good = rng.random(docs.shape) < mean
        return np.where(
            good, rng.uniform(0.5, 0.9, docs.shape), rng.uniform(0.02, 0.08, docs.shape)
        )
    raise ValueError(f"There is no structure {structure!r}, only {STRUCTURES}.")


def _think_of(rng: np.random.Generator, relevance: Floats) -> Floats:
    """What a good but noisy ranker thinks of the candidates of each query."""
    worth = np.log(relevance / (1 - relevance))
    worth = (worth - worth.mean(axis=1, keepdims=True)) / worth.std(axis=1, keepdims=True)
    return worth + RANKER_NOISE * rng.normal(size=worth.shape)


def _share_traffic(n_queries: int, traffic: str) -> Floats:
    power = {"zipf": ZIPF, "uniform": 0.0}[traffic]
    weight = np.arange(1, n_queries + 1) ** -power
    return weight / weight.sum()


def draw_pages(world: World, n_pages: int, seed: int) -> Pages:
    """People search, look at ten of the candidates and click."""
    rng = np.random.default_rng([seed, 2])
    query = rng.choice(len(world.docs), n_pages, p=world.traffic)
    shown = _rank(world, query, rng)
    place = query[:, None], shown
    clicks = _CLICKERS[world.model](world, place, rng)
    return Pages(query, world.docs[place], clicks)


def _rank(world: World, query: Ints, rng: np.random.Generator) -> Ints:
    """The candidates that are shown, from the top down.

    The adversarial ranker picks the ten that the good one picks and puts the best at the bottom.
    """
    noise = rng.normal(size=(len(query), world.docs.shape[1]))
    score = noise if world.ranker == "random" else world.scores[query] + RANKER_JITTER * noise
    shown = np.argsort(-score, axis=1)[:, :PAGE_SIZE]
    return shown[:, ::-1] if world.ranker == "adversarial" else shown


_Place = tuple[Ints, Ints]


def _click_pbm(world: World, place: _Place, rng: np.random.Generator) -> Bools:
    examination = np.array(list(world.shared["examination"].values()))
    attraction = world.attraction[place]
    return rng.random(attraction.shape) < attraction * examination


def _click_ubm(world: World, place: _Place, rng: np.random.Generator) -> Bools:
    attraction = world.attraction[place]
    examination = np.zeros((PAGE_SIZE + 1, PAGE_SIZE + 1))
    for (rank, last), value in world.shared["examination"].items():
        examination[rank, last] = value
    clicks = np.zeros(attraction.shape, bool)
    last = np.zeros(len(attraction), np.int64)
    for rank in range(1, PAGE_SIZE + 1):
        clicked = rng.random(len(last)) < attraction[:, rank - 1] * examination[rank, last]
        clicks[:, rank - 1] = clicked
        last[clicked] = rank
    return clicks


def _click_downwards(
    attraction: Floats, goes_on: Callable[[int, Bools], Bools], rng: np.random.Generator
) -> Bools:
    """Read from the top and click what attracts until `goes_on` (column, clicked) says no."""
    clicks = np.zeros(attraction.shape, bool)
    reads = np.ones(len(attraction), bool)
    for column in range(attraction.shape[1]):
        clicked = reads & (rng.random(len(reads)) < attraction[:, column])
        clicks[:, column] = clicked
        reads &= goes_on(column, clicked)
    return clicks


def _click_dcm(world: World, place: _Place, rng: np.random.Generator) -> Bools:
    continuation = list(world.shared["continuation"].values())

    def goes_on(column: int, clicked: Bools) -> Bools:
        return ~clicked | (rng.random(len(clicked)) < continuation[column])

    return _click_downwards(world.attraction[place], goes_on, rng)


def _click_dbn(world: World, place: _Place, rng: np.random.Generator) -> Bools:
    assert world.satisfaction is not None
    satisfaction = world.satisfaction[place]
    continuation = world.shared.get("continuation", 1.0)  # SDBN: nobody gives up

    def goes_on(column: int, clicked: Bools) -> Bools:
        satisfied = clicked & (rng.random(len(clicked)) < satisfaction[:, column])
        return ~satisfied & (rng.random(len(clicked)) < continuation)

    return _click_downwards(world.attraction[place], goes_on, rng)


def _click_ccm(world: World, place: _Place, rng: np.random.Generator) -> Bools:
    attraction = world.attraction[place]
    after = {name.removeprefix("continuation_after_"): p for name, p in world.shared.items()}

    def goes_on(column: int, clicked: Bools) -> Bools:
        satisfied = rng.random(len(clicked)) < attraction[:, column]
        after_click = np.where(satisfied, after["satisfaction"], after["click"])
        return rng.random(len(clicked)) < np.where(clicked, after_click, after["skip"])

    return _click_downwards(attraction, goes_on, rng)


_CLICKERS = {
    "PBM": _click_pbm,
    "UBM": _click_ubm,
    "DCM": _click_dcm,
    "DBN": _click_dbn,
    "SDBN": _click_dbn,
    "CCM": _click_ccm,
}


def _expit(value: Floats) -> Floats:
    result: Floats = 1 / (1 + np.exp(-value))
    return result
