"""Networks that read pages: what they may know, how they are fitted and saved."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from gecasmo import (
    DBN,
    EM,
    NCM,
    UBM,
    VB,
    AttentiveNCM,
    ClickLog,
    ClickModel,
    Gradient,
    Parameter,
    Recurrent,
    Table,
    flip,
    load,
    read_log,
)
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ClickLogError, GecasmoWarning, ModelError, SavedModelError
from gecasmo.evaluation import leak_test
from gecasmo.forms.sequences import page_logits
from gecasmo.model.foretold import foretold_clicks
from gecasmo.testing import plain_python


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    """Nothing needs to be compiled, and one thread is enough."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with plain_python():
        yield
    torch.set_num_threads(before)


def pages(n_pages: int = 40, seed: int = 0, lengths: tuple[int, ...] = (3, 4, 5)) -> pl.DataFrame:
    """Pages of several lengths whose users click every other time, whatever is shown."""
    rng = np.random.default_rng(seed)
    rows = []
    for page in range(n_pages):
        clicked = bool(rng.integers(2))
        for rank in range(1, int(rng.choice(lengths)) + 1):
            clicked = not clicked if rng.random() < 0.9 else clicked
            doc = int(rng.integers(6))
            rows.append((page, f"q{page % 3}", doc, rank, clicked, 0.1 * doc, "ab"[page % 2]))
    names = ("session", "query", "doc", "rank", "click", "price", "device")
    return pl.DataFrame(rows, schema=names, orient="row")


def log_of(**options: Any) -> ClickLog:
    return read_log(pages(**options))


def small(module: Any = "gru", *columns: str, **options: Any) -> Recurrent:
    options = {"size": 6, "embedding": 2, "epochs": 3, "validation": 0.0, "lr": 0.05} | options
    return Recurrent(module, *(columns or ("price", "device")), **options)


class TwoWays(nn.Module):
    """A unit that reads up and down, so it would know clicks below if it were shown them."""

    def __init__(self) -> None:
        super().__init__()
        self.unit = nn.GRU(3, 4, batch_first=True, bidirectional=True)
        self.answer = nn.Linear(8, 1)

    def forward(self, x: Any, c: Any, above: Any) -> Any:
        inputs = torch.cat([x, c.to(x.dtype), above.unsqueeze(-1)], dim=-1)
        return self.answer(self.unit(inputs)[0])


class Down(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unit = nn.GRU(3, 4, batch_first=True)
        self.answer = nn.Linear(4, 1)

    def forward(self, x: Any, c: Any, above: Any) -> Any:
        inputs = torch.cat([x, c.to(x.dtype), above.unsqueeze(-1)], dim=-1)
        return self.answer(self.unit(inputs)[0])


QUICK = EM(max_iter=2, tol=0, restarts=1, accelerate=False)


@pytest.mark.filterwarnings("ignore::gecasmo.errors.GecasmoWarning")
@pytest.mark.parametrize("module", ["gru", "attention", TwoWays(), Down()])
@pytest.mark.parametrize("coin", ["attraction", "continuation"])
def test_no_click_at_or_below_a_result_is_known(module: Any, coin: str) -> None:
    log = log_of(n_pages=30)
    forms: dict[str, Any] = {"attraction": Table(), "satisfaction": Table(key="doc")}
    model = DBN(**forms | {coin: small(module, causal=isinstance(module, Down))})
    model.fit(log, QUICK, intervals=False)
    found = leak_test(model, log, most_sessions=8)
    assert found.passed
    # And the clicks above do matter.
    other = log.with_signals({"click": np.where(log.rank == 1, ~log.click, log.click)})
    before, after = (model.probability(coin, one) for one in (log, other))
    assert np.abs(before - after)[log.rank > 1].max() > 1e-6
    assert np.array_equal(before[log.rank == 1], after[log.rank == 1])


def test_a_module_that_breaks_its_promise_is_refused() -> None:
    with pytest.raises(ModelError, match=r"depends on clicks at or below it\. Leave out causal"):
        NCM(click_rate=small(TwoWays(), causal=True)).fit(log_of(), QUICK)


def test_asking_once_is_asking_for_each_result() -> None:
    log = log_of(n_pages=12)
    torch.manual_seed(3)
    module = Down()
    models = [
        NCM(click_rate=small(module, causal=causal, lr=1e-9, epochs=1)).fit(log, QUICK)
        for causal in (True, False)
    ]
    once, each = (model.probability("click_rate", log) for model in models)
    assert once == pytest.approx(each, abs=1e-6)


METHODS = [EM(max_iter=4), Gradient(lr=0.05, epochs=15, batch_size=16)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [NCM, AttentiveNCM])
def test_it_recovers_what_a_click_above_means(kind: Any, method: Any) -> None:
    """Users of `pages` click with .1 below a click, else .9, and at the top every other time; each
    is as close to that as the clicks of so many results can tell."""
    log, fresh = log_of(n_pages=300), log_of(n_pages=300, seed=7)
    module = "gru" if kind is NCM else "attention"
    form = Recurrent(module, ids="doc", size=8, embedding=2, epochs=20, lr=0.03)
    model = kind(click_rate=form).fit(log, method)
    said = model.predict_conditional_clicks(fresh)
    top, below_click = fresh.rank == 1, np.roll(fresh.click, 1)
    for rate, own in ((0.5, top), (0.1, below_click & ~top), (0.9, ~below_click & ~top)):
        assert abs(said[own].mean() - rate) < 4 * np.sqrt(rate * (1 - rate) / own.sum())
    truth = np.select([top, below_click], [0.5, 0.1], 0.9)
    told, known = (np.log(np.where(fresh.click, p, 1 - p)) for p in (said, truth))
    behind = np.bincount(fresh.page, weights=known - told)
    assert behind.mean() < 0.03 + 4 * behind.std() / np.sqrt(len(behind))
    assert behind.mean() < 0.15  # click rates of documents alone are 1.1 behind
    if isinstance(method, EM):
        assert np.all(np.diff(model.history["objective"].to_numpy()) >= -1e-6)


def test_hidden_states_and_clicks_above_go_together() -> None:
    """The likelihood is the product of what the filter says, and counts add up."""
    log = log_of(n_pages=25)
    model = DBN(satisfaction=small(), attraction=Table(), continuation=0.8).fit(log, QUICK)
    click = model.predict_conditional_clicks(log)
    told = np.log(np.where(log.click, click, 1 - click))
    sums = np.bincount(log.page, weights=told)
    assert model.log_likelihood(log) == pytest.approx(sums)
    counts = model.expected_counts(log)["satisfaction"]
    assert len(counts) == log.n_results
    assert counts["heads"].sum() + counts["tails"].sum() <= log.click.sum() + 1e-9


def exact(model: Any, log: ClickLog) -> np.ndarray:
    """P(click) by going through all patterns of clicks of pages of one length."""
    length = int(log.lengths[0])
    total = np.zeros(log.n_results)
    for pattern in itertools.product([False, True], repeat=length):
        clicked = log.with_signals({"click": np.tile(pattern, log.n_sessions)})
        probability = np.exp(model.log_likelihood(clicked, impossible="floor"))
        total += probability[log.page] * clicked.click
    return total


@pytest.mark.filterwarnings("ignore::gecasmo.errors.GecasmoWarning")
def test_foretold_clicks_are_exact_on_short_pages_and_close_on_long_ones() -> None:
    train = log_of(n_pages=60, lengths=(6,))
    model = DBN(attraction=small(epochs=10), satisfaction=Table(key="doc")).fit(train, QUICK)
    log = train.take(np.arange(5))
    truth = exact(model, log)
    assert model.predict_clicks(log) == pytest.approx(truth, abs=1e-6)  # in single precision
    # With so few ways most of them are left to chance: right on average.
    found = [foretold_clicks(model, log.take([n] * 1), ways=4) for n in range(5)]
    assert np.abs(np.concatenate(found) - truth).max() < 0.2
    many = foretold_clicks(model, read_log(_copies(log, 60)), ways=4).reshape(60, -1).mean(axis=0)
    assert many == pytest.approx(truth, abs=0.05)


def _copies(log: ClickLog, n: int) -> pl.DataFrame:
    frame = log.to_frame()
    each = [frame.with_columns(pl.col("session") + 1000 * turn) for turn in range(n)]
    return pl.concat(each)


def test_simulated_clicks_follow_the_model() -> None:
    train = log_of(n_pages=60, lengths=(4,))
    model = DBN(continuation=small(epochs=10), attraction=Table(key="doc"), satisfaction=0.3)
    model.fit(train, QUICK)
    log = read_log(_copies(train.take(np.arange(2)), 400))
    clicked, truth = model.simulate(log, seed=1, truth=True)
    rate = clicked.click.reshape(400, -1).mean(axis=0)
    assert rate == pytest.approx(model.predict_clicks(train.take(np.arange(2))), abs=0.1)
    assert truth.filter(pl.col("click"))["reached"].all()
    assert truth.filter(pl.col("click"))["attraction"].eq("heads").all()
    again = model.simulate(log, seed=1)
    assert np.array_equal(clicked.click, again.click)
    assert not np.array_equal(clicked.click, model.simulate(log, seed=2).click)
    # Whatever was clicked in the log plays no part.
    other = log.with_signals({"click": ~log.click})
    assert np.array_equal(clicked.click, model.simulate(other, seed=1).click)


@pytest.mark.parametrize("hashed", [None, 7])
@pytest.mark.parametrize("module", ["gru", "attention"])
def test_saved_as_data_and_loaded_again(module: str, hashed: int | None, tmp_path: Path) -> None:
    log = log_of()
    form = small(module, "device", ids=("query", ("query", "doc")), hashed=hashed)
    model = UBM(attraction=form).fit(log, QUICK)
    model.save(tmp_path / "it.gecasmo")
    again = load(tmp_path / "it.gecasmo")
    assert repr(again.forms["attraction"]) == repr(form)
    for ask in ("predict_conditional_clicks", "predict_clicks", "log_likelihood"):
        assert np.array_equal(getattr(again, ask)(log), getattr(model, ask)(log))
    # Goes on from where it was.
    more = again.copy().fit(log, QUICK, start=again)
    assert more.report_ is not None
    assert more.report_.history[0].objective == pytest.approx(model.report_.objective, rel=1e-6)


def test_a_module_of_ones_own_is_brought_along(tmp_path: Path) -> None:
    log = log_of(n_pages=10)
    model = NCM(click_rate=small(Down())).fit(log, QUICK)
    model.save(tmp_path / "it.gecasmo")
    with pytest.raises(SavedModelError, match="holds only the weights"):
        load(tmp_path / "it.gecasmo")
    again = load(tmp_path / "it.gecasmo", modules={"click_rate": Down()})
    assert np.array_equal(again.score(log), model.score(log))
    with pytest.raises(SavedModelError, match="another network"):
        load(tmp_path / "it.gecasmo", modules={"click_rate": nn.GRU(2, 2)})


def test_ids_that_no_fit_has_seen() -> None:
    log = log_of()
    model = NCM(click_rate=small("gru", ids=[("query", "doc"), "doc"])).fit(log, QUICK)
    new = read_log(pages(6).with_columns(pl.col("doc") + 50))
    assert model.predict_conditional_clicks(new, frame=True)["unseen"].list.len().min() == 1
    # All new documents are one and the same to it.
    other = read_log(pages(6).with_columns(pl.col("doc") + 90))
    one, two = (model.predict_conditional_clicks(each) for each in (new, other))
    assert one == pytest.approx(two, abs=0.2)
    hashed = NCM(click_rate=small("gru", ids="doc", hashed=5)).fit(log, QUICK)
    assert hashed.predict_conditional_clicks(new, frame=True)["unseen"].list.len().max() == 0


def test_a_pair_alone_is_a_page_of_one_result() -> None:
    log = log_of()
    model = NCM(click_rate=small("gru", ids=("query", "doc"))).fit(log, QUICK)
    asked = pl.DataFrame({"query": ["q0", "q1"], "doc": [1, 2]})
    alone = read_log(asked.with_columns(session=pl.Series([0, 1]), rank=1, click=False))
    frame = pl.DataFrame({"query": ["q0", "q1"], "doc": [1, 2], "price": 0.1, "device": "a"})
    told = model.probability("click_rate", frame)
    shown = read_log(frame.with_columns(session=pl.Series([0, 1]), rank=1, click=False))
    assert alone.n_results == 2
    assert told == pytest.approx(model.predict_clicks(shown))


def test_pages_of_other_lengths_do_not_matter() -> None:
    log = log_of(n_pages=30, lengths=(2, 5, 9))
    model = NCM(click_rate=small("attention")).fit(log, QUICK)
    whole = model.predict_conditional_clicks(log)
    for page in range(3):
        alone = model.predict_conditional_clicks(log.take([page]))
        assert whole[log.page == page] == pytest.approx(alone, abs=1e-6)


class Buyer(ClickModel):
    interest = Parameter("doc")
    buying = Parameter("doc")

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.interest):
            user.click()
            if flip(self.buying):
                user.emit("purchase")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Recurrent("lstm", "price"), "'gru', 'attention', a torch.nn.Module or a function"),
        (lambda: Recurrent(nn.GRU, "price"), "a torch.nn.Module or a function"),
        (lambda: Recurrent("gru"), "names of columns or ids"),
        (lambda: Recurrent("gru", ids=("doc", "doc")), "named twice"),
        (lambda: Recurrent("gru", "price", hashed=0), "a whole number of at least 1"),
        (lambda: Recurrent("gru", "price", size=1.5), "a whole number of at least 1"),
        (lambda: Recurrent("attention", "price", size=5), "an even number"),
        (lambda: Recurrent("gru", "price", lr=0), "a positive learning rate"),
        (lambda: Recurrent("gru", "price", validation=1), "a share from 0"),
        (lambda: Recurrent("gru", "price", missing="no"), 'choose "raise" or "mean"'),
        (lambda: NCM(click_rate=small("gru", "click")).fit(log_of()), "which is what the model is"),
        (lambda: NCM(click_rate=small("gru", "weight")).fit(log_of()), "no such column"),
        (
            lambda: NCM(click_rate=small(nn.GRU(2, 2), "price")).fit(log_of()),
            "The module cannot be called with|answers with a tuple",
        ),
        (lambda: NCM(click_rate=small(lambda sizes: 3)).fit(log_of()), "made a int"),
        (
            lambda: NCM(click_rate=small(lambda sizes: nn.Linear(1, 2), "price")).fit(log_of()),
            "cannot be called",
        ),
        (lambda: NCM().fit(log_of(), VB()), "NCM|click_rate|Recurrent"),
        (lambda: NCM().fit(read_log(pages().drop("query"))), "no such column"),
    ],
)
def test_what_is_refused(make: Any, words: str) -> None:
    with pytest.raises((ModelError, ClickLogError), match=words):
        make()


def test_missing_values_and_other_signals_are_told() -> None:
    gaps = read_log(pages().with_columns(price=pl.Series([None] + [1.0] * (len(pages()) - 1))))
    with pytest.raises(ClickLogError, match="1 missing values"):
        NCM(click_rate=small()).fit(gaps)
    bought = read_log(pages().with_columns(purchase=pl.col("click")))
    model = Buyer(buying=Table(), interest=small()).fit(bought, QUICK)
    with pytest.raises(ModelError, match="other signals than clicks"):
        model.predict_clicks(bought)
    with pytest.raises(ModelError, match="other signals than clicks"):
        model.simulate(bought)
    assert np.isfinite(model.score(bought))


def test_a_stored_log_is_answered_and_not_fitted(tmp_path: Path) -> None:
    log = log_of(n_pages=20)
    stored = ClickLog.ingest(log.to_frame(), tmp_path / "it.gclog", keep=["price", "device"])
    model = NCM(click_rate=small()).fit(log, QUICK)
    assert model.score(stored) == pytest.approx(model.score(log), abs=1e-6)
    assert len(model.predict_clicks(stored)) == log.n_results
    with pytest.raises(ModelError, match="reads whole pages"):
        NCM(click_rate=small()).fit(stored)


def test_nothing_random_is_left_to_chance() -> None:
    log = log_of()
    one, two = (NCM(click_rate=small(seed=4)).fit(log, QUICK).score(log) for _ in range(2))
    assert one == two
    assert NCM(click_rate=small(seed=5)).fit(log, QUICK).score(log) != one


def test_rows_without_pages_are_pages_of_their_own() -> None:
    form = small("gru", "price")
    rows = Rows(("price",), [pl.Series("price", [0.1, 0.2, 0.3])], 3)
    state = form.begin(rows, None)
    sequences = form.sequences(state, rows)
    assert sequences.lengths.tolist() == [1, 1, 1]
    assert page_logits(state.network, sequences, True) == pytest.approx(form.logits(state, rows))
    assert not form.penalty(state) > 0


@pytest.mark.filterwarnings("error::gecasmo.errors.GecasmoWarning")
def test_a_constant_column_is_told() -> None:
    log = read_log(pages().with_columns(price=pl.lit(1.0)))
    with pytest.raises(GecasmoWarning, match="'price' is constant"):
        NCM(click_rate=small("gru", "price")).fit(log, QUICK)
