"""Kernels that come with the package, so that a new machine does not begin by compiling them.

    python -m gecasmo.kernels.shipped            # makes them for this kind of machine, a minute
    python -m gecasmo.kernels.shipped FOLDER     # elsewhere

A first fit needs 15 to 25 kernels. All but the E-step are the same for every model, and the E-steps
of the zoo are known. So default fits of small logs are run here, in each way that logs are laid out
in memory, and what they compile is kept in a folder of the package, under a hash of its source: a
kernel that was changed since is not found, and compiled where it is needed. So is everything on
another kind of machine; see `cache.family`.

It is made when a wheel is built, and by `make` for the checkout. It is not kept in git.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from gecasmo.kernels import cache

# The models that most people fit first: for these all that a default fit compiles is made.
USUAL = ("DBN", "UBM", "PBM", "DCM", "CCM", "CM", "SDBN", "DCTR")
# Below these numbers logs are small enough for NumPy, and above others a sample of them will do;
# here every log is large.
_BORDERS = {
    "gecasmo.estimation.expectation": {"_FEW_PLACES": 0},
    "gecasmo.estimation.information": {"_PAGES": 100},
    "gecasmo.estimation.posteriors.learner": {"PAGES": 100},
    "gecasmo.estimation.posteriors.likelihood": {"_FEW_PLACES": 0},
    "gecasmo.estimation.posteriors.moments": {"_FEW_ROWS": 0},
    "gecasmo.estimation.posteriors.polynomials": {"_FEW_PLACES": 0},
    "gecasmo.forms.typical": {"_FEW_ROWS": 0},
    "gecasmo.kernels.static.row_sweeps": {"FEWEST_ROWS": 0},
}


class ShippedLayout(NamedTuple):
    """How a log is laid out in memory: those of `logs.arrays` that are large have row numbers
    in the narrowest type, within their query where that is narrower."""

    is_large: bool
    n_pages: int
    n_queries: int
    n_docs: int  # of a query
    ids: str = "int64"  # their type


SMALL = ShippedLayout(False, 300, 20, 30)
LARGE = ShippedLayout(True, 300, 20, 30)  # more rows than a byte can number, but not in a query
# Few rows altogether; too many for a byte in a query; too many for two bytes altogether.
OTHERS = (
    ShippedLayout(True, 300, 4, 30),
    ShippedLayout(True, 300, 4, 900),
    ShippedLayout(True, 7_000, 20, 3_500),
)
# Other types of ids, which matter for encoding only.
IDS = (LARGE._replace(ids="int32"), LARGE._replace(ids="str"))


class ShippedJob(NamedTuple):
    """A model to be fitted, or its E-step to be run, on such a log."""

    model: str
    layout: ShippedLayout
    is_fit: bool


def jobs() -> list[ShippedJob]:
    """All that is to be done, the longest first."""
    from gecasmo import CATALOGUE

    fits = [
        ShippedJob(model, layout, True) for layout in (LARGE, *OTHERS, SMALL) for model in USUAL
    ]
    fits += [ShippedJob(USUAL[0], layout, True) for layout in IDS]
    others = [name for name in CATALOGUE if name not in USUAL]
    return fits + [ShippedJob(name, layout, False) for name in others for layout in (SMALL, LARGE)]


def ship(
    folder: Path, listed: Sequence[ShippedJob] | None = None, processes: int | None = None
) -> int:
    """Fill the folder; returns how many kernels it holds. What is there already is left as it is,
    and what is no longer needed is removed."""
    own = folder / cache.family()
    own.mkdir(parents=True, exist_ok=True)
    before = dict(os.environ)
    level = cache.level()
    features = ",".join(f"+{name}" for name in level.features.split())
    os.environ |= {"NUMBA_CPU_NAME": level.name, "NUMBA_CPU_FEATURES": features}
    try:
        with ProcessPoolExecutor(processes, get_context("spawn"), _begin, (folder,)) as pool:
            asked = set().union(*pool.map(_names_of, jobs() if listed is None else listed))
    finally:
        os.environ.clear()
        os.environ |= before
    for path in own.iterdir():
        if path.name not in asked:
            path.unlink()
    return len(asked)


def _begin(folder: Path) -> None:
    cache.shipment = cache.Shipment(folder, set())


def _names_of(job: ShippedJob) -> set[str]:
    """Do the job, and tell which files it asked for."""
    assert cache.shipment is not None
    with _thresholds(job.layout):
        (_fit if job.is_fit else _run_e_step)(job)
    return cache.shipment.asked


def _fit(job: ShippedJob) -> None:
    """A default fit of pages without repeated results; one model has them stored, too."""
    import numpy as np

    from gecasmo import CATALOGUE, EM, ClickLog, read_log

    _, n_pages, n_queries, n_docs, ids = job.layout
    length = 10
    rng = np.random.default_rng(1)
    # Page after page of a query shows its next results.
    page = np.arange(n_pages)
    doc = (page[:, None] // n_queries * length + np.arange(length)) % n_docs
    doc += (page % n_queries * n_docs)[:, None]
    columns = {
        "session": np.repeat(page, length),
        "query": np.repeat(page % n_queries, length).astype(ids),
        "doc": doc.ravel().astype(ids),
        "rank": np.tile(np.arange(1, length + 1), n_pages),
        # No more than one on a page: no model rules that out.
        "click": (np.arange(length) == rng.integers(2 * length, size=(n_pages, 1))).ravel(),
    }
    log = read_log(columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # five steps are too few, and nobody wants the answer
        CATALOGUE[job.model]().fit(log, method=EM(max_iter=5), progress=False)
        if job.layout.is_large and job.model == USUAL[0]:
            with TemporaryDirectory() as folder:
                ClickLog.ingest(columns, Path(folder) / "log", partitions=1, fold=True)


def _run_e_step(job: ShippedJob) -> None:
    import numpy as np

    from gecasmo import CATALOGUE
    from gecasmo.estimation import Expectation
    from gecasmo.estimation.coins import as_weights
    from gecasmo.testing.subject import random_log

    model = CATALOGUE[job.model]()
    lengths = [10] * job.layout.n_pages
    log = random_log(model, lengths, seed=1, n_docs=job.layout.n_docs, click_rate=0.02)
    encoded = model.encode(log, "e_step")
    library = model.library(encoded.plan, counting=True)
    weights = [as_weights(np.full(len(rows), 0.5)) for rows in encoded.rows]
    Expectation(encoded, library, threads=1).run(weights)


@contextmanager
def _thresholds(layout: ShippedLayout) -> Iterator[None]:
    """Let small logs be treated as large ones are."""
    large = {"gecasmo.logs.arrays": {"LARGE_LOG": 0 if layout.is_large else 1 << 60}}
    borders = (_BORDERS | large).items()
    wanted = [(module, name, value) for module, own in borders for name, value in own.items()]
    modules = {name: importlib.import_module(name) for name, *_ in wanted}
    before = [(modules[module], name, getattr(modules[module], name)) for module, name, _ in wanted]
    for module, name, value in wanted:
        setattr(modules[module], name, value)
    try:
        yield
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else cache.SHIPPED
    n_kernels = ship(folder)
    print(f"{n_kernels} kernels for {cache.family()} in {folder}", file=sys.stderr)


if __name__ == "__main__":
    main()
