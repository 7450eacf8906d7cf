"""What views refuse, what they note, and where they are applied by themselves."""

from __future__ import annotations

import re
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecasmo import EM, ClickLog, ClickModel, Parameter, flip, read_log
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.estimation import Gradient
from gecasmo.evaluation import compare, leak_test
from gecasmo.logs.views import VIEWS, as_view
from gecasmo.model.fit import _set_apart

pytestmark = pytest.mark.usefixtures("plain_kernels")


class InTask(ClickModel):
    """Clicks what attracts and was not shown before; leaves pages early."""

    view = "tasks"
    attraction = Parameter("query", "doc")
    patience = Parameter()
    again = Parameter()
    relevance = ("attraction",)

    def next_page(self, user: Any) -> None:
        if not flip(self.again):
            user.stop()

    def browse(self, user: Any, result: Any) -> None:
        if not result.shown_before and flip(self.attraction):
            user.click()
        if not flip(self.patience):
            user.leave()


class InGrid(ClickModel):
    view = "grids"
    attraction = Parameter("query", "doc")
    entry = Parameter()

    def start(self, user: Any) -> None:
        user.reads = True

    def browse(self, user: Any, result: Any) -> None:
        if result.first_in_row:
            user.reads = flip(self.entry)
        if user.reads and flip(self.attraction):
            user.click()


class OnWalk(ClickModel):
    view = "walks"
    attraction = Parameter("query", "doc")

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.attraction):
            user.click()
            user.leave()


def table(n_pages: int = 40, seed: int = 0) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    rows = [
        {
            "session": f"s{page}",
            "task": f"t{page // 2}",
            "time": 2 * page + 1,
            "query": f"q{page % 4}",
            "doc": int(rng.integers(5)),
            "rank": rank,
            "row": (rank + 1) // 2,
            "column": rank % 2,
            "click": bool(rng.random() < 0.4),
        }
        for page in range(n_pages)
        for rank in range(1, 5)
    ]
    return {name: [row[name] for row in rows] for name in rows[0]}


def changed(**columns: Any) -> ClickLog:
    given = table(4)
    for name, values in columns.items():
        if values is None:
            del given[name]
        elif callable(values):
            given[name] = [values(row, old) for row, old in enumerate(given[name])]
        else:
            given[name] = values
    return read_log(given, weight="weight" if "weight" in given else None)


# -- what is refused ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("view", "columns", "words"),
    [
        ("grids", {"row": None}, "The view 'grids' needs the column 'row', which the log does not"),
        ("grids", {"row": None, "column": None}, "needs the columns 'row' and 'column'"),
        ("tasks", {"task": None}, "needs the column 'task' or 'visit' or 'session_id'"),
        ("tasks", {"time": None}, "needs the column 'page_number' or 'time' or"),
        (
            "grids",
            {"row": lambda n, old: None if n in (2, 5) else old},
            "the column 'row' of every result: 2 results have no number there (first: session 's0'"
            ", rank 3).",
        ),
        (
            "grids",
            {"row": lambda n, old: "x"},
            "needs numbers in the column 'row', which holds",
        ),
        (
            "grids",
            {"row": lambda n, old: 1, "column": lambda n, old: 0 if n == 5 else n},
            None,
        ),
        (
            "grids",
            {"column": lambda n, old: 0},
            "a cell for each result: 8 results stand where another one does on the same page "
            "(first: session 's0', rank 2).",
        ),
        (
            "tasks",
            {"task": lambda n, old: None if n < 4 else old},
            "the task of every page: 1 page has none (first: session 's0').",
        ),
        (
            "tasks",
            {"time": lambda n, old: None if n >= 12 else old},
            "the column 'time' of every page: 1 page has none (first: session 's3').",
        ),
        (
            "tasks",
            {"time": lambda n, old: "soon" if n >= 12 else str(old)},
            "The view 'tasks', 'time': 'soon' is neither a number nor a date; times are",
        ),
        (
            "tasks",
            {"time": lambda n, old: "03/04/2024" if n >= 12 else "04/03/2024"},
            "all others can be read in 2 ways; write them as 2024-12-31.",
        ),
        (
            "walks",
            {"click": lambda n, old: n % 4 < 2, "click_time": [1.0, 2.0, 0.0, 0.0] * 3 + [nan] * 4},
            "the column 'click_time' of every click: 2 clicks have none (first: session 's3', rank "
            "1).",
        ),
        (
            "walks",
            {"click": lambda n, old: n % 4 < 2, "click_time": ["7", " ", "", ""] * 4},
            "the column 'click_time' of every click: 4 clicks have none (first: session 's0', rank "
            "2).",
        ),
        (
            "tasks",
            {"page_number": [1] * 16},
            "2 pages have the 'page_number' of another page of the same task (first: sessions 's0' "
            "and 's1' of the task 't0' are both 1).",
        ),
        ("tasks", {"task": lambda n, old: str(n)}, "'task' has more than one value on a page"),
        (
            "tasks",
            {"weight": [1.0] * 4 + [2.0] * 12},
            "pages of one task to weigh the same: session 's0' weighs 1 and 's1' weighs 2.",
        ),
    ],
)
def test_what_a_view_refuses(view: str, columns: dict[str, Any], words: str | None) -> None:
    log = changed(**columns)
    if words is None:
        assert log.view(view).n_results == log.n_results
        return
    with pytest.raises(ClickLogError, match=re.escape(words)):
        log.view(view)


def test_what_is_noted_of_tasks() -> None:
    log = changed(time=lambda row, old: -old)
    viewed = log.view("tasks")
    assert [note.what for note in viewed.notes] == [
        "pages of tasks out of order: 2 (they are read in the order of 'time')."
    ]
    assert viewed.notes[0].examples[0].startswith("session ")
    assert viewed.column("page_number").to_list() == [1] * 4 + [2] * 4 + [1] * 4 + [2] * 4
    assert viewed.rows[:4].tolist() == [4, 5, 6, 7]
    with pytest.warns(UserWarning, match="pages at the same time as another of their task: 2"):
        assert changed(time=[7] * 16).view("tasks").rows.tolist() == list(range(16))


def test_tasks_as_readers_call_them() -> None:
    given = table(4)
    given |= {"visit": given.pop("task"), "time_passed": given.pop("time")}
    assert read_log(given).view("tasks").sessions.to_list() == ["t0", "t1"]


def test_views_have_names_and_options() -> None:
    assert list(VIEWS) == ["pages", "grids", "tasks", "walks"]
    for given in VIEWS.values():
        assert as_view(**given().to_data()) == given()
    log = read_log(table(2))
    assert log.view("pages") is log
    for options, words in (
        (
            {"view": "rows"},
            "There is no view 'rows' of a log. There are: 'pages', 'grids'",
        ),
        ({"view": "grids", "way": 1}, "The view 'grids' has no option 'way'; it has: order"),
        ({"view": "tasks", "way": 1}, "The view 'tasks' has no option 'way'; it has none"),
        ({"view": "grids", "order": "Z"}, "Grids(order='Z'): 'rows', 'columns' or 'F'."),
    ):
        with pytest.raises(ModelError, match=re.escape(words)):
            log.view(**options)


def test_pages_have_no_next_page() -> None:
    class Wrong(InTask):
        view = "pages"

    with pytest.raises(ModelError, match=r"Wrong has a next_page\(self, user\), and reads page by"):
        Wrong()

    class Eager(InTask):
        def next_page(self, user: Any) -> None:
            user.click()

    with pytest.raises(ModelError, match=r"next_page\(\) run before the first result"):
        Eager().automaton  # noqa: B018


# -- where views are applied -------------------------------------------------------------------
def test_a_log_under_a_view_is_made_once_while_it_is_used() -> None:
    log = read_log(table(4))
    viewed = log.view("tasks")
    assert log.view("tasks") is viewed
    assert viewed.view("tasks") is viewed
    part = viewed.take([1])
    assert part.sessions.to_list() == ["t1"]
    assert part.n_results == 8
    assert not part.has_query
    flipped = viewed.with_signals({"click": ~viewed.click})
    assert (flipped.back(flipped.click) == ~log.click).all()


class Foresees(OnWalk):
    attraction = Parameter("doc", "to_rank")


def test_comparisons_keep_tasks_together_and_say_so() -> None:
    log = read_log({**table(16), "click_order": table(16)["rank"]})
    models = [InTask, InGrid, OnWalk, Foresees]
    found = compare(log, models, bootstrap=0, method=EM(3, tol=1))
    assert set(found.table["model"]) == {"InTask", "InGrid", "OnWalk", "RCTR", "DCTR"}
    told = " ".join(found.notes)
    assert "Split by task, not by session, since InTask reads the log by tasks." in told
    assert "InTask reads the log by tasks: what it says about a page depends on the pages" in told
    assert "OnWalk is of the order of clicks, which is not scored: only which results" in told
    assert "Foresees is left out: given where the next click is" in told
    assert found.setting.n_test_sessions % 2 == 0
    with pytest.raises(ModelError, match=r"needs at least one model.*Foresees is left out"):
        compare(log, [Foresees], bootstrap=0)
    with pytest.raises(ClickLogError, match="OnWalk: The view 'walks' needs the column 'click_ord"):
        compare(read_log(table(16)), [OnWalk], bootstrap=0)


def test_predictions_of_a_task_do_not_look_ahead() -> None:
    log = read_log(table(8))
    model = InTask.with_values(attraction=0.4, patience=0.8, again=0.7)
    assert leak_test(model, log).passed


def test_validation_keeps_tasks_together() -> None:
    log = read_log(table(8))
    train, held_out = _set_apart(InTask(), log, Gradient(validation=0.3))
    assert train.n_sessions % 2 == 0
    assert held_out is not None
    assert not set(train.column("task")) & set(held_out.column("task"))


def test_stored_logs_have_grids_and_say_why_no_tasks(tmp_path: Path) -> None:
    given = table(30)
    log = read_log(given)
    stored = ClickLog.ingest(log, tmp_path / "log", keep="all", partitions=4)
    grid = InGrid.with_values(attraction=0.4, entry=0.7)
    np.testing.assert_allclose(grid.score(stored), grid.score(log))
    np.testing.assert_allclose(
        np.sort(grid.predict_clicks(stored)), np.sort(grid.predict_clicks(log))
    )
    in_memory, on_disk = (
        InGrid().fit(each, EM(4, tol=0, accelerate=False), progress=False, intervals=False)
        for each in (log, stored)
    )
    np.testing.assert_allclose(
        in_memory.report_.log_likelihood, on_disk.report_.log_likelihood, rtol=1e-6
    )
    task = InTask.with_values(attraction=0.4, patience=0.8, again=0.7)
    for ask in (lambda: InTask().fit(stored), lambda: task.score(stored)):
        with pytest.raises(ClickLogError, match="InTask reads a log under the view 'tasks', which"):
            ask()


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.uint64, np.float32])
@pytest.mark.parametrize("view", ["grids", "walks", "tasks"])
def test_numbers_of_any_type_make_the_same_view(view: str, kind: Any) -> None:
    rank = np.tile([1, 2, 3], 4)
    columns = {
        "row": (rank - 1) // 2,
        "column": (rank - 1) % 2,
        "click_order": np.tile([3, 1, 2], 4),
        "page_number": np.repeat([1, 2, 1, 2], 3),
    }
    pages = {
        "session": np.repeat(list("abcd"), 3),
        "task": np.repeat(list("xy"), 6),
        "doc": list("uvwuvwwvuvuw"),
        "rank": rank,
        "click": np.ones(12, int),
    }
    plain = read_log(pages | columns).view(view)
    other = read_log(pages | {name: own.astype(kind) for name, own in columns.items()}).view(view)
    assert (other.rank == plain.rank).all()
    assert other.column("doc").equals(plain.column("doc"))
