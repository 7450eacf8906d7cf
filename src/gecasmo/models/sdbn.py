"""Simplified dynamic Bayesian network. Chapelle and Zhang, WWW 2009. Exact; see `counting_sdbn`.

examine --attracted--> click --satisfied--> leave
not attracted, or not satisfied --> examine the next

Not for pages that people leave because they are tired: here people who are not satisfied read to
the end.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class SDBN(ClickModel):
    """As DBN, but nobody gives up: only satisfaction ends a page."""

    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")

    relevance = ("attraction", "satisfaction")

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            if flip(self.satisfaction):
                user.leave()
