"""What a person types to write a model: parameters, coin flips, a user and a result."""

from gecasmo.language.choice import Choice, choose
from gecasmo.language.density import Density
from gecasmo.language.flip import flip
from gecasmo.language.parameter import HISTORY_KEYS, POSITION_KEYS, Parameter
from gecasmo.language.user import Result, User

__all__ = [
    "HISTORY_KEYS",
    "POSITION_KEYS",
    "Choice",
    "Density",
    "Parameter",
    "Result",
    "User",
    "choose",
    "flip",
]
