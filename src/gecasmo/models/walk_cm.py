"""Walk cascade model. The idea of PSCM (Wang et al., SIGIR 2015), normalised.

    after a click --stops--> done, else goes down or up
    on the way --attracted--> click, and decides again
    not attracted --continues--> the next on the way, else done

Clicks have the order in which they were made; before the first click users go down. A result
is clicked at most once, and skipped afterwards. The probabilities of all orders of clicks on a
page add up to one, so users can be simulated click by click.

Not for logs without the order of clicks.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class WalkCM(ClickModel):
    """After a click users stop, or move down or up the page and read until they click again."""

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
