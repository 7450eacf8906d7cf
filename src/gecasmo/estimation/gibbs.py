"""Gibbs sampling: draws from the posterior of all rows, for every model.

A sweep draws one hidden path of every page given the rows (forward filtering and backward sampling,
in one kernel that also counts), then every row given the counts. Flips that the likelihood does not
depend on were integrated out by the compiler, so chains move faster than those of the textbook.
Where priors are sampled, their mean and strength are drawn with all rows integrated out, and rows
afterwards: both in one block. Where paths would hold rows back, these also move along ridges.

All random numbers are hashes of (seed, chain, sweep) and of the page or row, so that the same draws
come on any number of threads.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, ConvergenceWarning, ModelError, option, tell
from gecasmo.estimation.coins import States
from gecasmo.estimation.draws import AGREED, Draws, r_hat, watched_rows
from gecasmo.estimation.em import EM, Progress, Record, Solution
from gecasmo.estimation.gibbs_rows import Proposals, RowChain, TableRows
from gecasmo.estimation.problem import Problem
from gecasmo.estimation.ridge_moves import Tables, Walk, find_ridges
from gecasmo.estimation.tasks import Answer, Recipe, Task
from gecasmo.estimation.variational import check_conjugate, is_learned, table_states
from gecasmo.forms.beta_rows import table_of
from gecasmo.hashes import mixed

Floats = NDArray[np.float64]

# So many numbers are kept of all draws together, unless that would be fewer than this many draws.
_MOST_KEPT, _FEWEST_KEPT = 10_000_000, 10
# R-hat is worked out again after so many sweeps, for those who look on.
_LOOK = 25
# A move along a ridge takes nearly as long as a sweep, so there is one in so many; and as it moves
# priors, too, every second sweep leaves these where they are.
_BETWEEN_MOVES = 6
_PATHS, _ROWS, _HYPER, _BEGIN, _RIDGE, _MOVED_PATHS = range(6)  # streams of random numbers


@dataclass(frozen=True)
class Gibbs:
    """Gibbs sampling: draws from the posterior, given the model and its priors.

    Rows need a Beta prior, so forms have to be `Table` or given numbers. Pseudo-counts (a, b) are
    the prior Beta(a, b); less than half a flip a side is taken as half a flip. Estimates are
    posterior means with their deviations; `model.draws(coin)` has the draws.

    Parameters
    ----------
    draws, warmup : int
        Sweeps of each chain that count, and before them those that do not.
    chains : int
        How many chains there are, which begin apart; whether they agree is watched (R-hat).
    seed : int
        The same seed gives the same draws, on any number of threads.
    hyper : "sampled" or "fixed"
        Where priors are learned (`Table(prior=...)`, rows by query or document): whether mean and
        strength are drawn along with all else, or stay as EM has learned them.
    augmentation : "minimal" or "full"
        Which flips are drawn: those that the likelihood depends on, or all that the program makes.
        The posterior is the same; chains of "full" move more slowly.
    keep : int, optional
        Draws of each chain that are kept; by default all, and fewer where rows are so many that
        they would take more than about 80 megabytes. Means and deviations are always of all.
    """

    is_bayes: ClassVar[bool] = True

    draws: int = 1000
    warmup: int = 500
    chains: int = 4
    seed: int = 0
    hyper: Literal["sampled", "fixed"] = "sampled"
    augmentation: str = "minimal"
    keep: int | None = None

    def __post_init__(self) -> None:
        least = {"draws": 1, "warmup": 0, "chains": 1, "keep": 1, "seed": 0}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is None and name == "keep":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise ModelError(f"{option(name, value, of='Gibbs')}: a whole number is wanted.")
            if value < smallest:
                raise ModelError(
                    f"{option(name, value, of='Gibbs')}: at least {smallest} is needed."
                )
        if self.hyper not in ("sampled", "fixed"):
            raise ModelError(f"Gibbs(hyper={self.hyper!r}): choose 'sampled' or 'fixed'.")
        if self.augmentation not in ("minimal", "full"):
            raise ModelError(
                f"Gibbs(augmentation={self.augmentation!r}): choose 'minimal' or 'full'."
            )

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        """Draw from the posterior of a problem."""
        check_conjugate(problem, "Gibbs")
        parts = map(problem.parts.part, problem.parts.numbers)
        if not all(part.expectation.has_whole_weights for part in parts):
            raise ClickLogError(
                "Gibbs draws each page as often as it weighs, so weights have to be whole numbers. "
                "Fit with VB() or EM(), or without weights."
            )
        if problem.is_exchangeable and problem.given_start is None:
            # Chains from anywhere would call the parts of a mixture by different names.
            problem.given_start = EM(tol=1e-4, seed=self.seed).solve(problem).best.states
        return _Chains(self, problem, progress).run()


@dataclass
class _Chain:
    """Where one chain is: what each page sees, and the rows of each coin."""

    weights: dict[int, Floats]
    rows: dict[int, RowChain]
    proposals: dict[int, Proposals]
    walks: list[Walk] = field(default_factory=list)

    def at(self, rows: dict[int, RowChain]) -> _Chain:
        """The same chain elsewhere."""
        weights = self.weights | {n: own.weights for n, own in rows.items()}
        return replace(self, weights=weights, rows=rows)


class _Chains:
    """All chains of a fit, a sweep of each in turn."""

    def __init__(self, method: Gibbs, problem: Problem, progress: Progress | None) -> None:
        self.method, self.problem, self.progress = method, problem, progress
        self.began = time.perf_counter()
        states = table_states(problem)
        self.states = list(states)
        self.rows = [
            TableRows(n, coin, states[n], method.hyper == "sampled" and is_learned(coin))
            for n, coin in enumerate(problem.coins)
            if coin.form.has_posterior
        ]
        self.chains = [self._begin(chain) for chain in range(method.chains)]
        n_numbers = max(1, method.chains * sum(rows.n_rows for rows in self.rows))
        kept = min(method.draws, max(_FEWEST_KEPT, _MOST_KEPT // n_numbers))
        self.thin = -(-method.draws // (method.keep or kept))
        n_kept = -(-method.draws // self.thin)
        shape = (method.chains, n_kept)
        # Memory that is new is only taken where something is written.
        self.kept = {r.coin.name: np.empty((*shape, r.n_rows)) for r in self.rows}
        self.priors = {r.coin.name: np.empty((*shape, 2)) for r in self.rows if r.priors.is_free}
        self.watched: dict[str, Floats] = {}
        # Sweeps that count, the sums of moments of each coin, and of what moved priors: replaced as
        # a whole, so that an interruption leaves them as they were.
        self.sums: tuple[int, dict[int, Floats], dict[int, Floats]] = (
            0,
            {r.number: np.zeros((2, r.n_rows)) for r in self.rows},
            {r.number: np.zeros(2) for r in self.rows},
        )
        self.history: list[Record] = []
        self.n_evaluations = 0

    def _begin(self, chain: int) -> _Chain:
        seed = self.method.seed
        stream = np.random.default_rng(mixed(seed, chain, _BEGIN))
        rows = {r.number: r.begin(stream) for r in self.rows}
        weights = {
            n: coin.weights(self.states[n])
            for n, coin in enumerate(self.problem.coins)
            if n not in rows
        }
        weights |= {n: own.weights for n, own in rows.items()}
        proposals = {
            r.number: Proposals(np.random.default_rng(mixed(seed, chain, r.number, _HYPER)))
            for r in self.rows
            if r.priors.is_free
        }
        return _Chain(weights, rows, proposals)

    def run(self) -> Solution:
        """All sweeps; what an interruption leaves is kept."""
        interrupted = False
        total = self.method.warmup + self.method.draws
        try:
            for number in range(total):
                likelihoods = [self._sweep(n, number) for n in range(self.method.chains)]
                if number >= self.method.warmup:
                    self._keep(number - self.method.warmup, likelihoods)
                mean = float(np.mean(likelihoods))
                seconds = time.perf_counter() - self.began
                self.history.append(Record(number + 1, mean, mean, seconds))
                self._show(number, total, mean)
        except KeyboardInterrupt:
            if self.sums[0] < 2:
                raise  # nothing was drawn that counts
            interrupted = True
        return self._concluded(interrupted)

    def _sweep(self, chain: int, number: int) -> float:
        """One sweep of one chain; the log-likelihood of the rows that paths were drawn for."""
        seed, learns = self.method.seed, number < self.method.warmup
        if learns and chain == 0 and number == self.method.warmup // 2:
            self._look_for_ridges()
        answer = self._drawn(self.chains[chain].weights, mixed(seed, chain, number, _PATHS))
        if answer.n_impossible:
            raise ModelError(f"{answer.n_impossible:,} pages are impossible at a draw.")
        walks = bool(self.chains[chain].walks)
        if walks and number % _BETWEEN_MOVES == 0:
            answer = self._walk(chain, number, answer)
        own, drawn = self.chains[chain], {}
        for rows in self.rows:
            n, counts = rows.number, np.ascontiguousarray(answer.counts[rows.number].table)
            hyper = own.rows[n].hyper
            if rows.priors.is_free and (number % 2 or not walks):
                hyper = own.proposals[n].move(rows, hyper, counts, learns)
            key = mixed(seed, chain, number, _ROWS, n)
            drawn[n] = rows.draw(hyper, counts, own.rows[n], key)
        self.chains[chain] = own.at(drawn)
        return float(answer.log_likelihood)

    def _drawn(self, weights: dict[int, Floats], key: int) -> Answer:
        """A path of each page at these weights."""
        answer: Answer = self.problem.parts.run(
            Task(Recipe("begin"), "", weights, {}, work="draw", extra={"key": key})
        )
        self.n_evaluations += 1
        return answer

    def _look_for_ridges(self) -> None:
        """From where the first chain is, for all chains."""
        own = self.chains[0]

        def expected(others: Tables) -> Tables:
            answer = self.problem.parts.run(
                Task(Recipe("begin"), "", {**own.weights, **others}, {})
            )
            self.n_evaluations += 1
            return {number: counts.table for number, counts in answer.counts.items()}

        for ridge in find_ridges(self.rows, own.rows, expected):
            for chain in self.chains:
                chain.walks.append(Walk(ridge))

    def _walk(self, chain: int, number: int, before: Answer) -> Answer:
        """Perhaps a move along a ridge, one after the other; paths of where the chain is then."""
        own, seed = self.chains[chain], self.method.seed
        stream = np.random.default_rng(mixed(seed, chain, number, _RIDGE))
        walk = own.walks[number // _BETWEEN_MOVES % len(own.walks)]
        rows = {one.number: one for one in self.rows}
        moved, gain = walk.propose(rows, own.rows, float(stream.normal()))
        # In two stages, as pages are dear: first by what is believed of rows, then by the pages.
        chance = math.exp(min(gain, 0.0)) if math.isfinite(gain) else 0.0
        then, after = own.at(moved), before
        if stream.random() < chance:
            after = self._drawn(then.weights, mixed(seed, chain, number, _MOVED_PATHS))
            better = 0.0
            if not after.n_impossible:
                better = math.exp(min(after.log_likelihood - before.log_likelihood, 0.0))
            chance *= better
            if stream.random() >= better:
                then, after = own, before
        else:
            then = own
        if number < self.method.warmup:
            walk.learn(chance)
        self.chains[chain] = then
        return after

    def _keep(self, number: int, likelihoods: list[float]) -> None:
        """Add a sweep of all chains to what is known."""
        place, is_kept = divmod(number, self.thin)
        for chain, own in enumerate(self.chains):
            seen = {"log-likelihood": likelihoods[chain]}
            for rows in self.rows:
                row, name = own.rows[rows.number], rows.coin.name
                seen |= watched_rows(name, row.weights[1])
                if rows.priors.is_free:
                    mean, strength = self._prior(rows, row.hyper)
                    seen |= {f"prior mean of {name}": mean, f"prior strength of {name}": strength}
                if is_kept == 0:
                    self.kept[name][chain, place] = row.weights[1]
                    if rows.priors.is_free:
                        self.priors[name][chain, place] = self._prior(rows, row.hyper)
            for name, value in seen.items():
                if name not in self.watched:
                    shape = (self.method.chains, self.method.draws)
                    self.watched[name] = np.full(shape, np.nan)
                self.watched[name][chain, number] = value
        n, moments, moved = self.sums
        self.sums = (
            n + 1,
            {k: v + sum(c.rows[k].moments for c in self.chains) for k, v in moments.items()},
            {k: v + sum(c.rows[k].hyper for c in self.chains) for k, v in moved.items()},
        )

    def _prior(self, rows: TableRows, hyper: Floats) -> tuple[float, float]:
        """Mean and strength of the prior of a middling row."""
        logit, log_strength = np.add(rows.believed.centre(), hyper)
        return float(1 / (1 + np.exp(-logit))), float(np.exp(log_strength))

    def _show(self, number: int, total: int, likelihood: float) -> None:
        if self.progress is None:
            return
        words = "warming up"
        n = self.sums[0]
        if n >= 4:
            if n % _LOOK == 0 or not hasattr(self, "_worst"):
                self._worst = max(r_hat(values[:, :n]) for values in self.watched.values())
            words = f"R-hat {self._worst:.3f}"
        per_page = likelihood / max(self.problem.n_pages, 1.0)
        self.progress(number + 1, total, per_page, words)

    def _concluded(self, interrupted: bool) -> Solution:
        n, moments, moved = self.sums
        n_all = n * self.method.chains
        states = list(self.states)
        for rows in self.rows:
            mean, second = moments[rows.number] / n_all
            spread = np.sqrt(np.maximum(second - mean**2, 0.0))
            hyper = moved[rows.number] / n_all
            form: Any = rows.coin.form
            table = table_of(form, rows.begun, rows.priors, hyper, mean, spread)
            states[rows.number] = table
        best = self.problem.evaluate(States(states))
        watched = {name: values[:, :n] for name, values in self.watched.items()}
        n_kept = -(-n // self.thin)
        draws = Draws(
            {name: values[:, :n_kept] for name, values in self.kept.items()},
            {name: values[:, :n_kept] for name, values in self.priors.items()},
            watched["log-likelihood"][:, :: self.thin],
            self.thin,
            watched,
        )
        worst = {name: r_hat(values) for name, values in watched.items()}
        apart = [name for name, value in worst.items() if value > AGREED]
        solution = Solution(best, self.history, not apart, interrupted)
        solution.n_evaluations, solution.draws = self.n_evaluations + 1, draws
        self._report(solution, n, {name: worst[name] for name in apart})
        return solution

    def _report(self, solution: Solution, n: int, apart: dict[str, float]) -> None:
        if solution.interrupted:
            tell(
                f"Gibbs was interrupted after {n:,} of {self.method.draws:,} draws; the model has "
                "these.",
                ConvergenceWarning,
            )
        elif apart:
            name, value = max(apart.items(), key=lambda item: item[1])
            tell(
                f"The chains of Gibbs do not agree: R-hat of {name} is {value:.2f} (above "
                f"{AGREED}). Draw more, with a longer warmup; or the log does not tell: "
                "model.draws().diagnostics() has all that was watched.",
                ConvergenceWarning,
            )
