"""DBN of a feed that loads page after page. After the pager of Chuklin et al., CIKM 2013.

    examine --attracted--> click --satisfied--> done
    not attracted, or not satisfied --continues--> examine the next, else done
    last of a page, still there --loads--> a further page, else done

Each page that was loaded is a page of the log, and all pages of one feed are a task. A page that
was loaded shows that all results of the page before were looked at.

Not for logs that contain pages that could have been loaded but were not.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class FeedDBN(ClickModel):
    """As DBN, but the list comes in pages, and users decide whether to load the next page."""

    view = "tasks"

    loading = Parameter()
    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")
    continuation = Parameter()

    relevance = ("attraction", "satisfaction")

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            if flip(self.satisfaction):
                return user.stop()
        if not result.last_on_page:
            if not flip(self.continuation):
                user.stop()
        elif flip(self.loading):
            user.emit("query_follows")
        else:
            user.stop()
