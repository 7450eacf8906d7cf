"""The paper's third question: how far do networks behind coins close the gap to a black box?

On simulated logs, whose truth is known, RCTR, DBN and UBM are fitted with tables, with features,
with networks behind coins and with a recurrent network behind one coin, beside NCM, which is
nothing but a recurrent network. All are scored on the same pages, which none has seen; then comes
what only those with hidden events can say, held against what really happened.

Run it with `gecasmo gap`: some three minutes of a processor. Results are kept as they come
(`--keep FOLDER`), and a run that was stopped goes on from there. The tables and the chart of
docs/gap.md come from `make gap`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo import (
    DBN,
    NCM,
    RCTR,
    UBM,
    AttentiveNCM,
    Gradient,
    Logistic,
    Recurrent,
    Sum,
    Table,
    Torch,
)
from gecasmo.errors import extra
from gecasmo.experiments.gap_worlds import World, make_world
from gecasmo.model import Model
from gecasmo.plots import save
from gecasmo.plots.theme import BLUE, GREY, ORANGE, WIDTH, altair, finished
from gecasmo.report import Column, TextTable

Floats = NDArray[np.float64]

WORLDS = ("all", "paper")
TRAIN, TEST, SEED = 4_500, 1_500, 1
BLACK_BOX, BASE, TRUTH = "NCM, recurrent", "DBN, tables", "truth"
DECAY = 3.0  # of all networks alike
_SAMPLES, _LEVEL = 2_000, 0.9
_BEGIN, _END = "<!-- made by `make gap` -->", "<!-- end of what is made -->"


# -- who takes part ----------------------------------------------------------------------------
@dataclass(frozen=True)
class GapContender:
    """A model in the comparison: how it is called, how it is made for a world, how it is fitted."""

    name: str
    make: Callable[[World], Model]
    method: Any = None
    has_events: bool = True  # hidden ones


def _features(world: World) -> Any:
    """Effects of the pair, and of all that is known of results and pages."""
    return Sum(Table(*world.pair), Logistic(*world.numbers, *world.texts))


def _network(world: World) -> Any:
    """Thirty-two units between all that is known of a result and its logit."""

    def make(sizes: Any) -> Any:
        import torch

        return _Mixed(torch, sizes)

    columns = (*world.numbers, *world.texts, *world.pair)
    return Torch(make, *columns, categorical=world.pair, weight_decay=DECAY)


def _Mixed(torch: Any, sizes: Any) -> Any:
    class Mixed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.vectors = torch.nn.ModuleList(
                torch.nn.Embedding(n + 1, 8, padding_idx=0) for n in sizes.n_levels.values()
            )
            width = sizes.n_numeric + 8 * len(sizes.n_levels)
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(width, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
            )

        def forward(self, x: Any, c: Any) -> Any:
            vectors = [table(c[:, n]) for n, table in enumerate(self.vectors)]
            return self.layers(torch.cat([x, *vectors], dim=1))

    return Mixed()


def _recurrent(world: World, module: str = "gru") -> Any:
    return Recurrent(module, *world.numbers, *world.texts, ids=world.ids, weight_decay=DECAY)


def _dbn(form: Callable[[World], Any]) -> Callable[[World], Model]:
    return lambda world: DBN(attraction=form(world), satisfaction=form(world))


def _ubm(form: Callable[[World], Any]) -> Callable[[World], Model]:
    return lambda world: UBM(attraction=form(world))


def _tables(world: World) -> Any:
    return Table(key=world.pair)


def _page_facts(world: World) -> Any:
    """What is known of a page as a whole, and the number of clicks above."""
    texts = tuple(name for name in world.texts if name == "device")
    columns = (*texts, "clicks_above")
    return Logistic(*columns, key=columns)


_STEPS = Gradient(lr=0.01, epochs=60, batch_size=128, validation=0.1, patience=4)

CONTENDERS = (
    GapContender("RCTR", lambda world: RCTR(), has_events=False),
    GapContender("DBN, tables", _dbn(_tables)),
    GapContender("UBM, tables", _ubm(_tables)),
    GapContender("DBN, features", _dbn(_features)),
    GapContender("UBM, features", _ubm(_features)),
    GapContender(
        "DBN, features and clicks above",
        lambda world: DBN(
            attraction=_features(world),
            satisfaction=_features(world),
            continuation=_page_facts(world),
        ),
    ),
    GapContender("DBN, networks", _dbn(_network), _STEPS),
    GapContender("UBM, networks", _ubm(_network), _STEPS),
    GapContender(
        "DBN, recurrent continuation",
        lambda world: DBN(
            attraction=_tables(world), satisfaction=_tables(world), continuation=_recurrent(world)
        ),
        _STEPS,
    ),
    GapContender(
        "DBN, recurrent attraction",
        lambda world: DBN(attraction=_recurrent(world), satisfaction=_tables(world)),
        _STEPS,
    ),
    GapContender("UBM, recurrent attraction", _ubm(_recurrent), _STEPS),
    GapContender(BLACK_BOX, lambda w: NCM(click_rate=_recurrent(w)), _STEPS, has_events=False),
    GapContender(
        "NCM, attention",
        lambda world: AttentiveNCM(click_rate=_recurrent(world, "attention")),
        _STEPS,
        has_events=False,
    ),
)


# -- one model on one world --------------------------------------------------------------------
@dataclass(frozen=True)
class GapScore:
    """What a model scored on the test pages of a world, and what its hidden events are like.

    `examination` is the Brier score of what it says of who examined what, given all clicks of a
    page; `attraction` and `satisfaction` are root mean squared errors of its probabilities at
    results that were examined (satisfaction: clicked). None where it says nothing.
    """

    world: str
    model: str
    sessions: list[float]
    marginal: float | None
    conditional: float | None
    seconds: float
    examination: float | None = None
    attraction: float | None = None
    satisfaction: float | None = None

    @property
    def log_likelihood(self) -> float:
        """Per session."""
        return float(np.mean(self.sessions))


def score(world: World, contender: GapContender) -> GapScore:
    """Fit a contender on a world, and look at it."""
    began = time.process_time()
    model = contender.make(world).fit(world.train, contender.method, progress=False)
    seconds = time.process_time() - began
    found = model.evaluate(world.test)
    events = hidden_events(world, model) if contender.has_events else {}
    return GapScore(
        world.name,
        contender.name,
        np.round(model.log_likelihood(world.test), 6).tolist(),
        found.marginal.pooled,
        found.conditional.pooled,
        seconds,
        **events,
    )


def hidden_events(world: World, model: Model) -> dict[str, float]:
    """How far what a model says of hidden events is from what happened."""
    said = model.posterior(world.test)
    name = "examination_heads" if "examination_heads" in said.columns else "reached"
    examined = world.hidden["examined"].to_numpy().astype(bool)
    found = {"examination": float(np.mean((said[name].to_numpy() - examined) ** 2))}
    where = {"attraction": examined, "satisfaction": world.test.click}
    for coin, rows in where.items():
        if coin in model.forms:
            error = model.probability(coin, world.test) - world.hidden[coin].to_numpy()
            found[coin] = float(np.sqrt(np.mean(error[rows] ** 2)))
    return found


# -- all of them -------------------------------------------------------------------------------
@dataclass(frozen=True)
class GapResult:
    """All scores of a run."""

    scores: list[GapScore]
    n_train: int
    n_test: int

    @property
    def worlds(self) -> list[str]:
        """Their names, in the order of the run."""
        return list(dict.fromkeys(score.world for score in self.scores))

    def table(self, world: str) -> pl.DataFrame:
        """A row per model of a world.

        `lead` is the log-likelihood per session minus that of NCM; `closed` the share of the way
        from DBN with tables to NCM, null where NCM is not clearly better than that. Both have
        intervals by a bootstrap over sessions.
        """
        scores = {score.model: score for score in self.scores if score.world == world}
        each = np.array([score.sessions for score in scores.values()])
        rng = np.random.default_rng(0)
        drawn = rng.integers(0, each.shape[1], (_SAMPLES, each.shape[1]))
        samples = np.stack([row[drawn].mean(axis=1) for row in each])
        names = list(scores)
        box, base = names.index(BLACK_BOX), names.index(BASE)
        means, tails = each.mean(axis=1), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]
        lead = samples - samples[box]
        has_lead = np.quantile(samples[box] - samples[base], tails[0]) > 0
        rows = []
        for number, score in enumerate(scores.values()):
            low, high = np.quantile(lead[number], tails)
            row = {
                "model": score.model,
                "log_likelihood": means[number],
                "marginal": score.marginal,
                "conditional": score.conditional,
                "lead": means[number] - means[box],
                "low": low,
                "high": high,
                "closed": None,
                "closed_low": None,
                "closed_high": None,
                "seconds": score.seconds,
                "examination": score.examination,
                "attraction": score.attraction,
                "satisfaction": score.satisfaction,
            }
            if has_lead:
                share = (samples[number] - samples[base]) / (samples[box] - samples[base])
                row["closed"] = (means[number] - means[base]) / (means[box] - means[base])
                row["closed_low"], row["closed_high"] = np.quantile(share, tails)
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)


def run_gap(
    worlds: Sequence[str] = WORLDS,
    n_train: int = TRAIN,
    n_test: int = TEST,
    contenders: Sequence[GapContender] = CONTENDERS,
    seed: int = SEED,
    keep: Path | None = None,
    tell: Callable[[str], None] | None = None,
) -> GapResult:
    """Fit and score all contenders on all worlds.

    Parameters
    ----------
    keep
        A folder in which each result is kept as soon as it is there; what is there is not done
        again.
    tell
        Called with a few words before each step.
    """
    extra("torch", "gecasmo gap", "gecasmo[torch]").set_num_threads(1)
    scores = []
    for name in worlds:
        world: World | None = None
        for contender in contenders:
            kept = None
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                words = (name, contender.name, str(n_train), str(n_test), str(seed))
                kept = keep / ("_".join(words).replace(", ", "_").replace(" ", "_") + ".json")
                if kept.is_file():
                    scores.append(GapScore(**json.loads(kept.read_text(encoding="utf-8"))))
                    continue
            world = world or make_world(name, n_train, n_test, seed)
            if tell is not None:
                tell(f"{name}: {contender.name}")
            scores.append(score(world, contender))
            if kept is not None:
                kept.write_text(json.dumps(asdict(scores[-1])), encoding="utf-8")
        world = world or make_world(name, n_train, n_test, seed)
        truth = np.round(world.truth, 6).tolist()
        scores.append(GapScore(name, TRUTH, truth, None, None, 0.0))
    return GapResult(scores, n_train, n_test)


# -- for people --------------------------------------------------------------------------------
_HEADINGS = {
    "log_likelihood": "log-\nlikelihood",
    "lead": "minus\nNCM's",
    "closed": "of NCM's\nlead",
    "marginal": "marginal\nperplexity",
    "conditional": "conditional\nperplexity",
    "seconds": "CPU seconds\nto fit",
}
_EVENTS = {
    "examination": "examination\nBrier",
    "attraction": "attraction\nRMSE",
    "satisfaction": "satisfaction\nRMSE",
}
TITLES = {
    "all": "Redundancy, tiredness and device",
    "redundancy": "Redundancy",
    "tiredness": "Tiredness",
    "device": "Device",
    "paper": "The paper's simulation",
}


def _cell(row: dict[str, Any], name: str) -> str:
    value = row[name]
    if value is None or (name == "seconds" and not value):
        return ""
    if name == "closed":
        return f"{value:.0%} ({row['closed_low']:.0%} to {row['closed_high']:.0%})"
    if name == "lead":
        return f"{value:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})"
    digits = {"seconds": 1, "log_likelihood": 3}.get(name, 4 if name in _HEADINGS else 3)
    return f"{value:.{digits}f}"


def _cells(table: pl.DataFrame, headings: dict[str, str]) -> list[Column]:
    rows = table.rows(named=True)
    columns = [Column("model", table["model"].to_list(), is_text=True)]
    return columns + [
        Column(heading, [_cell(row, name) for row in rows]) for name, heading in headings.items()
    ]


def told(result: GapResult) -> str:
    """All tables, for a terminal."""
    parts = []
    for world in result.worlds:
        table = result.table(world)
        parts.append(str(TextTable(_cells(table, _HEADINGS), TITLES[world])))
        events = table.filter(pl.col("examination").is_not_null())
        parts.append(str(TextTable(_cells(events, _EVENTS), "What hidden events say")))
    parts.append(
        f"{result.n_train:,} pages to fit, {result.n_test:,} to score. Intervals of {_LEVEL:.0%}, "
        "by a bootstrap over sessions."
    )
    return "\n\n".join(parts)


def markdown(result: GapResult) -> str:
    """The same for docs/gap.md."""
    lines = [_BEGIN, ""]
    for world in result.worlds:
        table = result.table(world)
        events = table.filter(pl.col("examination").is_not_null())
        for title, rows, headings in (
            (TITLES[world], table, _HEADINGS),
            (f"{TITLES[world]}: hidden events", events, _EVENTS),
        ):
            columns = _cells(rows, headings)
            lines += [f"### {title}", ""]
            lines.append("| " + " | ".join(c.heading.replace("\n", " ") for c in columns) + " |")
            lines.append("|---" * len(columns) + "|")
            cells = zip(*(column.cells for column in columns), strict=True)
            lines += ["| " + " | ".join(row) + " |" for row in cells]
            lines.append("")
    return "\n".join([*lines, _END])


def write_docs(result: GapResult, path: Path) -> None:
    """Put the tables into a page of the documentation, between its two marks."""
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    path.write_text(before + markdown(result) + after, encoding="utf-8")


def draw_gap(result: GapResult, path: str | Path) -> None:
    """How far each model is from NCM, with intervals."""
    alt = altair()
    charts = []
    for world in result.worlds:
        table = result.table(world).filter(pl.col("model") != "RCTR")
        is_box = pl.col("model").str.starts_with("NCM")
        kind = pl.when(pl.col("model") == TRUTH).then(pl.lit("the truth"))
        other = pl.when(is_box).then(pl.lit("black box")).otherwise(pl.lit("hidden events"))
        frame = table.with_columns(kind=kind.otherwise(other))
        base = alt.Chart(frame.select("model", "lead", "low", "high", "kind"))
        y = alt.Y("model:N", sort=None, title=None)
        colour = alt.Color(
            "kind:N",
            title=None,
            sort=None,
            scale=alt.Scale(
                domain=["hidden events", "black box", "the truth"], range=[BLUE, ORANGE, GREY]
            ),
        )
        x = alt.X("lead:Q", title="log-likelihood per session, minus NCM's")
        points = base.mark_point(filled=True, size=80).encode(x=x, y=y, color=colour)
        bars = base.mark_rule(strokeWidth=2).encode(
            x=alt.X("low:Q"), x2="high:Q", y=y, color=colour
        )
        zero = alt.Chart(pl.DataFrame({"x": [0.0]})).mark_rule(strokeDash=[4, 3], color=GREY)
        chart = zero.encode(x="x:Q") + bars + points
        title = alt.TitleParams(TITLES[world], fontSize=14, fontWeight="normal", offset=8)
        charts.append(chart.properties(title=title, width=WIDTH, height=280))
    whole = alt.vconcat(*charts, spacing=28)
    save(finished(whole, "Networks behind coins, and a black box"), path)
