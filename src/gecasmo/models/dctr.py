"""Click-through rate by document.

every result --click_rate of its (query, doc)--> click

Not for logs in which the ranker decides who is seen: it takes being shown low for being poor.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class DCTR(ClickModel):
    """Results are clicked by what they are, wherever they stand."""

    click_rate = Parameter("query", "doc")

    relevance = ("click_rate",)

    def browse(self, user: User, result: Result) -> None:
        if flip(self.click_rate):
            user.click()
