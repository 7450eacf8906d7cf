"""A coin of the model: its name, and which row of its table is used at a result."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from gecasmo.errors import ModelError
from gecasmo.language.place import mistake

# Known from the clicks above a result: fixed when clicks are observed, random when they are not.
HISTORY_KEYS = ("last_click", "distance", "clicks_above")
# Made from the page itself, so no log needs to carry them as columns.
POSITION_KEYS = ("rank", "page_length", "result")
# One value all over a page, in every log.
PAGE_KEYS = ("session", "query", "page_length")

# What a table of parameters says of each row, beside its keys.
TABLE_COLUMNS = ("probability", "heads", "tails")


class Parameter:
    """A coin with a table of probabilities, one row per distinct key.

    Parameters
    ----------
    *keys : str
        What a row stands for: columns of the log (`"query"`, `"doc"`, `"device"`, ...), or one of
        `"rank"`, `"last_click"` (rank of the nearest click above, 0 if none), `"distance"`
        (rank - last_click), `"clicks_above"`, `"page_length"` and `"result"` (every shown result
        its own row). Without a key the coin is the same everywhere.
    state : str, optional
        Name of a hidden attribute of the user that takes part in the key: the coin then has rows
        of its own for each value of `user.<state>`. The values are those of the `Choice` which the
        model has under that name; without one, no and yes.
    form : Form, optional
        The form of the coin where a model is made without one; `Table()` if there is none.

    Examples
    --------
    >>> from gecasmo import ClickModel, Parameter, flip
    >>> class Curious(ClickModel):
    ...     interest = Parameter("query", "doc")
    ...
    ...     def browse(self, user, result):
    ...         if flip(self.interest):
    ...             user.click()
    >>> Curious.interest
    Parameter('query', 'doc')
    """

    __slots__ = ("coins", "form", "keys", "name", "state")

    def __init__(self, *keys: str, state: str | None = None, form: Any = None) -> None:
        self.keys = check_keys(keys)
        self.form = form
        self.name = ""
        if state is not None and (not isinstance(state, str) or not state.isidentifier()):
            raise ModelError(
                f"Parameter(state={state!r}): the name of an attribute of the user is wanted, such "
                "as state='intent' for user.intent."
            )
        self.state = state
        self.coins: dict[Any, Parameter] = {}  # by value of the state

    def by_value(self, values: Iterable[Any]) -> dict[Any, Parameter]:
        """The coin of each of these values of the state; the same ones whenever asked."""
        return {
            value: self.coins.setdefault(value, Parameter(*self.keys, form=self.form))
            for value in values
        }

    def given(self, user: Any) -> Parameter:
        """The coin for the state that a user is in; itself if it has no state in its key."""
        if self.state is None:
            return self
        value = getattr(user, self.state)
        coin = self.coins.get(value) if isinstance(value, Hashable) else None
        if coin is None:
            raise mistake(
                f"'{self.name}' has no row for user.{self.state} = {value!r}; it has rows for "
                f"{', '.join(map(repr, self.coins))}.\n"
                f"  Perhaps: {self.state} = Choice(n=...) in the class, then "
                f"user.{self.state} = choose(self.{self.state})"
            )
        return coin

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name  # a coin that another class borrows keeps its own name

    def __repr__(self) -> str:
        state = [] if self.state is None else [f"state={self.state!r}"]
        return f"Parameter({', '.join([*map(repr, self.keys), *state])})"

    def __bool__(self) -> bool:
        raise mistake(
            f"The Parameter '{self.name}' was used as a truth value; "
            f"a coin has to be flipped: if flip(self.{self.name}): ..."
        )


def check_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse keys that are not distinct column names."""
    for key in keys:
        if not isinstance(key, str) or not key:
            raise ModelError(
                f"A key is the name of a column, such as 'query' or 'rank', not {key!r}."
            )
        if key in TABLE_COLUMNS:
            raise ModelError(
                f"The key '{key}' would be mistaken for the {key} of a row; rename that column."
            )
    if len(set(keys)) < len(keys):
        raise ModelError(f"A key is named twice: {', '.join(keys)}.")
    return tuple(keys)
