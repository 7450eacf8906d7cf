"""Neural click model. Borisov, Markov, de Rijke and Serdyukov, WWW 2016.

every result --click_rate, as a network says that has read all above and its clicks--> click

A gated recurrent unit goes down the page; at each result it gets vectors of the query, the document
and the pair, and whether the result above was clicked. Nothing is hidden, so there is nothing to be
explained: it is the black box that other models are measured against, by the same commands. What
differs from the published model: its vectors come from counts of click patterns in earlier
sessions, here they are learned with the network; its unit is a plain recurrent one or an LSTM with
256 numbers of memory, here a gated one with 32 by default.
`NCM(click_rate=Recurrent("gru", "price", ids=("query", "doc")))` reads other columns. Relevance is
the click rate of the pair alone on a page. Needs the extra `torch`.

Not for questions about why users click: it has no examination, attraction or satisfaction.
"""

from gecasmo.forms import Recurrent
from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class NCM(ClickModel):
    """A recurrent network reads the page and foretells each click from those above."""

    click_rate = Parameter(
        "query", "doc", "rank", form=Recurrent("gru", ids=("query", "doc", ("query", "doc")))
    )

    relevance = ("click_rate",)

    def browse(self, user: User, result: Result) -> None:
        if flip(self.click_rate):
            user.click()
