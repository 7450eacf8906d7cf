"""Whole fits as people wait for them: a new process from a Parquet file to a saved model.

    PYTHONPATH=src:. python -m benchmarks.command                       # some minutes
    PYTHONPATH=src:. python -m benchmarks.command --sizes 10000 --models DBN,CCM --rounds 2
    PYTHONPATH=src:. python -m benchmarks.command --against ../before/src

Imports, reading, fitting and writing count; kernels are in the cache, but for the column "cold": a
default fit with an empty cache, as on a new machine (with the kernels that `make kernels` has made,
as wheels have them). `Own` is a program that the zoo does not have. Contestants take turns, and
the best of the rounds counts, in processor seconds: those of a busy machine are nearly those of a
quiet one; seconds of the clock stand beside them. `--against` runs another source tree in turn.
Writes results/command.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl

from benchmarks.logs import simulate_log
from benchmarks.machine import describe_machine, load_average
from benchmarks.markdown import seconds, short_size, table, times
from benchmarks.report import RESULTS

SIZES = (10_000, 100_000, 1_000_000)
MODELS = ("DBN", "UBM", "PBM", "DCM", "CCM", "Own")
PRIORS = ("learned", "fixed")
COLD = "learned, cold"
_ROOT = Path(__file__).parent.parent
_AS_IS: Mapping[str, str] = {}
# What `gecasmo fit` does; fixed priors as others have them, without intervals.
_CODE = """
import sys
import gecasmo
from gecasmo import flip

class Own(gecasmo.ClickModel):
    goal = gecasmo.Parameter()
    attraction = gecasmo.Parameter("query", "doc")
    patience = gecasmo.Parameter("rank")

    def start(self, user):
        user.in_a_hurry = flip(self.goal)

    def browse(self, user, result):
        if flip(self.attraction):
            user.click()
            if user.in_a_hurry:
                return user.leave()
        if not flip(self.patience):
            user.leave()

name, priors, source, target = sys.argv[1:]
log = gecasmo.read_log(source)
model = Own() if name == "Own" else getattr(gecasmo, name)()
if priors == "fixed":
    model = type(model)(**dict.fromkeys(model.forms, gecasmo.Table(pseudo_counts=(1, 1))))
model.fit(log, progress=False, intervals=priors == "learned").save(target)
"""
# By (size, model, priors, tree).
Case = tuple[int, str, str, str]


class Took(NamedTuple):
    """Seconds of processors and of the clock."""

    used: float
    clock: float


def main() -> None:
    options = _parse()
    trees = {"now": str(_ROOT / "src")}
    if options.against is not None:
        trees["before"] = str(options.against.resolve())
    found: dict[Case, Took] = {}
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
                    if number:
                        with tempfile.TemporaryDirectory(dir=folder) as empty:
                            cold = {"GECASMO_CACHE_DIR": empty}
                            target = Path(folder) / "model"
                            took = _run(trees["now"], model, "learned", source, target, cold)
                        case = (size, model, COLD, "now")
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


def _run(
    tree: str, model: str, priors: str, source: Path, target: Path, more: Mapping[str, str] = _AS_IS
) -> Took:
    """What one process takes."""
    environment = os.environ | {"PYTHONPATH": tree, "PYTHONPYCACHEPREFIX": str(source.parent)}
    environment |= more
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled, too
    command = [sys.executable, "-c", _CODE, model, priors, str(source), str(target)]
    began = time.monotonic()
    process = subprocess.Popen(command, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"The fit of {model} from {tree} failed.")
    return Took(used.ru_utime + used.ru_stime, time.monotonic() - began)


def _page(
    found: dict[Case, Took], options: argparse.Namespace, trees: list[str], before: float
) -> str:
    header = ["pages", "model", "default", "fixed priors", "default / fixed", "default / DBN's"]
    header += ["cold", "clock: default", "clock: fixed", "clock: cold"]
    if "before" in trees:
        header += ["default before", "before / now"]
    rows = []
    for size in dict.fromkeys(case[0] for case in found):
        for model in options.models:
            three = [found[size, model, priors, "now"] for priors in (*PRIORS, COLD)]
            learned, fixed, cold = (took.used for took in three)
            first = found[size, options.models[0], "learned", "now"].used
            row = [short_size(size), model, seconds(learned), seconds(fixed)]
            row += [times(learned / fixed), times(learned / first), seconds(cold)]
            row += [seconds(took.clock) for took in three]
            if "before" in trees:
                old = found[size, model, "learned", "before"].used
                row += [seconds(old), times(old / learned)]
            rows.append(row)
    header[5] = f"default / {options.models[0]}'s"
    lines = [
        "# Whole fits, process included",
        "",
        "Processor seconds from the start of Python to the saved model: imports, a Parquet file of",
        "distinct pages of ten results, fit, writing. Kernels are cached, but where it says cold.",
        "Last three: seconds of the clock.",
        f"Best of {options.rounds} rounds, in turn; load {before} before.",
        "",
        *table(header, rows),
        "Machine: " + ", ".join(f"{key} {value}" for key, value in describe_machine().items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
