"""Constraints on the posterior: does the order of documents improve, and do they do no harm?

    PYTHONPATH=. python -m benchmarks.constraints
    PYTHONPATH=. python -m benchmarks.constraints --only features --logs 3

Writes results/constraints.md. Logs are simulated with and without noise clicks. The model has
features behind attraction and noise, as in Wang et al. (2013), and has to find out which is which;
or has no noise; or is told how much there is, too much, or has to find out one number.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.markdown import read_sections, table
from gecasmo import BSS, DBN, PBM, UBM, AtMost, ClickLog, Logistic, Prefer, Table, read_log
from gecasmo.simulation import random_pages

OUTPUT = Path(__file__).parent / "results" / "constraints.md"
N_QUERIES, N_DOCS, CARE = 100, 15, 0.9
BELIEVED: dict[str, Any] = {"0.3": 0.3, "0.5": 0.5, "estimated": None}
ASKED: dict[str, list[Any]] = {
    "EM": [],
    "Prefer, margin 0.1": [Prefer("attraction", margin=0.1)],
    "Prefer, margin 0.5": [Prefer("attraction", margin=0.5)],
    "Prefer, margin 0.9, strength 3": [Prefer("attraction", margin=0.9, strength=3.0)],
    "AtMost noise 0.1": [AtMost("noise", 0.1)],
}


# Of the other two studies: queries, documents of each, results of a page, the names of features.
QUERIES, DOCS, SHOWN, FEATURES = 30, 15, 8, ("a", "b", "c")
FEATURED: dict[str, list[Any]] = {
    "EM": [],
    "Prefer": [Prefer("attraction")],
    "AtMost noise 0.3": [AtMost("noise", 0.3)],
    "both": [Prefer("attraction"), AtMost("noise", 0.3)],
}
NOISES = ["of all results alike", "of what catches the eye", "none"]
PLAIN: dict[str, Any] = {
    "PBM": lambda form: PBM(attraction=form),
    "UBM": lambda form: UBM(attraction=form),
    "DBN": lambda form: DBN(attraction=form, satisfaction=Table(key=())),
}
UNNOISED: dict[str, list[Any]] = {
    "EM": [],
    "margin 0.1": [Prefer("attraction", margin=0.1)],
    "margin 0.5, the default": [Prefer("attraction")],
    "margin 0.9": [Prefer("attraction", margin=0.9)],
}


def simulated(seed: int, noise: float, n_pages: int) -> tuple[ClickLog, pl.DataFrame]:
    """A log with so many noise clicks, and the attraction behind it."""
    quality = np.random.default_rng(seed).beta(0.6, 1.2, (N_QUERIES, N_DOCS)).clip(0.01, 0.99)
    pages = random_pages(n_pages, seed, n_queries=N_QUERIES, quality=quality)
    keys = {
        "query": np.repeat(np.arange(N_QUERIES), N_DOCS),
        "doc": np.tile(np.arange(N_DOCS), N_QUERIES),
    }
    truth = pl.DataFrame({**keys, "probability": quality.ravel()})
    model = BSS().with_values(
        attraction=truth,
        care=CARE,
        noise=noise,
        continuation_after_click=0.6,
        continuation_after_skip=0.85,
    )
    return model.simulate(pages, seed=seed), truth


def in_order(model: Any, truth: pl.DataFrame) -> float:
    """The share of pairs of documents of a query that stand in the true order; ties count half."""
    return _share_in_order(model.parameters["attraction"], truth)


def _share_in_order(told: pl.DataFrame, truth: pl.DataFrame) -> float:
    named = truth.rename({"probability": "true"})
    found = told.join(named, on=["query", "doc"])
    right = total = 0.0
    for _, own in found.group_by("query"):
        a, b = own["probability"].to_numpy(), own["true"].to_numpy()
        agrees = np.sign(a[:, None] - a) * np.sign(b[:, None] - b)
        right += (agrees > 0).sum() + 0.5 * ((agrees == 0).sum() - len(a))
        total += len(a) * (len(a) - 1)
    return float(right / total)


def measure(noise: float, n_logs: int, n_pages: int) -> list[list[str]]:
    """For each belief the share of pairs in order, and how the constraints change it."""
    rows = []
    logs = [simulated(100 + seed, noise, n_pages) for seed in range(n_logs)]
    for belief, value in BELIEVED.items():
        found: dict[str, list[float]] = {name: [] for name in ASKED}
        for log, truth in logs:
            for name, asked in ASKED.items():
                ones = Table(pseudo_counts=(1, 1))
                forms = {} if value is None else {"noise": value}
                model = BSS(attraction=ones, care=CARE, **forms)
                model.fit(log, constraints=asked, intervals=False, progress=False)
                found[name].append(in_order(model, truth))
        base = np.array(found.pop("EM"))
        cells = [_changed(np.array(values) - base) for values in found.values()]
        rows.append([f"{noise:g}", belief, f"{base.mean():.4f}", *cells])
        print(*rows[-1], sep=" | ", flush=True)
    return rows


def featured(seed: int, noise: str, n_pages: int) -> tuple[ClickLog, Any, pl.DataFrame]:
    """Pages in the order of the first feature, read downwards by users who now and then click what
    does not attract them; what attracts, and the features of pairs."""
    rng = np.random.default_rng([seed, 9])
    n = QUERIES * DOCS
    x = rng.normal(size=(n, 3)).round(3)
    attraction = _logistic(-1.2 + 1.2 * x[:, 0] + 0.8 * x[:, 1] + 0.3 * rng.normal(size=n))
    wrong = {NOISES[0]: np.full(n, 0.3), NOISES[1]: _logistic(-1.5 + 1.5 * x[:, 2])}
    query = rng.integers(0, QUERIES, n_pages)
    own = query[:, None] * DOCS + np.arange(DOCS)
    score = x[own, 0] + rng.standard_normal(own.shape)
    shown = np.take_along_axis(own, np.argsort(-score, axis=1)[:, :SHOWN], axis=1)
    either = attraction + (1 - attraction) * wrong.get(noise, np.zeros(n))
    wants = rng.random(shown.shape) < CARE * either[shown]
    features = dict(zip(FEATURES, x.T, strict=True))
    columns = {name: values[shown.ravel()] for name, values in features.items()}
    log = _as_log(query, shown, _downwards(rng, wants), columns)
    return log, attraction, pl.DataFrame(features)


def plain(seed: int, reads: str, noise: float, n_pages: int) -> tuple[ClickLog, pl.DataFrame]:
    """Pages of a ranker that knows quality imperfectly, read downwards or by position."""
    rng = np.random.default_rng([seed, 7])
    quality = rng.beta(0.6, 1.2, (QUERIES, DOCS)).clip(0.01, 0.99)
    query = rng.integers(0, QUERIES, n_pages)
    score = quality[query] / 0.3 + rng.standard_normal((n_pages, DOCS))
    shown = np.argsort(-score, axis=1)[:, :SHOWN]
    attraction = quality[query[:, None], shown]
    wants = rng.random(shown.shape) < attraction + (1 - attraction) * noise
    if reads == "downwards":
        click = _downwards(rng, wants)
    else:
        click = (wants & (rng.random(shown.shape) < np.arange(1, SHOWN + 1) ** -0.7)).astype(int)
    pairs = np.indices((QUERIES, DOCS)).reshape(2, -1)
    truth = {"query": pairs[0], "doc": pairs[1], "probability": quality.ravel()}
    return _as_log(query, shown, click, {}), pl.DataFrame(truth)


def _downwards(rng: Any, wants: Any) -> Any:
    click, there = np.zeros(wants.shape, int), np.ones(len(wants), bool)
    for rank in range(wants.shape[1]):
        click[:, rank] = there & wants[:, rank]
        there &= rng.random(len(wants)) < np.where(click[:, rank] == 1, 0.6, 0.85)
    return click


def _as_log(query: Any, shown: Any, click: Any, columns: Any) -> ClickLog:
    n_pages, length = shown.shape
    return read_log(
        {
            "session": np.repeat(np.arange(n_pages), length),
            "query": np.repeat(query, length),
            "doc": shown.ravel(),
            "rank": np.tile(np.arange(1, length + 1), n_pages),
            "click": click.ravel(),
            **columns,
        }
    )


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def with_features(n_logs: int) -> list[str]:
    """Features behind attraction and behind noise."""
    rows = []
    for noise in NOISES:
        found: dict[str, list[float]] = {name: [] for name in FEATURED}
        for seed in range(100, 100 + n_logs):
            log, truth, features = featured(seed, noise, 300)
            pairs = np.indices((QUERIES, DOCS)).reshape(2, -1)
            known = {"query": pairs[0], "doc": pairs[1], "probability": truth}
            for name, asked in FEATURED.items():
                by_rank = {
                    f"continuation_after_{what}": Table("rank") for what in ("click", "skip")
                }
                attraction, wrong = Logistic(*FEATURES), Logistic(*FEATURES)
                model = BSS(attraction=attraction, noise=wrong, care=CARE, **by_rank)
                model.fit(log, constraints=asked, intervals=False, progress=False)
                told = model.probability("attraction", features.to_dict(as_series=False))
                values = pl.DataFrame({**known, "probability": np.asarray(told)})
                found[name].append(_share_in_order(values, pl.DataFrame(known)))
        rows.append([noise, str(n_logs), *_cells(found)])
        print(*rows[-1], sep=" | ", flush=True)
    return table(["noise clicks", "logs", *FEATURED], rows)


def without_noise(n_logs: int) -> list[str]:
    """Models that have no noise."""
    rows = []
    for reads in ("downwards", "by position"):
        for noise in (0.3, 0.0):
            logs = [plain(seed, reads, noise, 600) for seed in range(100, 100 + n_logs)]
            for name, make in PLAIN.items():
                found: dict[str, list[float]] = {asked: [] for asked in UNNOISED}
                for log, truth in logs:
                    for asked, constraints in UNNOISED.items():
                        model = make(Table(pseudo_counts=(1, 1)))
                        model.fit(log, constraints=constraints, intervals=False, progress=False)
                        found[asked].append(in_order(model, truth))
                rows.append([reads, f"{noise:g}", name, str(n_logs), *_cells(found)])
                print(*rows[-1], sep=" | ", flush=True)
    return table(["users read", "noise", "model", "logs", *UNNOISED], rows)


def _cells(found: dict[str, list[float]]) -> list[str]:
    base = np.array(found["EM"])
    own = f"{base.mean():.3f} ({base.min():.2f} to {base.max():.2f})"
    changes = [_changed(np.array(values) - base) for name, values in found.items() if name != "EM"]
    return [own, *changes]


def _changed(difference: np.ndarray) -> str:
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return f"{difference.mean():+.4f} ± {error:.4f}"


def told_noise(n_logs: int) -> list[str]:
    """BSS that is told how much noise there is."""
    rows = [row for noise in (0.3, 0.0) for row in measure(noise, n_logs, 2_000)]
    return table(["noise in the log", "the model's noise", "EM", *list(ASKED)[1:]], rows)


STUDIES: dict[str, tuple[str, str, Any]] = {
    "features": (
        "Features behind attraction and noise",
        f"BSS with the same three features behind `attraction` and `noise` (care {CARE:g}), as in "
        "Wang et al.: nothing but chance tells EM which is which. Logs of 300 pages of eight "
        "results over 30 queries, in the order of the first feature; attraction depends on the "
        "first two. Noise clicks: 30 % of what does not attract, or what has much of the third "
        "feature, or none.",
        with_features,
    ),
    "no-noise": (
        "Models without noise",
        "Logs of 600 pages of eight results over 30 queries, of users who read downwards, or look "
        "by position; `Prefer` with three margins.",
        without_noise,
    ),
    "told": (
        "One number of noise, given or estimated",
        f"Logs of 2,000 pages of ten results over {N_QUERIES} queries, simulated by BSS (care "
        f"{CARE:g}).",
        told_noise,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the page to write")
    options = parser.parse_args()
    sections = read_sections(options.output)
    for name in options.only:
        title, words, make = STUDIES[name]
        sections[title] = f"{words}\n\n" + "\n".join(make(options.logs)).strip()
        known = [t for t, _, _ in STUDIES.values() if t in sections]
        parts = [
            "# Constraints on the posterior",
            _WORDS,
            *(f"## {t}\n\n{sections[t]}" for t in known),
        ]
        options.output.write_text("\n\n".join(parts) + "\n")


_WORDS = (
    "`python -m benchmarks.constraints`. The share of pairs of documents of a query that "
    "`attraction` puts in the true order under EM (and from which to which log), and by how much "
    "constraints change it: mean over logs, with its standard error."
)


if __name__ == "__main__":
    main()
