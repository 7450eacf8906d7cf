"""Users who do not change: updates come close to a fit of all, and know how sure they are."""

import numpy as np
import polars as pl
import pytest
from updating import by_key, day_of, joined, users

from gecasmo import DBN, EM, Empirical, Logistic, Table

DAYS, QUERIES = 6, 12


@pytest.fixture(scope="module")
def days():
    truth = users(QUERIES, seed=11)
    return truth, [day_of(truth, 500, QUERIES, day) for day in range(DAYS)]


def off(model, whole, coin):
    """The difference of two models' probabilities, in standard errors of the second."""
    a, b = by_key(model, coin), by_key(whole, coin)
    return ((a["probability"] - b["probability"]) / b["spread"]).to_numpy()


@pytest.mark.parametrize("prior", ["learned", "given"])
def test_daily_updates_are_close_to_a_fit_of_all_days(days, prior):
    truth, logs = days
    forms = {}
    if prior == "given":
        forms = {coin: Table(pseudo_counts=(1, 1)) for coin in ("attraction", "satisfaction")}
    whole = DBN(**forms).fit(joined(logs), progress=False)
    model = DBN(**forms).fit(logs[0], progress=False)
    for log in logs[1:]:
        model.update(log, 1.0, progress=False)
    # The bounds that docs/updates.md states for a DBN, doubled for a log this small.
    assert np.sqrt(np.mean(off(model, whole, "attraction") ** 2)) < 0.3
    assert np.sqrt(np.mean(off(model, whole, "satisfaction") ** 2)) < 0.5
    assert abs(off(model, whole, "continuation")[0]) < 1.5
    test = day_of(truth, 500, QUERIES, 99)
    assert whole.score(test) - model.score(test) < 0.004
    for coin in ("attraction", "satisfaction"):
        a, b = by_key(model, coin), by_key(whole, coin)
        ratio = (a["spread"] / b["spread"]).to_numpy()
        assert 0.9 < np.median(ratio) < 1.15
        np.testing.assert_allclose(a["trials"].sum(), b["trials"].sum(), rtol=0.05)
        real = truth.probability(coin, a)
        covered = np.mean((a["low"].to_numpy() <= real) & (real <= a["high"].to_numpy()))
        assert 0.8 < covered <= 1.0


def test_expected_flips_would_hold_on_to_the_past(days):
    """Hidden flips must not count as seen: what is remembered is less than what is expected."""
    _, logs = days
    model = DBN().fit(logs[0], progress=False)
    state, counts = model.states_["satisfaction"], model.report_.counts["satisfaction"]
    worth = state.evidence.sum()
    assert worth < 0.95 * counts.sum()
    seen = DBN(satisfaction=Table(prior=Empirical()))
    assert seen.fit(logs[0], progress=False).states_["satisfaction"].evidence is not None


def test_without_intervals_the_past_counts_as_expected(days):
    _, logs = days
    forms = {coin: Table(pseudo_counts=(1, 1)) for coin in ("attraction", "satisfaction")}
    model = DBN(**forms).fit(logs[0], progress=False, intervals=False)
    model.update(logs[1], 1.0, progress=False, intervals=False)
    assert model.estimates("attraction")["spread"].null_count() == len(
        model.parameters["attraction"]
    )
    whole = DBN(**forms).fit(joined(logs[:2]), progress=False)
    assert np.sqrt(np.mean(off(model, whole, "attraction") ** 2)) < 0.5


def featured(log, known, seed):
    frame = pl.DataFrame([log.column(n) for n in ("session", "query", "doc", "rank", "click")])
    rng = np.random.default_rng(seed)
    device = rng.choice(known, log.n_sessions)
    number = frame["session"].rank("dense").to_numpy().astype(int) - 1
    return frame.with_columns(device=pl.Series(device[number]))


def test_a_regression_goes_on_from_its_coefficients(days):
    from gecasmo import read_log

    _, logs = days
    frames = [
        featured(log, ["phone", "desk"] if day < 2 else ["phone", "desk", "watch"], day)
        for day, log in enumerate(logs[:4])
    ]
    make = lambda: DBN(  # noqa: E731
        attraction=Table(pseudo_counts=(1, 1)),
        satisfaction=0.5,
        continuation=Logistic("rank", "device"),
    )
    careful = EM(tol=1e-9)
    model = make().fit(read_log(frames[0]), careful, progress=False)
    for frame in frames[1:]:
        model.update(read_log(frame), 1.0, method=careful, progress=False)
    whole = make().fit(read_log(pl.concat(frames)), careful, progress=False)
    a, b = (m.coefficients["continuation"].sort("term") for m in (model, whole))
    assert a["term"].to_list() == b["term"].to_list()
    assert "device=watch" in a["term"].to_list()
    difference = (a["coefficient"] - b["coefficient"]) / b["standard_error"]
    assert difference.abs().max() < 1.0
    ratio = a["standard_error"] / b["standard_error"]
    assert ratio.is_between(0.8, 1.25).all()


def test_a_regression_without_news_stays(days):
    from gecasmo import read_log

    _, logs = days
    frame = featured(logs[0], ["phone", "desk"], 1)
    model = DBN(
        attraction=Table(pseudo_counts=(1, 1)), satisfaction=0.5, continuation=Logistic("device")
    ).fit(read_log(frame), EM(tol=1e-10), progress=False)
    before = model.coefficients["continuation"]
    nothing = read_log(frame.with_columns(weight=pl.lit(0.0)), weight="weight")
    model.update(nothing, 1.0, progress=False)
    after = model.coefficients["continuation"]
    np.testing.assert_allclose(after["coefficient"], before["coefficient"], atol=1e-4)
    np.testing.assert_allclose(after["standard_error"], before["standard_error"], rtol=1e-2)
