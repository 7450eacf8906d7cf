"""Files that were changed at random, over all readers and all files of ours.

GECASMO_MUTANTS says how many; `make soak` takes 100,000.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import zstandard
from mutants import FEW, log_of, model

from gecasmo import ClickLog
from gecasmo.estimation import disk

N = int(os.environ.get("GECASMO_MUTANTS", "150"))
AT_ONCE = 2500  # in one process: many, since it takes a second to start; few, to see its memory
MOST_MEMORY = 1024  # MB
SAMPLES = Path(__file__).parents[1] / "readers" / "samples"


class Stop(Exception):
    """Ends a fit in the middle."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whole files by what is done with them."""
    folder = tmp_path_factory.mktemp("soak") / "corpus"
    for use in ("read", "ingest", "stored", "fit", "checkpoint"):
        (folder / use).mkdir(parents=True)
    for path in SAMPLES.iterdir():
        if path.is_file():
            shutil.copy(path, folder / "read")
    for path in list((folder / "read").glob("*[lnv]")):
        (folder / "read" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    for path in list((folder / "read").glob("*.[cj]s*[lv]")):
        packed = zstandard.compress(path.read_bytes())
        (folder / "read" / f"{path.name}.zst").write_bytes(packed)
    log_of().write_parquet(folder / "read" / "clicks.parquet")
    log_of().write_csv(folder / "ingest" / "clicks.csv")
    log_of().write_parquet(folder / "ingest" / "clicks.parquet")
    log = ClickLog.ingest(log_of(), folder / "stored" / "whole.gclog", partitions=2, progress=False)
    fitted = model().fit(log, FEW)
    fitted.save(folder / "fit" / "one.gecasmo")
    fitted.save(folder / "fit" / "folder", folder=True)
    run = disk.DiskParts.run

    def cut_short(self: disk.DiskParts, task: object) -> object:
        if self.n_passes == 3:
            raise Stop
        return run(self, task)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk.DiskParts, "run", cut_short)
        with pytest.raises(Stop):
            model().fit(log, FEW, checkpoint=folder / "checkpoint" / "cut", threads=1)
    return folder


def test_mutants_end_with_an_answer_or_a_message(corpus: Path, tmp_path: Path) -> None:
    failures: list[str] = []
    ends: Counter[str] = Counter()
    # A soak looks for new ones.
    number = int.from_bytes(os.urandom(4)) if "GECASMO_MUTANTS" in os.environ else 0
    peak, last, out = 0.0, number + N, tmp_path / "mutants.json"
    program = [sys.executable, str(Path(__file__).with_name("mutants.py")), str(corpus)]
    while number < last:
        n = min(AT_ONCE, last - number)
        done = subprocess.run(
            [*program, str(number), str(n), str(out)], capture_output=True, text=True
        )
        said = json.loads(out.read_text())
        number = said["next"]
        failures += said["failed"]
        ends.update(said["ends"])
        peak = max(peak, said.get("peak", 0.0))  # not of all children: there may be others
        if done.returncode:  # not for an exception, which is written down
            how = "hangs" if "Timeout" in done.stderr else f"ends the process ({done.returncode})"
            failures.append(f"{said['at']} {how}: {done.stderr[-1000:]}")
    print(f"{N:,} mutants: {dict(ends)}, {len(failures)} failures, {peak:.0f} MB at most")
    assert not failures, "\n".join(failures[:50])
    assert peak < MOST_MEMORY
