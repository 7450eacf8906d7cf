"""The experiment of the GCM paper: simulate, split by user, fit, score on users never seen.

The paper fits CZM (here DBN) and UBM to a simulated log, items being described by their position
in the plane, and draws the perplexity by rank on the training sessions. Here the same log is
fitted with several forms, and all are scored on other users.

Run it with `gecasmo paper` (a minute or two); `--seeds 1 --users 2000` for a first look. The
numbers and the bar chart of docs/paper.md come from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo import DBN, RCTR, UBM, Logistic, Sum, Table, Torch
from gecasmo.evaluation import Evaluation
from gecasmo.model import Model
from gecasmo.plots import save
from gecasmo.plots.theme import BLUE, LIGHT, ORANGE, WIDTH, altair, finished
from gecasmo.report import Column, TextTable, counted
from gecasmo.simulation import Simulated, paper_log

Floats = NDArray[np.float64]

PLACE = ("item_x", "item_y")
SEEDS = (1992, *range(1, 100))
TEST_SHARE = 0.3

# Marginal perplexity by rank on the training sessions, read off the paper's bar chart; overall it
# states 1.38 and 1.77. RCTR follows from the click rates that its authors printed.
PUBLISHED = pl.DataFrame(
    {
        "rank": range(1, 11),
        "CZM": [1.996, 1.905, 1.685, 1.495, 1.347, 1.244, 1.171, 1.123, 1.084, 1.058],
        "UBM": [2.553, 10.427, 2.115, 1.981, 1.362, 1.228, 1.178, 1.122, 1.128, 1.059],
        "RCTR": [1.991, 1.895, 1.657, 1.459, 1.312, 1.211, 1.143, 1.099, 1.065, 1.041],
    }
)
PUBLISHED_OVERALL = {"CZM": 1.38, "UBM": 1.77, "RCTR": 1.350}


@dataclass(frozen=True)
class Contender:
    """A model in the comparison: how it is called, and how it is made."""

    name: str
    make: Callable[[], Model]
    needs_torch: bool = False
    method: Any = None  # how to estimate; EM by default

    @property
    def is_available(self) -> bool:
        """Whether what it needs is installed."""
        return not self.needs_torch or find_spec("torch") is not None


def _network() -> Any:
    """Sixteen units between the two coordinates of an item and its logit."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def _dbn(form: Callable[[], Any]) -> Callable[[], Model]:
    return lambda: DBN(attraction=form(), satisfaction=form())


def _ubm(form: Callable[[], Any]) -> Callable[[], Model]:
    return lambda: UBM(attraction=form())


def _by_place() -> Any:
    return Logistic(*PLACE)


def _by_item() -> Any:
    return Table(key="doc")


def _by_network() -> Any:
    return Torch(_network(), *PLACE, weight_decay=1.0)


def _by_both() -> Any:
    return Sum(Logistic(*PLACE), key="doc")


CONTENDERS = (
    Contender("RCTR", RCTR),
    Contender("CZM, sigmoid", _dbn(_by_place)),
    Contender("UBM, sigmoid", _ubm(_by_place)),
    Contender("CZM, network", _dbn(_by_network), needs_torch=True),
    Contender("UBM, network", _ubm(_by_network), needs_torch=True),
    Contender("CZM, item tables", _dbn(_by_item)),
    Contender("UBM, item tables", _ubm(_by_item)),
    Contender("CZM, sum", _dbn(_by_both)),
    Contender("UBM, sum", _ubm(_by_both)),
)
ORACLE = "oracle"


@dataclass(frozen=True)
class PaperScore:
    """One model on one simulated log."""

    seed: int
    name: str
    evaluation: Evaluation
    seconds: float
    continuation: float | None


@dataclass(frozen=True)
class PaperResult:
    """All scores of a run."""

    scores: list[PaperScore]

    @property
    def names(self) -> list[str]:
        """Of all models, in the order of the run."""
        return list(dict.fromkeys(score.name for score in self.scores))

    @property
    def seeds(self) -> list[int]:
        """Of all logs, in the order of the run."""
        return list(dict.fromkeys(score.seed for score in self.scores))

    def overall(self) -> pl.DataFrame:
        """A row per seed and model, with pooled perplexities."""
        return pl.DataFrame(
            {
                "seed": [s.seed for s in self.scores],
                "model": [s.name for s in self.scores],
                "marginal": [s.evaluation.marginal.pooled for s in self.scores],
                "conditional": [s.evaluation.conditional.pooled for s in self.scores],
                "log_likelihood": [s.evaluation.log_likelihood for s in self.scores],
                "continuation": pl.Series([s.continuation for s in self.scores], dtype=pl.Float64),
                "seconds": [s.seconds for s in self.scores],
            }
        )

    def means(self) -> pl.DataFrame:
        """A row per model: means over seeds."""
        numbers = ("marginal", "conditional", "log_likelihood", "continuation", "seconds")
        return self.overall().group_by("model", maintain_order=True).agg(pl.col(numbers).mean())

    def by_rank(self) -> pl.DataFrame:
        """Marginal perplexity by rank, a column per model, means over seeds."""
        frames = [
            score.evaluation.marginal.by_rank.select("rank", "perplexity").with_columns(
                model=pl.lit(score.name)
            )
            for score in self.scores
        ]
        means = pl.concat(frames).group_by("model", "rank", maintain_order=True)
        table = means.agg(pl.col("perplexity").mean())
        return table.pivot(on="model", index="rank", values="perplexity").sort("rank")

    def claims(self) -> list[tuple[str, bool]]:
        """What the project promises of item tables, and whether it holds in this run."""
        table = self.overall()

        def figures(model: str, figure: str) -> Floats:
            return table.filter(pl.col("model") == model)[figure].to_numpy()

        names = ("CZM, item tables", "UBM, item tables")
        dbn, ubm = (figures(name, "marginal") for name in names)
        floor = figures("RCTR", "marginal")
        apart = np.abs(dbn - ubm)
        marginal = [float(values.mean()) for values in (dbn, ubm)]
        conditional = [float(figures(name, "conditional").mean()) for name in names]
        continuation = figures(names[0], "continuation")
        return [
            (
                "CZM and UBM with item tables below RCTR on every seed",
                bool(np.all(dbn < floor) and np.all(ubm < floor)),
            ),
            (
                f"at most 0.002 apart on every seed (most: {apart.max():.4f})",
                bool(np.all(apart <= 0.002)),
            ),
            (
                f"mean marginal perplexity at most 1.355 ({marginal[0]:.4f} and "
                f"{marginal[1]:.4f}; published 1.38 and 1.77)",
                max(marginal) <= 1.355,
            ),
            (
                f"mean conditional perplexity at most 1.323 ({conditional[0]:.4f} and "
                f"{conditional[1]:.4f})",
                max(conditional) <= 1.323,
            ),
            (
                f"continuation 0.90 within 0.02 ({continuation.min():.3f} to "
                f"{continuation.max():.3f})",
                bool(np.all(np.abs(continuation - 0.9) <= 0.02)),
            ),
        ]


def run_paper(
    seeds: Sequence[int] = SEEDS[:4],
    n_users: int = 20_000,
    contenders: Sequence[Contender] = CONTENDERS,
    tell: Callable[[str], None] | None = None,
) -> PaperResult:
    """Simulate, fit and score for every seed.

    Parameters
    ----------
    seeds
        A log is simulated, and split, with each.
    n_users
        Users of a simulation; the paper's 20,000 by default.
    contenders
        What is compared; those that need PyTorch are left out where it is not installed.
    tell
        Called with a few words before each step.
    """
    scores = [
        score
        for seed in seeds
        for score in _scores(seed, n_users, contenders, tell or (lambda words: None))
    ]
    return PaperResult(scores)


def _scores(
    seed: int, n_users: int, contenders: Sequence[Contender], tell: Callable[[str], None]
) -> Iterator[PaperScore]:
    tell(f"seed {seed}: simulating")
    simulated: Simulated = paper_log(seed, n_users=n_users)
    train, test = simulated.log.split(test=TEST_SHARE, by="user", seed=seed)
    for contender in contenders:
        if not contender.is_available:
            continue
        tell(f"seed {seed}: {contender.name}")
        began = time.perf_counter()
        model = contender.make().fit(train, contender.method, progress=False)
        seconds = time.perf_counter() - began
        continuation = None
        if "continuation" in model.forms:
            continuation = float(model.parameters["continuation"]["probability"][0])
        yield PaperScore(seed, contender.name, model.evaluate(test), seconds, continuation)
    yield PaperScore(seed, ORACLE, simulated.oracle.evaluate(test), 0.0, None)


def told(result: PaperResult) -> str:
    """The tables beside the published figures, and whether promises hold."""
    claims = [f"{'yes' if holds else 'NO '}  {claim}" for claim, holds in result.claims()]
    text = f"{_overall(result)}\n\n{_by_rank(result)}\n\n" + "\n".join(claims)
    if not all(contender.is_available for contender in CONTENDERS):
        text += '\n\nWithout PyTorch there are no networks: pip install "gecasmo[torch]".'
    return text


def _overall(result: PaperResult) -> str:
    means = result.means()

    def column(heading: str, name: str, digits: int) -> Column:
        values = means[name]
        return Column(heading, ["" if not value else f"{value:.{digits}f}" for value in values])

    table = TextTable(
        [
            Column("model", means["model"].to_list(), is_text=True),
            column("marginal\nperplexity", "marginal", 4),
            column("conditional\nperplexity", "conditional", 4),
            column("log-\nlikelihood", "log_likelihood", 4),
            column("contin-\nuation", "continuation", 3),
            column("seconds\nto fit", "seconds", 1),
        ],
        f"On users never seen, mean of {counted(len(result.seeds), 'seed')}",
    )
    return (
        f"{table}\n"
        "Pooled perplexity. Published, on training sessions: CZM 1.38, UBM 1.77;\n"
        "from the published click rates alone 1.35. Sigmoid and network read the\n"
        "position of items, the sum adds a table. The oracle knows every user."
    )


def _by_rank(result: PaperResult) -> TextTable:
    ours, means = result.by_rank(), dict(result.means().select("model", "marginal").rows())
    published = ("CZM", "UBM", "RCTR")
    shown = [name for name in result.names if "sum" not in name and "network" not in name]
    columns = [Column("rank", [*map(str, PUBLISHED["rank"]), "all"])]
    for name in published:
        cells = [*(f"{value:.3f}" for value in PUBLISHED[name]), f"{PUBLISHED_OVERALL[name]:.2f}"]
        columns.append(Column(f"{name}\npaper", cells))
    for name in shown:
        cells = [f"{value:.3f}" for value in (*ours[name], means[name])]
        columns.append(Column(name.replace(", item ", "\n").replace(", ", "\n"), cells))
    return TextTable(columns, "Marginal perplexity by rank: the paper's, and ours")


def draw_perplexity(result: PaperResult, path: str | Path) -> None:
    """Perplexity by rank of both models: as published, and here on users never seen."""
    names = {"CZM, item tables": "CZM", "UBM, item tables": "UBM", "RCTR": "RCTR"}
    ours = result.by_rank().select("rank", *names).rename(names)
    logs = counted(len(result.seeds), "simulated log")
    charts = [
        _bars(PUBLISHED, "Published (training sessions)"),
        _bars(ours, f"gecasmo, item tables (users never seen, {logs})"),
    ]
    # Both on one axis, which is logarithmic: one bar is five times as high as all others.
    save(finished(altair().vconcat(*charts, spacing=28), "Marginal perplexity by rank"), path)


def _bars(table: pl.DataFrame, title: str) -> Any:
    alt = altair()
    labels = {"CZM": "CZM", "UBM": "UBM", "RCTR": "click rates of ranks alone"}
    tidy = table.rename(labels).unpivot(index="rank", variable_name="model", value_name="value")
    colours = alt.Scale(domain=list(labels.values()), range=[BLUE, ORANGE, LIGHT])
    place = alt.XOffset("model:N", sort=list(labels.values()))
    base = alt.Chart(tidy).encode(
        x=alt.X("rank:O", title="rank", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(
            "value:Q",
            title="perplexity (1 perfect, 2 a fair coin)",
            scale=alt.Scale(type="log", domain=[1, 11], nice=False),
            axis=alt.Axis(values=[1, 1.5, 2, 3, 5, 10], format="~g"),
        ),
        xOffset=place,
    )
    bars = base.mark_bar().encode(
        y2=alt.datum(1), color=alt.Color("model:N", title=None, scale=colours, sort=None)
    )
    high = base.transform_filter("datum.value > 2.1").mark_text(dy=-7, fontSize=12)
    chart = bars + high.encode(text=alt.Text("value:Q", format=".1f"))
    return chart.properties(title=panel_title(title), width=WIDTH, height=200)


def panel_title(words: str) -> Any:
    """The title of a chart among several, smaller than that of all."""
    return altair().TitleParams(words, fontSize=14, fontWeight="normal", offset=8)
