"""User browsing model. Dupret and Piwowarski, SIGIR 2008.

    examined (by rank and last click) and attracted (by document) --> click

Only products of the two coins are observed. To fix their scale, give one of them:
`UBM(examination=Table(fixed={(1, 0): 1.0}))`.

The Bayesian browsing model (BBM; Liu, Guo and Faloutsos, KDD 2009) is this model with a belief
about the attraction of each pair in place of a number: what every fit ends with, the prior learned
and the likelihood of each row multiplied exactly over its pages. `model.estimates("attraction")`
shows it.

Not for logs with few pages, which leave its many cells nearly empty, and questions about
satisfaction.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class UBM(ClickModel):
    """As PBM, but how often a rank is looked at depends on where the last click was."""

    examination = Parameter("rank", "last_click")
    attraction = Parameter("query", "doc")

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        examined = flip(self.examination)
        attracted = flip(self.attraction)
        if examined and attracted:
            user.click()
