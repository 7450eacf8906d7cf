"""The gradient route: the E-step is the gradient, and descent ends where EM does."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest
import torch

import gecasmo.torch
from gecasmo import (
    CCM,
    DBN,
    EM,
    PBM,
    UBM,
    ClickLog,
    ClickModel,
    Estimator,
    Fixed,
    Gradient,
    Logistic,
    Parameter,
    Sum,
    Table,
    flip,
    matrices,
    read_log,
)
from gecasmo.errors import ConvergenceWarning, ImpossibleSessionError, ModelError
from gecasmo.estimation.gradient import batch_of, shuffled

N_DOCS = 30


def logistic(value: float) -> float:
    return float(1 / (1 + np.exp(-value)))


def simulated(n_pages: int, seed: int, length: int = 5) -> ClickLog:
    rng = np.random.default_rng(seed)
    x, z = np.random.default_rng(9).normal(size=(2, N_DOCS))
    doc = np.array([rng.choice(N_DOCS, length, replace=False) for _ in range(n_pages)]).ravel()
    device = np.repeat(rng.choice(["phone", "desk"], n_pages), length)
    frame = pl.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), length),
            "doc": doc,
            "rank": np.tile(np.arange(1, length + 1), n_pages),
            "x": x[doc],
            "z": z[doc],
            "device": device,
        }
    )
    truth = DBN.with_values(
        attraction=(Table(key="doc"), {d: logistic(x[d] - 0.5) for d in range(N_DOCS)}),
        satisfaction=(Table(key="doc"), {d: logistic(0.8 * z[d]) for d in range(N_DOCS)}),
        continuation=(Table(key="device"), {"phone": 0.7, "desk": 0.9}),
    )
    return truth.simulate(read_log(frame, click=None), seed=seed)


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return simulated(1500, seed=1)


def logistic_dbn() -> DBN:
    return DBN(
        attraction=Logistic("x", "z"),
        satisfaction=Logistic("x", "z"),
        continuation=Logistic("device"),
    )


def free_dbn() -> DBN:
    weak = Table((0.01, 0.01), key="doc")
    return DBN(attraction=weak, satisfaction=weak)


class Mixture(ClickModel):
    """Some users are in a hurry."""

    hurry = Parameter("device")
    attraction = Parameter("doc")
    patience = Parameter("rank")

    def start(self, user):
        user.hurried = flip(self.hurry)

    def browse(self, user, result):
        if flip(self.attraction):
            user.click()
            if user.hurried:
                return user.leave()
        if not flip(self.patience):
            user.leave()


BY_DOC = {
    "DBN": DBN(attraction=Table(key="doc"), satisfaction=Table(key="doc")),
    "UBM": UBM(attraction=Table(key="doc")),
    "PBM": PBM(attraction=Table(key="doc")),
    "CCM": CCM(attraction=Table(key="doc")),
    "Mixture": Mixture(),
    "CZM as matrices": matrices.read("tests/matrices/matrices.json", "czm"),
}


# -- the likelihood as a loss --------------------------------------------------------------------
@pytest.mark.parametrize("name", BY_DOC)
def test_the_gradient_of_any_model_is_right(name: str, log: ClickLog) -> None:
    model, few = BY_DOC[name], log.take(np.arange(10))
    generator = torch.Generator().manual_seed(1)
    logits = {
        coin: torch.randn(len(frame), dtype=torch.float64, generator=generator)
        for coin, frame in gecasmo.torch.rows(model, few).items()
    }

    def total(*values: torch.Tensor) -> torch.Tensor:
        given = dict(zip(logits, values, strict=True))
        return gecasmo.torch.log_likelihood(model, few, given)

    assert torch.autograd.gradcheck(total, tuple(v.requires_grad_() for v in logits.values()))


def test_the_value_is_that_of_the_model(log: ClickLog) -> None:
    model = BY_DOC["UBM"].copy().fit(log)
    logits = {
        coin: torch.special.logit(torch.as_tensor(model.probability(coin, frame)))
        for coin, frame in gecasmo.torch.rows(model, log).items()
    }
    total = gecasmo.torch.log_likelihood(model, log, logits)
    assert float(total) == pytest.approx(model.log_likelihood(log).sum(), rel=1e-12)
    # Coins that are not given are taken as fitted.
    del logits["examination"]
    assert float(gecasmo.torch.log_likelihood(model, log, logits)) == pytest.approx(float(total))


def test_at_the_optimum_of_em_the_gradient_is_zero(log: ClickLog) -> None:
    none = (0.0, 0.0)
    model = DBN(
        attraction=Table(none, key="doc"),
        satisfaction=Table(none, key="doc"),
        continuation=Table(none),
    ).fit(log, EM(tol=1e-13, max_iter=5000))
    inner = {
        coin: (
            frame,
            (model.probability(coin, frame) > 1e-6) & (model.probability(coin, frame) < 1 - 1e-6),
        )
        for coin, frame in gecasmo.torch.rows(model, log).items()
    }
    logits = {
        coin: torch.special.logit(
            torch.as_tensor(model.probability(coin, frame)).clamp(1e-9, 1 - 1e-9)
        )
        for coin, (frame, _) in inner.items()
    }
    for values in logits.values():
        values.requires_grad_()
    gecasmo.torch.log_likelihood(model, log, logits).backward()
    for coin, values in logits.items():
        assert values.grad is not None
        assert np.abs(values.grad.numpy()[inner[coin][1]]).max() < 0.02


def test_gradients_have_the_type_of_the_logits(log: ClickLog) -> None:
    model = BY_DOC["PBM"]
    logits = {
        coin: torch.zeros(len(frame), 1, requires_grad=True)
        for coin, frame in gecasmo.torch.rows(model, log).items()
    }
    total = gecasmo.torch.log_likelihood(model, log, logits)
    total.backward()
    assert total.dtype == torch.float32
    for values in logits.values():
        assert values.grad is not None
        assert values.grad.shape == values.shape
        assert values.grad.dtype == torch.float32


def test_rows_show_the_features_that_forms_read(log: ClickLog) -> None:
    frames = gecasmo.torch.rows(DBN(attraction=Logistic("x", key="doc")), _with_query(log))
    assert frames["attraction"].columns == ["doc", "x"]
    assert len(frames["continuation"]) == 1


def _with_query(log: ClickLog) -> ClickLog:
    return read_log(log.to_frame().with_columns(query=pl.lit("q")))


def test_mistakes_with_logits_are_named(log: ClickLog) -> None:
    model = BY_DOC["PBM"].copy()
    n = len(gecasmo.torch.rows(model, log)["attraction"])
    with pytest.raises(ModelError, match=r"no coin 'attractive'\. Its coins are: "):
        gecasmo.torch.log_likelihood(model, log, {"attractive": torch.zeros(n)})
    with pytest.raises(ModelError, match=r"have the shape \(3,\); its 30 rows need \(30,\)"):
        gecasmo.torch.log_likelihood(model, log, {"attraction": torch.zeros(3)})
    with pytest.raises(ModelError, match="must be a tensor of floats"):
        gecasmo.torch.log_likelihood(model, log, {"attraction": torch.zeros(n, dtype=torch.int64)})
    with pytest.raises(ModelError, match="are not all finite"):
        gecasmo.torch.log_likelihood(model, log, {"attraction": torch.full((n,), torch.nan)})
    with pytest.raises(ModelError, match="The logits of 'examination' are missing"):
        gecasmo.torch.log_likelihood(model, log, {"attraction": torch.zeros(n)})


def test_impossible_pages_are_refused(log: ClickLog) -> None:
    model = DBN(attraction=Table(key="doc"), satisfaction=Fixed(1.0), continuation=0.9)
    n = len(gecasmo.torch.rows(model, log)["attraction"])
    with pytest.raises(ImpossibleSessionError, match="pages have probability zero"):
        gecasmo.torch.log_likelihood(model, log, {"attraction": torch.zeros(n)})


# -- minibatches ---------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["DBN", "UBM", "Mixture"])
def test_batches_add_up_to_the_log(name: str, log: ClickLog) -> None:
    from gecasmo.estimation import Expectation

    # Repeated pages, so that they are folded and grouped.
    frame = log.take(np.arange(40)).to_frame()
    copies = [frame.with_columns(session=pl.col("session") + 100 * n) for n in range(4)]
    repeated = _with_query(read_log(pl.concat(copies)))
    model = BY_DOC[name].copy().fit(repeated, EM(max_iter=2, tol=0))
    encoded = model.encode(repeated, "e_step")
    assert encoded.n_pages < repeated.n_sessions
    library = model.library(encoded.plan, counting=True)
    weights = [
        np.stack([1 - p, p])
        for p in (
            np.asarray(form.predict(model.states()[coin], rows))
            for (coin, form), rows in zip(model.forms.items(), encoded.rows, strict=True)
        )
    ]
    whole = Expectation(encoded, library).run(weights)
    tables = [np.zeros_like(table) for table in whole.tables]
    total = 0.0
    for pages in shuffled(encoded, 7, np.random.default_rng(1)):
        batch = batch_of(encoded, pages)
        part = Expectation(batch.encoded, library, threads=1).run(
            [np.ascontiguousarray(w[:, used]) for w, used in zip(weights, batch.used, strict=True)]
        )
        total += part.log_likelihood
        for table, found, used in zip(tables, part.tables, batch.used, strict=True):
            table[:, used] += found
    assert total == pytest.approx(whole.log_likelihood, rel=1e-12)
    for table, expected in zip(tables, whole.tables, strict=True):
        np.testing.assert_allclose(table, expected, rtol=1e-9, atol=1e-9)


# -- descent -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "model",
    [
        logistic_dbn(),
        UBM(
            attraction=Table(key="doc", pseudo_counts=(1, 1)),
            examination=Table(fixed={(1, 0): 1.0}),
        ),
        DBN(
            attraction=Sum(Logistic("x"), key="doc", spread=0.5),
            satisfaction=Table(key="doc", pseudo_counts=(1, 1)),
            continuation=0.8,
        ),
    ],
    ids=["logistic", "tables", "sum"],
)
def test_descent_ends_where_em_does(model: DBN, log: ClickLog) -> None:
    exact = model.copy().fit(log)
    descended = model.copy().fit(log, Gradient(lr=0.05, epochs=60, batch_size=128))
    assert exact.report_ is not None
    assert descended.report_ is not None
    gap = exact.report_.objective - descended.report_.objective
    assert -1e-6 < gap / log.n_sessions < 1e-3


def test_a_seed_repeats_itself(log: ClickLog) -> None:
    method = Gradient(epochs=3, batch_size=200, seed=4)
    first, second = (logistic_dbn().fit(log, method) for _ in range(2))
    other = logistic_dbn().fit(log, Gradient(epochs=3, batch_size=200, seed=5))
    one = first.coefficients["attraction"]["coefficient"].to_numpy()
    assert np.array_equal(one, second.coefficients["attraction"]["coefficient"].to_numpy())
    assert not np.array_equal(one, other.coefficients["attraction"]["coefficient"].to_numpy())


def test_the_best_epoch_is_kept_not_the_last(log: ClickLog) -> None:
    few, others = log.take(np.arange(60)), log.take(np.arange(200, 800))
    model = free_dbn()
    method = Gradient(lr=0.3, epochs=30, batch_size=20, validation=others)
    model.fit(few, method)
    last = free_dbn()
    last.fit(few, Gradient(lr=0.3, epochs=30, batch_size=20))
    assert model.score(others) > last.score(others)
    assert model.score(few) < last.score(few)


def test_patience_ends_it_early(log: ClickLog) -> None:
    few, others = log.take(np.arange(60)), log.take(np.arange(200, 800))
    model = free_dbn()
    model.fit(few, Gradient(lr=0.3, epochs=200, batch_size=20, validation=others, patience=4))
    assert model.report_ is not None
    assert model.report_.converged
    assert model.history["iteration"][-1] < 100


def test_a_share_of_the_log_can_judge(log: ClickLog) -> None:
    model = logistic_dbn().fit(log, Gradient(epochs=2, validation=0.3))
    assert model.report_ is not None
    assert model.report_.n_sessions == pytest.approx(0.7 * log.n_sessions, abs=2)


def test_forms_can_be_shared(log: ClickLog) -> None:
    shared = Logistic("x", "z")
    model = DBN(attraction=shared, satisfaction=shared).fit(log, Gradient(epochs=40, lr=0.05))
    exact = DBN(attraction=shared, satisfaction=shared).fit(log)
    assert model.coefficients["attraction"].equals(model.coefficients["satisfaction"])
    assert exact.score(log) - model.score(log) < 1e-3


def test_weights_of_sessions_count(log: ClickLog) -> None:
    few = log.take(np.arange(150))
    doubled = read_log(few.to_frame().with_columns(weight=pl.lit(2.0)), weight="weight")
    method = Gradient(epochs=3, batch_size=10_000, lr=0.05)
    one = DBN(attraction=Table((0.01, 0.01), key="doc"), satisfaction=0.5, continuation=0.8)
    twice = one.copy().fit(doubled, method)
    one.fit(few, method)
    np.testing.assert_allclose(
        one.probability("attraction", {"doc": list(range(N_DOCS))}),
        twice.probability("attraction", {"doc": list(range(N_DOCS))}),
        rtol=1e-3,  # Adam adds a constant to its denominators, and pseudo-counts weigh half
    )


def test_a_loss_that_is_no_number_stops_at_the_last_good_state(log: ClickLog) -> None:
    class Explodes(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.fill_(torch.nan)

    model = logistic_dbn()
    with pytest.warns(ConvergenceWarning, match="no longer a number in epoch 1"):
        model.fit(log, Gradient(optimizer=Explodes, epochs=5))
    assert np.isfinite(model.score(log))
    assert model.history["iteration"][-1] == 0


def test_an_interrupt_keeps_the_best_so_far(log: ClickLog) -> None:
    class Interrupted(torch.optim.SGD):
        def step(self, closure=None):
            raise KeyboardInterrupt

    model = logistic_dbn().fit(log, Gradient(optimizer=Interrupted, epochs=5))
    assert model.report_ is not None
    assert model.report_.interrupted
    assert np.isfinite(model.score(log))


def test_optimisers_by_name_and_by_function(log: ClickLog) -> None:
    few = log.take(np.arange(200))
    for optimizer in ("adam", "adamw", "sgd", "adagrad", torch.optim.RMSprop):
        model = logistic_dbn().fit(few, Gradient(optimizer=optimizer, epochs=2))
        assert np.isfinite(model.score(few))


def test_constants_alone_need_no_optimiser(log: ClickLog) -> None:
    model = DBN(attraction=0.3, satisfaction=1.0, continuation=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(log.take(log.click.reshape(-1, 5).sum(axis=1) < 2), Gradient(epochs=1))
    assert model.is_fitted


def test_forms_without_a_gradient_are_refused(log: ClickLog) -> None:
    from sklearn.linear_model import LogisticRegression

    model = DBN(attraction=Estimator(LogisticRegression(), "x"), satisfaction=0.5)
    with pytest.raises(ModelError, match=r"Gradient cannot train the form Estimator.* of 'attr"):
        model.fit(log, Gradient())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "a whole number of at least one"),
        ({"batch_size": 1.5}, "a whole number of at least one"),
        ({"lr": 0}, "a positive number is wanted"),
        ({"optimizer": "newton"}, "choose one of adam, adamw, sgd, adagrad"),
        ({"validation": 1.5}, "a share between 0 and 1"),
    ],
)
def test_options_that_make_no_sense(options: dict, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Gradient(**options)
