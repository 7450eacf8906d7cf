"""Streams of events, and sums, on the command line and in gecasmo.toml."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from command_line import fail, invoke, succeed, succeed_with_json

import gecasmo

SAMPLES = Path(__file__).parents[1] / "readers" / "samples" / "events"
SHOP, COUNTS = SAMPLES / "shop.csv", SAMPLES / "counts.csv"
NAMED = ("--page", "sid", "--event", "type", "--doc", "sku", "--position", "pos", "--query", "q")
NAMED += ("--event-time", "ts", "--impression", "view", "--click", "click")


def test_what_is_guessed_can_be_said(folder: Path) -> None:
    guessed = succeed("fit", "PBM", SHOP, "--events", "-o", "one.fit")
    flags = "--page sid, --event type, --doc sku, --position pos, --query q, --event-time ts, "
    flags += "--impression view, --signal cart=add_to_cart"
    assert f"shop.csv: guessed by their names: {flags}." in guessed.stderr
    assert "clicks on results never shown: 1" in guessed.stderr
    said = succeed(
        "fit", "PBM", SHOP, "--events", *NAMED, "--signal", "cart=add_to_cart", "-o", "two.fit"
    )
    assert "guessed" not in said.stderr
    one, two = gecasmo.load("one.fit"), gecasmo.load("two.fit")
    assert one.parameters["attraction"].equals(two.parameters["attraction"])


def test_every_command_that_takes_a_log_takes_events(folder: Path) -> None:
    events = (SHOP, "--events", "--quiet")
    assert succeed_with_json("check", *events)["reading"]["format"] == "events"
    succeed("fit", "PBM", *events, "-o", "pbm.fit")
    for command in (
        ("compare", *events, "PBM", "--bootstrap", "0", "--test", "0.5"),
        ("update", "pbm.fit", *events, "-o", "new.fit"),
        ("evaluate", "pbm.fit", *events),
        ("predict", "pbm.fit", *events, "-o", "p.csv"),
        ("propensities", "pbm.fit", *events),
        ("explain", "pbm.fit", *events, "--session", "s1"),
        ("simulate", "pbm.fit", *events, "-o", "s.csv"),
        ("ingest", *events, "-o", "s.gclog"),
        ("whatif", "pbm.fit", *events, "--cut", "1"),
        ("best", "pbm.fit", *events, "-o", "best.csv"),
        ("report", "pbm.fit", *events, "-o", "report.html"),
    ):
        found = invoke(*command)
        assert found.exit_code == 0, (command, found.output)
    assert pl.read_csv("p.csv").height == 4


def test_events_are_ingested_by_way_of_memory(folder: Path) -> None:
    found = succeed("ingest", SHOP, "--events", "-o", "s.gclog", "--keep", "click_time,session")
    assert "pages are put together in memory, and then stored" in found.stderr
    assert found.stderr.count("guessed by their names") == 1
    assert found.stderr.count("duplicate clicks") == 1
    stored = gecasmo.open_log("s.gclog")
    assert (stored.n_sessions, stored.n_clicks) == (2, 2)
    assert "click_time" in stored.columns


def test_counts(folder: Path) -> None:
    facts = succeed_with_json("fit", "PBM", COUNTS, "--counts", "-o", "pbm.fit")
    assert facts["reading"]["format"] == "counts"
    found = invoke("check", COUNTS, "--counts", "--model", "CM")
    assert found.exit_code == 3
    assert "CM cannot be estimated from this log" in found.stdout
    frame = pl.read_csv(COUNTS)
    renamed = {"rank": "place", "impressions": "seen", "clicks": "hit"}
    frame.rename(renamed).write_csv("other.csv", separator=";")
    flags = ("--rank", "place", "--impressions", "seen", "--clicks", "hit", "--separator", ";")
    succeed("fit", "PBM", "other.csv", "--counts", *flags, "-o", "other.fit")
    one, two = gecasmo.load("pbm.fit"), gecasmo.load("other.fit")
    assert one.parameters["examination"].equals(two.parameters["examination"])


def test_said_once_in_a_file(folder: Path) -> None:
    Path("gecasmo.toml").write_text(
        '[log]\nevents = true\npage = ["sid", "q"]\nevent = "type"\ndoc = "sku"\n'
        'signal = { cart = "add_to_cart" }\n'
    )
    shutil.copy(SHOP, "shop.csv")
    # Clicks in this file do not say their query, so none of them has a page.
    found = invoke("check", "shop.csv")
    assert found.exit_code == 3
    assert "events without a page: 6" in found.stdout
    # Logs that gecasmo wrote itself are no events.
    gecasmo.read_log({"session": [1], "doc": [1], "rank": [1], "click": [1]}).write("own.csv")
    facts = succeed_with_json("evaluate", _fit("own.csv"), "own.csv")
    assert facts["reading"]["format"] == "table"


def _fit(log: str) -> str:
    succeed("fit", "GCTR", log, "-o", "g.fit")
    return "g.fit"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--events", "--session", "sid"), "--session: with --events use --page instead"),
        (("--events", "--rank", "pos"), "--rank: with --events use --position instead"),
        (("--events", "--counts"), "--events and --counts: choose one of them"),
        (("--page", "sid"), "--page needs --events"),
        (("--events", "--clicks", "x"), "--clicks needs --counts"),
        (("--counts", "--session", "sid"), "--session: counts have none"),
        (("--events", "--signal", "cart"), "--signal cart: a column and the event that makes it"),
        (("--events", "--impression", "shown"), "--impression shown: no event has that name"),
        (("--events", "--event-time", "device"), "--event-time none does without"),
        (
            ("--events", "--page", "type", "--event", "type"),
            "--page type,q needs the query on every event",
        ),
        ((), "Is a row an event, such as an impression or a click? --events reads it"),
    ],
)
def test_what_is_refused(folder: Path, flags: tuple[str, ...], words: str) -> None:
    assert words in fail("check", SHOP, *flags)


def test_clicks_alone(folder: Path) -> None:
    frame = pl.read_csv(SHOP).filter(pl.col("type") == "click")
    frame.write_csv("clicks.csv")
    said = fail("check", "clicks.csv", "--events")
    assert "No event is an impression" in said
    assert "--impression ..." in said
    assert "--counts reads these" in said


def test_from_a_pipe(folder: Path) -> None:
    found = succeed("check", "-", "--events", input=SHOP.read_bytes())
    assert "clicks on results never shown: 1" in found.stdout
