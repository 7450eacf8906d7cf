"""What a user may ask of the posterior of a fit, beside what the log says.

A constraint speaks of expectations of a coin's flips, given the clicks: of results on one page
(`Prefer`) or of all results (`AtMost`). What is asked need not be possible: missing it by one unit
costs `strength`, and not more. `regularised.py` has how fits take account of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gecasmo.errors import ModelError, option

# Which skipped results a clicked one is held against.
SKIPPED = ("skipped_above", "skipped_next")


@dataclass(frozen=True)
class Prefer:
    """A clicked result shall be expected to have more heads than a skipped one on its page.

    Parameters
    ----------
    coin : str
        A coin that is flipped for results, such as "attraction".
    clicked_over : "skipped_above" or "skipped_next"
        Which skipped results a clicked one is held against: all above it, or the next one below.
    margin : float
        By how much, from 0 to 1.
    strength : float
        What one unit that is missing costs, in nats, for every pair. 0 asks for nothing.

    Examples
    --------
    >>> from gecasmo import Prefer
    >>> Prefer("attraction", margin=0.2)
    Prefer(coin='attraction', clicked_over='skipped_above', margin=0.2, strength=1.0)
    """

    coin: str
    clicked_over: str = "skipped_above"
    margin: float = 0.5
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.clicked_over not in SKIPPED:
            choices = " or ".join(map(repr, SKIPPED))
            raise ModelError(f"Prefer(clicked_over={self.clicked_over!r}): choose {choices}.")
        _check_share("Prefer", "margin", self.margin)
        _check_strength("Prefer", self.strength)


@dataclass(frozen=True)
class AtMost:
    """Of all flips of a coin at most a share shall be expected to be heads.

    Parameters
    ----------
    coin : str
        Any coin, such as "noise".
    share : float
        From 0 to 1.
    strength : float
        What a flip too many costs, in nats. 0 asks for nothing.

    Examples
    --------
    >>> from gecasmo import AtMost
    >>> AtMost("noise", 0.1)
    AtMost(coin='noise', share=0.1, strength=5.0)
    """

    coin: str
    share: float
    strength: float = 5.0

    def __post_init__(self) -> None:
        _check_share("AtMost", "share", self.share)
        _check_strength("AtMost", self.strength)


Constraint = Prefer | AtMost


class Kept(NamedTuple):
    """How a constraint was kept.

    `asked` is the constraint. For `Prefer` the others are shares of its pairs: of those in order
    in the posterior as it is (`without`), and in that of the fit (`within`); for `AtMost` the share
    of heads in either. `pressed` is the share of its multipliers that are as large as they may be.
    """

    asked: str
    without: float
    within: float
    pressed: float

    def __str__(self) -> str:
        if self.asked.startswith("Prefer"):
            what, told = (
                "pairs in order",
                f"{self.without:.1%} without it, {self.within:.1%} with it",
            )
        else:
            what, told = (
                "share of heads",
                f"{self.without:.4f} without it, {self.within:.4f} with it",
            )
        pressed = f"; {self.pressed:.1%} pressed as hard as they may be" if self.pressed else ""
        return f"{self.asked}: {what} {told}{pressed}"


def check_constraints(constraints: Any, coins: Sequence[str]) -> tuple[Constraint, ...]:
    """The constraints of a fit, of coins that there are; those of no strength ask for nothing."""
    if isinstance(constraints, (Prefer, AtMost)):
        constraints = [constraints]
    found = tuple(constraints)
    for one in found:
        if not isinstance(one, (Prefer, AtMost)):
            raise ModelError(
                f"{option('constraints')} takes Prefer(...) and AtMost(...), not {one!r}."
            )
        if one.coin not in coins:
            raise ModelError(
                f"{one!r}: there is no coin {one.coin!r}. The coins are: {', '.join(coins)}."
            )
    return tuple(one for one in found if one.strength > 0)


def _check_share(of: str, name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ModelError(f"{of}({name}={value!r}): a number from 0 to 1 is wanted.")


def _check_strength(of: str, value: Any) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (value >= 0 and math.isfinite(value)):
        raise ModelError(f"{of}(strength={value!r}): a finite number of at least 0 is wanted.")
