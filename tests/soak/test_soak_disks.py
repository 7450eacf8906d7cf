"""A disk that becomes full at any point is told, and the same work goes on when there is room."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

POINTS = int(os.environ.get("GECASMO_FULL_DISKS", "3"))
UNSHARE = ["unshare", "--map-root-user", "--mount"]


def can_mount(folder: Path) -> bool:
    if not shutil.which("unshare"):
        return False
    mount = ["mount", "-t", "tmpfs", "-o", "size=4096", "tmpfs", str(folder)]
    return subprocess.run([*UNSHARE, *mount], capture_output=True).returncode == 0


def test_a_full_disk_is_told_and_then_forgotten(tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("file systems cannot be made here")
    program = [sys.executable, str(Path(__file__).with_name("full_disk.py"))]
    done = subprocess.run(
        [*UNSHARE, *program, str(tmp_path), str(POINTS)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    print(f"{POINTS} full disks: {len(said['failures'])} failures")
    assert not said["failures"], "\n".join(said["failures"])
    assert sum(told != "enough room" for told in said["told"]) >= POINTS / 2
