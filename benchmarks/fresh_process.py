"""What a process of its own sees: import, the first fit with and without cached kernels, memory.

Run as `python -m benchmarks.fresh_process first_fit DBN` or `... memory DBN log.parquet`, it
prints its figures as JSON; `measure_first_fit` and `measure_memory` start such processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CACHE_VARIABLE = "GECASMO_CACHE_DIR"
_ROOT = Path(__file__).parent.parent


def measure_first_fit(model: str) -> dict[str, dict[str, float]]:
    """Import and first fit of a tiny log: with an empty cache of kernels, then again."""
    with tempfile.TemporaryDirectory(prefix="gecasmo-benchmark-") as folder:
        return {name: _start(folder, "first_fit", model) for name in ("cold", "cached")}


def measure_memory(model: str, path: Path) -> dict[str, float]:
    """Peak memory of a process that reads a log and fits it; kernels are in the cache."""
    with tempfile.TemporaryDirectory(prefix="gecasmo-benchmark-") as folder:
        _start(folder, "first_fit", model)
        return _start(folder, "memory", model, str(path))


def _start(cache: str, *arguments: str) -> dict[str, float]:
    environment = os.environ | {CACHE_VARIABLE: cache}
    command = [sys.executable, "-m", "benchmarks.fresh_process", *arguments]
    done = subprocess.run(
        command, env=environment, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _first_fit(model: str) -> dict[str, float]:
    began = time.perf_counter()
    import gecasmo

    imported = time.perf_counter()
    log = gecasmo.read_log(_tiny_columns())
    read = time.perf_counter()
    getattr(gecasmo, model)().fit(log, progress=False)
    return {
        "import": imported - began,
        "read": read - imported,
        "first_fit": time.perf_counter() - read,
    }


def _memory(model: str, path: str) -> dict[str, float]:
    import gecasmo

    after_import = peak_megabytes()
    began = time.perf_counter()
    log = gecasmo.read_log(path)
    read = time.perf_counter()
    after_read = peak_megabytes()
    getattr(gecasmo, model)().fit(log, progress=False)
    return {
        "import_megabytes": after_import,
        "read_megabytes": after_read,
        "fit_megabytes": peak_megabytes(),
        "read_seconds": read - began,
        "fit_seconds": time.perf_counter() - read,
    }


def _tiny_columns() -> dict[str, list[Any]]:
    clicks = [0, 1, 0, 1, 0, 0, 0, 0, 1]
    return {
        "session": [0, 0, 0, 1, 1, 1, 2, 2, 2],
        "query": ["a", "a", "a", "a", "a", "a", "b", "b", "b"],
        "doc": ["x", "y", "z", "y", "x", "z", "x", "u", "v"],
        "rank": [1, 2, 3] * 3,
        "click": clicks,
    }


def peak_megabytes() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        # What getrusage says on Linux includes the process that started this one.
        lines = [
            line
            for line in status.read_text(encoding="utf-8").splitlines()
            if line.startswith("VmHWM")
        ]
        return int(lines[0].split()[1]) / 2**10
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    task = {"first_fit": _first_fit, "memory": _memory}[sys.argv[1]]
    print(json.dumps(task(*sys.argv[2:])))
