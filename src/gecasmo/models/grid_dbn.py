"""DBN of a grid: results in rows. After the row skipping of Xie et al., WWW 2019.

    first of a row --enters the row?--> reads along it, else passes it over
    reading --attracted--> click --satisfied--> leave
    not attracted, or not satisfied --reads along--> the next of the row, else passes the rest over
    last of a row --goes down?--> the next row, else leave

Columns of the log: `row` and `column`, numbers. Rows are read along; `view = Grids("columns")` in a
subclass reads down the columns instead.

Not for grids in which the length of rows differs between users, unless the log has each user's
rows.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class GridDBN(ClickModel):
    """As DBN, but results are in rows, which users read along, leave early, or skip."""

    view = "grids"

    entry = Parameter()
    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")
    along = Parameter()
    down = Parameter()

    relevance = ("attraction", "satisfaction")

    def start(self, user: User) -> None:
        user.reads = True

    def browse(self, user: User, result: Result) -> None:
        if result.first_in_row:
            user.reads = flip(self.entry)
        if user.reads:
            if flip(self.attraction):
                user.click()
                if flip(self.satisfaction):
                    return user.leave()
            if not result.last_in_row:
                user.reads = flip(self.along)
        if result.last_in_row:
            user.reads = True
            if not flip(self.down):
                user.leave()
