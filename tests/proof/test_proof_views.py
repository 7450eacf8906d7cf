"""Views of a log: walks against slow ones, answers against enumeration, and laws."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given

from gecasmo import EM, ClickModel, Parameter, flip, load, read_log
from gecasmo.evaluation.contestants import clicks_only
from gecasmo.evaluation.evaluate import predictions
from gecasmo.logs.views import Grids
from gecasmo.models import DBN, UBM, SessionDBN
from oracle.walked import walk_grids, walk_tasks
from strategies.cases import Case, cases, make_plain
from strategies.checks import close_to, many
from strategies.trees import as_model
from strategies.views import ViewCase, random_table, zoo_under

pytestmark = pytest.mark.usefixtures("plain_kernels")


class GridReader(ClickModel):
    """Reads some rows, and along them, with what it knows of clicks above."""

    view = "grids"
    attraction = Parameter("query", "doc")
    entry = Parameter("row", "last_click")
    along = Parameter()

    def start(self, user: Any) -> None:
        user.reads = True

    def browse(self, user: Any, result: Any) -> None:
        if result.first_in_row:
            user.reads = flip(self.entry)
        if user.reads:
            if flip(self.attraction):
                user.click()
            user.reads = bool(result.last_in_row) or flip(self.along)


class ColumnReader(GridReader):
    view = Grids("columns")


class FReader(GridReader):
    view = Grids("F")


class Leaver(ClickModel):
    """Leaves pages, comes back, skips pages, and stops."""

    view = "tasks"
    attraction = Parameter("query", "doc")
    patience = Parameter("rank", "distance")
    boredom = Parameter("page_number")
    skips = Parameter("page_rank")
    ends = Parameter()

    def start(self, user: Any) -> None:
        if flip(self.skips):
            user.leave()

    def next_page(self, user: Any) -> None:
        if flip(self.boredom):
            user.stop()
        elif flip(self.skips):
            user.leave()

    def browse(self, user: Any, result: Any) -> None:
        if not result.shown_before and flip(self.attraction):
            user.click()
            if flip(self.ends):
                return user.stop()
        if not flip(self.patience):
            user.leave()


class OnFirst(Leaver):
    skips = Parameter()  # flipped in start, where a task has no rank yet


GRIDS = [GridReader, ColumnReader, FReader, *zoo_under("grids")]
TASKS = [OnFirst, *zoo_under("tasks")]
MODELS = [*GRIDS, *TASKS]
WALKS = {"grids": walk_grids, "tasks": walk_tasks}


def per_walk(case: ViewCase, values: Any) -> list[list[float]]:
    """Values per row of the log, walk by walk and step by step."""
    return [[float(values[step["at"]]) for step in walk] for walk in case.walks]


# -- the walks themselves ----------------------------------------------------------------------
@pytest.mark.parametrize("order", ["rows", "columns", "F"])
@pytest.mark.parametrize("seed", range(4))
def test_grids_are_walked_as_the_slow_way_walks_them(order: str, seed: int) -> None:
    table = random_table("grids", seed, n_pages=20, longest=6)
    same_walks(read_log(table).view("grids", order=order), walk_grids(table, order))


@pytest.mark.parametrize("seed", range(6))
def test_tasks_are_walked_as_the_slow_way_walks_them(seed: int) -> None:
    table = random_table("tasks", seed, n_pages=30, longest=5, n_tasks=8)
    if seed % 2:
        table["page_number"] = [3 * time for time in table.pop("time")]
    same_walks(read_log(table).view("tasks"), walk_tasks(table))


def same_walks(viewed: Any, walks: Any) -> None:
    frame = viewed.to_frame()
    order = {tuple(sorted(s["at"] for s in walk)): walk for walk in walks}
    assert viewed.n_sessions == len(walks)
    for number in range(viewed.n_sessions):
        here = slice(viewed.starts[number], viewed.starts[number + 1])
        rows = viewed.rows[here].tolist()
        walk = order[tuple(sorted(rows))]
        assert rows == [step["at"] for step in walk]
        names = [name for name in frame.columns if name not in ("session",)]
        for name in names:
            assert frame[name][here].to_list() == [step[name] for step in walk], name


@pytest.mark.parametrize("view", ["grids", "tasks"])
def test_the_way_back_is_the_inverse(view: str) -> None:
    log = read_log(random_table(view, seed=3, n_pages=40))
    viewed = log.view(view)
    assert viewed.is_plain
    for name in ("doc", "query", "click"):
        assert (viewed.back(viewed.column(name).to_numpy()) == log.column(name).to_numpy()).all()
    walk = np.arange(viewed.n_sessions)
    assert (viewed.back(walk[viewed.page]) == viewed.back_from_walks(walk)[log.page]).all()


# -- answers -----------------------------------------------------------------------------------
@pytest.mark.parametrize("cls", MODELS)
def test_answers_agree_with_enumeration(cls: Any) -> None:
    case = ViewCase(cls, seed=len(cls.__name__), extremes=len(cls.__name__) % 2 == 0)
    model, log = case.model(), case.log
    likelihood = [math.log(o.likelihood(s)) for o, s in zip(case.oracles, case.shown, strict=True)]
    viewed = model.viewed(log)
    by_id = {case.table[id_of(case)][walk[0]["at"]]: n for n, walk in enumerate(case.walks)}
    numbers = [by_id[name] for name in viewed.sessions]
    close_to(model.log_likelihood(viewed), [likelihood[n] for n in numbers])
    close_to(model.log_likelihood(log).sum(), sum(likelihood))
    conditional = per_walk(case, model.predict_conditional_clicks(log))
    marginal = per_walk(case, model.predict_clicks(log))
    posterior = model.posterior(log)
    reached = per_walk(case, posterior["reached"])
    for n, (oracle, shown) in enumerate(zip(case.oracles, case.shown, strict=True)):
        for place in range(len(shown)):
            close_to(conditional[n][place], oracle.conditional_click(shown, place))
            close_to(marginal[n][place], oracle.marginal_click(place))
            close_to(reached[n][place], oracle.reached(shown, place))
            for coin in model.forms:
                if f"{coin}_flipped" in posterior.columns:
                    at = case.walks[n][place]["at"]
                    found = posterior[f"{coin}_flipped"][at], posterior[f"{coin}_heads"][at]
                    close_to(found, oracle.coin(shown, coin, place))


def id_of(case: ViewCase) -> str:
    return "task" if case.view == "tasks" else "session"


@pytest.mark.parametrize("cls", MODELS)
def test_counts_and_scores_agree_with_enumeration(cls: Any) -> None:
    case = ViewCase(cls, seed=8)
    counts: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
    scores: dict[Any, float] = defaultdict(float)
    for oracle, shown in zip(case.oracles, case.shown, strict=True):
        for key, (heads, tails) in oracle.counts(shown).items():
            counts[key][0] += heads
            counts[key][1] += tails
        for key, score in oracle.score(shown).items():
            scores[key] += score
    model = case.model()
    full = by_row(model.expected_counts(case.log, augmentation="full"))
    for key in full.keys() | counts.keys():
        close_to(full.get(key, (0.0, 0.0)), counts.get(key, (0.0, 0.0)))
    minimal = by_row(model.expected_counts(case.log))
    for key in minimal.keys() | scores.keys():
        theta, (heads, tails) = case.values(*key), minimal.get(key, (0.0, 0.0))
        close_to(heads * (1 - theta) - tails * theta, scores[key])


def by_row(frames: dict[str, pl.DataFrame]) -> dict[Any, Any]:
    return {(coin, row[:-2]): row[-2:] for coin, frame in frames.items() for row in frame.rows()}


@pytest.mark.parametrize("cls", [FReader, OnFirst])
def test_decoded_and_simulated_stories_are_of_the_rows_of_the_log(cls: Any) -> None:
    case = ViewCase(cls, seed=5)
    model = case.model()
    decoded = model.decode(case.log)
    start = [c for c in model.forms if f"start_{c}" in decoded.columns]
    coins = [coin for coin in model.forms if coin in decoded.columns]
    for walk, oracle, shown in zip(case.walks, case.oracles, case.shown, strict=True):
        told = [{name: decoded[name][s["at"]] for name in ("reached", *coins)} for s in walk]
        begun = {coin: decoded[f"start_{coin}"][walk[0]["at"]] for coin in start}
        close_to(oracle.matching(shown, told, begun), oracle.best(shown))
    clicked, truth = model.simulate(case.log, seed=1, truth=True)
    assert (clicked.column("session") == case.log.column("session")).all()
    assert not truth["reached"].to_numpy()[~truth["reached"].to_numpy() & clicked.click].any()


# -- laws --------------------------------------------------------------------------------------
def page_table(seed: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    table = random_table("pages", seed, n_pages=30, longest=4)
    table["click"] = (rng.random(len(table["doc"])) < 0.4).tolist()
    return table


def under(model: type, view: Any) -> type:
    return type(model.__name__, (model,), {"view": view})


@pytest.mark.parametrize("model", [DBN, UBM])
@pytest.mark.parametrize("view", ["grids", "tasks"])
def test_a_task_of_one_page_and_a_grid_of_one_column_are_pages(model: Any, view: str) -> None:
    table = page_table(seed=4)
    table |= {"row": table["rank"], "column": [1] * len(table["rank"])}
    table["task"] = table["session"]
    log = read_log(table)
    how = EM(5, accelerate=False)
    given, seen = (make(view, model, log, how) for view in ("pages", view))
    for ask in ("predict_clicks", "predict_conditional_clicks", "log_likelihood"):
        close_to(getattr(seen, ask)(log), getattr(given, ask)(log), 1e-12)
    assert seen.posterior(log).equals(given.posterior(log)) or view == "tasks"
    close_to(
        seen.posterior(log)["reached"].to_numpy(), given.posterior(log)["reached"].to_numpy(), 1e-12
    )
    assert (seen.simulate(log, seed=2).click == given.simulate(log, seed=2).click).all()


@pytest.mark.parametrize("cls", TASKS[1:])
def test_comparisons_of_tasks_are_of_clicks_given_earlier_pages(cls: Any) -> None:
    """Each click given those above and earlier pages; marginally, given those pages only."""
    case = ViewCase(cls, seed=6)
    model = case.model()
    said = predictions(clicks_only(model), case.log)
    total = dict.fromkeys(case.log.sessions, 0.0)
    for walk, oracle, shown in zip(case.walks, case.oracles, case.shown, strict=True):
        for place, step in enumerate(walk):
            first = max(n for n in range(place + 1) if walk[n]["first_on_page"])
            for upto, found in ((place, said.conditional), (first, said.marginal)):
                left = {p: w for p, w in oracle.patterns.items() if p[:upto] == shown[:upto]}
                clicked = sum(w for p, w in left.items() if "click" in p[place])
                close_to(found[step["at"]], clicked / sum(left.values()))
            p = said.conditional[step["at"]]
            total[step["session"]] += math.log(p if "click" in shown[place] else 1 - p)
    close_to(said.log_likelihood, [total[session] for session in case.log.sessions])


@many(14)
@given(cases(max_pages=4))
def test_a_task_of_one_page_is_a_page_whatever_the_program(case: Case) -> None:
    table = {**case.table, "task": case.table["session"], "time": case.table["session"]}
    log = read_log(table, weight="weight")
    page = case.model
    seen = make_plain(under(as_model(case.program), "tasks").with_values(**case.tables()))
    for ask in ("predict_clicks", "predict_conditional_clicks", "log_likelihood"):
        close_to(getattr(seen, ask)(log), getattr(page, ask)(log))
    for coin, rows in page.expected_counts(log).items():
        other = seen.expected_counts(log)[coin]
        keys = list(page.keys[coin])
        one, two = (frame.sort(keys) if keys else frame for frame in (rows, other))
        close_to(two.select("heads", "tails").to_numpy(), one.select("heads", "tails").to_numpy())


def make(view: str, model: Any, log: Any, how: Any) -> Any:
    fixed = {coin: 0.3 for coin in model._parameters() if coin != "attraction"}
    return under(model, view)(**fixed).fit(log, how, progress=False, intervals=False)


def test_impossible_pages_go_with_their_whole_task() -> None:
    """Someone who clicked what satisfies for sure asks no more: the task is left out as a whole."""
    table = {
        "session": ["a", "a", "b", "c"],
        "task": [1, 1, 1, 2],
        "time": [1, 1, 2, 3],
        "query": ["q"] * 4,
        "doc": ["x", "y", "x", "y"],
        "rank": [1, 2, 1, 1],
        "click": [True, False, True, False],
    }
    log = read_log(table)
    model = SessionDBN.with_values(
        attraction=0.5, satisfaction=1.0, continuation=0.5, persistence=0.5
    )
    with pytest.warns(UserWarning, match="2 of 3 sessions are impossible"):
        assert len(model.log_likelihood(log, impossible="drop")) == 1
    assert model.evaluate(log, impossible="drop").n_sessions == 1


def test_a_saved_model_knows_its_view(tmp_path: Any) -> None:
    case = ViewCase(ColumnReader, seed=6)
    model = case.model()
    model.save(tmp_path / "grid.gcm")
    loaded = load(tmp_path / "grid.gcm")
    assert loaded.view == Grids("columns")
    close_to(loaded.log_likelihood(case.log), model.log_likelihood(case.log), 1e-12)
