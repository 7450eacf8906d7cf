"""Dependent click model. Guo, Liu and Wang, WSDM 2009. Exact; see `counting_dcm` for counts.

examine --attracted--> click --continues (by rank)--> examine the next, else leave
not attracted --> examine the next

Not for pages that people leave without a click: here only clicks end reading.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class DCM(ClickModel):
    """The user reads downwards; after a click, the rank decides how likely the user continues."""

    attraction = Parameter("query", "doc")
    continuation = Parameter("rank")

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            if not flip(self.continuation):
                user.leave()
