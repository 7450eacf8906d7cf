"""Judgments of more pairs than memory holds: graded part by part, kept in files until written."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.forms import Table
from gecasmo.judgments.counting import Counted, Told
from gecasmo.judgments.errors import JudgmentsError
from gecasmo.judgments.grading import Grading
from gecasmo.judgments.judged import Judgments
from gecasmo.judgments.pairs import relevance_frame
from gecasmo.judgments.question import Question
from gecasmo.judgments.verdicts import JUDGED
from gecasmo.logs.joining import joined
from gecasmo.model.streaming import is_stored, overlap, part_view, parted_coins

if TYPE_CHECKING:
    from gecasmo.judgments.formats import Written
    from gecasmo.judgments.worth import WorthJudging
    from gecasmo.model.base import Model


class Scratch:
    """A temporary folder that is gone with this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="gecasmo-judgments-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class Sources:
    """What is to be judged, by the number of the part; all pairs of a query are in one."""

    model: Model
    pairs: Any  # a stored log, or None for the rows of the fit
    n_parts: int

    def __iter__(self) -> Iterator[tuple[int, Model, Any]]:
        for number in range(self.n_parts):
            if self.pairs is not None:
                pages = self.pairs.partition(number)
                if pages.n_results:
                    yield number, part_view(self.model, number, self.n_parts), pages
                continue
            view = part_view(self.model, number, self.n_parts)
            states = view.states(whole=False)
            own = set(parted_coins(self.model)) & set(self.model.relevance)
            if any(len(states[coin].rows) for coin in own):
                yield number, view, None


def in_parts(model: Model, pairs: Any) -> Sources | None:
    """The parts in which pairs have to be judged, or None where it can be done at once."""
    if is_stored(pairs):
        return Sources(model, pairs, pairs.n_partitions)
    if pairs is not None:
        return None
    own = {coin: table for coin, table in parted_coins(model).items() if coin in model.relevance}
    if not own:
        return None
    by_query = [
        coin
        for coin in model.relevance
        if isinstance(model.forms[coin], Table) and "query" in model.keys[coin]
    ]
    if set(by_query) != set(own):  # others have all their rows in memory anyway
        return None
    return Sources(model, None, max(table.n_parts for table in own.values()))


@dataclass(frozen=True, repr=False)
class PartedJudgments(Told):
    """What `judge` found, in files: graded pairs, all of a query together, sorted within a part.

    Attributes are those of `Judgments`; `frame` reads everything into memory, and `parts()` one
    part after the other. Cut points of "quantile" are exact for up to 10 million pairs, and right
    to a millionth beyond. The files are temporary, and gone with this object.
    """

    model: str
    relevance_is: str
    grading: Grading
    level: float
    max_width: float | None
    min_examinations: float
    min_probability: float
    min_order: float
    why_no_interval: str
    n_given: int
    n_undecided: int
    remarks: tuple[str, ...]
    totals: Counted
    numbers: tuple[int, ...]  # of the parts that have pairs
    n_parts: int
    folder: Scratch = field(compare=False)

    @property
    def counted(self) -> Counted:
        return self.totals

    def parts(self) -> Iterator[Judgments]:
        """The judgments of each part, as judgments in memory."""
        for number in self.numbers:
            frame = pl.read_parquet(_graded(self.folder, number))
            cuts = _cuts(self.folder, number)
            by_query = pl.read_parquet(cuts) if cuts.exists() else None
            yield Judgments(
                frame,
                self.model,
                self.relevance_is,
                replace(self.grading, by_query=by_query),
                self.level,
                self.max_width,
                self.min_examinations,
                self.min_probability,
                self.min_order,
                self.why_no_interval,
                remarks=self.remarks,
            )

    @cached_property
    def frame(self) -> pl.DataFrame:
        """All pairs in memory, which costs what they take."""
        return pl.concat([part.frame for part in self.parts()])

    @property
    def judged(self) -> pl.DataFrame:
        """All pairs that have a grade, in memory."""
        return pl.concat([part.frame.filter(pl.col("verdict") == JUDGED) for part in self.parts()])

    def write(
        self,
        path: Any,
        format: str | None = None,
        *,
        features: Any = None,
        query: str | None = None,
        ids: str = "refuse",
        name: str | None = None,
        ratings: str = "grade",
        include: str = "judged",
    ) -> Written:
        """Write the judgments for those who read them, as `Judgments.write` does."""
        from gecasmo.judgments.formats import Options, write_parted

        options = Options(features, query, ids, name, ratings, include)
        return write_parted(self, path, format, options)

    def worth_judging(self, n: int = 20, *, log: Any = None) -> WorthJudging:
        """The pairs and queries most worth judging by hand, as `Judgments.worth_judging` does.

        The log that tells the traffic may be a stored one.
        """
        from gecasmo.judgments.worth import most_worthy, worth_judging

        found = []
        for number, part in zip(self.numbers, self.parts(), strict=True):
            pages = log
            if is_stored(log):
                near = range(*overlap(number, number + 1, self.n_parts, log.n_partitions))
                pages = joined([log.partition(each) for each in near])
            found.append(worth_judging(part, n, pages))
        return most_worthy(found, n)

    def to_dict(self, rows: bool = False) -> dict[str, Any]:
        """The summary, ready for JSON; with `rows=True` also every pair."""
        summary = self.summary()
        return {**summary, "judgments": self.frame.to_dicts()} if rows else summary


def judge_parts(model: Model, sources: Sources, question: Question) -> PartedJudgments:
    """Judge part by part: first the relevance of all pairs, then, with the cut points, grades."""
    folder = Scratch()
    numbers = list[int]()

    def seen() -> Iterator[Any]:
        for number, view, pairs in sources:
            frame = relevance_frame(view, pairs, question.level)
            numbers.append(number)
            frame.write_parquet(_graded(folder, number))
            yield question.seen(frame)

    cuts = question.cuts(seen())
    if not numbers:
        raise JudgmentsError(
            f"{model.name} has no pairs to be judged: its tables and the log are empty."
        )
    total: Judgments | None = None
    counted = Counted()
    for number in numbers:
        frame = pl.read_parquet(_graded(folder, number))
        part = question.judgments(model, frame, cuts)
        part.frame.write_parquet(_graded(folder, number))
        if part.grading.by_query is not None:
            part.grading.by_query.write_parquet(_cuts(folder, number))
        counted += part.counted
        total = part if total is None else _together(total, part)
    assert total is not None
    return PartedJudgments(
        total.model,
        total.relevance_is,
        replace(total.grading, by_query=None),
        total.level,
        total.max_width,
        total.min_examinations,
        total.min_probability,
        total.min_order,
        total.why_no_interval,
        total.n_given,
        total.n_undecided,
        total.remarks,
        counted,
        tuple(numbers),
        sources.n_parts,
        folder,
    )


def _together(one: Judgments, other: Judgments) -> Judgments:
    """What is told of two parts; the frame is that of one."""
    reasons = [why for why in (one.why_no_interval, other.why_no_interval) if why]
    # That forms on features have none is only the reason if it is so for all pairs.
    reasons.sort(key=lambda why: "features" in why)
    return replace(
        one,
        why_no_interval=reasons[0] if reasons else "",
        n_given=one.n_given + other.n_given,
        n_undecided=one.n_undecided + other.n_undecided,
    )


def _graded(folder: Scratch, number: int) -> Path:
    return folder.path / f"part-{number:05d}.parquet"


def _cuts(folder: Scratch, number: int) -> Path:
    return folder.path / f"cuts-{number:05d}.parquet"
