"""A disk that is full at any moment: what to do is said, nothing half stays, and work goes on.

The disks are real and small, in a namespace of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

POINTS = 60 if "GECASMO_EXAMPLES" in os.environ else 10
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]

SCRIPT = """
import json, os, subprocess, sys, warnings
from pathlib import Path
import gecasmo
from gecasmo import DBN, EM, ClickLog, Table, open_log
from gecasmo.errors import GecasmoError
from gecasmo.testing import plain_python
warnings.simplefilter("ignore")
work, source, points = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
disk = source.parent / "disk"
disk.mkdir()
kept = source.parent / "kept.gclog"
ClickLog.ingest(source, kept, partitions=4)
TABLE = Table(pseudo_counts=(1, 1))

def ingest():
    ClickLog.ingest(source, disk / "out", partitions=4)
    return {str(p.relative_to(disk)): p.read_bytes().hex() for p in sorted(disk.rglob("*.*"))
            if p.is_file()}

def fitted():
    model = DBN(attraction=TABLE, satisfaction=TABLE)
    return model.fit(open_log(kept), EM(max_iter=3, tol=0), checkpoint=disk / "out", threads=1)

def fit():
    return [t.sort(t.columns).rows() for t in fitted().parameters.values()]

def save():
    model = DBN(attraction=TABLE, satisfaction=TABLE).fit(open_log(kept), EM(max_iter=1, tol=0))
    model.save(disk / "out")
    loaded = gecasmo.load(disk / "out")
    return [t.sort(t.columns).rows() for t in loaded.parameters.values()]

def mount(size, again=False):
    options = f"size={size}" + (",remount" if again else "")
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)

def end():
    subprocess.run(["umount", "--lazy", str(disk)], check=True)  # parts may still be mapped

run = {"ingest": ingest, "fit": fit, "save": save}[work]
page = os.sysconf("SC_PAGE_SIZE")
with plain_python():
    mount(2**28)
    expected = run()
    end()
    def fits(pages):
        mount(pages * page)
        try:
            return run() == expected or sys.exit("another answer")
        except GecasmoError as problem:
            return str(problem)
        finally:
            end()
    most = 2
    while fits(most) is not True:
        most *= 2
    told = []
    for point in range(points):
        size = max(most * point // points, 1) * page
        mount(size)
        try:
            run()
        except GecasmoError as problem:
            told.append(str(problem))
            if work == "ingest":
                try:
                    open_log(disk / "out")
                    sys.exit("half a log was opened")
                except GecasmoError:
                    pass
            if work == "save" and (disk / "out").exists():
                sys.exit("half a model was left")
        mount(2**28, again=True)
        assert run() == expected, f"another answer after {size}" if work != "ingest" else size
        end()
print(json.dumps(told))
"""
# An ingest that has ended is there, and not made again.
SCRIPT = SCRIPT.replace(
    "        mount(2**28, again=True)\n",
    "        mount(2**28, again=True)\n"
    '        if work == "ingest" and (disk / "out").exists():\n'
    "            end()\n"
    "            continue\n",
)


def _may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    return tried.returncode == 0


@pytest.mark.parametrize("work", ["ingest", "fit", "save"])
def test_full_at_any_point(work: str, tmp_path: Path) -> None:
    if not _may_mount():
        pytest.skip("no small disk can be made here")
    chance = np.random.default_rng(2)
    n = 100
    query = np.repeat(chance.integers(0, 60, n), 5)
    rows = {"session": np.repeat(np.arange(n), 5), "query": query}
    rows |= {"doc": query * 9 + chance.integers(0, 9, 5 * n), "rank": np.tile(np.arange(1, 6), n)}
    frame = pl.DataFrame(rows).with_columns(click=pl.Series(chance.random(5 * n) < 0.3))
    frame.write_parquet(tmp_path / "clicks.parquet")
    command = [*UNSHARE, sys.executable, "-c", SCRIPT, work]
    done = subprocess.run(
        [*command, str(tmp_path / "clicks.parquet"), str(POINTS)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert len(told) >= POINTS / 4
    for message in told:
        assert "the disk is full" in message or "not enough room" in message
        assert "make room" in message.lower() or "Name a folder on a larger disk" in message
