"""Forms of coins from flags: --fixed, --key and --prior."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer

from gecasmo.errors import ModelError
from gecasmo.forms import Fixed, Table
from gecasmo.model.base import Model


def with_forms(
    model: Model, fixed: Iterable[str], key: Iterable[str], prior: Iterable[str]
) -> Model:
    """The model with the forms that flags such as `continuation=0.9` ask for."""
    values = {coin: _number(text, "--fixed", coin) for coin, text in _pairs(fixed, "--fixed")}
    keys = {coin: tuple(_words(text)) for coin, text in _pairs(key, "--key")}
    tables: dict[str, dict[str, Any]] = {coin: {"key": columns} for coin, columns in keys.items()}
    for coin, text in _pairs(prior, "--prior"):
        if coin in values:
            raise typer.BadParameter(f"'{coin}' is fixed, so it has no prior.")
        tables.setdefault(coin, {}).update(_prior(text, coin))
    forms: dict[str, Any] = {coin: Fixed(value, keys.get(coin)) for coin, value in values.items()}
    forms |= {coin: Table(**options) for coin, options in tables.items() if coin not in forms}
    unknown = [coin for coin in forms if coin not in model.forms]
    if unknown:
        raise ModelError(
            f"{model.name} has no coin '{unknown[0]}'. Its coins are: {', '.join(model.forms)}."
        )
    twin = model.copy()
    twin.forms |= forms
    return twin


def _pairs(given: Iterable[str], flag: str) -> list[tuple[str, str]]:
    pairs = []
    for text in given:
        coin, equals, value = text.partition("=")
        if not equals or not coin.strip() or not value.strip():
            raise typer.BadParameter(f"{flag} {text}: write COIN=VALUE.")
        pairs.append((coin.strip(), value.strip()))
    return pairs


def _number(text: str, flag: str, coin: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{flag} {coin}={text}: '{text}' is not a number.") from None


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _prior(text: str, coin: str) -> dict[str, Any]:
    if text.lower() == "empirical":
        return {"prior": "empirical"}
    numbers = [_number(word, "--prior", coin) for word in _words(text)]
    if len(numbers) != 2:
        raise typer.BadParameter(
            f"--prior {coin}={text}: write {coin}=empirical, or heads and tails to begin with, "
            f"such as {coin}=1,1."
        )
    return {"pseudo_counts": tuple(numbers)}
