"""Click chain model. Guo et al., WWW 2009.

examine --not attracted--> continues after skip?
examine --attracted--> click --attracted again: satisfied--> continues after satisfaction?
                             --not satisfied-->              continues after click?
continues --> examine the next, else leave

Not for logs in which all results attract alike: these can hardly tell its three continuations
apart.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class CCM(ClickModel):
    """After a click a second flip of the same coin decides whether the document satisfies."""

    attraction = Parameter("query", "doc")
    continuation_after_skip = Parameter()
    continuation_after_click = Parameter()
    continuation_after_satisfaction = Parameter()

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        if not flip(self.attraction):
            continues = flip(self.continuation_after_skip)
        else:
            user.click()
            if flip(self.attraction):
                continues = flip(self.continuation_after_satisfaction)
            else:
                continues = flip(self.continuation_after_click)
        if not continues:
            user.leave()
