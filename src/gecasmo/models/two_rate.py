"""Two-rate cascade: reading on depends on the rank, and on whether it was clicked.

examine --attracted--> click --continues after click (by rank)--> examine the next, else leave
not attracted --continues after skip (by rank)--> examine the next, else leave

The cascade behind CM, DCM, SDBN, DBN and CCM with both of its rates free, and nothing hidden but
where the user left. It does not ask why people leave, so it says nothing about satisfaction. After
the last rank there is nothing to continue to: its rows are never flipped.

Not for questions about satisfaction, nor for pages on which results are clicked out of order.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class TwoRate(ClickModel):
    """The user reads downwards; the rank and a click there decide how likely reading continues."""

    attraction = Parameter("query", "doc")
    continuation_after_click = Parameter("rank")
    continuation_after_skip = Parameter("rank")

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            continues = flip(self.continuation_after_click)
        else:
            continues = flip(self.continuation_after_skip)
        if not continues:
            user.leave()
