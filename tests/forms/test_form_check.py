"""The check of forms: ours pass it, one's own does, and every kind of mistake is caught."""

from __future__ import annotations

import copy
import json
import os
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from scipy.optimize import isotonic_regression
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from gecasmo import (
    DCTR,
    GCTR,
    ClickLog,
    Estimator,
    Fixed,
    Form,
    Logistic,
    Sum,
    Table,
    Torch,
    load,
    read_log,
)
from gecasmo.errors import ConvergenceWarning, ModelError, SavedModelError
from gecasmo.forms import form_named
from gecasmo.testing import FormCheckError, check_form

RNG = np.random.default_rng(0)
SHOES = pl.DataFrame(
    {
        "doc": [f"d{n}" for n in range(40)],
        "price": RNG.normal(size=40).round(2),
        "brand": ["acme", "best", "cult", "dune"] * 10,
    }
)
BOOSTING = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3, random_state=0)
FOREST = RandomForestClassifier(5, max_depth=3, random_state=0, n_jobs=1)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


OURS = {
    "table": Table(),
    "table of everything": Table(key=()),
    "table without pseudo-counts": Table((0, 0), key="brand"),
    "table by rank, some given": Table(key="rank", fixed={1: 0.9, 2: 0.3}),
    "table with a learned prior": Table(prior="empirical", key="brand"),
    "fixed": Fixed(0.3),
    "fixed by document": Fixed(0.3, key="doc"),
    "logistic": Logistic("price", "brand"),
    "logistic by document": Logistic("price", key="doc"),
    "logistic without prior": Logistic("price", l2=0, intercept=False),
    "sum": Sum(Logistic("price", "brand"), key="doc"),
    "sum of a given spread": Sum(Logistic("price"), spread=0.5, key="doc"),
    "classifier": Estimator(LogisticRegression(), "price", "brand"),
}
# Their M-steps depend on the order of rows, or on how many there are.
INEXACT = {
    "boosting": Estimator(BOOSTING, "price"),
    "forest": Estimator(FOREST, "price", "brand"),
    "network": Torch(network(), "price", epochs=2),
    "crossed effects": Sum(Table("doc"), Table("brand"), Logistic("price")),
    "probits": Sum(Table("doc"), Table("brand"), Logistic("price"), link="probit", spread=0.7),
    "sum around a network": Sum(Torch(network(), "price", epochs=2), key="doc"),
}


# One seed in the suite, many in a soak.
SEEDS = range(10 * (int(os.environ.get("GECASMO_EXAMPLES", "1")) - 1) or 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", OURS)
def test_our_forms_pass(name: str, seed: int) -> None:
    form = OURS[name]
    frame = SHOES if "brand" in form.columns else None
    assert check_form(form, frame, seed=seed).passed


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", INEXACT)
def test_our_forms_whose_steps_are_not_exact_pass(name: str, seed: int) -> None:
    form = INEXACT[name]
    frame = SHOES if "brand" in form.columns else None
    assert check_form(form, frame, exact=False, seed=seed).passed


@pytest.mark.parametrize("name", [*OURS, *INEXACT])
def test_forms_can_be_copied_sent_and_made_again(name: str) -> None:
    form = (OURS | INEXACT)[name]
    with_others = dict(form.options())
    columns = [value for n in ("columns", "by", "parts") for value in with_others.pop(n, ())]
    first = [with_others.pop(n) for n in ("module", "classifier") if n in with_others]
    for twin in (
        form.from_options(form.options()),
        copy.copy(form),
        copy.deepcopy(form),
        pickle.loads(pickle.dumps(form)),
        type(form)(*first, *columns, **with_others),
    ):
        assert twin is not form
        assert repr(twin) == repr(form)
        assert type(twin) is type(form)
        assert (twin.key, twin.columns, twin.missing) == (form.key, form.columns, form.missing)


def shop_log() -> ClickLog:
    shown = {"session": np.arange(40), "rank": np.ones(40, int), "query": np.zeros(40, int)}
    clicks = np.random.default_rng(1).random(40) < 0.5
    return read_log(SHOES.with_columns(**shown, click=clicks))


# -- a form of one's own -----------------------------------------------------------------------
@dataclass(frozen=True)
class Steps:
    """From these values on, these probabilities."""

    start: Any
    probability: Any


class Falling(Form, name="test.Falling"):
    """A probability that falls in one column, as in docs/forms.md, with everything a form can have
    but a vector."""

    def __init__(self, column: str) -> None:
        self.columns = (column,)

    def begin(self, rows, generator):
        return Steps(np.array([0.0]), np.array([0.5]))

    def fit(self, rows, heads, tails, previous):
        values = self.values(rows)
        known = np.unique(values)
        place = np.searchsorted(known, values)
        heads, flips = (np.bincount(place, each) for each in (heads, heads + tails))
        if not flips.any():
            return previous
        known, heads, flips = known[flips > 0], heads[flips > 0], flips[flips > 0]
        fitted = isotonic_regression(heads / flips, weights=flips, increasing=False).x
        return Steps(known, np.clip(fitted, 1e-6, 1 - 1e-6))

    def predict(self, state, rows):
        place = np.searchsorted(state.start, self.values(rows), "right") - 1
        return state.probability[np.maximum(place, 0)]

    def values(self, rows):
        return rows.features(self.columns).to_series().to_numpy()

    def to_frame(self, state):
        return pl.DataFrame({"from": state.start, "falls_to": state.probability})

    def to_data(self, state):
        return {"column": self.columns[0]}, {"steps": self.to_frame(state)}

    @classmethod
    def from_data(cls, data, parts):
        return cls(data["column"]), Steps(*(column.to_numpy() for column in parts["steps"]))


def test_a_form_of_ones_own_passes_and_is_kept(tmp_path: Path) -> None:
    report = check_form(Falling("price"))
    assert report.passed
    assert "saved and loaded, it says the same" in str(report)
    log = shop_log()
    model = GCTR(click_rate=Falling("price")).fit(log)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again.forms["click_rate"]) is Falling
    assert np.array_equal(again.predict_clicks(log), model.predict_clicks(log))
    assert again.estimates("click_rate", SHOES)["rests_on"].unique().to_list() == ["features"]


def test_files_name_a_form_and_never_its_module(tmp_path: Path) -> None:
    import zipfile

    model = GCTR(click_rate=Falling("price"))
    model.states_ = {"click_rate": Steps(np.array([0.0]), np.array([0.5]))}
    model.save(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model") as archive:
        coins = json.loads(archive.read("model.json"))["coins"]
    assert [coin["form"] for coin in coins] == ["test.Falling"]


def test_two_forms_of_one_name_are_told_apart_by_nobody(tmp_path: Path) -> None:
    def make() -> type[Form]:
        class Twin(Falling, name="test.Twin"):
            to_data, from_data = Falling.to_data, Falling.from_data

        return Twin

    first = make()
    assert form_named("test.Twin") is first
    second = make()  # the same definition, run again as in a notebook
    assert form_named("test.Twin") is second

    class Other(Falling, name="test.Twin"):
        to_data, from_data = Falling.to_data, Falling.from_data

    with pytest.raises(SavedModelError, match=r"Several forms are called 'test.Twin'.*Other"):
        form_named("test.Twin")
    model = GCTR(click_rate=second("price"))
    model.states_ = {"click_rate": Steps(np.array([0.0]), np.array([0.5]))}
    with pytest.raises(SavedModelError, match="shares its name with another form"):
        model.save(tmp_path / "model")


def test_nobody_takes_the_name_of_a_form_of_ours(tmp_path: Path) -> None:
    class Table(Falling):
        to_data, from_data = Falling.to_data, Falling.from_data

    assert form_named("Table") is type(OURS["table"])
    assert not Table("price").can_be_saved
    assert OURS["table"].can_be_saved


def test_what_is_no_form_is_told() -> None:
    with pytest.raises(ModelError, match=r"derives from gecasmo\.Form"):
        check_form(LogisticRegression())

    class Half(Form):
        def begin(self, rows, generator):
            return None

    with pytest.raises(TypeError, match="abstract"):
        Half()


def test_a_frame_without_the_columns_that_are_read() -> None:
    with pytest.raises(ModelError, match="lacks weight"):
        check_form(Logistic("weight"), SHOES)


# -- mistakes ----------------------------------------------------------------------------------
class Short(Falling):
    def predict(self, state, rows):
        return super().predict(state, rows)[1:]


class NoNumber(Falling):
    def predict(self, state, rows):
        return np.where(self.values(rows) > 1, np.nan, super().predict(state, rows))


class TooLikely(Falling):
    def predict(self, state, rows):
        return 1.5 * super().predict(state, rows)


class Losing(Falling):
    def fit(self, rows, heads, tails, previous):
        return super().fit(rows, tails, heads, previous)


class LosingByItsPrior(Falling):
    def penalty(self, state):
        return -100 * float(np.square(state.probability).sum())


class Changing(Falling):
    """Writes into the state that it was given."""

    def fit(self, rows, heads, tails, previous):
        state = super().fit(rows, heads, tails, previous)
        previous.probability *= 0.999
        return state


class Greedy(Falling):
    """Writes into the counts."""

    def fit(self, rows, heads, tails, previous):
        heads += 1.0
        return super().fit(rows, heads, tails, previous)


class Random(Falling):
    rng = np.random.default_rng(0)

    def fit(self, rows, heads, tails, previous):
        state = super().fit(rows, heads, tails, previous)
        return replace(
            state, probability=np.clip(state.probability + 1e-4 * self.rng.random(), 0, 1)
        )


class Relative(Falling):
    """Looks at a row beside the others."""

    def values(self, rows):
        values = super().values(rows)
        return values - values.mean() if len(values) else values


class CountsRows(Falling):
    """A prior for each row, and not for the form."""

    def fit(self, rows, heads, tails, previous):
        return super().fit(rows, heads + 1, tails + 1, previous)


class FirstOnly(Falling):
    """Believes the row that comes first."""

    def fit(self, rows, heads, tails, previous):
        p = float(np.clip((heads[0] + 1e-6) / (heads[0] + tails[0] + 2e-6), 1e-6, 1 - 1e-6))
        return Steps(np.array([0.0]), np.array([p]))


class Forgetful(Falling, name="test.Forgetful"):
    """Keeps only every other step."""

    def to_data(self, state):
        return {"column": self.columns[0]}, {"steps": self.to_frame(state)[::2]}

    @classmethod
    def from_data(cls, data, parts):
        return cls(data["column"]), Steps(*(column.to_numpy() for column in parts["steps"]))


class Rounding(Falling, name="test.Rounding"):
    def to_data(self, state):
        steps = self.to_frame(state).with_columns(pl.col("falls_to").cast(pl.Float32))
        return {"column": self.columns[0]}, {"steps": steps}

    @classmethod
    def from_data(cls, data, parts):
        return cls(data["column"]), Steps(*(column.to_numpy() for column in parts["steps"]))


class UnknownRows(Falling):
    def known(self, state, rows):
        return np.ones(len(rows) + 1, bool)


class ShowsOthers(Falling):
    def to_frame(self, state):
        return pl.DataFrame({"probability": np.full(30, 0.5)})


class TellsNumbers(Falling):
    def remarks(self, state, heads, tails):
        return [3]


class NotItsVector(Logistic):
    def from_vector(self, state, vector):
        return super().from_vector(state, vector + 1e-3)


class Bent(Logistic):
    """A vector that logits are not linear in."""

    def vector(self, state):
        return np.sinh(super().vector(state))

    def from_vector(self, state, vector):
        return super().from_vector(state, np.arcsinh(vector))


class WrongScore(Logistic):
    def score(self, state, rows, heads, tails):
        return super().score(state, rows, heads, tails) + self.precision(2) * state.coefficients


class WrongLogits(Logistic):
    def logits(self, state, rows):
        return super().logits(state, rows) + 0.1

    def predict(self, state, rows):
        return expit(super().logits(state, rows))


class WorseAround(Logistic):
    def fit_around(self, rows, heads, tails, previous, offsets, variance):
        state, offsets = super().fit_around(rows, heads, tails, previous, offsets, variance)
        return state, -offsets


class Ungiven(Table):
    """Says that rows are given, and moves them."""

    def given_rows(self, rows):
        return np.ones(len(rows), bool)


class NarrowPosterior(Table):
    def posterior(self, state, rows, probability, counts):
        return replace(super().posterior(state, rows, probability, counts), spread=np.full(3, 0.1))


MISTAKES = {
    Short("price"): "it answers a probability for each row",
    NoNumber("price"): "it answers a probability for each row",
    TooLikely("price"): "it answers a probability for each row",
    Losing("price"): "the M-step never lowers its objective",
    LosingByItsPrior("price"): "the M-step never lowers its objective",
    Changing("price"): "the M-step changes nothing that it was given",
    Greedy("price"): "the M-step changes nothing that it was given",
    Random("price"): "the same M-step again gives the same",
    Relative("price"): "what it says of a row does not depend on the others",
    CountsRows("price"): "a row with weight two is as good as two rows",
    FirstOnly("price"): "the order of rows does not matter",
    Forgetful("price"): "saved and loaded, it says the same",
    Rounding("price"): "saved and loaded, it says the same",
    UnknownRows("price"): "what it tells of rows has a value for each",
    ShowsOthers("price"): "it shows frames and texts, and the probabilities it predicts",
    TellsNumbers("price"): "it shows frames and texts, and the probabilities it predicts",
    NotItsVector("price"): "its vector and back is the same state",
    Bent("price"): "logits are linear in its vector",
    WrongScore("price"): "its score is the derivative of the objective by the vector",
    WrongLogits("price"): "its logits are those of its probabilities",
    WorseAround("price"): "the M-step around offsets never lowers its objective",
    Ungiven(): "rows that are given stay as they are",
    NarrowPosterior(): "what it tells of rows has a value for each",
}


@pytest.mark.parametrize("form", MISTAKES, ids=lambda form: type(form).__name__)
def test_mistakes_are_caught(form: Form) -> None:
    with pytest.raises(FormCheckError) as caught:
        check_form(form)
    failed = [line for line in str(caught.value).splitlines() if line.startswith("  FAIL ")]
    assert any(MISTAKES[form] in line for line in failed), str(caught.value)


def test_a_form_that_loses_is_caught_in_a_model_too() -> None:
    """The laws are those that fits rely on: an M-step that loses is held back by EM."""
    log = shop_log()
    with pytest.warns(ConvergenceWarning):
        model = DCTR(click_rate=Losing("price")).fit(log)
    objective = model.history["objective"].to_numpy()
    assert np.all(np.diff(objective) >= -1e-9)
