"""Laws of forms that read features: random programs, random logs, random columns."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from gecasmo import DBN, EM, ClickLog, Logistic, Sum, Table, read_log
from gecasmo.models import CATALOGUE
from strategies.cases import Case, cases, make_plain
from strategies.checks import close_to, many
from strategies.trees import Count, Flip, Program, as_model
from strategies.zoo import SHAPES, ZooCase

SHORT = EM(8, tol=0, accelerate=False, restarts=1)

# Six pages say little: features of such logs are constant, collinear or separate what they can.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The coins? .* separate"),
    pytest.mark.filterwarnings("ignore:The coins? .* always comes up"),
    pytest.mark.filterwarnings("ignore:The coins? .* constant"),
    pytest.mark.filterwarnings("ignore:The coins? .* collinear"),
    pytest.mark.filterwarnings("ignore:The coins? .* never flipped"),
]


@dataclass(frozen=True)
class Features:
    """Feature columns of a case, from a seed: by document, by page and by result."""

    seed: int
    case: Case

    def columns(self) -> dict[str, Any]:
        rng = np.random.default_rng(self.seed)
        table = self.case.table
        price = dict(zip((10, 11, 12), rng.normal(5, 3, 3).tolist(), strict=True))
        pages = range(len(self.case.pages))
        age = {page: int(rng.integers(18, 21)) for page in pages}
        region = {page: str(rng.choice(["north", "south"])) for page in pages}
        n = len(table["doc"])
        return {
            "price": [price[doc] for doc in table["doc"]],
            "age": [age[page] for page in table["session"]],
            "region": [region[page] for page in table["session"]],
            "heat": rng.choice([0.5, 1.0, 40.0, -3.0], n),
            "tone": rng.choice(["soft", "loud", "mid"], n),
        }

    @property
    def log(self) -> ClickLog:
        return read_log({**self.case.table, **self.columns()}, weight="weight")


ON_PAGE, ON_RESULT = ("age", "region"), ("price", "age", "region", "heat", "tone", "rank")


@st.composite
def forms(draw: Any, coin: str) -> Any:
    """A form that the coin can have; coins of start() only know what holds all over a page."""
    at_start = coin in ("s", "t")
    named = st.sampled_from(ON_PAGE if at_start else ON_RESULT)
    columns = draw(st.lists(named, min_size=1, max_size=3, unique=True))
    numbers = [name for name in columns if name in ("age", "rank", "price")]
    covariates = Logistic(
        *columns,
        l2=draw(st.sampled_from([0.0, 0.1, 1.0])),
        intercept=draw(st.booleans()),
        categorical=draw(st.sampled_from([(), tuple(numbers)])),
    )
    kind = draw(st.sampled_from(["logistic", "logistic", "sum", "result", "table"]))
    if kind == "table":
        return Table()
    if at_start or kind == "logistic":
        return covariates
    if kind == "result":
        return Logistic(*columns, l2=covariates.l2, key="result")
    column, key = ("price", "doc") if "price" in columns else ("heat", "result")
    spread = draw(st.sampled_from([0.1, 2.0]))
    return Sum(Logistic(column, l2=covariates.l2), spread=spread, key=key)


@st.composite
def featured(draw: Any, **options: Any) -> tuple[Features, dict[str, Any]]:
    """A case with feature columns and a form for each of its coins."""
    case = draw(cases(**options))
    chosen = {coin: draw(forms(coin)) for coin in case.program.keys}
    return Features(draw(st.integers(0, 10**6)), case), chosen


def fit(program: Program, chosen: dict[str, Any], log: ClickLog, method: EM = SHORT) -> Any:
    return make_plain(as_model(program)(**chosen)).fit(log, method, threads=1)


def climbs(history: Any) -> None:
    objective = history["objective"].to_numpy()
    assert np.isfinite(objective).all()
    assert (np.diff(objective) >= -1e-9 * np.maximum(1, np.abs(objective[1:]))).all()


# -- the objective ---------------------------------------------------------------------------------
@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("augmentation", ["minimal", "full"])
@many(15)
@given(made=featured())
def test_em_never_lowers_the_objective(augmentation: str, accelerate: bool, made: Any) -> None:
    features, chosen = made
    method = EM(12, tol=0, accelerate=accelerate, augmentation=augmentation, restarts=1, seed=3)
    model = fit(features.case.program, chosen, features.log, method)
    climbs(model.history)
    if any(isinstance(form, Sum) and form.key == ("result",) for form in chosen.values()):
        return  # offsets of single results serve the fit alone
    end = model.history["log_likelihood"][-1]
    close_to(model.log_likelihood(features.log) @ features.log.weight, end, 1e-9)


@pytest.mark.parametrize("name", SHAPES)
def test_em_never_lowers_the_objective_of_the_zoo(name: str) -> None:
    case = ZooCase(name, seed=41, n_pages=30)
    rng = np.random.default_rng(1)
    doc = np.array(case.table["doc"])
    log = read_log(
        {**case.table, "x": rng.normal(size=4)[doc], "heat": rng.normal(size=len(doc)).round(0)}
    )
    # What is flipped before the first result cannot read what results have.
    before = make_plain(CATALOGUE[name]()).traced_automaton.start_parameters()
    coins = [coin for coin in CATALOGUE[name]._parameters() if coin not in before]
    for form in (Logistic("x", "heat"), Sum(Logistic("x"), key="doc", spread=0.7)):
        model = make_plain(CATALOGUE[name](**dict.fromkeys(coins, form)))  # all coins share it
        climbs(model.fit(log, EM(10, tol=0)).history)
        model = make_plain(CATALOGUE[name](**{coins[0]: form}))
        climbs(model.fit(log, EM(10, tol=0)).history)


@many(14)
@given(case=cases(extremes=False), seed=st.integers(0, 999), column=st.sampled_from(ON_RESULT))
def test_a_level_per_row_is_a_table(case: Case, seed: int, column: str) -> None:
    """Effects of one column, no prior, no intercept: as free as a table without pseudo-counts."""
    log = Features(seed, case).log
    coins = [coin for coin in case.program.keys if coin not in ("s", "t")] or ["s"]
    used = column if coins != ["s"] else "age"
    levels = Logistic(used, l2=0, intercept=False, categorical=used)
    ends = []
    for coin in coins[:1]:
        for form in (levels, Table(pseudo_counts=(0, 0), key=used)):
            history = fit(case.program, {coin: form}, log).history
            ends.append(history["log_likelihood"].to_numpy())
    close_to(ends[0], ends[1], 1e-5)


@many(14)
@given(case=cases(extremes=False), seed=st.integers(0, 999), l2=st.sampled_from([0.0, 1.0]))
def test_a_sum_that_may_not_differ_is_a_regression(case: Case, seed: int, l2: float) -> None:
    log = Features(seed, case).log
    chosen = dict.fromkeys([c for c in case.program.keys if c not in ("s", "t")])
    covariates = Logistic("price", l2=l2, key="doc")
    ends = [
        fit(case.program, dict.fromkeys(chosen, form), log).history["log_likelihood"][-1]
        for form in (covariates, Sum(covariates, spread=1e-5))
    ]
    close_to(ends[0], ends[1], 1e-4)


# -- what a row is ---------------------------------------------------------------------------------
@many(14)
@given(
    case=cases(extremes=False),
    seed=st.integers(0, 999),
    columns=st.sampled_from([("heat",), ("price", "tone"), ("tone",), ("rank", "region")]),
)
def test_rows_by_combination_and_by_result_fit_alike(case: Case, seed: int, columns: Any) -> None:
    """Without a prior, for which the scales would matter."""
    log = Features(seed, case).log
    coins = [coin for coin in case.program.keys if coin not in ("s", "t")]
    histories = []
    for key in (None, "result"):
        chosen = {coin: Logistic(*columns, l2=0, key=key) for coin in coins}
        histories.append(fit(case.program, chosen, log).history["log_likelihood"].to_numpy())
    close_to(histories[0], histories[1], 1e-5)


@many(14)
@given(made=featured(extremes=False))
def test_a_form_is_a_table_of_what_it_predicts(made: Any) -> None:
    """Every answer depends on probabilities alone, not on where they come from."""
    features, chosen = made
    log = features.log
    model = fit(features.case.program, chosen, log, EM(3, tol=0, restarts=1))
    encoded = model.encode(log, "filter", merge=False)
    twin = model.copy()
    for (coin, form), rows in zip(model.forms.items(), encoded.rows, strict=True):
        if isinstance(form, (Logistic, Sum)):
            p = form.predict(model.states()[coin], rows)
            twin.forms[coin] = Table(key=rows.keys)
            frame = rows.frame.with_columns(probability=p)
            twin.states_[coin] = twin.forms[coin].given(frame, rows.keys, coin)
    make_plain(twin)
    close_to(twin.log_likelihood(log), model.log_likelihood(log))
    close_to(twin.predict_conditional_clicks(log), model.predict_conditional_clicks(log))
    close_to(twin.predict_clicks(log), model.predict_clicks(log))
    for coin in model.forms:
        ours, theirs = (m.expected_counts(log)[coin] for m in (model, twin))
        close_to(ours["heads"], theirs["heads"])
        close_to(ours["tails"], theirs["tails"])


@many(14)
@given(case=cases(), seed=st.integers(0, 999), summed=st.booleans())
def test_features_in_a_frame_are_features_in_the_log(case: Case, seed: int, summed: bool) -> None:
    log, bare = Features(seed, case).log, read_log(case.table, weight="weight")
    items = log.to_frame().unique("doc").select("price", "doc", more=pl.lit("unused"))
    coins = [coin for coin in case.program.keys if coin not in ("s", "t")]
    if not coins:
        return
    form: Any = Logistic("price", key="doc")
    if summed:
        form = Sum(Logistic("price"), key="doc", spread=0.5)
    inside, beside = (
        make_plain(as_model(case.program)(**dict.fromkeys(coins, form))) for _ in range(2)
    )
    inside.fit(log, SHORT, threads=1)
    beside.fit(bare, SHORT, features={coins[0]: items}, threads=1)  # serves all that share the form
    assert beside.history["objective"].equals(inside.history["objective"])
    close_to(beside.predict_clicks(bare), inside.predict_clicks(log), 1e-12)
    answers = [
        inside.probability(coins[0], log.to_frame()),
        inside.with_features(**{coins[0]: items}).probability(coins[0], bare.to_frame()),
        beside.probability(coins[0], bare.to_frame()),
        beside.probability(coins[0], log.to_frame()),
    ]
    for other in answers[1:]:
        close_to(other, answers[0], 1e-12)


# -- sessions --------------------------------------------------------------------------------------
def ended(model: Any, log: ClickLog) -> np.ndarray:
    """The objective, and what is said of the sessions of a log."""
    return np.append(model.log_likelihood(log), model.history["objective"][-1])


@many(14)
@given(made=featured(extremes=False), order=st.integers(0, 99))
def test_the_order_of_rows_plays_no_part(made: Any, order: int) -> None:
    features, chosen = made
    frame = pl.DataFrame({**features.case.table, **features.columns()})
    shuffled = read_log(frame.sample(fraction=1, shuffle=True, seed=order), weight="weight")
    first = fit(features.case.program, chosen, features.log, EM(4, tol=0, restarts=1))
    second = fit(features.case.program, chosen, shuffled, EM(4, tol=0, restarts=1))
    close_to(ended(second, features.log), ended(first, features.log), 1e-6)


@many(14)
@given(made=featured(extremes=False), times=st.lists(st.integers(1, 3), min_size=6, max_size=6))
def test_repeated_sessions_are_heavier_ones(made: Any, times: list[int]) -> None:
    features, chosen = made
    # With a row per result, repetitions are further rows, by which scales and offsets are learned.
    chosen = {
        coin: Logistic(*form.columns, l2=1.0) if "result" in (form.key or ()) else form
        for coin, form in chosen.items()
    }
    frame = pl.DataFrame({**features.case.table, **features.columns()})
    number = pl.col("session").replace_strict(dict(enumerate(times)), return_dtype=pl.Int64)
    heavier = frame.with_columns(weight=number.cast(pl.Float64))
    copies = [
        frame.filter(number > copy).with_columns(pl.col("session") + 100 * copy, weight=1.0)
        for copy in range(3)
    ]
    ends = []
    for data in (heavier, pl.concat(copies)):
        model = fit(features.case.program, chosen, read_log(data, weight="weight"))
        ends.append(ended(model, features.log))
    close_to(ends[0], ends[1], 1e-6)


# -- coins that share a form -----------------------------------------------------------------------
def renamed(tree: Any, old: str, new: str) -> Any:
    """The tree with one coin in place of another."""
    if isinstance(tree, Flip) and tree.coin == old:
        tree = replace(tree, coin=new)
    if isinstance(tree, Count):
        tree = replace(tree, coins=tuple(new if coin == old else coin for coin in tree.coins))
    for field in fields(tree):
        below = getattr(tree, field.name)
        if is_dataclass(below):
            tree = replace(tree, **{field.name: renamed(below, old, new)})
    return tree


@many(20)
@given(case=cases(extremes=False), seed=st.integers(0, 999), l2=st.sampled_from([0.0, 1.0]))
def test_coins_that_share_a_form_are_one_coin(case: Case, seed: int, l2: float) -> None:
    coins = [coin for coin in case.program.keys if coin not in ("s", "t")]
    if len(coins) < 2:
        return
    log = Features(seed, case).log
    old, new = coins[:2]
    keys = {coin: key for coin, key in case.program.keys.items() if coin != old}
    merged = replace(case.program, keys=keys, browse=renamed(case.program.browse, old, new))
    method = EM(8, tol=0, accelerate=False, augmentation="full", restarts=1)
    for form in (Logistic("price", "tone", l2=l2), Sum(Logistic("price"), key="doc", spread=0.7)):
        tied = fit(case.program, {old: form, new: form}, log, method)
        single = fit(merged, {new: form}, log, method)
        assert tied.states()[old] is tied.states()[new]
        close_to(tied.history["objective"], single.history["objective"], 1e-6)
        counts, total = tied.expected_counts(log, augmentation="full"), 0.0
        for coin in (old, new):
            total = total + counts[coin].select("heads", "tails").to_numpy()
        alone = single.expected_counts(log, augmentation="full")[new]
        close_to(total, alone.select("heads", "tails").to_numpy(), 1e-5)


# -- threads ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "form",
    [
        Logistic("x", "c", key="result"),
        Logistic("x", "c"),
        Sum(Logistic("x", "c"), key="result", spread=0.5),
        Sum(Logistic("c"), key=("query", "c")),
    ],
)
def test_any_number_of_threads_gives_the_same_bits(form: Any) -> None:
    rng = np.random.default_rng(0)
    n, length = 5_000, 5
    x, c = rng.normal(0, 1, n * length).round(2), rng.choice(list("abc"), n * length)
    log = read_log(
        {
            "session": np.repeat(np.arange(n), length),
            "query": np.repeat(rng.integers(0, 400, n), length),
            "doc": rng.integers(0, 40, n * length),
            "rank": np.tile(np.arange(1, length + 1), n),
            "click": rng.random(n * length) < expit(x - 1 + (c == "a")),
            "x": x,
            "c": c,
        }
    )
    fits = [
        DBN(attraction=form, satisfaction=Table(key="doc")).fit(log, EM(4, tol=0), threads=threads)
        for threads in (1, 2, 5)
    ]
    for fitted in fits[1:]:
        assert fitted.history["objective"].equals(fits[0].history["objective"])
        for coin, frame in fitted.parameters.items():
            assert frame.equals(fits[0].parameters[coin])
        np.testing.assert_array_equal(fitted.predict_clicks(log), fits[0].predict_clicks(log))
