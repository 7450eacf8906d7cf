"""Vertical-aware click model, as far as a set of clicks can tell it. Wang et al., SIGIR 2013.

    start --straight to the vertical (by the vertical of the page)?--> for the whole page
    above the vertical: not examined by those who went straight to it
    elsewhere: examined (by rank and last click) and attracted (by document) --> click

The paper's users look at a vertical first and then either go back to the top or read on below it.
Those who go back see the same results in another order, which a log without the order of clicks
does not show; so `straight` is the share of the others. Columns of the log: `above_vertical` (yes
or no) and `vertical` (which one and where, the same all over a page). To fix the scale:
`VCM(examination=Table(fixed={(1, 0): 1.0}))`.

Not for logs that have the order of clicks, because it does not use that.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class VCM(ClickModel):
    """As UBM, but some users go straight to a vertical and never see the results above it."""

    straight = Parameter("vertical")
    examination = Parameter("rank", "last_click")
    attraction = Parameter("query", "doc")

    relevance = ("attraction",)

    def start(self, user: User) -> None:
        user.went_straight = flip(self.straight)

    def browse(self, user: User, result: Result) -> None:
        if result.above_vertical and user.went_straight:
            return
        if flip(self.examination) and flip(self.attraction):
            user.click()
