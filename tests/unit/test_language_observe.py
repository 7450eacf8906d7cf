"""`user.observe`: what it may be told, what a log has to have, and laws of what comes out."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import gecasmo
from gecasmo import (
    EM,
    TACM,
    Beta,
    ClickLog,
    ClickModel,
    Density,
    Exponential,
    Gamma,
    Gradient,
    LogNormal,
    Normal,
    Parameter,
    Table,
    flip,
    load,
    read_log,
)
from gecasmo.compiler import hide
from gecasmo.errors import ClickLogError, GecasmoWarning, ModelError
from gecasmo.testing import check_model

TIMES = {True: LogNormal(4.5, 0.8), False: LogNormal(3.0, 1.0)}


def users(**more: Any) -> TACM:
    coins = {"attraction": 0.5, "satisfaction": 0.5, "continuation": 0.8}
    return TACM.with_values(**coins, reading=TIMES, **more)


def pages(n_pages: int, n_results: int = 4, n_queries: int = 4, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    docs = np.argsort(rng.random((n_pages, n_results + 1)), axis=1)[:, :n_results]
    return pl.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), n_results),
            "query": np.repeat(rng.integers(n_queries, size=n_pages), n_results),
            "doc": docs.ravel(),
            "rank": np.tile(np.arange(1, n_results + 1), n_pages),
        }
    )


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return users().simulate(pages(400), seed=3)


def changed(log: ClickLog, dwell: Any) -> ClickLog:
    return read_log(log.to_frame().with_columns(dwell=dwell))


# -- what a program may say ------------------------------------------------------------------------
def program(**own: Any) -> type[ClickModel]:
    """A model whose browse is given, with a coin and a density."""
    rest = {"taste": Parameter("doc"), "reading": Density(Normal())}
    return type("Own", (ClickModel,), rest | own)


def sees(*arguments: Any, **named: Any) -> Any:
    def browse(self: Any, user: Any, result: Any) -> None:
        user.happy = flip(self.taste)
        named_here = {k: v(user) if callable(v) else v for k, v in named.items()}
        user.observe(*(a(self) if callable(a) else a for a in arguments), **named_here)

    return browse


def reading(self: Any) -> Density:
    return self.reading


@pytest.mark.parametrize(
    ("browse", "told"),
    [
        (sees(3, reading), "A column is named by a text"),
        (sees("click", reading), "'click' cannot be observed"),
        (sees("dwell", "reading"), "observe() takes a Density of the model, not 'reading'"),
        (sees("dwell", reading, given=0.5), "a hidden state is wanted"),
        (sees("dwell", reading, given=lambda user: user.sad), "user.sad was never set"),
        (sees("dwell", lambda self: Density(Normal())), "not a Density of this model"),
    ],
)
def test_mistakes_are_shown_where_they_are(browse: Any, told: str) -> None:
    with pytest.raises(ModelError) as caught:
        program(browse=browse)()
    assert told in str(caught.value)
    assert "test_language_observe.py, line" in str(caught.value)


def test_what_is_observed_has_its_place() -> None:
    def twice(self: Any, user: Any, result: Any) -> None:
        user.observe("dwell", self.reading, given=flip(self.taste))
        user.observe("dwell", self.reading)

    def two_columns(self: Any, user: Any, result: Any) -> None:
        user.observe("dwell" if flip(self.taste) else "other", self.reading)

    def never(self: Any, user: Any, result: Any) -> None:
        flip(self.taste)

    def as_signal(self: Any, user: Any, result: Any) -> None:
        if flip(self.taste):
            user.emit("dwell")
        user.observe("dwell", self.reading)

    def elsewhere(self: Any, user: Any) -> None:
        user.observe("dwell", self.reading)

    wrong = {
        "'dwell' is observed twice at one result": {"browse": twice},
        "'reading' is the density of 'dwell' and cannot be that of 'other'": {
            "browse": two_columns
        },
        "Own never observes reading": {"browse": never},
        "observes 'dwell' as a number, and has it as yes or no": {"browse": as_signal},
        "it belongs into browse()": {"browse": never, "start": elsewhere},
        "so it belongs into browse()": {"browse": sees("dwell", reading), "finish": elsewhere},
    }
    for told, own in wrong.items():
        with pytest.raises(ModelError) as caught:
            program(**own)()
        assert told in str(caught.value)


def test_what_is_no_distribution_is_refused() -> None:
    for family in (LogNormal, 0.5, "LogNormal"):
        with pytest.raises(ModelError, match="a kind of distribution is wanted"):
            Density(family)
    with pytest.raises(ModelError, match="was used as a truth value"):
        bool(TACM.reading)
    with pytest.raises(ModelError, match=r"is to be learned, such as LogNormal\(\)"):
        TACM(reading=LogNormal(3.0, 1.0))
    with pytest.raises(ModelError, match=r"with_values lacks reading\[False\]"):
        TACM.with_values(attraction=0.5, satisfaction=0.5, continuation=0.8)
    for given in (0.5, LogNormal(), LogNormal(3.0, -1.0), LogNormal(float("nan"), 1.0)):
        with pytest.raises(ModelError, match=r"reading\[False\]="):
            TACM.with_values(attraction=0.5, satisfaction=0.5, continuation=0.8, reading=given)


# -- what a log has to have ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dwell", "told"),
    [
        (pl.col("dwell") - 1e6, r"has numbers above 0, but .* results have another value \(first"),
        (0.0 * pl.col("dwell"), "row .* has 0"),
        (pl.col("dwell") * np.inf, "has inf"),
        (pl.col("dwell").cast(pl.String), "as a number, but the column holds String"),
        (pl.col("dwell").fill_null(5.0), "only at results that show click, but .* row .* has 5.0"),
    ],
)
def test_values_that_cannot_be_are_named(log: ClickLog, dwell: Any, told: str) -> None:
    wrong = changed(log, dwell)
    for ask in (lambda: TACM().fit(wrong), lambda: users().log_likelihood(wrong)):
        with pytest.raises(ClickLogError, match=told):
            ask()


def test_a_column_that_is_not_there(log: ClickLog) -> None:
    bare = read_log(log.to_frame().drop("dwell"))
    with pytest.raises(ClickLogError, match="observes 'dwell', and the log has no such column"):
        TACM().fit(bare)
    dbn = gecasmo.DBN.with_values(attraction=0.5, satisfaction=0.5, continuation=0.8)
    for ask in ("log_likelihood", "predict_clicks", "predict_conditional_clicks"):
        np.testing.assert_allclose(getattr(users(), ask)(bare), getattr(dbn, ask)(bare), rtol=1e-12)


def test_one_value_and_no_value_tell_nothing(log: ClickLog) -> None:
    """Then every coin is estimated as by DBN, and the fit says so."""
    coins = {name: Table(pseudo_counts=(1, 1)) for name in ("attraction", "satisfaction")}
    dbn = gecasmo.DBN(**coins).fit(log, intervals=False)
    one = pl.when(pl.col("dwell").is_not_null()).then(7.0)
    for dwell, told in ((one, "has one value"), (pl.lit(None, pl.Float64), "recorded nowhere")):
        with pytest.warns(GecasmoWarning, match=told):
            model = TACM(**coins).fit(changed(log, dwell), intervals=False)
        for coin in ("attraction", "satisfaction", "continuation"):
            found, wanted = (m.parameters[coin]["probability"].to_numpy() for m in (model, dbn))
            np.testing.assert_allclose(found, wanted, atol=2e-3)
    with pytest.raises(ModelError, match="Nothing is known of how 'dwell' is spread"):
        model.log_likelihood(log)
    two = pl.when(pl.col("dwell").is_not_null()).then(
        pl.when(pl.col("doc") < 2).then(5.0).otherwise(7.0)
    )
    with pytest.warns(GecasmoWarning, match="as narrow as it may be"):
        TACM(**coins).fit(changed(log, two))


# -- distributions ---------------------------------------------------------------------------------
FAMILIES = [
    (Normal(1.5, 2.0), stats.norm(1.5, 2.0)),
    (LogNormal(0.5, 0.7), stats.lognorm(0.7, scale=np.exp(0.5))),
    (Gamma(3.0, 2.5), stats.gamma(2.5, scale=3.0 / 2.5)),
    (Exponential(4.0), stats.expon(scale=4.0)),
    (Beta(0.3, 5.0), stats.beta(1.5, 3.5)),
]


@pytest.mark.parametrize(("family", "known"), FAMILIES, ids=lambda one: type(one).__name__)
def test_distributions_are_those_of_scipy(family: Any, known: Any) -> None:
    share = np.linspace(0.01, 0.99, 23)
    x = family.quantile(share)
    np.testing.assert_allclose(x, known.ppf(share), rtol=1e-10)
    np.testing.assert_allclose(family.log_density(x), known.logpdf(x), rtol=1e-10, atol=1e-12)
    common = family.moved(np.full(len(family.vector(family)), 0.3))
    np.testing.assert_allclose(
        common.moved(family.vector(common)).numbers().values().__len__(), len(family.numbers())
    )
    again = common.moved(family.vector(common))
    np.testing.assert_allclose(list(again.numbers().values()), list(family.numbers().values()))
    # Slopes against differences.
    vector, step = family.vector(common), 1e-6
    for place in range(len(vector)):
        side = step * np.eye(len(vector))[place]
        ends = [common.moved(vector + way * side).log_density(x) for way in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(family.slopes(x, common)[place], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("family", "known"), FAMILIES, ids=lambda one: type(one).__name__)
def test_a_weighted_fit_is_where_the_score_is_zero(family: Any, known: Any) -> None:
    rng = np.random.default_rng(1)
    x, weight = family.quantile(rng.random(500)), rng.random(500)
    common = family.fitted(x, np.ones(500))
    found = family.fitted(x, weight, common)
    assert np.abs(found.slopes(x, common) @ weight).max() < 1e-6
    # Weights are counts: a weight of 2 is a value that is there twice.
    twice = family.fitted(np.concatenate([x, x[:50]]), np.ones(550), common)
    again = family.fitted(x, np.where(np.arange(500) < 50, 2.0, 1.0), common)
    np.testing.assert_allclose(list(twice.numbers().values()), list(again.numbers().values()))
    # Nearly one value: as narrow as may be, and no narrower.
    narrow = family.fitted(x[:1] * (1 + 1e-9 * rng.random(20)), np.ones(20), common)
    assert narrow.is_narrowest(common) or isinstance(family, Exponential)


# -- laws ------------------------------------------------------------------------------------------
def test_the_likelihood_of_a_page_integrates_to_one() -> None:
    """Over all patterns of clicks, and all times of those results that are clicked."""
    model = users()
    nodes, weights = np.polynomial.hermite_e.hermegauss(36)
    grid = np.exp(3.7 + 1.6 * nodes)
    # dx / (weight of the node): x is log-normal with these numbers.
    volume = weights / np.sqrt(2 * np.pi) / np.exp(LogNormal(3.7, 1.6).log_density(grid))
    frames, volumes = [], []
    shown = {"doc": ["a", "b"], "rank": [1, 2]}
    for clicks in itertools.product((False, True), repeat=2):
        for at in itertools.product(*(range(len(grid)) if c else [None] for c in clicks)):
            session = {"session": [len(frames)] * 2, "click": list(clicks)}
            times = [None if k is None else float(grid[k]) for k in at]
            dwell = {"dwell": pl.Series(times, dtype=pl.Float64)}
            frames.append(pl.DataFrame({**session, "query": ["q"] * 2, **shown, **dwell}))
            volumes.append(np.prod([1.0 if k is None else volume[k] for k in at]))
    found = np.exp(model.log_likelihood(read_log(pl.concat(frames))))
    assert (found * volumes).sum() == pytest.approx(1.0, abs=1e-6)


def test_units_only_move_the_likelihood(log: ClickLog) -> None:
    """Minutes instead of seconds: the same coins, the same clicks, another density."""
    method = EM(max_iter=30, tol=0)
    seconds, minutes = (
        TACM().fit(one, method) for one in (log, changed(log, pl.col("dwell") / 60))
    )
    n_times = log.column("dwell").is_not_null().sum() / log.n_sessions
    there = changed(log, pl.col("dwell") / 60)
    assert minutes.score(there) - seconds.score(log) == pytest.approx(np.log(60) * n_times)
    a, b = (m.evaluate(one) for m, one in ((seconds, log), (minutes, there)))
    assert a.conditional.pooled == pytest.approx(b.conditional.pooled, rel=1e-9)
    assert "log-likelihoods are of clicks and of the density of dwell" in " ".join(str(a).split())


def test_em_never_loses_and_ends_at_the_optimum(log: ClickLog) -> None:
    coins = {name: Table(pseudo_counts=(1, 1)) for name in TACM._parameters()}
    for reading in (LogNormal(), Gamma(), Exponential(), Normal()):
        for accelerate in (False, True):
            method = EM(max_iter=12, tol=0, accelerate=accelerate)
            model = TACM(**coins, reading=reading).fit(log, method, intervals=False)
            gains = np.diff(model.history["objective"].to_numpy())
            assert gains.min(initial=0.0) > -1e-9 * abs(model.report_.objective)
    model = TACM(**coins).fit(log, EM(max_iter=500, tol=1e-10), intervals=False)
    state = model.states()["reading[True]"]
    form = model.forms["reading[True]"]
    best = model.score(log)
    for step in (*np.eye(4), *-np.eye(4)):
        twin = model.copy()
        moved = form.from_vector(state, form.vector(state) + 0.02 * step)
        twin.states_ = {**model.states(), "reading[True]": moved, "reading[False]": moved}
        assert twin.score(log) < best


def test_clicks_below_are_foretold_from_times_above(log: ClickLog) -> None:
    """Of a result that was read for long, nobody goes on; clicks at the result know nothing."""
    rows = {"session": [1, 1], "query": ["q"] * 2, "doc": ["a", "b"], "rank": [1, 2]}
    found = [
        users().predict_conditional_clicks(read_log(rows | {"click": [1, 0], "dwell": [t, None]}))
        for t in (5.0, None, 400.0)
    ]
    assert {clicks[0] for clicks in found} == {0.5}
    assert found[0][1] > found[1][1] + 0.05 > found[2][1] + 0.1
    later = read_log(rows | {"click": [1, 1], "dwell": [None, 9.0]})
    assert users().predict_conditional_clicks(later)[1] == found[1][1]


def test_models_with_and_without_are_compared_by_clicks(log: ClickLog) -> None:
    compared = gecasmo.compare(log, ["DBN", "TACM"], bootstrap=0, method=EM(max_iter=20))
    table = compared.to_frame() if hasattr(compared, "to_frame") else compared.table
    scores = dict(table.select("model", "log_likelihood").iter_rows())
    assert abs(scores["TACM"] - scores["DBN"]) < 0.2  # times alone are worth about five
    assert any("foretells clicks also from dwell" in note for note in compared.notes)


def test_what_is_saved_is_what_was_there(log: ClickLog, tmp_path: Any) -> None:
    model = TACM().fit(log, EM(max_iter=5, tol=0))
    model.save(tmp_path / "made.fit")
    again = load(tmp_path / "made.fit")
    assert np.array_equal(again.log_likelihood(log), model.log_likelihood(log))
    assert again.parameters["reading[True]"].equals(model.parameters["reading[True]"])
    with pytest.raises(ModelError, match=r"density .* model\.parameters\['reading\[True\]'\] says"):
        model.estimates("reading[True]")
    assert again.simulate(log, seed=5).to_frame().equals(model.simulate(log, seed=5).to_frame())
    further = again.fit(log, EM(max_iter=5, tol=0), start=model)
    assert further.history["objective"][0] == pytest.approx(model.history["objective"][-1])


def test_check_model_examines_it() -> None:
    class Labelled(ClickModel):
        """Sees a soft label of what users look at, and a pointer anywhere."""

        taste = Parameter("doc")
        looking = Parameter("rank")
        label = Density(Beta())
        pointer = Density(Normal())

        def browse(self, user: Any, result: Any) -> None:
            """At one result."""
            looks = flip(self.looking)
            user.observe("pointer", self.pointer, given=int(looks))
            if looks:
                liked = flip(self.taste)
                user.observe("label", self.label, given=liked)
                if liked:
                    user.click()

    assert check_model(Labelled, compiled=False).passed


def test_without_numbers_the_automaton_is_that_of_dbn() -> None:
    bare = hide.without_numbers(TACM().traced_automaton)
    assert bare.edges == gecasmo.DBN().traced_automaton.edges
    assert bare.parameters == gecasmo.DBN().traced_automaton.parameters


# -- keys, and another day -----------------------------------------------------------------------
class ByDevice(ClickModel):
    """What is read is clicked; how long depends on the device."""

    attraction = Parameter("query", "doc")
    satisfaction = Parameter()
    reading = Density(LogNormal(), "device")

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.attraction):
            user.click()
            user.observe("dwell", self.reading, given=flip(self.satisfaction))


SLOW = {"phone": LogNormal(4.0, 0.5), "desk": LogNormal(5.5, 0.6)}
FAST = {"phone": LogNormal(1.0, 0.7), "desk": LogNormal(2.5, 0.4)}


def on_devices(n_pages: int, seed: int) -> ClickLog:
    shown = pages(n_pages, seed=seed)
    device = pl.when(pl.col("session") % 3 == 0).then(pl.lit("phone")).otherwise(pl.lit("desk"))
    reading = {True: SLOW, False: FAST}
    truth = ByDevice.with_values(attraction=0.5, satisfaction=0.6, reading=reading)
    return truth.simulate(shown.with_columns(device=device), seed=seed)


def test_a_density_by_device_finds_each_device(tmp_path: Any) -> None:
    log = on_devices(500, seed=4)
    model = ByDevice().fit(log, EM(200), progress=False, intervals=False)
    told = model.parameters["reading[True]"]
    apart = told.filter(pl.col("device").is_not_null())
    truth = {"reading[True]": SLOW, "reading[False]": FAST}
    if model.parameters["satisfaction"]["probability"][0] < 0.5:  # names of hidden states are free
        truth = {"reading[True]": FAST, "reading[False]": SLOW}
    assert len(apart) == 4
    for row in apart.iter_rows(named=True):
        mean, deviation = truth[row["density"]][row["device"]]._parts()
        error = deviation / np.sqrt(row["values"])
        assert abs(row["mean"] - mean) < 4 * error + 0.02
        assert abs(row["deviation"] - deviation) < 4 * error + 0.02
    together = told.filter(pl.col("device").is_null())
    for coin in truth:  # that of all devices, for one that is new
        own = apart.filter(density=coin)
        mean = np.average(own["mean"], weights=own["values"])
        assert together.filter(density=coin)["mean"][0] == pytest.approx(mean, rel=1e-3)
    model.save(tmp_path / "made.fit")
    again = load(tmp_path / "made.fit")
    assert again.parameters["reading[True]"].equals(told)
    new = read_log(log.to_frame().with_columns(device=pl.lit("watch")))
    assert np.array_equal(again.log_likelihood(new), model.log_likelihood(new))
    assert check_model(ByDevice, compiled=False).passed


def test_keys_of_densities_make_sense() -> None:
    log = on_devices(20, seed=5)
    for keys in (("last_click",), ("click",), ("device", "device"), (3,)):
        with pytest.raises(ModelError, match="a key is a column of the log"):
            Density(LogNormal(), *keys)
    lost = log.to_frame().with_columns(device=pl.lit(None, pl.String))
    with pytest.raises(ClickLogError, match=r"depends on .device., but .* have none there"):
        ByDevice().fit(read_log(lost), progress=False)
    with pytest.raises(ModelError, match="a value of each of device is wanted"):
        ByDevice.with_values(
            attraction=0.5,
            satisfaction=0.6,
            reading={True: {("a", 1): LogNormal(1, 1)}, False: FAST},
        )


@pytest.mark.parametrize("kind", [LogNormal(), Gamma()])
def test_an_update_is_the_fit_of_both_days(kind: Any) -> None:
    """Where nothing is hidden, what a day leaves behind is all that it said; and in an update as in
    a fit the objective never falls."""

    class Times(ClickModel):
        attraction = Parameter("rank")
        reading = Density(kind, "device")

        def browse(self, user: Any, result: Any) -> None:
            if flip(self.attraction):
                user.click()
                user.observe("dwell", self.reading)

    whole = on_devices(200, seed=6)
    first, second = whole.split(test=0.4, by="session", seed=1)
    model = Times().fit(first, progress=False).update(second, decay=1.0, progress=False)
    both = Times().fit(whole, progress=False)
    keys = ["device", "density"]
    one, other = (m.parameters["reading"].sort(keys) for m in (model, both))
    for name in one.select(pl.selectors.float()).columns:
        np.testing.assert_allclose(one[name], other[name], rtol=2e-6)
    assert one["values"].sum() == 2 * whole.click.sum()


def test_an_update_with_hidden_states_never_falls() -> None:
    first, second = on_devices(300, seed=7).split(test=0.5, by="session", seed=1)
    method = EM(30, accelerate=False)
    model = ByDevice().fit(first, method, progress=False, intervals=False)
    before = model.parameters["reading[True]"]
    model.update(second, method=method, progress=False, intervals=False)
    climbed = model.history["objective"].to_numpy()
    assert (np.diff(climbed) > -1e-9 * abs(climbed[0])).all()
    after = model.parameters["reading[True]"]
    assert (after["values"] > before["values"]).all()


def test_matrices_and_gradients_say_what_they_cannot(log: ClickLog) -> None:
    with pytest.raises(ModelError, match="it sees users through numbers: dwell"):
        gecasmo.matrices.write(users(), 3)
    pytest.importorskip("torch")
    with pytest.raises(ModelError, match="Gradient cannot train the form Density"):
        TACM().fit(log, Gradient(), progress=False)
