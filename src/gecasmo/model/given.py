"""Probabilities that a user knows, instead of a fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from gecasmo.errors import ModelError
from gecasmo.forms import Fixed, Form, FormState, Table


def as_frame(given: Any, coin: str) -> pl.DataFrame:
    """A data frame of any kind as a Polars one."""
    if isinstance(given, pl.DataFrame):
        return given
    if isinstance(given, pl.LazyFrame):
        return given.collect()
    if not isinstance(given, Mapping) and not hasattr(given, "__arrow_c_stream__"):
        raise ModelError(
            f"A data frame is wanted for '{coin}' (Polars, pandas, PyArrow or a dictionary of "
            f"columns), not {type(given).__name__}."
        )
    return pl.DataFrame(given)


def split_forms(
    name: str, values: Mapping[str, Any], coins: Iterable[str]
) -> tuple[dict[str, Form], dict[str, Any]]:
    """The tables that come with some of the values, and the values themselves."""
    coins = list(coins)
    missing = [coin for coin in coins if coin not in values]
    if missing:
        raise ModelError(f"{name}.with_values lacks {', '.join(missing)}.")
    unknown = [coin for coin in values if coin not in coins]
    if unknown:
        raise ModelError(f"{name} has no coin '{unknown[0]}'. Its coins are: {', '.join(coins)}.")
    forms: dict[str, Form] = {}
    plain: dict[str, Any] = {}
    for coin, value in values.items():
        plain[coin] = value
        if isinstance(value, tuple):
            if len(value) != 2 or not isinstance(value[0], Table):
                raise ModelError(
                    f"{coin}={value!r}: give a number, a dictionary by key, a frame, or a table "
                    "with its values, such as (Table(key='doc'), {'d7': 0.3})."
                )
            forms[coin], plain[coin] = value
        if isinstance(plain[coin], Fixed):
            plain[coin] = plain[coin].value
    return forms, plain


def given_states(
    forms: Mapping[str, Form], keys: Mapping[str, tuple[str, ...]], values: Mapping[str, Any]
) -> dict[str, FormState]:
    """The states of tables that hold these values."""
    states = {}
    for coin, form in forms.items():
        assert isinstance(form, Table)
        states[coin] = form.given(values[coin], keys[coin], coin)
    return states
