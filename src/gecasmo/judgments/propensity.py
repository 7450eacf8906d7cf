"""Position propensities: how likely a rank is looked at, for learners that weigh clicks by it.

Who looked is told by the coins that a click requires.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import GecasmoWarning, either, in_model_file, option
from gecasmo.files import whole_file
from gecasmo.forms import FormState
from gecasmo.judgments.grades import JudgmentsError
from gecasmo.judgments.pairs import relevance_factors
from gecasmo.logs import ClickLog
from gecasmo.model.answers import ClicksOnPages, CoinOnPages
from gecasmo.model.beliefs import drawn_states
from gecasmo.model.log_parts import Partitioned, is_stored, over_parts, some_partitions
from gecasmo.model.relevance import Factor, mean_over
from gecasmo.model.stories import unfolded

if TYPE_CHECKING:
    from gecasmo.logs.store import StoredLog
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]
Ends = tuple[Any, Any]  # of an interval, each a column

_DRAWS = 2000  # of a ratio of two estimates
_LEAST = 1e-12  # logarithms are taken of nothing smaller

_PAGES = 20_000  # intervals are learned on about so many
_SMALLEST = 1e-9  # a document that nobody could click on says nothing about who looked


def propensities(
    model: Model,
    log: ClickLog | StoredLog | None = None,
    *,
    level: float = 0.9,
    draws: int = 50,
    seed: int = 0,
) -> pl.DataFrame:
    """How likely each rank is looked at, under a fitted model.

    A click needs an attractive document and a user who looks. So the probability of a click,
    with no click known, divided by that of the coins of relevance which every click requires, is
    the probability that the result is looked at. This is averaged over the pages of `log`. Where
    the model itself has one such probability for each rank (PBM), no log is needed, and intervals
    are then those of `model.estimates`.

    With a log, intervals come from draws of what the fit believes: coins that all pages share and
    slopes of priors by their covariance, then every row given these; for each draw the average is
    taken again. Of a large log the pages of some random queries serve, about 20,000. Numbers that
    were given, not fitted, are certain; a fit that does not say how sure it is of its tables
    (`intervals=False`, `Gradient`) has no intervals here either (null).

    Parameters
    ----------
    model : fitted model that says what relevance is
    log : ClickLog or StoredLog, optional
        The pages to average over, such as those that the model was fitted to. Their clicks play no
        part.
    level : float
        The level of the intervals.
    draws, seed : int
        How many draws, and the seed. With `draws=0` there are no intervals (null).

    Returns
    -------
    pl.DataFrame
        A frame with `rank`, `examination` with `low` and `high`, and `propensity` with
        `propensity_low` and `propensity_high`: the same relative to the first rank, which is what
        learners want and does not depend on the scale of the model.

    Warns
    -----
    GecasmoWarning
        When only products of examination and attraction are observed and neither is anchored.
    """
    if not 0 < level < 1:
        raise JudgmentsError(f"{option('level', level)}: an interval's level lies between 0 and 1.")
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 0 or draws == 1:
        raise JudgmentsError(f"{option('draws', draws)}: 0, or a whole number above 1, is wanted.")
    model.states(whole=False)
    required = required_coins(model)
    own = examination_coin(model, required)
    if own is None and log is None:
        raise JudgmentsError(
            f"Under {model.name} it depends on the pages how often a rank is looked at: give "
            "some, " + either("propensities(model, log).", "`gecasmo propensities FIT LOG`.")
        )
    if log is not None and not is_stored(log) and not (isinstance(log, ClickLog) and len(log.rank)):
        raise JudgmentsError("propensities(model, log) wants a ClickLog with results.")
    loose = loose_scale(model, required)
    if loose is not None:
        what, cure = loose
        warnings.warn(
            f"{what}: read the column propensity, which is relative, or {cure}.",
            GecasmoWarning,
            stacklevel=2,
        )
    rng = np.random.default_rng(seed)
    if log is None:
        assert own is not None
        return _from_estimates(model, own, level, seed)
    ranks, sums, total = all_looks(model, required.factors, log)
    mean = mean_looks(sums, ranks)
    relative = _relative(mean, ranks)
    ends: tuple[Ends, Ends] = _nothing(len(ranks)), _nothing(len(ranks))
    if model.report_ is None:
        ends = (mean, mean), (relative, relative)
    elif draws:
        view, some = (
            (model, some_queries(log, rng))
            if isinstance(log, ClickLog)
            else some_stored_queries(model, log, rng)
        )
        if is_sure_of_itself(view):
            errors = _drawn_errors(view, required, some, ranks, draws, seed, total)
            ends = _around(mean, errors, level), _around(relative, errors - errors[:, :1], level)
    return _frame(ranks, mean, *ends)


def is_sure_of_itself(model: Model) -> bool:
    """Whether a fit says of all its tables how sure it is of them."""
    states = model.states()
    tables = [states[coin] for coin, form in model.forms.items() if form.has_posterior]
    return model.draws_ is not None or all(
        state.is_constant or state.spread is not None for state in tables
    )


def _drawn_errors(
    model: Model,
    required: Required,
    some: ClickLog,
    ranks: NDArray[Any],
    draws: int,
    seed: int,
    total: float,
) -> Floats:
    """Logarithms of believed over drawn examination, `[draw, rank]`.

    `some` are pages of a log whose weight is `total`; over all of these, errors of single rows
    cancel better. A rank that they lack, as only some pages of a stored log may, is taken for the
    one above it.
    """
    known = np.unique(some.rank)
    ranks = known[np.maximum(np.searchsorted(known, ranks, side="right") - 1, 0)]
    looks = _Looks(model, required.factors, some)
    share = min(float(some.weight.sum()) / total, 1.0)
    found = [
        np.log(np.maximum(mean_looks(looks.by_rank(states), ranks), _LEAST))
        for states in (None, *drawn_states(model, draws, seed, scatter=share))
    ]
    return np.asarray(found[0] - np.stack(found[1:]), dtype=np.float64)


def _around(mean: Floats, errors: Floats, level: float) -> Ends:
    """The interval of the truth around an estimate with such errors; it holds the estimate."""
    from scipy.special import ndtri  # not at the top: importing stays light

    bias, reach = errors.mean(axis=0), errors.std(axis=0, ddof=1) * ndtri((1 + level) / 2)
    low, high = mean * np.exp(-bias - reach), mean * np.exp(-bias + reach)
    return np.minimum(low, mean), np.maximum(np.minimum(high, 1.0), mean)


def _from_estimates(model: Model, coin: str, level: float, seed: int) -> pl.DataFrame:
    """The curve of a coin that has a row for each rank."""
    frame = model.estimates(coin, level=level)
    order = np.argsort(frame["rank"].to_numpy(), kind="stable")
    drawn = model.draws(coin, n=_DRAWS, seed=seed)
    values = drawn.reshape(-1, len(frame))[:, order]
    frame = frame[order]
    mean, ranks = frame["probability"].to_numpy(), frame["rank"].to_numpy()
    _relative(mean, ranks)
    ratios = values / np.maximum(values[:, :1], _LEAST)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return _frame(ranks, mean, (frame["low"], frame["high"]), (low, high))


def _relative(mean: Floats, ranks: NDArray[Any]) -> Floats:
    if not mean[0] > 0:
        raise JudgmentsError(
            f"Rank {ranks[0]} is never looked at under this model: nothing can be relative to it."
        )
    relative: Floats = mean / mean[0]
    return relative


def _nothing(length: int) -> Ends:
    empty = pl.Series([None] * length, dtype=pl.Float64)
    return empty, empty


def _frame(ranks: NDArray[Any], mean: Floats, ends: Ends, relative_ends: Ends) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "rank": ranks.astype(np.int64),
            "examination": mean,
            "low": ends[0],
            "high": ends[1],
            "propensity": mean / mean[0],
            "propensity_low": relative_ends[0],
            "propensity_high": relative_ends[1],
        }
    )


def write_propensities(frame: pl.DataFrame, path: Any) -> None:
    """Write propensities to a small file.

    Parameters
    ----------
    frame : data frame
        What `propensities` returned.
    path : where to
        A name that ends in .csv or .json (a list by rank).
    """
    end = Path(path).suffix.lower()
    if end not in (".csv", ".json"):
        raise JudgmentsError(f"{path}: propensities are written as .csv or .json.")
    with whole_file(path, JudgmentsError) as temporary:
        if end == ".csv":
            frame.write_csv(temporary)
        else:
            temporary.write_text(
                json.dumps({"propensities": frame.to_dicts()}, indent=1), encoding="utf-8"
            )


class Required(NamedTuple):
    """What has to come up heads for any click: factors of relevance, and other coins."""

    factors: tuple[Factor, ...]
    others: tuple[str, ...]

    @property
    def relevance(self) -> tuple[str, ...]:
        """The names of the factors."""
        return tuple(factor.name for factor in self.factors)


def required_coins(model: Model) -> Required:
    """What every click requires; a model where relevance is not among it is refused."""
    named = relevance_factors(model)
    clicks = [edge for edge in model.structure.traced.edges if "click" in edge.symbol]
    heads = [{lit.parameter for lit in e.literals if lit.heads and not lit.lag} for e in clicks]
    always = set.intersection(*heads) if heads else set()
    required = tuple(f for f in named if heads and all(own & set(f.coins) for own in heads))
    if not required:
        names = " or ".join(factor.name for factor in named)
        raise JudgmentsError(
            f"Under {model.name} a click does not require {names}, so looking at a result and "
            f"liking it cannot be told apart, and there are no propensities."
        )
    own = {coin for factor in named for coin in factor.coins}
    return Required(required, tuple(c for c in model.forms if c in always and c not in own))


def examination_coin(model: Model, required: Required) -> str | None:
    """The coin that by itself says how likely a rank is looked at, if there is one."""
    automaton = model.structure.traced
    if len(required.others) != 1 or model.keys[required.others[0]] != ("rank",):
        return None
    known = {*required.relevance, *required.others}  # means over a choice have coins at the start
    is_simple = automaton.n_states == 1 and not automaton.start_parameters()
    for edge in automaton.edges:
        if "click" in edge.symbol:
            is_simple &= not edge.guards and {lit.parameter for lit in edge.literals} <= known
    return required.others[0] if is_simple else None


# What keys are at the first result of a page; columns of the log may be anything.
_AT_THE_TOP = {"rank": "1", "page_rank": "1", "last_click": "0", "clicks_above": "0"}


def is_anchored(model: Model, required: Required) -> bool:
    """Whether the scale of the coins that only appear as a product is fixed by a given number."""
    if not required.others or model.report_ is None:  # without a fit all numbers are given
        return True
    states = model.states(whole=False)
    coins = (*(coin for factor in required.factors for coin in factor.coins), *required.others)
    return any(model.forms[coin].has_given(states[coin]) for coin in coins)


def loose_scale(model: Model, required: Required) -> tuple[str, str] | None:
    """What is seen only as a product that nothing anchors, and what to do; None if all is well."""
    if is_anchored(model, required):
        return None
    coin = required.others[0]
    cells = [_AT_THE_TOP.get(key, "...") for key in model.keys[coin]]
    row = cells[0] if len(cells) == 1 else f"({', '.join(cells)})"
    return (
        f"{model.name} observes only products of {coin} and {' and '.join(required.relevance)}, "
        "and nothing anchors their scale",
        f"fit again with {coin} given at the first rank, such as "
        f"{in_model_file(f'{model.name}({coin}=Table(fixed={{{row}: 1.0}}))')}",
    )


def scale_remark(model: Model) -> str:
    """What to know of relevances whose scale nothing anchors; empty if something does."""
    try:
        found = loose_scale(model, required_coins(model))
    except JudgmentsError:  # no click requires relevance, so there is no such product
        return ""
    if found is None:
        return ""
    what, cure = found
    return (
        f"{what}: relevances are known up to a common factor, so read them as relative, and cut "
        f"points and intervals with them; or {cure}."
    )


def examined(
    model: Model, factors: tuple[Factor, ...], log: ClickLog, ranks: NDArray[Any]
) -> Floats:
    """Mean over pages of the probability that each of these ranks is looked at."""
    return mean_looks(looks_by_rank(model, factors, log), ranks)


def looks_by_rank(model: Model, factors: tuple[Factor, ...], log: ClickLog) -> Floats:
    """The weight of results that could be clicked, and of looks at them, `[which, rank]`."""
    return _Looks(model, factors, log).by_rank()


class _Looks:
    """Looks at the pages of a log, told again for other states of a model's forms."""

    def __init__(self, model: Model, factors: tuple[Factor, ...], log: ClickLog) -> None:
        self.factors, self.rank = factors, log.rank
        self.weight, self.n_ranks = log.weight[log.page], int(log.rank.max(initial=0)) + 1
        self.clicks = ClicksOnPages(model, log)
        coins = dict.fromkeys(coin for factor in factors for coin in factor.reads)
        self.coins = {coin: CoinOnPages(model, coin, log) for coin in coins}

    def by_rank(self, states: Mapping[str, FormState] | None = None) -> Floats:
        """See `looks_by_rank`; what nobody likes by the fit is left out of draws, too."""
        believed = {coin: on_pages.believed for coin, on_pages in self.coins.items()}
        usable = self._liked(believed) > _SMALLEST
        found = believed
        if states is not None:
            found = {coin: on_pages.under(states) for coin, on_pages in self.coins.items()}
        weight = np.where(usable, self.weight, 0.0)
        liked = np.maximum(np.where(usable, self._liked(found), 1.0), _SMALLEST**2)
        looked = weight * self.clicks.under(states) / liked
        sums = [np.bincount(self.rank, each, self.n_ranks) for each in (weight, looked)]
        return np.stack(sums)

    def _liked(self, coins: Mapping[str, Floats]) -> Floats:
        """How likely each result is liked by those who look at it."""
        liked = np.ones(len(self.rank))
        for factor in self.factors:
            values = [coins[coin] for coin in factor.coins]
            liked = liked * mean_over(values, [coins[coin] for coin in factor.deciders])
        return liked


def all_looks(
    model: Model, factors: tuple[Factor, ...], log: ClickLog | Partitioned
) -> tuple[NDArray[np.int64], Floats, float]:
    """The ranks of a log, `looks_by_rank` of all its pages, and their weight; part by part."""
    ranks, sums, weight = np.zeros(0, np.int64), np.zeros((2, 0)), 0.0
    for part, shown, own in over_parts(
        model,
        log,
        lambda view, pages: (
            looks_by_rank(view, factors, pages),
            np.unique(pages.rank),
            float(pages.weight.sum()),
        ),
    ):
        wide = np.zeros((2, max(part.shape[1], sums.shape[1])))
        wide[:, : sums.shape[1]] += sums
        wide[:, : part.shape[1]] += part
        ranks, sums, weight = np.union1d(ranks, shown), wide, weight + own
    return ranks, sums, weight


def mean_looks(sums: Floats, ranks: NDArray[Any]) -> Floats:
    """From sums to the mean probability that each of these ranks is looked at."""
    total, looks = sums[:, ranks]
    if not np.all(total > 0):
        raise JudgmentsError(
            f"At rank {ranks[int(np.argmin(total > 0))]} no page has a result that could be "
            "clicked, so nobody can say who looks there."
        )
    return np.asarray(np.clip(looks / total, 0.0, 1.0), dtype=np.float64)


def some_queries(log: ClickLog, rng: np.random.Generator) -> ClickLog:
    """All pages of random queries, enough to see how far estimates stray, with every rank.

    Whole queries, so that a pair has the share of the pages here that it has in the log.
    """
    if log.n_sessions <= _PAGES:
        return log
    group = np.arange(log.n_sessions)
    if log.has_query:
        group = log.session_column("query").rank("dense").fill_null(0).to_numpy().astype(np.int64)
    turn = rng.permutation(group.max() + 1)[group]
    cut = np.sort(turn)[_PAGES - 1]
    first = np.full(log.rank.max() + 1, turn.max() + 1)  # in this order, to have each rank
    np.minimum.at(first, log.rank, turn[log.page])
    return log.take((turn <= cut) | np.isin(turn, first))


def some_stored_queries(
    model: Model, log: Partitioned, rng: np.random.Generator
) -> tuple[Model, ClickLog]:
    """The same of a stored log, with the model for them; pages come as often as they occurred.

    Queries with more pages than are wanted in all would crowd out the others, and are left out.
    """
    view, pages = some_partitions(model, log, _PAGES, int(rng.integers(2**31)))
    group = np.arange(pages.n_sessions)
    if pages.has_query:
        group = pages.session_column("query").rank("dense").fill_null(0).to_numpy()
    group = group.astype(np.int64)
    weight = np.bincount(group, weights=pages.weight)
    order = rng.permutation(np.flatnonzero(weight > 0))
    light = order[weight[order] <= _PAGES]
    order = light if len(light) else order[[np.argmin(weight[order])]]
    n_taken = int(np.searchsorted(np.cumsum(weight[order]), _PAGES)) + 1
    return view, unfolded(pages.take(np.isin(group, order[:n_taken])))
