"""Models under views, to be proved."""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class TCM(ClickModel):
    """Users ask query after query until one matches; what they have seen before attracts less."""

    view = "tasks"

    match = Parameter()
    examination = Parameter("page_rank")
    attraction = Parameter("query", "doc")
    freshness = Parameter()
    more = Parameter()

    relevance = ("attraction",)

    def start(self, user: User) -> None:
        user.matches = flip(self.match)

    def next_page(self, user: User) -> None:
        user.matches = flip(self.match)

    def browse(self, user: User, result: Result) -> None:
        attracts = user.matches and flip(self.examination) and flip(self.attraction)
        if attracts and (not result.shown_before or flip(self.freshness)):
            user.click()
        if result.last_on_page:
            if user.matches and not flip(self.more):
                return user.stop()
            user.emit("query_follows")


class SessionDBN(ClickModel):
    """As DBN on each page; who was not satisfied may ask another query, who was asks no more."""

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
