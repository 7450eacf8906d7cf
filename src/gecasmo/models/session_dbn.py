"""DBN of a whole task. After Chapelle and Zhang, WWW 2009; a user who is not satisfied asks again.

examine --attracted--> click --satisfied--> done with the task
not attracted, or not satisfied --continues--> examine the next, else done with the page
end of a page, not satisfied --asks again--> the next page, else done with the task

Not for logs in which a task also has later queries of satisfied people about something else.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class SessionDBN(ClickModel):
    """As DBN on each page; users who are not satisfied may ask another query."""

    view = "tasks"

    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")
    continuation = Parameter()
    persistence = Parameter()

    relevance = ("attraction", "satisfaction")

    def start(self, user: User) -> None:
        user.reads = True

    def next_page(self, user: User) -> None:
        user.reads = True

    def browse(self, user: User, result: Result) -> None:
        if user.reads:
            if flip(self.attraction):
                user.click()
                if flip(self.satisfaction):
                    return user.stop()
            user.reads = not result.last_on_page and flip(self.continuation)
        if result.last_on_page:
            if not flip(self.persistence):
                return user.stop()
            user.emit("query_follows")
