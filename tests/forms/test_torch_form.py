"""Networks behind coins: shapes, monotone fits, seeds, embeddings, sums, files."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
import zipfile
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
    UBM,
    ClickLog,
    ClickModel,
    Gradient,
    Logistic,
    Parameter,
    Sum,
    Table,
    Torch,
    flip,
    load,
    matrices,
    read_log,
)
from gecasmo.encoding.rows import Rows
from gecasmo.errors import (
    ClickLogError,
    ConvergenceWarning,
    GecasmoWarning,
    ModelError,
    SavedModelError,
)
from gecasmo.testing import plain_python

FILE = Path(__file__).parent.parent / "matrices" / "matrices.json"
N_DOCS = 24


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    """These tests are about forms; nothing needs to be compiled."""
    with plain_python():
        yield


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_log(n_pages: int = 150, seed: int = 0, length: int = 4, **columns: Any) -> ClickLog:
    """Documents with a number and a colour, which attract by both."""
    rng = np.random.default_rng(seed)
    x = np.random.default_rng(5).normal(size=N_DOCS)
    colour = np.array(["red", "green", "blue"])[np.arange(N_DOCS) % 3]
    doc = np.array([rng.permutation(N_DOCS)[:length] for _ in range(n_pages)]).ravel()
    logit = 1.5 * np.sin(2 * x) + np.where(colour == "red", 1.0, -0.5)
    frame = {
        "session": np.repeat(np.arange(n_pages), length),
        "doc": [f"d{d}" for d in doc],
        "rank": np.tile(np.arange(1, length + 1), n_pages),
        "x": x[doc],
        "colour": colour[doc],
        "click": rng.random(n_pages * length) < 1 / (1 + np.exp(-logit[doc])),
        **columns,
    }
    return read_log(frame)


def mlp(seed: int = 0, n: int = 1) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(n, 8), nn.Tanh(), nn.Linear(8, 1))


def rows(**columns: Any) -> Rows:
    names = tuple(columns)
    series = [pl.Series(name, values) for name, values in columns.items()]
    return Rows(names, series, len(series[0]))


def dbn(form: Any, **others: Any) -> DBN:
    return DBN(attraction=form, satisfaction=Table(key="doc", pseudo_counts=(1, 1)), **others)


def quiet(model: Any, log: ClickLog, method: Any = None) -> Any:
    """Fit without being told that more iterations would help."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(log, method or EM(max_iter=6))


class TwoTower(nn.Module):
    """A vector of the document and one of its other columns; their product is the logit."""

    def __init__(self, sizes: Any) -> None:
        super().__init__()
        self.doc = nn.Embedding(sizes.n_levels["doc"] + 1, 3, padding_idx=0)
        self.colour = nn.Embedding(sizes.n_levels["colour"] + 1, 3, padding_idx=0)
        self.other = nn.Linear(sizes.n_numeric, 3)

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        other = self.other(x) + self.colour(c[:, 1])
        return (self.doc(c[:, 0]) * other).sum(dim=1)


def two_tower(sizes: Any) -> nn.Module:
    return TwoTower(sizes)


def both(sizes: Any) -> nn.Module:
    return Both(sizes)


def one_number_a_doc(sizes: Any) -> nn.Module:
    return nn.Sequential(nn.Embedding(sizes.n_levels["doc"] + 1, 1, padding_idx=0), nn.Flatten())


class Shifted(nn.Module):
    """A module that no file can describe."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([0.3]))
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.slope * x[:, 0] + self.shift


# -- what a module gets and gives ------------------------------------------------------------------
class Spy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))
        self.seen: list[tuple[torch.Tensor, ...]] = []

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        self.seen.append(inputs)
        return self.bias.expand(len(inputs[0]))

    def __deepcopy__(self, memo: Any) -> Spy:
        return self


@pytest.mark.parametrize(
    ("columns", "kinds"),
    [(("x",), "x"), (("colour",), "c"), (("x", "colour"), "xc"), (("colour", "x"), "xc")],
)
def test_numbers_come_standardised_and_texts_as_levels_from_one(
    columns: tuple[str, ...], kinds: str
) -> None:
    seen: list[tuple[torch.Tensor, ...]] = []

    def make(sizes: Any) -> nn.Module:
        assert sizes.n_numeric == ("x" in columns)
        assert sizes.n_levels == ({"colour": 2} if "colour" in columns else {})
        spy = Spy()
        spy.seen = seen
        return spy

    form = Torch(make, *columns)
    these = rows(x=[1.0, 2.0, 3.0], colour=["b", "a", "b"])
    state = form.begin(these, None)
    form.predict(state, rows(x=[2.0], colour=["z"]))
    assert len(seen[0]) == len(kinds)
    if "x" in kinds:
        assert seen[0][0].dtype == torch.float32
        assert seen[0][0].shape == (3, 1)
        assert seen[0][0].mean().item() == pytest.approx(0, abs=1e-6)
        assert seen[-1][0].tolist() == [[0.0]]
    if "c" in kinds:
        assert seen[0][-1].dtype == torch.int64
        assert seen[0][-1].tolist() == [[2], [1], [2]]
        assert seen[-1][-1].tolist() == [[0]]


class Wrong(nn.Module):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.answer = answer

    def forward(self, x: torch.Tensor) -> Any:
        return self.answer(self.weight * x)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x: torch.cat([x, x], 1), r"shape \(\d+, 2\).*shape \(\d+,\) or \(\d+, 1\)"),
        (lambda x: x.sum(), r"shape \(\)"),
        (lambda x: x.T, r"shape \(1, \d+\)"),
        (lambda x: x[:, 0] > 0, "floating-point"),
        (lambda x: (x, x), "answers with a tuple"),
        (lambda x: x @ torch.ones(7, 1), "cannot be called with"),
    ],
)
def test_a_wrong_answer_is_told_when_a_fit_begins(answer: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        dbn(Torch(Wrong(answer), "x")).fit(make_log(20))


def test_both_shapes_of_logits_are_fine() -> None:
    log = make_log(40)
    flat = Wrong(lambda x: x[:, 0])
    column = Wrong(lambda x: x)
    fits = [quiet(dbn(Torch(m, "x")), log) for m in (flat, column)]
    assert fits[0].report_.objective == fits[1].report_.objective


def test_a_sigmoid_at_the_end_is_a_mistake() -> None:
    with pytest.raises(ModelError, match="Leave the Sigmoid out"):
        dbn(Torch(nn.Sequential(nn.Linear(1, 1), nn.Sigmoid()), "x")).fit(make_log(20))


def test_an_embedding_that_is_too_small() -> None:
    with pytest.raises(ModelError, match="out of range"):
        dbn(Torch(nn.Sequential(nn.Embedding(3, 1), nn.Flatten()), "colour")).fit(make_log(20))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Torch("net", "x"), "a torch.nn.Module is wanted"),
        (lambda: Torch(nn.Linear, "x"), "a torch.nn.Module is wanted"),
        (lambda: Torch(mlp()), "takes the names of columns"),
        (lambda: Torch(mlp(), "x", epochs=0), "epochs=0"),
        (lambda: Torch(mlp(), "x", batch_size=1.5), "batch_size=1.5"),
        (lambda: Torch(mlp(), "x", lr=0), "lr=0"),
        (lambda: Torch(mlp(), "x", lr=float("nan")), "lr=nan"),
        (lambda: Torch(mlp(), "x", weight_decay=-1), "weight_decay=-1"),
        (lambda: Torch(mlp(), "x", seed=-1), "seed=-1"),
        (lambda: Torch(mlp(), "x", device="abacus"), "device='abacus'"),
        (lambda: Torch(mlp(), "x", missing="zero"), "missing='zero'"),
        (lambda: Torch(mlp(), "x", categorical="y"), "categorical='y'"),
    ],
)
def test_options_that_make_no_sense(make: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()


def test_a_function_has_to_make_a_module() -> None:
    with pytest.raises(ModelError, match="made a int"):
        dbn(Torch(lambda sizes: 3, "x")).fit(make_log(20))


# -- fitting ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(6))
def test_the_objective_never_falls(seed: int) -> None:
    rng = np.random.default_rng(seed)
    log = make_log(int(rng.integers(5, 60)), seed=seed, length=int(rng.integers(1, 5)))
    form = Torch(
        nn.Sequential(nn.Linear(1, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 1)),
        "x",
        lr=float(rng.choice([0.001, 0.03, 1.0])),
        epochs=int(rng.integers(1, 8)),
        batch_size=int(rng.choice([1, 7, 8192])),
        weight_decay=float(rng.choice([0.0, 1.0])),
        key=None if seed % 2 else "result",
    )
    other = Torch(mlp(seed), "x", lr=0.1, epochs=3)
    model = quiet(DBN(attraction=form, satisfaction=other), log, EM(max_iter=8, tol=0))
    objective = model.history["objective"].to_numpy()
    assert np.all(np.diff(objective) >= -1e-10 * np.abs(objective[1:]))
    assert objective[-1] > objective[0]


def test_a_linear_module_ends_where_logistic_regression_does() -> None:
    log = make_log(300)
    exact = dbn(Logistic("x", l2=0)).fit(log)
    network = dbn(Torch(nn.Linear(1, 1), "x")).fit(log)
    gap = (exact.report_.objective - network.report_.objective) / log.n_sessions
    assert -1e-6 < gap < 1e-4
    assert network.report_.converged


def test_weight_decay_is_the_prior_of_logistic_regression() -> None:
    these = rows(x=np.linspace(-1, 1, 9))
    heads, tails = np.linspace(1, 5, 9), np.linspace(6, 1, 9)
    exact = Logistic("x", l2=4.0, intercept=False)
    form = Torch(nn.Linear(1, 1, bias=False), "x", weight_decay=4.0, epochs=300, lr=0.05)
    one = exact.fit(these, heads, tails, exact.begin(these, None))
    two = form.begin(these, None)
    for _ in range(10):  # each M-step goes on where the last one ended
        two = form.fit(these, heads, tails, two)
    assert form.penalty(two) == pytest.approx(exact.penalty(one), rel=1e-3)
    np.testing.assert_allclose(form.predict(two, these), exact.predict(one, these), atol=1e-3)


def test_nothing_to_gain_gives_the_very_state_back() -> None:
    these = rows(x=[-1.0, 1.0])
    form = Torch(nn.Linear(1, 1), "x", epochs=400, lr=0.1)
    heads, tails = np.array([1.0, 3.0]), np.array([3.0, 1.0])
    state = form.begin(these, None)
    for _ in range(12):
        state = form.fit(these, heads, tails, state)
    again = form.fit(these, heads, tails, state)
    np.testing.assert_array_equal(form.predict(again, these), form.predict(state, these))
    nothing = form.fit(these, np.zeros(2), np.zeros(2), state)
    np.testing.assert_array_equal(form.predict(nothing, these), form.predict(state, these))


def test_runs_repeat_themselves_and_leave_the_stream_alone() -> None:
    log = make_log(60)

    def fitted(seed: int = 3) -> np.ndarray:
        form = Torch(
            lambda sizes: nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.2), nn.Linear(8, 1)),
            "x",
            seed=seed,
            batch_size=5,
            epochs=3,
        )
        return quiet(dbn(form), log).predict_clicks(log)

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = fitted()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    np.testing.assert_array_equal(fitted(), first)
    assert np.abs(fitted(4) - first).max() > 1e-6


def test_the_users_module_stays_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    quiet(dbn(Torch(module, "x")), make_log(60))
    assert module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_random_starts_draw_new_weights() -> None:
    form = Torch(nn.Sequential(nn.Linear(1, 3), nn.Tanh(), Last()), "x")
    these = rows(x=[0.0, 1.0, 2.0])
    plain = form.predict(form.begin(these, None), these)
    random = [
        form.predict(form.begin(these, np.random.default_rng(seed)), these) for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(random[0], random[1])
    assert len({answer.tobytes() for answer in (plain, random[0], random[2])}) == 3


class Last(nn.Module):
    """Weights of its own, and no way to draw them anew."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Mixture(ClickModel):
    """Two kinds of users with tastes of their own."""

    kind = Parameter()
    taste_a = Parameter("doc")
    taste_b = Parameter("doc")

    def start(self, user: Any) -> None:
        user.is_a = flip(self.kind)

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.taste_a if user.is_a else self.taste_b):
            user.click()


def test_components_of_a_mixture_part() -> None:
    log = make_log(80)
    model = quiet(
        Mixture(taste_a=Torch(mlp(), "x"), taste_b=Torch(mlp(), "x")),
        log,
        EM(max_iter=10, restarts=2),
    )
    a, b = (
        model.probability(c, pl.DataFrame({"x": [-1.0, 0.0, 1.0]})) for c in ("taste_a", "taste_b")
    )
    assert np.abs(a - b).max() > 0.01


def test_a_batch_of_one_row_and_batch_norm() -> None:
    form = Torch(
        nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)), "x", batch_size=4
    )
    for n in (1, 2, 5):
        these = rows(x=np.arange(n, dtype=float))
        state = form.fit(these, np.ones(n), np.zeros(n), form.begin(these, None))
        assert np.all(form.predict(state, these) > 0)


def test_modules_without_weights_and_with_frozen_ones() -> None:
    log = make_log(30)
    quiet(dbn(Torch(nn.Identity(), "x")), log)
    frozen = mlp()
    for weight in frozen[0].parameters():
        weight.requires_grad_(False)
    model = quiet(dbn(Torch(frozen, "x")), log)
    found = dict(model.states()["attraction"].network.named_parameters())
    assert torch.equal(found["0.weight"], frozen[0].weight)
    assert not torch.equal(found["2.weight"], frozen[2].weight)


def test_lazy_layers_and_double_precision() -> None:
    log = make_log(30)
    lazy = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))
    assert np.isfinite(quiet(dbn(Torch(lazy, "x")), log).score(log))
    assert np.isfinite(quiet(dbn(Torch(mlp().double(), "x")), log).score(log))


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_devices(device: Any) -> None:
    log = make_log(20)
    model = quiet(dbn(Torch(mlp(), "x", device=device)), log)
    assert np.isfinite(model.score(log))


# -- numbers that break ----------------------------------------------------------------------------
class Fragile(nn.Module):
    """Breaks when its weight has moved far enough."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.limit = limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + torch.sqrt(self.limit - self.linear.weight.abs()).sum() * 0


def test_a_loss_that_is_no_number_leaves_the_last_good_weights() -> None:
    log = make_log(150)
    form = Torch(Fragile(0.1), "x", lr=0.02)
    with pytest.warns(GecasmoWarning) as told:
        model = dbn(form).fit(log, EM(max_iter=5))
    assert any("'attraction'" in str(w.message) and "number" in str(w.message) for w in told)
    assert np.all(np.isfinite(model.predict_clicks(log)))
    objective = model.history["objective"].to_numpy()
    assert objective[-1] > objective[0]
    weight = model.states()["attraction"].network.linear.weight.abs().max()
    assert 0 < float(weight.detach()) <= 0.1


def test_weights_that_are_no_numbers_from_the_start() -> None:
    module = mlp()
    with torch.no_grad():
        module[0].weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="no number"):
        dbn(Torch(module, "x")).fit(make_log(20))


def test_huge_steps_do_not_break_a_fit() -> None:
    log = make_log(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GecasmoWarning)
        model = dbn(Torch(mlp(), "x", lr=1e30)).fit(log, EM(max_iter=4))
    assert np.isfinite(model.score(log))


def test_constant_columns_are_remarked() -> None:
    log = make_log(40, same=np.ones(160), word=np.repeat("a", 160))
    form = Torch(both, "x", "same", "word")
    with pytest.warns(GecasmoWarning) as told:
        quiet(dbn(form), log)
    texts = " ".join(str(w.message) for w in told)
    assert "'same' is constant" in texts
    assert "'word' is constant" in texts


class Both(nn.Module):
    def __init__(self, sizes: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(sizes.n_numeric, 1)
        self.levels = nn.ModuleList(
            nn.Embedding(n + 1, 1, padding_idx=0) for n in sizes.n_levels.values()
        )

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + sum(e(c[:, n]) for n, e in enumerate(self.levels))


def test_missing_values_are_refused_or_become_the_mean() -> None:
    whole = make_log(40)
    x = whole.column("x").to_list()
    colour = whole.column("colour").to_list()
    x[3], x[5], colour[7] = float("nan"), float("inf"), None
    log = read_log(whole.to_frame().with_columns(x=pl.Series(x), colour=pl.Series(colour)))
    with pytest.raises(ClickLogError, match=r"feature of 'attraction', has 1 missing and 1 inf"):
        dbn(Torch(mlp(), "x")).fit(log)
    model = quiet(dbn(Torch(both, "x", "colour", missing="mean")), log)
    assert np.all(np.isfinite(model.predict_clicks(log)))
    asked = model.probability(
        "attraction",
        pl.DataFrame(
            {"x": [None, 0.5], "colour": ["red", None]},
            schema={"x": pl.Float64, "colour": pl.String},
        ),
    )
    assert np.all(np.isfinite(asked))


# -- embeddings, keys, sums ------------------------------------------------------------------------
def test_a_two_tower_model() -> None:
    log = make_log(200)
    form = Torch(two_tower, "x", "doc", "colour", epochs=20, lr=0.05)
    model = quiet(dbn(form), log, EM(max_iter=15))
    flat = quiet(dbn(Torch(nn.Linear(1, 1), "x")), log, EM(max_iter=15))
    assert model.score(log) > flat.score(log) + 0.01
    asked = pl.DataFrame({"x": [0.1, 0.1], "doc": ["d1", "new"], "colour": ["red", "red"]})
    p = model.probability("attraction", asked)
    assert p[1] == 0.5
    form = model.forms["attraction"]
    known = form.known(
        model.states()["attraction"], rows(x=[0.1, 0.1], doc=["d1", "new"], colour=["red", "red"])
    )
    assert known.tolist() == [True, False]
    unseen = model.predict_conditional_clicks(make_log(5, seed=9), frame=True)
    assert unseen["unseen"].list.len().sum() == 0


def test_numbers_can_be_categories() -> None:
    log = make_log(60)
    form = Torch(
        lambda s: nn.Sequential(nn.Embedding(s.n_levels["rank"] + 1, 1), nn.Flatten()),
        "rank",
        categorical="rank",
    )
    model = quiet(dbn(form), log)
    assert model.keys["attraction"] == ("rank",)
    assert (
        len(np.unique(model.probability("attraction", pl.DataFrame({"rank": [1, 2, 3, 4]})))) == 4
    )


def test_click_history_as_a_feature() -> None:
    log = make_log(60)
    model = quiet(
        UBM(attraction=Table(key="doc"), examination=Torch(mlp(n=2), "rank", "last_click")), log
    )
    assert model.keys["examination"] == ("rank", "last_click")
    assert np.all(np.isfinite(model.predict_clicks(log)))


def test_two_coins_can_share_a_network() -> None:
    log = make_log(60)
    shared = Torch(mlp(), "x")
    model = quiet(DBN(attraction=shared, satisfaction=shared), log)
    states = model.states()
    assert states["attraction"] is states["satisfaction"]


def test_a_sum_with_a_network_never_falls_and_takes_up_what_is_left() -> None:
    log = make_log(200)
    model = quiet(
        DBN(
            attraction=Sum(Torch(mlp(), "x"), spread=0.7, key="doc"), satisfaction=Table(key="doc")
        ),
        log,
        EM(max_iter=15, tol=0),
    )
    objective = model.history["objective"].to_numpy()
    assert np.all(np.diff(objective) >= -1e-10 * np.abs(objective[1:]))
    frame = model.parameters["attraction"]
    by_colour = frame.with_columns(
        red=pl.Series([int(d[1:]) % 3 == 0 for d in frame["doc"].to_list()])
    )
    means = by_colour.group_by("red").agg(pl.col("offset").mean()).sort("red")["offset"]
    assert means[1] > means[0] + 0.2  # red ones attract more than x says
    assert "by_features" in frame.columns


def test_a_sum_is_not_lowered_when_the_network_is_stuck() -> None:
    these = rows(x=[0.0, 1.0, 2.0])
    form = Torch(nn.Identity(), "x")
    state = form.begin(these, None)
    heads, tails = np.array([5.0, 1.0, 0.0]), np.array([1.0, 5.0, 0.0])
    after, offsets = form.fit_around(these, heads, tails, state, np.zeros(3), 1.0)
    np.testing.assert_array_equal(form.logits(after, these), form.logits(state, these))
    logits = form.logits(state, these)
    p = 1 / (1 + np.exp(-(logits + offsets)))
    np.testing.assert_allclose(heads - (heads + tails) * p - offsets, 0, atol=1e-8)


# -- starting from another model -------------------------------------------------------------------
def test_a_fit_goes_on_from_another() -> None:
    log = make_log(100)
    make = two_tower
    first = quiet(dbn(Torch(make, "x", "doc", "colour")), log, EM(max_iter=5))
    second = dbn(Torch(make, "x", "doc", "colour"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        second.fit(log, EM(max_iter=2), start=first)
    assert second.history["objective"][0] == pytest.approx(first.report_.objective, rel=1e-6)


def test_new_levels_can_be_learned_when_a_fit_goes_on() -> None:
    whole = make_log(200)
    old = whole.take(np.array([not any(d in ("d0", "d5") for d in ds) for ds in _docs(whole)]))
    make = one_number_a_doc
    first = quiet(dbn(Torch(make, "doc", lr=0.1)), old, EM(max_iter=10))
    second = dbn(Torch(make, "doc", lr=0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        second.fit(whole, EM(max_iter=10), start=first)
    p = second.probability("attraction", pl.DataFrame({"doc": ["d0", "d5"]}))
    assert np.all(p != 0.5)
    assert second.score(whole) > first.score(whole)


def _docs(log: ClickLog) -> list[list[str]]:
    frame = log.to_frame().group_by("session", maintain_order=True).agg("doc")
    return frame["doc"].to_list()


# -- files -----------------------------------------------------------------------------------------
DESCRIBED = [
    lambda s: nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1)),
    lambda s: nn.Linear(1, 1, bias=False),
    lambda s: nn.Sequential(
        nn.Identity(),
        nn.Linear(1, 4),
        nn.BatchNorm1d(4),
        nn.LeakyReLU(0.1),
        nn.ELU(0.9),
        nn.Sequential(nn.GELU("tanh"), nn.Dropout(0.1), nn.LayerNorm(4)),
        nn.SiLU(),
        nn.Tanh(),
        nn.Sigmoid(),
        nn.Softplus(2.0),
        nn.Flatten(),
        nn.Linear(4, 1),
    ),
    lambda s: mlp().double(),
]


def assert_same(model: Any, twin: Any, log: ClickLog) -> None:
    for ask in ("predict_clicks", "predict_conditional_clicks", "log_likelihood"):
        np.testing.assert_array_equal(getattr(model, ask)(log), getattr(twin, ask)(log))
    for coin, frame in model.parameters.items():
        assert twin.parameters[coin].equals(frame)


@pytest.mark.parametrize("number", range(len(DESCRIBED)))
def test_well_known_layers_are_saved_and_loaded(number: int, tmp_path: Path) -> None:
    log = make_log(40)
    form = Torch(
        DESCRIBED[number], "x", epochs=2, lr=0.03, batch_size=100, weight_decay=0.1, seed=4
    )
    model = quiet(dbn(form), log)
    model.save(tmp_path / "m")
    before = torch.get_rng_state()
    twin = load(tmp_path / "m")
    assert torch.equal(before, torch.get_rng_state())
    assert_same(model, twin, log)
    again = twin.forms["attraction"]
    assert again.recipe == form.recipe
    twin.save(tmp_path / "n")
    assert_same(model, load(tmp_path / "n"), log)
    assert quiet(twin, log).report_.objective >= model.report_.objective - 1e-6
    with zipfile.ZipFile(tmp_path / "m") as file:
        assert not any(b"pickle" in file.read(n).lower() for n in file.namelist())


def test_embeddings_are_saved_with_their_levels(tmp_path: Path) -> None:
    log = make_log(60)
    make = one_number_a_doc
    model = quiet(dbn(Torch(make, "doc")), log)
    model.save(tmp_path / "m")
    twin = load(tmp_path / "m")
    assert_same(model, twin, log)
    frame = pl.DataFrame({"doc": ["d3", "elsewhere"]})
    np.testing.assert_array_equal(
        twin.probability("attraction", frame), model.probability("attraction", frame)
    )


def test_a_module_of_ones_own_has_to_be_brought_along(tmp_path: Path) -> None:
    log = make_log(60)
    model = quiet(dbn(Torch(Shifted(), "x")), log)
    model.save(tmp_path / "m")
    with pytest.raises(SavedModelError, match=r"(?s)Shifted.*modules=\{.attraction.: "):
        load(tmp_path / "m")
    given = Shifted()
    twin = load(tmp_path / "m", modules={"attraction": given})
    assert_same(model, twin, log)
    assert float(given.slope.detach()[0]) == pytest.approx(0.3)  # left as it was


def test_a_function_can_be_brought_along(tmp_path: Path) -> None:
    log = make_log(60)
    make = two_tower
    model = quiet(dbn(Torch(make, "x", "doc", "colour")), log)
    model.save(tmp_path / "m")
    assert_same(model, load(tmp_path / "m", modules={"attraction": make}), log)


def test_a_sum_with_a_network_is_saved(tmp_path: Path) -> None:
    log = make_log(60)
    for number, module in enumerate((mlp(), Shifted())):
        form = Sum(Torch(module, "x"), spread=0.5, key="doc")
        model = quiet(DBN(attraction=form, satisfaction=Table(key="doc")), log)
        path = tmp_path / str(number)
        model.save(path)
        if number:
            with pytest.raises(SavedModelError, match="modules="):
                load(path)
        twin = load(path, modules={"attraction": Shifted()} if number else None)
        assert_same(model, twin, log)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"nothing": Shifted()}, "nothing"),
        ({"attraction": Shifted(), "satisfaction": Shifted()}, "'satisfaction' is not a network"),
        ({"attraction": nn.Linear(2, 1)}, "weight"),
        ({"attraction": Shifted().double()}, "float64"),
        ({"attraction": "net"}, "Module"),
    ],
)
def test_modules_that_do_not_fit(modules: Any, message: str, tmp_path: Path) -> None:
    quiet(dbn(Torch(Shifted(), "x")), make_log(30)).save(tmp_path / "m")
    with pytest.raises((SavedModelError, ModelError), match=message):
        load(tmp_path / "m", modules=modules)


def test_hooks_and_shared_layers_need_their_module(tmp_path: Path) -> None:
    log = make_log(30)
    layer = nn.Linear(1, 1)
    for module in (
        nn.Sequential(layer, nn.Tanh(), layer),
        nn.utils.parametrizations.weight_norm(nn.Linear(1, 1)),
    ):
        model = quiet(dbn(Torch(module, "x")), log)
        model.save(tmp_path / "m")
        with pytest.raises(SavedModelError, match="modules="):
            load(tmp_path / "m")
        assert_same(model, load(tmp_path / "m", modules={"attraction": module}), log)


def _rewritten(path: Path, change: Any) -> None:
    import hashlib

    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(parts.pop("manifest.json"))
    described = json.loads(parts["model.json"])
    change(described, parts)
    parts["model.json"] = json.dumps(described).encode()
    manifest["sha256"] = {n: hashlib.sha256(d).hexdigest() for n, d in parts.items()}
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("manifest.json", json.dumps(manifest))
        for name, data in parts.items():
            file.writestr(name, data)


def _weights(described: Any) -> str:
    return described["coins"][0]["frames"]["weights"]


@pytest.mark.parametrize(
    "change",
    [
        lambda d, p: p.update({_weights(d): b"no weights"}),
        lambda d, p: p.update({_weights(d): p[_weights(d)][:-8]}),
        lambda d, p: d["coins"][0]["data"]["module"]["network"]["parts"][0].update(layer="eval"),
        lambda d, p: d["coins"][0]["data"]["module"]["network"]["parts"][0].update(in_features=5),
        lambda d, p: d["coins"][0]["data"]["module"]["network"]["parts"][0].update(layer="Module"),
        lambda d, p: d["coins"][0]["data"]["module"].update(type="int8"),
        lambda d, p: d["coins"][0]["data"].update(module=3),
    ],
)
def test_files_that_were_tampered_with(change: Any, tmp_path: Path) -> None:
    quiet(dbn(Torch(mlp(), "x")), make_log(30)).save(tmp_path / "m")
    _rewritten(tmp_path / "m", change)
    with pytest.raises(SavedModelError):
        load(tmp_path / "m")


def test_weights_that_are_no_numbers_are_not_loaded(tmp_path: Path) -> None:
    from safetensors.torch import load as read
    from safetensors.torch import save as write

    def change(described: Any, parts: Any) -> None:
        weights = read(parts[_weights(described)])
        weights["0.bias"][:] = float("nan")
        parts[_weights(described)] = write(weights)

    quiet(dbn(Torch(mlp(), "x")), make_log(30)).save(tmp_path / "m")
    _rewritten(tmp_path / "m", change)
    with pytest.raises(SavedModelError):
        load(tmp_path / "m")


# -- for people, and without torch -----------------------------------------------------------------
def test_what_is_shown() -> None:
    log = make_log(30)
    model = quiet(dbn(Torch(mlp(), "x", epochs=3, key="doc")), log)
    frame = model.parameters["attraction"]
    assert "probability" not in frame.columns
    assert frame.height == 4
    assert "Torch(Sequential, 'x'" in repr(model.forms["attraction"])
    assert "Torch(Sequential" in repr(model)


def test_the_exam_passes() -> None:
    from gecasmo.testing import check_model

    assert check_model(
        DBN(attraction=Torch(mlp(), "rank"), satisfaction=Table()), compiled=False
    ).passed


def test_without_torch() -> None:
    code = """
import sys
sys.modules["torch"] = None
import gecasmo
assert gecasmo.Gradient().epochs == 50
for make in (lambda: gecasmo.Torch(len, "x"),):
    try:
        make()
    except gecasmo.errors.ModelError as error:
        assert 'pip install "gecasmo[torch]"' in str(error), error
    else:
        raise SystemExit("no error")
try:
    import gecasmo.torch
except Exception as error:
    assert 'pip install "gecasmo[torch]"' in str(error), error
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_does_not_import_torch() -> None:
    code = "import gecasmo, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- matrices --------------------------------------------------------------------------------------
def test_networks_in_the_papers_matrices() -> None:
    log = make_log(120)
    czm = quiet(matrices.read(FILE, "czm", phi_A=Torch(mlp(1), "x"), phi_S=Torch(mlp(2), "x")), log)
    program = quiet(DBN(attraction=Torch(mlp(1), "x"), satisfaction=Torch(mlp(2), "x")), log)
    for model in (czm, program):
        objective = model.history["objective"].to_numpy()
        assert np.all(np.diff(objective) >= -1e-10 * np.abs(objective[1:]))
    assert czm.report_.objective / 120 == pytest.approx(program.report_.objective / 120, abs=0.05)


def test_networks_for_the_items_of_the_papers_ubm() -> None:
    log = make_log(120)
    model = quiet(matrices.read(FILE, "ubm", phi_A=Torch(mlp(), "x")), log)
    objective = model.history["objective"].to_numpy()
    assert np.all(np.diff(objective) >= -1e-10 * np.abs(objective[1:]))
    assert np.all(np.isfinite(model.predict_clicks(log)))


# -- by gradient -----------------------------------------------------------------------------------
def test_networks_and_tables_by_gradient() -> None:
    log = make_log(150)
    method = Gradient(epochs=150, lr=0.05, batch_size=50)
    model = dbn(Torch(nn.Linear(1, 1), "x")).fit(log, method)
    em = dbn(Torch(nn.Linear(1, 1), "x")).fit(log)
    assert model.report_.objective / 150 == pytest.approx(em.report_.objective / 150, abs=5e-3)
    assert model.report_.objective == model.history["objective"].max()


def test_dropout_repeats_itself_by_gradient_and_leaves_the_stream_alone() -> None:
    log = make_log(60)

    def fitted() -> np.ndarray:
        torch_form = Torch(
            lambda s: nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), nn.Linear(8, 1)), "x"
        )
        model = dbn(torch_form).fit(log, Gradient(epochs=3, batch_size=16))
        return model.predict_clicks(log)

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = fitted()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    np.testing.assert_array_equal(fitted(), first)


def test_components_of_a_mixture_part_by_gradient() -> None:
    model = Mixture().fit(make_log(60), Gradient(epochs=3, batch_size=20))
    a, b = (model.parameters[c]["probability"].to_numpy() for c in ("taste_a", "taste_b"))
    assert np.abs(a - b).max() > 0.01


def test_heavy_pages_do_not_outweigh_their_batch() -> None:
    weight = np.repeat(np.where(np.arange(40) % 8 == 0, 200.0, 1.0), 4)
    log = read_log(make_log(40, w=weight).to_frame(), weight="w")
    em = DBN(attraction=Logistic("x"), satisfaction=0.3).fit(log)
    method = Gradient(epochs=200, lr=0.05, batch_size=5)
    model = DBN(attraction=Logistic("x"), satisfaction=0.3).fit(log, method)
    assert model.report_.objective == pytest.approx(
        em.report_.objective, abs=5e-3 * log.weight.sum()
    )
