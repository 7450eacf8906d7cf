"""Where nothing is hidden an update is a sum of decayed counts."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from updating import by_key, day_of, joined, log_of, users

import gecasmo
from gecasmo import DBN, DCTR, EM, GCTR, Empirical, Fixed, Table, read_log

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["x", "y", "z"]),
        st.integers(0, 1),
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=12,
)


def by_hand(days, decay, pseudo):
    """Decayed heads and tails of every pair, day by day, and their means."""
    table = {}
    for age, day in enumerate(reversed(days)):
        for query, doc, clicked, times in day:
            counts = table.setdefault((query, doc), [0.0, 0.0])
            counts[1 - clicked] += times * decay**age
    return {key: ((h + pseudo[0]) / (h + t + sum(pseudo)), h, t) for key, (h, t) in table.items()}


@settings(max_examples=12, deadline=None)
@given(
    st.lists(ROWS, min_size=2, max_size=4),
    st.sampled_from([1.0, 0.9, 0.5]),
    st.sampled_from([(1.0, 1.0), (0.5, 2.0)]),
)
def test_updates_of_a_table_are_decayed_sums(days, decay, pseudo):
    model = DCTR(click_rate=Table(pseudo_counts=pseudo))
    model.fit(log_of(days[0]), progress=False)
    for number, day in enumerate(days[1:], 1):
        model.update(log_of(day, 100 * number), decay, progress=False)
    wanted = by_hand(days, decay, pseudo)
    found = model.parameters["click_rate"]
    assert {(q, d) for q, d in found.select("query", "doc").rows()} == set(wanted)
    spreads = model.estimates("click_rate")["spread"]
    for row, spread in zip(found.iter_rows(named=True), spreads, strict=True):
        mean, heads, tails = wanted[row["query"], row["doc"]]
        assert row["probability"] == pytest.approx(mean, abs=1e-6)
        assert row["heads"] == pytest.approx(heads, abs=1e-9)
        assert row["tails"] == pytest.approx(tails, abs=1e-9)
        worth = heads + tails + sum(pseudo)
        assert spread == pytest.approx(np.sqrt(mean * (1 - mean) / (worth + 1)), rel=2e-3)


def test_an_update_equals_a_fit_with_weights_by_age():
    truth = users(4, seed=1)
    days = [day_of(truth, 150, 4, day) for day in range(3)]
    make = lambda: DCTR(click_rate=Table(pseudo_counts=(1, 2)))  # noqa: E731
    model = make().fit(days[0], progress=False)
    for day in days[1:]:
        model.update(day, 0.7, progress=False)
    whole = make().fit(joined(days, [0.49, 0.7, 1.0]), progress=False)
    np.testing.assert_allclose(
        by_key(model, "click_rate")["probability"],
        by_key(whole, "click_rate")["probability"],
        atol=1e-6,
    )
    assert model.report_.total_weight == pytest.approx(whole.report_.total_weight)
    assert model.report_.n_sessions == 450


def test_one_coin_for_all_pages_without_pseudo_counts():
    model = GCTR(click_rate=Table(pseudo_counts=(0, 0)))
    model.fit(log_of([("a", "x", 0, 4)]), progress=False)
    assert model.parameters["click_rate"]["probability"][0] == 0
    # A coin that never came up heads may do so one day.
    model.update(log_of([("a", "x", 1, 1), ("b", "x", 0, 1)], 10), 0.5, progress=False)
    assert model.parameters["click_rate"]["probability"][0] == pytest.approx(1 / 4, abs=1e-6)


def test_other_queries_change_nothing_of_a_row():
    truth = users(8, seed=2)
    forms = {
        "attraction": Table(pseudo_counts=(1, 1)),
        "satisfaction": Table(pseudo_counts=(1, 1)),
        "continuation": Fixed(0.8),
    }
    first, second = day_of(truth, 200, 4, 1), day_of(truth, 200, 4, 2, first=4)
    careful = EM(tol=1e-12)
    model = DBN(**forms).fit(first, careful, progress=False)
    model.update(second, 1.0, method=careful, progress=False)
    whole = DBN(**forms).fit(joined([first, second]), careful, progress=False)
    for coin in ("attraction", "satisfaction"):
        a, b = by_key(model, coin), by_key(whole, coin)
        np.testing.assert_allclose(a["probability"], b["probability"], atol=1e-6)
        np.testing.assert_allclose(a["trials"], b["trials"], rtol=1e-4)
        np.testing.assert_allclose(a["spread"], b["spread"], rtol=0.02)


@pytest.mark.parametrize("prior", [None, "empirical"])
def test_a_log_that_weighs_nothing_only_lets_the_past_fade(prior):
    truth = users(4, seed=3)
    table = Table(prior=prior) if prior else Table(pseudo_counts=(2, 3))
    model = DBN(attraction=table).fit(day_of(truth, 300, 4, 1), progress=False)
    before = {coin: by_key(model, coin) for coin in model.forms}
    nothing = joined([day_of(truth, 20, 4, 2)], [0.0])
    same = model.copy().update(nothing, 1.0, progress=False)
    for coin, frame in before.items():
        again, keys = by_key(same, coin), list(model.keys[coin])
        known, still = (it.parameters[coin].sort(keys or "probability") for it in (model, same))
        np.testing.assert_allclose(still["probability"], known["probability"], atol=4e-3)
        # Of a past only heads and tails are kept, not how lopsided a belief was.
        moved = (again["probability"] - frame["probability"]).abs() / frame["spread"]
        assert moved.max() < 0.1
        np.testing.assert_allclose(again["spread"], frame["spread"], rtol=0.03)
        np.testing.assert_allclose(again["trials"], frame["trials"], rtol=1e-9)
    faded = model.copy().update(nothing, 0.5, progress=False)
    wider = by_key(faded, "attraction")["spread"] / before["attraction"]["spread"]
    assert (wider > 1.05).all()
    assert (wider < 1.8).all()
    np.testing.assert_allclose(
        by_key(faded, "attraction")["trials"], before["attraction"]["trials"] / 2, rtol=1e-9
    )


def test_the_order_of_rows_is_irrelevant():
    truth = users(4, seed=4)
    first, second = day_of(truth, 200, 4, 1), day_of(truth, 200, 4, 2)
    rng = np.random.default_rng(0)
    one = DBN().fit(first, progress=False).update(second, progress=False)
    mixed = [log.take(rng.permutation(log.n_sessions)) for log in (first, second)]
    other = DBN().fit(mixed[0], progress=False).update(mixed[1], progress=False)
    for coin in one.forms:
        for column in ("probability", "spread"):
            np.testing.assert_allclose(
                by_key(one, coin)[column], by_key(other, coin)[column], rtol=1e-6
            )


def test_saving_in_between_changes_nothing(tmp_path):
    truth = users(5, seed=5)
    days = [day_of(truth, 200, 4, 1), day_of(truth, 200, 4, 2, first=1), day_of(truth, 99, 5, 3)]
    kept = DBN().fit(days[0], progress=False)
    saved = kept.copy()
    for day in days[1:]:
        kept.update(day, 0.9, progress=False)
        saved.save(tmp_path / "model.fit")
        saved = gecasmo.load(tmp_path / "model.fit").update(day, 0.9, progress=False)
    for coin in kept.forms:
        a, b = by_key(kept, coin), by_key(saved, coin)
        assert a.drop("probability", "spread", "low", "high", "trials").equals(
            b.drop("probability", "spread", "low", "high", "trials")
        )
        for column in ("probability", "spread", "trials"):
            np.testing.assert_allclose(a[column], b[column], rtol=1e-9)
    assert saved.report_.total_weight == pytest.approx(0.81 * 200 + 0.9 * 200 + 99)
    assert len(saved.history) == len(kept.history)


def test_rows_given_by_the_user_stay_given():
    truth = users(4, seed=6)
    form = Table(fixed={1: 1.0})
    model = gecasmo.PBM(examination=form).fit(day_of(truth, 200, 4, 1), progress=False)
    model.update(day_of(truth, 200, 4, 2), progress=False)
    first = model.estimates("examination").filter(pl.col("rank") == 1).row(0, named=True)
    assert (first["probability"], first["spread"], first["rests_on"]) == (1.0, 0.0, "given")
    assert model.forms["examination"] is form


def test_a_prior_of_groups_takes_in_new_documents():
    truth = users(6, seed=7)
    table = Table(prior=Empirical(by=("doc", "query")))
    model = DBN(attraction=table).fit(day_of(truth, 300, 4, 1), progress=False)
    before = model.estimates("attraction")
    model.update(day_of(truth, 300, 4, 2, first=2), 1.0, progress=False)
    after = model.estimates("attraction")
    assert len(after) > len(before)
    assert after["spread"].is_not_null().all()
    assert (after["spread"] > 0).all()
    unseen = model.estimates("attraction", pl.DataFrame({"query": ["none"], "doc": ["d0"]}))
    assert unseen["rests_on"][0] == "doc"


@pytest.mark.parametrize("by", ["rank", "impressions", ("brand", "exposure")])
def test_what_is_typical_of_rows_is_that_of_both_logs(by, tmp_path):
    truth = users(8, seed=8)
    frames = [
        pl.DataFrame([log.column(n) for n in ("session", "query", "doc", "rank", "click")])
        for log in (day_of(truth, 300, 8, 1), day_of(truth, 300, 8, 2, first=2))
    ]
    brand = (pl.col("query") + pl.col("doc")).hash(1) % 8
    frames = [frame.with_columns(brand=brand.cast(pl.String)) for frame in frames]
    days = [read_log(frame) for frame in frames]
    table = Table(prior=Empirical(by=by))
    model = DBN(attraction=table).fit(days[0], progress=False)
    model.save(tmp_path / "model.fit")
    model = gecasmo.load(tmp_path / "model.fit").update(days[1], 1.0, progress=False)
    whole = DBN(attraction=table).fit(read_log(pl.concat(frames)), progress=False)
    a, b = (one.states_["attraction"] for one in (model, whole))
    order = [np.argsort(key_of(state)) for state in (a, b)]
    assert set(a.typical) == set(b.typical)
    for name in a.typical:
        if name != "brand":  # of which the place among all values is kept
            np.testing.assert_allclose(a.typical[name][order[0]], b.typical[name][order[1]])
    off = (a.probability[order[0]] - b.probability[order[1]]) / b.spread[order[1]]
    assert np.sqrt(np.mean(off**2)) < 0.35


def test_what_is_typical_fades():
    truth = users(8, seed=9)
    first, second = day_of(truth, 300, 8, 1), day_of(truth, 200, 8, 2)
    model = DBN().fit(first, progress=False).update(second, 0.5, progress=False)
    whole = DBN().fit(joined([first, second], [0.5, 1.0]), progress=False)
    a, b = (one.states_["attraction"] for one in (model, whole))
    order = [np.argsort(key_of(state)) for state in (a, b)]
    of_documents = {"place of document", "exposure of document"}
    own = {"rank", "place", "exposure", "impressions", "*pages*"}
    assert set(a.typical) == own | of_documents
    # Where rows are that pages do not show, the first log has told once and for all.
    for name in own - {"place"}:
        np.testing.assert_allclose(a.typical[name][order[0]], b.typical[name][order[1]])
    np.testing.assert_allclose(
        np.sort(a.priors.unseen.pages), np.sort(b.priors.unseen.pages), rtol=1e-12
    )


def test_shared_coins_take_what_was_said_of_rows_along():
    """Where a first fit was wrong about a global coin, rows do not hold on to that."""
    truth = users(30, seed=10)
    days = [day_of(truth, 400, 30, day) for day in range(6)]
    model = DBN().fit(days[0], progress=False)
    leans = model.states_["attraction"].leans["continuation"]
    assert leans.shape == (1, len(model.states_["attraction"].rows))
    # If people go on more often, results that were not clicked have been skipped more often.
    assert leans.sum() < 0
    for day in days[1:]:
        model.update(day, 1.0, progress=False)
    whole = DBN().fit(joined(days), progress=False)
    a, b = model.estimates("continuation"), whole.estimates("continuation")
    assert abs(a["probability"][0] - b["probability"][0]) < 1.0 * b["spread"][0]
    assert 0.8 < a["spread"][0] / b["spread"][0] < 1.25


def key_of(state):
    return (state.rows.frame["query"] + "/" + state.rows.frame["doc"]).to_numpy()
