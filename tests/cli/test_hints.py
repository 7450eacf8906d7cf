"""What messages advise can be pasted: in the shell if it came from there, else in Python."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import invoke

import gecasmo
from gecasmo import Table
from gecasmo.errors import GecasmoError

PAGES = 40


def frame(**names: str) -> pl.DataFrame:
    """Pages of three results, under other names of columns."""
    rows = [
        (f"s{page}", f"q {page % 4}", f"d{(page + rank) % 5}", rank, int((page + rank) % 3 == 0))
        for page in range(PAGES)
        for rank in (1, 2, 3)
    ]
    columns = ["session", "query", "doc", "rank", "click"]
    return pl.DataFrame(rows, schema=columns, orient="row").rename(names)


def visits(**names: str) -> pl.DataFrame:
    """Two queries under each id of a visit."""
    pages = frame().with_columns(
        pl.col("session").str.slice(1).cast(pl.Int64).floordiv(2).alias("session")
    )
    return pages.rename(names)


ODD = 'what\'s "it", [bold]'
# Logs that cannot be read as they are, by what is wrong with them.
LOGS = {
    "no names": frame(doc="the thing", click="hit it"),
    "names with quotes": frame(doc=ODD, click="$(click)"),
    "nearly the names": frame(doc="Doc", click="clicks", rank="pos", query="q"),
    "no clicks": frame().drop("click"),
    "no ranks": frame().drop("rank"),
    "no session": frame().drop("session"),
    "no documents": frame(doc="x").drop("query"),
    "no queries": frame().drop("query"),
    "visits": visits(),
    "visits of keywords": visits(session="visit", query="keywords"),
    "twice on a page": pl.concat([frame(), frame()]),
    "ranks twice": frame().with_columns(rank=1),
    "two queries a page": frame().with_columns(query=pl.col("doc")),
    "clicks in words": frame().with_columns(click=pl.lit("perhaps")),
    "negative ranks": frame().with_columns(pl.col("rank") - 5),
    "dates": frame().with_columns(
        day=pl.format("0{}/04/2025", pl.col("session").str.slice(1).cast(pl.Int64) % 9 + 1)
    ),
}
MODEL = """
from gecasmo import ClickModel, Parameter, flip

class Own(ClickModel):
    attraction = Parameter("query", "device")

    def browse(self, user, result):
        if flip(self.attraction):
            user.click()
"""
# What a call of Python looks like, which nobody can type into a shell.
PYTHON = re.compile(
    r"\b(read_log|open_log|load|fit|evaluate|score|split|compare|Table|ClickLog)\(|gecasmo\.[a-z]\w+"
    r"|\b[a-z_]+=(None|True|False|[\[({'\"])"
)
FLAG = r"--[a-z][a-z-]+(?: (?:'[^']*'(?:\"'\"'[^']*')*|[^\s,;:()'\"`-][^\s;:()'\"`]*))?"


def told(*arguments: Any) -> tuple[int, str]:
    found = invoke(*arguments)
    assert "Traceback" not in found.output
    assert "a bug in gecasmo" not in found.output, found.output
    return found.exit_code, found.stderr


def hints(text: str) -> list[list[str]]:
    """Flags that a message shows with a value, those of a line "Perhaps:" together."""
    found = []
    for line in text.splitlines():
        flags = [shlex.split(flag.rstrip(".,")) for flag in re.findall(FLAG, line)]
        flags = [words for words in flags if len(words) == 2 and words[1] not in ("...", "FIT")]
        if "Perhaps: " in line:
            found.append([word for words in flags for word in words])
        else:
            found += flags
    return found


@pytest.mark.parametrize("name", LOGS)
def test_hints_about_logs_are_for_the_shell(name: str, folder: Path) -> None:
    LOGS[name].write_csv("log.csv")
    Path("own.py").write_text(MODEL, encoding="utf-8")
    commands: list[tuple[str, ...]] = [
        ("check", "log.csv"),
        ("fit", "RCTR", "log.csv", "-o", "x.fit"),
        ("ingest", "log.csv", "-o", "x.gclog", "--force"),
    ]
    if name in ("no queries", "visits of keywords"):
        commands.append(("fit", "DCTR", "log.csv", "-o", "x.fit"))
        commands.append(("fit", "own.py", "log.csv", "-o", "x.fit"))
    if name == "dates":
        commands.append(("compare", "log.csv", "RCTR", "--bootstrap", "0", "--time", "day"))
        commands.append(("compare", "log.csv", "RCTR", "--bootstrap", "0", "--by", "user"))
    n_hints = 0
    for command in commands:
        code, text = told(*command)
        assert not PYTHON.search(text), text
        for flags in hints(text):
            n_hints += 1
            again, said = told(*command, *flags)
            assert again != 2, (flags, said)
            if "Perhaps: " in text and code == 1:
                # The hint leads somewhere: what was wrong before is not what is wrong now.
                assert said != text, flags
    if name in ("names with quotes", "nearly the names", "visits of keywords", "no clicks"):
        assert n_hints > 0


def test_a_model_with_a_row_given_is_told_as_a_file(folder: Path) -> None:
    """What a command cannot say in flags stands in a file, which the hint has whole."""
    frame().write_csv("log.csv")
    told("fit", "PBM", "log.csv", "-o", "x.fit")
    text = " ".join(invoke("judgments", "x.fit", "-o", "x.csv").output.split())
    lines = re.findall(r"`([^`]+)`", text)
    Path("mine.py").write_text("\n".join(lines))
    assert told("fit", "mine.py:mine", "log.csv", "-o", "y.fit")[0] == 0
    assert "`" not in invoke("judgments", "y.fit", "-o", "y.csv").output
    assert gecasmo.load("y.fit").probability("examination", {"rank": [1]}).tolist() == [1.0]


def test_the_flags_that_a_message_shows_are_found() -> None:
    text = "x lacks it.\n  Perhaps: --doc 'the thing' --click 'it'\"'\"'s'\n  Or --rank none takes"
    assert hints(text) == [["--doc", "the thing", "--click", "it's"], ["--rank", "none"]]


@pytest.mark.parametrize("name", ["no names", "nearly the names", "names with quotes"])
def test_hints_in_python_run(name: str, folder: Path) -> None:
    LOGS[name].write_csv("log.csv")
    text = ""
    try:
        gecasmo.read_log("log.csv", doc="dok")
    except GecasmoError as error:
        text = str(error)
    assert "--" not in text
    for call in re.findall(r"Perhaps: (read_log\(.*\))", text):
        try:
            eval(call, {"read_log": gecasmo.read_log})
        except GecasmoError as error:
            assert str(error) != text  # noqa: PT017


def test_hints_about_keys_run_in_python(folder: Path) -> None:
    log = gecasmo.read_log(frame().drop("query"))
    with pytest.raises(GecasmoError, match="Perhaps another key") as refused:
        gecasmo.DCTR().fit(log)
    call = re.search(r"Perhaps another key: (.*)", str(refused.value))
    assert call is not None
    model = eval(f"DCTR({call[1]})", {"DCTR": gecasmo.DCTR, "Table": Table})
    assert model.fit(log).is_fitted


FITS = {
    "too many grades": ("judgments", "{fit}", "-o", "j.csv", "--grades", "11"),
    "an unknown rule": ("judgments", "{fit}", "-o", "j.csv", "--thresholds", "0.1,0.2,0.3"),
    "descending": (
        *("judgments", "{fit}", "-o", "j.csv", "--rule", "threshold"),
        *("--thresholds", "0.3,0.2,0.1"),
    ),
    "no format": ("judgments", "{fit}", "-o", "j.x"),
    "ordered": ("judgments", "{fit}", "-o", "j.json", "--include", "ordered"),
    "nothing graded": ("judgments", "{fit}", "-o", "j.json", "--min-examinations", "1e9"),
    "nothing sure": ("judgments", "{fit}", "-o", "j.json", "--min-probability", "1"),
    "level": ("judgments", "{fit}", "-o", "j.csv", "--level", "2"),
    "a name without an ending": ("simulate", "{fit}", "{log}", "-o", "x"),
    "a checkpoint": ("fit", "DBN", "{log}", "-o", "x.fit", "--checkpoint", "c"),
    "not converged": ("fit", "DBN", "{log}", "-o", "x.fit", "--max-iter", "1"),
    "a session": ("explain", "{fit}", "{log}", "--session", "none such"),
    "a fit as a log": ("check", "{fit}"),
    "a log as a fit": ("evaluate", "{log}", "{log}"),
    "no fit": ("evaluate", "gone.fit", "{log}"),
    "no log": ("check", "gone.csv"),
    "a folder": ("check", "."),
    "no model": ("fit", "DNB", "{log}", "-o", "x.fit"),
    "no coin": ("fit", "DBN", "{log}", "-o", "x.fit", "--fixed", "continuaton=0.9"),
    "no key": ("fit", "DBN", "{log}", "-o", "x.fit", "--key", "attraction=device"),
    "memory": ("ingest", "{log}", "-o", "x.gclog", "--memory", "1MB"),
    "partitions": ("ingest", "{log}", "-o", "x.gclog", "--partitions", "3"),
    "keep": ("ingest", "{log}", "-o", "x.gclog", "--keep", "devise"),
    "fold": ("ingest", "{log}", "-o", "x.gclog", "--keep", "session", "--fold"),
    "update": ("update", "{fit}", "{log}", "-o", "x.fit", "--decay", "2"),
    "a line": ("check", "{log}", "--max-line", "10"),
    "a format": ("check", "{log}", "--format", "yandx"),
    "impossible": ("evaluate", "{never}", "{log}"),
    "judgments": ("compare", "{log}", "RCTR", "--judgments", "gone.csv"),
    "share": ("compare", "{log}", "RCTR", "--test", "2"),
    "by": ("compare", "{log}", "RCTR", "--by", "country"),
    "one value": ("compare", "{log}", "RCTR", "--by", "query", "--time", "rank"),
    "held out": ("compare", "{log}", "RCTR", "--heldout", "{log}", "--by", "query"),
    "over": ("compare", "{log}", "RCTR", "--over", "country"),
}


@pytest.mark.parametrize("name", FITS)
def test_other_hints_are_for_the_shell(
    name: str, fit_file: Path, log_file: Path, folder: Path
) -> None:
    never = gecasmo.DBN.with_values(attraction=0.0, satisfaction=0.5, continuation=0.5)
    never.save("never.fit")
    names = {"fit": str(fit_file), "log": str(log_file), "never": "never.fit"}
    command = [word.format(**names) for word in FITS[name]]
    code, text = told(*command)
    assert code in (1, 2, 4)
    assert not PYTHON.search(text.replace(str(fit_file), "").replace(str(log_file), "")), text
    for flags in hints(text):
        again, said = told(*command, *flags)
        assert again != 2 or code == 2, (flags, said)
    for line in re.findall(r"`gecasmo ([^`]*)`", text):
        words = shlex.split(line)
        known = {"MODEL": "DBN", "LOG": str(log_file), "FIT": str(fit_file), "FILE": "new.fit"}
        if len(words) > 1:
            assert told(*(known.get(word, word) for word in words))[0] != 2, line
