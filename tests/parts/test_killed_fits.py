"""A fit that is killed goes on where it was, and ends with the very same parameters."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gecasmo import ClickLog

IS_LONG = "GECASMO_EXAMPLES" in os.environ
ROUNDS = 5 * int(os.environ["GECASMO_EXAMPLES"]) if IS_LONG else 2

SCRIPT = """
import json, sys, warnings
import gecasmo
from gecasmo import DBN, EM
warnings.simplefilter("ignore")
path, checkpoint, out = sys.argv[1:]
print("fitting", flush=True)
model = DBN().fit(gecasmo.open_log(path), EM(max_iter=60), checkpoint=checkpoint, progress=False)
rows = {c: f.sort(f.columns).to_dict(as_series=False) for c, f in model.parameters.items()}
rows["history"] = model.history.drop("seconds").to_dict(as_series=False)
rows["spread"] = model.estimates("attraction")["spread"].sort().to_list()
with open(out, "w") as file:
    json.dump(rows, file)
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("killed") / "log.gclog"
    rng = np.random.default_rng(5)
    n = 300
    query = rng.integers(0, 40, n)
    frame = pl.DataFrame(
        {
            "session": np.repeat(np.arange(n), 5),
            "query": np.repeat(query, 5),
            "doc": (
                np.repeat(query, 5) + rng.permuted(np.tile(np.arange(5), (n, 1)), axis=1).ravel()
            ),
            "rank": np.tile(np.arange(1, 6), n),
            "click": rng.random(5 * n) < 0.3,
        }
    )
    ClickLog.ingest(frame, path, partitions=4, progress=False)
    return path


def start(log: Path, checkpoint: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(log), str(checkpoint), str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "fitting\n"
    return process


def ended(process: subprocess.Popen[str]) -> int:
    with process:
        return process.wait()


def test_a_killed_fit_ends_the_same(log: Path, tmp_path: Path) -> None:
    # The first fit may compile; the second one says how long the others will take.
    for name in ("first", "whole"):
        process = start(log, tmp_path / name, tmp_path / f"{name}.json")
        began = time.monotonic()
        assert ended(process) == 0
        usual = time.monotonic() - began
    expected = json.loads((tmp_path / "whole.json").read_text())
    assert json.loads((tmp_path / "first.json").read_text()) == expected
    chance = random.Random(None if IS_LONG else 3)
    n_killed = 0
    for number in range(ROUNDS):
        checkpoint, out = tmp_path / f"fit{number}", tmp_path / f"{number}.json"
        # Killed once or twice, then left alone.
        for _ in range(chance.choice([1, 2])):
            process = start(log, checkpoint, out)
            time.sleep(chance.random() * usual)
            process.send_signal(signal.SIGKILL)
            n_killed += ended(process) == -signal.SIGKILL
        assert ended(start(log, checkpoint, out)) == 0
        assert json.loads(out.read_text()) == expected
    assert n_killed > 0
