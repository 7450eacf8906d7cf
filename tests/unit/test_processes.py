"""Threads and processes: the same bits from all of them, or a message, and never a hang."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gecasmo import DBN, EM, ClickLog, read_log
from gecasmo.errors import ConvergenceWarning

COMMON = """
import multiprocessing, os, signal, sys
import numpy as np
import gecasmo
from gecasmo import DBN, read_log

def columns():
    rng = np.random.default_rng(0)
    n = 120
    return {
        "session": np.repeat(np.arange(n), 4),
        "query": np.repeat(rng.integers(0, 6, n), 4),
        "doc": np.argsort(rng.random((n, 7)), axis=1)[:, :4].ravel(),
        "rank": np.tile(np.arange(1, 5), n),
        "click": rng.random(4 * n) < 0.3,
    }

def work(_=None):
    log = read_log(columns())
    model = DBN().fit(log, progress=False)
    return [model.estimates("attraction")["probability"].to_list(),
            model.predict_clicks(log).tolist()]
"""


def run(tmp_path: Path, text: str) -> list[str]:
    """What a new process says."""
    script = tmp_path / "script.py"
    script.write_text(COMMON + text)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def log() -> ClickLog:
    scope: dict = {}
    exec(COMMON, scope)
    return read_log(scope["columns"]())


def test_eight_threads_answer_as_one_does(log: ClickLog) -> None:
    def work(_: int):
        model = DBN().fit(log, progress=False)
        return [
            *(model.estimates(coin) for coin in model.forms),
            model.posterior(log),
            model.predict_clicks(log),
            model.predict_conditional_clicks(log),
        ]

    expected, filters = work(0), list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(16)))
    for answers in found:
        assert all(a.equals(b) for a, b in zip(answers[:-2], expected[:-2], strict=True))
        assert all(np.array_equal(a, b) for a, b in zip(answers[-2:], expected[-2:], strict=True))
    assert warnings.filters == filters


def test_one_model_answers_eight_threads_at_once(log: ClickLog) -> None:
    model = DBN().fit(log, progress=False)
    expected = model.predict_clicks(log)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: model.predict_clicks(log), range(32)))
    assert all(np.array_equal(answer, expected) for answer in found)


def test_threads_silence_no_warning_for_good(log: ClickLog) -> None:
    """Rough climbs say nothing; that is a matter of their own thread."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: DBN().fit(log, progress=False), range(16)))
    with pytest.warns(ConvergenceWarning, match="stopped after"):
        DBN().fit(log, EM(max_iter=1), progress=False)


def test_spawned_workers_answer_as_this_process_does(tmp_path: Path) -> None:
    kinds = ["spawn", "forkserver"] if "GECASMO_EXAMPLES" in os.environ else ["spawn"]
    said = run(
        tmp_path,
        """
if __name__ == "__main__":
    expected = work()
    for kind in KINDS:
        with multiprocessing.get_context(kind).Pool(1) as pool:
            print([found == expected for found in pool.map(work, range(2))])
""".replace("KINDS", str(kinds)),
    )
    assert said == ["[True, True]"] * len(kinds)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_workers_forked_before_use_answer_too(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
if __name__ == "__main__":
    pool = multiprocessing.get_context("fork").Pool(1)
    forked = pool.map(work, range(1))
    expected = work()
    print([found == expected for found in forked])
    pool.terminate()
""",
    )
    assert said == ["[True]"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody knows of the threads")
def test_workers_forked_after_use_say_so_and_do_not_wait(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
log = read_log(columns())
model = DBN().fit(log, progress=False)
model.save("MODEL")
gecasmo.ClickLog.ingest(columns(), "LOG")
stored = gecasmo.open_log("LOG")
ways = [
    lambda: read_log(columns()), lambda: gecasmo.load("MODEL"), lambda: gecasmo.open_log("LOG"),
    lambda: DBN().fit(log), lambda: DBN().fit(stored), lambda: model.predict_clicks(log),
    lambda: model.parameters, lambda: model.estimates("attraction"), lambda: model.judgments(),
    lambda: model.update(log), lambda: model.evaluate(log), lambda: model.evaluate(stored),
    lambda: model.simulate(log), lambda: gecasmo.ClickLog.ingest(columns(), "OTHER"),
]
for way in ways:
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            way()
        except gecasmo.errors.ForkedProcessError as error:
            print("spawn" in str(error), flush=True)
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    if status:
        print(way.__code__.co_firstlineno, status)
""".replace("MODEL", str(tmp_path / "model"))
        .replace("LOG", str(tmp_path / "log.gclog"))
        .replace("OTHER", str(tmp_path / "other.gclog")),
    )
    assert said == ["True"] * 14
