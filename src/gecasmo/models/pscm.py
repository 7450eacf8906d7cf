"""Partially sequential click model, as published. Wang et al., SIGIR 2015.

    from click to click, one way --examined (by rank, last click, next click) and attracted--> click

Between two clicks the user reads in one direction and may skip; from the last click on, down to
the end. Which results are between is known from the *next* click, by which examination has its rows
as well: what this form calls the probability of a click is one given where the user clicks next. So
it can say what attracts, and cannot foretell or simulate; its likelihood is none of clicks, and not
to be held against that of other models. `WalkCM` is the form that can.

Not for predictions, nor for comparisons of likelihoods.
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
