"""Beyond the paper: what features of users and items add, with the hidden events still readable.

Item tables know how much an item attracts on average. What is left to the oracle is who is
looking: in this simulation users like what is near, so a user's position is worth all the rest,
and a user's earlier clicks say a little about that position.

How far do features close the distance from item tables to the oracle, and can we still read what
happened behind the clicks? Run it with `python examples/beyond_the_paper.py` (a few minutes), or
`--seeds 1 --users 2000` for a first look. Numbers and the chart of docs/paper.md come from here.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo import DBN, ClickLog, Gradient, Logistic, Sum, Table, Torch, read_log
from gecasmo.experiments.paper import PLACE, SEEDS, TEST_SHARE, Contender, panel_title
from gecasmo.model import Model
from gecasmo.plots import save
from gecasmo.plots.theme import BLACK, BLUE, GREY, LIGHT, ORANGE, altair, finished
from gecasmo.simulation import Simulated, paper_log

ALL_PLACES = (*PLACE, "user_x", "user_y")
PAST = ("past_distance", "past_clicks", "has_past")


def described_log(simulated: Simulated) -> ClickLog:
    """The simulated log with more columns.

    - `radius`: how far an item is from the middle, where most users are
    - `log_distance`: of item and user, which a real system does not know
    - `log_crowding`: how much there is near a user, summed over items as 1 / distance
    - `past_distance`, `past_clicks`, `has_past`: logarithm of the distance to the middle of what
      the user clicked in earlier sessions, their number, and whether there are any
    """
    frame = _with_past(simulated.log.to_frame())
    users, items = simulated.users, simulated.items
    points = items.select(*PLACE).to_numpy()
    gaps = users.select("user_x", "user_y").to_numpy()[:, None] - points[None]
    nearness = (1 / np.sqrt((gaps**2).sum(axis=2))).sum(axis=1)
    crowding = users.select("user").with_columns(log_crowding=pl.Series(np.log(nearness)))
    distance = _distance("user_x", "user_y")
    frame = frame.join(crowding, on="user", how="left", maintain_order="left").with_columns(
        radius=(pl.col("item_x") ** 2 + pl.col("item_y") ** 2).sqrt(),
        distance_to_user=distance,
        log_distance=distance.log(),
    )
    return read_log(frame)


def _distance(x: str, y: str) -> pl.Expr:
    gap = (pl.col(x) - pl.col("item_x")) ** 2 + (pl.col(y) - pl.col("item_y")) ** 2
    return gap.sqrt()


def _with_past(frame: pl.DataFrame) -> pl.DataFrame:
    """What each user clicked in earlier sessions; never anything of the session itself."""
    clicked = pl.col("click").cast(pl.Float64)
    visits = (
        frame.group_by("user", "visit")
        .agg(
            n=clicked.sum(),
            x=(clicked * pl.col("item_x")).sum(),
            y=(clicked * pl.col("item_y")).sum(),
        )
        .sort("user", "visit")
        .with_columns((pl.col("n", "x", "y").cum_sum() - pl.col("n", "x", "y")).over("user"))
    )
    joined = frame.join(visits, on=["user", "visit"], how="left", maintain_order="left")
    # One click more, in the middle of all users: an estimate for those without a past too.
    middle = joined.with_columns(
        px=pl.col("x") / (pl.col("n") + 1), py=pl.col("y") / (pl.col("n") + 1)
    )
    has_past = pl.col("n") > 0
    described = middle.with_columns(
        past_clicks=pl.col("n"),
        has_past=has_past,
        past_distance=pl.when(has_past)
        .then(_distance("px", "py").clip(lower_bound=0.01).log())
        .otherwise(0.0),
    )
    return described.drop("n", "x", "y", "px", "py")


def _network(n_inputs: int) -> Any:
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Linear(n_inputs, 32),
            torch.nn.Tanh(),
            torch.nn.Linear(32, 32),
            torch.nn.Tanh(),
            torch.nn.Linear(32, 1),
        )


def _both(form: Callable[[], Any]) -> Callable[[], Model]:
    return lambda: DBN(attraction=form(), satisfaction=form())


CONTENDERS = (
    Contender("item tables", _both(lambda: Table(key="doc"))),
    Contender("item: radius, logistic", _both(lambda: Logistic("radius"))),
    Contender("item: radius + table", _both(lambda: Sum(Logistic("radius"), key="doc"))),
    Contender(
        "item + earlier clicks",
        _both(lambda: Logistic("doc", *PAST, categorical="doc")),
    ),
    Contender("user: log distance, logistic", _both(lambda: Logistic("log_distance"))),
    Contender(
        "user: log distance and crowding",
        _both(lambda: Logistic("log_distance", "log_crowding")),
    ),
    Contender(
        "user and item position, network",
        _both(lambda: Torch(_network(4), *ALL_PLACES)),
        needs_torch=True,
        method=Gradient(lr=0.005, epochs=30, batch_size=256, validation=0.1),
    ),
)


@dataclass(frozen=True)
class Beyond:
    """Scores, and what the models of the last seed say about hidden events.

    `scores` has a row per seed and model; `by_distance` true and fitted attraction and
    satisfaction by distance of user and item; `by_rank` true and inferred examination;
    `coefficients` those of attraction by distance and crowding, if that was fitted.
    """

    scores: pl.DataFrame
    by_distance: pl.DataFrame
    by_rank: pl.DataFrame
    coefficients: pl.DataFrame | None = None

    def means(self) -> pl.DataFrame:
        """Means over seeds, and the share of the way from item tables to the oracle."""
        means = self.scores.group_by("model", maintain_order=True).agg(
            pl.col("marginal", "conditional", "continuation", "seconds").mean()
        )
        marginal = dict(zip(means["model"], means["marginal"], strict=True))
        start, end = marginal["item tables"], marginal["oracle"]
        return means.with_columns(way=(start - pl.col("marginal")) / (start - end))


def run_beyond(
    seeds: Sequence[int] = SEEDS[:4],
    n_users: int = 20_000,
    contenders: Sequence[Contender] = CONTENDERS,
    tell: Callable[[str], None] | None = None,
) -> Beyond:
    """Fit DBN with ever more features, on every seed."""
    scores: list[dict[str, Any]] = []
    for seed in seeds:
        simulated = paper_log(seed, n_users=n_users)
        train, test = described_log(simulated).split(test=TEST_SHARE, by="user", seed=seed)
        models: dict[str, Model] = {}
        for contender in contenders:
            if not contender.is_available:
                continue
            if tell is not None:
                tell(f"seed {seed}: {contender.name}")
            began = time.perf_counter()
            model = models[contender.name] = contender.make().fit(
                train, contender.method, progress=False
            )
            scores.append(_score(seed, contender.name, model, test, time.perf_counter() - began))
        scores.append(_score(seed, "oracle", simulated.oracle, test, 0.0))
    read = models.get("user: log distance and crowding")
    coefficients = None if read is None else read.coefficients["attraction"]
    models["truth"] = simulated.oracle
    return Beyond(
        pl.DataFrame(scores), _by_distance(models, test), _by_rank(models, test), coefficients
    )


def _score(seed: int, name: str, model: Model, test: ClickLog, seconds: float) -> dict[str, Any]:
    evaluation = model.evaluate(test)
    continuation = model.parameters["continuation"]["probability"]
    return {
        "seed": seed,
        "model": name,
        "marginal": evaluation.marginal.pooled,
        "conditional": evaluation.conditional.pooled,
        "continuation": float(continuation[0]) if len(continuation) == 1 else None,
        "seconds": seconds,
    }


def _by_distance(models: dict[str, Model], test: ClickLog) -> pl.DataFrame:
    """Mean attraction and satisfaction of shown results, by distance of user and item."""
    frame = test.to_frame()
    steps = np.arange(0, 4.01, 0.25)
    place = np.digitize(frame["distance_to_user"].to_numpy(), steps)
    parts = []
    for name, model in models.items():
        columns = {coin: model.probability(coin, frame) for coin in ("attraction", "satisfaction")}
        binned = pl.DataFrame({"bin": place, **columns}).filter(pl.col("bin") < len(steps))
        means = binned.group_by("bin").agg(pl.col("attraction", "satisfaction").mean(), n=pl.len())
        parts.append(means.sort("bin").with_columns(model=pl.lit(name)))
    middle = (pl.col("bin") - 0.5) * 0.25
    return pl.concat(parts).with_columns(distance=middle).drop("bin")


def _by_rank(models: dict[str, Model], test: ClickLog) -> pl.DataFrame:
    """How likely each rank was reached, given everything seen on the page."""
    parts = []
    for name, model in models.items():
        posterior = model.posterior(test)
        means = posterior.group_by("rank").agg(pl.col("reached").mean()).sort("rank")
        parts.append(means.with_columns(model=pl.lit(name)))
    return pl.concat(parts)


_SHOWN = {
    "truth": "truth",
    "item tables": "item tables",
    "user: log distance and crowding": "logistic, user known",
    "user and item position, network": "network, user known",
}


def draw_beyond(result: Beyond, path: str | Path) -> None:
    """How far each model gets, and what it says about the events behind the clicks."""
    alt = altair()
    distance = ("distance", "distance of user and item", alt.Scale(domain=[0, 4]))
    rank = ("rank", "rank", alt.Scale(domain=[0.5, 10.5], nice=False))
    attraction = _lines(result.by_distance, distance, "attraction", "Attraction")
    examination = _lines(
        result.by_rank, rank, "reached", "Examination: was a rank reached?", legend=None
    )
    satisfaction = _lines(result.by_distance, distance, "satisfaction", "Satisfaction", legend=None)
    chart = alt.vconcat(
        alt.hconcat(_way(result.means()), attraction, spacing=30),
        alt.hconcat(examination, satisfaction, spacing=30),
        spacing=30,
    )
    save(finished(chart, "What features of users and items add"), path)


def _lines(
    frame: pl.DataFrame, along: tuple[str, str, Any], value: str, title: str, **legend: None
) -> Any:
    """What models say in lines of their own, over what is true in a broad one."""
    alt = altair()
    field, words, scale = along
    rows = frame.with_columns(pl.col("model").replace(_SHOWN))
    base = alt.Chart(rows).encode(
        x=alt.X(f"{field}:Q", title=words, scale=scale, axis=alt.Axis(grid=False)),
        y=alt.Y(f"{value}:Q", title="probability", scale=alt.Scale(domain=[0, 1])),
    )

    def drawn(looks: dict[str, tuple[str, list[int]]], width: int) -> Any:
        colours, dashes = zip(*looks.values(), strict=True)
        names = list(looks)
        return (
            base.transform_filter(alt.FieldOneOfPredicate("model", names))
            .mark_line(strokeWidth=width)
            .encode(
                color=alt.Color("model:N", title=None, scale=_scale(names, colours), **legend),
                strokeDash=alt.StrokeDash(
                    "model:N", title=None, scale=_scale(names, dashes), **legend
                ),
            )
        )

    said = {
        "item tables": (BLACK, [2, 2]),
        "logistic, user known": (BLUE, [1, 0]),
        "network, user known": (ORANGE, [8, 4]),
    }
    chart = alt.layer(drawn({"truth": (LIGHT, [1, 0])}, 8), drawn(said, 2))
    return chart.resolve_scale(color="independent", strokeDash="independent").properties(
        title=panel_title(title), width=_PANEL, height=260
    )


def _scale(names: Sequence[str], values: Sequence[Any]) -> Any:
    return altair().Scale(domain=list(names), range=list(values))


_PANEL = 400


def _way(means: pl.DataFrame) -> Any:
    """The perplexity of each model, down to that of the oracle."""
    alt = altair()
    lowest, *_, highest = means["marginal"].sort()
    start = lowest - 0.004
    base = alt.Chart(means.select("model", "marginal")).encode(
        x=alt.X(
            "marginal:Q",
            title="marginal perplexity on users never seen",
            scale=alt.Scale(domain=[start, highest + 0.003], nice=False),
            axis=alt.Axis(format=".3f", tickCount=5),
        ),
        y=alt.Y("model:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
    )
    colour = alt.condition("datum.model == 'oracle'", alt.value(GREY), alt.value(BLUE))
    bars = base.mark_bar(clip=True).encode(x2=alt.datum(start), color=colour)
    words = base.mark_text(align="left", dx=4, fontSize=12).encode(
        text=alt.Text("marginal:Q", format=".4f")
    )
    return (bars + words).properties(
        title=panel_title("How far each model gets"), width=_PANEL, height=260
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="how many logs to simulate")
    parser.add_argument("--users", type=int, default=20_000, help="users of each log")
    parser.add_argument("--chart", help="draw into this file (.png, .svg, .html or .json)")
    asked = parser.parse_args()
    result = run_beyond(
        SEEDS[: asked.seeds], asked.users, tell=lambda words: print(f"  {words}", flush=True)
    )
    print(f"\n{'model':<34}{'marginal':>10}{'conditional':>13}{'of the way':>12}{'seconds':>9}")
    for row in result.means().rows(named=True):
        print(
            f"{row['model']:<34}{row['marginal']:>10.4f}{row['conditional']:>13.4f}"
            f"{row['way']:>12.0%}{row['seconds']:>9.1f}"
        )
    print("\nAttraction by log distance and crowding, coefficients of the last log:")
    print(result.coefficients)
    if asked.chart:
        draw_beyond(result, asked.chart)
        print(f"\nThe chart is in {asked.chart}.")


if __name__ == "__main__":
    main()
