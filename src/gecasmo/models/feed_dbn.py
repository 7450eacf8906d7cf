"""DBN of a feed that loads page after page. After the pager of Chuklin et al., CIKM 2013.

    first of a further page --loads it?--> examine, else leave
    examine --attracted--> click --satisfied--> leave
    not attracted, or not satisfied --continues--> examine the next, else leave

A page of the log is all that could have been seen, as far down as the feed had been loaded for
somebody. Column of the log: `first_on_page` (yes or no).

Not for logs that end where the user stopped scrolling: then all that is logged was seen.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class FeedDBN(ClickModel):
    """As DBN, but the list comes in pages, and loading a further one takes another decision."""

    loading = Parameter()
    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")
    continuation = Parameter()

    relevance = ("attraction", "satisfaction")

    def start(self, user: User) -> None:
        user.has_begun = False

    def browse(self, user: User, result: Result) -> None:
        if user.has_begun and result.first_on_page and not flip(self.loading):
            return user.leave()
        user.has_begun = True
        if flip(self.attraction):
            user.click()
            if flip(self.satisfaction):
                return user.leave()
        if not flip(self.continuation):
            user.leave()
