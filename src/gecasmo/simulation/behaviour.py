"""How users click: a model of the zoo, or of your own, with true numbers for all of its coins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.special import expit, logit

from gecasmo.encoding import Rows
from gecasmo.encoding.columns import coded
from gecasmo.errors import ModelError
from gecasmo.forms import Table
from gecasmo.forms.fixed import NUMBERS
from gecasmo.logs import ClickLog
from gecasmo.model import ClickModel
from gecasmo.simulation.market import Floats, Ints, Market


@dataclass(frozen=True)
class Behaviour:
    """A click model, what decides each of its coins, and how users differ.

    A coin is decided either by the distance of user and item (`salience`, by coin), or by
    `values`, as `with_values` takes them. `offsets` has, by coin, what is added to the logit for
    each user.
    """

    model: type[ClickModel]
    market: Market
    salience: Mapping[str, float]
    values: Mapping[str, Any]
    offsets: Mapping[str, Floats]

    def oracle(self, user: Ints, item: Ints) -> ClickModel:
        """The model with its true numbers, for users who meet these items."""
        pairs = pl.DataFrame({"user": user, "doc": item}).unique(maintain_order=True)
        people = pairs.select("user").unique(maintain_order=True)
        # The values as a user without whims has them; all other coins are still to come.
        known = dict.fromkeys(self.salience, 0.5) | dict(self.values)
        plain = self.model.with_values(**known)
        known |= {coin: self._by_pair(coin, pairs) for coin in self.salience}
        known |= {
            coin: self._by_user(coin, plain, people) for coin in self.offsets if coin in self.values
        }
        return self.model.with_values(**known)

    def _by_pair(self, coin: str, pairs: pl.DataFrame) -> tuple[Table, pl.DataFrame]:
        user, item = pairs["user"].to_numpy(), pairs["doc"].to_numpy()
        probability = self.market.probability(user, item, self.salience[coin])
        if coin in self.offsets:
            probability = shifted(probability, self.offsets[coin][user])
        return Table(key=("user", "doc")), pairs.with_columns(probability=pl.Series(probability))

    def _by_user(
        self, coin: str, plain: ClickModel, people: pl.DataFrame
    ) -> tuple[Table, pl.DataFrame]:
        """The rows of a coin for every user."""
        keys, state = plain.keys[coin], plain.states()[coin]
        if state.is_constant:
            keys, rows = ("user",), people.with_columns(probability=pl.lit(state.otherwise))
        else:
            rows = plain.forms[coin].to_frame(state)
            if "user" in keys:
                rows = people.join(rows, on="user")
            else:
                keys, rows = ("user", *keys), people.join(rows, how="cross")
        offset = self.offsets[coin][rows["user"].to_numpy()]
        probability = shifted(rows["probability"].to_numpy(), offset)
        return Table(key=keys), rows.with_columns(probability=pl.Series(probability))


def choose_behaviour(
    model: type[ClickModel],
    market: Market,
    *,
    salience: Mapping[str, float],
    continuation: float,
    list_size: int,
    values: Mapping[str, Any] | None,
    user_spread: Mapping[str, float] | None,
    rng: np.random.Generator,
) -> Behaviour:
    """Decide what each coin of the model is worth; `values` come first, then the usual ones."""
    if not (isinstance(model, type) and issubclass(model, ClickModel)):
        raise ModelError(f"model={model!r}: a class of click models is wanted, such as DBN.")
    made = model()
    values, user_spread = dict(values or {}), dict(user_spread or {})
    observed = dict(made.traced_automaton.observes)
    seen = {*observed, *made.densities_by_name} & values.keys()
    keys = {coin: own for coin, own in made.declared_keys.items() if coin not in observed}
    _check_coins(model.__name__, [*keys, *seen], values, user_spread)
    for coin, column in observed.items():
        if not {coin, coin.partition("[")[0]} & seen:
            raise ModelError(
                f"The simulation does not know how '{column}' is spread in {model.__name__}.\n"
                f'  Perhaps: values={{"{coin}": LogNormal(3, 1), ...}}'
            )
    # The only coins that are known by name: users read on as often at every result.
    reading_on = {
        "continuation": continuation,
        "continuation_after_skip": continuation,
        "continuation_after_click": continuation,
        "continuation_after_satisfaction": 0.1,
    }
    by_pair = {}
    missing = []
    for coin in keys:
        if coin in values:
            continue
        if coin in reading_on:
            values[coin] = reading_on[coin]
        elif coin in salience or "doc" in keys[coin]:
            by_pair[coin] = salience.get(coin, salience["attraction"])
        elif (usual := _usual(keys[coin], continuation, list_size)) is not None:
            values[coin] = usual
        else:
            missing.append(coin)
    if missing:
        example = ", ".join(f'"{coin}": 0.5' for coin in missing)
        raise ModelError(
            f"The simulation has no numbers for these coins of {model.__name__}: "
            f"{', '.join(missing)}.\n  Perhaps: values={{{example}}}"
        )
    offsets = {
        coin: rng.normal(0.0, user_spread[coin], market.n_users)
        for coin in keys
        if coin in user_spread
    }
    for coin, value in values.items():
        if coin in keys and not isinstance(
            value, tuple
        ):  # the pages have no queries, so no row is named by one
            values[coin] = Table(key=tuple(key for key in keys[coin] if key != "query")), value
    return Behaviour(model, market, by_pair, values, offsets)


def _usual(keys: tuple[str, ...], continuation: float, list_size: int) -> Any:
    """What a coin gets by its keys when nobody says anything else; None where they do not tell.

    By rank, or by what is known of the last click: a user who reads on from one result to the
    next with probability `continuation`, beginning at the top or below the last click. Without a
    key a coin is fair.
    """
    keys = tuple(key for key in keys if key != "query")  # the pages have none
    if not keys:
        return 0.5
    if not set(keys) <= {"rank", "last_click", "distance"} or keys == ("last_click",):
        return None
    below_click = keys != ("rank",)
    usual = {}
    for rank in range(1, list_size + 1):
        for last in range(rank):
            known = {"rank": rank, "last_click": last, "distance": rank - last}
            row = tuple(known[key] for key in keys)
            steps = rank - last if below_click else rank
            usual[row if len(row) > 1 else row[0]] = continuation ** (steps - 1)
    return usual


def _check_coins(
    name: str, coins: list[str], values: dict[str, Any], user_spread: dict[str, float]
) -> None:
    for argument, given in (("values", values), ("user_spread", user_spread)):
        unknown = [coin for coin in given if coin not in coins]
        if unknown:
            raise ModelError(
                f"{argument}: {name} has no coin '{unknown[0]}'. Its coins are: {', '.join(coins)}."
            )
    for coin, spread in user_spread.items():
        if not isinstance(spread, NUMBERS) or not 0 <= spread < np.inf:
            raise ModelError(
                f"user_spread={{'{coin}': {spread!r}}}: a standard deviation is wanted, not "
                "negative."
            )


def shifted(probability: Floats, offset: Floats) -> Floats:
    """Probabilities with something added to their logits; 0 and 1 stay what they are."""
    moved: Floats = expit(logit(probability) + offset)
    return moved


def true_probabilities(oracle: ClickModel, log: ClickLog) -> pl.DataFrame:
    """Per result and coin the probability of heads, given the clicks above."""
    columns = []
    states = oracle.states()
    for coin, form in oracle.forms.items():
        if form.is_joint:
            continue  # nothing is flipped there
        keys = oracle.keys[coin]
        parts = [coded(log, key, coin) for key in keys]
        rows = Rows(keys, [part.values.gather(part.codes) for part in parts], log.n_results)
        known = form.known(states[coin], rows)
        if not known.all():
            row = dict(zip(keys, rows.frame.row(int(np.argmin(known))), strict=True))
            raise ModelError(f"The values of '{coin}' lack rows that occur, such as {row}.")
        columns.append(pl.Series(coin, form.probabilities(states[coin], rows, coin)))
    return pl.DataFrame(columns)
