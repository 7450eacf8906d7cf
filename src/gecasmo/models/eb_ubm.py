"""User browsing model with exploration bias. Chen et al., WSDM 2012.

    examined (by rank and last click) and attracted (by document) --> click
    after a click on a vertical: plain results are lost with exploration_bias

Column of the log: `is_vertical` (yes or no). The paper's bias depends on where the first vertical
stands: `EBUBM(exploration_bias=Table(key="vertical_rank"))`, if the log has such a column. To fix
the scale: `EBUBM(examination=Table(fixed={(1, 0): 1.0}))`.

Not for pages without verticals, where it is UBM.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class EBUBM(ClickModel):
    """As UBM, but users who have clicked a vertical look less at plain results below."""

    examination = Parameter("rank", "last_click")
    exploration_bias = Parameter()
    attraction = Parameter("query", "doc")

    relevance = ("attraction",)

    def start(self, user: User) -> None:
        user.explores = False

    def browse(self, user: User, result: Result) -> None:
        examined = flip(self.examination)
        if examined and user.explores and not result.is_vertical:
            examined = not flip(self.exploration_bias)
        if examined and flip(self.attraction):
            user.click()
            if result.is_vertical:
                user.explores = True
