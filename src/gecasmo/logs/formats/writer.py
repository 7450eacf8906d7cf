"""What writers share: what a format cannot hold is refused, and files appear whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.files import whole_file
from gecasmo.logs.packed import packed
from gecasmo.logs.pages import shown

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog
    from gecasmo.logs.formats.format import Format

ROLES = ("session", "query", "doc", "rank", "click")
BREAKS_A_LINE = r"[\t\n\r]|^\s|\s$|^$"


class LogWriter:
    """A log on its way into a file of some format.

    Parameters
    ----------
    log
        The log.
    path
        The file, for messages.
    target
        The format.
    """

    def __init__(self, log: ClickLog, path: Path, target: Format) -> None:
        self.log = log
        self.path = path
        self.title = target.title
        self._ranked = log.to_frame()[log.order]
        self._page = log.page[log.order]

    def refuse(self, what: str, advice: str = "") -> ClickLogError:
        """Make the error for what the format cannot hold."""
        return ClickLogError(
            f"{self.path} cannot be written: {self.title} cannot hold {what}.{advice}"
        )

    def keeps(self, *names: str) -> None:
        """Refuse columns that the format has no place for; `names` are those it has one for."""
        lost = [name for name in self.log.columns if name not in (*ROLES, *names)]
        if lost:
            quoted = ", ".join(map(repr, lost))
            raise self.refuse(
                f"the columns {quoted}",
                f" Leave them out with read_log(log.to_frame().drop({quoted})), or write a table.",
            )

    def needs_queries(self) -> None:
        """Refuse logs without queries."""
        if not self.log.has_query:
            raise self.refuse("a log without queries")
        if self.log.session_column("query").null_count():
            raise self.refuse("pages without a query")

    def needs_plain_ranks(self) -> None:
        """Refuse ranks with gaps."""
        ranks = self.log.rank[self.log.order]
        plain = np.arange(len(ranks)) - self.log.starts[self._page] + 1
        if (ranks != plain).any():
            page = int(self._page[np.argmax(ranks != plain)])
            raise self.refuse(
                "ranks with gaps", f" Session {shown(self.log.sessions, page)} has one."
            )

    def needs_unit_weights(self) -> None:
        """Refuse weights."""
        if not np.all(self.log.weight == 1):
            raise self.refuse("weights", " Write a table, such as .parquet.")

    def needs_clicks_on_first_places(self) -> None:
        """Refuse a click on a result that stands further up on its page, too."""
        again = self._ranked.select("doc", "click").with_columns(page=pl.Series(self._page))
        lost = again.select(~pl.struct("page", "doc").is_first_distinct() & pl.col("click"))
        if lost.to_series().any():
            page = int(self._page[lost.to_series().arg_true()[0]])
            raise self.refuse(
                "a click on the second place of a result that is twice on its page",
                f" Session {shown(self.log.sessions, page)} has one.",
            )

    def values(self, name: str) -> list[Any]:
        """Return a column with one value a page, by page."""
        return self.log.session_column(name).to_list()

    def texts(self, name: str, default: str | None = None) -> list[str]:
        """Return a column with one value a page as text that fits between two tabs."""
        if default is not None and name not in self.log.columns:
            return [default] * self.log.n_sessions
        return self._as_text(self.log.session_column(name), name).to_list()

    def plain_texts(self, name: str) -> list[str | None]:
        """Return a column with one value a page as text, whatever is in it."""
        return self._as_text(self.log.session_column(name), name, plain=True).to_list()

    def needs_booleans(self, name: str) -> None:
        """Refuse a column that should hold a signal and does not."""
        values = self.log.column(name)
        if values.dtype != pl.Boolean or values.null_count():
            raise self.refuse(f"the column {name!r}, which is not true or false everywhere")

    def needs_numbers(self, name: str, whole: bool = False) -> None:
        """Refuse a column of another type where the format has numbers, if there is the column."""
        if name not in self.log.columns:
            return
        dtype = self.log.column(name).dtype
        if not (dtype.is_integer() if whole else dtype.is_numeric()):
            kind = "whole numbers" if whole else "numbers"
            raise self.refuse(f"the column {name!r} of {dtype}, where it has {kind}")

    def needs_moments(self, name: str) -> None:
        """Refuse a column of another type where the format has moments, if there is the column."""
        if name in self.log.columns and not _is_moment(self.log.column(name)):
            dtype = self.log.column(name).dtype
            raise self.refuse(
                f"the column {name!r} of {dtype}, where it has moments",
                " Cast it to pl.Datetime, or give it another name.",
            )

    def results(self, name: str, text: bool = False, plain: bool = False) -> Iterator[list[Any]]:
        """Return a column with one value a result, a list a page, by rank."""
        column = self._ranked[name]
        values = self._as_text(column, name, plain) if text else column
        flat, starts = values.to_list(), self.log.starts.tolist()
        for a, b in pairwise(starts):
            yield flat[a:b]

    def json_values(self, name: str) -> list[Any]:
        """Return a column with one value a page as values that JSON has."""
        self._check_json(name)
        return self.values(name)

    def json_results(self, name: str) -> Iterator[list[Any]]:
        """Return a column with one value a result as values that JSON has."""
        self._check_json(name)
        return self.results(name)

    def _check_json(self, name: str) -> None:
        values = self.log.column(name)
        dtype = values.dtype
        if not (dtype.is_integer() or dtype.is_float() or dtype in (pl.String, pl.Boolean)):
            raise self.refuse(f"the {name} of this log, which is {dtype}")
        if dtype.is_float() and not values.drop_nulls().is_finite().all():
            raise self.refuse(f"numbers that are not finite, as in the column {name!r}")

    def _as_text(self, values: pl.Series, name: str, plain: bool = False) -> pl.Series:
        if values.dtype.is_nested() or values.dtype == pl.Binary:
            raise self.refuse(f"the {name} of this log, which is {values.dtype}")
        texts = values.dt.to_string("iso:strict") if _is_moment(values) else values.cast(pl.String)
        if plain:
            return texts
        broken = texts.str.contains(BREAKS_A_LINE).fill_null(True)
        if broken.any():
            raise self.refuse(
                f"the {name} {shown(values, int(broken.arg_true()[0]))}",
                " Ids in it must not be empty, nor have tabs, line ends or spaces around them.",
            )
        return texts


@contextmanager
def write_lines(path: Path) -> Iterator[Callable[[str], None]]:
    """Write lines to a file that appears whole, packed as its name says; yields what writes one."""
    with whole_file(path, ClickLogError) as temporary:
        with packed(temporary, path) as file:

            def tell(line: str) -> None:
                file.write(f"{line}\n".encode())

            yield tell


def _is_moment(values: pl.Series) -> bool:
    return isinstance(values.dtype, pl.Datetime)
