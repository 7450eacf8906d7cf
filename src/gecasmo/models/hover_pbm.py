"""Position-based model that sees the mouse. After Huang, White, Buscher and Wang, SIGIR 2012.

    examined (by rank) --> hovers (if there is a mouse) --attracted (by document)--> click
    not examined --> passes over it by chance

Column of the log: `hover`, the mouse was over the result (yes or no; null where nothing was
recorded) and `has_mouse` (yes or no): on a phone nobody hovers, and that means nothing. Clicks
only show products of the first two coins. The mouse also moves over results that are not
clicked, and this tells the two coins apart. The paper does this in a DBN, where it takes a
result under the mouse as examined; here the mouse may also be there by chance.

Not for logs of phones, nor for logs that record the mouse only on clicked results.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class HoverPBM(ClickModel):
    """As PBM, but the mouse shows something of where users look, even without a click."""

    examination = Parameter("rank")
    attraction = Parameter("query", "doc")
    hover_if_examined = Parameter()
    hover_by_chance = Parameter()

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        examined = flip(self.examination)
        if result.has_mouse and flip(self.hover_if_examined if examined else self.hover_by_chance):
            user.emit("hover")
        if examined and flip(self.attraction):
            user.click()
