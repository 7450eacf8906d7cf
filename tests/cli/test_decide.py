"""`gecasmo whatif` and `gecasmo best`: what other pages would bring, at the command line."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from command_line import fail, succeed

from gecasmo import ClickLog, load, read_log
from gecasmo.pages import Cut, Drop, Move, OrderBy, Swap

LOG = Path(__file__).parents[1] / "parity" / "log.csv"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit, its log with a score, candidates in a table, and a stored log."""
    place = tmp_path_factory.mktemp("decide")
    succeed("fit", "DBN", LOG, "-o", place / "dbn.fit", "--quiet")
    log = pl.read_csv(LOG)
    log = log.with_columns(score=(pl.col("doc").hash(1) % 100), is_random=pl.col("rank") > 0)
    log.write_csv(place / "scored.csv")
    # The first page of each query is what is shown now, under names that have to be guessed.
    first = log.group_by("query", maintain_order=True).agg(pl.col("session").first())
    now = log.join(first, on=["query", "session"], how="semi")
    pairs = log.unique(["query", "doc"], maintain_order=True).select("query", "doc", "score")
    pairs = pairs.join(now.select("query", "doc", "rank"), on=["query", "doc"], how="left")
    pairs.with_columns(kind=pl.col("score") % 3, slot=pl.lit(None, pl.Int64)).rename(
        {"query": "keywords", "doc": "product_id", "rank": "position"}
    ).write_csv(place / "candidates.csv")
    ClickLog.ingest(place / "scored.csv", place / "log.gclog", partitions=4, keep=["score"])
    return place


def test_what_if_says_what_python_says(folder: Path) -> None:
    flags = ("--order-by", "score", "--worth", "satisfaction", "--draws", "5", "--json")
    said = json.loads(succeed("whatif", folder / "dbn.fit", folder / "scored.csv", *flags).output)
    model, log = load(folder / "dbn.fit"), read_log(folder / "scored.csv")
    found = model.what_if(log, OrderBy("score"), worth="satisfaction", draws=5)
    assert said["events"] == found.to_dict()["events"]
    assert [row["event"] for row in said["events"]] == ["satisfaction", "click", "abandonment"]
    stored = succeed("whatif", folder / "dbn.fit", folder / "log.gclog", *flags).output
    for here, there in zip(said["events"], json.loads(stored)["events"], strict=True):
        assert here["after"] == pytest.approx(there["after"])


def test_changes_are_made_one_after_the_other(folder: Path) -> None:
    log = read_log(folder / "scored.csv")
    doc = str(log.column("doc")[0])
    flags = ("--order-by", "score", "--ascending", "--drop", doc, "--swap", "1,2", "--cut", "3")
    text = succeed("whatif", folder / "dbn.fit", folder / "scored.csv", *flags, "--draws", "0")
    assert "smallest first, then without document" in " ".join(text.output.split())
    changes = [OrderBy("score", descending=False), Drop(doc), Swap(1, 2), Cut(3)]
    found = load(folder / "dbn.fit").what_if(log, changes, draws=0)
    assert f"{found.frame['after'][0]:.4f}" in text.output
    moved = succeed(
        "whatif", folder / "dbn.fit", folder / "scored.csv", "--move", f"{doc}=1", "--draws", "0"
    )
    alone = load(folder / "dbn.fit").what_if(log, Move(doc, 1), draws=0)
    assert f"{alone.frame['after'][0]:.4f}" in moved.output


def test_randomised_pages_are_asked(folder: Path) -> None:
    flags = ("--swap", "1,2", "--draws", "0", "--randomised", "is_random")
    said = succeed("whatif", folder / "dbn.fit", folder / "scored.csv", *flags)
    assert "doubly robust" in said.output


def test_best_writes_orders_of_a_table(folder: Path) -> None:
    flags = ("--size", "3", "--min-examinations", "0", "--samples", "10")
    source = ("best", folder / "dbn.fit", folder / "candidates.csv")
    said = succeed(*source, "-o", folder / "pages.parquet", *flags)
    assert "--query keywords --doc product_id --rank position" in " ".join(said.output.split())
    assert "Give the log, for a lift that holds" in " ".join(said.output.split())
    pages = pl.read_parquet(folder / "pages.parquet")
    assert pages.columns == ["query", "rank", "doc", "shown_rank"]
    frame = pl.read_csv(folder / "candidates.csv").rename(
        {"keywords": "query", "product_id": "doc", "position": "rank"}
    )
    model = load(folder / "dbn.fit")
    found = model.best_page(frame, 3, min_examinations=0, samples=10)
    assert pages["doc"].cast(pl.String).to_list() == found.frame["doc"].cast(pl.String).to_list()
    rules = ("--at-most", "kind=2", "--apart", "kind", "--pinned", "slot", "--draws", "2")
    drawn = ("--draws-output", folder / "drawn.csv", "--log", folder / "scored.csv", "--json")
    said = succeed(*source, "-o", folder / "ruled.csv", *flags, *rules, *drawn)
    told = json.loads(said.stdout)
    assert told["promise"]["low"] < told["promise"]["high"]
    ruled = pl.read_csv(folder / "ruled.csv", schema_overrides={"doc": pl.String})
    kinds = frame.with_columns(pl.col("doc").cast(pl.String)).select("query", "doc", "kind")
    by_query = ruled.join(kinds, on=["query", "doc"], how="left", maintain_order="left")
    for _, page in by_query.group_by("query"):
        kind = page.sort("rank")["kind"].to_list()
        assert all(a != b for a, b in pairwise(kind))
    assert pl.read_csv(folder / "drawn.csv")["draw"].unique().to_list() == [0, 1]


def test_best_of_a_log_tells_a_lift_that_holds(folder: Path) -> None:
    source = ("best", folder / "dbn.fit", folder / "scored.csv", "-o", folder / "pages.csv")
    flags = ("--samples", "5", "--min-examinations", "0", "--worth", "click=0.5", "--same-size")
    assert "To be expected" in succeed(*source, *flags).output
    assert "To be expected" not in succeed(*source, *flags, "--log", "none").output
    stored = ("best", folder / "dbn.fit", folder / "log.gclog", "-o", folder / "stored.csv")
    assert "Pages:" in succeed(*stored, *flags).output


def _code(message: str) -> int:
    """Flags that make no sense are another error than a log that has not what they ask for."""
    of_logs = ("no such column", "shows no", "no event", "price", "the name has to end")
    return 1 if any(words in message for words in of_logs) else 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "Say what to change"),
        (("--ascending",), "--ascending belongs to --order-by"),
        (("--swap", "1"), "two ranks are wanted"),
        (("--swap", "1,x"), "'x' is no whole number"),
        (("--move", "a"), "write DOC=RANK"),
        (("--drop", "nobody"), "shows no document 'nobody'"),
        (("--order-by", "nothing"), "--order-by nothing: the log has no such column"),
        (("--cut", "2", "--propensity", "p"), "pages that --randomised names"),
        (("--cut", "2", "--worth", "joy"), "--worth joy: no event of DBN"),
        (("--cut", "2", "--worth", "click=price"), "price"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    folder: Path, flags: tuple[str, ...], message: str
) -> None:
    asked = ("whatif", folder / "dbn.fit", folder / "scored.csv", *flags, "--draws", "0")
    said = fail(*asked, code=_code(message))
    assert message in " ".join(said.replace("│", " ").split())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--draws", "2"), "belong together"),
        (("--at-most", "kind"), "write COLUMN=N"),
        (("--at-most", "colour=2"), "no such column"),
        (("-o", "pages.xlsx"), "the name has to end in"),
    ],
)
def test_pages_that_cannot_be_found_are_refused(
    folder: Path, flags: tuple[str, ...], message: str
) -> None:
    source = ("best", folder / "dbn.fit", folder / "candidates.csv", "-o", folder / "x.csv")
    flags = (*flags, "--samples", "0", "--min-examinations", "0")
    said = fail(*source, *flags, code=_code(message))
    assert message in " ".join(said.replace("│", " ").split())
    assert not (folder / "x.csv").exists()
