"""The counting estimator of SDBN. Chapelle and Zhang, WWW 2009.

    examine --attracted--> click --satisfied--> it was the last click: leave
    not attracted, or not satisfied --> examine the next

Then nothing is hidden, so one pass of counting gives the estimates. They are biased if
people continue to read below their last click; the exact model is `SDBN`.

Not for anything but speed, or a comparison with others who count.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class CountingSDBN(ClickModel):
    """SDBN for which the last click of a page is taken as the satisfying one."""

    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")

    relevance = ("attraction", "satisfaction")

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            if flip(self.satisfaction):
                user.emit("is_last_click")
                user.leave()
