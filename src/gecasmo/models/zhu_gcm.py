"""General click model. Zhu, Chen, Minka, Zhu and Chen, WSDM 2010.

    examine --attracted--> click --continues after click--> examine the next, else leave
    not attracted --continues after skip--> examine the next, else leave

Behind every coin stands a sum of effects plus normal noise, and the coin falls heads where that is
positive: a probit, whose effects have normal beliefs. By default attraction has effects of the
pair, of its document and of its query, so that rare pairs borrow from both; reading on has effects
of ranks. The paper puts any attribute of users and results there, which is
`ZhuGCM(attraction=Sum(Table("query", "doc"), Logistic("bm25"), link="probit"))`,
`ZhuGCM(continuation_after_skip=Sum(Table("rank"), Table("device"), link="probit"))`. It learns in
one pass over the log by assumed density filtering; here EM goes over it until nothing changes, and
the beliefs come from expectation propagation. Cascade models are special cases by choice of
effects; what it adds to TwoRate is what rows have in common.

Not for updates, which tables can and sums of effects cannot, and questions about satisfaction.
"""

from gecasmo.forms import Sum, Table
from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class ZhuGCM(ClickModel):
    """The user reads downwards; what attracts and who reads on are sums of effects, with noise."""

    attraction = Parameter(
        "query",
        "doc",
        form=Sum(Table("query", "doc"), Table("doc"), Table("query"), link="probit"),
    )
    continuation_after_click = Parameter("rank", form=Sum(Table("rank"), link="probit"))
    continuation_after_skip = Parameter("rank", form=Sum(Table("rank"), link="probit"))

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            continues = flip(self.continuation_after_click)
        else:
            continues = flip(self.continuation_after_skip)
        if not continues:
            user.leave()
