"""DBN and UBM on the log of the rivals: gecasmo, CLAX and others in one run, and their ratios.

    PYTHONPATH=src:. python -m benchmarks.rivals                          # everything
    PYTHONPATH=src:. python -m benchmarks.rivals --sizes 10000 --models DBN

Writes results/rivals.md and adds a line to rivals.jsonl. CLAX runs in an environment of its own
(`.clax`, made when missing); without it there is no report.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.clax_environment import clax_python
from benchmarks.fresh_process import measure_first_fit
from benchmarks.held_out import dbn_log_likelihood
from benchmarks.machine import describe_machine, load_average
from benchmarks.report import RESULTS
from benchmarks.rival_runs import ARRAYS, TEST, TRAIN
from benchmarks.rivals_arrays import CONTINUATION, RivalsArrays, rivals_arrays
from benchmarks.rivals_report import as_markdown
from benchmarks.trajectory import TOLERANCE

ROOT = Path(__file__).parent.parent
MODELS = ("DBN", "UBM")
SIZES = (10_000, 100_000, 1_000_000)
PYTHON_SIZE = 10_000  # the only size at which pure Python is run
AGREEMENT = 1e-9
_BEGAN = time.perf_counter()

Figures = dict[str, Any]


def main() -> None:
    options = _parse()
    figures: Figures = {
        "machine": describe_machine(),
        "load_before": load_average(),
        "sizes": options.sizes,
        "models": options.models,
        "clax_settings": {size: clax_settings(size) for size in options.sizes},
        "truth": {},
        "runs": {},
        "first_fits": {},
    }
    python = clax_python(_say)
    for size in options.sizes:
        _say(f"{size:,} pages: simulating")
        log = rivals_arrays(size)
        figures["truth"][size] = _truth(log)
        with tempfile.TemporaryDirectory(prefix="gecasmo-benchmark-") as name:
            folder = Path(name)
            _write(log, folder)
            del log
            for model in options.models:
                runs = _measure(model, size, folder, python)
                figures["runs"][f"{model} {size}"] = runs
    for model in options.models:
        _say(f"{model}: first fits in new processes")
        figures["first_fits"][model] = measure_first_fit(model)
    figures["load_after"] = load_average()
    figures["minutes"] = (time.perf_counter() - _BEGAN) / 60
    figures = json.loads(json.dumps(figures))
    page = as_markdown(figures)
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "rivals.md").write_text(page)
    with (options.folder / "rivals.jsonl").open("a") as file:
        file.write(json.dumps(figures) + "\n")
    print(page)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=_numbers, default=list(SIZES), help="pages, by commas")
    parser.add_argument("--models", type=_names, default=list(MODELS), help="DBN,UBM")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where to write the results")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.replace("_", "").split(",")]


def _names(text: str) -> list[str]:
    return text.split(",")


def _truth(log: RivalsArrays) -> float:
    part = slice(log.n_train, None)
    truth = log.attraction, log.satisfaction, CONTINUATION
    return dbn_log_likelihood(log.docs[part], log.clicks[part], *truth)


def _write(log: RivalsArrays, folder: Path) -> None:
    log.save(folder / ARRAYS)
    pl.DataFrame(log.columns(0, log.n_train)).write_parquet(folder / TRAIN)
    pl.DataFrame(log.columns(log.n_train, log.n_pages)).write_parquet(folder / TEST)


def _measure(model: str, size: int, folder: Path, clax: Path) -> dict[str, Figures]:
    """All contestants, one after another."""

    def run(name: str, *more: str) -> Figures:
        _say(f"{size:,} pages, {model}: {name}")
        command = [sys.executable, "-m", "benchmarks.rival_runs", name, model, str(folder), *more]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        answer: Figures = json.loads(done.stdout.splitlines()[-1])
        return answer

    runs = {
        name: run(name)
        for name in ("streaming", "numba", "gecasmo-fixed", "gecasmo-default", "gecasmo-grouped")
    }
    trajectory = runs["numba"].pop("trajectory")
    if size == PYTHON_SIZE:
        place = runs["numba"]["iterations_to_limit"]
        runs["python"] = run("python", str(place))
        by_numba = trajectory[place - 1][1]
        if abs(runs["python"]["held_out"] - by_numba) > AGREEMENT:
            raise AssertionError(f"{model}: EM in Python and in Numba are not the same")
    return runs | _measure_clax(model, size, folder, clax)


def _measure_clax(model: str, size: int, folder: Path, python: Path) -> dict[str, Figures]:
    """Try settings on validation pages, then train on all with the best and with the fastest."""

    def run(setting: str, *more: str) -> Figures:
        _say(f"{size:,} pages, {model}: CLAX, {setting}, {' '.join(more)}")
        target = folder / "clax.json"
        options = [*clax_settings(size)[setting].split(), *more]
        script = str(ROOT / "benchmarks" / "clax_tables.py")
        command = [str(python), script, model, str(folder / ARRAYS), str(target), *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"CLAX failed:\n{done.stderr}")
        answer: Figures = json.loads(target.read_text())
        return answer

    tried = {name: run(name, "--validation", "0.1") for name in clax_settings(size)}
    best = max(tried, key=lambda name: max(tried[name]["held_out"]))
    fastest = min(tried, key=lambda name: _seconds_to_best(tried[name]))
    final = {}
    for name in {best, fastest}:
        scores = tried[name]["held_out"]
        epochs = tried[name]["epochs"][scores.index(max(scores))]
        final[name] = clax_figures(run(name, "--epochs", f"{epochs:.4f}")) | {"setting": name}
    validation = {name: max(one["held_out"]) for name, one in tried.items()}
    return {
        "clax-best": final[best] | {"validation": validation},
        "clax-fastest": final[fastest],
    }


def _seconds_to_best(answer: Figures) -> float:
    scores = answer["held_out"]
    place = next(n for n, one in enumerate(scores) if one >= max(scores) - TOLERANCE)
    seconds: float = answer["seconds"][place]
    return seconds


def clax_settings(size: int) -> dict[str, str]:
    """How CLAX is run: as its authors do, and the two best of about ten that we tried by hand.

    Small batches gave the best likelihood at every size, large steps the shortest way to a limit.
    """
    small = 64 if size <= 20_000 else 256 if size <= 200_000 else 1024
    large = 512 if size <= 20_000 else 4096 if size <= 200_000 else 8192
    return {
        "its experiments'": "--batch-size 4096 --lr 0.01 --checks 4",
        "small batches": f"--batch-size {small} --lr 0.01 --checks 4",
        "large steps": f"--batch-size {large} --lr 0.03 --checks 4",
    }


def clax_figures(answer: Figures) -> Figures:
    """In the words of the other contestants; its limit is where it ended."""
    limit = answer["held_out"][-1]
    place = next(n for n, one in enumerate(answer["held_out"]) if one >= limit - TOLERANCE)
    return {
        "n_pages": answer["n_pages"],
        "pages_per_second": answer["n_pages"] / answer["seconds_per_epoch"],
        "limit": limit,
        "held_out": limit,
        "seconds_to_limit": answer["seconds"][place],
        "epochs_to_limit": answer["epochs"][place],
        "import_seconds": answer["import_seconds"],
        "first_seconds": answer["compile_seconds"],
        "call_seconds": answer["call_seconds"],
        "import_megabytes": answer["import_megabytes"],
        "peak_megabytes": answer["peak_megabytes"],
        "versions": answer["versions"],
    }


def _say(text: str) -> None:
    print(f"[{time.perf_counter() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
