"""Simulated logs: sessions on pages of some rankers, clicked by users whose minds are known.

The simulations of the paper are here, the one behind its figure and the one with clock and cookies;
and plain pages as a search engine would show them, with a log of known users on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from gecasmo.errors import ModelError
from gecasmo.forms import Table
from gecasmo.logs import ClickLog, read_log
from gecasmo.model import ClickModel
from gecasmo.models import DBN, SDBN, CountingSDBN
from gecasmo.simulation.behaviour import Behaviour, choose_behaviour, true_probabilities
from gecasmo.simulation.lifetimes import Habits, draw_visits
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


def paper_log(
    seed: int = 1992,
    *,
    n_users: int = 20_000,
    n_items: int = 100,
    list_size: int = 10,
    distance_sensitivity: float = 1.0,
    attraction_salience: float = 5.0,
    satisfaction_salience: float = 5.0,
    sessions_parameter: float = 0.5,
    continuation: float = 0.9,
    warm_up: float = 0.1,
    model: type[ClickModel] = DBN,
    values: Mapping[str, Any] | None = None,
    user_spread: Mapping[str, float] | None = None,
    rankers: Ranker | Sequence[Ranker] | None = None,
) -> Simulated:
    """Simulate the log behind the figure of de Ruijt and Bhulai's paper, or a variation of it.

    Users and items are points of a plane, and users like what is near. A first part of the users
    sees pages in random order; from their clicks comes the popularity of items, by which the
    ranker orders the pages of the log itself.

    Parameters
    ----------
    seed
        The same seed gives the same log.
    n_users
        How many users there are in all: `warm_up` of them, and the rest in the log. Users of the
        warm-up come again in the log, as in the paper.
    n_items, list_size
        How many items there are, and how many of them a page shows.
    distance_sensitivity
        How fast interest fades with distance; at 0 all items are alike.
    attraction_salience, satisfaction_salience
        How much an item gains by being looked at, and by being visited.
    sessions_parameter
        The number of sessions of a user is geometric, with mean 1 / sessions_parameter.
    continuation
        How likely users read on. Also sets what a model other than DBN has in its place:
        examination and continuation by rank, by last click, after skips and clicks.
    warm_up
        The share of users in the warm-up; with 0 all items count as equally popular.
    model
        The model by which users click: any of the zoo, or one of your own.
    values
        The numbers of coins, by name, as `with_values` takes them; a key may be any column of the
        log. By default satisfaction and every coin by document follow from distance; continuation
        and coins by rank, last click or distance from `continuation`; and other coins without a
        key are fair.
    user_spread
        By coin, the standard deviation of what each user adds to its logit, from a normal law.
    rankers
        Who orders the pages: `Popularity()` unless something else is given. Of several, one is
        drawn for each session; the column `ranker` of the log says which.

    Returns
    -------
    Simulated
        Log, hidden truth, users, items and the model itself. The log has no queries, so models
        need another key: `DBN(attraction=Table(key="doc"), satisfaction=Table(key="doc"))`.

    Raises
    ------
    ModelError
        When an argument makes no sense, or a coin has no numbers.

    Examples
    --------
    >>> from gecasmo.simulation import paper_log
    >>> simulated = paper_log(n_users=200)
    >>> train, test = simulated.log.split(test=0.3, by="user", seed=1)
    >>> best = simulated.oracle.evaluate(test).conditional.pooled
    """
    _check(
        {
            "0 < sessions_parameter <= 1": 0 < sessions_parameter <= 1,
            "0 <= continuation <= 1": 0 <= continuation <= 1,
            "0 <= warm_up < 1": 0 <= warm_up < 1,
        }
    )
    rng, experiment = _set_up(
        seed,
        n_users=n_users,
        n_items=n_items,
        list_size=list_size,
        distance_sensitivity=distance_sensitivity,
        salience={"attraction": attraction_salience, "satisfaction": satisfaction_salience},
        model=model,
        continuation=continuation,
        values=values,
        user_spread=user_spread,
        rankers=rankers,
    )
    n_first = min(round(warm_up * n_users), n_users - 1)
    popularity = experiment.warm_up(_geometric_visits(n_first, sessions_parameter, rng))
    visits = _geometric_visits(n_users - n_first, sessions_parameter, rng)
    return experiment.run(visits, popularity)


def cookie_log(
    seed: int = 1992,
    *,
    n_users: int = 20_000,
    n_items: int = 100,
    list_size: int = 10,
    distance_sensitivity: float = 1.0,
    attraction_salience: float = 5.0,
    satisfaction_salience: float = 5.0,
    habits: Habits | None = None,
    window: float = 43_200.0,
    n_windows: int = 2,
    warm_up_sessions: int = 250,
    model: type[ClickModel] = SDBN,
    continuation: float = 0.9,
    values: Mapping[str, Any] | None = None,
    user_spread: Mapping[str, float] | None = None,
    rankers: Ranker | Sequence[Ranker] | None = None,
) -> Simulated:
    """Simulate users over time, on several devices, whom a site knows by their cookies only.

    This is the simulation in full, which de Ruijt and Bhulai made to study how users can be told
    from their sessions: users arrive, come back after absences of very different length until
    their time is up, change devices, and lose their cookies. Where they look and what they click
    is as in `paper_log`, but that nobody gives up reading unless `model` says so.

    Parameters
    ----------
    habits
        When and on which device users come, and how long cookies live.
    window, n_windows
        Sessions are kept that start in one of so many windows of so many minutes, from time 0 on;
        by default a month to learn from and a month to evaluate on.
    warm_up_sessions
        So many sessions, the earliest, see pages in random order. They tell the popularity of
        items and are not in the log.
    seed, n_users, ...
        All others as in `paper_log`; `continuation` counts for models other than SDBN.

    Returns
    -------
    Simulated
        Sessions are in order of time. Beyond the columns of `paper_log` the log has `time` (in
        minutes), `window` (1, 2, ...), `device` (1, 2, ...) and `cookie`; `users` has `arrival`
        and `lifetime`.

    Raises
    ------
    ModelError
        When an argument makes no sense, a coin has no numbers, or no session is left.

    Examples
    --------
    >>> from gecasmo.simulation import cookie_log
    >>> simulated = cookie_log(n_users=500)
    >>> first = simulated.log.take(simulated.log.session_column("window") == 1)
    """
    _check(
        {
            "window > 0": 0 < window < np.inf,
            "n_windows >= 1": n_windows >= 1,
            "warm_up_sessions >= 0": warm_up_sessions >= 0,
            "0 <= continuation <= 1": 0 <= continuation <= 1,
        }
    )
    rng, experiment = _set_up(
        seed,
        n_users=n_users,
        n_items=n_items,
        list_size=list_size,
        distance_sensitivity=distance_sensitivity,
        salience={"attraction": attraction_salience, "satisfaction": satisfaction_salience},
        model=model,
        continuation=continuation,
        values=values,
        user_spread=user_spread,
        rankers=rankers,
    )
    visits, lives = draw_visits(habits or Habits(), n_users, window * n_windows, rng)
    if len(visits) <= warm_up_sessions:
        raise ModelError(
            f"The {n_users:,} users have {len(visits):,} sessions within {window * n_windows:g} "
            f"minutes, and the first {warm_up_sessions:,} are for the warm-up."
        )
    visits = visits.with_columns(window=(pl.col("time") // window).cast(pl.Int64) + 1)
    popularity = experiment.warm_up(visits.head(warm_up_sessions))
    return experiment.run(visits.slice(warm_up_sessions), popularity, lives)


def _geometric_visits(n_users: int, parameter: float, rng: np.random.Generator) -> pl.DataFrame:
    """A geometric number of visits for each of the users 0, 1, ..."""
    counts = rng.geometric(parameter, n_users)
    user = np.repeat(np.arange(n_users), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    return pl.DataFrame({"user": user, "visit": np.arange(len(user)) - first + 1})


def _set_up(
    seed: int,
    *,
    n_users: int,
    n_items: int,
    list_size: int,
    distance_sensitivity: float,
    salience: dict[str, float],
    model: type[ClickModel],
    continuation: float,
    values: Mapping[str, Any] | None,
    user_spread: Mapping[str, float] | None,
    rankers: Ranker | Sequence[Ranker] | None,
) -> tuple[np.random.Generator, Experiment]:
    """What both simulations share, and a generator of random numbers for when users come."""
    _check(
        {
            "seed >= 0": seed >= 0,
            "n_users >= 1": n_users >= 1,
            "1 <= list_size <= n_items": 1 <= list_size <= n_items,
            "distance_sensitivity >= 0": 0 <= distance_sensitivity < np.inf,
            "finite saliences": bool(np.isfinite(list(salience.values())).all()),
        }
    )
    # A stream for each purpose: the same users stand at the same places whatever they click by.
    for_places, for_visits, for_minds, for_pages = (
        np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(4)
    )
    market = Market.draw(for_places, n_users, n_items, distance_sensitivity)
    behaviour = choose_behaviour(
        model,
        market,
        salience=salience,
        continuation=continuation,
        list_size=list_size,
        values=values,
        user_spread=user_spread,
        rng=for_minds,
    )
    experiment = Experiment(market, behaviour, as_rankers(rankers), list_size, for_pages)
    return for_visits, experiment


def _check(claims: Mapping[str, bool]) -> None:
    wrong = [claim for claim, holds in claims.items() if not holds]
    if wrong:
        raise ModelError(f"The simulation needs {', '.join(wrong)}.")


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
