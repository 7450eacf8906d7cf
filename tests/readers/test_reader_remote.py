"""Tables at an address: a server on this machine, which Polars asks for pieces of files."""

from __future__ import annotations

import http.server
import re
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from reader_helpers import SAMPLES, pages

import gecasmo
from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs import ClickLog, peek
from gecasmo.logs.remote import RemoteTable, is_address

TABLE = {
    "session": [1, 1, 2],
    "query": ["x", "x", "y"],
    "doc": ["007", "b", "c"],
    "rank": [1, 2, 1],
    "click": [0, 1, 0],
}


def handler(folder: Path) -> type[http.server.BaseHTTPRequestHandler]:
    class Pieces(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(with_content=False)

        def do_GET(self) -> None:
            self.answer(with_content=True)

        def answer(self, with_content: bool) -> None:
            path = folder / self.path.split("?")[0].lstrip("/")
            if not path.is_file():
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = path.read_bytes()
            asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            first, last = 0, len(data) - 1
            if asked and asked[1]:
                first, last = int(asked[1]), min(int(asked[2] or last), last)
            elif asked:
                first = max(0, len(data) - int(asked[2]))
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.send_header("Content-Length", str(last - first + 1))
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()
            if with_content:
                self.wfile.write(data[first : last + 1])

    return Pieces


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("elsewhere")
    frame = pl.DataFrame(TABLE)
    frame.write_parquet(folder / "log.parquet")
    frame.write_csv(folder / "log.csv")
    frame.write_csv(folder / "log.tsv", separator="\t")
    frame.write_ndjson(folder / "log.jsonl")
    for name in ("shop.csv", "counts.csv"):
        (folder / name).write_bytes((SAMPLES / "events" / name).read_bytes())
    (folder / "broken.parquet").write_bytes(b"PAR1 nothing PAR1")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.tsv", "log.jsonl", "log.csv?v=1"])
def test_tables_are_read_from_an_address(address: str, name: str) -> None:
    log = gecasmo.read_log(f"{address}/{name}")
    assert pages(log) == pages(gecasmo.read_log(TABLE))
    assert log.sessions.to_list() == [1, 2]
    assert peek(f"{address}/{name}").columns == tuple(TABLE)


def test_events_and_counts_are_read_from_an_address(address: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickLogWarning)
        here = gecasmo.read_events(SAMPLES / "events" / "shop.csv")
        assert gecasmo.read_events(f"{address}/shop.csv").to_frame().equals(here.to_frame())
        assert gecasmo.read_counts(f"{address}/counts.csv").total_weight == 320


def test_a_log_at_an_address_is_ingested(address: str, tmp_path: Path) -> None:
    stored = ClickLog.ingest(f"{address}/log.parquet", tmp_path / "log.gclog")
    assert (stored.n_sessions, stored.n_clicks) == (2, 1)


def test_errors_name_the_address(address: str, tmp_path: Path) -> None:
    for name in ("none.parquet", "none.csv", "broken.parquet"):
        with pytest.raises(ClickLogError, match=f"{address}/{name} cannot be read: "):
            gecasmo.read_log(f"{address}/{name}")
    with pytest.raises(ClickLogError, match=f"{address}/none.parquet cannot be read: "):
        ClickLog.ingest(f"{address}/none.parquet", tmp_path / "x.gclog")
    with pytest.raises(
        ClickLogError, match=r"does not say what it holds; it should end in \.parquet"
    ):
        gecasmo.read_log(f"{address}/log")
    with pytest.raises(ClickLogError, match="only tables and events are read from an address"):
        gecasmo.read_log(f"{address}/log.jsonl", format="ubi")


@pytest.mark.parametrize(
    ("source", "scan"),
    [
        ("s3://bucket/a.parquet", "scan_parquet"),
        ("hf://datasets/o/d/a.csv", "scan_csv"),
        ("gs://bucket/*.jsonl", "scan_ndjson"),
        ("az://container/a.tsv.gz", "scan_csv"),
    ],
)
def test_other_stores_are_handed_on_as_they_are(
    source: str, scan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def opened(address: str, **options: Any) -> pl.LazyFrame:
        asked.append(address)
        return pl.LazyFrame(TABLE).cast(options.get("schema_overrides", {}))

    monkeypatch.setattr(pl, scan, opened)
    assert pages(gecasmo.read_log(source)) == pages(gecasmo.read_log(TABLE))
    assert set(asked) == {source}


def test_paths_are_no_addresses() -> None:
    assert not any(map(is_address, ("a.csv", "C:\\a.csv", "C://a.csv", Path("s3://a"), 3)))
    assert is_address("abfss://a@b/c.parquet")
    assert RemoteTable("https://a/b.PARQUET?x=.csv").kind == "parquet"
