"""Files beside the log: grades, runs, pairs, features, candidates, judgments of people."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from command_line import fail, invoke, succeed

import gecasmo

LARGE = 2**100  # Polars reads it as an integer of 128 bits

# Where a file of pairs is read, and what else stands there.
PLACES = {
    "grades": ("judgments", "{fit}", "-o", "j.csv", "--grades", "x{end}"),
    "run": ("judgments", "{fit}", "-o", "j.csv", "--run", "x{end}"),
    "pairs": ("judgments", "{fit}", "-o", "j.csv", "--pairs", "x{end}"),
    "features": (
        "judgments",
        "{fit}",
        "-o",
        "j.txt",
        "--format",
        "ranklib",
        "--features",
        "x{end}",
    ),
    "judgments": ("compare", "{log}", "RCTR", "--bootstrap", "0", "--judgments", "x{end}"),
    "candidates": ("best", "{fit}", "x{end}", "-o", "b.csv", "--samples", "0"),
}


@pytest.fixture
def pairs(fit_file: Path) -> pl.DataFrame:
    """Pairs of the fit, with a number that serves as grade, score, rank and feature."""
    known = gecasmo.load(fit_file).judgments().frame.select("query", "doc").head(12)
    return known.with_columns(grade=pl.int_range(pl.len()) % 3, score=pl.int_range(pl.len()))


def words(place: str, fit: Path, log: Path, end: str = ".csv") -> list[str]:
    return [word.format(fit=fit, log=log, end=end) for word in PLACES[place]]


@pytest.mark.parametrize("place", PLACES)
def test_two_columns_of_one_name_are_refused(
    place: str, pairs: pl.DataFrame, fit_file: Path, log_file: Path, folder: Path
) -> None:
    twice = pairs.with_columns(again=pl.col("score")).write_csv().replace("again", "score", 1)
    Path("x.csv").write_text(twice, encoding="utf-8")
    assert "2 columns are called 'score'" in fail(*words(place, fit_file, log_file))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("end", [".csv", ".jsonl", ".parquet"])
def test_damaged_files_have_one_message(
    place: str, end: str, fit_file: Path, log_file: Path, folder: Path
) -> None:
    Path(f"x{end}").write_bytes(b"PAR1\xff\xfe,query,doc\n" * 40 + b"PAR1")
    said = fail(*words(place, fit_file, log_file, end))
    assert len(said.strip().splitlines()) == 1
    assert f"x{end}" in said


def test_ranks_of_candidates_that_are_none(
    pairs: pl.DataFrame, fit_file: Path, log_file: Path, folder: Path
) -> None:
    for rank in (LARGE, -1, 0.5, 2**40):
        pairs.with_columns(rank=pl.lit(str(rank))).write_csv("x.csv")
        said = fail(*words("candidates", fit_file, log_file))
        assert "has other numbers than ranks" in said
    best = gecasmo.load(fit_file).best_page
    with pytest.raises(gecasmo.errors.GecasmoError, match="other numbers than ranks"):
        best(pairs.with_columns(rank=float("nan")))


def test_a_pinned_column_is_not_guessed_to_be_the_rank(
    pairs: pl.DataFrame, fit_file: Path, log_file: Path, folder: Path
) -> None:
    """The example of --help."""
    first = pl.int_range(pl.len()).over("query") == 2
    pairs.with_columns(slot=pl.when(first).then(1)).write_csv("x.csv")
    succeed(*words("candidates", fit_file, log_file), "--pinned", "slot")
    top = pl.read_csv("b.csv").filter(pl.col("rank") == 1)
    wanted = pairs.filter(first)
    assert set(wanted["doc"]) <= set(top["doc"].cast(wanted["doc"].dtype))


def test_grades_that_are_no_numbers_are_left_out_of_every_format(
    pairs: pl.DataFrame, fit_file: Path, folder: Path
) -> None:
    gaps = pairs.with_columns(
        grade=pl.when(pl.int_range(pl.len()) == 4)
        .then(float("nan"))
        .when(pl.int_range(pl.len()) == 7)
        .then(float("inf"))
        .otherwise(pl.col("grade"))
    )
    gaps.write_csv("x.csv")
    gaps.write_parquet("x.parquet")
    model = gecasmo.load(fit_file)
    as_text, as_numbers = (model.judgments(grades_from=f"x.{end}") for end in ("csv", "parquet"))
    assert as_text.judges.trust["pairs"].to_list() == [10]
    assert as_text.frame.equals(as_numbers.frame)


SAID = {
    "--worth click=nan": ("best", "{fit}", "{log}", "-o", "b.csv", "--worth", "click=nan"),
    "--worth click=: write EVENT": ("best", "{fit}", "{log}", "-o", "b.csv", "--worth", "click="),
    "--at-most doc=0:": ("best", "{fit}", "{log}", "-o", "b.csv", "--at-most", "doc=0"),
    "`gecasmo propensities FIT LOG`": ("propensities", "{fit}"),
    "are called 'x'. Rename a file.": (
        *("judgments", "{fit}", "-o", "j.csv"),
        *("--grades", "x.csv", "--grades", "x.csv"),
    ),
}


@pytest.mark.parametrize("message", SAID)
def test_values_are_told_as_they_are_typed(
    message: str, pairs: pl.DataFrame, fit_file: Path, log_file: Path, folder: Path
) -> None:
    pairs.write_csv("x.csv")
    found = invoke(*(word.format(fit=fit_file, log=log_file) for word in SAID[message]))
    assert found.exit_code in (1, 2)
    said = " ".join(re.sub("[│╭╰─╮╯]", " ", found.output).split())
    assert message in said, said


WITH_A_FIT = {
    "evaluate": (),
    "predict": ("-o", "p.csv"),
    "simulate": ("-o", "p.csv"),
    "update": ("-o", "p.fit"),
    "report": ("-o", "r.html"),
    "whatif": ("--swap", "1,2"),
}


@pytest.mark.parametrize("command", WITH_A_FIT)
def test_keys_are_not_advised_where_they_cannot_be_given(
    command: str, fit_file: Path, log_file: Path, folder: Path
) -> None:
    given = (command, fit_file, log_file, *WITH_A_FIT[command], "--query", "none")
    said = " ".join(fail(*given).split())
    assert "`gecasmo fit MODEL LOG -o FILE --key attraction=doc" in said


@pytest.mark.parametrize("command", ["fit", "evaluate", "update", "compare", "best"])
def test_logs_without_clicks_are_told(
    command: str, fit_file: Path, log_file: Path, folder: Path
) -> None:
    commands = {
        "fit": ("fit", "RCTR", log_file, "-o", "p.fit"),
        "compare": ("compare", log_file, "RCTR", "--bootstrap", "0"),
        "update": ("update", fit_file, log_file, "-o", "p.fit"),
        "best": ("best", fit_file, log_file, "-o", "b.csv", "--samples", "0"),
    }
    given = commands.get(command, (command, fit_file, log_file))
    found = invoke(*given, "--click", "none")
    assert "no result is clicked" in " ".join(found.stderr.split())
    assert "To be expected" not in found.stdout  # a lift of nothing


@pytest.mark.parametrize("command", ["whatif", "best", "report"])
def test_pages_that_the_fit_does_not_know_are_told(
    command: str, fit_file: Path, log_file: Path, folder: Path
) -> None:
    pl.read_csv(log_file).with_columns(pl.col("query") + 1_000_000).write_csv("other.csv")
    if command == "report":
        pytest.importorskip("vl_convert")
    found = succeed(command, fit_file, "other.csv", *WITH_A_FIT.get(command, ("-o", "b.csv")))
    said = "100 % of the results have no row of attraction and satisfaction"
    assert said in " ".join(found.stdout.split())
    if command == "report":
        assert said in Path("r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("place", [each for each in PLACES if each not in ("grades", "run")])
def test_other_names_are_told_what_is_wanted(
    place: str, fit_file: Path, log_file: Path, folder: Path
) -> None:
    Path("x.foo").write_text("one line of three\n", encoding="utf-8")
    said = " ".join(fail(*words(place, fit_file, log_file, ".foo")).split())
    assert ".parquet" in said or "lacks" in said, said
