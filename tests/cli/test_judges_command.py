"""`gecasmo judgments --grades FILE`: clicks with other judges, from the command line."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from command_line import fail, succeed, succeed_with_json

import gecasmo
from gecasmo.judgments import judge


@pytest.fixture
def grades(folder: Path, fit_file: Path) -> pl.DataFrame:
    """What a judge says who sees relevance as clicks have it, in two files."""
    known = judge(gecasmo.load(fit_file)).frame.select("query", "doc", "relevance")
    level = pl.col("relevance").rank("ordinal") * 4 // (pl.len() + 1)
    told = known.select("query", "doc", score=level)
    told.write_csv("llm.csv")
    words = {0: "bad", 1: "fair", 2: "good", 3: "best"}
    some = told.with_columns(stars=pl.col("score").replace_strict(words)).drop("score")
    some.rename({"doc": "sku"}).head(20).write_csv("humans.csv")
    told.write_csv("run.csv")
    return told


def test_the_command_of_the_readme(folder, fit_file, grades):
    said = ("judgments", fit_file, "-o", "both.csv", "--grades", "llm.csv", "--grades", "3")
    text = succeed(*said, "--run", "run.csv", "--ndcg-at", "5", "--report", "tables").stdout
    assert "judges against clicks" in text
    assert "where judges and clicks disagree most" in text
    assert "pairs most worth judging by hand" in text
    assert "nDCG@5" in text
    own = judge(gecasmo.load(fit_file), grades=3, grades_from="llm.csv")
    frame = pl.read_csv("both.csv")
    assert frame["relevance"].to_list() == pytest.approx(own.frame["relevance"].to_list())
    assert frame["rests_on"].str.ends_with(" + llm").all()
    names = "calibration confusion disagreements ndcg trust worth_judging"
    assert sorted(path.stem for path in Path("tables").iterdir()) == names.split()
    assert pl.read_csv("tables/trust.csv")["judge"].to_list() == ["llm"]
    assert len(pl.read_csv("tables/worth_judging.csv")) == 20


def test_several_judges_and_names_of_columns(folder, fit_file, grades):
    columns = ("--grades-columns", "query=query,doc=sku,grade=stars")
    data = succeed_with_json(
        "judgments", fit_file, "-o", "both.csv", "--grades-from", "humans.csv", *columns
    )
    assert [row["judge"] for row in data["judges"]["trust"]] == ["humans"]
    assert {row["said"] for row in data["judges"]["calibration"]} <= {"bad", "fair", "good", "best"}
    assert "disagreements" in data
    assert data["grades"] == 4
    assert len(data["worth_judging"]["pairs"]) == 20
    said = ("judgments", fit_file, "-o", "again.csv", "--grades-from", "humans.csv", *columns)
    others = succeed_with_json(*said, "--judge", "humans")["worth_judging"]["pairs"]
    graded = set(pl.read_csv("humans.csv").select(pl.col("query", "sku").cast(pl.String)).rows())
    assert others
    assert not graded & {(str(row["query"]), str(row["doc"])) for row in others}
    assert "--judge nobody: there is no such judge, only: humans" in fail(
        *said, "--judge", "nobody"
    )


def test_what_cannot_be(folder, fit_file, grades):
    said = ("judgments", fit_file, "-o", "both.csv")
    assert "neither a number of grades nor a file" in fail(*said, "--grades", "no.csv", code=2)
    assert "--grades 11: between 2 and 10" in fail(*said, *["--grades", "3", "--grades", "11"])
    assert "there is no file of grades" in fail(*said, "--grades-columns", "doc=x", code=2)
    wrong = ("--grades", "llm.csv", "--grades-columns", "document=x")
    assert "write, for example, query=q,doc=sku,grade=stars" in fail(*said, *wrong, code=2)
    assert "--run no.csv: there is no such file" in fail(*said, "--run", "no.csv")
    assert "--report llm.csv: that is a file" in fail(*said, "--report", "llm.csv")
    lost = fail(*said, "--grades", "humans.csv")
    assert "no column for grade. It has: query, sku, stars" in lost
    assert "--grades-columns grade=..." in lost
    Path("llm.csv").rename("out.csv")
    assert "out.csv" in fail("judgments", fit_file, "-o", "out.csv", "--grades", "out.csv")
