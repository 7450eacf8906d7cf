"""What people read: texts that are safe to show, numbers in words, and tables.

Ids come from a log, and a log comes from anywhere: nothing that goes through here can command a
terminal. Tables are plain text, laid out for the terminal, so that `print(answer)`, a file and the
command line show the same; colours and bars that move are the command line's own (`cli/output`).
"""

from __future__ import annotations

import html
import math
import re
import shutil
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

# What a terminal would obey and XML refuses, ends of lines, changes of the writing direction,
# halves of characters, and two codes that are no characters.
_HARMFUL = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
_IN_A_LINE = re.compile(f"[{_HARMFUL}]")
_IN_LINES = re.compile(rf"(?![\n\t])[{_HARMFUL}]")

_EIGHTHS = " ▏▎▍▌▋▊▉█"


# -- texts -------------------------------------------------------------------------------------
def printable(value: Any) -> str:
    """Make a text for one line of a terminal or a chart: "?" stands for what would do harm."""
    return _IN_A_LINE.sub("?", str(value))


def printable_lines(text: str) -> str:
    """Do the same for a text that is laid out already: its lines and tabs stay."""
    return _IN_LINES.sub("?", text)


def text_width() -> int:
    """Say how many columns to lay out for: what the terminal has, from 72 to 100."""
    return max(72, min(100, shutil.get_terminal_size(fallback=(100, 24)).columns))


def fitted(value: Any, width: int, *, right: bool = False) -> str:
    """Cut or fill a printable text to so many columns, also where letters take two of them."""
    text = printable(value)
    ends = list(accumulate(map(_columns, text)))
    if ends and ends[-1] > width:
        text = text[: sum(end <= width - 2 for end in ends)] + ".."
    space = " " * (width - _width(text))
    return space + text if right else text + space


def wrapped(text: str, first: str = "", later: str = "", width: int | None = None) -> list[str]:
    """Break a text into lines for the terminal, with an indent of the first and of later ones."""
    return textwrap.wrap(
        " ".join(text.split()),
        width or text_width(),
        initial_indent=first,
        subsequent_indent=later,
        break_on_hyphens=False,
    )


def shortened(text: str, width: int) -> str:
    """Cut a text where it is longer than so many letters."""
    return text if len(text) <= width else text[: width - 3] + "..."


def _width(text: str) -> int:
    return sum(map(_columns, text))


def _columns(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0  # drawn upon the letter before it, or not at all
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


# -- numbers in words --------------------------------------------------------------------------
def counted(number: float, one: str = "", many: str | None = None) -> str:
    """Say a number with its noun: "1 page", "2,000 pages", "3 queries"."""
    shown = f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"
    return f"{shown} {one if number == 1 else many or one + 's'}" if one else shown


def percent(
    part: float, whole: float = 1.0, *, decimals: int | None = None, in_words: bool = False
) -> str:
    """Say a part in percent; what is neither none nor all does not look as if it were.

    Parameters
    ----------
    part, whole : float
        Of an empty whole, every part is 0 %.
    decimals : int, optional
        For columns of a table; by default as many digits as tell the part from none and all.
    in_words : bool
        "fewer than 0.1 %" instead of "< 0.1 %", for the beginning of a sentence.
    """
    share = 100 * part / whole if whole > 0 else 0.0
    digits = 2 if decimals is None else decimals
    least = 10.0**-digits
    below, above = ("fewer than", "more than") if in_words else ("<", ">")
    if 0 < share < least:
        return f"{below} {least:.{digits}f} %"
    if 100 - least < share < 100:
        return f"{above} {100 - least:.{digits}f} %"
    if decimals is not None:
        return f"{share:.{decimals}f} %"
    return f"{share:.3g} %" if 0 < share < 10 or 99 < share < 100 else f"{share:.0f} %"


def listed(items: Iterable[str], last: str = "and") -> str:
    """Say items in a row: "a, b and c"."""
    *others, final = list(items) or [""]
    return f"{', '.join(others)} {last} {final}" if others else final


def bar(share: float, width: int, encoding: str) -> str:
    """Draw a share between 0 and 1 as a bar of so many characters."""
    share = min(max(share, 0.0), 1.0)
    if not encoding.lower().startswith("utf"):
        return ("#" * round(share * width)).ljust(width)
    full, rest = divmod(round(share * width * 8), 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


# -- tables ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    heading : str
        May have several lines.
    cells : list of str
    is_text : bool
        Texts stand left, numbers right.
    least, most : int, optional
        To how many columns cells may be cut if there is no room, and are cut in any case.
    wraps : bool
        Whether cells go on in the next line instead of being cut.
    belongs_left : bool
        Whether this is part of what the column on its left says, such as its interval.
    """

    heading: str
    cells: Sequence[str]
    is_text: bool = False
    least: int | None = None
    most: int | None = None
    wraps: bool = False
    belongs_left: bool = False

    @property
    def width(self) -> int:
        """How wide the column would like to be."""
        widest = max(map(_width, (*self.heading.split("\n"), *self.cells)))
        return widest if self.most is None else min(widest, self.most)

    def lines(self, cell: str, width: int) -> list[str]:
        """A cell in as many lines as it needs."""
        texts = textwrap.wrap(cell, width) or [""] if self.wraps else [cell]
        return [fitted(text, width, right=not self.is_text) for text in texts]


@dataclass(frozen=True)
class TextTable:
    """Columns of text; those for which the terminal has no room stand below, beside the first.

    The first `keys` columns say what a row is about, and stand in every block.
    """

    columns: Sequence[Column]
    title: str = ""
    n_more: int = 0  # rows that are not shown
    keys: int = 1

    @classmethod
    def of(
        cls,
        frame: pl.DataFrame,
        title: str = "",
        *,
        most: int | None = None,
        digits: int | None = None,
        headings: Mapping[str, str] | None = None,
        formats: Mapping[str, Callable[[Any], str]] | None = None,
    ) -> TextTable:
        """Make a table of a data frame.

        Parameters
        ----------
        frame : data frame
        title : str
        most : int, optional
            Show only so many rows.
        digits : int, optional
            How many to write behind the point of all numbers; by default as many as tell them.
        headings : dict, optional
            Other names for columns.
        formats : dict of functions, optional
            How to write the values of some columns; by default as `cell` does.
        """
        rows = frame.head(len(frame) if most is None else most)
        columns = []
        for column in rows.iter_columns():
            write = (formats or {}).get(column.name)
            if write is None and digits is not None and column.dtype.is_float():
                write = f"{{:,.{digits}f}}".format
            cells = [
                cell(value, column.name) if write is None or value is None else write(value)
                for value in column
            ]
            name = (headings or {}).get(column.name, column.name.replace("_", " "))
            is_text = not column.dtype.is_numeric()
            limits = (16, 44) if is_text else (None, None)
            columns.append(Column(_broken(name, cells), cells, is_text, *limits))
        return cls(columns, title, len(frame) - len(rows))

    def lines(self, width: int | None = None) -> Iterator[str]:
        """The lines of the table, as wide as the terminal or `width`."""
        total = width or text_width()
        if self.title:
            yield from wrapped(printable(self.title), width=total)
        for number, block in enumerate(self._blocks(total)):
            if number:
                yield ""
            yield from _laid_out(block, total)
        if self.n_more > 0:
            yield f"  ... and {self.n_more:,} more"

    def _blocks(self, total: int) -> Iterator[list[Column]]:
        """Columns that have room beside each other, the keys always among them."""
        keys, others = list(self.columns[: self.keys]), list(self.columns[self.keys :])
        room = total - sum(_least(key) + 2 for key in keys)
        if not others:
            yield keys
        while others:
            fitting = max(1, sum(end <= room for end in accumulate(_least(c) + 2 for c in others)))
            # Several blocks share the columns evenly.
            taken = math.ceil(len(others) / math.ceil(len(others) / fitting))
            if 1 < taken < len(others) and others[taken].belongs_left:
                taken -= 1
            yield [*keys, *others[:taken]]
            others = others[taken:]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def html(self) -> str:
        """The table for a notebook."""
        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        heads = (" ".join(column.heading.split()) for column in self.columns)
        rows = zip(*(column.cells for column in self.columns), strict=True)
        more = f"<p>... and {self.n_more:,} more</p>" if self.n_more > 0 else ""
        return (
            f"<table>{caption}<tr>{_tags('th', heads)}</tr>"
            + "".join(f"<tr>{_tags('td', row)}</tr>" for row in rows)
            + f"</table>{more}"
        )


def html_of(*blocks: str | TextTable | Sequence[str]) -> str:
    """Lay out paragraphs, tables, and lists of sentences for a notebook, one below the other."""
    parts = []
    for block in blocks:
        if isinstance(block, TextTable):
            parts.append(block.html())
        elif isinstance(block, str):
            parts.append(_tags("p", [block]))
        elif block:
            parts.append(f"<ul>{_tags('li', block)}</ul>")
    return f"<div>{''.join(parts)}</div>"


def cell(value: Any, name: str = "") -> str:
    """Write a value of a table for people, in the column of this name."""
    if value is None:
        return "-"
    if isinstance(value, float) and (name == "ctr" or "share" in name.split("_")):
        return percent(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        is_long = (value.is_integer() and abs(value) >= 10) or 1000 <= abs(value) < 1e12
        return f"{value:,.0f}" if is_long else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return " ".join(str(value).split())


def _tags(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{html.escape(printable(text))}</{tag}>" for text in texts)


def _broken(name: str, cells: Sequence[str]) -> str:
    """The name of a column in lines about as long as what stands below."""
    width = max(*map(len, name.split(" ")), *(min(len(text), 20) for text in cells), 8)
    return "\n".join(textwrap.wrap(name, width))


def _least(column: Column) -> int:
    return column.width if column.least is None else min(column.width, column.least)


def _laid_out(columns: Sequence[Column], total: int) -> Iterator[str]:
    """Lines of columns that have room; cells are cut until they do."""
    widths, least = [c.width for c in columns], [_least(c) for c in columns]
    while sum(widths) + 2 * len(widths) > total and widths != least:
        spare = [width > few for width, few in zip(widths, least, strict=True)]
        widths[max(range(len(widths)), key=lambda i: (spare[i], widths[i]))] -= 1
    heads = [column.heading.split("\n") for column in columns]
    n_heads = max(map(len, heads))
    for number in range(n_heads):
        above = [["", *head][max(0, number - n_heads + len(head) + 1)] for head in heads]
        yield from _row([replace(c, wraps=False) for c in columns], above, widths)
    for row in zip(*(column.cells for column in columns), strict=True):
        yield from _row(columns, row, widths)


def _row(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    parts = [c.lines(text, width) for c, text, width in zip(columns, row, widths, strict=True)]
    for line in zip_longest(*parts):
        filled = (
            " " * width if text is None else text for text, width in zip(line, widths, strict=True)
        )
        yield ("  " + "  ".join(filled)).rstrip()
