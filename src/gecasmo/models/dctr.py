"""Click-through rate by document.

every result --click_rate of its (query, doc)--> click

Not for logs in which the ranker decides what is seen: it treats results that are shown low as poor.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class DCTR(ClickModel):
    """The click probability depends on query and document, whatever the rank."""

    click_rate = Parameter("query", "doc")

    relevance = ("click_rate",)

    def browse(self, user: User, result: Result) -> None:
        if flip(self.click_rate):
            user.click()
