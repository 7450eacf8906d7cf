"""Whole fits as people wait for them: a new process from a Parquet file to a saved model.

    PYTHONPATH=src:. python -m benchmarks.command                       # some minutes
    PYTHONPATH=src:. python -m benchmarks.command --sizes 10000 --models DBN,CCM --rounds 2
    PYTHONPATH=src:. python -m benchmarks.command --against ../before/src

Imports, reading, fitting and writing count; kernels are in the cache. Contestants take turns, and
the best of the rounds counts, in processor seconds: those of a busy machine are nearly those of a
quiet one. `--against` runs another source tree in turn. Writes results/command.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from benchmarks.logs import simulate_log
from benchmarks.machine import describe_machine, load_average
from benchmarks.markdown import seconds, short_size, table, times
from benchmarks.report import RESULTS

SIZES = (10_000, 100_000, 1_000_000)
MODELS = ("DBN", "UBM", "PBM", "DCM", "CCM")
PRIORS = ("learned", "fixed")
_ROOT = Path(__file__).parent.parent
# What `gecasmo fit` does; fixed priors as others have them, without intervals.
_CODE = """
import sys
import gecasmo
name, priors, source, target = sys.argv[1:]
log = gecasmo.read_log(source)
model = getattr(gecasmo, name)()
if priors == "fixed":
    model = type(model)(**dict.fromkeys(model.forms, gecasmo.Table(pseudo_counts=(1, 1))))
model.fit(log, progress=False, intervals=priors == "learned").save(target)
"""
# Processor seconds and megabytes by (size, model, priors, tree).
Case = tuple[int, str, str, str]


def main() -> None:
    options = _parse()
    trees = {"now": str(_ROOT / "src")}
    if options.against is not None:
        trees["before"] = str(options.against.resolve())
    found: dict[Case, float] = {}
    before = load_average()
    with tempfile.TemporaryDirectory(prefix="gecasmo-benchmark-") as folder:
        for size in options.sizes:
            source = Path(folder) / f"{size}.parquet"
            pl.DataFrame(simulate_log("distinct", size).columns()).write_parquet(source)
            for number in range(options.rounds + 1):  # the first one compiles
                for model in options.models:
                    for priors in PRIORS:
                        for tree, path in trees.items():
                            case = (size, model, priors, tree)
                            took = _run(path, model, priors, source, Path(folder) / "model")
                            if number:
                                found[case] = min(found.get(case, took), took)
            # What is measured is kept, should somebody stop this.
            page = _page(found, options, list(trees), before)
            options.folder.mkdir(parents=True, exist_ok=True)
            (options.folder / "command.md").write_text(page)
            print(f"{size:,} pages measured", file=sys.stderr, flush=True)
    print(page)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=_numbers, default=list(SIZES), help="pages, by commas")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, help="the folder src of another version")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the report goes")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.replace("_", "").split(",")]


def _run(tree: str, model: str, priors: str, source: Path, target: Path) -> float:
    """The processor seconds of one process."""
    environment = os.environ | {"PYTHONPATH": tree, "PYTHONPYCACHEPREFIX": str(source.parent)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled, too
    command = [sys.executable, "-c", _CODE, model, priors, str(source), str(target)]
    process = subprocess.Popen(command, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"The fit of {model} from {tree} failed.")
    return used.ru_utime + used.ru_stime


def _page(
    found: dict[Case, float], options: argparse.Namespace, trees: list[str], before: float
) -> str:
    header = ["pages", "model", "default", "fixed priors", "default / fixed", "default / DBN's"]
    if "before" in trees:
        header += ["default before", "before / now"]
    rows = []
    for size in dict.fromkeys(case[0] for case in found):
        for model in options.models:
            learned, fixed = (found[size, model, priors, "now"] for priors in PRIORS)
            first = found[size, options.models[0], "learned", "now"]
            row = [short_size(size), model, seconds(learned), seconds(fixed)]
            row += [times(learned / fixed), times(learned / first)]
            if "before" in trees:
                old = found[size, model, "learned", "before"]
                row += [seconds(old), times(old / learned)]
            rows.append(row)
    header[5] = f"default / {options.models[0]}'s"
    lines = [
        "# Whole fits, process included",
        "",
        "Processor seconds from the start of Python to the saved model: imports, a Parquet file of",
        "distinct pages of ten results, fit, writing. Kernels are cached.",
        f"Best of {options.rounds} rounds, in turn; load {before} before.",
        "",
        *table(header, rows),
        "Machine: " + ", ".join(f"{key} {value}" for key, value in describe_machine().items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
