"""Days on which most rows are hardly flipped: what is not seen tells nothing of a prior."""

import numpy as np
import polars as pl
import pytest

from gecasmo import DBN, ClickLog, read_log
from gecasmo.estimation.posteriors.regression import bends
from gecasmo.forms.memory import RowPast


def zipf_day(n_pages: int, seed: int) -> ClickLog:
    """A few queries are frequent and most are rare; satisfaction has no shape that a Beta has."""
    rng = np.random.default_rng(seed)
    query = rng.zipf(1.3, n_pages) % 800
    docs = (np.arange(6)[None, :] + rng.integers(0, 9, (n_pages, 1))) % 14
    pair = query[:, None] * 31 + docs
    attraction = pair * 2654435761 % 1000 / 2000
    satisfaction = pair * 40503 % 1000 / 1000
    alive, click = np.ones(n_pages, bool), np.zeros((n_pages, 6), bool)
    for place in range(6):
        click[:, place] = alive & (rng.random(n_pages) < attraction[:, place])
        alive &= ~(click[:, place] & (rng.random(n_pages) < satisfaction[:, place]))
        alive &= rng.random(n_pages) < 0.9
    return read_log(
        pl.DataFrame(
            {
                "session": np.repeat(np.arange(n_pages) + seed * 100_000, 6),
                "query": np.repeat(query, 6),
                "doc": docs.ravel(),
                "rank": np.tile(np.arange(1, 7), n_pages),
                "click": click.ravel(),
            }
        )
    )


@pytest.fixture(scope="module")
def days():
    return zipf_day(6_000, 1), zipf_day(3_000, 2), zipf_day(3_000, 3)


@pytest.fixture(scope="module")
def first(days):
    return DBN().fit(days[0], progress=False)


def strength(model, coin):
    return model.states_[coin].priors.strength


def test_priors_stay_what_they_are_on_sparse_days(days, first):
    model = first.copy()
    for seed in range(2, 6):
        model.update(zipf_day(3_000, seed), 0.98, progress=False)
    for coin in ("attraction", "satisfaction"):
        # Four days of half the size cannot turn over what the first one has found.
        assert 0.5 < strength(model, coin) / strength(first, coin) < 2
        found = model.parameters[coin]["probability"].to_numpy()
        assert found.min() > 0
        assert found.max() < 1


def test_an_update_is_worth_as_much_as_a_fit_of_both(days, first):
    both = pl.concat(
        [
            pl.DataFrame([log.column(n) for n in ("session", "query", "doc", "rank", "click")])
            for log in days[:2]
        ]
    )
    whole = DBN().fit(read_log(both), progress=False)
    model = first.copy().update(days[1], 1.0, progress=False)
    assert whole.score(days[2]) - model.score(days[2]) < 0.003
    assert model.score(days[2]) > first.score(days[2])


def test_a_model_with_rows_in_files_remembers_the_same(days, first, tmp_path):
    stored = ClickLog.ingest([days[0]], tmp_path / "first.gclog", progress=False)
    model = DBN().fit(stored, progress=False)
    whole, _ = model.states_["attraction"].whole()
    known = first.states_["attraction"]
    assert set(whole.typical) == set(known.typical)
    leans = [np.sort(state.leans["continuation"][0]) for state in (whole, known)]
    np.testing.assert_allclose(leans[0], leans[1], atol=0.05 * np.abs(leans[1]).max())
    before = {coin: differences(model, first, coin) for coin in model.keys}
    model.update(days[1], 0.9, progress=False)
    other = first.copy().update(days[1], 0.9, progress=False)
    for coin in ("attraction", "satisfaction", "continuation"):
        off, wider = differences(model, other, coin)
        # Their first fits differ: parts look at rows once where a log in memory sweeps. An update
        # adds nothing to that.
        assert off.max() < max(0.05, 1.5 * before[coin][0].max())
        assert np.quantile(off, 0.99) < max(0.05, np.quantile(before[coin][0], 0.99))
        assert np.quantile(wider, 0.99) < max(0.05, np.quantile(before[coin][1], 0.99))


def differences(model, other, coin):
    """How far the rows of two models are apart, in spreads, and how much the spreads differ."""
    keys = list(model.keys[coin])
    a, b = model.estimates(coin), other.estimates(coin)
    if keys:
        a, b = a.sort(keys), b.sort(keys)
    off = (a["probability"] - b["probability"]) / b["spread"]
    return np.abs(off.to_numpy()), np.abs((a["spread"] / b["spread"]).to_numpy() - 1)


def test_what_is_taken_from_a_prior_is_a_share_of_it():
    prior = np.array([[2.0, 2.0], [1.0, 1.0]])
    past = RowPast.of(np.array([[-1.5, 3.0], [0.5, -2.0]]), prior)
    np.testing.assert_allclose(past.under(prior), [[0.5, 5.0], [1.5, 0.01]])
    np.testing.assert_allclose(past.under(prior / 10), [[0.05, 3.2], [0.6, 0.001]])
    np.testing.assert_allclose(past.at(np.array([-1, 0])).under(prior)[:, 0], prior[:, 0])


def test_a_past_can_be_taken_away_again():
    rng = np.random.default_rng(3)
    prior, shift = rng.gamma(2.0, 1.0, (2, 20)), rng.normal(0, 0.1, 20)
    past = RowPast(rng.uniform(0.2, 1.0, (2, 20)), rng.gamma(1.0, 1.0, (2, 20)) + 1.0, shift)
    np.testing.assert_allclose(past.without(past.under(prior)), prior)
    unmoved = RowPast(past.share, past.added).under(prior)
    np.testing.assert_allclose(past.under(prior).sum(axis=0), unmoved.sum(axis=0))


def test_bends_are_derivatives_of_what_the_past_has_not_foretold():
    """Against differences of log B(a + h, b + t) - log B(a, b), past included in a and b."""
    from scipy.special import betaln

    rng = np.random.default_rng(4)
    n_rows = 40
    flips = rng.gamma(1.0, 2.0, (2, n_rows))
    logit, log_strength = rng.normal(0.0, 1.0, n_rows), rng.normal(1.0, 0.5, n_rows)
    # By now a little of the past looks different, which nobody knew before.
    past = RowPast(
        rng.uniform(0.2, 1.0, (2, n_rows)),
        rng.gamma(1.0, 1.0, (2, n_rows)) + 0.5,
        rng.normal(0.0, 0.1, n_rows),
    )
    known_then = RowPast(past.share, past.added)

    def told(by_m, by_s):
        mean, strength = 1 / (1 + np.exp(-logit - by_m)), np.exp(log_strength + by_s)
        prior = np.stack([strength * mean, strength * (1 - mean)])
        return betaln(*(past.under(prior) + flips)) - betaln(*known_then.under(prior))

    found = bends(flips, np.arange(n_rows), logit, log_strength, past)
    e = 1e-3
    m = (told(e, 0) - told(-e, 0)) / (2 * e)
    s = (told(0, e) - told(0, -e)) / (2 * e)
    mm = (told(e, 0) + told(-e, 0) - 2 * told(0, 0)) / e**2
    ss = (told(0, e) + told(0, -e) - 2 * told(0, 0)) / e**2
    ms = (told(e, e) - told(e, -e) - told(-e, e) + told(-e, -e)) / (4 * e**2)
    for name, wanted in {"m": m, "s": s, "mm": mm, "ms": ms, "ss": ss}.items():
        np.testing.assert_allclose(getattr(found, name), wanted, rtol=1e-3, atol=2e-4)
