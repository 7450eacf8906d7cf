"""Edges spelt out or looped over, compiled or not: the same numbers from every form of source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import sampled_from

from gecasmo import ClickModel, Parameter, flip, read_log
from gecasmo.kernels import e_step, plan, text
from strategies.cases import Case, Values, cases, make_plain
from strategies.checks import close_to, many
from strategies.trees import (
    Ask,
    Bump,
    Done,
    Emit,
    Flip,
    Leave,
    Program,
    Set,
    Shown,
    ShownPage,
    Test,
    as_model,
)


def answers(model: Any, log: Any) -> list[Any]:
    """Everything a model can be asked, as numbers."""
    posterior = model.posterior(log)
    found = [
        model.log_likelihood(log),
        model.predict_clicks(log),
        model.predict_conditional_clicks(log),
        model.simulate(log, seed=3).click,
        *(posterior[c].to_numpy() for c in posterior.columns if posterior[c].dtype.is_float()),
    ]
    for augmentation in ("minimal", "full"):
        for frame in model.expected_counts(log, augmentation=augmentation).values():
            found.append(frame.select("heads", "tails").to_numpy())
    for told in (model.decode(log), model.sample_stories(log, seed=4)):
        found.append(told["reached"].to_numpy())
    return found


@many(25)
@given(case=cases(), are_dense=sampled_from([False, True]), most_tables=sampled_from([0, 6]))
def test_loops_over_edges_give_what_spelt_out_edges_give(
    case: Case, are_dense: bool, most_tables: int
) -> None:
    """By cells or by whole matrices, with coins one by one or in one array."""
    wanted = answers(case.model, case.log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "MAX_UNROLLED_EDGES", 0)
        patch.setattr(e_step.text, "MAX_UNROLLED_EDGES", 0)
        patch.setattr(e_step, "is_dense", lambda matrices: are_dense)
        patch.setattr(plan, "MOST_TABLES", most_tables)
        case.model._libraries.clear()
        found = answers(case.model, case.log)
    for one, other in zip(found, wanted, strict=True):
        close_to(one, other)


class Levels(ClickModel):
    """More levels of patience than a page has results, so that some are out of reach."""

    attraction = Parameter("doc")
    hurry = Parameter("rank")
    leaving = [Parameter() for _ in range(8)]  # noqa: RUF012

    def start(self, user: Any) -> None:
        user.lost = 0

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.attraction):
            user.click()
            user.lost = 0
        elif flip(self.hurry):
            if user.lost == 8 or flip(self.leaving[user.lost]):
                user.leave()
            user.lost = min(user.lost + 1, 8)


@pytest.mark.parametrize("are_dense", [False, True])
def test_states_out_of_reach_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, are_dense: bool
) -> None:
    rng = np.random.default_rng(0)
    columns = {"session": np.repeat(range(6), 5), "rank": np.tile(range(1, 6), 6)}
    log = read_log(
        columns
        | {"query": np.ones(30, int), "doc": np.arange(30) % 7, "click": rng.random(30) < 0.2}
    )
    values = {"attraction": 0.3, "hurry": {r: r / 7 for r in range(1, 6)}}
    found = []
    for most in (64, 0):
        monkeypatch.setattr(e_step.text, "MAX_UNROLLED_EDGES", most)
        monkeypatch.setattr(e_step, "is_dense", lambda matrices: are_dense)
        leaving = list(np.linspace(0.1, 0.9, 8))
        model = make_plain(Levels.with_values(leaving=leaving, **values))
        found.append(model.expected_counts(log))
    for one, other in zip(*(counts.values() for counts in found), strict=True):
        close_to(one.select("heads", "tails"), other.select("heads", "tails"))


# Start flips, hidden state, history, a guard, two signals, leaving, and a staircase of two steps.
EVERYTHING = Program(
    {"a": ("query", "doc"), "b": ("rank", "last_click"), "c": ("clicks_above",), "s": ("device",)},
    {"mood": False, "count": 0},
    Ask(
        "is_ad",
        Flip("a", Emit("click", Bump("count", Flip("c", Leave(Done()), Done()))), Done()),
        Test(
            "mood",
            True,
            Flip(
                "b",
                Flip("a", Emit("click", Done()), Done()),
                Test("count", 1, Leave(Done()), Done()),
            ),
            Flip(
                "a",
                Emit("buy", Emit("click", Done())),
                Flip("c", Set("mood", True, Done()), Done()),
            ),
        ),
    ),
    Flip("s", Set("mood", True, Done()), Done()),
)


def everything() -> Case:
    def page(query: str, device: str, *results: tuple[int, int, bool]) -> ShownPage:
        shown = (Shown(d, r, {"is_ad": ad, "is_new": False}) for d, r, ad in results)
        return ShownPage(query, device, tuple(shown))

    pages = [
        page("q1", "phone", (10, 1, True), (11, 2, False), (10, 4, False)),
        page("q1", "desk", (12, 1, False), (11, 2, True), (10, 3, True)),
        page("q2", "desk", (12, 2, False)),
    ]
    case = Case(EVERYTHING, Values(17), [], [], [], 6)
    for one in pages:
        patterns = sorted(
            Case(EVERYTHING, Values(17), [one], [], [], 0).oracles[0].patterns, key=repr
        )
        for pattern in patterns:
            case.pages.append(one)
            case.shown.append(pattern)
            case.weights.append(1.0 + len(case.pages) % 3)
    return case


def test_a_program_with_everything_compiles_to_what_its_source_gives() -> None:
    case = everything()
    assert len(case.model.structure.minimal.closing) >= 2
    compiled = as_model(EVERYTHING).with_values(**case.tables())
    assert all(library.compiled for library in compiled._libraries.values())
    for found, wanted in zip(
        answers(compiled, case.log), answers(case.model, case.log), strict=True
    ):
        close_to(found, wanted, 1e-12)
