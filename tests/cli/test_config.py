"""`gecasmo.toml`: flags that are said once."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from command_line import fail, invoke, succeed, succeed_with_json

import gecasmo

CONFIG = """
[log]
session = ["visit", "keywords"]
query = "keywords"
doc = "the url"
click = "was-clicked"

[fit]
max-iter = 3
tol = 0
fixed = { continuation = 0.9 }
"""


@pytest.fixture
def own(log: gecasmo.ClickLog, folder: Path) -> Path:
    """A log with columns of other names, which nobody would guess, beside a gecasmo.toml."""
    names = {"session": "visit", "query": "keywords", "doc": "the url", "click": "was-clicked"}
    log.to_frame().rename(names).write_csv(folder / "own.csv")
    (folder / "gecasmo.toml").write_text(CONFIG)
    return folder / "own.csv"


def test_columns_and_defaults_of_commands_are_said_once(own: Path) -> None:
    found = invoke("fit", "DBN", own, "-o", "dbn.fit")
    assert found.exit_code == 0, found.output
    columns = "--session visit,keywords --query keywords --doc 'the url' --click was-clicked"
    assert f"own.csv: columns named by gecasmo.toml: {columns}\n" in found.stderr
    told = "gecasmo.toml: --max-iter 3 --tol 0.0 --fixed continuation=0.9\n"
    assert told in found.stderr
    model = gecasmo.load("dbn.fit")
    assert model.report_ is not None
    assert len(model.report_.history) >= 3
    assert model.parameters["continuation"]["probability"].to_list() == [0.9]
    data = succeed_with_json("evaluate", "dbn.fit", own)
    assert data["config"] == "gecasmo.toml"
    assert succeed("check", own, "-q").stderr == ""


def test_flags_win(own: Path) -> None:
    found = invoke("fit", "DBN", own, "-o", "dbn.fit", "--max-iter", "2", "--tol", "0")
    assert "gecasmo.toml: --fixed continuation=0.9\n" in found.stderr
    said = fail("fit", "DBN", own, "-o", "dbn.fit", "--doc", "link")
    assert "'link'" in said
    said = fail("fit", "DBN", own, "-o", "dbn.fit", "--config", "none")
    assert "gecasmo.toml" not in said


def test_another_file_by_name(own: Path, folder: Path) -> None:
    (folder / "gecasmo.toml").rename("other.toml")
    for arguments in [
        ("--config", "other.toml", "check", own),
        ("check", own, "--config", "other.toml"),
        ("check", "--config=other.toml", own),
    ]:
        assert "columns named by other.toml" in succeed(*arguments).stderr
    assert "--config gone.toml cannot be read" in fail("models", "--config", "gone.toml")


def test_logs_that_gecasmo_wrote_and_stored_logs_are_read_as_they_are(
    own: Path, log_file: Path, folder: Path
) -> None:
    succeed("fit", "DBN", own, "-o", "dbn.fit")
    succeed("simulate", "dbn.fit", own, "-o", "made.parquet")
    assert succeed_with_json("evaluate", "dbn.fit", "made.parquet")["sessions"] == 240
    assert "gecasmo.toml" not in succeed("check", log_file).stderr
    succeed("ingest", own, "-o", "x.gclog")
    assert succeed_with_json("evaluate", "dbn.fit", "x.gclog")["sessions"] == 240
    first = pl.read_csv(own)["visit"][0]
    found = succeed("explain", "dbn.fit", own, "--session", f"{first},0")
    assert "--session visit,keywords" in found.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[fitt]\n", "gecasmo.toml: there is no command 'fitt'. Perhaps [fit]."),
        ("[fit]\nmaxiter = 2", "gecasmo.toml, [fit]: there is no flag 'maxiter'. Perhaps max_iter"),
        ("[log]\ndocument = 'x'", "[log]: there is no flag 'document'. There are: session, query"),
        ("[log]\nclik = 'x'", "[log]: there is no flag 'clik'. Perhaps click."),
        ("doc = 'url'", "'doc' is outside of a table. Write it below [log]"),
        ("[log\n", "gecasmo.toml is not valid TOML"),
        ("[log]\ndoc = 2020-01-01", "[log], doc: write a text, a number or a list of them."),
        ("[log]\ndoc = { a = 1 }", "[log], doc: write a text, a number or a list of them."),
    ],
)
def test_what_cannot_be_meant_is_refused(folder: Path, text: str, words: str) -> None:
    (folder / "gecasmo.toml").write_text(text)
    assert words in " ".join(fail("models").split())


def test_wrong_values_name_the_file(log_file: Path, folder: Path) -> None:
    (folder / "gecasmo.toml").write_text("[fit]\nmax_iter = 'many'\n")
    said = fail("fit", "DBN", log_file, "-o", "x.fit", code=2)
    assert "So says gecasmo.toml." in " ".join(said.split())


def test_all_kinds_of_flags(own: Path, fit_file: Path, folder: Path) -> None:
    (folder / "gecasmo.toml").write_text(
        '[judgments]\noutput = "j.csv"\nrule = "threshold"\nthresholds = [0.2, 0.4, 0.6]\n'
        'format = "csv"\n[ingest]\nfold = false\nkeep = ["session"]\n[models]\njson = true\n'
    )
    said = succeed("judgments", fit_file).stderr
    told = "--format csv" in said  # a flag of judgments, not of logs
    assert told
    assert "--output j.csv" in said
    assert "--rule threshold --thresholds 0.2,0.4,0.6" in said
    assert (folder / "j.csv").is_file()
    assert json.loads(succeed("models").stdout)["models"]
    assert "that is what gecasmo.toml names" in fail("judgments", fit_file, "-o", "gecasmo.toml")


def test_separators(own: Path, log_file: Path, folder: Path) -> None:
    """Those of the file are for logs that have them; what gecasmo wrote itself has commas."""
    (folder / "own.txt").write_text(own.read_text(encoding="utf-8").replace(",", "~"))
    assert "needs --separator" in fail("check", "own.txt")
    (folder / "gecasmo.toml").write_text(CONFIG.replace("[log]", "[log]\nseparator = '~'"))
    assert "--click was-clicked --separator '~'\n" in succeed("check", "own.txt").stderr
    assert "--separator" not in succeed("check", log_file).stderr + succeed("check", own).stderr
    said = fail("check", "own.txt", "--separator", "|")
    assert "--separator '|': there is none in the first line of own.txt" in said


def test_roles_of_logs_are_for_commands_that_read_logs(
    own: Path, fit_file: Path, folder: Path
) -> None:
    """In `judgments` --query and --format mean something else; the example of the docs."""
    Path("gecasmo.toml").write_text(
        '[log]\nquery = "keywords"\nformat = "table"\n[judgments]\nformat = "quepid"\n',
        encoding="utf-8",
    )
    told = succeed("judgments", fit_file, "-o", "j.csv").stderr
    assert "--format quepid" in told
    assert "keywords" not in told
