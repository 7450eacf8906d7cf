"""Global click-through rate: the plainest baseline.

every result --click_rate--> click

Not for results that differ in anything; it is there to be beaten.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class GCTR(ClickModel):
    """Every result is clicked with the same probability."""

    click_rate = Parameter()

    def browse(self, user: User, result: Result) -> None:
        if flip(self.click_rate):
            user.click()
