"""`gecasmo fit`: what it writes, prints and ends with."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import fail, invoke, run, succeed, succeed_with_json
from rich.console import Console

import gecasmo
from gecasmo import EM, Fixed, Table


def test_it_writes_what_the_library_would_fit(
    folder: Path, log: gecasmo.ClickLog, log_file: Path
) -> None:
    facts = succeed_with_json("fit", "dbn", log_file, "-o", "dbn.fit", "--seed", "3")
    own = gecasmo.DBN().fit(log, progress=False)
    read = gecasmo.load("dbn.fit")
    for coin, frame in own.parameters.items():
        again = read.parameters[coin].sort(pl.all()) if coin != "continuation" else None
        if again is not None:
            assert again["probability"].to_list() == frame.sort(pl.all())["probability"].to_list()
    assert read.score(log) == own.score(log)
    assert own.report_ is not None
    assert facts["model"] == "DBN"
    assert facts["sessions"] == 240
    assert facts["results"] == 2400
    assert facts["log_likelihood_per_session"] == pytest.approx(
        own.report_.log_likelihood / 240, abs=1e-12
    )
    assert facts["iterations"] == own.report_.history[-1].iteration
    assert facts["converged"] is True
    assert facts["written"] == "dbn.fit"
    assert facts["warnings"] == []
    assert [coin["rows"] for coin in facts["coins"]] == [
        len(own.parameters["attraction"]),
        len(own.parameters["satisfaction"]),
        1,
    ]
    assert [path.name for path in folder.iterdir()] == ["dbn.fit"]


def test_the_summary(folder: Path, log_file: Path) -> None:
    text = succeed("fit", "DBN", log_file, "-o", "dbn.fit").stdout
    assert re.search(
        r"DBN on 240 sessions: converged after \d+ iterations and [\d.]+ seconds", text
    )
    assert "log-likelihood per session -" in text
    assert re.search(r"attraction +query, doc +Table\(", text)
    assert "Written to dbn.fit." in text


def test_quiet_prints_nothing(folder: Path, log_file: Path) -> None:
    found = succeed("fit", "DBN", log_file, "-o", "dbn.fit", "--quiet")
    assert found.output == ""
    assert Path("dbn.fit").exists()


def test_forms_by_flags(folder: Path, log: gecasmo.ClickLog, log_file: Path) -> None:
    succeed(
        *("fit", "DBN", log_file, "-o", "dbn.fit", "--fixed", "continuation=0.9"),
        *("--key", "attraction=doc", "--prior", "attraction=2,3", "--prior", "satisfaction=1, 4"),
        *("--key", "satisfaction=query,doc"),
    )
    own = gecasmo.DBN(
        continuation=Fixed(0.9),
        attraction=Table(key="doc", pseudo_counts=(2, 3)),
        satisfaction=Table(pseudo_counts=(1, 4)),
    ).fit(log, progress=False)
    read = gecasmo.load("dbn.fit")
    assert read.keys["attraction"] == ("doc",)
    assert read.score(log) == own.score(log)
    assert read.parameters["continuation"]["probability"].to_list() == [0.9]


def test_a_prior_that_is_learned(folder: Path, log: gecasmo.ClickLog, log_file: Path) -> None:
    succeed("fit", "DBN", log_file, "-o", "dbn.fit", "--prior", "attraction=empirical")
    own = gecasmo.DBN(attraction=Table(prior="empirical")).fit(log, progress=False)
    assert gecasmo.load("dbn.fit").score(log) == own.score(log)


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--fixed", "patience=0.9"), 1, "DBN has no coin 'patience'. Its coins are: attraction"),
        (("--fixed", "continuation"), 2, "write COIN=VALUE"),
        (("--fixed", "continuation=often"), 2, "'often' is not a number"),
        (("--fixed", "continuation=1.5"), 1, "a probability between 0 and 1"),
        (("--prior", "attraction=1"), 2, "such as attraction=1,1"),
        (("--fixed", "attraction=.1", "--prior", "attraction=1,1"), 2, "so it has no prior"),
        (("--key", "attraction=colour"), 1, "colour"),
        (("--max-iter", "0"), 2, "--max-iter"),
        (("--impossible", "ignore"), 2, "--impossible"),
        (("--start", "nothing.fit"), 1, "nothing.fit: there is no such file"),
        (("--doc", "url"), 1, "'url'"),
    ],
)
def test_bad_flags(
    folder: Path, log_file: Path, flags: tuple[str, ...], code: int, words: str
) -> None:
    said = fail("fit", "DBN", log_file, "-o", "dbn.fit", *flags, code=code)
    assert words in re.sub(r"\s*\n[│ ]*", " ", said)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere/dbn.fit", "--output nowhere/dbn.fit: there is no folder nowhere"),
        (".", "that is a folder"),
    ],
)
def test_places_that_cannot_be_written_to(
    folder: Path, log_file: Path, target: str, words: str
) -> None:
    assert words in fail("fit", "DBN", log_file, "-o", target)
    assert list(folder.iterdir()) == []


def test_a_fit_that_does_not_converge_ends_with_4(
    folder: Path, log: gecasmo.ClickLog, log_file: Path
) -> None:
    found = invoke("fit", "DBN", log_file, "-o", "dbn.fit", "--max-iter", "2")
    assert found.exit_code == 4
    assert found.stderr.startswith("Warning: EM stopped after --max-iter 2;")
    assert "Continue with --start FIT, or raise --max-iter." in found.stderr
    assert all(line.startswith("Warning: ") for line in found.stderr.splitlines())
    assert "not converged" in found.stdout
    few = gecasmo.load("dbn.fit").parameters["continuation"]["probability"][0]
    succeed("fit", "DBN", log_file, "-o", "more.fit", "--start", "dbn.fit")
    more = gecasmo.load("more.fit").parameters["continuation"]["probability"][0]
    full = gecasmo.DBN().fit(log, progress=False).parameters["continuation"]["probability"][0]
    assert more == pytest.approx(full, abs=0.01)
    assert abs(more - full) < abs(few - full)


def test_so_many_steps_were_asked_for(folder: Path, log_file: Path) -> None:
    succeed("fit", "DBN", log_file, "-o", "dbn.fit", "--max-iter", "2", "--tol", "0")


def test_impossible_sessions(folder: Path) -> None:
    # Under the cascade model nobody clicks twice.
    Path("twice.csv").write_text(
        "session,query,doc,rank,click\n1,q,a,1,1\n1,q,b,2,1\n2,q,a,1,1\n2,q,b,2,0\n",
        encoding="utf-8",
    )
    said = fail("fit", "CM", "twice.csv", "-o", "cm.fit")
    assert said.startswith("ImpossibleSessionError: 1 of 2 sessions are impossible under CM")
    assert "--impossible drop" in said
    assert not Path("cm.fit").exists()
    facts = succeed_with_json("fit", "CM", "twice.csv", "-o", "cm.fit", "--impossible", "drop")
    assert facts["dropped_sessions"] == 1
    text = succeed("fit", "CM", "twice.csv", "-o", "cm.fit", "--impossible", "floor").stdout
    assert "1 impossible observations counted as 1e-8" in text


def _bar_that_stops_at(iteration: int) -> Any:
    class Stops:
        def show(self, now: int, most: int, objective: float) -> None:
            if now >= iteration:
                raise KeyboardInterrupt

    @contextmanager
    def bar(*_: object) -> Iterator[Stops]:
        yield Stops()

    return bar


def test_an_interrupted_fit_is_kept(
    folder: Path, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gecasmo.cli.progress.fit_bar", _bar_that_stops_at(2))
    found = invoke("fit", "DBN", log_file, "-o", "dbn.fit")
    assert found.exit_code == 130
    assert "interrupted after" in found.stdout
    assert gecasmo.load("dbn.fit").is_fitted


def test_interrupted_before_there_is_anything(
    folder: Path, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gecasmo.read_log", interrupt)
    assert fail("fit", "DBN", log_file, "-o", "dbn.fit", code=130) == "Interrupted.\n"
    assert list(folder.iterdir()) == []


def test_the_progress_bar(folder: Path, log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None, _environ={})
    monkeypatch.setattr("gecasmo.cli.progress.error_console", lambda: console)
    monkeypatch.setattr("gecasmo.cli.output.error_console", lambda: console)
    monkeypatch.setattr("gecasmo.cli.output.Output.has_progress", property(lambda self: True))
    succeed("fit", "DBN", log_file, "-o", "dbn.fit")
    shown = screen.getvalue()
    assert "Reading " in shown
    assert "Fitting DBN" in shown
    assert re.search(r"iteration \d+: objective -\d\.\d{5}, (about|at most) 0:\d\d left", shown)


def test_a_log_from_a_pipe(folder: Path, log_file: Path) -> None:
    done = run("fit", "DBN", "-", "-o", "dbn.fit", "--json", input=log_file.read_bytes())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"{")
    assert gecasmo.load("dbn.fit").is_fitted


def test_em_of_the_command_line_is_em() -> None:
    from gecasmo.cli.progress import WatchedEM

    plain = EM()
    watched = WatchedEM()
    assert {name: getattr(watched, name) for name in vars(plain)} == vars(plain)


def test_a_method_is_one_argument(folder: Path, log_file: Path) -> None:
    judged = {}
    for method, more in (("em", []), ("vb", []), ("gibbs", ["--draws", "40", "--warmup", "20"])):
        found = invoke("fit", "dbn", log_file, "-o", f"{method}.fit", "--method", method, *more)
        assert found.exit_code in (0, 4), found.output  # so few draws may not agree
        succeed("judgments", f"{method}.fit", "-o", f"{method}.csv")
        judged[method] = pl.read_csv(f"{method}.csv").columns
    assert judged["em"] == judged["vb"] == judged["gibbs"]
    spread = gecasmo.load("gibbs.fit").estimates("attraction")["spread"]
    assert (spread > 0).all()
    assert "--draws is for --method gibbs" in fail(
        "fit", "dbn", log_file, "-o", "x.fit", "--draws", "3"
    )
    assert "--draws 0: at least 1 is needed" in fail(
        "fit", "dbn", log_file, "-o", "x.fit", "--draws", "0", "--method", "gibbs"
    )


def test_constraints_are_flags_and_are_told(folder: Path, log_file: Path) -> None:
    flags = ("--prefer", "attraction=0.2", "--at-most", "attraction=0.3", "--strength", "2")
    facts = succeed_with_json("fit", "pbm", log_file, "-o", "pbm.fit", *flags)
    assert [kept["asked"][:6] for kept in facts["constraints"]] == ["Prefer", "AtMost"]
    report = gecasmo.load("pbm.fit").report_
    assert report is not None
    assert "margin=0.2, strength=2.0" in report.constraints[0].asked
    told = fail("fit", "pbm", log_file, "-o", "x.fit", "--strength", "2", code=2)
    assert "--strength is how hard" in told
    told = fail("fit", "pbm", log_file, "-o", "x.fit", "--at-most", "noise=0.1")
    assert "there is no coin 'noise'" in told
