"""Clicks first, then judges: what is believed of the pairs that either of them has seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import GecasmoError
from gecasmo.forms.parted_table import part_of
from gecasmo.judgments.grade_tables import Judge, read_judges
from gecasmo.judgments.grades import JudgmentsError
from gecasmo.judgments.judged import KeptFrames, said_name
from gecasmo.judgments.pairs import relevance_draws, relevance_frame
from gecasmo.judgments.panel import Panel, said_column, with_grades
from gecasmo.judgments.trust import N_DRAWS
from gecasmo.model.fit_pairs import PAIR
from gecasmo.model.log_parts import part_view
from gecasmo.report import counted

if TYPE_CHECKING:
    from gecasmo.judgments.judge import PairParts
    from gecasmo.model.base import Model


class Hearing:
    """What clicks and judges say, part by part, and what was learned of the judges.

    Pairs are those of the parts; where these are the rows of the fit, also those that judges have
    graded.
    """

    def __init__(
        self,
        parts: PairParts,
        grades_from: Any,
        level: float,
        rows: KeptFrames,
        features: Any = None,
    ) -> None:
        self.level, self.rows, self.features = level, rows, features
        self.judges: list[Judge] = []
        self.numbers: list[int] = []
        self.remarks: list[str] = []
        graded = []
        for number, frame in self._frames(parts, grades_from):
            said = with_grades(frame, self.judges)
            self.numbers.append(number)
            rows[said_name(number)] = said
            names = [said_column(number) for number in range(len(self.judges))]
            graded.append(said.filter(pl.any_horizontal(pl.col(names).is_not_null())))
        self.panel = None
        if graded:
            draws = partial(possible_pairs, parts.model, features)
            self.panel = Panel.learned(self.judges, pl.concat(graded), draws)

    def frames(self) -> Iterator[tuple[int, pl.DataFrame]]:
        """The pairs of each part as clicks and judges have them together."""
        for number in self.numbers:
            assert self.panel is not None
            yield number, self.panel.blended(self.rows[said_name(number)], self.level)

    def _frames(self, parts: PairParts, grades_from: Any) -> Iterator[tuple[int, pl.DataFrame]]:
        """The pairs of each part as clicks have them, with those that only judges know."""
        met = set()
        for number, view, asked in parts:
            frame = relevance_frame(view, asked, self.level, self.features)
            if not self.judges:
                like = {key: frame.schema[key] for key in PAIR if key in frame.columns}
                self.judges = read_judges(grades_from, like)
            met.add(number)
            if parts.pairs is None:
                frame = self._with_others(view, frame, parts.n_parts, number)
            yield number, frame
        if parts.pairs is None and parts.in_files:
            for number in sorted(set(range(parts.n_parts)) - met):
                frame = self._with_others(
                    part_view(parts.model, number, parts.n_parts),
                    frame.clear(),
                    parts.n_parts,
                    number,
                )
                if len(frame):
                    yield number, frame

    def _with_others(
        self, view: Model, frame: pl.DataFrame, n_parts: int, number: int
    ) -> pl.DataFrame:
        """Add the pairs of a part that judges have graded and the fit has no row for."""
        keys = [name for name in PAIR if name in frame.columns]
        every = pl.concat([judge.frame.select(keys) for judge in self.judges]).unique(
            maintain_order=True
        )
        if n_parts > 1:
            every = every.filter(pl.Series(part_of(every["query"], n_parts) == number))
        others = every.join(frame, on=keys, how="anti", maintain_order="left")
        if others.is_empty():
            return frame
        try:
            added = relevance_frame(view, others, self.level, self.features)
        except GecasmoError as problem:
            self.remarks.append(
                f"{counted(len(others), 'graded pair')} that no page shows cannot be judged: "
                f"{problem}"
            )
            return frame
        return pl.concat([frame, added.select(frame.columns)])


def possible_pairs(
    model: Model, features: Any, pairs: pl.DataFrame
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What clicks might say of pairs: means and deviations, `[pair, draw]`."""
    try:
        return relevance_draws(model, pairs, features, N_DRAWS)
    except JudgmentsError:
        # Pairs were judged with columns that are gone by now; then each errs for itself.
        shape = len(pairs), N_DRAWS
        told = (pairs[name].cast(pl.Float64).to_numpy() for name in ("relevance", "spread"))
        mean, spread = (np.broadcast_to(own[:, None], shape) for own in told)
        return mean, spread


def unknown_pairs(
    model: Model, level: float, features: Any, judges: Sequence[Judge], pairs: pl.DataFrame
) -> pl.DataFrame:
    """What clicks and judges say of pairs that neither has seen, perhaps."""
    return with_grades(relevance_frame(model, pairs, level, features), judges)
