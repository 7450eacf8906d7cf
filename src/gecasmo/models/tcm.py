"""Task-centric click model. Zhang, Chen, Wang and Yang, KDD 2011.

    page --the query matches what is wanted?--> examined (by rank), attracted, fresh --> click
    last of a page --no match, or wants more--> another query follows, else the task is done

A document that was on an earlier page of the task may be stale: it takes another coin to click it
again. In the paper the user must have examined it there; here, as in public code, it is enough that
it was shown. Clicks only show products of examination, attraction and match: fix one rank,
`TCM(examination=Table(fixed={1: 1.0}))`.

Not for pages that do not form tasks: then a query that does not match looks the same as bad
results.
"""

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
