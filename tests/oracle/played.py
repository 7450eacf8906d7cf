"""Any program as a story: the program itself, played for a whole page.

For models of which `stories` has no story by hand. It takes the language alone from the library:
no trace, no automaton, no kernel. Models that have both are held against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gecasmo.language import Parameter, Result, User
from gecasmo.language.flip import running
from oracle.stories import Shown


class _Player:
    """Names the row of a coin at a result, and lets the oracle flip it."""

    def __init__(self, page: Shown, flip: Any) -> None:
        self.page, self.throw = page, flip
        self.place = 0
        self.clicked: list[int] = []

    def flip(self, parameter: Parameter) -> bool:
        return self.throw(parameter.name, tuple(self.key(key) for key in parameter.keys))

    def key(self, name: str) -> Any:
        if name in self.page.columns:
            return self.page.columns[name][self.place]
        rank = self.page.ranks[self.place]
        last = self.clicked[-1] if self.clicked else 0
        return {
            "query": self.page.query,
            "doc": self.page.docs[self.place],
            "rank": rank,
            "last_click": last,
            "distance": rank - last,
            "clicks_above": len(self.clicked),
            "page_length": len(self.page.docs),
        }[name]

    def observe(self, column: str, density: Any, given: Any) -> None:
        self.throw.see(column, density.coin(given))

    def guard(self, column: str) -> bool:
        return self.page.columns[column][self.place]


def played(model: Any) -> Callable[[Shown], Any]:
    """The stories of a model, page by page."""
    made = model()  # a program keeps nothing: one does for all stories

    def story_of(page: Shown) -> Any:
        def story(flip: Any) -> tuple[frozenset, ...]:
            player = _Player(page, flip)
            token = running.set(player)
            try:
                return tuple(_results(made, page, player))
            finally:
                running.reset(token)

        return story

    return story_of


def _results(model: Any, page: Shown, player: _Player) -> list[frozenset]:
    user = User({}, at_start=True)
    model.start(user)
    shown = []
    for place, rank in enumerate(page.ranks):
        if user._has_left:
            shown.append(frozenset())
            continue
        player.place = place
        player.throw.look(place)
        user = User(user._state)
        model.browse(user, Result(player))
        shown.append(frozenset(user._signals))
        if "click" in user._signals:
            player.clicked.append(rank)
    player.throw.place = len(shown) - 1
    user = User(user._state, at_end=True)
    model.finish(user)
    return [*shown[:-1], shown[-1] | user._signals]
