"""Position-based model. Richardson et al., WWW 2007; Craswell et al., WSDM 2008.

    examined (by rank) and attracted (by document) --> click

Only products of the two coins are observed. To fix their scale, give one of them:
`PBM(examination=Table(fixed={1: 1.0}))`.

Not for pages that people leave for a reason: it knows neither clicks above nor leaving.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class PBM(ClickModel):
    """A result is clicked if it is looked at and attracts; low ranks are seen less often."""

    examination = Parameter("rank")
    attraction = Parameter("query", "doc")

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        examined = flip(self.examination)
        attracted = flip(self.attraction)
        if examined and attracted:
            user.click()
