"""Files that are cut off, damaged, empty, too long in a line, or not UTF-8."""

from __future__ import annotations

import gzip
import io
import os
import random
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import zstandard
from reader_helpers import SAMPLES, pages, read_noting

from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog, read_log
from gecasmo.logs.packed import unpacked

TEXTS = {
    "table.csv": "table",
    "table.tsv": "table",
    "table.jsonl": "table",
    "yandex.tsv": "yandex",
    "clickmodels.tsv": "clickmodels",
    "pyclickmodels.jsonl": "pyclickmodels",
    "ubi.ndjson": "ubi",
}
PACK = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress}


def packed(tmp_path: Path, name: str, kind: str, times: int = 1) -> Path:
    path = tmp_path / f"{name}.{kind}"
    path.write_bytes(PACK[kind]((SAMPLES / name).read_bytes() * times))
    return path


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("kind", PACK)
def test_packed_text_reads_the_same(tmp_path: Path, name: str, kind: str) -> None:
    log, notes = read_noting(packed(tmp_path, name, kind))
    assert pages(log) == pages(read_log(SAMPLES / name))
    assert notes == {}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("is_told", [True, False])
def test_a_cut_off_file_is_told(tmp_path: Path, name: str, kind: str, is_told: bool) -> None:
    path = packed(tmp_path, name, kind)
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(ClickLogError, match=f"{name}.{kind} cannot be read: .* ends too early"):
        read_log(path, format=TEXTS[name] if is_told else None)


@pytest.mark.parametrize("kind", PACK)
def test_a_damaged_file_is_told(tmp_path: Path, kind: str) -> None:
    path = packed(tmp_path, "ubi.ndjson", kind)
    data = bytearray(path.read_bytes())
    for at in range(20, len(data), 7):
        data[at] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(ClickLogError, match=f"ubi.ndjson.{kind} cannot be read: "):
        read_log(path, format="ubi")


@pytest.mark.parametrize("kind", PACK)
def test_packed_files_can_be_joined(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"both.tsv.{kind}"
    first, second = (SAMPLES / "yandex.tsv").read_bytes().split(b"35\t0\tQ", 1)
    path.write_bytes(PACK[kind](first) + PACK[kind](b"35\t0\tQ" + second))
    assert pages(read_log(path)) == pages(read_log(SAMPLES / "yandex.tsv"))


def test_a_file_packed_in_a_wide_window(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28)
    packer = zstandard.ZstdCompressor(compression_params=parameters)
    path = tmp_path / "wide.csv.zst"
    path.write_bytes(packer.compress((SAMPLES / "table.csv").read_bytes()))
    assert len(read_log(path)) == 5


def test_a_window_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=29)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = tmp_path / "wide.csv.zst"
    path.write_bytes(packer.compress((SAMPLES / "table.csv").read_bytes()) + packer.flush())
    with pytest.raises(ClickLogError, match=r"takes 536,870,912 bytes of memory, .* --long"):
        read_log(path)


def test_what_zstd_unpacks_comes_in_small_pieces() -> None:
    """A few kilobytes can be gigabytes; also several frames, and what is skipped between them."""
    packer = zstandard.ZstdCompressor(write_checksum=True)
    much, little = packer.compress(bytes(1 << 26)), packer.compress(b"the end")
    skipped = b"\x53\x2a\x4d\x18" + (9).to_bytes(4, "little") + b"nine bytes"[:9]
    assert len(much) < 10_000
    joined = io.BytesIO(much + skipped + packer.compress(b"") + little + skipped)
    size, last = 0, b""
    for piece in unpacked(joined, "zst", "log"):
        assert len(piece) < (1 << 20) + (1 << 17)
        size, last = size + len(piece), piece or last
    assert size == (1 << 26) + 7
    assert last.endswith(b"the end")


@pytest.mark.parametrize("cut", range(1, 30))
def test_zstd_that_ends_anywhere_is_told(cut: int) -> None:
    whole = zstandard.ZstdCompressor(write_checksum=True).compress(b"session,doc,rank,click")
    with pytest.raises(ClickLogError, match="ends too early"):
        list(unpacked(io.BytesIO(whole[:-cut]), "zst", "log"))


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('session,"doc",rank,click,doc\n1,a,1,0,b\n')
    expected = r"log.csv, line 1: 2 columns are called 'doc'; rename all but one of them"
    with pytest.raises(ClickLogError, match=expected):
        read_log(path)
    with pytest.raises(ClickLogError, match=expected):
        ClickLog.ingest(path, tmp_path / "log.gclog")


@pytest.mark.skipif(not hasattr(pl, "UInt128"), reason="this Polars reads no such numbers")
@pytest.mark.parametrize("name", ["log.csv", "log.tsv"])
def test_numbers_wider_than_numpy_knows(tmp_path: Path, name: str) -> None:
    zeros, long = "0" * 30, "9" * 30
    rows = [
        ["session", "doc", "rank", "click", "price"],
        [long, "x", f"{zeros}1", f"{zeros}0", long],
        [long, "y", f"{zeros}2", f"{zeros}1", "3"],
    ]
    path = tmp_path / name
    path.write_text("\n".join(("," if name == "log.csv" else "\t").join(row) for row in rows))
    log = read_log(path)
    assert (log.sessions[0], log.rank.tolist(), log.click.tolist()) == (long, [1, 2], [0, 1])
    assert len(ClickLog.ingest(path, tmp_path / "log.gclog", keep="all")) == 1
    path.write_text(path.read_text().replace(f"{zeros}2", long))
    with pytest.raises(ClickLogError, match=rf"rank: 1 value is larger than .*row 1 has {long}"):
        read_log(path)


READ = """
import sys
from gecasmo.errors import ClickLogError
from gecasmo.logs import read_log
for roles in ({}, {"format": "table", "doc": "query_doc_ids", "click": "clicks"}):
    try:
        read_log(sys.argv[1], **roles)
    except ClickLogError as error:
        print(error)
"""


@pytest.mark.parametrize("seed", [87, 198])
def test_a_panic_of_polars_is_told_by_us_and_quietly(tmp_path: Path, seed: int) -> None:
    """A bit is another one; which ones make Polars panic was found by trying."""
    draw = random.Random(seed)
    changed = bytearray((SAMPLES / "baidu.parquet").read_bytes())
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    path = tmp_path / "log.parquet"
    path.write_bytes(changed)
    ended = subprocess.run(
        [sys.executable, "-c", READ, path],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"RUST_BACKTRACE": "1"},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    told = f"{path} cannot be read: the file is damaged; copy or make it again.\n" * 2
    if not hasattr(pl, "read_lines"):  # old versions raise errors here
        assert ended.stdout.count(f"{path} cannot be read: ") == ended.stdout.count("\n") == 2
    else:
        assert ended.stdout == told


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("kind", [None, "gz", "zst"])
def test_a_line_above_the_limit_is_told(tmp_path: Path, name: str, kind: str | None) -> None:
    path = SAMPLES / name if kind is None else packed(tmp_path, name, kind)
    longest = max(map(len, (SAMPLES / name).read_bytes().split(b"\n")))
    assert len(read_log(path, max_line=longest)) > 0
    with pytest.raises(ClickLogError, match=r", line \d+: the line is longer than max_line="):
        read_log(path, max_line=longest - 1)


def test_the_long_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.tsv"
    path.write_text("1\t0\tQ\t5\t0\t10\n1\t2\tC\t10\n2\t0\tQ\t5\t0\t" + "1" * 90 + "\n")
    with pytest.raises(ClickLogError, match=r"log.tsv, line 3: .* max_line=80 bytes"):
        read_log(path, max_line=80)


@pytest.mark.parametrize("limit", [0, -5, 2.5, True, "64"])
def test_a_limit_is_a_number_of_bytes(limit: object) -> None:
    with pytest.raises(ClickLogError, match=r"read_log\(max_line=.*\): a number of bytes"):
        read_log(SAMPLES / "table.csv", max_line=limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_is_told(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ClickLogError, match=rf"{name} (is empty|cannot be read)"):
        read_log(path, format=TEXTS[name])


@pytest.mark.parametrize("name", [name for name, kind in TEXTS.items() if kind != "ubi"])
def test_one_page_is_enough(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    has_header = name in ("table.csv", "table.tsv")
    lines = (SAMPLES / name).read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: 2 if has_header else 1]))
    log = read_log(path)
    whole = read_log(SAMPLES / name)
    assert log.to_frame().row(0)[1:4] == whole.to_frame().row(0)[1:4]


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_is_not_utf8_is_told(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    data = (SAMPLES / name).read_bytes().rstrip(b"\n")
    line = data.count(b"\n") + 1
    path.write_bytes(data[:-3] + b"\xff" + data[-3:])
    with pytest.raises(ClickLogError, match=rf"{name}, line {line}: the text is not UTF-8; byte "):
        read_log(path, format=TEXTS[name])


@pytest.mark.parametrize("name", TEXTS)
def test_a_byte_order_mark_and_windows_line_ends_are_no_trouble(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = (SAMPLES / name).read_bytes().replace(b"\n", b"\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text)
    assert pages(read_log(path)) == pages(read_log(SAMPLES / name))


def test_a_utf16_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes((SAMPLES / "table.csv").read_text().encode("utf-16"))
    with pytest.raises(ClickLogError, match=r"log.csv, line 1: the text is not UTF-8; byte 1 of"):
        read_log(path)


def test_a_cut_off_parquet_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    data = (SAMPLES / "baidu.parquet").read_bytes()
    path.write_bytes(data[: len(data) // 2])
    for format in (None, "table", "baidu", "ubi"):
        with pytest.raises(ClickLogError, match=r"log.parquet cannot be read: "):
            read_log(path, format=format)


def test_files_are_read_in_order(tmp_path: Path) -> None:
    lines = (SAMPLES / "yandex.tsv").read_text().splitlines(keepends=True)
    (tmp_path / "day-1.tsv").write_text("".join(lines[:4]))
    (tmp_path / "day-2.tsv.gz").write_bytes(gzip.compress("".join(lines[4:]).encode()))
    whole = pages(read_log(SAMPLES / "yandex.tsv"))
    assert pages(read_log(tmp_path / "day-*")) == whole
    assert pages(read_log(tmp_path, format="yandex")) == whole


def test_the_line_of_the_second_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "day-1.tsv").write_text("1\t0\tQ\t5\t0\t10\n1\t2\tC\t10\n")
    (tmp_path / "day-2.tsv").write_text("2\t0\tQ\t5\t0\t10\n2\tx\tC\t10\n")
    with pytest.raises(ClickLogError, match=r"day-2.tsv, line 2: the time is not"):
        read_log(tmp_path / "day-*.tsv")


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match="the folder has no files"):
        read_log(tmp_path, format="ubi")


@pytest.mark.parametrize("format", ["ubi", "baidu", "table"])
def test_an_error_that_says_nothing_is_told_by_its_kind(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise pl.exceptions.ComputeError("")

    path = tmp_path / "log.parquet"
    pl.DataFrame({"query_id": ["q"]}).write_parquet(path)
    monkeypatch.setattr(pl, "read_parquet", fail)
    monkeypatch.setattr(pl, "scan_parquet", fail)
    monkeypatch.setattr("gecasmo.logs.inputs.Input.parquet_schema", lambda file: {})
    with pytest.raises(ClickLogError, match=r"log.parquet cannot be read: ComputeError$"):
        read_log(path, format=format)
