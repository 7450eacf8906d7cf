"""The XML of TREC's session track: what is read, noted and refused, and what is kept in memory."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reader_helpers import MORE, SAMPLES, examples, pages, read_noting

from gecasmo.errors import ClickLogError
from gecasmo.logs import peek, read_log
from gecasmo.logs.formats import FORMATS, ReadOptions
from gecasmo.logs.inputs import Input, Opened
from gecasmo.logs.notes import Notebook

RESULT = '<result rank="1"><clueweb12id>d</clueweb12id></result>'
PAGE = (
    '<sessiontrack2014><session num="1"><interaction num="1"><query>q</query>'
    f"<results>{RESULT}</results></interaction></session></sessiontrack2014>"
)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "log.xml"
    path.write_text(text)
    return path


def test_a_session_of_several_interactions_has_a_page_for_each() -> None:
    log, notes = read_noting(SAMPLES / "trec_session.xml")
    assert notes == {}
    assert log.sessions.to_list() == ["1-1", "1-2", "2-1", "3-1", "3-2", "4-1"]
    assert log.session_column("task_session").to_list() == [1, 1, 2, 3, 3, 4]
    assert log.session_column("topic").to_list() == [29, 29, 29, 30, 30, 29]
    assert log.session_column("starttime").to_list()[1] == "10:00:09.5"
    train, test = log.split(test=0.3, by="task_session")
    whole = [set(part.session_column("task_session").to_list()) for part in (train, test)]
    assert not whole[0] & whole[1]


def test_odd_interactions() -> None:
    log, notes = read_noting(SAMPLES / "trec_session_odd.xml")
    assert pages(log) == [
        ("red shoes", [("cw-1", 11, 0), ("http://example.org/b", 12, 1), ("cw-1", 14, 0)]),
        ("red shoes", []),
    ]
    assert notes == {
        "results shown twice on a page": 1,
        "duplicate clicks": 1,
        "clicks on results never shown": 1,
        "pages without results": 1,
        "pages without a query text": 1,
        "current queries": 1,
        "repeated queries in a session": 1,
    }
    assert "topic" not in log.columns
    assert "starttime" not in log.columns
    first = "trec_session_odd.xml, session 1, interaction"
    assert examples(log, "duplicate clicks") == [f"{first} 1"]
    assert examples(log, "pages without a query text") == [f"{first} 3"]
    assert examples(log, "repeated queries in a session") == [f"{first} 2"]


FAULTS = {
    PAGE.replace("<query>", "&laugh;<query>"): r"not well-formed XML: undefined entity",
    PAGE[:-30]: r"not well-formed XML: unclosed token: line 1",
    PAGE.replace("sessiontrack2014", "html"): r"outermost element should be <sessiontrack...>, not",
    PAGE.replace('session num="1"', "session"): r"<session> needs a num",
    PAGE.replace('interaction num="1"', "interaction"): r"session 1: <interaction> needs a num",
    PAGE.replace('<session num="1">', "<run>").replace("</session>", "</run>"): r"stands in a sess",
    PAGE.replace("clueweb12id>", "id>"): r"interaction 1: result 1 has no document; .* clueweb12id",
    PAGE.replace(RESULT, RESULT * 2): r"session 1, interaction 1: rank 1 has two results",
    PAGE.replace('rank="1"', 'rank="0"'): r"a result needs a rank from 1, not '0'",
    PAGE.replace('rank="1"', 'rank="٣"'): r"a result needs a rank from 1, not '٣'",
    PAGE.replace('rank="1"', f'rank="{"9" * 5000}"'): r"a result needs a rank from 1, not '9999",
    PAGE.replace("</results>", "</results><clicked><click/></clicked>"): r"a click needs a rank",
    PAGE.replace(RESULT, "<a>" * 40 + "</a>" * 40): r"elements are nested too deeply",
    "<sessiontrack/>": r"log.xml is empty: there are no pages in it",
    f"<!DOCTYPE x>{PAGE}": r"a document type .* is not read; take it out",
}


@pytest.mark.parametrize(("text", "message"), FAULTS.items(), ids=FAULTS.values())
def test_faults(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ClickLogError, match=message) as caught:
        read_log(write(tmp_path, text), format="trec-session")
    assert "log.xml" in str(caught.value)


def test_no_entity_is_ever_declared(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    lol = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "lol"}">' for n in range(12))
    outside = f'<!ENTITY l11 SYSTEM "{tmp_path / "secret.txt"}">'
    for declared in (lol, outside):
        text = f"<!DOCTYPE sessiontrack2014 [{declared}]>{PAGE.replace('>q<', '>&l11;<')}"
        with pytest.raises(ClickLogError, match="a document type") as caught:
            read_log(write(tmp_path, text))
        assert "secret" not in str(caught.value).replace(str(tmp_path), "")


def test_an_interaction_comes_once(tmp_path: Path) -> None:
    path = write(tmp_path, PAGE)
    (tmp_path / "other.xml").write_text(PAGE)
    with pytest.raises(ClickLogError, match=r"other\.xml, session 1, .* there before: .*log\.xml"):
        read_log(tmp_path / "*.xml")
    assert len(read_log(path)) == 1


def test_a_folder_a_packed_file_and_a_glance(tmp_path: Path) -> None:
    expected = pages(read_log(SAMPLES / "trec_session.xml"))
    (tmp_path / "log.xml.gz").write_bytes(
        gzip.compress((SAMPLES / "trec_session.xml").read_bytes())
    )
    assert pages(read_log(tmp_path / "log.xml.gz")) == expected
    assert pages(read_log(tmp_path, format="trec-session")) == expected
    assert peek(tmp_path / "log.xml.gz").format == "trec-session"
    (tmp_path / "log.xml.gz").write_bytes((tmp_path / "log.xml.gz").read_bytes()[:-6])
    with pytest.raises(ClickLogError, match="ends too early"):
        read_log(tmp_path / "log.xml.gz")


def test_another_encoding_is_read_as_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "log.xml"
    text = PAGE.replace(">q<", ">größe<")
    path.write_bytes(f"<?xml version='1.0' encoding='iso-8859-1'?>{text}".encode("latin-1"))
    assert read_log(path).session_column("query").to_list() == ["größe"]
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ClickLogError, match="not well-formed XML"):
        read_log(path)


class Endless(io.RawIOBase):
    """A file that repeats a piece for a long time, and counts what was asked of it."""

    def __init__(self, head: bytes, piece: bytes, times: int) -> None:
        self.given = 0
        self._head, self._piece, self._left = head, piece, times

    def read(self, size: int = -1) -> bytes:
        if self._head:
            data, self._head = self._head, b""
        else:
            data = self._piece if self._left else b""
            self._left -= 1
        self.given += len(data)
        return data


class Stream(Input):
    """An input that is read from a file object once."""

    def __init__(self, file: Endless) -> None:
        super().__init__("stream")
        self._stream = file
        self.compression = None

    def open(self) -> Endless:  # type: ignore[override]
        return self._stream


@pytest.mark.parametrize(
    "head", ["<sessiontrack><query>", '<sessiontrack a="', "<sessiontrack><!-- "]
)
def test_what_never_ends_is_not_read_to_the_end(head: str) -> None:
    endless = Endless(head.encode(), b"x" * 1000, 10_000)
    with pytest.raises(
        ClickLogError, match=r"stream: no interaction ends within max_line=5,000 by"
    ):
        FORMATS["trec-session"].read(
            Opened("stream", [Stream(endless)]), ReadOptions(5_000), Notebook()
        )
    assert endless.given < 8_000


def test_what_was_read_is_forgotten() -> None:
    words = b"word " * 2_000
    page = b"<session num='%d'><interaction num='1'><query>q</query><results/><snippet>%s</snippet>"
    page = page.replace(b"%s", words) + b"</interaction></session>"
    body = b"".join(page.replace(b"%d", str(n).encode()) for n in range(1_000))
    data = b"<sessiontrack>" + body + b"</sessiontrack>"
    source = Opened("log", [Input("log", raw=data)])
    assert source[0].compression is None
    tracemalloc.start()
    FORMATS["trec-session"].read(source, ReadOptions(), Notebook())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(data) / 2


shown = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from(["d1", "d2", "<&>", "größe", "7"])),
    max_size=4,
    unique_by=lambda result: result[0],
)
interactions = st.tuples(
    st.sampled_from(["a", "b & c", '"<q>"']), shown, st.lists(st.integers(1, 6))
)


@settings(deadline=None, max_examples=40 * MORE)
@given(st.lists(st.lists(interactions, min_size=1, max_size=3), min_size=1, max_size=3))
def test_what_was_written_is_read(
    sessions: list[list[tuple[str, list[tuple[int, str]], list[int]]]],
) -> None:
    text, expected = "", []
    duplicates = unseen = 0
    for number, parts in enumerate(sessions):
        text += f"<session num={quoteattr(str(number))}>"
        for inner, (query, results, clicks) in enumerate(parts):
            rows = "".join(
                f"<result rank='{rank}'><clueweb09id> {escape(doc)}\n</clueweb09id></result>"
                for rank, doc in results
            )
            clicked = "".join(f"<click><rank>{rank}</rank></click>" for rank in clicks)
            text += f"<interaction num='{inner}'><query>{escape(query)}</query>"
            text += f"<results>{rows}</results><clicked>{clicked}</clicked></interaction>"
            ranks = {rank for rank, _ in results}
            expected.append(
                (query, sorted((rank, doc, int(rank in clicks)) for rank, doc in results))
            )
            duplicates += len([r for r in clicks if r in ranks]) - len(ranks & set(clicks))
            unseen += len([r for r in clicks if r not in ranks])
        text += "</session>"
    data = f"<sessiontrack2013>{text}</sessiontrack2013>".encode()
    log, notes = read_noting(Opened("log", [Input("log", raw=data)]))
    found = [
        (query, [(rank, str(doc), click) for doc, rank, click in results])
        for query, results in pages(log)
    ]
    assert found == expected
    assert notes.get("duplicate clicks", 0) == duplicates
    assert notes.get("clicks on results never shown", 0) == unseen


@pytest.mark.parametrize("encoding", ["snippet-8", "utf-7", "shift_jis"])
def test_encodings_that_nobody_knows_are_told(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "log.xml"
    path.write_text(f'<?xml version="1.0" encoding="{encoding}"?>{PAGE}')
    with pytest.raises(ClickLogError, match=r"log.xml is not well-formed XML: .*encoding"):
        read_log(path)
