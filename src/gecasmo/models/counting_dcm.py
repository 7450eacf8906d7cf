"""The counting estimator of DCM. Guo, Liu and Wang, WSDM 2009.

    examine --attracted--> click --continues (by rank)--> examine the next
                                 --else--> it was the last click: leave
    not attracted --> examine the next

Then nothing is hidden, so one pass of counting gives the estimates. They are biased if
people continue to read below their last click; the exact model is `DCM`.

Not for anything but speed, or a comparison with others who count.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class CountingDCM(ClickModel):
    """DCM for which the last click of a page is taken as the moment the user left."""

    attraction = Parameter("query", "doc")
    continuation = Parameter("rank")

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            if not flip(self.continuation):
                user.emit("is_last_click")
                user.leave()
