"""Partially sequential click model, as published. Wang et al., SIGIR 2015.

    from click to click, one way --examined (by rank, last click, next click) and attracted--> click

Between two clicks the user reads in one direction and may skip; after the last click, down to the
end. Only the *next* click says which results are between, and it is also in the key of examination.
So what this form calls the probability of a click is conditional on where the user clicks next. It
can say what attracts, but it cannot predict or simulate, and its likelihood cannot be compared with
that of other models. `WalkCM` is the form that can.

Not for predictions, nor for comparing likelihoods.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class PSCM(ClickModel):
    """Users go one way from click to click; examination depends on the rank and on both clicks."""

    view = "walks"

    examination = Parameter("page_rank", "from_rank", "to_rank")
    attraction = Parameter("query", "doc")

    relevance = ("attraction",)

    def browse(self, user: User, result: Result) -> None:
        if result.after_last and result.is_above:
            return
        examined = flip(self.examination)
        attracted = flip(self.attraction)
        if examined and attracted:
            user.click()
