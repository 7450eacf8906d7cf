"""How an observed number is spread: what a program may see of a result beside yes and no."""

from __future__ import annotations

from typing import Any

from gecasmo.errors import ModelError
from gecasmo.language.parameter import HISTORY_KEYS
from gecasmo.language.place import mistake


class Density:
    """A distribution of an observed number, with parameters of its own per value of a hidden state.

    Parameters
    ----------
    family : LogNormal(), Normal(), Gamma(), Exponential() or Beta()
        The kind of distribution. Its parameters are learned with the coins.
    *keys : str
        Columns with few values, such as "device": each value has a distribution of its own.

    Examples
    --------
    >>> from gecasmo import ClickModel, Density, LogNormal, Parameter, flip
    >>> class Reader(ClickModel):
    ...     attraction = Parameter("query", "doc")
    ...     satisfaction = Parameter("query", "doc")
    ...     reading = Density(LogNormal())
    ...
    ...     def browse(self, user, result):
    ...         if flip(self.attraction):
    ...             user.click()
    ...             user.happy = flip(self.satisfaction)
    ...             user.observe("dwell", self.reading, given=user.happy)
    ...             if user.happy:
    ...                 user.leave()
    >>> list(Reader().forms)
    ['attraction', 'satisfaction', 'reading[False]', 'reading[True]']
    """

    def __init__(self, family: Any, *keys: str) -> None:
        if not callable(getattr(family, "log_density", None)) or isinstance(family, type):
            raise ModelError(
                f"Density({family!r}): a kind of distribution is wanted, such as "
                "Density(LogNormal())."
            )
        odd = [k for k in keys if not isinstance(k, str) or not k or k in (*HISTORY_KEYS, "click")]
        if odd or len(set(keys)) < len(keys):
            raise ModelError(
                f"Density({family!r}, {', '.join(map(repr, keys))}): a key is a column of the log, "
                "each named once; what was clicked above cannot be one."
            )
        self.family, self.keys = family, keys
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def coin(self, given: Any) -> str:
        """What its distribution for one value of the hidden state is called."""
        return self.name if given is None else f"{self.name}[{given!r}]"

    def __repr__(self) -> str:
        return f"Density({', '.join(map(repr, (self.family, *self.keys)))})"

    def __bool__(self) -> bool:
        raise mistake(
            f"The Density '{self.name}' was used as a truth value; it tells how an observed number "
            f'is spread: user.observe("dwell", self.{self.name}, given=user.happy)'
        )
