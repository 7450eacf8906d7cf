"""Simulated logs: sessions on pages of some rankers, clicked by users whose minds are known.

There are also plain pages as a search engine would show them, and a log of known users on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from gecasmo.errors import ModelError
from gecasmo.forms import Table
from gecasmo.logs import ClickLog, read_log
from gecasmo.model import ClickModel
from gecasmo.models import CountingSDBN
from gecasmo.simulation.behaviour import Behaviour, true_probabilities
from gecasmo.simulation.market import LEAST, Floats, Market, Popularity, Ranker, Uniform, draw_pages


@dataclass(frozen=True)
class Simulated:
    """A simulated log and everything that a real one would hide.

    Attributes
    ----------
    log : ClickLog
        What happened, with user and ranker of each session and the places of users and items.
    truth : pl.DataFrame
        What was hidden, one row a result in the order of the log: the session, doc, rank and
        click of the log; `reached`, whether the user had not left; per coin of the model a column
        of its name with its true probability (given the clicks above, if it depends on them); and
        as `<coin>_flips` how it fell there ("heads", "tails", or "heads tails" if it was flipped
        twice), null where it was not flipped.
    users : pl.DataFrame
        Place, and per coin in which users differ the offset on its logit, as `<coin>_offset`.
    items : pl.DataFrame
        Place, and popularity as the warm-up sessions showed it.
    oracle : ClickModel
        The model that clicked, with the true probabilities. It knows the pairs of user and item
        in the log, so `oracle.evaluate(test)` works on any part of it.
    """

    log: ClickLog
    truth: pl.DataFrame = field(repr=False)
    users: pl.DataFrame = field(repr=False)
    items: pl.DataFrame = field(repr=False)
    oracle: ClickModel = field(repr=False)


@dataclass(frozen=True)
class Experiment:
    """A market, how its users click, and what they are shown."""

    market: Market
    behaviour: Behaviour
    rankers: Sequence[Ranker]
    list_size: int
    rng: np.random.Generator

    def warm_up(self, visits: pl.DataFrame) -> Floats:
        """The popularity of items: how attractive they seem to be on pages in random order."""
        if not len(visits):
            return np.ones(self.market.n_items)
        log, _, _ = self._click(self._pages(visits, [Uniform()], np.ones(self.market.n_items)))
        counting = CountingSDBN(attraction=Table(key="doc"), satisfaction=Table(key="doc"))
        found = counting.fit(log, progress=False).parameters["attraction"]
        flips = found["heads"] + found["tails"]
        popularity = np.full(self.market.n_items, LEAST)
        # The plain ratio, as the paper has it; rows that nobody looked at are missing.
        seen = found.with_columns(ratio=found["heads"] / flips).filter(flips > 0)
        popularity[seen["doc"].to_numpy()] = np.maximum(seen["ratio"].to_numpy(), LEAST)
        return popularity

    def run(
        self, visits: pl.DataFrame, popularity: Floats, lives: pl.DataFrame | None = None
    ) -> Simulated:
        """The sessions of these visits, one row each; `lives` tells more about all users."""
        log, told, oracle = self._click(self._pages(visits, self.rankers, popularity))
        places = self.market.item_places
        items = pl.DataFrame({"doc": np.arange(len(places)), "popularity": popularity})
        user = visits["user"].unique().sort().to_numpy()
        users = _placed(pl.DataFrame({"user": user}), self.market.user_places[user], "user")
        users = users.with_columns(
            pl.Series(f"{coin}_offset", offset[user])
            for coin, offset in self.behaviour.offsets.items()
        )
        if lives is not None:
            users = pl.concat([users, lives[user]], how="horizontal")
        items = _placed(items, places, "item")
        return Simulated(log, _hidden(oracle, log, told), users, items, oracle)

    def _pages(
        self, visits: pl.DataFrame, rankers: Sequence[Ranker], popularity: Floats
    ) -> ClickLog:
        size = self.list_size
        user = visits["user"].to_numpy()
        items, ranker = draw_pages(rankers, self.market, popularity, user, size, self.rng)
        names = pl.Series("ranker", [repr(each) for each in rankers])
        by_session = visits.with_columns(names.gather(pl.Series(ranker)))
        by_session = _placed(by_session, self.market.user_places[user], "user")
        session = np.repeat(np.arange(len(visits)), size)
        doc = items.ravel()
        roles = pl.DataFrame(
            {
                "session": session,
                "doc": doc,
                "rank": np.tile(np.arange(1, size + 1), len(visits)),
            }
        )
        frame = pl.concat([roles, by_session[session]], how="horizontal")
        return read_log(_placed(frame, self.market.item_places[doc], "item"), click=None)

    def _click(self, pages: ClickLog) -> tuple[ClickLog, pl.DataFrame, ClickModel]:
        """Clicks on the pages, the story behind them, and the model that made both."""
        user, item = pages.column("user").to_numpy(), pages.column("doc").to_numpy()
        oracle = self.behaviour.oracle(user, item)
        log, told = oracle.simulate(pages, seed=int(self.rng.integers(2**62)), truth=True)
        return log, told, oracle


def _hidden(oracle: ClickModel, log: ClickLog, told: pl.DataFrame) -> pl.DataFrame:
    """The frame `Simulated.truth`."""
    seen = ["session", "doc", "rank", "click", "reached"]
    flips = told.drop(seen)
    flips = flips.rename({coin: f"{coin}_flips" for coin in flips.columns})
    probabilities = true_probabilities(oracle, log)
    return pl.concat([told.select(seen), probabilities, flips], how="horizontal")


def as_rankers(rankers: Ranker | Sequence[Ranker] | None) -> Sequence[Ranker]:
    """One ranker or several; that of the paper if none is given."""
    if rankers is None:
        return [Popularity()]
    several = list(rankers) if isinstance(rankers, Sequence) else [rankers]
    if not several or not all(hasattr(each, "scores") for each in several):
        raise ModelError(
            f"rankers={rankers!r}: some rankers are wanted, such as [Popularity(), Uniform()]."
        )
    noisy = [each for each in several if not 0 <= each.noise < np.inf]
    if noisy:
        raise ModelError(f"{noisy[0]!r}: the noise of a ranker should not be negative.")
    return several


def _placed(frame: pl.DataFrame, places: Floats, name: str) -> pl.DataFrame:
    x, y = places.T
    return frame.with_columns(pl.Series(f"{name}_x", x), pl.Series(f"{name}_y", y))


def random_pages(
    n_pages: int,
    seed: int,
    *,
    n_queries: int,
    quality: np.ndarray,
    length: int = 10,
    noise: float = 0.3,
    zipf: float = 1.1,
) -> pl.DataFrame:
    """Pages of a ranker that knows quality imperfectly.

    Queries follow a zipf law. Document d of query q has `quality[q, d]`; a page shows the best
    `length` documents of its query by quality plus normal noise, drawn anew for each page.
    """
    rng = np.random.default_rng([seed, 1])  # a stream of its own, whoever else uses the seed
    popularity = np.arange(1, n_queries + 1, dtype=float) ** -zipf
    query = rng.choice(n_queries, size=n_pages, p=popularity / popularity.sum())
    score = quality[query] + noise * rng.standard_normal((n_pages, quality.shape[1]))
    shown = np.argsort(-score, axis=1)[:, :length]
    return pl.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), length),
            "query": np.repeat(query, length),
            "doc": shown.ravel(),
            "rank": np.tile(np.arange(1, length + 1), n_pages),
        }
    )


def demo_log(n_pages: int, seed: int) -> tuple[ClickLog, ClickModel]:
    """A simulated log and the model that made it, a DBN with continuation 0.9."""
    from gecasmo.models import DBN

    rng = np.random.default_rng([seed, 2])
    n_queries, n_docs = max(1, n_pages // 50), 20
    attraction = rng.beta(1.0, 3.0, (n_queries, n_docs))
    satisfaction = rng.beta(2.0, 2.0, (n_queries, n_docs))
    keys = {
        "query": np.repeat(np.arange(n_queries), n_docs),
        "doc": np.tile(np.arange(n_docs), n_queries),
    }
    truth = DBN.with_values(
        attraction=pl.DataFrame({**keys, "probability": attraction.ravel()}),
        satisfaction=pl.DataFrame({**keys, "probability": satisfaction.ravel()}),
        continuation=0.9,
    )
    pages = random_pages(n_pages, seed, n_queries=n_queries, quality=attraction)
    return truth.simulate(read_log(pages, click=None), seed=seed), truth
