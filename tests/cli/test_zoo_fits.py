"""Every model of the zoo, fitted from the command line to a log that has its columns.

Those that read a log under a view also go round: fitted, simulated, and fitted to what came out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from command_line import fail, succeed, succeed_with_json

from gecasmo import load, read_log
from gecasmo.evaluation import select_model
from gecasmo.logs.views import as_view
from gecasmo.models import CATALOGUE
from gecasmo.testing import plain_python
from gecasmo.testing.subject import random_log
from strategies.zoo import densities_of

SAMPLES = Path(__file__).parents[1] / "readers" / "samples"
VIEWED = [name for name, model in CATALOGUE.items() if as_view(model.view).name != "pages"]


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_sample_log_is_fitted(name: str, folder: Path) -> None:
    model = CATALOGUE[name]
    blank = random_log(model(), [3] * 12, seed=1)
    with plain_python():
        coins = dict.fromkeys(model._parameters(), 0.5)
        if not model().foreseen:  # else it can be fitted, and cannot simulate
            blank = model.with_values(**coins, **densities_of(model)).simulate(blank, seed=2)
        blank.write("log.csv")
        succeed("fit", name, "log.csv", "-o", "made.fit")
        found = load("made.fit").evaluate(read_log("log.csv"))
    assert found.n_impossible == 0
    assert np.isfinite(found.log_likelihood)


@pytest.mark.filterwarnings("ignore::gecasmo.errors.GecasmoWarning")
@pytest.mark.parametrize("name", [name for name in VIEWED if not CATALOGUE[name]().foreseen])
def test_what_is_simulated_is_fitted_again(name: str, folder: Path) -> None:
    """Pages go in, and a log comes out that has all that the model reads; from disk as well."""
    model, view = CATALOGUE[name], as_view(CATALOGUE[name].view)
    blank = random_log(model(), [2] * 12, seed=1)
    pages = blank.to_frame().drop("click", "click_order", "query_follows", strict=False)
    pages.write_csv("pages.csv")
    coins = dict.fromkeys(model._parameters(), 0.5)
    model.with_values(**coins).save("truth.fit")
    with plain_python():
        succeed("simulate", "truth.fit", "pages.csv", "--click", "none", "-o", "log.csv")
        made = read_log("log.csv")
        assert all(any(column in made.columns for column in names) for names in view.needs)
        first = succeed_with_json("fit", name, "log.csv", "-o", "one.fit")
        succeed("ingest", "log.csv", "-o", "log.gclog", "--view", view.name, "--partitions", "2")
        again = succeed_with_json("fit", name, "log.gclog", "-o", "two.fit")
        for fit in ("one.fit", "two.fit"):
            scores = [
                succeed_with_json("evaluate", fit, log)["log_likelihood"]
                for log in ("log.csv", "log.gclog")
            ]
            assert scores[0] == pytest.approx(scores[1], rel=1e-9)
        succeed("simulate", "one.fit", "log.gclog", "-o", "new.csv")
        succeed("fit", name, "new.csv", "-o", "three.fit")
    # Fits of tasks are those in memory; others learn priors from a sample (docs/stored-fits.md).
    off = 1e-6 if view.spans_pages else 0.1
    assert first["log_likelihood"] == pytest.approx(again["log_likelihood"], rel=off)


@pytest.mark.filterwarnings("ignore::gecasmo.errors.GecasmoWarning")
@pytest.mark.parametrize(
    ("log", "models"),
    [
        ("yandex.tsv", ("WalkCM", "TCM")),
        ("trec_session.xml", ("WalkCM", "SessionDBN")),
        ("ubi.ndjson", ("WalkCM",)),
        ("events/shop.csv", ("WalkCM",)),
    ],
)
def test_readers_keep_the_order_of_clicks_and_pages(
    log: str, models: tuple[str, ...], folder: Path
) -> None:
    flags = ["--events"] if log.startswith("events") else []
    for name in models:
        view = as_view(CATALOGUE[name].view).name
        with plain_python():
            read = succeed_with_json("fit", name, SAMPLES / log, *flags, "-o", f"{name}.fit")
            stored = f"{view}.gclog"
            succeed("ingest", SAMPLES / log, *flags, "-o", stored, "--view", view, "--force")
            again = succeed_with_json("fit", name, stored, "-o", "again.fit")
            same = succeed_with_json("evaluate", "again.fit", stored)["log_likelihood"]
            direct = succeed_with_json("evaluate", "again.fit", SAMPLES / log, *flags)
        assert direct["log_likelihood"] == pytest.approx(same, rel=1e-9)
        off = 1e-6 if view == "tasks" else 0.1
        assert read["log_likelihood"] == pytest.approx(again["log_likelihood"], rel=off)


def test_what_a_stored_log_lacks_is_said_with_the_command(folder: Path) -> None:
    succeed("ingest", SAMPLES / "yandex.tsv", "-o", "log.gclog", "--quiet")
    said = fail("fit", "WalkCM", "log.gclog", "-o", "made.fit")
    assert "'click_order' or 'click_time'" in said
    assert "`gecasmo ingest LOG -o FOLDER --view walks`" in said
    assert "There is no view 'tsaks'" in fail(
        "ingest", SAMPLES / "yandex.tsv", "-o", "other.gclog", "--view", "tsaks"
    )


# A visit whose pages are not in order, clicks in the same second, one on nothing that is shown.
ODD = """\
7\t9\tQ\t2\t1\ta\tb\tc
7\t12\tC\tb
7\t12\tC\ta
7\t13\tC\tx
7\t2\tQ\t1\t1\ta\tb
7\t3\tC\tb
8\t5\tQ\t1\t1\ta\tb
8\t5\tQ\t2\t1\tc\tb
"""


def test_odd_clicks_and_pages_are_counted_and_told_once(folder: Path) -> None:
    Path("odd.tsv").write_text(ODD)
    with plain_python():
        walked = succeed("fit", "WalkCM", "odd.tsv", "-o", "walk.fit").stderr
        searched = succeed("fit", "TCM", "odd.tsv", "-o", "task.fit").stderr
    assert walked.count("clicks on results never shown: 1 (") == 1
    assert walked.count("clicks at the same time as another of their page: 1 (") == 1
    assert searched.count("pages at the same time as another of their task: 1 (") == 1
    assert searched.count("odd.tsv: pages of tasks out of order: 1 (") == 1
    with pytest.warns(match="clicks on results never shown: 1"):
        log = read_log("odd.tsv")
    with pytest.warns(match="pages at the same time as another of their task: 1"):
        notes = log.view("tasks").notes
    assert [note.what for note in notes if note.kind.startswith("pages of tasks out")] == [
        "pages of tasks out of order: 1 (they are read in the order of 'time_passed')."
    ]
    table = log.to_frame()
    table.with_columns(pl.col("click_time").replace(3, None)).write_csv("late.csv")
    said = fail("fit", "WalkCM", "late.csv", "-o", "walk.fit")
    assert said.count("needs the column 'click_time' of every click: 1 click has none (first:") == 1
    table.with_columns(pl.col("time_passed").replace(5, None)).write_csv("lost.csv")
    said = fail("fit", "TCM", "lost.csv", "-o", "task.fit")
    assert said.count("the column 'time_passed' of every page: 2 pages have none (first:") == 1


@pytest.mark.parametrize(
    ("name", "column"), [("ShopDBN", "cart"), ("EBUBM", "is_vertical"), ("TACM", "dwell")]
)
def test_a_column_that_is_not_there_is_named(name: str, column: str, folder: Path) -> None:
    random_log(CATALOGUE["DBN"](), [2] * 3, seed=1).write("log.csv")
    said = fail("fit", name, "log.csv", "-o", "made.fit")
    assert f"'{column}', and the log has no such column" in said


def test_auto_says_which_and_why(log_file: Path, folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(select_model.__kwdefaults__, "folds", 2)
    monkeypatch.setattr(select_model, "__defaults__", (("GCTR", "RCTR"),))
    with plain_python():
        told = succeed("fit", "auto", log_file, "-o", "best.fit").stdout
        data = succeed_with_json("fit", "AUTO", log_file, "-o", "again.fit")
    assert "2 folds of 240 sessions, each predicted once" in told
    assert "predicts" in told
    assert data["selection"]["chosen"] == data["model"] == load("best.fit").name
    assert [row["model"] for row in data["selection"]["candidates"]] == ["RCTR", "GCTR"]
