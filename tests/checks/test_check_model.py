"""Cells, impossible pages, and all kinds of models."""

from __future__ import annotations

import json

import polars as pl
import pytest
from checked_logs import by_doc, dbn_users, pages_log, pbm_users, shelves

from gecasmo import (
    CM,
    DBN,
    DCTR,
    PBM,
    ClickModel,
    Form,
    Logistic,
    Parameter,
    Table,
    flip,
    read_log,
)
from gecasmo.checks import check
from gecasmo.checks.subject import CheckedModel, some_pages
from gecasmo.checks.traffic import check_cells
from gecasmo.models import CATALOGUE
from gecasmo.testing.subject import random_log
from strategies.zoo import SHAPES

ANCHOR = Table(fixed={1: 1.0})


class Buyer(ClickModel):
    """Clicks, purchases, a kind of user, and ads that are always looked at."""

    kind = Parameter("device")
    attraction = Parameter("doc")
    patience = Parameter()

    def start(self, user):  # type: ignore[no-untyped-def]
        user.hurried = bool(flip(self.kind))

    def browse(self, user, result):  # type: ignore[no-untyped-def]
        if (result.is_ad or not user.hurried) and flip(self.attraction):
            user.click()
            user.emit("purchase")
        if not flip(self.patience):
            user.leave()


# -- cells ------------------------------------------------------------------------------------
def test_cells_of_a_model_in_which_nothing_is_hidden() -> None:
    pages = [["a", "b"]] * 12 + [["c"]] * 3
    log = pages_log(pages, [[1, 0]] * 12 + [[0]] * 3)
    checked = check(log, by_doc(DCTR))
    (line,) = checked.tables["coins"].to_dicts()
    assert (line["rows"], line["never_flipped"], line["below_10_flips"]) == (3, 0, 1)
    assert line["share_of_impressions"] == pytest.approx(3 / 27)
    assert checked.tables["few_trials"].to_dicts() == [
        {"coin": line["coin"], "row": "doc 'c'", "impressions": 3.0, "flips": 3.0}
    ]


def test_satisfaction_of_what_was_never_clicked_is_never_flipped() -> None:
    log = pages_log([["a", "b", "c"]] * 20, [[1, 0, 0], [0, 1, 0]] * 10)
    checked = check(log, by_doc(DBN))
    lines = {line["coin"]: line for line in checked.tables["coins"].to_dicts()}
    assert lines["satisfaction"]["never_flipped"] == 1
    assert lines["attraction"]["never_flipped"] == 0
    flips = checked.tables["few_trials"].filter(pl.col("row") == "doc 'c'")
    assert flips.filter(pl.col("coin") == "satisfaction")["flips"].to_list() == [0.0]


def test_expected_flips_are_those_of_the_model() -> None:
    log = dbn_users([["a", "b", "c"], ["b", "c", "a"]] * 20, 1)
    model = by_doc(DBN).fit(log, progress=False)
    counts = model.expected_counts(log)["attraction"]
    subject = CheckedModel(model, log, model.states(), True)
    part = check_cells(subject, few=10**6, top=10)
    found = part.tables["few_trials"].filter(pl.col("coin") == "attraction")
    assert sorted(found["flips"]) == pytest.approx(sorted(counts["heads"] + counts["tails"]))
    assert found["impressions"].to_list() == [40.0, 40.0, 40.0]


def test_given_rows_are_not_missing_data() -> None:
    log = pbm_users([["a", "b"]] * 5, 1)
    coins = check(log, by_doc(PBM, examination=ANCHOR)).tables["coins"].to_dicts()
    assert coins[0]["coin"] == "examination"
    assert (coins[0]["given"], coins[0]["below_10_flips"]) == (1, 1)


# -- impossible pages -------------------------------------------------------------------------
def test_pages_with_several_clicks_are_impossible_under_cm() -> None:
    log = pages_log(
        [["a", "b", "c", "d"]] * 6,
        [[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1]],
    )
    checked = check(log, by_doc(CM))
    assert checked.facts["impossible_pages"] == 3
    (finding,) = checked.about("impossible pages")
    assert (finding.severity, finding.count) == ("error", 3)
    assert finding.examples == (
        "session 's1': a click at rank 4 after a click at rank 2",
        "session 's2': a click at rank 2 after a click at rank 1",
        "session 's4': a click at rank 2 after a click at rank 1",
    )
    table = checked.tables["impossible"]
    assert dict(zip(table["reason"], table["pages"], strict=True)) == {
        "a click right below a click": 2,
        "a click further below a click": 1,
    }
    # The rest of the check looks at what is left: the first result is clicked on one page of 3.
    flips = checked.tables["few_trials"].filter(pl.col("row") == "doc 'a'")["flips"].to_list()
    assert flips == [3.0]


def test_all_pages_impossible() -> None:
    checked = check(pages_log([["a", "b"]] * 4, [[1, 1]] * 3 + [[1, 1]]), by_doc(CM))
    assert checked.facts["impossible_pages"] == 4
    assert checked.worst == "error"


def test_a_coin_that_cannot_fall_otherwise_is_named() -> None:
    log = pages_log([["a", "b"]] * 4, [[1, 0], [0, 0], [0, 1], [1, 0]])
    model = PBM.with_values(attraction=(Table(key="doc"), {"a": 1.0, "b": 0.5}), examination=1.0)
    (finding,) = check(log, model).about("impossible pages")
    assert finding.count == 2
    assert finding.examples[0].startswith("session 's1': no click at rank 1 with no click above")
    assert "attraction of doc 'a' is 1" in finding.examples[0]


def test_signals_that_the_model_never_shows() -> None:
    log = read_log(
        {
            "session": [1, 1, 2, 2],
            "doc": list("abab"),
            "rank": [1, 2, 1, 2],
            "click": [1, 0, 0, 0],
            "purchase": [1, 0, 1, 0],
            "is_ad": [0, 1, 0, 1],
            "device": ["x", "x", "y", "y"],
        }
    )
    checked = check(log, Buyer)
    assert checked.tables["impossible"]["reason"].to_list() == [
        "a purchase, which the model never shows"
    ]


# -- all kinds of models and logs -------------------------------------------------------------
@pytest.mark.parametrize("lengths", [[1], [3] * 6 + [2, 1]], ids=["one result", "a few pages"])
@pytest.mark.parametrize("name", SHAPES)
def test_models_of_every_shape_can_be_checked(name: str, lengths: list[int]) -> None:
    model = CATALOGUE[name]()
    checked = check(random_log(model, lengths, 3), name)
    assert checked.model == name
    json.dumps(checked.to_dict(), allow_nan=False)
    assert all(len(line) <= 100 for line in str(checked).splitlines())
    assert not model.is_fitted


def test_a_model_with_guards_signals_and_start_flips() -> None:
    log = random_log(Buyer(), [3] * 12, 1)
    clicked = log.with_signals({"purchase": log.click})
    checked = check(clicked, Buyer())
    assert "looked_at_all" in checked.facts


def test_features_instead_of_rows() -> None:
    pages = shelves(200, 3, 4, 0.5, 0)
    frame = (
        pbm_users(pages, 1)
        .to_frame()
        .with_columns(price=pl.col("doc").str.slice(1).cast(pl.Float64))
    )
    log = read_log(frame)
    checked = check(log, PBM(attraction=Logistic("price"), examination=ANCHOR))
    names = checked.tables["directions"]["parameter"].to_list()
    assert any("price" in name for name in names)
    assert any("intercept" in name for name in names)
    assert checked.facts["free_directions"] == 0


def test_fitted_and_unfitted_models_and_untouched_logs() -> None:
    log = dbn_users(shelves(60, 2, 3, 0.5, 0), 1)
    before = (log.to_frame().clone(), log.sessions.clone(), log.weight.copy())
    model = by_doc(DBN).fit(log, progress=False)
    states = model.states_
    fitted, quick = check(log, model), check(log, by_doc(DBN))
    assert model.states_ is states
    assert "quick_fit_pages" not in fitted.facts
    assert quick.facts["quick_fit_pages"] == 60
    assert log.to_frame().equals(before[0])
    assert log.sessions.equals(before[1])
    assert (log.weight == before[2]).all()


def test_the_same_seed_gives_the_same_findings() -> None:
    log = pbm_users(shelves(60, 2, 3, 0.5, 0), 1)
    assert check(log, by_doc(PBM)).to_dict() == check(log, by_doc(PBM)).to_dict()


def test_weights_stand_for_repeated_pages() -> None:
    pages = [["a", "b"], ["b", "a"], ["a", "b"]]
    clicks = [[1, 0], [0, 1], [0, 0]]
    weighted = check(
        pages_log(pages, clicks, weight=[30.0, 10.0, 20.0]), by_doc(PBM, examination=ANCHOR)
    )
    repeated = check(
        pages_log(
            [page for page, n in zip(pages, (30, 10, 20), strict=True) for _ in range(n)],
            [seen for seen, n in zip(clicks, (30, 10, 20), strict=True) for _ in range(n)],
        ),
        by_doc(PBM, examination=ANCHOR),
    )
    for name in ("directions", "components"):
        ours, theirs = weighted.tables[name], repeated.tables[name]
        assert ours.columns == theirs.columns
        for column, dtype in ours.schema.items():
            if dtype == pl.Float64:
                assert ours[column].to_numpy() == pytest.approx(theirs[column].to_numpy(), rel=1e-3)


# -- large logs, made small by lower limits ---------------------------------------------------
def test_a_quick_fit_takes_whole_queries() -> None:
    pages = shelves(90, 2, 3, 0.5, 0)
    log = pages_log(pages, [[1, 0, 0]] * 90, [f"q{number % 9}" for number in range(90)])
    part = some_pages(log, 30, 0)
    assert part.n_sessions == 30
    assert sorted(part.session_column("query").value_counts()["count"]) == [10, 10, 10]
    assert some_pages(log, 90, 0) is log
    without = pages_log(pages, [[1, 0, 0]] * 90)
    assert some_pages(without, 30, 0).n_sessions == 30


def test_only_a_part_of_the_pages_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gecasmo.checks.subject.MOST_ROWS", 8)
    log = pbm_users(shelves(80, 6, 3, 0.5, 0), 1)
    checked = check(log, by_doc(PBM, examination=ANCHOR))
    assert not checked.facts["looked_at_all"]
    assert checked.facts["components"] == 1  # of all pages
    assert "looked at" in checked.about("identified")[0].message


def test_pages_too_long_for_a_closer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gecasmo.checks.subject.LONGEST", 2)
    checked = check(pbm_users(shelves(20, 2, 3, 0.5, 0), 1), by_doc(PBM))
    assert "too many to find out" in checked.about("identified")[0].message
    assert "coins" in checked.tables


def test_forms_that_do_not_say_what_they_estimate() -> None:
    class Opaque(Form):
        """Answers as a table does, but has no vector and is none as far as anybody can tell."""

        key = ("doc",)
        table = Table(key="doc")

        def begin(self, rows, generator):
            return self.table.begin(rows, generator)

        def fit(self, rows, heads, tails, previous):
            return self.table.fit(rows, heads, tails, previous)

        def predict(self, state, rows):
            return self.table.predict(state, rows)

        def penalty(self, state):
            return self.table.penalty(state)

    log = pbm_users(shelves(40, 2, 3, 0.5, 0), 1)
    checked = check(log, PBM(attraction=Opaque(), examination=ANCHOR))
    assert any("held fixed" in finding.message for finding in checked.about("identified"))
