"""`evaluate`, `explain`, `simulate` and `propensities`: what a fit says about pages."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import fail, run, succeed, succeed_with_json

import gecasmo


def test_evaluate(fit_file: Path, log_file: Path, log: gecasmo.ClickLog) -> None:
    found = gecasmo.load(fit_file).evaluate(log)
    data = succeed_with_json("evaluate", fit_file, log_file)
    assert data["sessions"] == 240
    assert data["log_likelihood"] == pytest.approx(found.log_likelihood, abs=1e-12)
    assert [row["rank"] for row in data["by_rank"]] == list(range(1, 11))
    assert succeed("evaluate", fit_file, log_file).stdout.strip() == str(found)


def test_explain_tells_the_posterior(fit_file: Path, log_file: Path, log: gecasmo.ClickLog) -> None:
    model = gecasmo.load(fit_file)
    data = succeed_with_json("explain", fit_file, log_file, "--session", "17")
    page = log.take([17])
    assert data["session"] == 17
    rows = pl.DataFrame(data["results"])
    assert rows["rank"].to_list() == list(range(1, 11))
    behind = model.posterior(page)
    np.testing.assert_allclose(rows["reached"], behind["reached"])
    np.testing.assert_allclose(rows["satisfaction_heads"], behind["satisfaction_heads"])
    np.testing.assert_allclose(rows["expected"], model.predict_clicks(page))
    np.testing.assert_allclose(rows["expected_given_above"], model.predict_conditional_clicks(page))
    assert data["log_likelihood"] == pytest.approx(float(model.log_likelihood(page)[0]))


def test_explain_as_a_table(fit_file: Path, log_file: Path, log: gecasmo.ClickLog) -> None:
    text = succeed("explain", fit_file, log_file, "--session", "17").stdout
    assert text.startswith("Session 17, query ")
    assert "as DBN sees it" in text
    for word in ("P(click)", "given", "above", "reached", "attraction", "satisfaction"):
        assert word in text
    assert text.count(" click  ") - 1 == int(log.take([17]).click.sum())
    assert "█" in text


def test_explain_names_ids_when_there_is_no_such_page(fit_file: Path, log_file: Path) -> None:
    said = fail("explain", fit_file, log_file, "--session", "39x")
    assert "--session 39x: the log has no such session. It has 240, such as 0, 1, 2, 3, 4." in said
    said = fail("explain", fit_file, log_file, "--session", "3 9")
    assert "no such session" in said


def test_explain_with_texts_and_several_columns_as_ids(folder: Path) -> None:
    rows = [
        (user, visit, f"d{rank}", rank, int(rank == 2 and user == "[ann]"))
        for user in ("[ann]", "bob")
        for visit in (1, 2)
        for rank in (1, 2, 3)
    ]
    frame = pl.DataFrame(rows, schema=["user", "visit", "doc", "rank", "click"], orient="row")
    frame.write_csv("log.csv")
    columns = ("--session", "user,visit")
    succeed(
        "fit",
        "DBN",
        "log.csv",
        "-o",
        "dbn.fit",
        *columns,
        *("--key", "attraction=doc"),
        *("--key", "satisfaction=doc"),
    )
    data = succeed_with_json(
        *("explain", "dbn.fit", "log.csv", "--session-column", "user,visit"),
        *("--session", "[ann],2"),
    )
    assert data["session"] == {"user": "[ann]", "visit": 2}
    assert [row["click"] for row in data["results"]] == [False, True, False]
    said = fail(
        *("explain", "dbn.fit", "log.csv", "--session-column", "user,visit"),
        *("--session", "bob"),
    )
    assert "such as bob,1, bob,2, [ann],1" in said


def test_simulate(folder: Path, fit_file: Path, log_file: Path, log: gecasmo.ClickLog) -> None:
    text = succeed("simulate", fit_file, log_file, "-o", "clicks.parquet", "--seed", "5").stdout
    again = gecasmo.read_log("clicks.parquet")
    own = gecasmo.load(fit_file).simulate(log, seed=5)
    assert np.array_equal(again.click, own.click)
    assert text == (
        f"{own.click.sum():,} clicks on 240 pages of 2,400 results, written to clicks.parquet.\n"
    )
    data = succeed_with_json("simulate", fit_file, log_file, "-o", "more.csv", "--seed", "5")
    assert data["clicks"] == own.click.sum()


def test_simulate_needs_no_clicks(folder: Path, fit_file: Path, log: gecasmo.ClickLog) -> None:
    log.to_frame().drop("click").write_csv("pages.csv")
    succeed("simulate", fit_file, "pages.csv", "-o", "clicks.csv")
    assert gecasmo.read_log("clicks.csv").click.any()


def test_rows_that_were_never_fitted_are_told(
    folder: Path, fit_file: Path, log: gecasmo.ClickLog
) -> None:
    new = log.to_frame().with_columns(pl.col("query") + 1000)
    new.write_csv("new.csv")
    told = "100 % of the results have no row of attraction and satisfaction"
    for command in (["simulate", "-o", "made.csv"], ["propensities"]):
        arguments = [command[0], fit_file, "new.csv", *command[1:]]
        assert told in " ".join(succeed(*arguments).stdout.split())
        assert succeed_with_json(*arguments)["unseen"]["attraction"] == 1


def test_pipes_in_both_directions(fit_file: Path, log_file: Path, log: gecasmo.ClickLog) -> None:
    done = run("simulate", fit_file, "-", "-o", "-", input=log_file.read_bytes())
    assert done.returncode == 0, done.stderr
    frame = pl.read_csv(io.BytesIO(done.stdout))
    own = gecasmo.load(fit_file).simulate(log, seed=0)
    assert frame["click"].cast(bool).to_list() == own.click.tolist()
    assert b"clicks on 240 pages" in done.stderr
    scored = run("evaluate", fit_file, "-", "--json", input=done.stdout)
    assert json.loads(scored.stdout)["log_likelihood"] == pytest.approx(
        gecasmo.load(fit_file).score(own)
    )


def test_one_output_for_two_results(fit_file: Path, log_file: Path) -> None:
    said = fail("simulate", fit_file, log_file, "-o", "-", "--json", code=2)
    assert "both write to standard output" in said


def test_nothing_half_written(folder: Path, fit_file: Path, log_file: Path) -> None:
    assert "that end in" in fail("simulate", fit_file, log_file, "-o", "clicks.xlsx")
    assert "there is no folder" in fail("simulate", fit_file, log_file, "-o", "no/clicks.csv")
    assert list(folder.iterdir()) == []


def test_propensities(folder: Path, pbm_file: Path) -> None:
    data = succeed_with_json("propensities", pbm_file)
    own = gecasmo.load(pbm_file).parameters["examination"].sort("rank")["probability"].to_list()
    assert [row["rank"] for row in data["propensities"]] == list(range(1, 11))
    assert [row["examination"] for row in data["propensities"]] == pytest.approx(own)
    assert all(row["low"] <= row["examination"] <= row["high"] for row in data["propensities"])
    text = succeed("propensities", pbm_file, "-o", "propensities.csv").stdout
    assert "Written to propensities.csv." in text
    assert pl.read_csv("propensities.csv")["examination"].to_list() == pytest.approx(own)
    found = succeed("propensities", pbm_file, "-o", "-")
    assert pl.read_csv(io.StringIO(found.stdout))["examination"].to_list() == pytest.approx(own)


def test_propensities_over_pages(folder: Path, fit_file: Path, log_file: Path) -> None:
    assert "give some" in fail("propensities", fit_file)
    data = succeed_with_json("propensities", fit_file, log_file)
    examination = [row["examination"] for row in data["propensities"]]
    assert examination[0] == pytest.approx(1.0)
    assert examination == sorted(examination, reverse=True)
    assert "has to end in" in fail("propensities", fit_file, log_file, "-o", "p.xlsx")
