"""Two kinds of users before a two-rate cascade: some are picky.

    start --picky?--> a kind of user, for the whole page
    examine --attracted (picky users: twice, two flips of one coin)--> click
    click --continues after click (by rank)--> examine the next, else leave
    no click --continues after skip (by rank)--> examine the next, else leave

A picky user clicks with the square of the probability: good results lose few clicks by that, poor
results lose nearly all. So the clicks of a page depend on each other: a user who has clicked
something poor will click more. This adds only one coin, and the two kinds of users cannot be
exchanged.

Not for logs with at most one click per page, which cannot tell kinds of users apart.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class Picky(ClickModel):
    """Some users click what attracts, some only what attracts twice; all read as in TwoRate."""

    pickiness = Parameter()
    attraction = Parameter("query", "doc")
    continuation_after_click = Parameter("rank")
    continuation_after_skip = Parameter("rank")

    relevance = ("attraction",)

    def start(self, user: User) -> None:
        user.is_picky = flip(self.pickiness)

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction) and (not user.is_picky or flip(self.attraction)):
            user.click()
            continues = flip(self.continuation_after_click)
        else:
            continues = flip(self.continuation_after_skip)
        if not continues:
            user.leave()
