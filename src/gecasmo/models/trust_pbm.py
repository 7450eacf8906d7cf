"""Position-based model with trust bias. Agarwal et al., WWW 2019.

    examined (by rank) and attracted (by document), or else trusted (by rank) --> click

In the paper's letters a result that is looked at is clicked with epsilon+ (by rank) if it is
relevant and with epsilon- if it is not. Only theta epsilon+ and theta epsilon- leave a trace, so
examination here is theta epsilon+ and trust is epsilon- / epsilon+; that trust helps both kinds
of results is built in, and the two cannot be exchanged.

Clicks determine attraction only up to a scale and a shift. Two anchors fix them: a rank that is
always looked at, and a rank that nobody trusts, such as the last one:
`TrustPBM(examination=Table(fixed={1: 1.0}), trust=Table(fixed={10: 0.0}))`.

Not for logs without an anchor from elsewhere (an experiment, a random bucket).
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class TrustPBM(ClickModel):
    """As PBM, but what is looked at may also be clicked because of where it stands."""

    examination = Parameter("rank")
    attraction = Parameter("query", "doc")
    trust = Parameter("rank")

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        examined = flip(self.examination)
        if examined and (flip(self.attraction) or flip(self.trust)):
            user.click()
