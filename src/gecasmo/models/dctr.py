"""Click-through rate by document.

every result --click_rate of its (query, doc)--> click
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
