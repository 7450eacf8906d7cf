"""Which model for a log of which nothing is known: ten kinds of users, and held-out pages.

    PYTHONPATH=. python -m benchmarks.general --logs 4 --auto 2

Writes benchmarks/results/general.md; logs that are in general.jsonl are not measured again.

The simulator is plain NumPy and shares no code with the package. Users of seven worlds click by a
model of the zoo; those of the other three by none of them. Every candidate is fitted to the same
pages, and all are scored on pages that none has seen. `gecasmo fit auto` chooses among its own
candidates by the pages to learn from alone.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from benchmarks.markdown import table
from benchmarks.report import RESULTS
from gecasmo import ClickLog, read_log
from gecasmo.evaluation.selection import CANDIDATES, select_model
from gecasmo.models import CATALOGUE

QUERIES, DOCS, LENGTH, PAGES, TEST_PAGES = 30, 12, 8, 1_500, 6_000
MODELS = ("RCTR", "PBM", "UBM", "DCM", "SDBN", "DBN", "CCM", "TwoRate", "Picky")
AUTO = "`fit auto`"
SCORES = RESULTS / "general.jsonl"


class Pages:
    """What users see: how much each shown result attracts and satisfies, by page and rank."""

    def __init__(self, rng: Any, attraction: Any, satisfaction: Any, other: Any) -> None:
        self.rng, self.attraction, self.satisfaction = rng, attraction, satisfaction
        self.other = other  # what attracts in another sense of the query
        self.n = len(attraction)

    def chance(self) -> Any:
        """One number for each page."""
        return self.rng.random(self.n)


def cascade(pages: Pages, after_click: Any, after_skip: Any, picky: Any = 0.0) -> Any:
    """Users who read downwards and leave by rates after clicks and after skips, by rank; a share of
    them clicks only what attracts twice."""
    click, there = np.zeros(pages.attraction.shape, bool), np.ones(pages.n, bool)
    twice = pages.chance() < picky
    for rank in range(LENGTH):
        attracts = pages.attraction[:, rank]
        p = np.where(twice, attracts**2, attracts)
        click[:, rank] = there & (pages.chance() < p)
        rate = np.where(click[:, rank], after_click(rank), after_skip(rank))
        there &= pages.chance() < rate
    return click


def looked_at(pages: Pages, examination: Callable[[int, Any], Any]) -> Any:
    """Users who look at some places more than at others, whatever they found above."""
    click, last = np.zeros(pages.attraction.shape, bool), np.zeros(pages.n, int)
    for rank in range(LENGTH):
        p = examination(rank + 1, last) * pages.attraction[:, rank]
        click[:, rank] = pages.chance() < p
        last = np.where(click[:, rank], rank + 1, last)
    return click


def dbn(pages: Pages, patience: Any = 0.85, power: Any = 1.0, looks: Any = 1.0) -> Any:
    """Users who read on until they are satisfied or tired; each may be as patient and picky, and
    look as closely, as nobody else."""
    click, there = np.zeros(pages.attraction.shape, bool), np.ones(pages.n, bool)
    for rank in range(LENGTH):
        p = looks * pages.attraction[:, rank] ** power
        click[:, rank] = there & (pages.chance() < p)
        done = click[:, rank] & (pages.chance() < pages.satisfaction[:, rank])
        there &= ~done & (pages.chance() < patience)
    return click


def two_senses(pages: Pages) -> Any:
    """Half of the users of each query mean something else."""
    means_other = pages.chance() < 0.5
    pages.attraction = np.where(means_other[:, None], pages.other, pages.attraction)
    return dbn(pages, 0.9)


def after_click(rank: int) -> float:
    return 0.5 + 0.05 * rank


def after_skip(rank: int) -> float:
    return 0.98 - 0.03 * rank


def ccm(pages: Pages) -> Any:
    """Users who flip the same coin again after a click, and leave more often if it falls heads."""
    click, there = np.zeros(pages.attraction.shape, bool), np.ones(pages.n, bool)
    for rank in range(LENGTH):
        p = pages.attraction[:, rank]
        click[:, rank] = there & (pages.chance() < p)
        again = np.where(pages.chance() < p, 0.25, 0.7)
        there &= pages.chance() < np.where(click[:, rank], again, 0.92)
    return click


def all_different(pages: Pages) -> Any:
    """No two users are alike in patience, pickiness and how closely they look."""
    rng, n = pages.rng, pages.n
    return dbn(pages, rng.beta(8, 2, n), np.exp(0.6 * rng.normal(size=n)), rng.beta(9, 1, n))


def some_of_each(pages: Pages) -> Any:
    """A third reads until satisfied, a third looks by place, a third is picky."""
    ways = (dbn(pages), by_place(pages), cascade(pages, after_click, after_skip, 1.0))
    which = pages.rng.integers(0, 3, pages.n)
    return np.choose(which[:, None], ways)


def by_place(pages: Pages) -> Any:
    return looked_at(pages, lambda rank, last: rank**-0.7)


# By what the users of a world click; those of the last three by no model of the zoo.
WORLDS: dict[str, Callable[[Pages], Any]] = {
    "PBM": by_place,
    "UBM": lambda p: looked_at(p, lambda rank, last: 0.95 * (rank - last) ** -0.6),
    "DBN": dbn,
    "SDBN": lambda p: dbn(p, 1.0),
    "CCM": ccm,
    "TwoRate": lambda p: cascade(p, after_click, after_skip),
    "Picky": lambda p: cascade(p, after_click, after_skip, 0.5),
    "a query means two things": two_senses,
    "no two users alike": all_different,
    "a third each of DBN, PBM, Picky": some_of_each,
}


def world(name: str, seed: int) -> tuple[ClickLog, ClickLog]:
    """Pages to learn from and pages to be judged by, ordered by a ranker that is often right."""
    rng = np.random.default_rng([seed, list(WORLDS).index(name)])
    attraction = rng.beta(1, 2.5, (QUERIES, DOCS))
    other, satisfaction = rng.permuted(attraction, axis=1), rng.beta(2, 2, (QUERIES, DOCS))
    thought = np.log(attraction / (1 - attraction)) + 1.0 * rng.normal(size=attraction.shape)

    def pages(n: int) -> ClickLog:
        query = rng.integers(0, QUERIES, n)
        score = thought[query] + 1.0 * rng.normal(size=(n, DOCS))
        doc = np.argsort(-score, axis=1)[:, :LENGTH]
        at = query[:, None], doc
        click = WORLDS[name](Pages(rng, attraction[at], satisfaction[at], other[at]))
        return read_log(
            {
                "session": np.repeat(np.arange(n), LENGTH),
                "query": np.repeat(query, LENGTH),
                "doc": doc.ravel(),
                "rank": np.tile(np.arange(1, LENGTH + 1), n),
                "click": click.ravel(),
            }
        )

    return pages(PAGES), pages(TEST_PAGES)


def held_out(name: str, seed: int) -> dict[str, Any]:
    """Held-out log-likelihood a page of every candidate."""
    train, test = world(name, seed)
    return {
        "scores": {
            one: CATALOGUE[one]().fit(train, progress=False, intervals=False).score(test)
            for one in MODELS
        }
    }


def chosen(name: str, seed: int) -> dict[str, Any]:
    """Which candidate `fit auto` takes."""
    return {"chosen": select_model(world(name, seed)[0]).chosen}


def written(known: list[dict[str, Any]]) -> list[str]:
    """How far each candidate is behind the best one, world by world, and at worst."""
    scores = {(one["world"], one["seed"]): one["scores"] for one in known if "scores" in one}
    taken = {(one["world"], one["seed"]): one["chosen"] for one in known if "chosen" in one}
    behind: dict[str, dict[str, list[float]]] = {name: {} for name in WORLDS}
    for (name, seed), own in scores.items():
        best = max(own.values())
        auto = {AUTO: own[taken[name, seed]]} if (name, seed) in taken else {}
        for model, score in {**own, **auto}.items():
            behind[name].setdefault(model, []).append(best - score)
    there = [name for name in WORLDS if behind[name]]
    columns = [*MODELS, *([AUTO] if taken else [])]
    means = {name: {m: float(np.mean(own)) for m, own in behind[name].items()} for name in there}
    rows = []
    for name in there:
        told = Counter(model for (world, _), model in taken.items() if world == name)
        which = ", ".join(f"{model} ({n})" if n > 1 else model for model, n in told.items())
        cells = [f"{means[name][m]:.3f}" if m in means[name] else "" for m in columns]
        rows.append([name, str(len(behind[name][MODELS[0]])), *cells, *([which] if taken else [])])
    for word, how in {"mean": np.mean, "worst": np.max}.items():
        ends = [[means[name][m] for name in there if m in means[name]] for m in columns]
        last = [""] if taken else []
        rows.append([f"**{word}**", "", *(f"{how(own):.3f}" for own in ends), *last])
    last = ["taken by auto"] if taken else []
    return table(["users click by", "logs", *columns, *last], rows)


def main() -> None:
    """Measure what is not there yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=4, help="logs of each world")
    parser.add_argument("--auto", type=int, default=2, help="of so many, what `fit auto` takes")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    known = (
        [json.loads(line) for line in SCORES.read_text().splitlines()] if SCORES.exists() else []
    )
    asked = {"scores": (held_out, options.logs), "chosen": (chosen, options.auto)}
    for what, (measure, n_logs) in asked.items():
        there = {(one["world"], one["seed"]) for one in known if what in one}
        for seed, name in product(range(n_logs), WORLDS):
            if (name, seed) in there:
                continue
            began = time.process_time()
            found = measure(name, seed)
            known.append({"world": name, "seed": seed, **found})
            with SCORES.open("a") as file:
                file.write(json.dumps(known[-1]) + "\n")
            write(known)
            print(name, seed, what, f"{time.process_time() - began:.0f} s", flush=True)
    write(known)


def write(known: list[dict[str, Any]]) -> None:
    """The page, of what is known so far."""
    lines = [
        "# Which model for a log of which nothing is known",
        "",
        f"`python -m benchmarks.general`: users of {len(WORLDS)} kinds, {PAGES:,} pages of "
        f"{LENGTH} results to learn from and {TEST_PAGES:,} to be scored by; {QUERIES} queries "
        f"with {DOCS} documents, in the order of a ranker that is often right. How far the "
        "log-likelihood of a page that was not seen is behind the best candidate of the same log, "
        "mean over logs. Users of the last three kinds click by no model of the zoo. With "
        f"`--auto`, also what {AUTO} takes, which cross-validates {', '.join(CANDIDATES)}.",
        "",
        *written(known),
    ]
    (RESULTS / "general.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
