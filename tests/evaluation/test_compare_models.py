"""Who takes part, under which name, fitted by whom, and what is impossible for them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
from comparing_examples import known_models, ragged

from gecasmo import CM, DBN, DCTR, EM, GCTR, PBM, RCTR, ClickModel, Parameter, Table, flip, read_log
from gecasmo.errors import (
    ClickLogError,
    GecasmoWarning,
    ImpossibleSessionError,
    ModelError,
)
from gecasmo.evaluation import compare, leak_test
from gecasmo.logs import ClickLog
from gecasmo.models import CATALOGUE

FEW = EM(max_iter=2, tol=0)


def named(models: Any, log: ClickLog | None = None, **options: Any) -> Any:
    return compare(log or ragged(25, 1), models, bootstrap=0, method=FEW, **options)


def test_names_classes_and_models() -> None:
    unfitted = PBM(examination=Table(fixed={1: 1.0}))
    found = named(["dbn", GCTR, unfitted])
    assert set(found.models) == {"DBN", "GCTR", "PBM", "RCTR", "DCTR"}
    assert all(model.is_fitted for model in found.models.values())
    assert not unfitted.is_fitted  # what the user gave is not touched
    assert found.models["PBM"].probability("examination", {"rank": [1]}) == [1.0]


def test_one_model_needs_no_list_and_a_dictionary_gives_names() -> None:
    assert set(named("CZM").models) == {"DBN", "RCTR", "DCTR"}
    assert set(named(DBN).models) == {"DBN", "RCTR", "DCTR"}
    assert set(named({"mine": "GCTR"}).models) == {"mine", "RCTR", "DCTR"}


def test_names_stay_unique() -> None:
    found = named([GCTR(), GCTR(), GCTR()])
    assert set(found.models) == {"GCTR", "GCTR (2)", "GCTR (3)", "RCTR", "DCTR"}
    # A model of another kind may be called RCTR; the baseline then steps aside.
    found = named({"RCTR": "GCTR"})
    assert set(found.models) == {"RCTR", "RCTR (2)", "DCTR"}
    assert found.setting.baseline == "RCTR (2)"


def test_baselines_always_take_part_and_only_once() -> None:
    found = named(["GCTR"])
    assert isinstance(found.models["RCTR"], RCTR)
    assert isinstance(found.models["DCTR"], DCTR)
    assert "RCTR and DCTR always take part, as the simplest baselines." in found.notes
    found = named(["RCTR", "DCTR"])
    assert set(found.models) == {"RCTR", "DCTR"}
    assert not any("always take part" in note for note in found.notes)


@pytest.mark.parametrize("wrong", [[], {}, [3], ["DNB"], [object()], 7, ["RCTR", None]])
def test_what_is_no_model(wrong: Any) -> None:
    with pytest.raises(ModelError) as caught:
        named(wrong)
    if wrong == ["DNB"]:
        assert "Perhaps 'DBN'?" in str(caught.value)
        assert all(name in str(caught.value) for name in CATALOGUE)


def test_fitted_models_are_left_as_they_are() -> None:
    log = ragged(25, 1)
    model = GCTR().fit(ragged(30, 7))
    rate = model.parameters["click_rate"]["probability"][0]
    found = named({"old": model, "truth": known_models()["DBN"]}, log)
    assert found.models["old"].parameters["click_rate"]["probability"][0] == rate
    seconds = dict(found.table.select("model", "seconds").rows())
    whole = getattr(model.report_, "seconds", None)
    assert seconds["old"] == (whole or model.history["seconds"][-1])
    assert seconds["truth"] is None
    assert found.reasons["truth"]["seconds"] == "the model came with its probabilities"
    assert seconds["RCTR"] > 0
    assert sum("was already fitted" in note for note in found.notes) == 2


def test_the_seconds_of_a_given_fit_are_those_of_all_of_it() -> None:
    log = ragged(25, 1)
    model = GCTR().fit(log)
    assert model.report_ is not None
    model.report_.seconds = 12.5  # as the clock on the wall says, iterations or not
    assert dict(named({"old": model}, log).table.select("model", "seconds").rows())["old"] == 12.5
    vars(model.report_)["seconds"] = None  # a fit of an older file
    seconds = dict(named({"old": model}, log).table.select("model", "seconds").rows())
    assert seconds["old"] == model.history["seconds"][-1]


class Impatient(ClickModel):
    """A user's own model."""

    attraction = Parameter("query", "doc")
    patience = Parameter("query")

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.attraction):
            user.click()
        if not flip(self.patience):
            user.leave()


def test_a_log_without_queries() -> None:
    log = read_log(ragged(25, 1).to_frame().drop("query"), weight="weight")
    shared = Table()
    found = compare(
        log,
        ["DBN", Impatient, DBN(attraction=shared, satisfaction=shared), PBM(attraction=0.5)],
        method=FEW,
        bootstrap=5,
    )
    assert found.models["DCTR"].keys["click_rate"] == ("doc",)
    assert found.models["DBN"].keys["satisfaction"] == ("doc",)
    assert found.models["Impatient"].keys == {"attraction": ("doc",), "patience": ()}
    twin = found.models["DBN (2)"]
    assert twin.forms["attraction"] is twin.forms["satisfaction"]
    assert shared.key is None  # the user's own form is not touched
    told = "\n".join(found.notes)
    assert "The log has no queries, so DCTR has click_rate by doc." in told
    assert "Impatient has attraction by doc; patience by nothing." in told
    assert "The log has no queries, so intervals are over sessions." in told
    assert "so PBM has" not in told
    assert found.setting.over == "session"


def test_a_given_model_that_needs_queries_is_not_changed() -> None:
    log = read_log(ragged(25, 1).to_frame().drop("query"), weight="weight")
    with pytest.raises(ClickLogError, match=r"old: The coins? .* a row per 'query'"):
        named({"old": known_models()["DBN"]}, log)


def test_errors_name_the_model() -> None:
    class ByDevice(ClickModel):
        rate = Parameter("device")

        def browse(self, user: Any, result: Any) -> None:
            if flip(self.rate):
                user.click()

    with pytest.raises(ClickLogError, match="ByDevice: The coin 'rate' has a row per 'device'"):
        named([ByDevice])
    fitted = ByDevice.with_values(rate={"phone": 0.4})
    with pytest.raises(ClickLogError, match="old: The coin 'rate' has a row per 'device'"):
        named({"old": fitted})


def test_warnings_of_fits_become_notes() -> None:
    found = compare(ragged(25, 1), ["DBN"], method=EM(max_iter=1, tol=1e-12), bootstrap=0)
    assert any(note.startswith("DBN, fitting: EM stopped") for note in found.notes)


def test_warnings_of_others_stay_warnings() -> None:
    class Loud(Table):
        def begin(self, *arguments: Any) -> Any:
            warnings.warn("somebody else's", FutureWarning, stacklevel=1)
            return super().begin(*arguments)

    with pytest.warns(FutureWarning, match="somebody else's"):
        named([GCTR(click_rate=Loud())])


# -- impossible sessions ---------------------------------------------------------------------------
def test_a_cascade_stands_in_the_same_table() -> None:
    log, test = ragged(25, 1), ragged(40, 2)
    found = compare(log, {"CM": CM}, heldout=test, bootstrap=10, method=FEW)
    clicks = np.bincount(test.page, weights=test.click)
    n_bad = int((clicks > 1).sum())
    assert n_bad > 0
    row = found.table.row(by_predicate=pl.col("model") == "CM", named=True)
    assert row["n_impossible"] == n_bad
    assert found.table.filter(pl.col("model") != "CM")["n_impossible"].to_list() == [0, 0]
    model = found.models["CM"]
    floored = model.evaluate(test, impossible="floor")
    assert row["log_likelihood"] == pytest.approx(floored.log_likelihood, rel=1e-12)
    assert row["conditional_perplexity_pooled"] == pytest.approx(floored.conditional.pooled)
    assert row["marginal_perplexity_arithmetic"] == pytest.approx(floored.marginal.arithmetic)
    assert any(f"CM: {n_bad} of 40 test sessions are impossible" in note for note in found.notes)
    assert any("CM, fitting: " in note and "1e-8" in note for note in found.notes)
    assert found.setting.n_test_sessions == 40


def test_drop_leaves_out_the_same_sessions_for_all() -> None:
    log, test = ragged(25, 1), ragged(40, 2)
    clicks = np.bincount(test.page, weights=test.click)
    kept = test.take(clicks <= 1)
    found = compare(log, ["CM"], heldout=test, impossible="drop", bootstrap=0, method=FEW)
    assert found.setting.n_test_sessions == kept.n_sessions
    for name, model in found.models.items():
        row = found.table.row(by_predicate=pl.col("model") == name, named=True)
        assert row["log_likelihood"] == pytest.approx(model.score(kept), rel=1e-12)
        assert row["n_impossible"] == (40 - kept.n_sessions if name == "CM" else 0)
    assert any("left out for all" in note for note in found.notes)
    assert any("impossible training sessions left out" in note for note in found.notes)


def test_drop_that_leaves_nothing_and_raise() -> None:
    log = ragged(25, 1)
    clicks = np.bincount(log.page, weights=log.click)
    bad = log.take(clicks > 1)
    with pytest.raises(ImpossibleSessionError, match="every test session is impossible"):
        compare(log, ["CM"], heldout=bad, impossible="drop", method=FEW)
    with pytest.raises(ImpossibleSessionError, match=r"CM: .* sessions are impossible under CM"):
        compare(log, ["CM"], heldout=bad, impossible="raise", method=FEW)
    with pytest.raises(ImpossibleSessionError, match="old: "):
        compare(
            log,
            {"old": CM.with_values(attraction=0.3)},
            heldout=bad,
            impossible="raise",
            method=FEW,
        )


def test_numbers_are_finite_even_for_a_model_that_is_sure_and_wrong() -> None:
    sure = GCTR.with_values(click_rate=1.0)
    found = compare(ragged(25, 1), {"sure": sure}, heldout=ragged(20, 2), method=FEW)
    row = found.table.row(by_predicate=pl.col("model") == "sure", named=True)
    for name, value in row.items():
        if isinstance(value, float):
            assert np.isfinite(value), name


def test_a_model_that_foresees_clicks_is_named() -> None:
    class Peeking(RCTR):
        def predict_clicks(self, log: ClickLog, *, frame: bool = False) -> Any:
            return np.where(log.click, 0.9, 0.1)

        @property
        def name(self) -> str:
            return "Peeking"

        @name.setter
        def name(self, value: str) -> None: ...

    found = named([Peeking()])
    assert any("Do not trust the scores of Peeking" in note for note in found.notes)
    assert not any("RCTR, which uses clicks" in note for note in found.notes)


class Keen(Table):
    """A form of a user's own."""


def test_the_zoo_with_plain_tables_is_not_tested_for_leaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tested: list[str] = []

    def noted(model: Any, log: ClickLog, **options: Any) -> Any:
        tested.append(model.name)
        return leak_test(model, log, **options)

    monkeypatch.setattr("gecasmo.evaluation.contestants.leak_test", noted)
    log = ragged(25, 1)
    named(["DBN", "UBM", PBM(attraction=0.4), GCTR(click_rate=Table())], log)
    assert tested == []
    own = PBM(examination=Keen())
    own.name = "PBM with a form"
    clicked = GCTR(click_rate=Table(key="click"))  # a table by what is to be foretold
    clicked.name = "GCTR by click"
    found = named([Impatient, own, clicked], log)
    assert tested == ["Impatient", "PBM with a form", "GCTR by click"]
    assert [note for note in found.notes if "Do not trust the scores of GCTR by click" in note]


def test_steps_are_told() -> None:
    told: list[tuple[str, int, int]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", GecasmoWarning)
        named(["GCTR"], tell=lambda words, done, total: told.append((words, done, total)))
    assert told[0] == ("fitting GCTR", 0, 7)
    assert [done for _, done, _ in told] == list(range(8))
    assert told[-1] == ("done", 7, 7)
    assert [words for words, _, _ in told[3:6]] == ["scoring GCTR", "scoring RCTR", "scoring DCTR"]
