"""One contestant on one log, in a process of its own, so that memory and threads do not mix.

`python -m benchmarks.rival_runs NAME MODEL FOLDER [ITERATIONS]` prints figures as JSON. The folder
has the log as arrays and its two parts as Parquet files.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.fresh_process import peak_megabytes

ARRAYS, TRAIN, TEST = "log.npz", "train.parquet", "test.parquet"


def run(name: str, model: str, folder: Path, *iterations: str) -> dict[str, Any]:
    began = time.perf_counter()
    if name.startswith("gecasmo"):
        import gecasmo  # noqa: F401 (its import is timed)
        from benchmarks import gecasmo_em as contestant
    elif name == "python":
        import numpy as np  # noqa: F401 (it loads the log; the EM does without)

        from benchmarks import python_em as contestant  # type: ignore[no-redef]
    else:
        from benchmarks import numba_em as contestant  # type: ignore[no-redef]
    imported = time.perf_counter() - began
    baseline = peak_megabytes()
    if name.startswith("gecasmo"):
        variant = name.removeprefix("gecasmo-")
        figures = contestant.measure(model, variant, folder / TRAIN, folder / TEST)
    elif name == "python":
        figures = contestant.measure(model, folder / ARRAYS, int(*iterations))
    elif name == "streaming":
        figures = contestant.measure_streaming(model, folder / ARRAYS)
    else:
        figures = contestant.measure(model, folder / ARRAYS)
    figures.setdefault("peak_megabytes", peak_megabytes())
    return figures | {"import_seconds": imported, "import_megabytes": baseline}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])))
