"""Make the parts of a fit from the pages of a log, and deal with pages that cannot happen.

The part of a large partition is made from its pieces, so that memory need not hold all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import EncodedLog, Rows
from gecasmo.encoding.averages import (
    EXPOSURE,
    IMPRESSIONS,
    PAGES,
    JoinedAverages,
    row_averages,
)
from gecasmo.encoding.pieces import JoinedPieces, NotJoinableError
from gecasmo.encoding.shared_rows import SharedRows
from gecasmo.errors import ModelError, NothingLeftError
from gecasmo.estimation import Coin, Counts, Expectation, Method, Problem
from gecasmo.estimation.constraints import Constraint
from gecasmo.estimation.part import Part
from gecasmo.estimation.part_files import Blueprint
from gecasmo.estimation.problem import Parts
from gecasmo.estimation.regularised import Regularised
from gecasmo.forms import FormState
from gecasmo.logs import ClickLog
from gecasmo.logs.clicklog import joined
from gecasmo.model.log_parts import Partitioned, all_pieces, is_cut, pieces_of
from gecasmo.model.page_run import FLOOR, find_impossible, refuse

if TYPE_CHECKING:
    from gecasmo.model.base import Impossible, Model


@dataclass(frozen=True)
class Settings:
    """How the parts of a fit are made."""

    method: Method
    start: Model | None = None
    impossible: Impossible = "raise"
    constraints: tuple[Constraint, ...] = ()


class Builder:
    """Makes a part, and deals with pages that the model says cannot happen."""

    def __init__(
        self, model: Model, log: ClickLog, settings: Settings, threads: int | None = None
    ) -> None:
        self.model, self.log, self.settings, self.threads = model, log, settings, threads
        self.n_dropped = self.n_floored = 0
        self.typical: dict[str, dict[str, pl.Series]] = {}
        self._begun: tuple[Part | None, list[FormState]] = (None, [])

    def part(self, with_missing: bool = False) -> Part:
        """The part; `with_missing` as if some results were not to be looked at."""
        part = self._make(None)
        # Zeros and ones come from structure and fixed values, never from a random start.
        begun = self.begun(part)
        counts: Counts = part.expectation.run(part.weights(begun))
        if not counts.n_impossible:
            return self._make(np.zeros(self.log.n_results, bool)) if with_missing else part
        states = dict(zip(self.model.forms, begun, strict=True))
        if self.settings.impossible == "raise":
            refuse(self.model, self.log, states, self.threads)
        missing, sessions = find_impossible(self.model, self.log, states, self.threads)
        if self.settings.impossible == "drop":
            self.n_dropped = self.log.n_sources(sessions)
            self.log = self.log.take(~sessions)
            if not self.log.n_results:
                raise NothingLeftError(
                    f"All {self.n_dropped:,} sessions are impossible under {self.model.name}: "
                    "nothing is left to fit."
                )
            return self._make(None)
        weight = self.log.weight[self.log.page[missing]]
        self.n_floored = round(float(weight.sum())) if self.log.is_folded else len(weight)
        return self._make(missing)

    def _make(self, missing: NDArray[np.bool_] | None) -> Part:
        model, with_missing = self.model, missing is not None
        augmentation: Any = self.settings.method.augmentation
        encoded = model.encode(self.log, "e_step", augmentation, with_missing, missing=missing)
        library = model.library(encoded.plan, counting=True)
        how = (encoded, library, augmentation, with_missing, self.threads)
        asked = self.settings.constraints
        expectation = Regularised(*how, asked) if asked else Expectation(*how)
        self.typical = _typical(model, encoded)
        constant = 0.0
        if missing is not None:
            constant = float(np.log(FLOOR) * self.log.weight[self.log.page[missing]].sum())
        return Part(_coins_of(model, encoded), expectation, float(self.log.weight.sum()), constant)

    def begun(self, part: Part) -> list[FormState]:
        """Where the forms of a part begin."""
        if self._begun[0] is not part:
            is_given = self.settings.start is not None
            self._begun = (part, self.begin(part.coins) if is_given else part.begun(None))
        return self._begun[1]

    def begin(self, coins: Sequence[Coin]) -> list[Any]:
        """Start at another model's probabilities, row by row."""
        by_form: dict[int, Any] = {}
        begin = []
        for coin in coins:
            if not (coin.form.columns and id(coin.form) in by_form):
                by_form[id(coin.form)] = self._begin_coin(coin)
            begin.append(by_form[id(coin.form)])
        return begin

    def _begin_coin(self, coin: Coin) -> Any:
        assert self.settings.start is not None
        others = self.settings.start.states(whole=False)
        state = coin.form.begin(coin.rows, None)
        if coin.name not in others:
            return state
        other, form = self.settings.start.forms[coin.name], coin.form
        if form.columns and type(other) is type(form) and other.columns == form.columns:
            adopted = form.adopted(others[coin.name], coin.rows)
            if adopted is not None:
                return adopted
        known = other.probabilities(others[coin.name], coin.rows, coin.name)
        return form.starting_at(state, coin.rows, known)


def _typical(model: Model, encoded: EncodedLog) -> dict[str, dict[str, pl.Series]]:
    """What the learned priors of rows depend on, by coin; and how often they were shown, without
    which that of two logs cannot be joined."""
    found: dict[str, dict[str, pl.Series]] = {}
    known: dict[Any, dict[str, pl.Series]] = {}  # coins by the same key have the same rows
    for number, (coin, form) in enumerate(model.forms.items()):
        rows = encoded.rows[number]
        prior = form.learned_prior(rows.keys)
        names = () if prior is None else prior.typical(rows.keys)
        if EXPOSURE in names:
            names = (*names, PAGES)
        if names and IMPRESSIONS not in names:
            names = (*names, IMPRESSIONS)
        if names:
            same = (encoded.plan.coins[number].codes, names)
            if same not in known:
                known[same] = row_averages(encoded, coin, number, rows.keys, names)
            found[coin] = known[same]
    return found


def _coins_of(model: Model, encoded: EncodedLog) -> list[Coin]:
    """The coins of a model with the rows that pages have met."""
    forms = model.forms.items()
    return [Coin(name, form, rows) for (name, form), rows in zip(forms, encoded.rows, strict=True)]


@dataclass(frozen=True)
class BuiltPart:
    """A part, but for the places of its rows among those that all parts share."""

    part: Part
    n_dropped: int
    n_floored: int

    @property
    def shared(self) -> dict[int, Rows]:
        """Its rows of global coins, by number."""
        coins = enumerate(self.part.coins)
        return {number: coin.rows for number, coin in coins if number not in self.part.local}

    def placed(self, rows: Mapping[int, SharedRows]) -> Part:
        """The part with its place among all rows, which are added to."""
        return self.part.placed(
            {number: rows[number].add(own) for number, own in self.shared.items()}
        )


def refuse_page_readers(model: Model) -> None:
    """Refuse forms that look at whole pages where a log is fitted part by part."""
    if model.page_readers:
        coin = model.page_readers[0]
        raise ModelError(
            f"The form {model.forms[coin]!r} of '{coin}' reads whole pages, which a fit needs in "
            "memory: read_log(...) a part of this log. The fitted model answers stored logs, too."
        )


def local_coins(model: Model, by_query: bool) -> list[int]:
    """The numbers of coins whose rows live with the pages of their query, each for itself; none
    where partitions have not all pages of a query."""
    keys = model.keys
    return [
        number
        for number, (coin, form) in enumerate(model.forms.items())
        if by_query and form.is_split and "query" in keys[coin]
    ]


def build_part(
    model: Model,
    number: int,
    log: ClickLog,
    local: Sequence[int],
    settings: Settings,
    is_whole: bool = False,
) -> BuiltPart:
    """Encode a partition for a model, and deal with pages that cannot happen; `is_whole` says that
    there are no other pages."""
    build = Builder(model, log, settings, threads=1)
    part = build.part()
    own = range(len(model.forms)) if is_whole else local
    part.number, part.typical = number, dict(_numeric_typical(model, own, build.typical))
    states = build.begun(part)
    part.local = {n: states[n] for n in local}
    return BuiltPart(part, build.n_dropped, build.n_floored)


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


def build_whole(model: Model, log: Partitioned, how: Settings) -> BuiltPart:
    """One part of all partitions, piece by piece: for logs whose rows are met in many of them.

    No row is local to it, and what is typical is known of all rows.
    """
    try:
        return build_from_pieces(
            model, 0, lambda: map(itemgetter(1), all_pieces(log)), (), how, is_whole=True
        )
    except NotJoinableError:  # all pages at once give the same, and take more memory
        pages = [part for part in map(log.partition, range(log.n_partitions)) if part.n_sessions]
        return build_part(model, 0, joined(pages), (), how, is_whole=True)


def blueprint_of(model: Model, augmentation: str) -> Blueprint:
    """What the parts of a fit of this model have in common."""
    forms = list(model.forms.items())
    return Blueprint(forms, lambda plan: model.library(plan, counting=True), augmentation)


def _driver_coins(model: Model, local: Sequence[int], rows: Mapping[int, Rows]) -> list[Coin]:
    """All coins of a fit over parts; those that are local have no rows in one place."""
    coins = []
    by_form: dict[int, Rows] = {}
    for n, (coin, form) in enumerate(model.forms.items()):
        keys = model.keys[coin]
        nothing = Rows(keys, [pl.Series(key, np.zeros(0, np.int64)) for key in keys], 0)
        own = nothing if n in local else rows[n]
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
) -> Problem:
    """The problem of a fit over parts; `rows` are those of the global coins."""
    coins = _driver_coins(model, local, rows)
    begin: list[FormState] | None = None
    if settings.start is not None:
        # Where local coins begin is known to their parts.
        nowhere: Any = None
        shared = [coin for number, coin in enumerate(coins) if number not in local]
        begun = iter(Builder(model, nowhere, settings).begin(shared))
        begin = [None if number in local else next(begun) for number in range(len(coins))]
    forms: list[Any] = list(model.forms.values())
    return Problem(
        parts,
        coins,
        weight,
        model.is_exchangeable,
        local,
        {number: forms[number].pseudo_counts for number in local},
        begin,
    )


def _numeric_typical(
    model: Model, local: Sequence[int], found: Mapping[str, Mapping[str, pl.Series]]
) -> Mapping[int, Mapping[str, Any]]:
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


def build_from_pieces(
    model: Model,
    number: int,
    pieces: Callable[[], Iterator[ClickLog]],
    local: Sequence[int],
    settings: Settings,
    is_whole: bool = False,
) -> BuiltPart:
    """Encode a partition piece by piece, and deal with pages that cannot happen; `is_whole` says
    that there are no other pages.

    Raises
    ------
    NotJoinableError
        When pieces are encoded in ways that do not fit together.
    NothingLeftError
        When no page is left.
    """
    making = _Making(model, local, settings, is_whole)
    if not making.add_all(pieces()):
        # Results that are not to be looked at came late; pages before must know of such things.
        making = _Making(model, local, settings, is_whole, with_missing=True)
        making.add_all(pieces())
    return making.built(number)


class _Making:
    """A part in the making."""

    def __init__(
        self,
        model: Model,
        local: Sequence[int],
        settings: Settings,
        is_whole: bool = False,
        with_missing: bool = False,
    ) -> None:
        self.model, self.local, self.settings = model, local, settings
        self.measured = range(len(model.forms)) if is_whole else local
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
        build = Builder(self.model, log, self.settings, threads=1)
        try:
            part = build.part(self.with_missing)
        except NothingLeftError:
            self.n_dropped += log.n_sources()
            return True
        if build.n_floored and not self.with_missing:
            if self.joined.n_results:
                return False
            self.with_missing = True
        self.n_dropped += build.n_dropped
        self.n_floored += build.n_floored
        self.weight += part.n_pages
        self.constant += part.constant
        encoded = part.expectation.encoded
        places = self.joined.add(encoded)
        names = list(self.model.forms)
        for coin, means in _numeric_typical(self.model, self.measured, build.typical).items():
            # How often each row is shown, and on how many pages it could have been.
            often = row_averages(
                encoded, names[coin], coin, encoded.rows[coin].keys, (IMPRESSIONS, PAGES)
            )
            shown, pages = (often[of].to_numpy().astype(np.float64) for of in (IMPRESSIONS, PAGES))
            averages = self.averages.setdefault(coin, JoinedAverages(tuple(means)))
            averages.add(places[coin], means, shown=shown, pages=pages)
        return True

    def built(self, number: int) -> BuiltPart:
        """The part of all pieces."""
        model, settings = self.model, self.settings
        if not self.joined.n_results:
            raise NothingLeftError(f"No page of partition {number} is possible under {model.name}.")
        encoded = self.joined.encoded()
        library, augmentation = model.library(encoded.plan, True), settings.method.augmentation
        expectation = Expectation(encoded, library, augmentation, self.with_missing, threads=1)
        part = Part(
            _coins_of(model, encoded),
            expectation,
            self.weight,
            self.constant,
            number,
            typical={coin: averages.finish() for coin, averages in self.averages.items()},
        )
        nothing: Any = None
        states = Builder(model, nothing, settings, threads=1).begun(part)
        part.local = {n: states[n] for n in self.local}
        return BuiltPart(part, self.n_dropped, self.n_floored)
