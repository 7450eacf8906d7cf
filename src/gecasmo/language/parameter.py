"""A coin of the model: its name, and which row of its table is used at a result."""

from __future__ import annotations

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

    __slots__ = ("keys", "name")

    def __init__(self, *keys: str) -> None:
        self.keys = check_keys(keys)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name  # a coin that another class borrows keeps its own name

    def __repr__(self) -> str:
        return f"Parameter({', '.join(map(repr, self.keys))})"

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
