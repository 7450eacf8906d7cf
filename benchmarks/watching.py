"""Run a process and watch, from outside, what it takes: memory, and bytes in folders."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent
# Looking into folders takes longer the more files there are; it may take this share of the time.
_SHARE = 0.02


def run_watched(
    module: str,
    arguments: list[str],
    folders: Mapping[str, Path],
    kill_when: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Its figures (the JSON it prints), with the most of memory and disk that was seen.

    Adds `process_seconds` and `process_cpu_seconds`; `anonymous_megabytes`, the resident memory
    that is no copy of a file; and for every folder `<name>_bytes`, the most that was seen in it,
    and `<name>_bytes_left`, what is there at the end. As soon as `kill_when` says so the process
    gets the signal that cannot be caught (kill -9), and prints nothing.
    """
    began, before = time.perf_counter(), _seconds_of_children()
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], cwd=_ROOT, stdout=subprocess.PIPE, text=True
    )
    most: dict[str, float] = {}

    def look() -> float:
        """Seconds that it took."""
        began = time.perf_counter()
        seen = {f"{name}_bytes": float(_size(path)) for name, path in folders.items()}
        seen["anonymous_megabytes"] = _anonymous_megabytes(process.pid)
        for name, value in seen.items():
            most[name] = max(most.get(name, 0.0), value)
        return time.perf_counter() - began

    while process.poll() is None:
        time.sleep(min(5.0, max(0.1, look() / _SHARE)))
        if kill_when is not None and kill_when():
            process.kill()
            process.wait()
            break
    look()
    assert process.stdout is not None
    text = process.stdout.read()
    most["process_seconds"] = time.perf_counter() - began
    most["process_cpu_seconds"] = _seconds_of_children() - before
    if process.returncode == -signal.SIGKILL and kill_when is not None:
        return {"was_killed": True, **most}
    if process.returncode:
        raise SystemExit(f"{module} {' '.join(arguments)} failed ({process.returncode})")
    figures: dict[str, Any] = json.loads(text.splitlines()[-1])
    left = {f"{name}_bytes_left": _size(path) for name, path in folders.items()}
    return figures | most | left


def _seconds_of_children() -> float:
    """Processor time of all processes that we began and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _anonymous_megabytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    found = [int(line.split()[1]) for line in lines if line.startswith("RssAnon")]
    return found[0] / 2**10 if found else 0.0


def _size(folder: Path) -> int:
    """Bytes of the files in a folder; some may vanish meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total
