"""Texts that are safe to show. Ids come from a log, and a log comes from anywhere."""

from __future__ import annotations

import re
import shutil
import unicodedata
from itertools import accumulate
from typing import Any

# What a terminal would obey and XML refuses, ends of lines, changes of the writing direction,
# halves of characters, and two codes that are no characters.
_HARMFUL = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
_IN_A_LINE = re.compile(f"[{_HARMFUL}]")
_IN_LINES = re.compile(rf"(?![\n\t])[{_HARMFUL}]")


def printable(value: Any) -> str:
    """A text for one line of a terminal or a chart: "?" stands for what would do harm there."""
    return _IN_A_LINE.sub("?", str(value))


def printable_lines(text: str) -> str:
    """The same for a text that is laid out already: its lines and tabs stay."""
    return _IN_LINES.sub("?", text)


def text_width() -> int:
    """How many columns tables are laid out for: what the terminal has, from 72 to 100."""
    return max(72, min(100, shutil.get_terminal_size(fallback=(100, 24)).columns))


def fitted(value: Any, width: int) -> str:
    """A printable text of exactly this many columns, also where letters take two of them."""
    text = printable(value)
    ends = list(accumulate(map(_columns, text)))
    if ends and ends[-1] > width:
        text = text[: sum(end <= width - 2 for end in ends)] + ".."
    return text + " " * (width - sum(map(_columns, text)))


def _columns(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0  # drawn upon the letter before it, or not at all
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
