"""Views of a log, in memory and stored: processor seconds of each step, for one model a view.

python -m benchmarks.views [--pages 1000000] [--fits 1000000] writes results/views.md

Views are made of `--pages` pages with ten results; fits (ten iterations, in memory and from disk)
are of `--fits` pages. That both fits agree is checked before anything is written.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.machine import describe_machine, load_average
from gecasmo import DBN, EM, ClickLog, ClickModel, GridDBN, SessionDBN, Table, WalkCM, read_log
from gecasmo.logs.views import as_view
from gecasmo.model.click_sets import click_sets
from gecasmo.simulation import random_pages

OUTPUT = Path(__file__).parent / "results" / "views.md"
MODELS: dict[str, type[ClickModel]] = {
    "pages": DBN,
    "grids": GridDBN,
    "tasks": SessionDBN,
    "walks": WalkCM,
}


def pages_for(n_pages: int) -> ClickLog:
    """Pages with all that views ask for: rows of two, and tasks of three pages, mixed up."""
    quality = np.random.default_rng(1).beta(1.0, 3.0, (max(n_pages // 100, 10), 15))
    pages = random_pages(n_pages, 1, n_queries=len(quality), quality=quality)
    session, rank = (pages[name].to_numpy() for name in ("session", "rank"))
    task = np.random.default_rng(2).permutation(n_pages) // 3
    made = {"task": task[session], "time": session, "row": (rank + 1) // 2, "column": rank % 2}
    return read_log(pages.with_columns(**{n: pl.Series(v) for n, v in made.items()}), click=None)


def clicked(name: str, blank: ClickLog) -> ClickLog:
    """The log of users who click by the model of a view."""
    model = MODELS[name]
    values = {**dict.fromkeys(model._parameters(), 0.6), "attraction": 0.15}
    return model.with_values(**values).simulate(blank, seed=3)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What came out, and the processor seconds of all threads."""
    began = time.process_time()
    found = work()
    return found, time.process_time() - began


def view_seconds(name: str, log: ClickLog) -> tuple[float, float]:
    """Seconds for the order, and for all columns of the view."""
    view = as_view(name)
    viewed, order = timed(lambda: view.apply(log))
    made = [n for n in (*view.guards, *view.keys, *view.signals) if n in viewed.columns]
    return order, timed(lambda: [viewed.column(n) for n in made])[1]


def fit_seconds(name: str, log: ClickLog, folder: Path) -> dict[str, float]:
    """Seconds of a fit in memory, of the ingest and of a fit from disk; and bytes a page."""
    kind = MODELS[name]
    forms = {c: Table(pseudo_counts=(1, 1)) for c in kind._parameters()}

    def fit(given: Any, n: int = 10) -> Any:
        method = EM(max_iter=n, tol=0, accelerate=False)
        return kind(**forms).fit(given, method, progress=False, intervals=False)

    fit(log, 1)  # compiles
    in_memory, seconds = timed(lambda: fit(log))
    stored, ingest = timed(lambda: ClickLog.ingest(log, folder / name, view=name, partitions=8))
    on_disk, from_disk = timed(lambda: fit(stored))
    likelihoods = [each.report_.log_likelihood for each in (in_memory, on_disk)]
    np.testing.assert_allclose(*likelihoods, rtol=1e-9)
    rows = sum(len(frame) for frame in in_memory.parameters.values())
    return {
        "in memory": seconds,
        "ingest": ingest,
        "from disk": from_disk,
        "bytes a page": stored.bytes / stored.n_pages,
        "rows": rows,
    }


def main() -> None:
    """Measure all views, and write the table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--pages", type=int, default=1_000_000)
    asked.add_argument("--fits", type=int, default=1_000_000)
    given = asked.parse_args()
    blank = pages_for(given.pages)
    lines = [
        f"| view | order, {given.pages:,} pages | its columns | model | fit in memory, "
        f"{given.fits:,} pages | ingest | fit from disk | bytes a page | rows |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    few = blank.take(np.arange(blank.n_sessions) < given.fits)
    with tempfile.TemporaryDirectory() as place:
        for name, model in MODELS.items():
            log = clicked(name, blank) if name == "walks" else blank
            order, columns = view_seconds(name, log)
            del log
            own = clicked(name, few)
            found = fit_seconds(name, own, Path(place))
            seconds = [order, columns, *(found[n] for n in ("in memory", "ingest", "from disk"))]
            told = [f"{value:.1f}" for value in seconds]
            tail = [f"{found['bytes a page']:.1f}", f"{found['rows']:,.0f}"]
            cells = [name, *told[:2], model.__name__, *told[2:], *tail]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    walks = clicked("walks", few.take(np.arange(few.n_sessions) < 2000))
    values = {**dict.fromkeys(WalkCM._parameters(), 0.6), "attraction": 0.15}
    found, seconds = timed(lambda: click_sets(WalkCM.with_values(**values), walks))
    each = 1000 * seconds / walks.n_sessions
    machine = describe_machine()
    text = [
        "# Views: processor seconds",
        "",
        f"{machine['processor']}, {machine['n_processors']} processors, load {load_average():.0f}, "
        f"{str(machine['moment'])[:10]}. Ten iterations of EM, fixed priors, pages of ten results.",
        "",
        *lines,
        "",
        f"Clicks of a page as a set under WalkCM: {each:.1f} ms a page, {found.lost.max():.2g} of "
        "the probability left out at most.",
        "",
    ]
    OUTPUT.write_text("\n".join(text), encoding="utf-8")
    print("\n".join(text))


if __name__ == "__main__":
    main()
