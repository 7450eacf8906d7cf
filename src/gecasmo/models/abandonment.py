"""Good abandonment: some pages answer without a click. After Li, Huffman and Tokuda, SIGIR 2009.

    examine --attracted--> click --satisfied--> leave, content
    not attracted --answered by what is shown--> leave, content
    otherwise --continues--> examine the next, else leave
    at the end --asks again--> (if content only with asking_anyway)

Column of the log: `asked_again`, whether the user came back with another query about the same thing
(yes or no, the same on all rows of a page; null if unknown). A page without a click was good if its
users rarely ask again; only this tells `answer` from giving up.

Not for logs in which a further question of the same user is not linked to the page.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class Abandonment(ClickModel):
    """As DBN, but a result may answer without a click, and users without an answer ask again."""

    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")
    answer = Parameter("query", "doc")
    continuation = Parameter()
    asking = Parameter()
    asking_anyway = Parameter()

    relevance = ("attraction", "satisfaction")

    def start(self, user: User) -> None:
        user.is_content = False

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            user.is_content = flip(self.satisfaction)
        else:
            user.is_content = flip(self.answer)
        if user.is_content or not flip(self.continuation):
            user.leave()

    def finish(self, user: User) -> None:
        if flip(self.asking) and (not user.is_content or flip(self.asking_anyway)):
            user.emit("asked_again")
