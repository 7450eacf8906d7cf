"""Click-through rate by rank: the baseline every click model has to beat.

every result --click_rate of its rank--> click

Not for telling results apart; it is what every model has to beat.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class RCTR(ClickModel):
    """The click probability depends on the rank, whatever the document."""

    click_rate = Parameter("rank")

    def browse(self, user: User, result: Result) -> None:
        if flip(self.click_rate):
            user.click()
