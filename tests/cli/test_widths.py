"""Every table at 80 and at 200 columns, with long ids: nothing is lost or wrapped to nonsense."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from command_line import WIDE, succeed

PLACE = "https://shop.example.org/outdoor/hiking/"
MANY = '''
from gecasmo import ClickModel, Parameter, flip


class Many(ClickModel):
    """More coins than a terminal has room for."""

    attraction = Parameter("query", "doc")
    satisfaction_after_reading = Parameter("query", "doc")
    continuation_after_skip = Parameter()
    continuation_after_click = Parameter()
    examination_of_the_title = Parameter("rank")
    relevance = ("attraction",)

    def browse(self, user, result):
        if flip(self.examination_of_the_title) and flip(self.attraction):
            user.click()
            if flip(self.satisfaction_after_reading):
                return user.leave()
            if not flip(self.continuation_after_click):
                return user.leave()
        elif not flip(self.continuation_after_skip):
            user.leave()
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, log_file: Path) -> Path:
    """A folder with a log of long ids, and the fit of a model with many coins."""
    folder = tmp_path_factory.mktemp("wide")
    log = pl.read_csv(log_file).with_columns(
        query=pl.format("a query of many words that nobody would type, number {}", "query"),
        doc=pl.format(PLACE + "boots-of-leather/{}", "doc"),
    )
    log.write_csv(folder / "long.csv")
    (folder / "many.py").write_text(MANY)
    succeed("fit", f"{folder / 'many.py'}:Many", folder / "long.csv", "-o", folder / "many.fit")
    return folder


def lines_of(
    place: Path, width: int, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> list[str]:
    """What a command prints on a terminal of this width; no line is longer."""
    monkeypatch.setitem(WIDE, "COLUMNS", str(width))
    monkeypatch.chdir(place)
    lines = succeed(*arguments, "--quiet").stdout.splitlines()
    assert lines
    too_long = [line for line in lines if len(line) > width]
    assert not too_long
    return lines


def blocks(lines: list[str]) -> list[list[str]]:
    """Lines between empty ones."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [block for block in found if block]


@pytest.mark.parametrize("width", [80, 200])
def test_explain_names_the_document_in_every_block(
    width: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = str(pl.read_csv(place / "long.csv")["session"][0])
    lines = lines_of(
        place, width, monkeypatch, "explain", "many.fit", "long.csv", "--session", session
    )
    tables = blocks(lines)[1:]
    assert len(tables) == (2 if width == 80 else 1)
    text = " ".join(" ".join(lines).split())
    for word in (
        "P(click)",
        "reached",
        "attraction",
        "satisfaction",
        "continuation",
        "examination",
    ):
        assert word in text  # whole, without a hyphen
    page = pl.read_csv(place / "long.csv").filter(pl.col("session").cast(pl.String) == session)
    for table in tables:
        head = next(number for number, line in enumerate(table) if "rank" in line)
        at = table[head].index("doc")
        assert table[head].split()[:2] == ["rank", "doc"]
        width_of_doc = len(table[head][at:]) - len(table[head][at + 3 :].lstrip())
        shown = "".join(line[at : at + width_of_doc].strip() for line in table[head + 1 :])
        for doc in page["doc"]:
            assert doc in shown  # in as many lines as it takes, but whole
        assert sum(line[:at].strip() != "" for line in table[head + 1 :]) == len(page)


@pytest.mark.parametrize("width", [80, 200])
def test_other_answers_keep_their_columns(
    width: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = lines_of(
        place, width, monkeypatch, "compare", "long.csv", "many.py:Many", "--bootstrap", "5"
    )
    text = " ".join(compared)
    for word in ("likelihood", "interval", "than the", "highest", "pooled", "arithmetic", "Brier"):
        assert word in text
    for table in blocks(compared):
        if any(line.strip().startswith("model ") for line in table):
            names = {line.split()[0] for line in table}
            assert {"Many", "RCTR", "DCTR"} <= names
    scored = "\n".join(lines_of(place, width, monkeypatch, "evaluate", "many.fit", "long.csv"))
    assert "log-likelihood per session" in scored
    assert "conditional" in scored
    checked = "\n".join(lines_of(place, width, monkeypatch, "check", "long.csv", "--model", "DBN"))
    assert "What the log knows about each coin" in checked
    shown = lines_of(place, width, monkeypatch, "propensities", "many.fit", "long.csv")
    assert any("examination" in line for line in shown)


@pytest.mark.parametrize("width", [80, 200])
def test_judgments_name_their_pairs(
    width: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WIDE, "COLUMNS", str(width))
    monkeypatch.chdir(place)
    told = succeed("judgments", "many.fit", "-o", f"j{width}.csv", "--worth-judging", "4").stdout
    assert all(len(line) <= width for line in told.splitlines())
    for title in ("most examined", "pairs most worth judging by hand"):
        after = told.split(title)[1].splitlines()[1:]
        assert after[0].split()[:2] == ["query", "doc"]
        assert after[1].split()[:3] == ["a", "query", "of"] or "a query" in after[1]
        assert "https:/" in after[1]


def test_what_a_check_found_suspicious_is_left_out(folder: Path) -> None:
    robot = [(f"r{page}", "q", f"d{rank}", rank, 1) for page in range(3) for rank in range(1, 10)]
    people = [
        (f"p{page}", "q", f"d{rank}", rank, int(rank == page % 5 + 1))
        for page in range(97)
        for rank in range(1, 10)
    ]
    columns = ["session", "query", "doc", "rank", "click"]
    pl.DataFrame(people + robot, columns, orient="row").write_csv("clicks.csv")
    hint = succeed("check", "clicks.csv", "--doc", "doc", "--weight", "none").stdout
    command = (
        "`gecasmo check clicks.csv --doc doc --weight none --drop-suspicious -o clean.parquet`"
    )
    assert command in " ".join(hint.split())
    told = succeed("check", "clicks.csv", "--drop-suspicious", "-o", "clean.parquet").stdout
    assert "3 suspicious pages left out (3 %), 97 pages written to clean.parquet." in told
    assert set(pl.read_parquet("clean.parquet")["session"]) == {f"p{page}" for page in range(97)}
    again = succeed("check", "clean.parquet", "--drop-suspicious", "-o", "-")
    assert "0 suspicious pages left out" in again.stderr
    assert again.stdout.startswith("session,query,doc,rank,click")


def test_explain_says_what_is_not_in_the_fit(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    log = pl.read_csv("long.csv")
    known = str(log["session"][0])
    log.with_columns(query=pl.lit("another")).write_csv("other.csv")
    told = "100 % of the results have no row of attraction and satisfaction_after_reading"
    assert told not in succeed("explain", "many.fit", "long.csv", "--session", known).stdout
    new = " ".join(succeed("explain", "many.fit", "other.csv", "--session", known).stdout.split())
    assert told in new
