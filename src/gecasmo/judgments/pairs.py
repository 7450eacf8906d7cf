"""Relevance of every pair under a model: the product of what it names, with interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.match import match
from gecasmo.errors import option
from gecasmo.judgments.grades import JudgmentsError
from gecasmo.logs import ClickLog
from gecasmo.model.answers import beta_interval
from gecasmo.model.drawn_estimates import possible_estimates
from gecasmo.model.fit_pairs import EXAMINATIONS, PAIR
from gecasmo.model.log_parts import Partitioned, all_pieces
from gecasmo.model.relevance import Factor, Moments, factor_named, factors_of, moments_over
from gecasmo.model.structured import as_frame

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]

# What an estimate rests on if it is none, but a number that the user gave; or other columns of the
# log, through a form that does not tell how sure it is.
GIVEN, FEATURES = "given", "features"


def relevance_factors(model: Model) -> tuple[Factor, ...]:
    """The factors whose product is relevance; a model that names none is refused."""
    if not model.relevance:
        by_doc = [coin for coin in model.forms if "doc" in model.keys[coin]]
        raise JudgmentsError(
            f"{model.name} does not say what relevance is. Name the coins whose product it is in "
            f'the class, such as relevance = ("{by_doc[0] if by_doc else "attraction"}",), or set '
            "model.relevance before you "
            f"ask. Its coins are: {', '.join(model.forms)}."
        )
    unknown = [name for name in model.relevance if factor_named(name, model.forms) is None]
    if unknown:
        raise JudgmentsError(
            f"{model.name} has no coin '{unknown[0]}'. Its coins are: {', '.join(model.forms)}."
        )
    return factors_of(model)


def _reads(factors: tuple[Factor, ...]) -> tuple[str, ...]:
    """All coins that take part."""
    return tuple(coin for factor in factors for coin in factor.reads)


def relevance_frame(model: Model, pairs: Any, level: float, features: Any = None) -> pl.DataFrame:
    """Work out the relevance of pairs, and how sure it is.

    Per pair: relevance, spread, low, high, examinations, rests_on; whether it is given, whether it
    has its interval by features, and whether nothing but features keeps it from having one.

    A product of independent estimates has the product of their means as mean, and the product of
    their second moments as second moment; its interval is that of the Beta distribution with this
    mean and standard deviation. Means over a choice are worked out likewise, value by value.
    Spread, low and high are null where a form does not tell.

    Parameters
    ----------
    model : fitted model
    pairs : data frame or ClickLog, optional
        By default all rows of the fit.
    level : float
        The level of the intervals.
    features : data frame, optional
        Features of pairs, by query and doc or by one of these.
    """
    factors = relevance_factors(model)
    own: dict[str, pl.DataFrame] = {}
    base = _asked(model, _reads(factors), pairs, level, features, own)
    answers = [_of_factor(model, factor, base, level, own) for factor in factors]
    mean, square = np.ones(len(base)), np.ones(len(base))
    for answer in answers:
        p, s = answer["probability"].to_numpy(), _numbers(answer["spread"])
        mean, square = mean * p, square * (p * p + s * s)
    spread = np.sqrt(np.maximum(square - mean * mean, 0.0))
    if len(answers) == 1:
        spread = _numbers(answers[0]["spread"])
        low, high = _numbers(answers[0]["low"]), _numbers(answers[0]["high"])
    else:
        low, high = _interval(mean, spread, level)
    first, on_features = answers[0], any(model.forms[c].columns for c in factors[0].coins)
    return base.select(name for name in PAIR if name in base.columns).with_columns(
        pl.Series("relevance", mean),
        pl.Series("spread", spread).fill_nan(None),
        pl.Series("low", low).fill_nan(None),
        pl.Series("high", high).fill_nan(None),
        _examinations(model, base, first),
        _foundations([factor.name for factor in factors], answers),
        (first["rests_on"] == GIVEN).alias("is_given"),
        (first["low"].is_not_null() & on_features).alias("by_features"),
        pl.Series("lacks_by_features", _lacks_by_features(answers), dtype=pl.Boolean),
    )


def relevance_draws(
    model: Model, pairs: pl.DataFrame, features: Any, n_draws: int
) -> tuple[Floats, Floats]:
    """Means and deviations of the relevance of pairs as they might be, `[pair, draw]`: what pairs
    have in common is drawn, and is the same whichever pairs are asked about."""
    factors = relevance_factors(model)
    keys = [name for name in PAIR if name in pairs.columns]
    base = _asked(model, _reads(factors), pairs.select(keys), 0.9, features, {})
    mean, square = np.ones((2, len(base), n_draws))
    for factor in factors:
        drawn = {coin: possible_estimates(model, coin, base, n_draws) for coin in factor.reads}
        own_mean, own_square = _moments(factor, drawn)
        mean, square = mean * own_mean, square * own_square
    spread = np.sqrt(np.maximum(square - mean * mean, 0.0))
    place = match(pairs, base, keys)
    return mean[place], spread[place]


def _asked(
    model: Model,
    coins: tuple[str, ...],
    pairs: Any,
    level: float,
    features: Any,
    own: dict[str, pl.DataFrame],
) -> pl.DataFrame:
    """The pairs to be answered, each once, with what coins are found by."""
    model.states(whole=False)
    described = None if features is None else _described(model, coins, features)
    if pairs is None and model.pairs_ is not None:
        base = model.pairs_
    elif pairs is None and described is not None and set(PAIR) <= set(described.columns):
        base = _given_pairs(model, coins, described, None)
    elif pairs is None:
        base = _pairs_of_fit(model, coins, level, own)
    else:
        base = _given_pairs(model, coins, pairs, described)
    return base if described is None else _with_features(base, described)


def _examinations(model: Model, base: pl.DataFrame, first: pl.DataFrame) -> pl.Series:
    """How often each pair was examined: the flips of its own row, or what the fit knows of it."""
    own = first["trials"].fill_null(0.0)
    if model.pairs_ is None:
        return own.alias("examinations")
    pair = [name for name in PAIR if name in model.pairs_.columns]
    if not set(pair) <= set(base.columns):
        return own.alias("examinations")
    known = np.append(_numbers(model.pairs_[EXAMINATIONS]), np.nan)
    told = pl.Series(known[match(base, model.pairs_, pair)], nan_to_null=True)
    return told.fill_null(own).alias("examinations")


def _lacks_by_features(answers: list[pl.DataFrame]) -> NDArray[np.bool_]:
    """Which pairs have no interval for the one reason that forms on features tell none."""
    unknown = [(a["spread"].is_null() | a["low"].is_null()).to_numpy() for a in answers]
    excused = [(a["rests_on"] == FEATURES).to_numpy() for a in answers]
    by_coin = [~lost | free for lost, free in zip(unknown, excused, strict=True)]
    lacks: NDArray[np.bool_] = np.any(unknown, axis=0) & np.all(by_coin, axis=0)
    return lacks


def _interval(mean: Floats, spread: Floats, level: float) -> tuple[Floats, Floats]:
    low, high = mean.copy(), mean.copy()  # what is certain has an interval without width
    unsure = ~(spread <= 0)
    low[unsure], high[unsure] = np.nan, np.nan
    known = unsure & np.isfinite(spread)
    low[known], high[known] = beta_interval(mean[known], spread[known], level)
    return low, high


def _numbers(column: pl.Series) -> Floats:
    """Numbers with NaN for null, inside this module only."""
    return np.array(column.cast(pl.Float64).fill_null(np.nan).to_numpy())


def _foundations(coins: Sequence[str], answers: list[pl.DataFrame]) -> pl.Series:
    """What each judgment rests on: one text if all coins agree, else one for each coin."""
    columns = [answer["rests_on"].alias(coin) for coin, answer in zip(coins, answers, strict=True)]
    frame = pl.DataFrame(columns)
    same = pl.all_horizontal(pl.col(coin) == pl.col(coins[0]) for coin in coins)
    each = pl.concat_str(
        [pl.format(f"{coin}: {{}}", pl.col(coin)) for coin in coins], separator="; "
    )
    chosen = pl.when(same).then(pl.col(coins[0])).otherwise(each)
    return frame.select(chosen.alias("rests_on"))["rests_on"]


def _of_factor(
    model: Model, factor: Factor, base: pl.DataFrame, level: float, own: dict[str, pl.DataFrame]
) -> pl.DataFrame:
    """The estimates of a factor for each pair: those of its coin, or of the mean of several, which
    rests on what these rest on and not on what decides between them."""
    answers = {coin: _estimates(model, coin, base, level, own) for coin in factor.reads}
    if not factor.deciders:
        return answers[factor.name]
    drawn = {
        coin: (_numbers(answer["probability"]), _numbers(answer["spread"]))
        for coin, answer in answers.items()
    }
    mean, square = _moments(factor, drawn)
    spread = np.sqrt(np.maximum(square - mean * mean, 0.0))
    low, high = _interval(mean, spread, level)
    values = [answers[coin] for coin in factor.coins]
    trials = pl.DataFrame([v["trials"].alias(c) for c, v in zip(factor.coins, values, strict=True)])
    return pl.DataFrame(
        [
            pl.Series("probability", mean),
            pl.Series("spread", spread).fill_nan(None),
            pl.Series("low", low).fill_nan(None),
            pl.Series("high", high).fill_nan(None),
            trials.sum_horizontal().alias("trials"),
            _foundations(factor.coins, values),
        ]
    )


def _moments(factor: Factor, found: Mapping[str, tuple[Floats, Floats]]) -> Moments:
    """Mean and mean square of a factor, from means and deviations of its coins."""
    both = {coin: (mean, mean**2 + spread**2) for coin, (mean, spread) in found.items()}
    return moments_over([both[c] for c in factor.coins], [both[c] for c in factor.deciders])


def _estimates(
    model: Model, coin: str, base: pl.DataFrame, level: float, own: dict[str, pl.DataFrame]
) -> pl.DataFrame:
    """The estimates of a coin for each pair, in the order of the pairs."""
    keys = list(model.keys[coin])
    if not keys:
        one = model.estimates(coin, level=level)
        found = one.select(pl.all().gather(pl.Series(np.zeros(len(base), np.int64))))
    elif coin in own and len(own[coin]) == len(base):  # then its rows are the very pairs
        found = base.join(own[coin], on=keys, how="left", maintain_order="left")
    else:
        found = model.estimates(coin, rows=base, level=level)
    assert len(found) == len(base)
    # A number that was given is certain, whether or not its form speaks of uncertainty.
    given = pl.col("rests_on") == GIVEN
    certain = {"spread": pl.lit(0.0), "low": pl.col("probability"), "high": pl.col("probability")}
    return found.with_columns(
        pl.when(given & pl.col(name).is_null()).then(value).otherwise(pl.col(name)).alias(name)
        for name, value in certain.items()
    )


def _pairs_of_fit(
    model: Model, coins: tuple[str, ...], level: float, own: dict[str, pl.DataFrame]
) -> pl.DataFrame:
    """All pairs that the fit has rows for; the estimates that tell them are kept in `own`."""
    kept = _kept_features(model, coins)
    keys = {coin: [k for k in model.keys[coin] if k not in kept.columns[2:]] for coin in coins}
    for coin, names in keys.items():
        other = [name for name in names if name not in PAIR]
        if other:
            raise JudgmentsError(
                f"'{coin}' of {model.name} depends on {', '.join(other)}, but relevance belongs to "
                f"a query and a document. Fit it by those: {coin}=Table(key=('query', 'doc')); or "
                f"give the pairs to be judged, with the column{'s' * (len(other) > 1)} "
                f"{', '.join(other)}: judge(model, pairs=frame)."
            )
    every = {name for names in keys.values() for name in names}
    if "doc" not in every:
        raise JudgmentsError(
            f"The relevance of {model.name} ({' x '.join(coins)}) is the same for all documents, "
            "so there is nothing to judge. Fit it by document: "
            f"{coins[0]}=Table(key=('query', 'doc'))."
        )
    columns = [name for name in PAIR if name in every]
    full = [coin for coin, names in keys.items() if set(names) == every]
    if not full:
        parts = ", ".join(f"'{coin}' by {' and '.join(names)}" for coin, names in keys.items())
        raise JudgmentsError(
            f"{model.name} has {parts}: no coin knows which documents belong to which query. Give "
            "the pairs to be judged: judge(model, pairs=log), or a frame with query and doc."
        )
    for coin in full:
        own[coin] = model.estimates(coin, level=level)
    rows = [frame.select(columns) for frame in own.values() if {*columns} <= {*frame.columns}]
    if len(rows) < len(full) or not any(len(frame) for frame in rows):
        raise JudgmentsError(
            f"{model.name} has no rows of {' and '.join(columns)} of its own. Give the pairs to be "
            f"judged: judge(model, pairs=log), or a frame with {' and '.join(columns)}."
        )
    pairs = pl.concat(rows).unique(maintain_order=True).sort(columns)
    if not kept.columns:
        return pairs
    return pairs.join(kept, on=list(PAIR), how="left", maintain_order="left")


def _kept_features(model: Model, coins: tuple[str, ...]) -> pl.DataFrame:
    """The pairs of a form that keeps their features, with these; nothing if none does."""
    states = model.states(whole=False)
    for coin in coins:
        if coin not in states:  # values that were given, not fitted
            continue
        kept = model.forms[coin].kept_features(states[coin])
        if kept and set(model.keys[coin]) == set(PAIR):
            rows = model.forms[coin].to_frame(states[coin]).select(PAIR)
            return rows.with_columns(column.alias(name) for name, column in kept.items())
    return pl.DataFrame()


def _described(model: Model, coins: tuple[str, ...], given: Any) -> pl.DataFrame:
    """The features that the user gives, with those columns that coins of relevance read."""
    frame = as_frame(given, "features")
    keys = [name for name in PAIR if name in frame.columns]
    read = {name for coin in coins for name in (*model.keys[coin], *model.forms[coin].columns)}
    names = [name for name in frame.columns if name in read and name not in keys]
    wanted = sorted(read - set(PAIR))
    if not wanted:
        raise JudgmentsError(
            f"{option('features')}: the relevance of {model.name} reads no features."
        )
    if not keys or not names:
        raise JudgmentsError(
            f"{option('features')} wants a column query or doc, and some of those that the "
            f"relevance of {model.name} reads ({', '.join(wanted)}); it has: "
            f"{', '.join(frame.columns)}."
        )
    frame = frame.select(*keys, *names).unique(maintain_order=True)
    twice = frame.select(keys).is_duplicated()
    if twice.any():
        first = frame.select(keys).filter(twice).row(0)
        raise JudgmentsError(f"{option('features')} has more than one row for {first}.")
    return frame


def _with_features(base: pl.DataFrame, described: pl.DataFrame) -> pl.DataFrame:
    """The pairs with features that are given, in place of those that they had."""
    keys = [name for name in PAIR if name in described.columns and name in base.columns]
    names = [name for name in described.columns if name not in PAIR]
    place = match(base, described, keys)
    if (place < 0).any():
        first = base.select(keys).row(int(np.argmax(place < 0)))
        raise JudgmentsError(
            f"{option('features')} has no row for {int((place < 0).sum()):,} of {len(base):,} "
            f"pairs, such as {first}."
        )
    return base.with_columns(described[name].gather(pl.Series(place)) for name in names)


def all_pairs(model: Model, log: Partitioned) -> pl.DataFrame:
    """The pairs that a stored log shows, each once, with the columns that coins are found by."""
    coins = _reads(relevance_factors(model))
    wanted = {*PAIR, *(n for c in coins for n in (*model.keys[c], *model.forms[c].columns))}
    found = [
        pages.to_frame().select(n for n in pages.columns if n in wanted).unique(maintain_order=True)
        for _, pages in all_pieces(log)
    ]
    return pl.concat(found).unique(maintain_order=True)


def _given_pairs(
    model: Model, coins: tuple[str, ...], pairs: Any, described: pl.DataFrame | None
) -> pl.DataFrame:
    """The pairs that the user asks about, each once, with the columns that coins are found by."""
    frame = pairs.to_frame() if isinstance(pairs, ClickLog) else as_frame(pairs, "pairs")
    # What a table of features has need not come with the pairs; nor what the fit knows of them.
    elsewhere = set() if described is None else set(described.columns) - set(PAIR)
    frame = frame.drop(name for name in elsewhere if name in frame.columns)
    wanted = set(PAIR)
    for coin in coins:
        wanted |= {*model.keys[coin], *model.forms[coin].columns}
    needed = (wanted - set(PAIR)) | {name for coin in coins for name in model.keys[coin]} | {"doc"}
    for coin in coins:
        elsewhere |= set(getattr(model.features_.get(coin), "columns", ()))
    lost = sorted(needed - set(frame.columns) - (elsewhere - set(PAIR)))
    if lost:
        raise JudgmentsError(
            f"The pairs lack {', '.join(lost)}, by which {model.name} has its relevance; they "
            f"have: {', '.join(frame.columns)}. Columns may also come in a table of their own: "
            f"{option('features')}."
        )
    frame = frame.select(name for name in frame.columns if name in wanted)
    columns = [name for name in PAIR if name in frame.columns]
    empty = [name for name in columns if frame[name].null_count()]
    if empty:
        raise JudgmentsError(f"The pairs have rows without {empty[0]}.")
    frame = frame.unique(maintain_order=True).sort(columns)
    twice = frame.filter(frame.select(columns).is_duplicated())
    if len(twice):
        raise JudgmentsError(
            f"The pairs name {twice.select(columns).row(0)} more than once, with different "
            f"{', '.join(name for name in frame.columns if name not in columns)}: one row a pair."
        )
    return frame
