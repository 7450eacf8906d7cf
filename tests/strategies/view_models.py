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


class PSCM(ClickModel):
    """Users go one way from click to click; examination depends on the rank and on both clicks."""

    view = "walks"

    examination = Parameter("page_rank", "from_rank", "to_rank")
    attraction = Parameter("query", "doc")

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        if result.after_last and result.is_above:
            return
        examined = flip(self.examination)
        attracted = flip(self.attraction)
        if examined and attracted:
            user.click()


class WalkCM(ClickModel):
    """After a click users stop, or go on down or up the page, and read until they click again."""

    view = "walks"

    attraction = Parameter("query", "doc")
    continuation = Parameter("way")
    stopping = Parameter("from_rank")
    down = Parameter()

    relevance = ("attraction",)

    def start(self, user: User) -> None:
        user.way = ""

    def browse(self, user: User, result: Result) -> None:
        if not user.way:
            if not result.before_first and flip(self.stopping):
                return user.leave()
            user.way = "down" if result.before_first or flip(self.down) else "up"
        if bool(result.is_above) == (user.way == "down"):
            return
        if flip(self.attraction):
            user.click()
            user.leave()
        elif not flip(self.continuation):
            user.leave()
