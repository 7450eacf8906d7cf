"""How much better the best pages are than those shown now: a lift that can be relied on.

The order that is best by a log is too good to be true by the same log: whatever was overvalued by
chance is what an optimiser picks. So the log is cut in two. Orders from either half are valued by
the other, which knows nothing of that choice. There rows are hardly drawn towards what is usual:
that would make differences smaller which the first half has chosen for a reason.

Orders from half a log are worse than those from all of it. So what the pages will really bring lies
between this lift, and the one that the whole log promises of its own choice: a little above the
middle of the two. Where exactly is not known (a triangle over what lies between), and the log could
have been another one, by chance: a half is about as sure of a lift as its draws are alike, and
since both ends err together, the middle is no surer. Draws are a little more alike than lifts are
near the truth: they know nothing of which pages another log would have chosen.
`benchmarks/pages.py` shows how often the interval holds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.forms import TableState
from gecasmo.logs import ClickLog
from gecasmo.model.beliefs import drawn_states
from gecasmo.model.log_parts import in_memory
from gecasmo.pages.candidates import Candidates, evidence
from gecasmo.pages.chains import page_log
from gecasmo.pages.outlook import Foretold
from gecasmo.pages.worth import Worth

if TYPE_CHECKING:
    from gecasmo.model.base import Model
    from gecasmo.pages.best_page import Search

Floats = NDArray[np.float64]

# Flips that the prior of a row is worth where a half values what the other has chosen.
_PRIOR = 2.0
# Draws that tell how sure a half is, at least.
_LEAST_DRAWS = 40
# Where the truth lies between the cross-fitted lift (0) and that of the same log (1), on average of
# simulated logs, and by how much lifts are further from the truth than draws from each other;
# chosen by other logs than those by which the benchmark tells how often the interval holds.
_BETWEEN = 0.6
_WIDER = 1.2


@dataclass(frozen=True)
class Promise:
    """The lift of the best pages over those shown now that is to be expected, a page.

    Attributes
    ----------
    lift, low, high : queries count by their pages in the log
    level : of the interval
    crossed : the cross-fitted lift, of orders from one half of the log by the other half
    plug_in : the lift of the orders from all of the log, by that log
    queries : how many queries it is about: those whose page is known, and that both halves have
    """

    lift: float
    low: float
    high: float
    level: float
    crossed: float
    plug_in: float
    queries: int

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"To be expected: {self.lift:+.4f} a page ({self.low:+.4f} to {self.high:+.4f}, level "
            f"{self.level:.0%}, {self.queries:,} queries). Orders from one half of the log bring "
            f"{self.crossed:+.4f} by the other half; those from all of it {self.plug_in:+.4f} by "
            "the same log. This holds if users are as the model says: compare models before you "
            "rely on it, and try new pages on some users first."
        )


def promised(
    model: Model,
    given: Any,
    candidates: Candidates,
    worth: Worth,
    how: Search,
    lifts: pl.Series,
    samples: int,
    level: float,
) -> Promise | None:
    """Cross-fit the lift of the best pages of candidates that are shown now in some order; `lifts`
    are those of each query by the whole log. None if no such query has pages in both halves."""
    log = in_memory(given)
    halves = log.split(0.5, seed=how.seed)
    known = _queries_of_both(candidates, halves, how)
    if not known.any():
        return None
    models = [_fitted(model, half) for half in halves]
    candidates = candidates.kept(np.repeat(known, candidates.counts))
    traffic = _traffic(candidates, log)
    found = []
    for mine, other in ((0, 1), (1, 0)):
        judge = _unshrunk(models[other])
        draws = max(samples, _LEAST_DRAWS)
        found.append(_lift(models[mine], judge, candidates, worth, how, draws) @ traffic)
    crossed = float(np.mean([own[0] for own in found]))
    spread = float(np.sqrt(sum(own[1:].var(ddof=1) for own in found))) / 2
    plug_in = float(lifts.filter(pl.Series(known)).to_numpy() @ traffic)
    lift = crossed + _BETWEEN * (plug_in - crossed)
    # The standard deviation of a triangle is its width by root 24.
    error = float(np.hypot(_WIDER * spread, (plug_in - crossed) / np.sqrt(24)))
    z = NormalDist().inv_cdf((1 + level) / 2)
    low, high = lift - z * error, lift + z * error
    return Promise(lift, low, high, level, crossed, plug_in, len(candidates.queries))


def _unshrunk(model: Model) -> Model:
    """The model with rows as its log says, with next to nothing of learned priors."""
    twin = model.copy()
    twin._structures, twin._libraries = model._both_structures(), model._libraries
    states = dict(model.states())
    for coin, state in states.items():
        if not isinstance(state, TableState) or state.priors is None or state.evidence is None:
            continue
        heads, tails = np.maximum(state.evidence, 0.0)
        prior = np.asarray(state.pseudo)
        n = heads + tails + _PRIOR
        mean = np.clip((heads + _PRIOR * prior[0] / prior.sum(axis=0)) / n, 1e-6, 1 - 1e-6)
        spread = np.sqrt(mean * (1 - mean) / (n + 1))
        own = np.stack([n * mean, n * (1 - mean)]) - prior  # what draws take for evidence
        states[coin] = replace(state, probability=mean, centre=mean, spread=spread, evidence=own)
    twin.states_ = states
    if model.errors_ is not None:
        twin.errors_ = model.errors_.without_slopes()
    return twin


def _fitted(model: Model, log: ClickLog) -> Model:
    twin = model.copy()
    twin.states_ = None
    twin.fit(log, progress=False, impossible="drop")
    return twin


def _queries_of_both(
    candidates: Candidates, halves: tuple[ClickLog, ClickLog], how: Search
) -> NDArray[np.bool_]:
    """The queries with a page that is shown now, and pages in both halves."""
    known: NDArray[np.bool_] = candidates.shown_pages(candidates.sizes(how.size))[:, 0] >= 0
    for half in halves:
        if half.has_query:
            seen = half.session_column("query").unique()
            known = known & candidates.queries.is_in(seen.implode()).to_numpy()
    return known


def _traffic(candidates: Candidates, log: ClickLog) -> Floats:
    """The share of each query among the pages of the log."""
    if not log.has_query:
        return np.full(len(candidates.queries), 1 / len(candidates.queries))
    pages = pl.DataFrame({"query": log.session_column("query"), "n": log.weight})
    counts = pages.group_by("query").agg(pl.col("n").sum())
    asked = pl.DataFrame({"query": candidates.queries})
    joined = asked.join(counts, on="query", how="left", maintain_order="left")
    found: Floats = joined["n"].fill_null(0.0).to_numpy()
    return found / float(found.sum())


def _lift(
    chooser: Model,
    judge: Model,
    candidates: Candidates,
    worth: Worth,
    how: Search,
    samples: int,
) -> Floats:
    """By draw of the judge (the first: as believed) and query, the lift of the chooser's pages."""
    from gecasmo.pages.best_page import orders

    # A half has seen everything half as often.
    enough = evidence(chooser, candidates.frame) >= how.min_examinations / 2
    keep = enough | (candidates.shown > 0)
    keep |= candidates.pins(how.rules, candidates.sizes(how.size)) >= 0
    own = candidates.kept(keep)
    quick = replace(how, effort=0)
    try:
        best, _, shown = orders(chooser, own, worth, quick)
    except ClickLogError:
        # Too few are left for the rules, which all of them together keep.
        own = candidates
        best, _, shown = orders(chooser, own, worth, quick)
    values = []
    for pages in (best.pages, shown):
        foretold = Foretold(judge, page_log(judge, own, pages))
        found = [foretold.worth(worth)]
        found += [foretold.worth(worth, s) for s in drawn_states(judge, samples, how.seed)]
        values.append(np.stack(found))
    return values[0] - values[1]
