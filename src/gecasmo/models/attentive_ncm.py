"""Neural click model with attention. NCM (Borisov et al., WWW 2016), its unit replaced.

every result --click_rate, as a network says that attends to all above and their clicks--> click

As NCM; but what the network knows of the page above it does not have to carry along: each result
attends to those above it, with their clicks, and to itself. Needs the extra `torch`.

Not for questions about why users click: it has no examination, attraction or satisfaction.
"""

from gecasmo.forms import Recurrent
from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class AttentiveNCM(ClickModel):
    """A network that attends to the results above foretells each click from theirs."""

    click_rate = Parameter(
        "query", "doc", "rank", form=Recurrent("attention", ids=("query", "doc", ("query", "doc")))
    )

    relevance = ("click_rate",)

    def browse(self, user: User, result: Result) -> None:
        if flip(self.click_rate):
            user.click()
