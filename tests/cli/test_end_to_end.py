"""From every kind of log to judgments: check, compare, fit and judgments, on every format."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest
from command_line import fail, invoke, run, succeed, succeed_with_json

import gecasmo
from gecasmo.logs import FORMATS

SAMPLES = Path(__file__).parents[1] / "readers" / "samples"
GOOD = sorted(path for path in SAMPLES.glob("*") if path.name not in ("broken", "events"))
BROKEN = sorted((SAMPLES / "broken").iterdir())
WRITTEN = {name: one for name, one in FORMATS.items() if one.write is not None}
ENDINGS = {"table": ".csv", "ubi": ".ndjson", "pyclickmodels": ".jsonl", "baidu": ".parquet"}
ENDINGS |= {"events": ".csv"}
FEW = ("--bootstrap", "5")


def test_there_are_samples() -> None:
    assert len(GOOD) >= len(FORMATS)
    assert len(BROKEN) >= len(FORMATS)


def flags_of(path: Path) -> tuple[str, ...]:
    return ("--format", "ubi") if path.is_dir() else ()


def knows_no_queries(path: Path) -> bool:
    return path.name == "baidu_odd.parquet"


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.name)
def test_a_sample_is_checked_fitted_and_judged(folder: Path, path: Path) -> None:
    flags = flags_of(path)
    checked = invoke("check", path, *flags, "--json")
    assert checked.exit_code == 0, checked.output
    facts = json.loads(checked.stdout)
    assert facts["reading"]["format"] in FORMATS
    assert facts["verdict"] in ("fine", "be careful")
    keys = ()
    if knows_no_queries(path):
        keys = ("--key", "attraction=doc", "--key", "satisfaction=doc")
    fitted = succeed("fit", "DBN", path, *flags, *keys, "-o", "dbn.fit")
    # What the reader met is told, each in a line.
    notes = facts["reading"]["notes"]
    for note in notes:
        assert note["what"] in fitted.stderr
    succeed("judgments", "dbn.fit", "-o", "judgments.csv")
    frame = pl.read_csv("judgments.csv")
    assert frame.height > 0
    assert frame["relevance"].is_between(0, 1).all()


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.name)
@pytest.mark.parametrize("command", [("check",), ("fit", "PBM")], ids=lambda words: words[0])
def test_a_broken_sample_is_told_and_nothing_written(
    folder: Path, path: Path, command: tuple[str, ...]
) -> None:
    target = ("-o", "pbm.fit") if command[0] == "fit" else ()
    said = fail(*command, path, *target)
    assert said.startswith("ClickLogError: ")
    assert path.name in said
    assert "bug" not in said
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", WRITTEN)
def test_the_same_log_in_every_format_gives_the_same_answers(
    folder: Path, name: str, log: gecasmo.ClickLog, fit_file: Path
) -> None:
    path = Path(f"clicks{ENDINGS.get(name, '.tsv')}")
    small = log.take(range(50))
    small.write(path, name)
    checked = invoke("check", path, "--json")
    assert checked.exit_code in (0, 3), checked.output
    assert json.loads(checked.stdout)["reading"]["format"] == name
    compared = succeed_with_json("compare", path, "DBN", *FEW)
    assert compared["setting"]["n_train_sessions"] + compared["setting"]["n_test_sessions"] == 50
    assert {row["model"] for row in compared["table"]} == {"DBN", "RCTR", "DCTR"}
    facts = succeed_with_json("fit", "DBN", path, "-o", "dbn.fit")
    own = gecasmo.DBN().fit(small, progress=False)
    assert own.report_ is not None
    assert facts["log_likelihood_per_session"] == pytest.approx(own.report_.log_likelihood / 50)
    succeed("judgments", "dbn.fit", "-o", "judgments.csv")
    pairs = small.to_frame().select("query", "doc").n_unique()
    assert pl.read_csv("judgments.csv").height == pairs


def test_columns_are_guessed_and_told(folder: Path) -> None:
    found = succeed("fit", "PBM", SAMPLES / "shop.csv", "-o", "pbm.fit")
    flags = "--session sid --query search_term --doc product_id --rank position --click clicked"
    assert f"shop.csv: columns guessed by their names: {flags}\n" in found.stderr
    named = ("--doc", "product_id", "--session", "sid")
    facts = succeed_with_json("fit", "PBM", SAMPLES / "shop.csv", "-o", "pbm.fit", *named)
    assert facts["reading"]["guessed"] == {
        "query": "search_term",
        "rank": "position",
        "click": "clicked",
    }
    quiet = succeed("fit", "PBM", SAMPLES / "shop.csv", "-o", "pbm.fit", "--quiet")
    assert quiet.output == ""


def test_a_weight_is_used_when_it_is_called_so(folder: Path, log: gecasmo.ClickLog) -> None:
    small = log.take(range(30)).to_frame()
    twice = pl.concat([small, small.with_columns(pl.col("session") + 1000)])
    twice.write_csv("twice.csv")
    small.with_columns(weight=2.0, n=7.0).write_csv("weighted.csv")
    found = succeed("fit", "PBM", "weighted.csv", "-o", "weighted.fit")
    assert "--weight weight" in found.stderr
    succeed("fit", "PBM", "twice.csv", "-o", "twice.fit")
    one, other = gecasmo.load("weighted.fit"), gecasmo.load("twice.fit")
    rows = ["rank", "probability"]
    assert one.parameters["examination"].sort("rank").select(rows).to_dicts() == [
        pytest.approx(row)
        for row in other.parameters["examination"].sort("rank").to_dicts()
        for row in [{name: row[name] for name in rows}]
    ]


def test_ranks_by_the_order_of_rows(folder: Path) -> None:
    Path("log.csv").write_text(
        "session,query,doc,click\n1,q,a,0\n1,q,b,1\n2,q,b,1\n2,q,a,0\n", encoding="utf-8"
    )
    assert "rank" in fail("fit", "PBM", "log.csv", "-o", "pbm.fit")
    succeed("fit", "PBM", "log.csv", "-o", "pbm.fit", "--rank", "none")
    assert gecasmo.load("pbm.fit").parameters["examination"].height == 2


def test_many_files(folder: Path, log: gecasmo.ClickLog) -> None:
    for number in range(3):
        log.take(range(number * 20, number * 20 + 20)).write(f"day{number}.csv")
    assert succeed_with_json("fit", "PBM", "day*.csv", "-o", "pbm.fit")["sessions"] == 60
    assert "no file matches" in fail("check", "night*.csv")


CUT = gzip.compress(b"session,doc,rank,click\n" * 99, mtime=0)[:-20]


@pytest.mark.parametrize(
    ("name", "content", "flags", "words"),
    [
        ("cut.csv.gz", CUT, (), "cut.csv.gz"),
        ("none.csv", b"", (), "none.csv"),
        ("bare.csv", b"session,query,doc,rank,click\n", (), "no"),
        ("odd.xml", b"<log/>", (), "odd.xml"),
        ("long.csv", b"session,query,doc,rank,click\n1,q,d,1,1\n", ("--max-line", "5"), "line"),
        ("plain.csv", b"session,query,doc,rank,click\n", ("--format", "xls"), "no format 'xls'"),
    ],
)
def test_bad_files(
    folder: Path, name: str, content: bytes, flags: tuple[str, ...], words: str
) -> None:
    Path(name).write_bytes(content)
    fitting = ("fit", "PBM", name, "-o", "pbm.fit")
    for command in (("check", name), fitting, ("compare", name, "PBM")):
        said = fail(*command, *flags)
        assert said.startswith("ClickLogError: ")
        assert words in said
    assert [path.name for path in folder.iterdir()] == [name]


def test_one_page_is_enough_to_be_told_so(folder: Path) -> None:
    Path("one.csv").write_text("session,query,doc,rank,click\n1,q,d,1,1\n", encoding="utf-8")
    assert invoke("check", "one.csv").exit_code in (0, 3)
    succeed("fit", "PBM", "one.csv", "-o", "pbm.fit")
    assert "at least two" in fail("compare", "one.csv", "PBM")


def test_check_ends_with_3_where_something_is_wrong(folder: Path) -> None:
    Path("dry.csv").write_text(
        "session,query,doc,rank,click\n1,q,d,1,0\n2,q,d,1,0\n", encoding="utf-8"
    )
    found = invoke("check", "dry.csv")
    assert found.exit_code == 3
    assert "DO NOT TRUST" in found.stdout
    data = json.loads(invoke("check", "dry.csv", "--json").stdout)
    assert data["findings"][0]["severity"] == "error"


def test_strict_ends_with_3_for_warnings_too() -> None:
    path = SAMPLES / "table.csv"
    assert "WARNING" in succeed("check", path).stdout
    assert invoke("check", path, "--strict").exit_code == 3


def test_check_a_model_and_draw(folder: Path, log_file: Path) -> None:
    data = json.loads(
        invoke("check", log_file, "--model", "ubm", "--json", "--plots", "charts").stdout
    )
    assert data["model"] == "UBM"
    assert "coins" in data["tables"]
    assert {path.name for path in Path("charts").iterdir()} == {
        "ctr_by_rank.png",
        "pairs_by_impressions.png",
    }
    assert "There is no model" in fail("check", log_file, "--model", "XYZ")


def test_three_programs_on_a_pipe(folder: Path, fit_file: Path, log_file: Path) -> None:
    clicks = run("simulate", fit_file, log_file, "-o", "-", "--quiet")
    checked = run("check", "-", "--json", input=clicks.stdout)
    assert checked.returncode in (0, 3)
    assert json.loads(checked.stdout)["reading"]["format"] == "table"


def test_a_visit_with_several_searches(tmp_path: Path) -> None:
    """The query is guessed although it is a part of the page."""
    log = tmp_path / "visits.csv"
    rows = [
        f"{visit},{term},{term}{doc},{doc},{int((visit + doc) % 3 == 0)}"
        for visit in range(20)
        for term in ("boots", "hats")
        for doc in (1, 2, 3)
    ]
    log.write_text("\n".join(["session_id,search_term,sku,position,clicked", *rows]))
    roles = ["--session", "session_id,search_term"]
    said = succeed("check", log, *roles)
    assert "--query search_term" in said.stderr
    limits = ["--max-iter", "3", "--tol", "0", "-q"]
    succeed("fit", "DBN", log, *roles, "-o", tmp_path / "dbn.fit", *limits)
