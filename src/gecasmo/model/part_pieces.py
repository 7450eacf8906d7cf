"""Make the part of a large partition from its pieces, so that memory need not hold all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gecasmo.compiler.symmetry import has_exchangeable_states
from gecasmo.encoding import EncodedLog
from gecasmo.encoding.averages import IMPRESSIONS, PAGES, row_averages
from gecasmo.errors import NothingLeftError
from gecasmo.estimation import Coin, Expectation, Problem
from gecasmo.estimation.parts.joined_averages import JoinedAverages
from gecasmo.estimation.parts.joining import JoinedPieces, NotJoinableError
from gecasmo.logs import ClickLog
from gecasmo.model.fitting import Builder
from gecasmo.model.parts import BuiltPart, Settings, numeric_typical, part_of, shared_rows

if TYPE_CHECKING:
    from gecasmo.model.base import Model


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
