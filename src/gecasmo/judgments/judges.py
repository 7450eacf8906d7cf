"""`Judges`: what clicks say of other judges, to be read by people.

Every number is about pairs that were shown and graded. What clicks leave open of their relevance is
drawn many times over, so that a judge is not blamed for the noise of clicks; what is not known of
the judge, too, and errors that pairs have in common (`possible.py`): that is what intervals tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.judgments.grades import BetaBeliefs, Grading
from gecasmo.judgments.panel import Draws, Heard, Panel, is_checked, said_column
from gecasmo.judgments.possible import Worlds
from gecasmo.judgments.trust import RELEVANCE
from gecasmo.model.fit_pairs import PAIR
from gecasmo.report import Column, TextTable, html_of, printable, wrapped

Floats = NDArray[np.float64]

_MOST_PAIRS = 4_000  # that tables are worked out from
_SHAPE = 0.03  # a share may be off by this because curves of a judge have another shape
_SHOWN = 10  # lines of a table in a terminal
_LEGEND = (
    "agreement: correlation of a judge with relevance by clicks, corrected for the noise of "
    "clicks; 0 is noise, 1 perfect, below 0 inverted. By grade: the mean relevance of the pairs "
    "that a judge "
    "graded so, and the shares of them by grade of ours; with intervals."
)


@dataclass(frozen=True)
class Judges:
    """What clicks say of other judges.

    Attributes
    ----------
    trust : pl.DataFrame
        A row per judge: `judge`, `pairs` that it graded, `shown` (those that clicks tell something
        about), `agreement` (its correlation with relevance on the scale of logits: 0 for noise, 1
        for a perfect judge, negative for an inverted one) from `low` to `high`, and `verdict`.
    calibration : pl.DataFrame
        A row per judge and what it `said`: `pairs`, `shown`, and the mean `relevance` of shown
        pairs from `low` to `high`.
    confusion : pl.DataFrame
        A row per judge, what it `said`, and `grade` of ours: the `share` of shown pairs that
        deserve this grade, from `low` to `high`.
    notes : by judge, what was counted when its grades were read
    shown : the judges whose tables are printed, and whether with shares; of scores without
    """

    trust: pl.DataFrame
    calibration: pl.DataFrame
    confusion: pl.DataFrame
    notes: dict[str, tuple[str, ...]]
    shown: dict[str, bool]

    @classmethod
    def of(
        cls, panel: Panel, grading: Grading, level: float, draws: Draws, n_coins: int = 1
    ) -> Judges:
        """Hold each judge of a panel against clicks; relevance is a product of so many coins."""
        cuts = np.array(grading.cuts)
        trust, calibration, confusion = [], [], []
        for one in panel.judges:
            agreement, by_grade, by_both = _held_against(one, panel, cuts, level, draws, n_coins)
            trust.append(agreement)
            calibration += by_grade
            confusion += by_both
        numbers = dict.fromkeys(("share", "relevance", "agreement", "low", "high"), pl.Float64)
        return cls(
            pl.DataFrame(trust, schema_overrides=numbers),
            pl.DataFrame(calibration, schema_overrides=numbers),
            pl.DataFrame(confusion, schema_overrides=numbers),
            {one.judge.name: one.judge.notes for one in panel.judges},
            {one.judge.name: not one.judge.is_score for one in panel.judges if one.is_told},
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        frames = {"trust": self.trust, "calibration": self.calibration}
        told = {name: frame.to_dicts() for name, frame in frames.items()}
        return {**told, "confusion": self.confusion.to_dicts(), "notes": self.notes}

    def _blocks(self) -> Iterator[TextTable | list[str]]:
        """Tables, and remarks between them."""
        yield self._trust_table()
        for judge in self.trust["judge"]:
            if self.notes[judge]:
                yield [f"{printable(judge)}: {note}" for note in self.notes[judge]]
            if judge in self.shown:
                yield self._grade_table(judge, with_shares=self.shown[judge])

    def __str__(self) -> str:
        texts = [
            str(block)
            if isinstance(block, TextTable)
            else "\n".join(line for note in block for line in wrapped(note, "  ", "  "))
            for block in self._blocks()
        ]
        return "\n\n".join([*texts, "\n".join(wrapped(_LEGEND))])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_of(*self._blocks(), _LEGEND)

    def _trust_table(self) -> TextTable:
        frame = self.trust
        return TextTable(
            [
                Column("judge", list(frame["judge"]), is_text=True, least=6, most=24),
                Column("pairs", [f"{n:,}" for n in frame["pairs"]]),
                Column("shown", [f"{n:,}" for n in frame["shown"]]),
                Column("agreement", [_number(value) for value in frame["agreement"]]),
                Column("interval", _intervals(frame), belongs_left=True),
                Column("", list(frame["verdict"]), is_text=True, least=20, wraps=True),
            ],
            "judges against clicks",
        )

    def _grade_table(self, judge: str, with_shares: bool) -> TextTable:
        own = self.calibration.filter(pl.col("judge") == judge)
        shares = self.confusion.filter(pl.col("judge") == judge)
        columns = [
            Column(judge, list(own["said"]), is_text=True, least=6, most=20),
            Column("pairs", [f"{n:,}" for n in own["pairs"]]),
            Column("shown", [f"{n:,}" for n in own["shown"]]),
            Column("relevance", [_number(value) for value in own["relevance"]]),
            Column("interval", _intervals(own), belongs_left=True),
        ]
        for grade in shares["grade"].unique().sort() if with_shares else ():
            some = shares.filter(pl.col("grade") == grade)
            cells = [
                f"{_number(share)} ({ends})" if share is not None else "-"
                for share, ends in zip(some["share"], _intervals(some), strict=True)
            ]
            columns.append(Column(f"grade {grade}", cells))
        return TextTable(columns, f"what {judge} said, and what clicks say about these pairs")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _intervals(frame: pl.DataFrame) -> list[str]:
    ends = frame.select("low", "high").rows()
    return ["-" if low is None else f"{low:.2f} to {high:.2f}" for low, high in ends]


def _held_against(
    one: Heard, panel: Panel, cuts: Floats, level: float, draws: Draws, n_coins: int
) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """How a judge agrees with clicks, by what it said, and by that and our grades."""
    judge, said = one.judge, panel.sample[said_column(one.number)]
    graded = panel.sample.filter(said.is_not_null())
    n_shown = np.bincount(said.drop_nulls().to_numpy(), minlength=len(judge.labels))
    n_pairs = np.bincount(judge.frame["grade"].to_numpy(), minlength=len(judge.labels))
    about = {"judge": judge.name}
    trust = {**about, "pairs": len(judge.frame), "shown": len(graded)}
    trust |= _agreement(one, level) | {"verdict": one.verdict}
    if len(graded) > _MOST_PAIRS:
        graded = graded.sample(_MOST_PAIRS, seed=2)
    # As if it were the only judge; pairs of a query are neighbours.
    graded = graded.sort([name for name in PAIR if name in graded.columns])
    worlds = np.zeros((0, 1))
    if len(graded):
        only = replace(panel, heard=(one._replace(after=one.alone, follows=None),))
        worlds = Worlds.of(graded, only, draws, n_coins).relevances()
    ours = np.searchsorted(cuts, worlds, side="right")
    grade = graded[said_column(one.number)].to_numpy()
    tail = (1 - level) / 2
    by_grade, by_both = [], []
    for number, label in enumerate(judge.labels):
        some = grade == number
        n = max(int(n_shown[number]), 1)
        told = [worlds[some], *(ours[some] == g for g in range(len(cuts) + 1))]
        rows: list[dict[str, float | None]] = []
        value: list[float | None] = []
        for place, each in enumerate(told):
            if not len(each):
                value.append(None)
                rows.append({"low": None, "high": None})
                continue
            means = each.mean(axis=0)
            low, high = np.quantile(means, (tail, 1 - tail))
            if place:  # shares are of whole pairs
                low, high = max(low - _SHAPE, 0.0), min(high + _SHAPE, 1.0)
                low, high = np.floor(low * n) / n, np.ceil(high * n) / n
            value.append(float(means.mean()))
            rows.append({"low": float(low), "high": float(high)})
        counts = {"pairs": int(n_pairs[number]), "shown": int(n_shown[number])}
        by_grade.append({**about, "said": label, **counts, "relevance": value[0], **rows[0]})
        by_both += [
            {**about, "said": label, "grade": g, "share": value[g + 1], **rows[g + 1]}
            for g in range(len(cuts) + 1)
        ]
    return trust, by_grade, by_both


def _agreement(one: Heard, level: float) -> dict[str, float | None]:
    """The correlation ratio of what a judge says with logits of relevance, with its sign."""
    if one.alone is None:
        return dict.fromkeys(("agreement", "low", "high"))
    # Words have no order of their own, so that none of them is inverted.
    found = one.alone.agreements if one.judge.is_ordered else np.abs(one.alone.agreements)
    low, high = np.quantile(found, ((1 - level) / 2, (1 + level) / 2))
    return {"agreement": float(np.median(found)), "low": float(low), "high": float(high)}


# -- pairs to look at --------------------------------------------------------------------------
def disagreements(panel: Panel, frames: Iterable[pl.DataFrame], n: int) -> pl.DataFrame:
    """The pairs where clicks and a trusted judge are farthest apart, in standard deviations.

    `frames` have what clicks alone say of pairs, and what judges said.
    """
    from scipy.special import digamma, polygamma

    found = []
    for frame in frames:
        keys = [name for name in ("query", "doc") if name in frame.columns]
        shown = frame.filter(is_checked(frame))
        for one in panel.judges:
            if one.alone is None or one.alone.is_noise:
                continue
            own = shown.filter(pl.col(said_column(one.number)).is_not_null())
            belief, centre, width = panel.of_judge_alone(one)
            grade = own[said_column(one.number)].to_numpy()
            beliefs = BetaBeliefs.of(own)
            strength = np.where(beliefs.is_certain, 1e9, beliefs.strength)
            inside = np.clip(beliefs.mean, 1e-9, 1 - 1e-9)
            a, b = inside * strength, (1 - inside) * strength
            gap = np.abs(digamma(a) - digamma(b) - centre[grade])
            apart = gap / np.sqrt(polygamma(1, a) + polygamma(1, b) + width[grade] ** 2)
            labels = pl.Series("said", [one.judge.labels[k] for k in grade], dtype=pl.String)
            told = own.select(*keys, "relevance", "low", "high", "examinations").with_columns(
                labels,
                pl.lit(one.judge.name).alias("judge"),
                pl.Series("by_judge", (belief @ RELEVANCE)[grade], dtype=pl.Float64),
                pl.Series("apart", apart, dtype=pl.Float64),
            )
            names = ("relevance", "low", "high", "examinations", "apart")
            told = told.select("judge", *keys, "said", "by_judge", *names)
            found.append(told.rename({"relevance": "by_clicks"}))
    if not found:
        return pl.DataFrame(schema={"judge": pl.String, "apart": pl.Float64})
    keys = [name for name in ("query", "doc") if name in found[0].columns]
    falling = [True, *(False for _ in keys), False]
    return pl.concat(found).sort(["apart", *keys, "judge"], descending=falling).head(n)


def disagreements_table(frame: pl.DataFrame, most: int | None = None) -> TextTable:
    """Lay them out for people."""
    rows = frame.head(most or len(frame))
    columns = [Column("judge", list(rows["judge"]), is_text=True, least=6, most=20)]
    for name in ("query", "doc"):
        if name in rows.columns:
            cells = list(map(printable, rows[name]))
            columns.append(Column(name, cells, is_text=True, least=8, most=24))
    if len(rows):
        columns += [
            Column("said", list(rows["said"]), is_text=True),
            Column("means", [_number(value) for value in rows["by_judge"]]),
            Column("clicks", [_number(value) for value in rows["by_clicks"]]),
            Column("interval", _intervals(rows), belongs_left=True),
            Column("examined", [f"{value:,.0f}" for value in rows["examinations"]]),
            Column("apart", [f"{value:.1f}" for value in rows["apart"]]),
        ]
    title = "where judges and clicks disagree most (apart: in standard deviations)"
    return TextTable(columns, title, len(frame) - len(rows))
