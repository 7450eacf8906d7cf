"""What a check has to say: findings, tables and a verdict, in plain words."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import Rows
from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog
from gecasmo.report import TextTable, counted, listed, printable_lines, shortened, wrapped

Integers = NDArray[np.int64]
Severity = Literal["info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
VERDICTS: dict[Severity, str] = {
    "info": "fine",
    "warning": "be careful",
    "error": "do not trust",
}


_ROWS_SHOWN = 12
_TITLES = {
    "ctr_by_rank": "Clicks by rank",
    "page_lengths": "Results on a page",
    "clicks_per_page": "Clicks on a page",
    "pairs": "How often pairs of query and document were shown",
    "traffic": "How concentrated the traffic is",
    "coins": "What the log knows about each coin",
    "few_trials": "Rows with few flips that are shown most",
    "components": "Parts of the log whose estimates cannot be compared",
    "links": "Pages that would connect them",
    "not_identified": "Parameters that cannot be told apart",
    "impossible": "Pages that cannot happen under the model",
    "directions": "How sure the global parameters are (priors count two flips at most)",
    "randomising": "What random pages would buy",
}


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing.

    Attributes
    ----------
    severity : "info", "warning" or "error"
    topic : what it is about, in a word or two
    message : what was found, in a sentence
    count : how many pages, results or rows it concerns, where that makes sense
    examples : some of them
    advice : what to do about it
    """

    severity: Severity
    topic: str
    message: str
    count: int | None = None
    examples: tuple[str, ...] = ()
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The finding as data that JSON can hold."""
        return {
            "severity": self.severity,
            "topic": self.topic,
            "message": self.message,
            "count": self.count,
            "examples": list(self.examples),
            "advice": self.advice,
        }


@dataclass
class Findings:
    """What one part of a check found."""

    findings: list[Finding] = field(default_factory=list)
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    suspicious: list[Integers] = field(default_factory=list)  # numbers of sessions

    def add(
        self,
        severity: Severity,
        topic: str,
        message: str,
        *,
        count: int | None = None,
        examples: Iterable[str] = (),
        advice: str = "",
    ) -> None:
        """Add a finding."""
        number = None if count is None else int(count)
        self.findings.append(Finding(severity, topic, message, number, tuple(examples), advice))


@dataclass
class LogCheck:
    """The result of `check`: print it, show it in a notebook, or read it as data.

    Attributes
    ----------
    findings : list of Finding, the worst first
    tables : dict of data frames
    facts : dict of single numbers about the log and the model
    model : the name of the model that was looked at, if any
    suspicious : numbers of the sessions that seem to be a robot's or a test's: those with a
        suspicious number of clicks, and all of a visitor who has far too many
    """

    findings: list[Finding]
    tables: dict[str, pl.DataFrame]
    facts: dict[str, Any]
    model: str | None = None
    suspicious: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(cls, parts: Iterable[Findings], model: str | None) -> LogCheck:
        """Put the parts of a check together."""
        parts = list(parts)
        findings = [finding for part in parts for finding in part.findings]
        findings.sort(key=lambda finding: -SEVERITIES.index(finding.severity))
        tables = {name: table for part in parts for name, table in part.tables.items()}
        facts = {name: value for part in parts for name, value in part.facts.items()}
        odd = [sessions for part in parts for sessions in part.suspicious]
        suspicious = np.unique(np.concatenate([np.zeros(0, np.int64), *odd]))
        return cls(findings, tables, facts, model, suspicious)

    @property
    def worst(self) -> Severity:
        """The worst severity there is; "info" if nothing was found."""
        return max(
            (finding.severity for finding in self.findings), key=SEVERITIES.index, default="info"
        )

    @property
    def verdict(self) -> str:
        """The verdict in two or three words: "fine", "be careful" or "do not trust"."""
        return VERDICTS[self.worst]

    def about(self, topic: str) -> list[Finding]:
        """The findings on a topic."""
        return [finding for finding in self.findings if finding.topic == topic]

    def naming(self, words: str) -> LogCheck:
        """The same, with commands to be pasted: `words` are the log and the flags to read it."""
        asked = f"`gecasmo check {words} "
        told = (f.advice.replace("`gecasmo check LOG ", asked) for f in self.findings)
        findings = [replace(f, advice=own) for f, own in zip(self.findings, told, strict=True)]
        return replace(self, findings=findings)

    def without_suspicious(self, log: Any) -> ClickLog:
        """Leave out of the checked log what seems to be a robot's: the pages in `suspicious`.

        Parameters
        ----------
        log : ClickLog
            The very log that was checked.

        Returns
        -------
        ClickLog
        """
        if not isinstance(log, ClickLog) or log.n_sessions != self.facts.get("pages"):
            raise ClickLogError(
                f"The suspicious pages are pages of the log that was checked, in memory, with "
                f"{counted(self.facts.get('pages', 0), 'page')}; this is another one."
            )
        kept = np.ones(log.n_sessions, bool)
        kept[self.suspicious] = False
        return log.take(kept)

    def to_dict(self) -> dict[str, Any]:
        """Everything as data that JSON can hold."""
        return {
            "verdict": self.verdict,
            "worst": self.worst,
            "model": self.model,
            "facts": _plain(self.facts),
            "findings": [finding.to_dict() for finding in self.findings],
            "tables": {name: _plain(table.to_dicts()) for name, table in self.tables.items()},
            "suspicious_pages": len(self.suspicious),
        }

    def to_json(self) -> str:
        """Everything as JSON text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self)


def _plain(value: Any) -> Any:
    """The same with texts and numbers only; what JSON has no word for becomes text or null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    return str(value)


def as_text(found: LogCheck) -> str:
    """Lay out a check as lines of text."""
    return printable_lines("\n".join(_lines(found))) + "\n"


def headline(found: LogCheck) -> str:
    """Say the verdict in a line."""
    numbers = dict.fromkeys(reversed(SEVERITIES), 0)
    for finding in found.findings:
        numbers[finding.severity] += 1
    counts = [
        counted(number, name, "info" if name == "info" else None)
        for name, number in numbers.items()
        if number
    ]
    about = f"this log for {found.model}" if found.model else "this log"
    return f"Verdict on {about}: {found.verdict.upper()} ({', '.join(counts) or 'no findings'})"


def _lines(found: LogCheck) -> Iterator[str]:
    yield from wrapped(headline(found))
    for finding in found.findings:
        mark = finding.severity if finding.severity == "info" else finding.severity.upper()
        yield ""
        yield from wrapped(f"{finding.topic}: {finding.message}", f"{mark}  ", "    ")
        for example in finding.examples:
            yield from wrapped(example, "    - ", "      ")
        if finding.advice:
            yield from wrapped(finding.advice, "    > ", "      ")
    for table in _tables(found):
        yield ""
        yield from table.lines()


def _tables(found: LogCheck) -> Iterator[TextTable]:
    for name, frame in found.tables.items():
        if frame.height:
            yield TextTable.of(frame, _TITLES.get(name, name), most=_ROWS_SHOWN)


def as_html(found: LogCheck) -> str:
    """Lay out a check for a notebook."""
    colours = {"error": "#b00020", "warning": "#9a6700", "info": "#57606a"}
    parts = [f"<div><p><b>{html.escape(headline(found))}</b></p><ul>"]
    for finding in found.findings:
        examples = "".join(f"<li>{html.escape(example)}</li>" for example in finding.examples)
        parts.append(
            f'<li><b style="color:{colours[finding.severity]}">{finding.severity}</b> '
            f"<b>{html.escape(finding.topic)}</b>: {html.escape(finding.message)}"
            + (f"<ul>{examples}</ul>" if examples else "")
            + (f"<br><i>{html.escape(finding.advice)}</i>" if finding.advice else "")
            + "</li>"
        )
    parts.append("</ul>")
    for table in _tables(found):
        title, bare = html.escape(table.title), replace(table, title="").html()
        parts.append(f"<details><summary>{title}</summary>{bare}</details>")
    return "".join(parts) + "</div>"


def summed_up(names: Sequence[str], most: int = 3) -> str:
    """Names of parameters such as "examination of rank 2", those of one coin together."""
    coins: dict[str, list[str]] = {}
    for name in names:
        coin, _, row = name.partition(" of ")
        coins.setdefault(coin, []).append(row)
    texts = []
    for coin, rows in coins.items():
        if rows == [""]:
            texts.append(coin)
            continue
        more = f" and {len(rows) - most:,} more" if len(rows) > most else ""
        texts.append(f"{coin} of {'; '.join(rows[:most])}{more}")
    return listed(texts)


def value_text(value: Any) -> str:
    """A value of the log, so that text and numbers can be told apart."""
    return shortened(repr(value) if isinstance(value, str) else str(value), 40)


def row_text(rows: Rows, number: int) -> str:
    """A row of a coin: "rank 3", "query 'q1', doc 'd7'"; empty for a coin without key."""
    if not rows.keys:
        return ""
    values = rows.frame.row(int(number))
    return ", ".join(f"{key} {value_text(v)}" for key, v in zip(rows.keys, values, strict=True))


def rows_text(rows: Rows, numbers: Sequence[int] | NDArray[np.int64], most: int = 3) -> str:
    """Some rows of a coin, and how many more there are."""
    shown = [row_text(rows, number) for number in list(numbers)[:most]]
    more = len(numbers) - len(shown)
    return "; ".join(shown) + (f"; and {more:,} more" if more > 0 else "")


def session_text(log: ClickLog, session: int) -> str:
    """A session by its id."""
    return f"session {value_text(log.sessions[int(session)])}"
