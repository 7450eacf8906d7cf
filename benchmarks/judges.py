"""Clicks with other judges: from noise to perfect ones, from no clicks to many.

    make judges
    PYTHONPATH=. python -m benchmarks.judges tables --logs 1 --only "DBN good pair" --pages 500
    PYTHONPATH=. python -m benchmarks.judges coverage --logs 1 --pages 500

With `--keep FOLDER`, what was found on each log is kept there and not looked for again.

Worlds and clicks are those of `worlds.py`, which shares no code with the package; judges are made
here. "tables" compares clicks alone, each judge alone, and both together with the truth, and writes
results/judges.md. "coverage" counts how often intervals of nDCG, of differences between rankers and
of confusions hold the truth, and writes results/judges_coverage.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.markdown import table
from benchmarks.world_models import fit_quietly, unfitted
from benchmarks.worlds import World, as_log, draw_pages, make_world
from gecasmo import read_log

RESULTS = Path(__file__).parent / "results"
WORLDS = ("DBN good pair", "UBM random mixture")
OTHERS = ("DBN random mixture", "PBM good mixture")  # for intervals only
PAGES = (0, 100, 500, 2_000, 8_000)
# Logs for tables, and the seed of the first: a constant of the package was chosen by seeds 0 and 1.
N_LOGS, FIRST_TOLD = 2, 10
COVERED = (None, "30 % exact", "60 % exact", "perfect")
# Logs, and the seed of the first: constants of the package were chosen by those before it.
N_COVERED, FIRST = 2, 30
DEPTH = 5
AT = 10
N_ELSEWHERE = 20  # queries of the pages that a fit without clicks on judged pairs has
WORDS = np.array(["useless", "so-so", "fine", "exact"])
_BEGAN = time.perf_counter()

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Subject:
    """A fitted model, and what is true of the pairs that are asked about."""

    model: Any
    world: World
    truth: pl.DataFrame  # query, doc, true

    @property
    def true(self) -> Floats:
        return self.truth["true"].to_numpy()


def subject(name: str, n_pages: int, seed: int) -> Subject:
    """A world whose clicks were fitted; with no pages, clicks on other queries alone."""
    model, ranker, structure = name.split()
    world = make_world(model, seed, ranker=ranker, structure=structure)
    truth = world.frame(world.relevance).rename({"probability": "true"})
    log = as_log(draw_pages(world, n_pages or 4_000, seed))
    if not n_pages:
        last = len(world.docs) - N_ELSEWHERE
        log = read_log(log.to_frame().filter(pl.col("query") >= last))
        truth = truth.filter(pl.col("query") < last)
    return Subject(fit_quietly(unfitted(model), log), world, truth)


# -- judges ------------------------------------------------------------------------------------
def exact(true: Floats) -> Ints:
    """The grades that pairs deserve."""
    return np.searchsorted(np.quantile(true, [0.4, 0.7, 0.9]), true)


def right(share: float) -> Callable[[Floats, np.random.Generator], Ints]:
    """A judge who is right so often, and gives any grade else."""

    def judge(true: Floats, rng: np.random.Generator) -> Ints:
        any_grade = rng.integers(0, 4, len(true))
        return np.where(rng.random(len(true)) < share, exact(true), any_grade)

    return judge


def noisy_score(true: Floats, rng: np.random.Generator) -> Floats:
    logit = np.log(true / (1 - true))
    return logit + rng.normal(size=len(true)) * logit.std()


# By name: what a judge says of all pairs, and what order it means, for it alone.
JUDGES: dict[str, Callable[[Floats, np.random.Generator], tuple[Any, Floats]]] = {}


def _plain(judge: Callable[..., Any]) -> Callable[..., tuple[Any, Floats]]:
    def both(true: Floats, rng: np.random.Generator) -> tuple[Any, Floats]:
        said = judge(true, rng)
        return said, np.asarray(said, float)

    return both


def _inverted(true: Floats, rng: np.random.Generator) -> tuple[Any, Floats]:
    said = right(0.8)(true, rng)
    return 3 - said, said.astype(float)


def _scaled(true: Floats, rng: np.random.Generator) -> tuple[Any, Floats]:
    said = right(0.8)(true, rng)
    return np.array([-5.0, 0.1, 70.0, 1e4])[said], said.astype(float)


def _in_words(true: Floats, rng: np.random.Generator) -> tuple[Any, Floats]:
    said = right(0.8)(true, rng)
    return WORDS[said], said.astype(float)


def _of_a_tenth(true: Floats, rng: np.random.Generator) -> tuple[Any, Floats]:
    said = right(0.8)(true, rng).astype(float)
    silent = rng.random(len(true)) > 0.1
    return [None if quiet else grade for grade, quiet in zip(said, silent, strict=True)], np.where(
        silent, said[~silent].mean(), said
    )


JUDGES |= {
    "noise": _plain(right(0.0)),
    "30 % exact": _plain(right(0.3)),
    "60 % exact": _plain(right(0.6)),
    "80 % exact": _plain(right(0.8)),
    "perfect": _plain(right(1.0)),
    "80 %, inverted": _inverted,
    "80 %, another scale": _scaled,
    "80 %, words": _in_words,
    "80 %, a tenth of pairs": _of_a_tenth,
    "noisy score": _plain(noisy_score),
    "perfect score": _plain(lambda true, rng: 100 * true**3),
}
TWO = ("60 % exact, twice the same", "60 % exact, two of them")


def sources(name: str, truth: pl.DataFrame, seed: int) -> tuple[dict[str, pl.DataFrame], Floats]:
    """The grades of a judge (or two) as frames, and the order that it means by itself."""
    true = truth["true"].to_numpy()
    rng = np.random.default_rng([seed, 7])
    pairs = truth.select("query", "doc")
    if name in TWO:
        one = right(0.6)(true, rng)
        other = one if name == TWO[0] else right(0.6)(true, rng)
        frames = [pairs.with_columns(pl.Series("grade", said)) for said in (one, other)]
        return dict(zip(("one", "other"), frames, strict=True)), (one + other).astype(float)
    said, order = JUDGES[name](true, rng)
    return {"judge": pairs.with_columns(pl.Series("grade", said, strict=False))}, order


# -- measures ----------------------------------------------------------------------------------
def measured(about: Subject, order: Floats, frame: pl.DataFrame | None = None) -> dict[str, float]:
    """Spearman and nDCG of an order, and how often intervals hold the truth."""
    query = about.truth["query"].to_numpy()
    lot = np.random.default_rng(0).random(len(order))
    found = {
        "spearman": float(spearmanr(order + 1e-12 * lot, about.true).statistic),
        "ndcg": ndcg(query, order, about.true, DEPTH),
    }
    if frame is not None:
        inside = (frame["low"] <= about.truth["true"]) & (about.truth["true"] <= frame["high"])
        found["coverage"] = float(inside.mean())
        found["width"] = float((frame["high"] - frame["low"]).mean())
    return found


def ndcg(query: Ints, score: Floats, true: Floats, depth: int) -> float:
    """The mean over queries; ties by lot."""
    lot = np.random.default_rng(0).random(len(score))

    def gained(by: Floats) -> Floats:
        order = np.lexsort((lot, -by, query))
        _, first, size = np.unique(query[order], return_index=True, return_counts=True)
        place = np.arange(len(order)) - np.repeat(first, size)
        gain = np.where(place < depth, true[order] / np.log2(place + 2), 0.0)
        return np.bincount(np.repeat(np.arange(len(first)), size), weights=gain)

    return float((gained(score) / gained(true)).mean())


def judged(about: Subject, grades: dict[str, pl.DataFrame] | None) -> tuple[Any, pl.DataFrame]:
    """Judgments of all pairs of the truth, in its order."""
    found = about.model.judgments(pairs=about.truth.select("query", "doc"), grades_from=grades)
    frame = about.truth.join(found.frame, on=["query", "doc"], how="left", maintain_order="left")
    return found, frame


def cells_held(about: Subject, found: Any, said: pl.DataFrame) -> tuple[int, int]:
    """How many cells of the confusion hold the true share of the shown pairs, of how many."""
    shown = found.panel.sample.select("query", "doc")
    both = shown.join(about.truth, on=["query", "doc"]).join(said, on=["query", "doc"])
    ours = np.searchsorted(np.array(found.grading.cuts), both["true"].to_numpy(), side="right")
    both = both.with_columns(ours=pl.Series(ours), said=pl.format("{}", "grade"))
    held = n = 0
    for _, label, grade, share, low, high in found.judges.confusion.select(
        "judge", "said", "grade", "share", "low", "high"
    ).rows():
        some = both.filter(pl.col("said") == label)
        if share is None or len(some) < 10:
            continue
        true = float((some["ours"] == grade).mean())
        held, n = held + (low - 1e-9 <= true <= high + 1e-9), n + 1
    return held, n


def runs_of(about: Subject, seed: int) -> dict[str, pl.DataFrame]:
    """Rankers: one by lot, the one that made the log, and one that knows half of the truth."""
    rng = np.random.default_rng([seed, 8])
    logit = np.log(about.true / (1 - about.true))
    thought = about.world.frame(about.world.scores).rename({"probability": "score"})
    pairs = about.truth.select("query", "doc")
    return {
        "by lot": pairs.with_columns(score=pl.Series(rng.random(len(pairs)))),
        "of the log": pairs.join(thought, on=["query", "doc"], maintain_order="left"),
        "knows half": pairs.with_columns(
            score=pl.Series(logit + logit.std() * rng.normal(size=len(logit)))
        ),
    }


def run_of(name: str, n_pages: int, seed: int) -> dict[str, Any]:
    """How clicks, judges and both do on one log."""
    about = subject(name, n_pages, seed)
    _, frame = judged(about, None)
    clicks = measured(about, frame["relevance"].to_numpy(), frame)
    judges = {}
    for kind in (*JUDGES, *TWO):
        grades, order = sources(kind, about.truth, seed)
        _, blend = judged(about, grades)
        judges[kind] = {
            "judge": measured(about, order),
            "blend": measured(about, blend["relevance"].to_numpy(), blend),
        }
    return {"clicks": clicks, "judges": judges}


def covered(name: str, n_pages: int, seed: int) -> list[dict[str, Any]]:
    """Whether intervals hold the truth on one log, a row each: of nDCG, of differences between
    rankers, and of all cells of a confusion."""
    about = subject(name, n_pages, seed)
    query, runs = about.truth["query"].to_numpy(), runs_of(about, seed)
    true = {run: ndcg(query, own["score"].to_numpy(), about.true, AT) for run, own in runs.items()}
    rows = []
    for kind in COVERED:
        grades = None if kind is None else sources(kind, about.truth, seed)[0]
        found, _ = judged(about, grades)
        told = found.ndcg(runs, at=AT)
        key = {"world": name, "pages": n_pages, "judge": kind or "clicks alone"}
        for row in told.runs.rows(named=True):
            own = _held(true[row["run"]], row["ndcg"], row)
            rows.append(key | own | {"what": "nDCG", "run": row["run"]})
        for row in told.differences.rows(named=True):
            gap = true[row["run"]] - true[row["against"]]
            own = _held(gap, row["difference"], row)
            rows.append(key | own | {"what": "difference", "run": "difference"})
        if grades is not None:
            held, n = cells_held(about, found, grades["judge"])
            width = found.judges.confusion.select(pl.col("high") - pl.col("low")).to_series().mean()
            own = {"held": held / max(n, 1), "width": width, "off": 0.0}
            rows.append(key | own | {"what": "confusion", "run": "confusion"})
    return rows


def _held(true: float, told: float, row: dict[str, Any]) -> dict[str, float]:
    inside = float(row["low"] <= true <= row["high"])
    return {"held": inside, "width": row["high"] - row["low"], "off": abs(told - true)}


# -- telling -----------------------------------------------------------------------------------
def as_markdown(found: dict[tuple[str, int], list[dict[str, Any]]]) -> list[str]:
    lines = []
    worlds = list(dict.fromkeys(name for name, _ in found))
    pages = sorted({n for _, n in found})
    for measure, words in (("spearman", "Spearman"), ("ndcg", f"nDCG@{DEPTH}")):
        for name in worlds:
            rows = []
            for kind in (*JUDGES, *TWO):
                cells = []
                for n in pages:
                    logs = found.get((name, n), [])
                    if not logs:
                        cells.append("-")
                        continue
                    clicks = np.mean([log["clicks"][measure] for log in logs])
                    of_kind = [log["judges"][kind] for log in logs]
                    own = np.mean([one["judge"][measure] for one in of_kind])
                    both = np.mean([one["blend"][measure] for one in of_kind])
                    cells.append(f"{clicks:.2f} / {own:.2f} / **{both:.2f}**")
                rows.append([kind, *cells])
            head = ["judge", *(f"{n:,} pages" if n else "no clicks" for n in pages)]
            lines += [f"## {words}, {name}: clicks / judge / **both**", "", *table(head, rows)]
    for name in worlds:
        rows = []
        for kind in ("clicks alone", *JUDGES, *TWO):
            cells = []
            for n in pages:
                logs = found.get((name, n), [])
                both = kind != "clicks alone"
                told = [log["judges"][kind]["blend"] if both else log["clicks"] for log in logs]
                if not logs:
                    cells.append("-")
                    continue
                held, wide = (np.mean([one[w] for one in told]) for w in ("coverage", "width"))
                cells.append(f"{held:.2f} ({wide:.2f})")
            rows.append([kind, *cells])
        head = ["intervals", *(f"{n:,} pages" if n else "no clicks" for n in pages)]
        title = f"## Coverage of 90 % intervals (and their width), all pairs, {name}"
        lines += [title, "", *table(head, rows)]
    return lines


def coverage_markdown(rows: list[dict[str, Any]]) -> list[str]:
    frame = pl.DataFrame(rows)
    lines = []
    for title, by in (
        ("by world and pages", ["world", "pages"]),
        ("by what clicks were helped by", ["judge"]),
        ("by ranker", ["run"]),
    ):
        table_rows = []
        for key in frame.select(by).unique(maintain_order=True).rows():
            own = frame.filter(
                pl.all_horizontal(pl.col(n) == k for n, k in zip(by, key, strict=True))
            )
            cells = []
            for what in ("nDCG", "difference", "confusion"):
                some = own.filter(pl.col("what") == what)
                if some.is_empty():
                    cells.append("-")
                    continue
                held, width, off = some.select("held", "width", "off").mean().row(0)
                tail = "" if what == "confusion" else f", off by {off:.3f}"
                cells.append(f"**{held:.2f}** ({width:.2f} wide{tail})")
            table_rows.append([*(f"{k:,}" if isinstance(k, int) else k for k in key), *cells])
        head = [*by, f"nDCG@{AT}", "differences", "confusions"]
        lines += [f"## Held, {title}", "", *table(head, table_rows)]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["tables", "coverage"])
    parser.add_argument("--logs", type=int, help="simulated logs of each kind")
    parser.add_argument("--only", default="", help="worlds with this in their name")
    parser.add_argument("--pages", type=int, nargs="*", default=list(PAGES))
    parser.add_argument("--folder", type=Path, default=RESULTS)
    parser.add_argument("--keep", type=Path, help="keep what logs gave in this folder, and use it")
    asked = parser.parse_args()
    if "tables" in asked.parts:
        _tables(asked)
    if "coverage" in asked.parts:
        _coverage(asked)


def _tables(asked: argparse.Namespace) -> None:
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    # Seeds last, so that what is there is about all kinds if somebody has to stop it.
    for seed in range(FIRST_TOLD, FIRST_TOLD + (asked.logs or N_LOGS)):
        for n_pages in asked.pages:
            for name in WORLDS:
                if asked.only in name:
                    of_log = _kept(asked.keep, run_of, name, n_pages, seed)
                    found.setdefault((name, n_pages), []).append(of_log)
        _write(_tables_text(found), asked.folder / "judges.md")


def _tables_text(found: dict[tuple[str, int], list[dict[str, Any]]]) -> list[str]:
    return [
        "# Clicks with other judges",
        "",
        "Made by `make judges`: 100 queries with 20 candidates each, traffic by Zipf, in worlds",
        "that share no code with the package. All 2,000 pairs are asked about, also those that no",
        "page shows. A judge gives four grades; so often it gives the right one, else any. Judges",
        "alone know which end of their scale is good; the blend has to learn it, and words have no",
        "order without clicks. With no clicks a model was fitted to pages of other queries.",
        f"Logs of each kind, to take means of: {_from_to(list(map(len, found.values())))}, none of",
        "them those that a constant of the package was chosen by.",
        "",
        *as_markdown(found),
    ]


def _from_to(numbers: list[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(most) if least == most else f"{least} to {most}"


def _coverage(asked: argparse.Namespace) -> None:
    found: dict[tuple[str, int], list[list[dict[str, Any]]]] = {}
    for name in (*WORLDS, *OTHERS):
        for n_pages in filter(None, asked.pages):
            if asked.only in name:
                for seed in range(FIRST, FIRST + (asked.logs or N_COVERED)):
                    of_log = _kept(asked.keep, covered, name, n_pages, seed)
                    found.setdefault((name, n_pages), []).append(of_log)
    _write(_coverage_text(found), asked.folder / "judges_coverage.md")


def _coverage_text(found: dict[tuple[str, int], list[list[dict[str, Any]]]]) -> list[str]:
    n_logs = _from_to(list(map(len, found.values())))
    return [
        "# How often intervals hold the truth",
        "",
        f"Made by `make judges`: 90 % intervals of nDCG@{AT} of three rankers (one by lot, the one",
        "that made the log or would have, one that knows half of the truth), of the differences of",
        "the later two from the first, and of all cells of confusions with at least ten pairs.",
        "With clicks alone and with one judge beside them; 100 queries with 20 candidates as in",
        f"judges.md. Logs of each kind: {n_logs}; intervals of one",
        "log err together. Errors that pairs have in common were given their size by other logs of",
        "the same worlds.",
        "",
        *coverage_markdown([row for logs in found.values() for log in logs for row in log]),
    ]


def _kept(
    keep: Path | None, measure: Callable[..., Any], name: str, n_pages: int, seed: int
) -> Any:
    """What a log gave: as kept, or measured now."""
    kept = keep and keep / f"{measure.__name__}-{name.replace(' ', '_')}-{n_pages}-{seed}.json"
    if kept and kept.exists():
        return json.loads(kept.read_text())
    began = time.process_time()
    found = measure(name, n_pages, seed)
    _say(f"{name}, {n_pages:,} pages, {seed}: {time.process_time() - began:.0f} CPU s")
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found))
    return found


def _write(lines: list[str], output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(lines).rstrip() + "\n")
    print(output.read_text())


def _say(text: str) -> None:
    print(f"[{time.perf_counter() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
