"""Bayesian sequential state model: noise clicks. Wang, Zhai, Dong and Chang, WWW 2013.

    examine --relevant--> clicked (care), or not
    examine --not relevant--> clicked (care and noise), or not
    click --continues after click (by rank and clicks above)--> examine the next, else leave
    no click --continues after skip (by rank and clicks above)--> examine the next, else leave

The paper puts features behind every coin: `BSS(attraction=Logistic("bm25", "price"), ...)`, and
weighs clicks on relevant and on other results apart. Here the second is the first times `noise`,
so that the two cannot be exchanged. Without features, clicks determine attraction only up to a
scale and a shift; `BSS(care=0.9, noise=0.1)`, for example, fixes them.

Not for logs without features, unless you give both `care` and `noise`.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class BSS(ClickModel):
    """The user reads downwards; relevant results are clicked more often, others sometimes."""

    attraction = Parameter("query", "doc")
    care = Parameter()
    noise = Parameter()
    continuation_after_click = Parameter("rank", "clicks_above")
    continuation_after_skip = Parameter("rank", "clicks_above")

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        if (flip(self.attraction) or flip(self.noise)) and flip(self.care):
            user.click()
            continues = flip(self.continuation_after_click)
        else:
            continues = flip(self.continuation_after_skip)
        if not continues:
            user.leave()
