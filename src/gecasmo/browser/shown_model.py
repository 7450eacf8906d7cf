"""A model as data for the browser: its automaton, and a table of probabilities for each coin.

Tables are answered by the model itself for every page that can be put together in the browser, so
that no form has to be known there: a coin has an axis for each of its keys, and the browser only
looks up. Coins that are keyed by query or document have a table for each query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.compiler.automaton import AtPosition, Automaton
from gecasmo.compiler.automaton_json import to_data
from gecasmo.errors import GecasmoError, ModelError
from gecasmo.language import HISTORY_KEYS
from gecasmo.logs.views import as_view
from gecasmo.model.relevance import coins_of_relevance

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_VIEWS = ("pages", "tasks", "grids")  # in these a single page can be walked over from its top
_PAIR_KEYS = ("query", "doc")
_MOST_VALUES = 20  # of a column that a user of the page chooses from
_MOST_STATES = 200
_MOST_NUMBERS = 2_000_000  # of all tables: some 20 MB of text

Axis = dict[str, Any]


def model_data(model: Model, *, queries: int = 200, docs: int = 12, size: int = 10) -> Any:
    """What the browser needs of a model.

    Parameters
    ----------
    model : fitted or not
        Coins of a model without probabilities get some that show what the model does.
    queries : int
        The most queries to be shown; those with most evidence come first.
    docs : int
        The most documents of a query.
    size : int
        The longest page that can be put together.

    Returns
    -------
    dict
        Plain lists, dictionaries, texts and numbers, for `json.dumps`.
    """
    for name, given in (("queries", queries), ("docs", docs), ("size", size)):
        if given < 1:
            raise ModelError(f"{name}={given}: at least 1 is wanted.")
    automaton = model.structure.full.body
    _require_pages(model, automaton)
    density = dict(automaton.observes)
    keys = {coin: own for coin, own in model.keys.items() if coin not in density}
    pairs, n_left_out = _pairs(model, keys, queries, docs, size)
    maker = _Tables(model, keys, size)
    shared, by_query = {}, [dict[str, Any]() for _ in pairs]
    for coin, own in keys.items():
        if set(own) & set(_PAIR_KEYS):
            for found, table in zip(by_query, maker.of_pairs(coin, pairs), strict=True):
                found[coin] = table
        else:
            shared[coin] = maker.of_all(coin)
    return {
        "name": model.name,
        "about": _about(model.program),
        "program": model.program,
        "is_fitted": model.is_fitted,
        "automaton": to_data(automaton),
        "keys": {coin: list(own) for coin, own in keys.items()},
        "relevance": list(model.relevance),
        "view": as_view(model.view).name,
        "guards": list(model.needs.guards),
        "numbers": sorted(set(density.values())),
        "columns": maker.columns,
        "size": size,
        "coins": shared,
        "queries": [
            {"query": query, "docs": list(map(str, names)), "coins": coins}
            for (query, names), coins in zip(pairs, by_query, strict=True)
        ],
        "left_out": n_left_out,
    }


def _about(program: str) -> str:
    """The first line of the docstring in the source of a model."""
    found = re.search(r'"""(.+?)(?:"""|\n)', program)
    return found[1].strip() if found else ""


def _require_pages(model: Model, automaton: Automaton) -> None:
    view = as_view(model.view).name
    if view not in _VIEWS:
        raise ModelError(
            f"{model.name} cannot be shown in a browser: it follows users who go over a page "
            f"several times (the view '{view}'), and what is shown is one walk from the top."
        )
    by_result = [coin for coin, own in model.keys.items() if "result" in own]
    if by_result:
        raise ModelError(
            f"{model.name} cannot be shown in a browser: its coin '{by_result[0]}' has a "
            "probability for each single result of a log, and none for pages that somebody puts "
            "together."
        )
    literals = [lit for edge in (*automaton.initial, *automaton.edges) for lit in edge.literals]
    by_place = any(isinstance(g, AtPosition) for edge in automaton.edges for g in edge.guards)
    if by_place or any(lit.lag or lit.row is not None for lit in literals):
        raise ModelError(
            f"{model.name} cannot be shown in a browser: it is made of matrices, which have a "
            "state for each place of a page, and only programs are shown."
        )
    if automaton.n_states > _MOST_STATES:
        raise ModelError(
            f"{model.name} cannot be shown in a browser: it has {automaton.n_states:,} states, and "
            f"a page can show {_MOST_STATES}."
        )


def _pairs(
    model: Model, keys: Mapping[str, tuple[str, ...]], queries: int, docs: int, size: int
) -> tuple[list[tuple[Any, list[Any]]], int]:
    """The queries with their documents, those with most evidence first; and how many queries are
    left out."""
    made_up = [f"result {letter}" for letter in "ABCDEF"[:size]]
    coins = [coin for coin, own in keys.items() if "doc" in own]
    own = coins_of_relevance(model)
    coins.sort(key=lambda coin: coin not in own)
    if not coins or not model.is_fitted:
        return [("any query", made_up)], 0
    found = _rows(model, coins[0])
    if found is None:
        raise ModelError(
            f"The form {model.forms[coins[0]]!r} of '{coins[0]}' has no list of rows, so there are "
            "no documents to show."
        )
    if "query" not in found.columns:
        found = found.with_columns(query=pl.lit("any query"))
    found = found.group_by("query", "doc", maintain_order=True).agg(pl.col("trials").sum())
    ordered = found.sort("trials", descending=True, maintain_order=True)
    weight = ordered.group_by("query", maintain_order=True).agg(pl.col("trials").sum())
    chosen = weight.sort("trials", descending=True, maintain_order=True)["query"].to_list()
    kept = chosen[:queries]
    listed = dict[Any, list[Any]](
        ordered.filter(pl.col("query").is_in(kept))
        .group_by("query", maintain_order=True)
        .agg(pl.col("doc").head(docs))
        .iter_rows()
    )
    return [(query, listed[query]) for query in kept], len(chosen) - len(kept)


def _rows(model: Model, coin: str) -> pl.DataFrame | None:
    """The rows of a coin in the fit, with how often each was flipped; None where there is no list
    of them."""
    frame = model.parameters[coin]
    if "doc" in frame.columns and "heads" in frame.columns:
        trials = (pl.col("heads") + pl.col("tails")).alias("trials")
        return frame.with_columns(trials.fill_null(0))
    if model.pairs_ is not None and {"query", "doc"} <= set(model.pairs_.columns):
        return model.pairs_.with_columns(trials=pl.lit(1.0))
    return None


class _Tables:
    """Makes the table of a coin: an axis for each of its keys, and a number for each cell."""

    def __init__(self, model: Model, keys: Mapping[str, tuple[str, ...]], size: int) -> None:
        self.model, self.keys, self.size = model, keys, size
        self.columns: dict[str, list[str]] = {}  # to choose from, by name
        self.n_numbers = 0

    def axes(self, coin: str) -> list[Axis]:
        """The axes of a coin without query and document."""
        return [self._axis(coin, key) for key in self.keys[coin] if key not in _PAIR_KEYS]

    def _axis(self, coin: str, key: str) -> Axis:
        size = self.size
        known = {
            "rank": range(1, size + 1),
            "page_rank": range(1, size + 1),
            "page_length": range(1, size + 1),
            "page_number": range(1, 2),
            "distance": range(1, size + 1),
            "last_click": range(size),
            "clicks_above": range(size),
            "row": range(1, size + 1),
            "column": range(1, size + 1),
        }
        if key in known and (key in HISTORY_KEYS or key not in self._chosen_from(coin)):
            return {"key": key, "values": list(known[key])}
        values = self._chosen_from(coin).get(key, ["any"])
        self.columns.setdefault(key, [str(value) for value in values])
        return {"key": key, "values": values}

    def _chosen_from(self, coin: str) -> dict[str, list[Any]]:
        """The values that columns of the log had in the fit, if somebody has to choose one."""
        own = [key for key in self.keys[coin] if key not in (*_PAIR_KEYS, *HISTORY_KEYS)]
        made = {"rank", "page_rank", "page_length", "page_number", "row", "column"}
        own = [key for key in own if key not in made]
        if not own or not self.model.is_fitted:
            return {}
        frame = self.model.parameters[coin]
        return {
            key: frame[key].unique(maintain_order=True).head(_MOST_VALUES).to_list()
            for key in own
            if key in frame.columns
        }

    def of_all(self, coin: str) -> dict[str, Any]:
        """The table of a coin that all pages share."""
        axes = self.axes(coin)
        cells = list(product(*(axis["values"] for axis in axes)))
        frame = _frame([axis["key"] for axis in axes], cells)
        numbers = self._answered(coin, frame, axes)
        return {"axes": _named(axes), "p": numbers}

    def of_pairs(self, coin: str, pairs: Sequence[tuple[Any, list[Any]]]) -> list[dict[str, Any]]:
        """The table of a coin for each query, asked for all of them at once."""
        axes = self.axes(coin)
        by_doc = "doc" in self.keys[coin]
        names = ["query", "doc", *(axis["key"] for axis in axes)]
        others = list(product(*(axis["values"] for axis in axes)))
        cells = [
            (query, doc, *other)
            for query, docs in pairs
            for doc in (docs if by_doc else [None])
            for other in others
        ]
        used = [name for name in names if name in self.keys[coin]]
        frame = _frame(names, cells).select(used)
        numbers = self._answered(coin, frame, axes)
        tables, first = [], 0
        for _, docs in pairs:
            own = [{"key": "doc", "values": list(map(str, docs))}] if by_doc else []
            n = (len(docs) if by_doc else 1) * len(others)
            tables.append({"axes": _named([*own, *axes]), "p": numbers[first : first + n]})
            first += n
        return tables

    def _answered(self, coin: str, frame: pl.DataFrame, axes: Sequence[Axis]) -> list[float]:
        self.n_numbers += len(frame)
        if self.n_numbers > _MOST_NUMBERS:
            raise GecasmoError(
                f"The tables of {self.model.name} have more than {_MOST_NUMBERS:,} numbers for "
                "these queries: show fewer of them, fewer documents or shorter pages."
            )
        if not self.model.is_fitted:
            return _made_up(self.keys[coin], frame)
        form = self.model.forms[coin]
        if form.columns and coin not in self.model.features_:
            frame = self._with_features(coin, frame)
        found = self.model.probability(coin, frame)
        return [float(value) for value in found]

    def _with_features(self, coin: str, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows with the features that the fit has kept of them."""
        model, wanted = self.model, self.model.forms[coin].columns
        state = model.states()[coin]
        kept = model.forms[coin].kept_features(state)
        known = model.parameters[coin].with_columns(c.alias(name) for name, c in kept.items())
        if not {*wanted} <= {*known.columns} and model.pairs_ is not None:
            known = model.pairs_
        by = [key for key in frame.columns if key in known.columns]
        lost = [name for name in wanted if name not in known.columns and name not in by]
        if lost or not by:
            raise ModelError(
                f"The form {model.forms[coin]!r} of '{coin}' reads {', '.join(lost or wanted)}, "
                "which the fit has not kept, so its probabilities cannot be shown."
            )
        features = [name for name in wanted if name not in by]
        rows = known.select(*by, *features).unique(by, keep="first", maintain_order=True)
        return frame.join(rows, on=by, how="left", maintain_order="left")


def _frame(names: Sequence[str], cells: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """Cells as a frame; a frame of a coin without keys still has a row."""
    if not names:
        return pl.DataFrame({"any": [0]})
    columns = list(zip(*cells, strict=True)) or [()] * len(names)
    return pl.DataFrame(
        {name: list(column) for name, column in zip(names, columns, strict=True)}, strict=False
    )


def _named(axes: Sequence[Axis]) -> list[Axis]:
    """Axes with their values as texts."""
    return [{"key": axis["key"], "values": list(map(str, axis["values"]))} for axis in axes]


def _made_up(keys: Sequence[str], frame: pl.DataFrame) -> list[float]:
    """Probabilities to show a model with: documents differ, and attention fades with each step
    from the top, or from the last click."""
    numbers = np.full(len(frame), 0.7)
    if "doc" in keys:
        place = frame["doc"].rank("dense").to_numpy().astype(int) - 1
        numbers = np.array([0.35, 0.6, 0.15, 0.8, 0.25, 0.5, 0.1, 0.4, 0.7, 0.2])[place % 10]
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    steps = columns.get("distance")
    if steps is None and "rank" in keys:
        steps = columns["rank"] - columns.get("last_click", np.zeros(len(frame)))
    if steps is not None:
        numbers = numbers ** ("doc" in keys) * 0.85 ** np.maximum(steps - 1, 0)
    return [round(float(value), 6) for value in numbers]
