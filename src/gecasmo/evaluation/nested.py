"""Tests of browsing hypotheses: is a larger model really needed, or would a special case of it do?

The statistic is twice the gain in log-likelihood. Its distribution under the smaller model is not a
chi-square where coins are at 0 or 1, where users are of hidden kinds, or where rows are many. So it
is found by simulation (a parametric bootstrap): logs are simulated from the smaller model on the
same pages, and both models are fitted to each of them, as they were to the log.

Both are fitted by maximum likelihood, the larger one from where the smaller one ended. Logs are
simulated from the smaller model as it is fitted otherwise, with its priors, and with rows drawn
from what is believed of them: those of a maximum likelihood fit differ too much, and means of
posteriors too little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import (
    ClickLogError,
    GecasmoWarning,
    ImpossibleSessionError,
    ModelError,
    option,
    without,
)
from gecasmo.estimation import EM
from gecasmo.evaluation.embedding import Embedding, comparable_likelihoods, embedding
from gecasmo.evaluation.left_out import LeftOut, left_out
from gecasmo.forms import Table
from gecasmo.hashes import mixed
from gecasmo.logs import ClickLog
from gecasmo.model.base import Model
from gecasmo.model.beliefs import drawn_states
from gecasmo.model.solution import progress_bar
from gecasmo.model.stories import unfolded

Floats = NDArray[np.float64]
Tell = Callable[[str, int], None]  # words, and by how many steps it goes on
Pairs = bool | Sequence[tuple[str, str]]

# When so many simulated logs gain as much as the log itself, the answer is clear: their share is a
# p-value of its own right (Besag and Clifford 1991).
ENOUGH = 20
# How far coins that the smaller model holds at 0 or 1 begin inside, and how far all begin apart.
_INSIDE, _APART = 0.1, 0.5
# A larger model may fall behind by so much, in nats, because fits end a little early.
_ROUNDING = 0.05

SCHEMA: dict[str, type[pl.DataType]] = {
    "smaller": pl.String,
    "larger": pl.String,
    "special_case": pl.String,
    "statistic": pl.Float64,
    "expected": pl.Float64,
    "p": pl.Float64,
    "p_error": pl.Float64,
    "simulated": pl.Int64,
}
LOO_SCHEMA: dict[str, type[pl.DataType]] = {
    "loo_difference": pl.Float64,
    "loo_error": pl.Float64,
    "loo_unsure": pl.Int64,
}


@dataclass(frozen=True)
class Nesting:
    """Two models by name, of which the smaller one is a special case of the larger one; `how`, if
    that was found out and not only said."""

    smaller: str
    larger: str
    how: Embedding | None


def nestings(
    models: dict[str, Model], log: ClickLog, wanted: Pairs, notes: list[str]
) -> list[Nesting]:
    """The pairs to be tested: those that are named, or all that are found."""
    if isinstance(wanted, bool):
        return _found(models, log, notes)
    pairs = []
    for pair in wanted:
        if isinstance(pair, str) or len(pair) != 2:
            raise ModelError(
                f"{option('nested', pair, of='compare')}: pairs of names are wanted, the smaller "
                'model first, such as [("SDBN", "DBN")].'
            )
        for name in pair:
            if name not in models:
                raise ModelError(
                    f"{option('nested', name, of='compare')}: there is no such model here, only "
                    f"{', '.join(models)}."
                )
        smaller, larger = pair
        why = comparable_likelihoods(models[smaller], models[larger])
        if smaller == larger or why is not None:
            raise ModelError(
                f"{smaller} is no special case of {larger}: {why or 'it is the same model'}."
            )
        how = embedding(models[smaller], models[larger], log)
        if how is None:
            notes.append(
                f"That {smaller} is a special case of {larger} is taken as said: setting coins of "
                f"{larger} to 0, to 1 or to coins of {smaller} does not show it."
            )
        pairs.append(Nesting(smaller, larger, how))
    return pairs


def _found(models: dict[str, Model], log: ClickLog, notes: list[str]) -> list[Nesting]:
    pairs, apart = [], []
    names = list(models)
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            ways = {
                (a, b): embedding(models[a], models[b], log)
                for a, b in ((one, other), (other, one))
            }
            known = {pair: how for pair, how in ways.items() if how is not None}
            if len(known) == 1:
                pairs += [Nesting(*pair, how) for pair, how in known.items()]
            elif known:
                notes.append(f"{one} and {other} say the same of all pages: nothing to test.")
            else:
                apart.append(f"{one} and {other}")
    told = (
        "no setting of the coins of one to 0, to 1 or to coins of the other makes them the same. "
        'If one is a special case in another way, say so in Python: nested=[("smaller", "larger")]'
    )
    if not pairs:
        why = f": {'; '.join(apart)}: {told}" if apart else ""
        raise ModelError(f"No model here is a special case of another{why}.")
    if apart:
        notes.append(f"Not tested, as neither is a special case of the other: {'; '.join(apart)}.")
    return pairs


@dataclass(frozen=True)
class NestedTests:
    """Likelihood-ratio tests on one log: `replicates` simulated logs for each pair at most."""

    log: ClickLog
    replicates: int
    seed: int
    method: Any = None
    enough: int = ENOUGH
    progress: bool | None = False

    def __post_init__(self) -> None:
        if type(self.replicates) is not int or self.replicates < 19:
            raise ModelError(
                f"{option('replicates', self.replicates, of='compare')}: at least 19 simulated "
                "logs are needed, for a p-value of 5 %."
            )

    def table(
        self,
        models: dict[str, Model],
        pairs: Sequence[Nesting],
        loo: bool,
        tell: Tell,
        notes: list[str],
    ) -> pl.DataFrame:
        """All tests, a line for each pair."""
        lines = []
        scores: dict[str, LeftOut] = {}
        for pair in pairs:
            line = self.run(models, pair, tell, notes)
            for name in (pair.smaller, pair.larger) if loo else ():
                if name not in scores:
                    tell(f"leaving out pages: {name}", 0)
                    scores[name] = left_out(models[name], self.log, self.method, self.seed)
            if loo:
                small, large = scores[pair.smaller], scores[pair.larger]
                line["loo_difference"], line["loo_error"] = large.minus(small)
                line["loo_unsure"] = max(small.n_unsure, large.n_unsure)
            lines.append(line)
        unsure = [name for name, score in scores.items() if score.n_unsure]
        if unsure:
            told = ", ".join(f"{scores[name].n_unsure:,} of {name}" for name in unsure)
            notes.append(
                f"Leave-one-out scores of some of {self.log.n_sessions:,} pages cannot be relied "
                f"on ({told}): their rows occur on hardly any other page."
            )
        return pl.DataFrame(lines, schema=SCHEMA | (LOO_SCHEMA if loo else {}))

    def run(
        self, models: dict[str, Model], pair: Nesting, tell: Tell | None, notes: list[str]
    ) -> dict[str, Any]:
        """One line of the table."""
        smaller, larger = models[pair.smaller], models[pair.larger]
        words = "as said" if pair.how is None else pair.how.words
        line = {"smaller": pair.smaller, "larger": pair.larger, "special_case": words}
        try:
            with without(GecasmoWarning):
                null = smaller.__sklearn_clone__().fit(
                    self.log, self.method, progress=False, impossible="raise"
                )
                gain = _Gain(smaller, larger, pair.how, self.log, self._climber())
                observed = gain(self.log)
        except ImpossibleSessionError as problem:
            notes.append(
                f"{pair.smaller} in {pair.larger} was not tested: some pages cannot be under one "
                f"of them, which needs no test. {problem}"
            )
            if tell is not None:
                tell(f"tested {pair.smaller} in {pair.larger}", self.replicates)
            return line | {"simulated": 0}
        if observed < -_ROUNDING:
            raise ModelError(
                f"{pair.larger} fits the log worse than {pair.smaller} (log-likelihood lower by "
                f"{-observed:.2f}), which it cannot if {pair.smaller} is a special case of it: "
                "either that is not so, or the fit ended in a local optimum. Leave the pair out, "
                "or give the fit more starts: method=EM(restarts=10)."
            )
        drawn: list[float] = []
        null.draws_ = None  # each row by itself, so that there is no end of draws
        twin = null.copy()
        named = f"{pair.smaller} in {pair.larger}"
        with progress_bar(named, self.progress, ("Testing", "log", "p")) as show:
            for turn in range(self.replicates):
                if tell is not None:
                    tell(f"testing {named}, log {turn + 1}", 1)
                seed = mixed(self.seed, turn) % 2**32
                twin.states_ = next(drawn_states(null, 1, seed))
                with without(GecasmoWarning):
                    drawn.append(gain(twin.simulate(self.log, seed=seed)))
                if show is not None:
                    show(turn + 1, self.replicates, self._p(drawn, observed))
                if self._exceed(drawn, observed) >= self.enough:
                    break
        if tell is not None:
            tell(f"tested {pair.smaller} in {pair.larger}", self.replicates - len(drawn))
        return line | self._told(observed, drawn)

    def _climber(self) -> EM:
        """How likelihoods are maximised: as asked for, without anybody who watches."""
        if not isinstance(self.method, EM):
            return EM()
        given = self.method
        return EM(max_iter=given.max_iter, tol=given.tol, restarts=given.restarts, seed=given.seed)

    def _exceed(self, drawn: list[float], observed: float) -> int:
        return int(np.sum(np.array(drawn) >= observed - 1e-9))

    def _p(self, drawn: list[float], observed: float) -> float:
        n, exceed = len(drawn), self._exceed(drawn, observed)
        return exceed / n if exceed >= self.enough else (1 + exceed) / (1 + n)

    def _told(self, observed: float, drawn: list[float]) -> dict[str, Any]:
        n, p = len(drawn), self._p(drawn, observed)
        return {
            "statistic": 2 * max(observed, 0.0),
            "expected": 2 * float(np.maximum(drawn, 0.0).mean()),
            "p": p,
            "p_error": float(np.sqrt(p * (1 - p) / n)),
            "simulated": n,
        }


class _Gain:
    """By how much the larger of two models fits a log better, by maximum likelihood."""

    def __init__(
        self, smaller: Model, larger: Model, how: Embedding | None, log: ClickLog, method: EM
    ) -> None:
        self.smaller, self.larger = _unpenalised(smaller), _unpenalised(larger)
        self.how, self.method = how, method
        if how is not None:
            # Which rows there are is found once: simulated logs have the same pages.
            self.larger.fit(log, EM(max_iter=1, tol=0), intervals=False, progress=False)
            frames = self.larger.parameters
            self.rows = {coin: frames[coin].select(self.larger.keys[coin]) for coin in how.coins}
            self.larger.states_ = None

    def __call__(self, log: ClickLog) -> float:
        """The gain in nats."""
        small = self._fitted(self.smaller, log, None)
        start = None if self.how is None else self._started(small)
        large = self._fitted(self.larger, log, start)
        reports = small.report_, large.report_
        assert reports[0] is not None
        assert reports[1] is not None
        gain = reports[1].log_likelihood - reports[0].log_likelihood
        # As a special case it is as good as the smaller one.
        return float(gain) if self.how is None else max(float(gain), 0.0)

    def _fitted(self, model: Model, log: ClickLog, start: Model | None) -> Model:
        twin = model.copy()
        twin.fit(log, self.method, start=start, intervals=False, progress=False, threads=1)
        if twin.report_ is not None and twin.report_.interrupted:
            raise KeyboardInterrupt
        return twin

    def _started(self, small: Model) -> Model:
        """The larger model near the special case that the smaller one is."""
        assert self.how is not None
        rng = np.random.default_rng(5)
        start, states = self.larger.copy(), {}
        for coin, target in self.how.coins.items():
            form, rows = start.forms[coin], self.rows[coin]
            if type(form) is not Table:
                if isinstance(target, str):
                    states[coin] = small.states()[target]
                continue
            known = np.full(max(len(rows), 1), 0.5 if target is None else target)
            least = _INSIDE
            if isinstance(target, str):
                keys = small.keys[target]
                asked = rows.select(keys) if keys else pl.DataFrame({"": np.zeros(len(known))})
                known, least = small.probability(target, asked), _INSIDE / 2
            p = np.clip(known.astype(np.float64), least, 1 - least)
            # Kinds of users that begin alike would stay alike.
            p = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + _APART * rng.normal())))
            given = rows.with_columns(pl.Series("probability", p)) if rows.width else float(p[0])
            states[coin] = form.given(given, start.keys[coin], coin)
        start.states_ = states
        return start


def _unpenalised(model: Model) -> Model:
    """A model that is not fitted, whose tables have no prior."""
    twin = model.__sklearn_clone__()
    twin.forms = {
        coin: Table(pseudo_counts=(0, 0), start=form.start, fixed=form.fixed, key=form.key)
        if type(form) is Table
        else form
        for coin, form in twin.forms.items()
    }
    twin.structure  # noqa: B018  copies share it from now on
    return twin


def pages_to_test(log: ClickLog) -> ClickLog:
    """Each page as often as it occurred; other weights have no likelihood that could be tested."""
    if np.all(log.weight == 1):
        return log
    if not np.all(log.weight == np.round(log.weight)):
        raise ClickLogError(
            "Nested models are tested by simulating each page as often as it occurred, so weights "
            "have to be whole numbers; test without weights."
        )
    return unfolded(log)
