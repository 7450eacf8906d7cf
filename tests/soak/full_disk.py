"""Work on a disk that becomes full, then on the same with room; as a process of its own.

    unshare -rm python full_disk.py FOLDER N

FOLDER becomes a small file system in memory, as large as N different shares of what the work takes.
What does not fit must end in a message of ours that leaves nothing half; with room, the same work
then ends as if nothing had happened. What it says is JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from mutants import FEW, log_of, model

import gecasmo
from gecasmo import ClickLog, open_log
from gecasmo.errors import GecasmoError
from gecasmo.logs.store import disk


def mount(folder: Path, n_bytes: int, remount: bool = False) -> None:
    options = f"{'remount,' if remount else ''}size={n_bytes}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def work(folder: Path) -> Any:
    """Ingest, fit, save and grade, all on one disk; what comes out."""
    if not (folder / "log").exists():
        ClickLog.ingest(CLICKS, folder / "log", partitions=4, progress=False)
    log = open_log(folder / "log")
    found = model().fit(log, FEW, checkpoint=folder / "checkpoint", threads=1, progress=False)
    found.save(folder / "one.gecasmo")
    found.save(folder / "saved", folder=True)
    found.judgments(max_width=None, min_examinations=0).write(folder / "judgments.csv")
    found.predict(log, folder / "predicted")
    rows = [frame.sort(frame.columns).rows() for frame in found.parameters.values()]
    same = [gecasmo.load(folder / name).score(log) for name in ("one.gecasmo", "saved")]
    return rows, same, (folder / "judgments.csv").read_text()


def half(folder: Path) -> list[str]:
    """What is there under its final name and is not whole."""
    found = []
    for name, reader in (("log", open_log), ("one.gecasmo", gecasmo.load), ("saved", gecasmo.load)):
        try:
            if (folder / name).exists():
                reader(folder / name)
        except GecasmoError as error:
            found.append(f"{name} is not whole: {error}")
    return found


CLICKS = log_of(3, 400)

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    place, n = Path(sys.argv[1]), int(sys.argv[2])
    disk.free_bytes = lambda folder: 1 << 50  # it would be told before, and nothing would be tried
    mount(place, 1 << 28)
    expected = work(place)
    taken = int(subprocess.check_output(["du", "-s", "--block-size=1", str(place)]).split()[0])
    subprocess.run(["umount", "--lazy", str(place)], check=True)
    failures, told = [], []
    for point in range(n):
        # Up to twice as much: files on the way take more than those in the end.
        size = int(2 * taken * (point + 0.5) / n) // 4096 * 4096 + 4096
        mount(place, size)
        try:
            work(place)
            told.append("enough room")
        except GecasmoError as error:
            told.append(str(error)[:200])
            failures += [f"{size} bytes: {one}" for one in half(place)]
        except BaseException as error:
            failures.append(f"{size} bytes: {type(error).__name__}: {error}"[:400])
        mount(place, 1 << 28, remount=True)
        try:
            if work(place) != expected:
                failures.append(f"{size} bytes, then room: another answer")
        except BaseException as error:
            failures.append(f"{size} bytes, then room: {type(error).__name__}: {error}"[:400])
        subprocess.run(["umount", "--lazy", str(place)], check=True)
    print(json.dumps({"failures": failures, "told": told}))
