"""Text files as lines that know where they stand."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.inputs import Opened

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Two of these, such as \ud83d\ude00, are a character; one alone is in JSON, but not in UTF-8.
HALF_A_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


class Lines:
    """All lines of the files of a log.

    Parameters
    ----------
    texts
        The lines of each file.
    names
        How messages call each file.
    """

    def __init__(self, texts: list[pl.Series], names: list[str]) -> None:
        self.text: pl.Series = pl.concat(texts)
        self._names = names
        self._starts = [0]
        for text in texts[:-1]:
            self._starts.append(self._starts[-1] + len(text))

    def place(self, row: int) -> str:
        """Say where a line is: `clicks.tsv, line 17`."""
        file = bisect_right(self._starts, row) - 1
        return f"{self._names[file]}, line {row - self._starts[file] + 1}"

    def places(self, rows: pl.Series) -> list[str]:
        """Say where the first few of some lines are."""
        return [self.place(int(row)) for row in rows.head(3)]

    def error(self, row: int, what: str) -> ClickLogError:
        """Make the error for a line that cannot be read, with the line as an example."""
        return ClickLogError(f"{self.place(row)}: {what}. The line is {shortened(self.text[row])}.")

    def refuse(self, wrong: pl.Series, what: str) -> None:
        """Raise the error for the first line of those that are wrong, if there is any."""
        if wrong.any():
            raise self.error(int(wrong.arg_true()[0]), what)

    def records(self, rows: pl.Series | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read each line that is not blank as a JSON object.

        Parameters
        ----------
        rows
            Which lines; None for all.

        Yields
        ------
        row : int
        record : dict

        Raises
        ------
        ClickLogError
            Naming the line that is not a JSON object.
        """
        texts = self.text if rows is None else self.text.gather(rows)
        for row, text in zip(range(len(texts)) if rows is None else rows, texts, strict=True):
            if not text or text.isspace():
                continue
            try:
                record = json.loads(text)
                if HALF_A_CHARACTER.search(text):
                    json.dumps(record, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise self.error(
                    row, "a text has half a character (half of a pair of \\u)"
                ) from None
            except ValueError as error:
                raise self.error(row, f"not valid JSON ({error})") from None
            except RecursionError:
                raise self.error(row, "JSON nested too deeply") from None
            if not isinstance(record, dict):
                raise self.error(row, "a JSON object was expected, one a line")
            yield row, record


def whole_json(text: str) -> Any:
    """Read JSON, with a ValueError also for a half of a character, which no UTF-8 can hold."""
    value = json.loads(text)
    if HALF_A_CHARACTER.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text has half a character (half of a pair of \\u)") from None
    return value


def read_lines(inputs: Opened, max_line: int) -> Lines:
    """Read the lines of text files.

    Parameters
    ----------
    inputs
        The files.
    max_line
        The longest line allowed, in bytes.

    Returns
    -------
    Lines

    Raises
    ------
    ClickLogError
        When a file cannot be read, is empty, is no UTF-8, or has a line that is too long.
    """
    texts, names = [], []
    for file in inputs:
        if file.is_parquet:
            raise ClickLogError(f"{file.name} is a Parquet file, and text was expected.")
        data = file.content(max_line).removeprefix(BYTE_ORDER_MARK)
        check_utf8(data, file.name)
        texts.append(pl.read_lines(data)["line"] if data else pl.Series(dtype=pl.String))
        names.append(file.name)
    lines = Lines(texts, names)
    if not lines.text.str.contains(r"\S").any():
        raise ClickLogError(f"{inputs.label} is empty: there are no pages in it.")
    return lines


def check_utf8(data: bytes, name: str) -> None:
    """Refuse text that is not UTF-8, naming the first line and byte that is not."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        start = data.rfind(b"\n", 0, error.start) + 1
        near = data[max(start, error.start - 20) : error.start + 20].split(b"\n")[0]
        raise ClickLogError(
            f"{name}, line {line}: the text is not UTF-8; byte {error.start + 1} of the file is "
            f"0x{data[error.start]:02x}, near {near!r}. Convert it first, as in: "
            "iconv -f latin1 -t utf-8"
        ) from None


def shortened(text: str | None, width: int = 80) -> str:
    """Show a text in a message, cut where it is long."""
    shown = repr(text)
    return shown if len(shown) <= width else f"{shown[: width - 3]}..."
