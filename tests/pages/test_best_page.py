"""The best order of a page: against all orders, laws, and the rule that is known for chains."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecasmo import DBN, PBM, UBM, ClickLog, ClickModel, GridDBN, Table, TwoRate, read_log
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.model.beliefs import drawn_states
from gecasmo.pages.candidates import Rules, as_candidates, pages_of
from gecasmo.pages.chains import Chains, is_proven
from gecasmo.pages.promise import _unshrunk
from gecasmo.pages.worth import Worth
from strategies.cases import Case, cases
from strategies.checks import close_to, many

SURE = {"quantile": 0.5, "min_examinations": 0, "samples": 0}


def every_page(
    model: Any, frame: pl.DataFrame, size: int, worth: Any
) -> tuple[np.ndarray, np.ndarray]:
    """All pages of so many of the candidates, and what each is worth."""
    orders = np.array(list(permutations(range(len(frame)), size)))
    page = np.repeat(np.arange(len(orders)), size)
    rank = np.tile(np.arange(1, size + 1), len(orders))
    log = pages_of(model, frame, orders.ravel(), page, rank)
    found = model.page_value(log, worth, draws=0).frame["worth"].to_numpy()
    return orders, found


def candidates_of(case: Case, rng: np.random.Generator) -> pl.DataFrame:
    """At most four results of a random log, as candidates of one query, with a price."""
    frame = pl.DataFrame(case.table).drop("weight", *case.signals, "session")
    frame = frame.unique("doc", maintain_order=True).head(4)
    frame = frame.with_columns(pl.lit(frame[name][0]).alias(name) for name in ("query", "device"))
    return frame.with_columns(gain=pl.Series(rng.normal(size=len(frame))))


@many(20)
@given(case=cases(), seed=st.integers(0, 10**6))
def test_random_programs_against_all_orders(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = candidates_of(case, rng)
    size = int(rng.integers(1, len(frame) + 1))
    worth: Any = {"click": "gain", "abandonment": float(rng.normal())}
    if seed % 2:
        worth = {"click": 1.0, "reached": float(rng.normal())}
    orders, values = every_page(case.model, frame, size, worth)
    found = case.model.best_page(frame.drop("rank"), size, worth, **SURE)
    row = found.queries.row(0, named=True)
    close_to(row["worth"], values.max())
    close_to(row["score"], values.max())
    assert row["is_proven"]
    docs = found.frame["doc"].to_list()
    same = [frame["doc"].gather(order.tolist()).to_list() == docs for order in orders]
    close_to(values[np.argmax(same)], values.max())
    # Exchanges alone stay below, and their bound above.
    quick = case.model.best_page(frame.drop("rank"), size, worth, effort=0, **SURE)
    row = quick.queries.row(0, named=True)
    assert row["score"] <= values.max() + 1e-9
    assert row["score"] + row["gap"] >= values.max() - 1e-9
    close_to(row["score"], row["worth"])


@many(20)
@given(case=cases(), seed=st.integers(0, 10**6))
def test_laws_of_random_programs(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = candidates_of(case, rng).drop("rank")
    size = int(rng.integers(1, max(len(frame), 2)))
    worth = {"click": "gain", "reached": float(rng.normal())}
    best = case.model.best_page(frame, size, worth, **SURE).queries["worth"][0]
    # It is worth as much as any other page of as many of them, and such a page, pinned, is its own
    # best.
    shown = pl.Series("rank", rng.permutation(len(frame)) + 1)
    ranked = frame.with_columns(shown, pin=pl.when(shown <= size).then(shown))
    told = case.model.best_page(ranked, size, worth, **SURE).queries
    close_to(told["worth"][0], best)
    assert told["lift"][0] >= -1e-9
    pinned = case.model.best_page(ranked, size, worth, pinned="pin", **SURE)
    assert pinned.frame["rank"].equals(pinned.frame["shown_rank"])
    close_to(pinned.queries["worth"][0], told["shown_worth"][0])
    assert pinned.queries["is_proven"][0]
    # One more candidate never lowers it.
    if len(frame) > size:
        fewer = case.model.best_page(frame.head(len(frame) - 1), size, worth, **SURE)
        assert best >= fewer.queries["worth"][0] - 1e-9


def many_candidates(n_queries: int, n: int, seed: int = 0) -> tuple[pl.DataFrame, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    frame = pl.DataFrame(
        {"query": np.repeat(np.arange(n_queries), n), "doc": np.tile(np.arange(n), n_queries)}
    ).with_columns(
        price=pl.Series(rng.uniform(0.5, 2, n_queries * n)),
        brand=pl.Series(rng.integers(3, size=n_queries * n)),
    )
    rows = list(zip(frame["query"], frame["doc"], strict=True))
    attraction = dict(zip(rows, rng.beta(2, 3, len(rows)), strict=True))
    satisfaction = dict(zip(rows, rng.beta(2, 2, len(rows)), strict=True))
    return frame, {"attraction": attraction, "satisfaction": satisfaction}


def as_model(kind: Any, values: dict[str, Any]) -> ClickModel:
    own: dict[str, Any] = {"attraction": values["attraction"]}
    if kind is DBN:
        own |= {"satisfaction": values["satisfaction"], "continuation": 0.8}
    elif kind is UBM:
        own["examination"] = {
            (rank, last): 0.9 ** (rank - 1) * (0.6 + 0.4 * (last > 0))
            for rank in range(1, 11)
            for last in range(rank)
        }
    else:
        own["examination"] = {rank: 1 / rank for rank in range(1, 11)}
    return kind.with_values(**own)


def test_the_index_of_balakrishnan_and_kambhampati_orders_chains() -> None:
    # Whoever looks at i brings r and goes on with m: two neighbours stand right if the first has
    # the larger r / (1 - m).
    frame, values = many_candidates(6, 7)
    model = as_model(DBN, values)
    found = model.best_page(frame, 7, {"click": "price"}, **SURE)
    assert found.queries["is_proven"].all()
    attraction = np.array(list(values["attraction"].values()))
    satisfaction = np.array(list(values["satisfaction"].values()))
    goes_on = 0.8 * (1 - attraction * satisfaction)
    index = frame.with_columns(
        index=pl.Series(attraction * frame["price"].to_numpy() / (1 - goes_on))
    )
    wanted = index.sort("query", "index", descending=[False, True])
    assert found.frame["doc"].to_list() == wanted["doc"].to_list()
    # One order of every set beats all others.
    candidates = as_candidates(frame)
    chains = Chains(model, candidates, 7, Worth.of(model, {"click": "price"}), Rules())
    searched = chains.search(candidates.shown_pages(chains.sizes), 10)
    assert set(searched.widths.tolist()) <= {0, 1}
    assert searched.widths.max() == 1


@pytest.mark.parametrize("kind", [DBN, UBM, PBM])
def test_branch_and_bound_finds_what_sets_find(kind: Any, monkeypatch: Any) -> None:
    frame, values = many_candidates(4, 7, seed=3)
    model = as_model(kind, values)
    worth = {"click": "price", "abandonment": -0.5}
    by_sets = model.best_page(frame, 4, worth, **SURE).queries
    monkeypatch.setattr("gecasmo.pages.chains._MOST_IN_SETS", 0)
    branched = model.best_page(frame, 4, worth, effort=1_000_000, **SURE).queries
    assert by_sets["is_proven"].all()
    assert branched["is_proven"].all()
    close_to(branched["worth"], by_sets["worth"])
    cut = model.best_page(frame, 4, worth, effort=2, **SURE).queries
    assert (cut["score"] + cut["gap"] >= by_sets["worth"] - 1e-9).all()
    assert (cut["score"] <= by_sets["worth"] + 1e-9).all()


def test_the_quick_search_hardly_loses_anything() -> None:
    """Where results that attract need not satisfy its gap is wide, and its pages are good."""
    frame, values = many_candidates(20, 12, seed=6)
    model = as_model(DBN, values)
    best = model.best_page(frame, 6, **SURE).queries
    quick = model.best_page(frame, 6, effort=0, **SURE).queries
    assert best["is_proven"].all()
    assert quick["worth"].sum() > 0.9999 * best["worth"].sum()


def test_results_may_repeat_is_exact_for_positions_alone() -> None:
    frame, values = many_candidates(3, 40, seed=5)
    model = as_model(PBM, values)
    candidates = as_candidates(frame)
    chains = Chains(model, candidates, 10, Worth.of(model, "click"), Rules())
    found = chains.search(candidates.shown_pages(chains.sizes), 1000)
    attraction = np.array(list(values["attraction"].values())).reshape(3, 40)
    best = -np.sort(-attraction, axis=1)[:, :10] @ (1 / np.arange(1, 11))
    close_to(found.score, best)
    assert (found.bound - found.score < 0.01 * best).all()
    assert is_proven(found).any()


@pytest.mark.parametrize("kind", [DBN, UBM])
def test_rules_against_all_orders_that_keep_them(kind: Any) -> None:
    frame, values = many_candidates(2, 5, seed=8)
    frame = frame.with_columns(pin=pl.Series([None, 2, None, None, None] * 2))
    model = as_model(kind, values)
    for rules in (
        {"pinned": "pin"},
        {"at_most": {"brand": 1}},
        {"apart": "brand"},
        {"pinned": "pin", "at_most": {"brand": 2}, "apart": ["brand"]},
    ):
        size = 2 if "at_most" in rules else 4
        for effort in (0, 1000):
            found = model.best_page(frame, size, effort=effort, **rules, **SURE)
            for query in range(2):
                own = frame.filter(pl.col("query") == query)
                orders, worth = every_page(model, own, size, "click")
                brand = own["brand"].to_numpy()[orders]
                keeps = np.ones(len(orders), bool)
                if "pinned" in rules:
                    keeps &= orders[:, 1] == 1
                if "at_most" in rules:
                    most = rules["at_most"]["brand"]  # type: ignore[index]
                    keeps &= [np.bincount(b).max() <= most for b in brand]
                if "apart" in rules:
                    keeps &= (brand[:, 1:] != brand[:, :-1]).all(axis=1)
                row = found.queries.row(query, named=True)
                if effort:
                    close_to(row["worth"], worth[keeps].max())
                else:
                    assert row["worth"] <= worth[keeps].max() + 1e-9
                    assert row["worth"] + row["gap"] >= worth[keeps].max() - 1e-9


def test_laws() -> None:
    frame, values = many_candidates(5, 8, seed=2)
    model = as_model(DBN, values)
    best = model.best_page(frame, 5, **SURE)
    # One more candidate never hurts, nor does a longer page that may be filled.
    fewer = model.best_page(frame.filter(pl.col("doc") < 7), 5, **SURE)
    assert (best.queries["worth"] >= fewer.queries["worth"] - 1e-12).all()
    # It is worth as much as any other page.
    rng = np.random.default_rng(0)
    for _ in range(5):
        shown = pl.concat(
            [
                frame.filter(pl.col("query") == query).with_columns(
                    rank=pl.Series(rng.permutation(8) + 1)
                )
                for query in range(5)
            ]
        )
        told = model.best_page(shown, 5, **SURE).queries
        assert (told["lift"] >= -1e-12).all()
        close_to(told["worth"], best.queries["worth"])
    # A page that is pinned is its own best.
    pinned = shown.with_columns(
        pin=pl.when(pl.col("rank") <= 5).then(pl.col("rank")).otherwise(None)
    )
    own = model.best_page(pinned, 5, pinned="pin", **SURE)
    close_to(own.queries["lift"], np.zeros(5))
    assert (own.frame["rank"] == own.frame["shown_rank"]).all()
    assert own.queries["is_proven"].all()
    ranks = pinned.with_columns(rank="pin")
    assert model.best_page(ranks, 5, pinned="rank", **SURE).frame.equals(own.frame)


def clicks(seed: int = 0, pages: int = 1500) -> ClickLog:
    rng = np.random.default_rng(seed)
    docs = np.stack([rng.permutation(8)[:5] for _ in range(pages)])
    rare = rng.random(pages) < 0.004  # document 99 is nearly never shown
    docs[rare, 4] = 99
    seen = np.array([1.0, 0.7, 0.5, 0.35, 0.25])
    click = rng.random(docs.shape) < seen * np.where(docs == 99, 0.9, 0.05 + 0.12 * (docs % 6))
    return read_log(
        {
            "session": np.repeat(np.arange(pages), 5),
            "query": np.repeat(rng.integers(2, size=pages), 5),
            "doc": docs.ravel(),
            "rank": np.tile(np.arange(1, 6), pages),
            "click": click.ravel().astype(int),
        }
    )


def test_caution_evidence_and_exploration() -> None:
    log = clicks()
    model = PBM().fit(log, progress=False)
    best = model.best_page(log, 5, draws=3, samples=20, log=False)
    assert 99 not in best.frame["doc"].to_list()
    assert best.queries["left_out"].to_list() == [1, 1]
    own_way: dict[str, Any] = {"min_examinations": 0, "samples": 0, "log": False}
    bold = model.best_page(log, 5, quantile=0.5, **own_way)
    assert 99 in bold.frame["doc"].to_list()
    careful = model.best_page(log, 5, quantile=0.02, **own_way)
    place = {}
    for name, pages in (("bold", bold), ("careful", careful)):
        own = pages.frame.filter(pl.col("doc") == 99)["rank"].to_list()
        place[name] = sum(own) + 6 * (2 - len(own))
    assert place["careful"] > place["bold"]
    assert (careful.queries["score"] < careful.queries["worth"]).all()
    assert best.explored is not None
    assert best.explored.group_by("draw").len()["len"].to_list() == [10, 10, 10]
    told = best.queries
    assert told["better"].is_between(0, 1).all()
    assert (told["low"] < told["worth"]).all()
    assert (told["worth"] < told["high"]).all()
    text = repr(best)
    assert "left out: too few examinations" in text
    assert "that is too much" in text
    assert "<table>" in best._repr_html_()
    assert best.to_dict()["pages"] == 2


def two_results(pages: int = 60) -> tuple[Any, pl.DataFrame]:
    """A model of two results that are nearly as good, and the page that is shown now."""
    truth = PBM.with_values(attraction={("q", "a"): 0.5, ("q", "b"): 0.36}, examination=0.6)
    order = np.stack([np.random.default_rng(n).permutation(["a", "b"]) for n in range(pages)])
    log = truth.simulate(
        {
            "session": np.repeat(np.arange(pages), 2),
            "query": ["q"] * 2 * pages,
            "doc": order.ravel(),
            "rank": np.tile([1, 2], pages),
        },
        seed=5,
    )
    model = PBM(examination=Table(fixed={1: 1.0, 2: 0.4})).fit(log, progress=False)
    return model, pl.DataFrame({"query": ["q", "q"], "doc": ["a", "b"], "rank": [1, 2]})


def test_better_is_the_probability_that_the_page_is_better() -> None:
    model, frame = two_results()
    shown = frame.with_columns(rank=pl.Series([2, 1]))
    for now in (frame, shown):
        found = model.best_page(now, 2, samples=2000, min_examinations=0, quantile=0.5)
        first = found.frame["doc"][0]
        rows = model.parameters["attraction"]["doc"].to_list()
        drawn = model.draws("attraction", n=4000, seed=9)[0]
        chance = (drawn[:, rows.index(first)] > drawn[:, 1 - rows.index(first)]).mean()
        wanted = chance if found.frame["shown_rank"][0] == 2 else 0.0
        assert abs(found.queries["better"][0] - wanted) < 0.06
    assert 0.55 < chance < 0.98  # neither is sure


def test_explored_pages_are_the_best_of_their_draws() -> None:
    model, frame = two_results()
    found = model.best_page(frame, 2, draws=300, samples=0, min_examinations=0)
    assert found.explored is not None
    first = found.explored.filter(pl.col("rank") == 1)["doc"].to_list()
    rows = model.parameters["attraction"]["doc"].to_list()
    best = []
    for states in drawn_states(model, 300, 1):
        probability = states["attraction"].probability
        best.append(rows[int(np.argmax(probability))])
    assert first == best
    assert 10 < first.count("b") < 290  # both are tried


def test_pages_are_written(tmp_path: Any) -> None:
    frame, values = many_candidates(2, 4)
    best = as_model(PBM, values).best_page(frame, 3, **SURE)
    best.write(tmp_path / "pages.parquet")
    assert pl.read_parquet(tmp_path / "pages.parquet").equals(best.frame)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size"),
        ({"quantile": 0.0}, "quantile"),
        ({"effort": -1}, "effort"),
        ({"min_examinations": -1.0}, "min_examinations"),
        ({"at_most": {"brand": 0}}, "at least 1"),
        ({"at_most": {"colour": 1}}, "no such column"),
        ({"pinned": {77: 1}}, "no candidate 77"),
        ({"pinned": {0: 9}}, "has ranks 1 to 4, since the query has no more candidates"),
        ({"pinned": {0: 0}}, "is pinned to rank 0, and the page has ranks 1 to 4"),
        ({"pinned": {0: 1, 1: 1}}, "are pinned to rank 1"),
        ({"at_most": {"query": 1}}, "No page keeps to the rules for 2 queries"),
    ],
)
def test_what_makes_no_sense_is_refused(options: Any, message: str) -> None:
    frame, values = many_candidates(2, 4)
    with pytest.raises((ModelError, ClickLogError), match=message):
        as_model(DBN, values).best_page(frame, **{"size": 4, **SURE, **options})


def test_wrong_candidates() -> None:
    _, values = many_candidates(2, 4)
    model = as_model(DBN, values)
    for given_, message in (
        ({"query": [1]}, "need a column 'doc'"),
        ({"query": [1, 1], "doc": [1, 1]}, "more than once"),
        ({"query": [1, None], "doc": [1, 1]}, "Row 1 of the candidates has no query"),
        ({"query": [1], "doc": [1], "rank": ["x"]}, "no numbers"),
        ({"query": [1, 1], "doc": [1, 2], "rank": [1, 1]}, "of query 1 have the rank 1"),
    ):
        with pytest.raises(ClickLogError, match=message):
            model.best_page(pl.DataFrame(given_))
    with pytest.raises(ModelError, match="view 'grids'"):
        GridDBN.with_values(**dict.fromkeys(GridDBN().forms, 0.5)).best_page(
            pl.DataFrame({"query": [1], "doc": [1]})
        )


def test_hidden_states_are_searched_too() -> None:
    frame, values = many_candidates(2, 5, seed=11)
    coins = dict.fromkeys(TwoRate().forms, 0.4)
    keyed = [coin for coin, keys in TwoRate().keys.items() if set(keys) == {"query", "doc"}]
    rng = np.random.default_rng(4)
    for coin in keyed:
        coins[coin] = {row: float(rng.random()) for row in values["attraction"]}
    model = TwoRate.with_values(**coins)
    found = model.best_page(frame, 4, **SURE).queries
    for query in range(2):
        own = frame.filter(pl.col("query") == query)
        close_to(found["worth"][query], every_page(model, own, 4, "click")[1].max())


def test_promises_are_below_what_the_same_log_says() -> None:
    rng = np.random.default_rng(3)
    rows = [(q, d) for q in range(6) for d in range(10)]
    truth = PBM.with_values(
        attraction={row: float(rng.beta(1, 4)) for row in rows},
        examination={rank: 0.8**rank for rank in range(1, 6)},
    )
    shown = np.stack([rng.permutation(10)[:5] for _ in range(900)])
    log = truth.simulate(
        {
            "session": np.repeat(np.arange(900), 5),
            "query": np.repeat(np.arange(900) % 6, 5),
            "doc": shown.ravel(),
            "rank": np.tile(np.arange(1, 6), 900),
        },
        seed=1,
    )
    model = PBM().fit(log, progress=False)
    frame = pl.DataFrame(rows, schema=["query", "doc"], orient="row").with_columns(
        rank=pl.when(pl.col("doc") < 5).then(pl.col("doc") + 1).otherwise(None)
    )
    found = model.best_page(frame, 5, log=log, samples=20)
    promise = found.promise
    assert promise is not None
    assert promise.crossed < promise.lift < promise.plug_in
    assert promise.low < promise.lift < promise.high
    assert promise.queries == 6
    close_to(promise.plug_in, found.queries["lift"].mean())
    assert "To be expected" in repr(found)
    assert found.to_dict()["promise"]["queries"] == 6
    assert model.best_page(frame, 5, log=log, samples=20).promise == promise
    with pytest.raises(ClickLogError, match="a page that is shown now"):
        model.best_page(frame.drop("rank"), 5, log=log)


def test_who_values_what_a_half_has_chosen_draws_what_it_says() -> None:
    """Priors have next to no say there, in draws neither."""
    model = DBN().fit(clicks(pages=200), progress=False)
    assert model.errors_ is not None
    assert model.errors_.slopes
    judge = _unshrunk(model)
    state = judge.states()["satisfaction"]
    drawn = np.stack([one["satisfaction"].probability for one in drawn_states(judge, 400, 1)])
    assert (np.abs(drawn.mean(axis=0) - state.probability) < 0.25 * state.spread).all()
    assert (np.abs(drawn.std(axis=0) / state.spread - 1) < 0.25).all()
    together = np.corrcoef(drawn.T)[np.triu_indices(len(drawn.T), 1)]
    assert together.mean() < 0.1  # slopes of priors would move all of them


def test_rules_that_half_of_the_log_cannot_keep() -> None:
    """What half of the log has seen too seldom is a candidate all the same, if a rule needs it."""
    log = clicks()
    model = PBM().fit(log, progress=False)
    frame = pl.DataFrame({"query": [0, 0, 1, 1], "doc": [0, 99, 0, 1], "rank": [1, None, 1, None]})
    seen = model.estimates("attraction", frame)["trials"]
    found = model.best_page(
        frame, 2, log=log, min_examinations=seen.min() * 0.9, pinned={0: 2}, samples=5
    )
    assert found.promise is not None
    assert found.frame["doc"].to_list() == [99, 0, 1, 0]


def test_pages_may_be_longer_than_those_shown_or_as_long() -> None:
    frame, values = many_candidates(2, 5, seed=4)
    model = as_model(DBN, values)
    shown = frame.with_columns(
        rank=pl.when(pl.col("doc") < 2).then(pl.col("doc") + 1).otherwise(None)
    )
    same = model.best_page(shown, None, **SURE)
    assert same.frame["rank"].to_list() == [1, 2, 1, 2]
    longer = model.best_page(shown, 4, **SURE)
    assert longer.frame.group_by("query").len()["len"].to_list() == [4, 4]
    now = shown.filter(pl.col("rank") > 0).with_columns(session="query")
    worth = model.page_value(now, draws=0).frame["worth"]
    for found in (same, longer):
        close_to(found.queries["shown_worth"], worth)
        close_to(found.queries["lift"], found.queries["worth"] - worth)
    assert (longer.queries["lift"] > same.queries["lift"]).all()
    # Without a page that is shown, ten results are usual.
    assert len(model.best_page(frame, None, **SURE).frame) == 10


def test_given_probabilities_have_no_lift_to_be_cross_fitted() -> None:
    log = clicks(pages=60)
    model = PBM.with_values(attraction=0.3, examination=0.5)
    found = model.best_page(log, 5, samples=3)
    assert found.promise is None
