"""The XML of TREC's session track: sessions of interactions, each a query with what was shown.

<sessiontrack2014> <session num="1"> <topic num="29"/> <interaction num="1" starttime="...">
  <query>...</query>
  <results> <result rank="1"> <url/> <clueweb12id>...</clueweb12id> </result> ... </results>
  <clicked> <click num="1"> <rank>2</rank> </click> ... </clicked>
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import polars as pl

from gecasmo.errors import ClickLogError, option
from gecasmo.logs.formats.format import (
    Format,
    Head,
    ReadOptions,
    nested,
    note_repeated_queries,
    with_exact_ids,
)
from gecasmo.logs.inputs import Input, open_inputs
from gecasmo.logs.notes import Notebook

ROOT = "sessiontrack"
DOC_IDS = ("clueweb12id", "clueweb09id", "docno", "url")
DEEPEST = 30
Page = dict[str, Any]
Met = dict[str, tuple[str, list[str]]]  # what was done about each kind of thing, and where


def sniff(head: Head) -> bool:
    """Say whether the file is XML with the root of a session track."""
    start = head.start.removeprefix(b"\xef\xbb\xbf").lstrip()
    return start.startswith(b"<") and f"<{ROOT}".encode() in start[:2000]


def read(source: Any, options: ReadOptions, notes: Notebook) -> pl.DataFrame:
    """Read interactions, one a page; `docs/readers.md` says what becomes of odd ones."""
    inputs = open_inputs(source, folders=True)
    pages: dict[str, Page] = {}
    met: Met = {}
    for file in inputs:
        _Track(file, pages, met).read(options.max_line)
    if not pages:
        raise ClickLogError(f"{inputs.label} is empty: there are no pages in it.")
    for kind, (done, places) in met.items():
        notes.add(kind, len(places), done, places)
    texts = ("session", "query", "task_session", "topic", "starttime")
    schema: dict[str, Any] = {**dict.fromkeys(texts, pl.String), "page_number": pl.Int64}
    table = pl.DataFrame([{name: page[name] for name in schema} for page in pages.values()], schema)
    notes.place = [page["place"] for page in pages.values()].__getitem__
    note_repeated_queries(table, "task_session", range(table.height), notes)
    results = pl.DataFrame(
        [(n, *result) for n, page in enumerate(pages.values()) for result in page["results"]],
        {"page": pl.UInt32, "doc": pl.String, "rank": pl.Int64, "click_order": pl.Int64},
        orient="row",
    )
    results = results.with_columns(click=pl.col("click_order").is_not_null())
    if not results["click"].any():
        results = results.drop("click_order")
    table = table.drop(name for name in ("topic", "starttime") if table[name].is_null().all())
    ids = [name for name in ("query", "task_session", "topic") if name in table.columns]
    return nested(with_exact_ids(table, ids), with_exact_ids(results, ["doc"]))


class _Track(ElementTree.TreeBuilder):
    """The interactions of one file; what was read is cleared, so that no large tree is built."""

    def __init__(self, file: Input, pages: dict[str, Page], met: Met) -> None:
        super().__init__()
        self._file, self._pages, self._met = file, pages, met
        self._place, self._session = file.name, ""
        self._topic: str | None = None
        self._depth = self._unread = self._turn = 0

    def read(self, max_line: int) -> None:
        """Read the file piece by piece."""
        parser = ElementTree.XMLParser(target=self)
        try:
            for piece in self._file.pieces():
                self._unread += len(piece)
                parser.feed(piece)
                if self._unread > max_line:
                    reach = option("max_line", max_line, shown=f"{max_line:,}")
                    raise self._error(f"no interaction ends within {reach} bytes")
            parser.close()
        except (ElementTree.ParseError, LookupError, ValueError) as error:
            # Encodings that Python does not know, or Expat not, are no errors of parsing.
            if isinstance(error, ClickLogError):
                raise
            raise ClickLogError(f"{self._file.name} is not well-formed XML: {error}.") from None

    def doctype(self, *_: object) -> None:
        """Refuse declarations: entities in them could name other files, or grow without end."""
        raise self._error("a document type (<!DOCTYPE ...>) is not read; take it out")

    def start(self, tag: str, attributes: dict[Any, Any], /) -> ElementTree.Element:
        """Begin an element."""
        self._depth += 1
        if self._depth == 1 and not tag.startswith(ROOT):
            raise self._error(f"the outermost element should be <{ROOT}...>, not <{tag}>")
        if self._depth > DEEPEST:
            raise self._error("elements are nested too deeply")
        if tag in ("session", "interaction"):
            number = attributes.get("num", "").strip()
            if not number or (tag == "interaction" and not self._session):
                raise self._error(f"<{tag}> needs a num, and stands in a session with one")
            if tag == "session":
                self._session, self._topic, self._turn = number, None, 0
            else:
                self._turn += 1
            inner = f", interaction {number}" if tag == "interaction" else ""
            self._place = f"{self._file.name}, session {self._session}{inner}"
        return super().start(tag, attributes)

    def end(self, tag: str, /) -> ElementTree.Element:
        """End an element, and forget it when it was read."""
        element = super().end(tag)
        self._depth -= 1
        if tag == "topic":
            self._topic = element.get("num")
        elif tag == "interaction":
            self._add(element)
        elif tag == "currentquery":
            self._note("current queries", "no page answers the last query of a session; left out")
        if tag in ("session", "interaction"):
            element.clear()
            self._unread = 0
            self._session = self._session if tag == "interaction" else ""
        return element

    def _error(self, what: str) -> ClickLogError:
        return ClickLogError(f"{self._place}: {what}.")

    def _note(self, kind: str, done: str) -> None:
        self._met.setdefault(kind, (done, []))[1].append(self._place)

    def _add(self, element: ElementTree.Element) -> None:
        shown = self._results(element)
        clicked: dict[int, int] = {}  # by rank: which click of the page it was
        for click in element.iterfind("clicked/click"):
            rank = self._rank(click.findtext("rank"), "click")
            if rank not in shown:
                self._note("clicks on results never shown", "no result has their rank; left out")
            elif rank in clicked:
                self._note("duplicate clicks", "a result is clicked once")
            clicked.setdefault(rank, len(clicked) + 1)
        query = (element.findtext("query") or "").strip()
        if not query:
            return self._note("pages without a query text", "the pages are left out")
        if not shown:
            self._note("pages without results", "they are kept")
        number = element.attrib["num"].strip()
        name = f"{self._session}-{number}"
        if name in self._pages:
            raise self._error(f"this interaction was there before: {self._pages[name]['place']}")
        self._pages[name] = {
            "session": name,
            "query": query,
            "task_session": self._session,
            "topic": self._topic,
            "starttime": element.get("starttime"),
            "page_number": int(number[:18]) if number.isdecimal() else self._turn,
            "place": self._place,
            "results": [(doc, rank, clicked.get(rank)) for rank, doc in shown.items()],
        }

    def _results(self, element: ElementTree.Element) -> dict[int, str]:
        shown: dict[int, str] = {}
        for result in element.iterfind("results/result"):
            rank = self._rank(result.get("rank"), "result")
            texts = ((result.findtext(name) or "").strip() for name in DOC_IDS)
            doc = next(filter(None, texts), None)
            if doc is None or rank in shown:
                what = f"rank {rank} has two results" if doc else f"result {rank} has no document"
                raise self._error(f"{what}; a result has a rank and one of {', '.join(DOC_IDS)}")
            if doc in shown.values():
                self._note("results shown twice on a page", "they stay on both ranks")
            shown[rank] = doc
        return shown

    def _rank(self, text: str | None, what: str) -> int:
        digits = (text or "").strip()
        if not (digits.isascii() and digits.isdecimal() and 0 < int(digits[:20]) < 2**31):
            raise self._error(f"a {what} needs a rank from 1, not {digits[:40]!r}")
        return int(digits)


TREC_SESSION = Format(
    "trec-session",
    "TREC session track",
    "XML with sessions, their interactions, and the results and clicks of each",
    sniff,
    read,
)
