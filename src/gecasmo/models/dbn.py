"""Dynamic Bayesian network. Chapelle and Zhang, WWW 2009 (the paper's CZM).

examine --attracted--> click --satisfied--> leave
not attracted, or not satisfied --continues--> examine the next, else leave

Not for logs with at most one click per page, which can hardly tell satisfaction from giving up.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class DBN(ClickModel):
    """The user reads downwards, clicks what attracts, leaves when satisfied or tired."""

    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")
    continuation = Parameter()

    relevance = ("attraction", "satisfaction")

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            if flip(self.satisfaction):
                return user.leave()
        if not flip(self.continuation):
            user.leave()
