"""The simulations of the paper: the one behind its figure, and the one with clock and cookies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from gecasmo.errors import ModelError
from gecasmo.model import ClickModel
from gecasmo.models import DBN, SDBN
from gecasmo.simulation.behaviour import choose_behaviour
from gecasmo.simulation.experiment import Experiment, Simulated, as_rankers
from gecasmo.simulation.lifetimes import Habits, draw_visits
from gecasmo.simulation.market import Market, Ranker


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
