"""Whether one model is a special case of another, found by trying.

A smaller model is a special case of a larger one if the coins of the larger can be set so that both
say the same of every page: each to a coin of the smaller one that depends on no more than it does
itself, or to 0, or to 1. All such settings are tried on a few pages, with random probabilities: two
polynomials that agree at random points are the same, but for a probability of zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.match import key_hashes
from gecasmo.encoding.rows import Rows
from gecasmo.estimation.coins import as_weights
from gecasmo.forms import Form, Table
from gecasmo.hashes import hash_values
from gecasmo.logs import ClickLog
from gecasmo.logs.views import as_view
from gecasmo.model.base import Model
from gecasmo.model.page_run import PageRun
from gecasmo.model.stories import repeated
from gecasmo.model.structured import given_states

Floats = NDArray[np.float64]
Target = str | float  # a coin of the smaller model, or a number

# Settings that are tried at most, and pages that each is tried on.
_MOST_SETTINGS, _PAGES, _RANDOM_TURNS = 20_000, 40, 2
_EQUAL = 1e-8  # logarithms of probabilities
_LEAST = -600.0


@dataclass(frozen=True)
class Embedding:
    """How a smaller model is a special case of a larger one.

    `coins` has, by coin of the larger one, the coin of the smaller one that it is set to, or 0 or
    1; None where it does not matter then. `words` says where that is more than the same coin.
    """

    coins: Mapping[str, Target | None]
    words: str


def comparable_likelihoods(smaller: Model, larger: Model) -> str | None:
    """Why the likelihoods of two models are of different things; None if they are not."""
    one, other = (model.counting_structure.traced for model in (smaller, larger))
    if as_view(smaller.view).name != as_view(larger.view).name:
        return "they read the log in different orders"
    if {*one.signals} != {*other.signals}:
        return f"one explains {', '.join(one.signals)}, the other {', '.join(other.signals)}"
    if {*one.observed_columns()} != {*other.observed_columns()}:
        return "they observe different numbers"
    return None


def embedding(smaller: Model, larger: Model, log: ClickLog, seed: int = 0) -> Embedding | None:
    """How `smaller` is a special case of `larger`; None if no setting of its coins shows it.

    None does not prove that there is no other way, such as a product of two coins.
    """
    if comparable_likelihoods(smaller, larger) is not None:
        return None
    if any(model.page_readers or _observes(model) for model in (smaller, larger)):
        return None
    choices = {coin: list(_settings(coin, smaller, larger)) for coin in larger.forms}
    if prod(map(len, choices.values())) > _MOST_SETTINGS:
        return None
    pages = _some_pages(smaller, log, seed)
    wanted = _Trial(smaller, pages).logs(dict(zip(smaller.forms, smaller.forms, strict=True)), {})
    keys, trial = smaller.keys, _Trial(larger, pages)
    for chosen in product(*choices.values()):
        setting = dict(zip(choices, chosen, strict=True))
        if trial.agrees(setting, keys, wanted):
            needed = {
                coin: None if _is_idle(trial, setting, coin, keys, wanted) else target
                for coin, target in setting.items()
            }
            return Embedding(needed, _words(needed, smaller, larger))
    return None


def _is_idle(
    trial: _Trial,
    setting: Mapping[str, Target],
    coin: str,
    keys: Mapping[str, tuple[str, ...]],
    wanted: Floats,
) -> bool:
    """Whether a coin does not matter once others are set: that of users who are not there."""
    return all(trial.agrees({**setting, coin: other}, keys, wanted) for other in (0.3, 0.8))


def _observes(model: Model) -> bool:
    return bool(model.counting_structure.traced.observes)


def _settings(coin: str, smaller: Model, larger: Model) -> Iterator[Target]:
    """What a coin of the larger model can be set to: its namesake first, then numbers."""
    form, keys = larger.forms[coin], {*larger.keys[coin]}
    if form.constant is not None:
        yield form.constant
        return
    others = [
        name
        for name in smaller.forms
        if _can_be(form, keys, smaller.forms[name], {*smaller.keys[name]})
    ]
    if coin in others:
        yield coin
    if _is_free(form):
        yield 0.0
        yield 1.0
    yield from (name for name in others if name != coin)


def _is_free(form: Form) -> bool:
    return type(form) is Table and not form.fixed


def _can_be(form: Form, keys: set[str], other: Form, its_keys: set[str]) -> bool:
    """Whether one form can say all that another says."""
    if _is_free(form):
        return its_keys <= keys
    return type(form) is type(other) and repr(form) == repr(other) and keys == its_keys


def _some_pages(model: Model, log: ClickLog, seed: int) -> ClickLog:
    """Pages of the log as they are and, where clicks are all that is seen, with others."""
    rng = np.random.default_rng([seed, 31])
    if as_view(model.view).name != "pages":
        return log.take(np.arange(min(log.n_sessions, 3 * _PAGES)))
    chosen = rng.permutation(log.n_sessions)[:_PAGES]
    if model.counting_structure.traced.signals != ("click",):
        return repeated(log, chosen)
    pages = repeated(log, np.tile(chosen, 1 + _RANDOM_TURNS))
    click = np.where(
        pages.page < len(chosen), pages.click, rng.random(pages.n_results) < rng.uniform(0.2, 0.6)
    )
    return pages.with_signals({"click": click})


class _Trial:
    """A model on a few pages, with a table behind each coin whose rows can be set."""

    def __init__(self, model: Model, pages: ClickLog) -> None:
        keys = model.keys
        twin = model.copy()
        twin.forms = {coin: Table(key=own) for coin, own in keys.items()}
        twin.features_ = {}
        twin.states_ = given_states(twin.forms, keys, dict.fromkeys(keys, 0.5))
        self.pages, self.run = pages, PageRun(twin, pages, "filter", threads=1)
        self.coins = dict(zip(keys, self.run.encoded.rows, strict=True))
        self.known: dict[tuple[str, Target], Floats] = {}
        n_results = self.run.encoded.n_results
        self.outputs = np.zeros(n_results), np.zeros(n_results)

    def logs(self, setting: Mapping[str, Target], keys: Mapping[str, tuple[str, ...]]) -> Floats:
        """The log-likelihood of each page; `keys` are those of the coins that coins are set to."""
        for number, (coin, target) in enumerate(setting.items()):
            if (coin, target) not in self.known:
                self.known[coin, target] = self._weights(coin, target, keys)
            self.run.weights[number] = self.known[coin, target]
        self.run.run(*self.outputs)
        seen = np.nan_to_num(self.run.results(self.outputs[0], "all"))
        logs = np.log(np.maximum(seen, 1e-300))
        found = np.bincount(self.pages.page, logs, minlength=self.pages.n_sessions)
        return np.maximum(found, _LEAST)

    def agrees(
        self,
        setting: Mapping[str, Target],
        keys: Mapping[str, tuple[str, ...]],
        wanted: Floats,
    ) -> bool:
        """Whether all pages are as likely as wanted."""
        return np.allclose(self.logs(setting, keys), wanted, rtol=0, atol=_EQUAL)

    def _weights(self, coin: str, target: Target, keys: Mapping[str, tuple[str, ...]]) -> Floats:
        rows = self.coins[coin]
        if not isinstance(target, str):
            return as_weights(np.full(len(rows), float(target)))
        return as_weights(_by_chance(target, rows, keys.get(target, rows.keys)))


def _by_chance(coin: str, rows: Rows, keys: tuple[str, ...]) -> Floats:
    """A random probability for each row, which follows from the name of the coin and the key."""
    salt = int(hash_values(pl.Series([coin]))[0] >> np.uint64(2))
    frame = rows.frame.select(sorted(keys)) if keys else pl.DataFrame({"": np.zeros(len(rows))})
    by_chance = (key_hashes(frame, salt) >> np.uint64(11)) / 2.0**53
    return np.asarray(0.15 + 0.7 * by_chance, np.float64)


def _words(setting: Mapping[str, Target | None], smaller: Model, larger: Model) -> str:
    """What has to be set, as far as it is not the same coin."""
    told = []
    for coin, target in setting.items():
        if isinstance(target, str):
            more = [key for key in larger.keys[coin] if key not in smaller.keys[target]]
            if more:
                told.append(f"{coin} does not depend on {', '.join(more)}")
            elif target != coin:
                told.append(f"{coin} = {target}")
        elif target is not None and larger.forms[coin].constant is None:
            told.append(f"{coin} = {target:g}")
    return "; ".join(told)
