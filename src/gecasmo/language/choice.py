"""One of several values by chance: `choose`, and the coins that decide it.

A choice among n values is n - 1 coins, flipped one after the other until one falls heads: is it the
first? If not, the second? So everything that holds for coins holds for choices as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from gecasmo.errors import ModelError
from gecasmo.language.flip import flip
from gecasmo.language.parameter import Parameter
from gecasmo.language.place import mistake

MOST_VALUES = 32


class Choice(tuple[Parameter, ...]):
    """A choice among the values 0, 1, ..., n - 1, with a row of probabilities per distinct key.

    Parameters
    ----------
    *keys : str
        What a row stands for, as for a `Parameter`.
    n : int
        The number of values.

    Examples
    --------
    >>> from gecasmo import Choice, ClickModel, Parameter, choose, flip
    >>> class Intents(ClickModel):
    ...     intent = Choice("query", n=3)
    ...     attraction = Parameter("query", "doc", state="intent")
    ...
    ...     def start(self, user):
    ...         user.intent = choose(self.intent)
    ...
    ...     def browse(self, user, result):
    ...         if flip(self.attraction):
    ...             user.click()
    >>> Intents().automaton.n_states
    3
    """

    def __new__(cls, *keys: str, n: int) -> Self:
        if type(n) is not int or not 2 <= n <= MOST_VALUES:
            raise ModelError(
                f"Choice(n={n!r}): a whole number of values is wanted, from 2 to {MOST_VALUES}."
            )
        return super().__new__(cls, (Parameter(*keys) for _ in range(n - 1)))

    def __repr__(self) -> str:
        keys = "".join(f"{key!r}, " for key in self[0].keys)
        return f"Choice({keys}n={self.n})"

    @property
    def n(self) -> int:
        """The number of values."""
        return len(self) + 1

    def split(self, given: Any) -> list[Any] | None:
        """What each coin gets of the probabilities of all values: a list, or lists by key.

        None where something else is given.
        """
        if isinstance(given, Mapping) and given:
            by_key = {key: self.split(one) for key, one in given.items()}
            if any(coins is None for coins in by_key.values()):
                return None
            return [{k: coins[i] for k, coins in by_key.items() if coins} for i in range(len(self))]
        if not isinstance(given, (list, tuple)) or len(given) != self.n:
            return None
        if min(given) < 0 or abs(sum(given) - 1) > 1e-9:
            raise ModelError(
                f"The probabilities of a choice are not negative and add up to 1, not {given!r}."
            )
        rest = [sum(given[place:]) for place in range(self.n)]
        # Where nothing is left to be chosen, no coin is flipped any more.
        return [p / left if left > 0 else 0.5 for p, left in zip(given[:-1], rest, strict=False)]


def choose(choice: Choice) -> int:
    """Choose one of the values 0, 1, ..., n - 1; each call is a choice of its own."""
    if not isinstance(choice, Choice):
        raise mistake(
            f"choose() takes a Choice of the model, not {choice!r}.\n"
            '  Perhaps: intent = Choice("query", n=3) in the class, then choose(self.intent)'
        )
    return next((value for value, coin in enumerate(choice) if flip(coin)), len(choice))
