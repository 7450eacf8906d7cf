"""nDCG of rankers by what is believed of pairs, with an interval.

Gains are relevances. Judges say something of nearly every pair, clicks correct them where there are
clicks, and what is left open of pairs and judges is drawn many times over (`possible.py`). Each
draw is a world, in which every run has its nDCG; the middle of these is told, and their spread is
the interval. Runs meet the same worlds, so that their difference is known better than either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import option
from gecasmo.judgments.grade_tables import read_run
from gecasmo.judgments.grades import JudgmentsError
from gecasmo.judgments.panel import Panel, is_checked
from gecasmo.judgments.possible import Worlds, places_in
from gecasmo.report import Column, TextTable, wrapped

if TYPE_CHECKING:
    from gecasmo.judgments.judged import Judgments

Floats = NDArray[np.float64]

_LEGEND = (
    "Of the first places so many are known from clicks, from judges alone, or from neither. The "
    "second interval is for other queries of this kind, the first for these."
)


@dataclass(frozen=True)
class RunQuality:
    """nDCG of runs.

    Attributes
    ----------
    runs : pl.DataFrame
        A row per run: `run`, `ndcg` from `low` to `high` for these queries, and from `low_others`
        to `high_others` for others like them; numbers of `queries`; and of the first places the
        shares known `from_clicks`, `from_judges` alone, and from `neither`.
    differences : pl.DataFrame
        A row per later run: `run`, `against` the first, `difference`, `low`, `high`.
    queries : pl.DataFrame
        A row per run and query: `ndcg`, `low`, `high`.
    at : how many places count
    level : of the intervals
    """

    runs: pl.DataFrame
    differences: pl.DataFrame
    queries: pl.DataFrame
    at: int
    level: float

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, without queries."""
        return {
            "at": self.at,
            "level": self.level,
            "runs": self.runs.to_dicts(),
            "differences": self.differences.to_dicts(),
        }

    def __str__(self) -> str:
        frame = self.runs
        columns = [
            Column("run", list(frame["run"]), is_text=True, least=6, most=24),
            Column("nDCG", [f"{value:.3f}" for value in frame["ndcg"]]),
            Column("these queries", _ends(frame, "low", "high"), belongs_left=True),
            Column("others", _ends(frame, "low_others", "high_others"), belongs_left=True),
            Column("queries", [f"{n:,}" for n in frame["queries"]]),
        ]
        for name in ("clicks", "judges", "neither"):
            own = "neither" if name == "neither" else f"from_{name}"
            columns.append(Column(name, [f"{value:.0%}" for value in frame[own]]))
        blocks = [str(TextTable(columns, f"nDCG@{self.at}, gains are relevances"))]
        if len(self.differences):
            lines = [
                f"{run} - {against}: {gap:+.3f} ({low:+.3f} to {high:+.3f})"
                for run, against, gap, low, high in self.differences.rows()
            ]
            blocks.append("\n".join(lines))
        return "\n\n".join([*blocks, "\n".join(wrapped(_LEGEND))])

    __repr__ = __str__


def _ends(frame: pl.DataFrame, low: str, high: str) -> list[str]:
    return [f"{a:.3f} to {b:.3f}" for a, b in frame.select(low, high).rows()]


def ndcg(
    judgments: Judgments,
    runs: Any,
    at: int,
    said: Iterable[pl.DataFrame],
    ask: Callable[[pl.DataFrame], pl.DataFrame],
    panel: Panel | None,
) -> RunQuality:
    """See `Judgments.ndcg`; `said` has what clicks and judges say of pairs, `ask` of others."""
    if isinstance(at, bool) or not isinstance(at, (int, np.integer)) or at < 1:
        raise JudgmentsError(f"{option('at', at)}: how many places count, at least 1.")
    said = iter(said)
    first = next(said)
    if "query" not in first.columns:
        raise JudgmentsError("These judgments know no queries, so there is no nDCG of a run.")
    like = {key: first.schema[key] for key in ("query", "doc")}
    named = runs if _are_runs(runs) else {_name(runs): runs}
    read = {str(name): read_run(run, like, str(name)) for name, run in named.items()}
    # A run is only asked about the queries that all have.
    every = [run.select("query").unique() for run in read.values()]
    common = every[0]
    for other in every[1:]:
        common = common.join(other, on="query", how="semi")
    if common.is_empty():
        raise JudgmentsError("The runs have no query in common.")
    pool = [first.join(common, on="query", how="semi")]
    pool += [frame.join(common, on="query", how="semi") for frame in said]
    needed = ["query", "doc", "relevance", "spread", "low", "examinations"]
    needed += [name for name in first.columns if name.startswith("*judge")]
    known = pl.concat(pool).select(needed)
    asked = pl.concat([run.select("query", "doc") for run in read.values()]).unique()
    asked = asked.join(common, on="query", how="semi").join(known, on=["query", "doc"], how="anti")
    if len(asked):
        known = pl.concat([known, ask(asked.sort("query", "doc")).select(known.columns)])
    known = known.sort("query", "doc")
    if known["spread"].null_count():
        raise JudgmentsError(
            f"{known['spread'].null_count():,} pairs of these queries have no interval, so there "
            "is none of nDCG either. Fit by EM that converges, with tables or forms that have them."
        )
    _check_known(known, panel)
    assert judgments.draws is not None
    possible = Worlds.of(known, panel, judgments.draws, judgments.n_coins)
    query = possible.query
    places = {}
    for name, run in read.items():
        joined = known.join(run, on=["query", "doc"], how="left", maintain_order="left")
        places[name] = joined["place"]
        possible.hear(places_in(query, places[name]))
    worlds = possible.relevances(with_level=False)
    ideal = _ideal(query, worlds, at)
    rows, by_query = [], []
    values: dict[str, Floats] = {}
    names = known["query"].unique(maintain_order=True)
    tail = (1 - judgments.level) / 2
    for name, place in places.items():
        gained = _gained(query, place.fill_null(at + 1).to_numpy(), worlds, at)
        own = gained / np.maximum(ideal, 1e-12)
        mean = own.mean(axis=0)
        values[name] = mean
        low, centre, high = np.quantile(mean, (tail, 0.5, 1 - tail))
        between = np.sqrt(float(own.mean(axis=1).var()) / len(own))
        others = mean + between * np.random.default_rng(45).normal(size=mean.size)
        others = np.quantile(np.clip(others, 0.0, 1.0), (tail, 1 - tail))
        top = (place <= at).fill_null(False)
        rows.append(
            {
                "run": name,
                **{"ndcg": float(centre), "low": float(low), "high": float(high)},
                "low_others": float(min(others[0], low)),
                "high_others": float(max(others[1], high)),
                "queries": len(own),
                **_known_from(known.filter(top), panel),
            }
        )
        ends = np.quantile(own, (tail, 1 - tail), axis=1)
        by_query.append(
            pl.DataFrame([names.alias("query")]).with_columns(
                pl.lit(name).alias("run"),
                pl.Series("ndcg", np.median(own, axis=1)),
                pl.Series("low", ends[0]),
                pl.Series("high", ends[1]),
            )
        )
    against = next(iter(read))
    gaps = []
    for name in list(read)[1:]:
        gap = values[name] - values[against]
        low, high = np.quantile(gap, (tail, 1 - tail))
        gaps.append((name, against, float(np.median(gap)), float(low), float(high)))
    schema = ["run", "against", "difference", "low", "high"]
    types = dict(zip(schema, (pl.String, pl.String, *[pl.Float64] * 3), strict=True))
    differences = pl.DataFrame(gaps, schema=types, orient="row")
    queries = pl.concat(by_query).select("run", "query", "ndcg", "low", "high")
    return RunQuality(pl.DataFrame(rows), differences, queries, int(at), judgments.level)


def _are_runs(runs: Any) -> bool:
    """Whether it is a dictionary of runs, not of columns."""
    return isinstance(runs, Mapping) and "doc" not in runs


def _name(run: Any) -> str:
    from pathlib import Path

    return Path(run).name.split(".")[0] if isinstance(run, str | Path) else "run"


def _check_known(known: pl.DataFrame, panel: Panel | None) -> None:
    """Refuse runs whose queries nobody has seen."""
    if is_checked(known).any() or (panel is not None and panel.trusted(known).any()):
        return
    queries = known["query"].n_unique()
    of = "the query" if queries == 1 else f"the {queries:,} queries"
    raise JudgmentsError(
        f"No page shows a pair of {of} of the run, and no trusted judge has graded one, so that "
        "its nDCG cannot be known."
    )


def _gained(query: NDArray[np.int64], place: NDArray[Any], worlds: Floats, at: int) -> Floats:
    """Discounted gains by query and world of the first places."""
    counts = place <= at
    total = np.zeros((query.max() + 1, worlds.shape[1]))
    gain = worlds[counts] / np.log2(place[counts] + 1.0)[:, None]
    np.add.at(total, query[counts], gain)
    return total


def _ideal(query: NDArray[np.int64], worlds: Floats, at: int) -> Floats:
    """The same if the best of each world come first."""
    start = np.flatnonzero(np.diff(query, prepend=-1))
    total = np.zeros((len(start), worlds.shape[1]))
    discount = 1 / np.log2(np.arange(at) + 2.0)
    for number, (first, last) in enumerate(zip(start, [*start[1:], len(query)], strict=True)):
        best = -np.sort(-worlds[first:last], axis=0)[:at]
        total[number] = discount[: len(best)] @ best
    return total


def _known_from(top: pl.DataFrame, panel: Panel | None) -> dict[str, float]:
    n = max(len(top), 1)
    clicks = is_checked(top).to_numpy()
    judges = np.zeros(len(top), bool) if panel is None else panel.trusted(top)
    return {
        "from_clicks": float(clicks.sum() / n),
        "from_judges": float((judges & ~clicks).sum() / n),
        "neither": float((~judges & ~clicks).sum() / n),
    }
