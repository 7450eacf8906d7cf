"""Time-aware click model, in the style of TACM. After Liu et al., TOIS 35(3), 2016.

    examine --attracted--> click --satisfied--> dwell, spread as for satisfied users; leave
                                 --not--------> dwell, spread as for others
    not attracted, or not satisfied --continues--> examine the next, else leave

Column of the log: `dwell`, how long a clicked result was read, in any unit (null where it was not
recorded, as after the last click of a visit, and where nothing was clicked). What differs from the
published model: that one follows clicks in their order, as PSCM does, and lets the gain of a dwell
time grow towards a limit with a half-life; here users read downwards as in DBN, and times are
spread by two log-normal distributions, of users who are satisfied and of others, both learned, so
that no threshold is set and a long time need not be a good one. So it has the idea of the paper,
that times tell of satisfaction, and neither its order of clicks nor its formulas. The
log-likelihood is that of clicks and times together; perplexities are of clicks.

Not for logs in which times tell how long a document is, rather than how good: `TACM(reading=...)`
takes other distributions, and a model of your own a Density by kind of result.
"""

from gecasmo.forms import LogNormal
from gecasmo.language import Density, Parameter, Result, User, flip
from gecasmo.model import ClickModel


class TACM(ClickModel):
    """As DBN, but how long a clicked result is read tells whether it satisfied."""

    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")
    continuation = Parameter()
    reading = Density(LogNormal())

    relevance = ("attraction", "satisfaction")

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            satisfied = flip(self.satisfaction)
            user.observe("dwell", self.reading, given=satisfied)
            if satisfied:
                return user.leave()
        if not flip(self.continuation):
            user.leave()
