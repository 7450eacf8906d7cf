"""Make the parts of a fit from the partitions of a log.

The part of a large partition is made from its pieces, so that memory need not hold all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.compiler.symmetry import has_exchangeable_states
from gecasmo.encoding import EncodedLog, Rows
from gecasmo.encoding.averages import IMPRESSIONS, PAGES, row_averages
from gecasmo.errors import NothingLeftError
from gecasmo.estimation import Coin, Expectation, Method, Problem
from gecasmo.estimation.parts.joined_averages import JoinedAverages
from gecasmo.estimation.parts.joining import JoinedPieces, NotJoinableError
from gecasmo.estimation.parts.part import Part
from gecasmo.estimation.parts.problem import PartedProblem
from gecasmo.estimation.parts.running import Parts
from gecasmo.estimation.parts.shared_rows import SharedRows
from gecasmo.estimation.parts.storing import Blueprint
from gecasmo.forms import Form
from gecasmo.logs import ClickLog
from gecasmo.model.fitting import Builder
from gecasmo.model.streaming import Partitioned, is_cut, pieces_of

if TYPE_CHECKING:
    from gecasmo.model.base import Impossible, Model


@dataclass(frozen=True)
class Settings:
    """How the parts of a fit are made."""

    method: Method
    start: Model | None = None
    impossible: Impossible = "raise"


@dataclass(frozen=True)
class BuiltPart:
    """A part, but for the places of its rows among those that all parts share.

    `shared` are its rows of shared coins, by number.
    """

    part: Part
    shared: Mapping[int, Rows]
    n_dropped: int
    n_floored: int

    def placed(self, rows: Mapping[int, SharedRows]) -> Part:
        """The part with its place among all rows, which are added to."""
        index = {number: rows[number].add(own) for number, own in self.shared.items()}
        return replace(self.part, index=index)


def is_local(form: Form, keys: Sequence[str], has_query: bool) -> bool:
    """Whether the rows of a coin live with the pages of their query, and are fitted one by one."""
    return has_query and form.is_split and "query" in keys


def local_coins(model: Model, has_query: bool) -> list[int]:
    """The numbers of the coins that are local."""
    keys = model.keys
    return [
        number
        for number, (coin, form) in enumerate(model.forms.items())
        if is_local(form, keys[coin], has_query)
    ]


def build_part(
    model: Model, number: int, log: ClickLog, local: Sequence[int], settings: Settings
) -> BuiltPart:
    """Encode a partition for a model, and deal with pages that cannot happen."""
    build = Builder(model, log, settings.method, settings.start, 1, settings.impossible)
    part = part_of(number, build.problem(), local, numeric_typical(model, local, build.typical))
    return BuiltPart(part, shared_rows(part), build.n_dropped, build.n_floored)


def build_partition(
    model: Model, number: int, log: Partitioned, n_results: int, local: Sequence[int], how: Settings
) -> BuiltPart:
    """The part of a partition that has so many results; a large one is encoded piece by piece."""
    if is_cut(log, n_results):
        try:
            return build_from_pieces(
                model, number, lambda: pieces_of(log, number, n_results), local, how
            )
        except NotJoinableError:
            pass  # the whole of it gives the same, and takes more memory
    return build_part(model, number, log.partition(number), local, how)


def part_of(
    number: int, problem: Problem, local: Sequence[int], typical: Mapping[int, dict[str, Any]]
) -> Part:
    """The part with these pages."""
    states: list[Any] = problem.begin(None)
    begin = {n: states[n] for n in local}
    problem.given_start = None  # it is where parts begin, which they know now
    return Part(number, problem, begin, {}, {}, typical)


def shared_rows(part: Part) -> dict[int, Rows]:
    """The rows of the coins that are not local."""
    return {n: coin.rows for n, coin in enumerate(part.problem.coins) if n not in part.begin}


def blueprint_of(model: Model, augmentation: str) -> Blueprint:
    """What the parts of a fit of this model have in common."""
    return Blueprint(
        list(model.forms.items()), lambda plan: model.library(plan, counting=True), augmentation
    )


def driver_coins(model: Model, local: Sequence[int], rows: Mapping[int, Rows]) -> list[Coin]:
    """All coins of a fit over parts; those that are local have no rows in one place."""
    keys = model.keys
    coins = []
    by_form: dict[int, Rows] = {}
    for n, (coin, form) in enumerate(model.forms.items()):
        own = Rows(keys[coin], _no_columns(keys[coin]), 0) if n in local else rows[n]
        if form.columns:  # coins that share such a form share its rows
            own = by_form.setdefault(id(form), own)
        coins.append(Coin(coin, form, own))
    return coins


def parted_problem(
    model: Model,
    parts: Parts,
    local: Sequence[int],
    rows: Mapping[int, Rows],
    weight: float,
    settings: Settings,
) -> PartedProblem:
    """The problem of a fit over parts; `rows` are those of the shared coins."""
    forms: list[Any] = list(model.forms.values())
    problem = PartedProblem(
        parts,
        driver_coins(model, local, rows),
        local,
        weight,
        has_exchangeable_states(model.structure.traced),
        {number: forms[number].pseudo_counts for number in local},
    )
    if settings.start is not None:
        nowhere: Any = None
        build = Builder(model, nowhere, settings.method, settings.start, 1, "raise")
        problem.driver.given_start = build.begin(problem.driver.coins)
        # Where local coins start is known to their parts.
        problem.given_start = problem.begin(None)
    return problem


def numeric_typical(
    model: Model, local: Sequence[int], found: Mapping[str, Mapping[str, pl.Series]]
) -> dict[int, dict[str, Any]]:
    """What the priors of local coins depend on, as far as it is numbers."""
    coins = list(model.forms)
    return {
        number: {
            name: values.to_numpy().astype(np.float64)
            for name, values in found[coins[number]].items()
            if values.dtype.is_numeric()
        }
        for number in local
        if coins[number] in found
    }


def _no_columns(keys: Sequence[str]) -> list[pl.Series]:
    return [pl.Series(key, np.zeros(0, np.int64)) for key in keys]


def build_from_pieces(
    model: Model,
    number: int,
    pieces: Callable[[], Iterator[ClickLog]],
    local: Sequence[int],
    settings: Settings,
) -> BuiltPart:
    """Encode a partition piece by piece, and deal with pages that cannot happen.

    Raises
    ------
    NotJoinableError
        When pieces are encoded in ways that do not fit together.
    NothingLeftError
        When no page is left.
    """
    making = _Making(model, local, settings)
    if not making.add_all(pieces()):
        # Results that are not to be looked at came late; pages before must know of such things.
        making = _Making(model, local, settings, with_missing=True)
        making.add_all(pieces())
    return making.built(number)


class _Making:
    """A part in the making."""

    def __init__(
        self, model: Model, local: Sequence[int], settings: Settings, with_missing: bool = False
    ) -> None:
        self.model, self.local, self.settings = model, local, settings
        self.with_missing = with_missing
        self.joined = JoinedPieces(list(model.forms))
        self.averages: dict[int, JoinedAverages] = {}
        self.weight = self.constant = 0.0
        self.n_dropped = self.n_floored = 0

    def add_all(self, pieces: Iterator[ClickLog]) -> bool:
        """Add all pieces; False if one does not go with those before."""
        # No loop over them: a piece has to be gone before the next one is read.
        while (log := next(pieces, None)) is not None:
            if not self._add(log):
                return False
            del log
        return True

    def _add(self, log: ClickLog) -> bool:
        if not log.n_results:
            raise NotJoinableError("a piece has no results")
        build = self._builder(log)
        try:
            problem = build.problem(self.with_missing)
        except NothingLeftError:
            self.n_dropped += log.n_sources()
            return True
        if build.n_floored and not self.with_missing:
            if self.joined.n_results:
                return False
            self.with_missing = True
        self.n_dropped += build.n_dropped
        self.n_floored += build.n_floored
        self.weight += problem.n_pages
        self.constant += problem.constant
        encoded = problem.expectation.encoded
        places = self.joined.add(encoded)
        for coin, means in numeric_typical(self.model, self.local, build.typical).items():
            averages = self.averages.setdefault(coin, JoinedAverages(tuple(means)))
            averages.add(places[coin], means, **self._how_often(encoded, coin))
        return True

    def built(self, number: int) -> BuiltPart:
        """The part of all pieces."""
        model, settings = self.model, self.settings
        if not self.joined.n_results:
            raise NothingLeftError(f"No page of partition {number} is possible under {model.name}.")
        encoded = self.joined.encoded()
        expectation = Expectation(
            encoded,
            model.library(encoded.plan, counting=True),
            settings.method.augmentation,
            self.with_missing,
            threads=1,
        )
        coins = [
            Coin(name, form, rows)
            for (name, form), rows in zip(model.forms.items(), encoded.rows, strict=True)
        ]
        nothing: Any = None
        problem = Problem(
            coins,
            expectation,
            self.weight,
            has_exchangeable_states(model.structure.traced),
            self.constant,
            None if settings.start is None else self._builder(nothing).begin(coins),
        )
        typical = {coin: averages.finish() for coin, averages in self.averages.items()}
        part = part_of(number, problem, self.local, typical)
        return BuiltPart(part, shared_rows(part), self.n_dropped, self.n_floored)

    def _builder(self, log: ClickLog) -> Builder:
        how = self.settings
        return Builder(self.model, log, how.method, how.start, 1, how.impossible)

    def _how_often(self, encoded: EncodedLog, coin: int) -> Mapping[str, Any]:
        """How often each row is shown, and on how many pages it could have been."""
        name, keys = list(self.model.forms)[coin], encoded.rows[coin].keys
        found = row_averages(encoded, name, coin, keys, (IMPRESSIONS, PAGES))
        return {
            "shown": found[IMPRESSIONS].to_numpy().astype(np.float64),
            "pages": found[PAGES].to_numpy().astype(np.float64),
        }
