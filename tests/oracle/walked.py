"""Views of a log the slow way, and programs played along a walk.

A walk is a list of steps; a step is a dictionary with all that a program, or the key of a coin, may
ask of it, and `at`, the row of the log that it belongs to. Of the library this takes the language
alone: no view, no trace, no automaton, no kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gecasmo.language import Parameter, Result, User
from gecasmo.language.flip import running

Step = dict[str, Any]
Walk = list[Step]


def pages_of(table: dict[str, list[Any]]) -> dict[Any, Walk]:
    """The rows of each session of a log, by rank."""
    pages: dict[Any, Walk] = {}
    for at in range(len(table["session"])):
        step = {name: column[at] for name, column in table.items()}
        pages.setdefault(step["session"], []).append({**step, "at": at, "page_rank": step["rank"]})
    for page in pages.values():
        page.sort(key=lambda step: step["rank"])
    return pages


def walk_grids(table: dict[str, list[Any]], order: str = "rows") -> list[Walk]:
    """Each page along its rows, down its columns, or as an F."""
    walks = []
    for page in pages_of(table).values():
        ranks = sorted(step["rank"] for step in page)
        line, along = ("row", "column") if order != "columns" else ("column", "row")
        by_line = sorted(page, key=lambda step: (step[line], step[along]))
        lines = sorted({step[line] for step in page})
        for step in page:
            row = [other[along] for other in page if other[line] == step[line]]
            step["first_in_row"] = step[along] == min(row)
            step["last_in_row"] = step[along] == max(row)
        if order == "F":
            stripes = [step for step in by_line if step[line] in lines[:2]]
            stem = [s for s in by_line if s[line] not in lines[:2] and s["first_in_row"]]
            rest = [s for s in by_line if s[line] not in lines[:2] and not s["first_in_row"]]
            by_line = [*stripes, *stem, *rest]
        walks.append([{**s, "rank": r} for s, r in zip(by_line, ranks, strict=True)])
    return walks


def walk_tasks(table: dict[str, list[Any]]) -> list[Walk]:
    """All pages of each task, in order of page number or time."""
    by_task: dict[Any, list[Walk]] = {}
    for page in pages_of(table).values():
        by_task.setdefault(page[0]["task"], []).append(page)
    when = "page_number" if "page_number" in table else "time"
    walks = []
    for pages in by_task.values():
        pages.sort(key=lambda page: page[0][when])
        walk: Walk = []
        before, above = set(), 0
        for number, page in enumerate(pages):
            for place, step in enumerate(page):
                is_last = place == len(page) - 1
                made = {
                    "rank": step["page_rank"] + above,
                    "first_on_page": place == 0,
                    "last_on_page": is_last,
                    "first_page": number == 0,
                    "shown_before": step["doc"] in before,
                    "query_follows": is_last and number < len(pages) - 1,
                    "page_number": number + 1,
                }
                walk.append({**made, **step, "rank": made["rank"]})
            before |= {step["doc"] for step in page}
            above += page[-1]["page_rank"]
        walks.append(walk)
    return walks


def walk_clicks(table: dict[str, list[Any]]) -> list[Walk]:
    """From click to click, and on from the last one, page by page."""
    when = "click_order" if "click_order" in table else "click_time"
    walks = []
    for page in pages_of(table).values():
        clicks = sorted((s for s in page if s["click"]), key=lambda s: (s[when], s["rank"]))
        seen: list[Step] = []
        for number, end in enumerate([*clicks, None]):
            here = page.index(seen[-1]) if seen else -1
            below, above = page[here + 1 :], page[: max(here, 0)][::-1]
            if end is not None:
                way = below if end in below else above
                below, above = (way[: way.index(end) + 1], []) if way is below else ([], way)
                above = above[: above.index(end) + 1] if above else []
            walk = [
                {
                    **step,
                    "rank": place + 1,
                    "click": step is end,
                    "from_rank": seen[-1]["page_rank"] if seen else 0,
                    "to_rank": 0 if end is None else end["page_rank"],
                    "way": "up" if step in above else "down",
                    "is_above": step in above,
                    "before_first": number == 0,
                    "after_last": end is None,
                }
                for place, step in enumerate(s for s in [*below, *above] if s not in seen)
            ]
            walks += [walk] if walk else []
            if end is not None:
                seen.append(end)
    return walks


class _Player:
    def __init__(self, walk: Walk, flip: Any) -> None:
        self.walk, self.throw = walk, flip
        self.place = 0
        self.clicked: list[int] = []

    def flip(self, parameter: Parameter) -> bool:
        return self.throw(parameter.name, tuple(self.key(key) for key in parameter.keys))

    def key(self, name: str) -> Any:
        rank, last = self.walk[self.place]["rank"], self.clicked[-1] if self.clicked else 0
        known = {
            "last_click": last,
            "distance": rank - last,
            "clicks_above": len(self.clicked),
            "page_length": len(self.walk),
        }
        return known[name] if name in known else self.walk[self.place][name]

    def guard(self, column: str) -> bool:
        return bool(self.walk[self.place][column])


def walked(model: type, walk: Walk) -> Callable[[Any], tuple[frozenset, ...]]:
    """The story of a program along one walk."""

    def story(flip: Any) -> tuple[frozenset, ...]:
        player = _Player(walk, flip)
        token = running.set(player)
        try:
            return tuple(_steps(model(), walk, player))
        finally:
            running.reset(token)

    return story


def _steps(model: Any, walk: Walk, player: _Player) -> list[frozenset]:
    is_paged = model.view == "tasks"
    user = User({}, at_start=True)
    model.start(user)
    state, is_off_page, is_gone = user._state, user._has_left, user._has_stopped
    shown = []
    for place, step in enumerate(walk):
        player.place = place
        is_gone = is_gone or (is_off_page and not is_paged)
        if is_paged and step["first_on_page"] and not step["first_page"] and not is_gone:
            user = User(state, at_start=True)
            # A coin that is flipped on the way to a page belongs to its first result.
            player.throw.place = place
            model.next_page(user)
            state, is_off_page, is_gone = user._state, user._has_left, user._has_stopped
        if is_gone or is_off_page:
            shown.append(frozenset())
            continue
        player.throw.look(place)
        user = User(state)
        model.browse(user, Result(player))
        state, is_off_page, is_gone = user._state, user._has_left, user._has_stopped
        shown.append(frozenset(user._signals))
        if "click" in user._signals:
            player.clicked.append(step["rank"])
    player.throw.place = len(shown) - 1
    user = User(state, at_end=True)
    model.finish(user)
    return [*shown[:-1], shown[-1] | user._signals]
