"""Two intents behind a query. After Chuklin, Serdyukov and de Rijke, ECIR 2013.

    start --intent (by query)--> one of two, for the whole page
    examined (by rank and last click) and attracted (by document and intent) --> click

A query such as "jaguar" can mean two things, so its pages come from two kinds of users: those who
click one result of a kind will click others of that kind. `Intents(intent=Table(key=()))` has the
same shares for all queries. Intents have no names: which of the two is the first is arbitrary. A
fit may end in a local optimum (so it starts several times), and only queries with many pages and
more than one click can tell the intents apart. What is relevant depends on the intent; relevance
is the mean over the intents of the query, what a user finds of whom nobody knows what he wants.
`model.relevance = ("attraction[0]",)`, or `gecasmo judgments --relevance "attraction[0]"`,
judges for those of the first.
To fix the scale: `Intents(examination=Table(fixed={(1, 0): 1.0}))`.

Not for queries with few pages, nor for pages with at most one click.
"""

from gecasmo.language import Choice, Parameter, Result, User, choose, flip
from gecasmo.model import ClickModel


class Intents(ClickModel):
    """As UBM, but users of a query want one of two things, and each has its own good results."""

    intent = Choice("query", n=2)
    examination = Parameter("rank", "last_click")
    attraction = Parameter("query", "doc", state="intent")

    relevance = ("attraction[intent]",)

    def start(self, user: User) -> None:
        user.intent = choose(self.intent)

    def browse(self, user: User, result: Result) -> None:
        examined = flip(self.examination)
        attracted = flip(self.attraction)
        if examined and attracted:
            user.click()
