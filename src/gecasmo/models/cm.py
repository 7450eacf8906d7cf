"""Cascade model. Craswell et al., WSDM 2008.

    examine --attracted--> click --> leave
    not attracted --> examine the next

A page with two clicks is impossible: see `impossible=` on `fit` and `evaluate`.

Not for logs with two clicks on a page, which are impossible here.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class CM(ClickModel):
    """The user reads downwards, clicks the first result that attracts, and leaves."""

    attraction = Parameter("query", "doc")

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            user.leave()
