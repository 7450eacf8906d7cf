"""Hours of what breaks programs: files that were changed or made up, kills, full disks, many seeds.

    make soak                                    all of it, in three hours or less on two cores
    python -m benchmarks.soak --minutes 15       a twelfth of it
    python -m benchmarks.soak --only mutants     some of it

Each line of the table is a selection of tests, with variables that say how much of everything.
The last outcome of each is kept in benchmarks/results/soak.jsonl, with its date and commit, and the
table of all of them in benchmarks/results/soak.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine, load_average
from benchmarks.markdown import table

_ROOT = Path(__file__).parent.parent
_RESULTS = _ROOT / "benchmarks" / "results" / "soak.jsonl"
_MINUTES = 180.0
_COLUMNS = ("what", "how many", "tests", "failures", "seconds", "peak MB", "load", "day", "commit")


@dataclass(frozen=True)
class Item:
    """One line of the soak.

    Parameters
    ----------
    name : for `--only`
    what : for the table
    tests : what pytest is given
    n : how many of `what` there are in a whole soak
    variables : what says so to the tests, for a number
    steps : the numbers that there may be, if not any
    is_checked : whether kernels look where they index, as compiled code does not
    is_parallel : whether workers share the tests
    is_extra : whether it is run only if it is named
    """

    name: str
    what: str
    tests: Sequence[str]
    n: int
    variables: Callable[[int], dict[str, int]]
    steps: Sequence[int] = ()
    is_checked: bool = False
    is_parallel: bool = False
    is_extra: bool = False

    def scaled(self, share: float) -> int:
        wanted = round(self.n * share)
        possible = [step for step in self.steps if step <= wanted]
        return max(possible, default=self.steps[0] if self.steps else max(wanted, 1))


def _examples(per_unit: int, fewest: int = 0) -> Callable[[int], dict[str, int]]:
    """Tests that do so many of something for each unit of GECASMO_EXAMPLES, and few without."""
    return lambda n: {} if n == fewest else {"GECASMO_EXAMPLES": max(2, -(-n // per_unit))}


ITEMS = (
    Item(
        "mutants",
        "mutated inputs, over all readers and files",
        ["tests/soak/test_mutants.py"],
        100_000,
        lambda n: {"GECASMO_MUTANTS": n},
        is_checked=True,
    ),
    Item(
        "crafted",
        "stored logs, checkpoints, fits and packets that were made up",
        [
            "tests/store/test_store_crafted.py",
            "tests/parts/test_damaged_fits.py",
            "tests/unit/test_crafted_fits.py",
            "tests/forms/test_crafted_classifiers.py",
            "tests/spark/test_spark_bytes.py",
        ],
        10_000,
        _examples(5_000, fewest=340),
        steps=(340, 10_000),
        is_checked=True,
    ),
    Item(
        "fits",
        "kills of fits at random moments",
        ["tests/parts/test_killed_fits.py"],
        200,
        _examples(5),
        steps=range(10, 201, 5),
    ),
    Item(
        "ingests",
        "kills of ingests at random moments",
        ["tests/store/test_store_resuming.py", "-k", "killed_at_any_moment"],
        200,
        lambda n: {"GECASMO_KILLS": n},
        steps=range(10, 201, 2),
    ),
    Item(
        "cache",
        "processes on a cold cache, and damaged kernels",
        ["tests/unit/test_kernel_cache.py"],
        16,
        lambda _: {"GECASMO_EXAMPLES": 5},
        steps=(16,),
    ),
    Item(
        "disks",
        "full disks",
        ["tests/soak/test_soak_disks.py"],
        20,
        lambda n: {"GECASMO_FULL_DISKS": n},
        steps=range(5, 21),
    ),
    Item(
        "seeds",
        "seeds of `check_model`, for every model of the zoo",
        ["tests/proof/test_proof_model_check.py"],
        200,
        _examples(40, fewest=2),
        steps=(2, 80, 200),
        is_parallel=True,
    ),
    Item(
        "properties",
        "times the examples of property tests",
        ["tests/proof", "tests/store", "tests/readers", "tests/forms", "tests/judgments"],
        4,
        _examples(1, fewest=1),
        steps=(1, 2, 4),
        is_parallel=True,
        is_extra=True,
    ),
)


def row(outcome: dict[str, Any]) -> list[str]:
    """A line of the table, of what became of an item."""
    failed = str(len(outcome["failures"])) if outcome["n_tests"] else "not run"
    figures = [f"{outcome['n']:,}", f"{outcome['n_tests']:,}", failed]
    figures += [f"{outcome['seconds']:,.0f}", f"{outcome['peak']:,.0f}", f"{outcome['load']:.0f}"]
    return [outcome["what"], *figures, outcome["moment"][:10], outcome["commit"]]


def run(item: Item, n: int, limit: float, workers: int) -> dict[str, Any]:
    """Run the tests of an item; one that takes longer than its limit has failed."""
    environment = os.environ | ({"NUMBA_BOUNDSCHECK": "1"} if item.is_checked else {})
    machine = describe_machine()  # before the run: somebody may change files during it
    environment |= {name: str(value) for name, value in item.variables(n).items()}
    with tempfile.TemporaryDirectory(prefix="gecasmo-soak-") as folder:
        said = Path(folder) / "tests.xml"
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder}/tests",
            f"--junitxml={said}",
        ]
        if item.is_parallel:
            options += ["-n", str(workers), "--dist", "worksteal"]
        command = [sys.executable, "-m", "pytest", *options, *item.tests]
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=_ROOT, env=environment, start_new_session=True)
        stop = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
        stop.start()
        _, _, used = os.wait4(process.pid, 0)
        is_late = not stop.is_alive()
        stop.cancel()
        seconds = time.monotonic() - began
        cases = list(ElementTree.parse(said).iter("testcase")) if said.exists() else []
    failures = [
        f"{case.get('classname')}.{case.get('name')}: {found.get('message', '')}"
        for case in cases
        for found in (*case.findall("failure"), *case.findall("error"))
    ]
    if is_late:
        failures.append(f"{item.name} did not end within {limit:,.0f} s")
    return {
        "item": item.name,
        "what": item.what,
        "n": n,
        "n_tests": len(cases),
        "failures": failures,
        "seconds": round(seconds),
        "peak": round(used.ru_maxrss / 1024),  # MB, of the largest process
        "load": load_average(),
        **machine,
    }


def report(outcomes: Sequence[dict[str, Any]]) -> str:
    """The table, and what failed."""
    machine = outcomes[-1]
    lines = [
        "# Soak",
        "",
        f"Made by `make soak`, on {machine['n_processors']} x {machine['processor']}, Python "
        f"{machine['python']}, NumPy {machine['numpy']}, Numba {machine['numba']}, Polars "
        f"{machine['polars']}. Each line is the last run of its item. Peak memory is that of the "
        "largest process; load is how many processes wanted a processor at the end of it. What "
        "soaks have found is in [docs/reliability.md](../../docs/reliability.md).",
        "",
        *table(_COLUMNS, [row(outcome) for outcome in outcomes]),
    ]
    failures = [(outcome, failure) for outcome in outcomes for failure in outcome["failures"]]
    if failures:
        lines += ["## Failures", ""]
        lines += [f"- {o['item']}: {' '.join(f.split())[:500]}" for o, f in failures] + [""]
    return "\n".join(lines)


def kept(path: Path) -> dict[str, dict[str, Any]]:
    """The last outcome of each item, by its name."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {outcome["item"]: outcome for outcome in map(json.loads, lines)}


def keep(outcome: dict[str, Any], path: Path) -> None:
    """Put an outcome in the place of the last one of its item, and write the table anew."""
    outcomes = kept(path) | {outcome["item"]: outcome}
    ordered = [outcomes[item.name] for item in ITEMS if item.name in outcomes]
    path.write_text("".join(json.dumps(o) + "\n" for o in ordered), encoding="utf-8")
    path.with_suffix(".md").write_text(report(ordered), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak, and write its table; the exit code says whether something failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=_MINUTES, help="how long, about")
    names = [item.name for item in ITEMS]
    usual = [item.name for item in ITEMS if not item.is_extra]
    parser.add_argument("--only", nargs="+", choices=names, default=usual, metavar="ITEM")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--output", type=Path, default=_RESULTS)
    given = parser.parse_args(arguments)
    share = given.minutes / _MINUTES
    is_clean = True
    for item in ITEMS:
        if item.name in given.only:
            outcome = run(item, item.scaled(share), 60 * given.minutes, given.workers)
            is_clean &= bool(outcome["n_tests"]) and not outcome["failures"]
            print(" | ".join([item.name, *row(outcome)]), flush=True)
            keep(outcome, given.output)
    return int(not is_clean)


if __name__ == "__main__":
    sys.exit(main())
