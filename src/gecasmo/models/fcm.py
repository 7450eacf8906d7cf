"""Federated click model: a vertical draws attention. Chen et al., WSDM 2012.

    start --drawn (by the vertical of the page)?--> for the whole page
    examined (by rank and last click), or drawn and spilt over (by distance to the vertical)
    examined and attracted (by document) --> click

Columns of the log: `has_vertical` (yes or no, the same all over a page), `vertical` (which one and
where, the same all over a page; anything where there is none) and `vertical_distance` (rank minus
that of the vertical). To fix the scale: `FCM(examination=Table(fixed={(1, 0): 1.0}))`.

Not for pages with several verticals, of which it uses one; on pages without verticals it is UBM.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class FCM(ClickModel):
    """As UBM, but a block of pictures or news may draw attention to the results around it."""

    attention = Parameter("vertical")
    spill = Parameter("vertical_distance")
    examination = Parameter("rank", "last_click")
    attraction = Parameter("query", "doc")

    relevance = ("attraction",)

    def start(self, user: User) -> None:
        user.is_drawn = flip(self.attention)

    def browse(self, user: User, result: Result) -> None:
        examined = flip(self.examination)
        if not examined and result.has_vertical and user.is_drawn:
            examined = flip(self.spill)
        if examined and flip(self.attraction):
            user.click()
