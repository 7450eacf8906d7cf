"""Bytes of Spark that are damaged, or made up: in files between passes, and in answers.

A damaged byte is told by the checksum; what was made up has a right one, and is told by what must
hold for numbers before anything is indexed by them.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_parts import Made, beginning, pieces_of, reading

from gecasmo import DBN
from gecasmo.encoding import Rows
from gecasmo.estimation.packets import DamagedPacketError, pack, unpack
from gecasmo.estimation.tasks import Answer, Recipe, SharedCounts, Task
from gecasmo.spark import SparkError, executors
from gecasmo.spark.executors import SharedFolder, decoded, pass_over
from gecasmo.spark.messages import record, unpacked
from gecasmo.spark.spark_fit import SparkParts

pytestmark = pytest.mark.usefixtures("plain_kernels")

N_FLIPS = 25 * int(os.environ.get("GECASMO_EXAMPLES", "1"))
FILES = ("part", "index", "point-a", "rows0")


@pytest.fixture(scope="module")
def made(clicks: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Made:
    found = Made(clicks, DBN(), tmp_path_factory.mktemp("state") / "fit", n_parts=1)
    pass_over(found.job, 0, beginning(found))
    return found


@pytest.fixture
def again(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the second pass, and look at the keys of all rows, with one file changed."""
    monkeypatch.setattr(executors, "_parts", type(executors._parts)())
    task = Task(Recipe("next", of="a"), "", beginning(made).shared, beginning(made).priors)
    files = {path.name: path.read_bytes() for path in (Path(made.job.folder) / "0").iterdir()}

    def run(name: str, change: Callable[[bytes], bytes]) -> Any:
        executors._parts.clear()
        (tmp_path / "0").mkdir(exist_ok=True)
        for own, content in files.items():
            (tmp_path / "0" / own).write_bytes(change(content) if own == name else content)
        job = replace(made.job, folder=str(tmp_path))
        answer = pass_over(job, 0, task)
        frames = [state.rows.frame for state in decoded(job, 0).local.values()]
        return answer, frames, SharedFolder(str(tmp_path)).read("0/first")

    return run


# -- damage ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [*FILES, "first"])
def test_a_flipped_bit_is_told_with_the_name_of_the_file(
    name: str, again: Callable[..., Any]
) -> None:
    again(name, bytes)  # nothing is wrong yet
    random = np.random.default_rng(0)
    for _ in range(N_FLIPS):

        def flipped(content: bytes) -> bytes:
            changed = bytearray(content)
            changed[random.integers(len(content))] ^= 1 << random.integers(8)
            return bytes(changed)

        with pytest.raises(SparkError, match=rf"/0/{name} is damaged: .*Run the same again"):
            again(name, flipped)
    for length in (0, 7, 20, -1):
        with pytest.raises(SparkError, match=rf"/0/{name} is damaged"):
            again(name, lambda content, length=length: content[:length])
    with pytest.raises(SparkError, match=rf"/0/{name} is damaged"):
        again(name, lambda content: content + b"more")


def test_a_damaged_answer_and_a_damaged_piece_are_told(clicks: pl.DataFrame) -> None:
    how = reading(1)
    (piece,) = pieces_of(clicks, how)[0][:1]
    with pytest.raises(SparkError, match="A piece of the data frame is damaged"):
        how.table([piece[:-1] + b"!"])
    answer = record(3, pack({"a": 1}))["answer"].to_pylist()[0]
    assert unpacked(answer, "The answer of part 3") == {"a": 1}
    with pytest.raises(SparkError, match="The answer of part 3 is damaged"):
        unpacked(answer.replace(b"a", b"b"), "The answer of part 3")


# -- made up -----------------------------------------------------------------------------------
def of_arrays(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """The file of a part with other arrays, and a checksum that is right."""

    def changed(content: bytes) -> bytes:
        words, arrays = unpack(content)
        change(arrays)
        return pack((words, arrays))

    return changed


def of_words(**others: Any) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        words, arrays = unpack(content)
        return pack(({**words, **others}, arrays))

    return changed


def put(name: str, place: int, value: Any) -> Callable[[bytes], bytes]:
    return of_arrays(lambda arrays: arrays[name].__setitem__(place, value))


CRAFTED = {
    "symbols": put("obs", 5, 200),
    "rows": put("codes.0", 5, 255),
    "pages that go back": put("obs_start", 3, 0),
    "pages that end beyond": put("obs_start", -1, 10**6),
    "results before the first": put("row_start", 0, -5),
    "results beyond the last": put("row_start", 3, 10**9),
    "buckets beyond": put("bucket_start", 100, 10**6),
    "weights": put("weight", 0, np.nan),
    "infinite weights": put("weight", 0, np.inf),
    "negative weights": put("weight", 0, -1.0),
    "short": of_arrays(lambda a: a.update(obs=a["obs"][:-3])),
    "other types": of_arrays(lambda a: a.update(obs=a["obs"].astype(np.int64))),
    "another shape": of_arrays(lambda a: a.update(weight=a["weight"][None])),
    "missing": of_arrays(lambda a: a.pop("obs_start")),
    "no numbers of rows": of_words(n_rows=[]),
    "too few rows": of_words(n_rows=[3, 3, 1]),
    "too many rows": of_words(n_rows=[10**15, 10**15, 1]),
    "no plan": of_words(plan=[]),
    "another plan": of_words(plan=[{"scope": "import os", "codes": 0}] * 3),
    "begin": of_words(begin=[[7, 0.5, 0.5]]),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_parts_that_were_made_up_are_refused(name: str, again: Callable[..., Any]) -> None:
    with pytest.raises(SparkError, match="/0/part is damaged"):
        again("part", CRAFTED[name])


@pytest.mark.parametrize("index", [{2: 1}, {2: -1}, {2: np.array([7])}, {9: 0}, [1], {2: "x"}, 0])
def test_places_that_were_made_up_are_refused(index: Any, again: Callable[..., Any]) -> None:
    with pytest.raises(SparkError, match="damaged"):
        again("index", lambda _: pack(index))


@pytest.mark.parametrize(
    "change",
    [
        lambda p: {**p, "probability0": p["probability0"][:-1]},
        lambda p: {**p, "probability0": p["probability0"][None]},
        lambda p: {**p, "following1": np.append(p["following1"], 0.5)},
        lambda p: {**p, "strange0": p["probability0"]},
        lambda p: {**p, "probability0": p["probability0"].astype(np.int8)},
        lambda p: {**p, "probability7": p["probability0"]},
        lambda _: [1, 2],
        lambda _: "",
    ],
)
def test_points_that_were_made_up_are_refused(change: Any, again: Callable[..., Any]) -> None:
    with pytest.raises(SparkError, match="/0/point-a is damaged"):
        again("point-a", lambda content: pack(change(unpack(content))))


def test_keys_of_other_rows_are_refused(again: Callable[..., Any]) -> None:
    for change in (lambda f: f[:-1], lambda f: f.select("doc", "query"), lambda f: f.drop("doc")):
        with pytest.raises(SparkError, match="/0/rows0 is damaged"):
            again("rows0", lambda content, change=change: pack(change(unpack(content))))


RIGHT = Answer(-1.0, 0, 0.0, {2: SharedCounts(np.zeros((2, 4)), 4)})
WRONG = [
    replace(RIGHT, counts={}),
    replace(RIGHT, counts={2: SharedCounts(np.zeros((2, 10)), 10)}),
    replace(RIGHT, counts={2: SharedCounts(np.zeros((2, 1)), 10**15, np.array([0]))}),
    replace(RIGHT, counts={2: SharedCounts(np.zeros((2, 1)), 4, np.array([4]))}),
    replace(RIGHT, counts={2: SharedCounts(np.zeros((2, 1)), 4, np.array([-1]))}),
    replace(RIGHT, counts={2: SharedCounts(np.zeros((2, 1)), 4, np.array([0.5]))}),
    replace(RIGHT, counts={2: SharedCounts(np.zeros((3, 4)), 4)}),
    replace(RIGHT, counts={2: SharedCounts(np.zeros((2, 4), np.float32), 4)}),
    replace(RIGHT, log_likelihood="-1"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("answer", [*WRONG, None, {}, [1.0]], ids=range(len(WRONG) + 3))
def test_answers_that_were_made_up_are_refused(
    answer: Any, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [RIGHT, answer]
    monkeypatch.setattr(
        "gecasmo.spark.spark_fit.ask_parts",
        lambda *_: {n: unpack(pack(one)) for n, one in enumerate(told)},
    )
    parts = SparkParts(None, replace(made.job, n_rows={2: 4}), [0, 1])
    with pytest.raises(SparkError, match="The answer of part 1 is damaged"):
        parts.run(beginning(made))
    told[1] = replace(RIGHT, counts={2: SharedCounts(np.ones((2, 2)), 4, np.array([1, 3]))})
    assert parts.run(beginning(made)).counts[2].table.tolist() == [[0, 1, 0, 1]] * 2


# -- packets -----------------------------------------------------------------------------------
def sealed(words: Any, blobs: bytes = b"") -> bytes:
    """A packet of any words, with a checksum that is right."""
    text = words if isinstance(words, bytes) else json.dumps(words).encode()
    content = len(text).to_bytes(8, "little") + text
    content += bytes(-(16 + len(content)) % 64) + blobs if blobs else b""
    return b"gecasmo1" + zlib.crc32(content).to_bytes(8, "little") + content


def test_what_no_packet_says_is_refused() -> None:
    assert unpack(sealed(["list", 1, ["array", "<i8", [2], 16]], bytes(16)))[1].tolist() == [0, 0]
    for words in (
        ["array", "<i8", [2], 24],
        ["array", "<i8", [10**12], 8 * 10**12],
        ["array", "<i8", [-1, -2], 16],
        ["array", "O", [2], 16],
        ["array", "<i8,<i8", [1], 16],
        ["array", "<U4", [1], 16],
        ["array", "<i8", "2", 16],
        ["array", "<i8", [2]],
        ["bytes", -16],
        ["bytes", 10**15],
        ["bytes", "16"],
        ["table", 16],
        ["number", "<M8[s]", 3],
        ["number", "<i1", 10**9],
        ["mapping", [["list"], 1]],
        ["mapping", 3],
        ["class", "os:stat_result", 1],
        ["class", "gecasmo.errors:option", "a", "b"],
        ["class", "gecasmo.estimation.tasks:Recipe"],
        ["class", "gecasmo.spark.session:start", "local"],
        ["class", "gecasmo.nothing:Recipe", "begin"],
        ["rows", ["tuple", "a"], 1, 2, 3],
        ["eval", "1"],
        [[]],
        [],
        b"[" * 100_000,
        b"{",
        b"\xff",
    ):
        with pytest.raises(DamagedPacketError):
            unpack(sealed(words, bytes(16)))


parts_of_words = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70) | st.floats() | st.text(max_size=5)
    | st.sampled_from(["array", "bytes", "table", "rows", "mapping", "class", "list", "tuple"])
    | st.sampled_from(["number", "<i8", "|u1", "gecasmo.estimation.tasks:Recipe"]),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@given(parts_of_words, st.binary(max_size=40))
def test_whatever_words_say_is_a_value_or_damage(words: Any, blobs: bytes) -> None:
    with contextlib.suppress(DamagedPacketError):
        unpack(sealed(words, blobs))


@given(st.data())
def test_tables_that_were_made_up_are_tables_or_damage(data: st.DataObject) -> None:
    rows = Rows(("doc",), [pl.Series("doc", ["a", "bc", None])], 3, {"price": pl.Series([1, 2, 3])})
    content = bytearray(pack({1: rows, 2: np.arange(9.0)}))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(24, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    content[8:16] = zlib.crc32(content[16:]).to_bytes(8, "little")
    with contextlib.suppress(DamagedPacketError):
        unpack(content)
