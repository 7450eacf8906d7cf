"""Click-through rate by document and rank.

every result --click_rate of its (query, doc, rank)--> click

Not for logs with fewer than some dozens of pages per document and rank.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class DRCTR(ClickModel):
    """A click rate for every document at every rank; sparse unless the log is large."""

    click_rate = Parameter("query", "doc", "rank")

    def browse(self, user: User, result: Result) -> None:
        if flip(self.click_rate):
            user.click()
