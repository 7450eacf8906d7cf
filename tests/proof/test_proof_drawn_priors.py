"""Gibbs with priors that are drawn, and with moves along ridges, against sums over all there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, log_expit

from gecasmo import DBN, PBM, UBM, Empirical, Gibbs, Table, read_log
from gecasmo.estimation import gibbs
from gecasmo.estimation.draws import effective_draws
from gecasmo.estimation.gibbs import _Chains
from gecasmo.estimation.gibbs_rows import RowChain, TableRows
from gecasmo.estimation.ridge_moves import Ridge, Slide
from gecasmo.forms.beta_rows import RowPriors
from oracle.beliefs import Apart, Drawn, Page, Row, drawn_priors, exact_posterior
from oracle.brute_force import Oracle
from oracle.stories import CLICK, QUIET, ZOO, Shown

# The chains are short, and in two minds about a handful of pages.
pytestmark = pytest.mark.filterwarnings("ignore:The chains of Gibbs")

MODELS = {"PBM": PBM, "UBM": UBM, "DBN": DBN}
# Documents at two ranks, which were clicked, and on how many pages.
LOG = [((1, 2), (1, 0), 2), ((2, 1), (0, 1), 1), ((1, 2), (1, 1), 1), ((2, 1), (0, 0), 1)]
DRAWN, GIVEN = Table(prior=Empirical(by=())), (2.0, 1.0)
FAR = 4.0  # standard errors


def pages_of(name: str) -> list[Page]:
    return [
        (
            Oracle(ZOO[name](Shown(1, docs, (1, 2))), lambda coin, row: 0.5),
            tuple(CLICK if click else QUIET for click in clicks),
            n,
        )
        for docs, clicks, n in LOG
    ]


def log_of() -> Any:
    each = [page for page in LOG for _ in range(page[2])]
    return read_log(
        {
            "session": np.repeat(np.arange(len(each)), 2),
            "query": np.ones(2 * len(each), int),
            "doc": np.ravel([docs for docs, _, _ in each]),
            "rank": np.tile([1, 2], len(each)),
            "click": np.ravel([clicks for _, clicks, _ in each]),
        }
    )


def given_of(name: str, drawn: bool) -> dict[str, tuple[float, float]]:
    """The coins whose prior is given: all of them, or those of a single row."""
    return {coin: GIVEN for coin in MODELS[name]().forms if not drawn or coin == "continuation"}


def fitted(name: str, drawn: bool, method: Gibbs) -> Any:
    given = given_of(name, drawn)
    forms = {
        coin: Table(pseudo_counts=given[coin]) if coin in given else DRAWN
        for coin in MODELS[name]().forms
    }
    return MODELS[name](**forms).fit(log_of(), method, threads=1)


# Draws of a coin's rows, `[chain, draw, row]`, and of mean and strength of its prior.
Found = dict[str, tuple[Any, Any]]


def drawn_by(model: Any) -> Found:
    return {c: (model.draws(c), model.draws().priors.get(c)) for c in model.forms}


def far(model: Any, found: Found, exact: Drawn) -> dict[str, tuple[float, float]]:
    """How far means and variances of all draws are from what they should be, in standard errors."""
    errors = {}
    for coin, (draws, priors) in found.items():
        rows = model.parameters[coin].select(model.keys[coin]).rows() or [()]
        for place, row in enumerate(rows):
            if (coin, row) in exact.rows:  # others are in no story of these pages
                errors[f"{coin}{row}"] = _errors(draws[:, :, place], *exact.rows[coin, row])
        if coin in exact.means:
            mean, strength = np.moveaxis(priors, -1, 0)
            errors[f"mean of {coin}"] = _errors(mean, *exact.means[coin])
            # Of the strength itself hardly any number of draws tells the mean.
            errors[f"strength of {coin}"] = _errors(np.log(strength), *exact.log_strengths[coin])
    return errors


def _errors(draws: Any, mean: float, variance: float) -> tuple[float, float]:
    squares = (draws - mean) ** 2
    return tuple(
        float((values.mean() - wanted) / np.sqrt(values.var() / effective_draws(values)))
        for values, wanted in ((draws, mean), (squares, variance))
    )  # type: ignore[return-value]


def test_of_given_priors_the_sum_is_the_other_one() -> None:
    exact = exact_posterior(pages_of("UBM"), GIVEN)
    other = drawn_priors(pages_of("UBM"), given_of("UBM", False))
    assert set(other.rows) == set(exact.mean)
    for row, moments in other.rows.items():
        np.testing.assert_allclose(moments, (exact.mean[row], exact.variance[row]), rtol=1e-9)


LONG = Gibbs(draws=3000, warmup=200, chains=2, seed=3)


@pytest.mark.parametrize("name", MODELS)
def test_gibbs_with_drawn_priors_has_the_exact_moments(name: str) -> None:
    """Of rows, and of the mean and strength of priors."""
    exact = drawn_priors(pages_of(name), given_of(name, True))
    model = fitted(name, True, LONG)
    found = far(model, drawn_by(model), exact)
    assert len(found) >= 8
    assert np.abs(list(found.values())).max() < FAR


# Priors of rows that differ: by so many logits in the mean and logarithms in the strength.
APART = [(0.9, -0.6), (-0.9, 0.6)]


def let_priors_differ(monkeypatch: pytest.MonkeyPatch) -> dict[Row, Apart]:
    """As if EM had learned such priors; which rows have them."""
    shift, scale = np.array(APART).T
    mean, strength = expit(0.3 + shift), 5 * np.exp(scale)

    def different(state: Any, is_free: bool) -> RowPriors:
        assert is_free
        return RowPriors(strength * [mean, 1 - mean], is_free)

    monkeypatch.setattr(RowPriors, "of", different)
    model = PBM().fit(log_of())
    return {
        (coin, row): away
        for coin in model.forms
        for row, away in zip(
            model.parameters[coin].select(model.keys[coin]).rows(), APART, strict=True
        )
    }


def test_priors_of_rows_that_differ_are_drawn_together(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = let_priors_differ(monkeypatch)
    model = fitted("PBM", True, LONG)
    found = drawn_by(model)
    exact = drawn_priors(pages_of("PBM"), {}, apart)
    assert np.abs(list(far(model, found, exact).values())).max() < FAR
    # Not so if what they have in common were all there is.
    plain = drawn_priors(pages_of("PBM"), {})
    assert np.abs(list(far(model, found, plain).values())).max() > FAR


@pytest.mark.parametrize("wrong", ["room", "vague"])
def test_wrong_priors_are_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The density of a mean without the room of its logit; of a strength, three fifths as sure."""
    density = RowPriors.log_density

    def other(self: RowPriors, hyper: Any) -> Any:
        logit, log_strength = (own + more for own, more in zip(self.centre(), hyper.T, strict=True))
        if wrong == "room":
            return density(self, hyper) + np.logaddexp(0, logit) + np.logaddexp(0, -logit)
        return density(self, hyper) + 0.05 * (log_strength - np.log(3)) ** 2

    monkeypatch.setattr(RowPriors, "log_density", other)
    exact = drawn_priors(pages_of("DBN"), given_of("DBN", True))
    model = fitted("DBN", True, LONG)
    assert np.abs(list(far(model, drawn_by(model), exact).values())).max() > FAR


# -- Moves along ridges ----------------------------------------------------------------------------
# Each side of each coin alone, and both coins against each other.
RIDGES = [
    *(Ridge((Slide(coin, side, 1.0),), 0.5) for coin in (0, 1) for side in (0, 1)),
    Ridge((Slide(0, 1, 1.0), Slide(1, 1, -0.8)), 0.5),
]
N_MOVES = 25  # before every sweep
MOVED = Gibbs(draws=800, warmup=20, chains=2, seed=3)


def moved(
    name: str,
    drawn: bool,
    monkeypatch: pytest.MonkeyPatch,
    apart: dict[Row, Apart] | None = None,
) -> dict[str, Any]:
    """How far draws are from the exact posterior that are taken after many moves, before a sweep
    puts right what is wrong with them."""
    walk = _Chains._walk
    seen: list[list[Any]] = [[], []]

    def walks(self: Any, chain: int, number: int, before: Any) -> Any:
        for k in range(N_MOVES):  # all with numbers of their own, and after the warm-up
            before = walk(self, chain, number * N_MOVES + k, before)
        own = {rows.coin.name: (rows, self.chains[chain].rows[rows.number]) for rows in self.rows}
        if number >= self.method.warmup:
            each = {c: (o.weights[1], self._prior(r, o.hyper)) for c, (r, o) in own.items()}
            seen[chain].append(each)
        return before

    monkeypatch.setattr(gibbs, "_BETWEEN_MOVES", 1)
    monkeypatch.setattr(gibbs, "find_ridges", lambda *given: RIDGES)
    monkeypatch.setattr(_Chains, "_walk", walks)
    model = fitted(name, drawn, MOVED)
    found = {
        coin: tuple(np.array([[d[coin][k] for d in chain] for chain in seen]) for k in (0, 1))
        for coin in model.forms
    }
    exact = drawn_priors(pages_of(name), given_of(name, drawn), apart)
    return far(model, found, exact)


@pytest.mark.parametrize(("name", "drawn"), [("PBM", False), ("PBM", True), ("UBM", True)])
def test_moves_along_ridges_leave_the_exact_posterior(
    name: str, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert np.abs(list(moved(name, drawn, monkeypatch).values())).max() < FAR


def test_so_they_do_where_priors_of_rows_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = let_priors_differ(monkeypatch)
    assert np.abs(list(moved("PBM", True, monkeypatch, apart).values())).max() < FAR


class RowsByOnePower(TableRows):
    """Slides as if rows had as much less room as their probabilities grow."""

    def slid(self, own: RowChain, side: int, by: float) -> tuple[RowChain, float]:
        then, gain = super().slid(own, side, by)
        return then, gain - float(np.log(then.weights[side] / own.weights[side]).sum())


class PriorsByOnePower(TableRows):
    """Slides as if a prior had the room of its mean, not of the logit of that."""

    def _slid_prior(self, hyper: Any, side: int, by: float) -> tuple[Any, float]:
        then, room = super()._slid_prior(hyper, side, by)
        before, after = (self.believed.centre()[0] + each[0] for each in (hyper, then))
        rooms = [log_expit(logit) + log_expit(-logit) for logit in (before, after)]
        return then, room + float(rooms[1] - rooms[0])


@pytest.mark.parametrize(
    ("wrong", "drawn"), [(RowsByOnePower, False), (RowsByOnePower, True), (PriorsByOnePower, True)]
)
def test_moves_whose_room_is_wrong_by_one_power_are_found(
    wrong: type[TableRows], drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gibbs, "TableRows", wrong)
    assert np.abs(list(moved("PBM", drawn, monkeypatch).values())).max() > FAR
