"""The recipes of docs/events.md: a sample of each vendor's events, with its own names, is a log."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from reader_helpers import SAMPLES, pages
from typer.testing import CliRunner

import gecasmo
from gecasmo.cli import app

PAGE = (SAMPLES.parents[2] / "docs" / "events.md").read_text()
SHOES, BOOTS = "red shoes", "boots"
SAME = [
    (SHOES, [("sku_1", 1, 0), ("sku_2", 2, 1), ("sku_3", 3, 0)]),
    (BOOTS, [("sku_3", 1, 1), ("sku_4", 2, 0)]),
    (SHOES, [("sku_1", 1, 0), ("sku_2", 2, 0), ("sku_3", 3, 0)]),
]
EXPECTED: dict[str, tuple[list[Any], dict[str, list[str]], dict[str, int]]] = {
    "ga4": (
        SAME,
        {"cart": ["sku_2"], "purchase": ["sku_2"]},
        {"events of other kinds": 1, "pages with several lists": 1},
    ),
    "snowplow": (
        [
            ("q=red+shoes", [("sku_1", 1, 0), ("sku_2", 2, 1), ("sku_3", 3, 0)]),
            ("q=boots", [("sku_3", 1, 0), ("sku_4", 2, 0)]),
        ],
        {"cart": ["sku_4"]},
        {"events of other kinds": 1, "duplicate impressions": 3},
    ),
    "segment": (
        [(query, [(doc.replace("sku_", "p"), *r) for doc, *r in its]) for query, its in SAME],
        {"cart": ["p2"], "purchase": ["p2"]},
        {"events of other kinds": 1, "pages with several lists": 1},
    ),
    "posthog": (
        [
            (SHOES, [("p1", 1, 0), ("p2", 2, 1), ("p3", 3, 0)]),
            (BOOTS, [("p3", 1, 0), ("p4", 2, 0)]),
            (SHOES, [("p1", 1, 0), ("p2", 2, 0), ("p3", 3, 1)]),
        ],
        {"cart": ["p3"]},
        {"columns guessed": 3, "events of other kinds": 1, "pages with several lists": 1},
    ),
    "algolia": (
        [
            (SHOES, [("o1", 1, 0), ("o2", 2, 1), ("o3", 3, 0)]),
            (BOOTS, [("o3", 1, 1), ("o4", 2, 1)]),
        ],
        {"cart": ["o2"], "purchase": ["o2"]},
        {"events of other kinds": 1, "lists without positions": 2},
    ),
}


def recipe(name: str) -> str:
    """The block of the page that reads a sample."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (found,) = (block for block in blocks if f"events/{name}.jsonl" in block)
    return str(found)


def test_every_sample_has_a_recipe() -> None:
    there = {path.stem for path in (SAMPLES / "events").glob("*.jsonl")}
    assert there == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_recipe_makes_the_pages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SAMPLES.parents[2])
    scope: dict[str, Any] = {"gecasmo": gecasmo}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(recipe(name), scope)
    log = scope["log"]
    shown, signals, notes = EXPECTED[name]
    assert pages(log) == shown
    for signal, docs in signals.items():
        assert log.to_frame().filter(signal)["doc"].to_list() == docs
    assert {note.kind: note.count for note in log.notes} == notes
    times = log.to_frame().filter("click")
    assert times["click_time"].null_count() == 0
    assert (times["click_time"] > times["time"]).all()


# -- SQL -------------------------------------------------------------------------------------------
_VALUE = "STRUCT(string_value VARCHAR, int_value BIGINT, float_value DOUBLE, double_value DOUBLE)"
_GA4 = {
    "user_pseudo_id": "VARCHAR",
    "event_name": "VARCHAR",
    "event_timestamp": "BIGINT",
    "event_params": f"STRUCT(key VARCHAR, value {_VALUE})[]",
    "items": "STRUCT(item_id VARCHAR, item_list_index BIGINT)[]",
}


def warehouse(name: str) -> Any:
    """A database with the tables that a vendor would fill with the events of the sample."""
    duckdb = pytest.importorskip("duckdb")
    database = duckdb.connect()
    path = SAMPLES / "events" / f"{name}.jsonl"
    if name == "ga4":
        database.execute(
            f"""CREATE TABLE "events_*" AS
            FROM read_json('{path}', format='newline_delimited', columns={_GA4})"""
        )
        return database
    for table in ("product_list_viewed", "product_clicked", "product_added", "order_completed"):
        database.execute(
            f"""CREATE TABLE {table} AS
            SELECT event AS event_text, "anonymousId" AS anonymous_id, timestamp,
                   properties->>'query' AS query, properties->>'products' AS products,
                   properties->>'product_id' AS product_id,
                   CAST(properties->>'position' AS INTEGER) AS position
            FROM read_json('{path}', format='newline_delimited', columns={{
                event: 'VARCHAR', "anonymousId": 'VARCHAR', timestamp: 'TIMESTAMP',
                properties: 'JSON'}})
            WHERE lower(replace(event, ' ', '_')) = '{table}'"""
        )
    return database


@pytest.mark.parametrize(("name", "dialect"), [("ga4", "bigquery"), ("segment", "redshift")])
def test_the_sql_of_the_page_makes_the_same_pages(name: str, dialect: str, tmp_path: Path) -> None:
    """Its result is read by the command that the page shows below it."""
    sqlglot = pytest.importorskip("sqlglot")
    blocks = re.findall(r"```sql\n(.*?)```.*?```console\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 2
    ((sql, command),) = (block for block in blocks if f"check {name}.parquet" in block[1])
    statement = sqlglot.parse_one(sql, read=dialect)
    for table in statement.find_all(sqlglot.exp.Table):
        table.set("db", None)
        table.set("catalog", None)
    database = warehouse(name)
    pl.DataFrame(database.sql(statement.sql(dialect="duckdb"))).write_parquet(
        tmp_path / f"{name}.parquet"
    )
    program, *words = shlex.split(command.replace("\\\n", " "))
    assert program == "gecasmo"
    words[1], out = str(tmp_path / words[1]), tmp_path / "log.parquet"
    done = CliRunner().invoke(app, [*words, "--drop-suspicious", "-o", str(out)])
    assert done.exit_code == 0, done.output
    log = gecasmo.read_log(out)
    shown, signals, _ = EXPECTED[name]
    assert sorted(pages(log), key=str) == sorted(shown, key=str)
    for signal, docs in signals.items():
        assert log.to_frame().filter(signal)["doc"].to_list() == docs
