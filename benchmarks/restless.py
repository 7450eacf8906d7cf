"""A model whose automaton offers a compiler nothing to exploit: a plain hidden Markov model.

    careful, trusting or restless: first the mood may change, any mood into any other,
    then the mood decides what makes this person click

Every state clicks and skips, reaches every other state, and no two edges of a state share a coin
that could be taken out of their sum; nobody ever leaves.
"""

from __future__ import annotations

from gecasmo import ClickModel, Parameter, flip
from gecasmo.language import Result, User

CAREFUL, TRUSTING, RESTLESS = 0, 1, 2


class Restless(ClickModel):
    """A person with three moods."""

    careful_after_careful = Parameter()
    trusting_after_careful = Parameter()
    careful_after_trusting = Parameter()
    trusting_after_trusting = Parameter()
    careful_after_restless = Parameter()
    trusting_after_restless = Parameter()
    attraction = Parameter("query", "doc")
    trust = Parameter("rank")
    whim = Parameter()

    def start(self, user: User) -> None:
        user.mood = CAREFUL

    def browse(self, user: User, result: Result) -> None:
        if user.mood == CAREFUL:
            careful, trusting = self.careful_after_careful, self.trusting_after_careful
        elif user.mood == TRUSTING:
            careful, trusting = self.careful_after_trusting, self.trusting_after_trusting
        else:
            careful, trusting = self.careful_after_restless, self.trusting_after_restless
        if flip(careful):
            user.mood, reason = CAREFUL, self.attraction
        elif flip(trusting):
            user.mood, reason = TRUSTING, self.trust
        else:
            user.mood, reason = RESTLESS, self.whim
        if flip(reason):
            user.click()
