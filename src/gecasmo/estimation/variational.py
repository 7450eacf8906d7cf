"""Variational Bayes: a Beta distribution for every row instead of a probability.

The same passes as EM, with two weights per row that do not add up to one: exp(E log p) and
exp(E log(1 - p)). The sum over all paths of a page under such weights is its part of the evidence
lower bound (ELBO). Each step gives every row the conjugate update, so the ELBO never falls; it is
climbed by the same loop that climbs the objective of EM.

Any automaton whose paths add up to the likelihood, as polynomials in the coins, is a proper hidden
data model with a bound of its own. The minimal one has integrated out all flips that the likelihood
does not depend on, so its bound is at least as tight as that of the full one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from gecasmo.errors import ModelError
from gecasmo.estimation.coins import Coin, States
from gecasmo.estimation.em import EM, Progress, Solution
from gecasmo.estimation.problem import Problem
from gecasmo.forms import Form, FormState
from gecasmo.forms.beta_rows import BetaRows, is_conjugate

# One row says nothing of what is usual.
_FEWEST_ROWS = 2


@dataclass(frozen=True)
class VB:
    """Variational Bayes: what is believed of every row, as a Beta distribution.

    Rows need a Beta prior, so forms have to be `Table` or given numbers. Pseudo-counts (a, b) are
    the prior Beta(a, b); less than half a flip a side is taken as half a flip. Intervals of coins
    that are much hidden come out too narrow, since rows are taken to be independent; docs/bayes.md
    has figures.

    Parameters
    ----------
    max_iter, tol, accelerate, restarts, seed
        As for `EM`; the objective is the evidence lower bound (ELBO), which never falls.
    augmentation : "minimal" or "full"
        Which flips count as hidden data. The bound of "minimal" is at least as tight; "full" gives
        the textbook updates.
    hyper : "fixed" or "learned"
        Where priors are learned (`Table(prior=...)`, rows by query or document): whether they stay
        as EM has learned them, or their mean and strength follow the ELBO. That makes priors of
        coins that are mostly hidden far too strong, and is only for logs on disk, where nothing
        else learns them.
    """

    is_bayes: ClassVar[bool] = True

    max_iter: int = 500
    tol: float = 1e-6
    accelerate: bool = True
    augmentation: str = "minimal"
    hyper: Literal["fixed", "learned"] = "fixed"
    restarts: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.hyper not in ("learned", "fixed"):
            raise ModelError(f"VB(hyper={self.hyper!r}): choose 'learned' or 'fixed'.")
        self._climber()

    def _climber(self) -> EM:
        """The loop that climbs, which checks options, too."""
        names = ("max_iter", "tol", "accelerate", "augmentation", "restarts", "seed")
        return _Ascent(**{name: getattr(self, name) for name in names})

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        """Maximise the ELBO of a problem."""
        check_conjugate(problem, "VB")
        begun = table_states(problem)
        coins = [
            replace(coin, form=self._form(coin, state))
            for coin, state in zip(problem.coins, begun, strict=True)
        ]
        beliefs = Problem(problem.parts, coins, problem.n_pages, problem.is_exchangeable)
        if problem.given_start is not None:
            beliefs.given_start = States([coin.form.begin(coin.rows, None) for coin in coins])
        found = self._climber().solve(beliefs, progress)
        states = [
            coin.form.as_table(state) if isinstance(coin.form, BetaRows) else state
            for coin, state in zip(coins, found.best.states, strict=True)
        ]
        # Counts and likelihood are those of the reported means, the objective is what was climbed.
        at_means = problem.evaluate(States(states))
        found.n_evaluations += 1
        found.best = replace(at_means, objective=found.best.objective)
        return found

    def _form(self, coin: Coin, state: FormState) -> Form:
        if not coin.form.has_posterior:
            return coin.form
        return BetaRows(coin.form, state, self.hyper == "learned" and is_learned(coin))


class _Ascent(EM):
    """EM under another name: what it climbs is the ELBO."""

    title: ClassVar[str] = "VB"


def is_learned(coin: Coin) -> bool:
    """Whether the prior of a coin's rows is learned."""
    prior = coin.form.learned_prior(coin.rows.keys)
    return prior is not None and len(coin.rows) >= _FEWEST_ROWS


def table_states(problem: Problem) -> Sequence[Any]:
    """Where tables begin: as they were given, else as they begin."""
    given = problem.given_start
    return problem.begun(None) if given is None else list(given)


def check_conjugate(problem: Problem, method: str) -> None:
    """Refuse forms that have no Beta posterior, all at once."""
    odd = [coin for coin in problem.coins if not is_conjugate(coin.form)]
    if odd:
        named = ", ".join(f"{coin.form!r} of '{coin.name}'" for coin in odd)
        raise ModelError(
            f"{method} has no update for {named}: rows need a Beta prior (Table) or a number that "
            "is given (Fixed). Fit with EM() or Gradient() instead, or give the coin a Table()."
        )
