"""Checkpoints that are damaged, or made to do harm, are refused in words.

With `NUMBA_BOUNDSCHECK` kernels are compiled and say where they leave an array; without it they
are plain Python, which does, too. The long version (`GECASMO_EXAMPLES`) makes thousands of them.
"""

from __future__ import annotations

import os
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_fit_folders import METHOD, cut_short, frame, model, same

from gecasmo import ClickLog, open_log
from gecasmo.errors import CheckpointError, ClickLogError, GecasmoError
from gecasmo.estimation import packets, part_files
from gecasmo.logs.store import StoredLog

pytestmark = pytest.mark.usefixtures("checked_kernels")

IS_LONG = "GECASMO_EXAMPLES" in os.environ
EXAMPLES = 1000 * int(os.environ["GECASMO_EXAMPLES"]) if IS_LONG else 40


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> StoredLog:
    path = tmp_path_factory.mktemp("damaged") / "log.gclog"
    return ClickLog.ingest(frame(), path, partitions=2, progress=False)


@pytest.fixture
def half(log: StoredLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a fit that was ended in the middle."""
    cut_short(log, tmp_path / "fit", monkeypatch)
    return tmp_path / "fit"


def flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(data))


def test_one_flipped_bit_is_told(log: StoredLog, half: Path, tmp_path: Path) -> None:
    """In any file; those that nobody will read again may be as they are."""
    whole = model().fit(log, METHOD)
    chance = random.Random(3)
    kept = sorted(p for p in half.rglob("*") if p.is_file() and p.stat().st_size)
    assert {p.suffix for p in kept} >= {".packet", ".json"}
    n_told = 0
    for number, path in enumerate(kept):
        folder = shutil.copytree(half, tmp_path / f"flipped{number}")
        flip(folder / path.relative_to(half), chance)
        try:
            again = model().fit(log, METHOD, checkpoint=folder)
        except CheckpointError as problem:
            n_told += str(folder) in str(problem)
        else:
            same(whole, again)
    assert n_told >= 0.6 * len(kept)


def crafted(folder: Path, change: Any, number: int = 0) -> Path:
    """Change the arrays of a part, and write them with the checksums that they have then."""
    path = sorted((folder / "parts").iterdir())[number] / "pages.packet"
    words, arrays = part_files.read_pages(path)
    arrays = {name: np.array(array) for name, array in arrays.items()}
    change(arrays, words)
    path.unlink()  # it is mapped
    part_files.write_pages(path, words, arrays)
    return folder


def put(name: str, value: Any) -> Any:
    def change(arrays: Any, words: Any) -> None:
        arrays[name] = arrays[name].astype(np.result_type(arrays[name], np.min_scalar_type(value)))
        arrays[name][-1] = value

    return change


def shorter(name: str) -> Any:
    return lambda arrays, words: arrays.update({name: arrays[name][:-1]})


def plan(**values: Any) -> Any:
    return lambda arrays, words: words["plan"][0].update(values)


@pytest.mark.parametrize(
    "change",
    [
        put("codes.0", 10_000),
        put("obs", 200),
        put("obs_start", 10**6),
        put("row_start", -5),
        put("bucket_start", 10**9),
        put("weight", float("nan")),
        put("weight", -1.0),
        *map(shorter, ("obs", "codes.0", "weight", "row_start", "obs_start", "bucket_start")),
        lambda arrays, words: arrays.update({"first_rows.0": np.full(99, 9, np.uint32)}),
        lambda arrays, words: arrays.update(obs=arrays["obs"].astype(np.float64)),
        lambda arrays, words: words.update(n_rows=[10**12] * len(words["n_rows"])),
        lambda arrays, words: words.update(n_rows=[1] * len(words["n_rows"])),
        lambda arrays, words: words["encoded"].update(shifts=[-60] * len(words["n_rows"])),
        lambda arrays, words: words.pop("plan"),
        plan(scope="everywhere"),
        plan(codes="0; print('code')"),
        plan(codes=7),
        plan(history=["last_click, x"]),
        # Found by a soak: a coin that has one row for all pages, and is said to count from others.
        lambda arrays, words: words["plan"][-1].update(based=True),
    ],
)
def test_arrays_that_would_lead_elsewhere_are_refused(
    change: Any, log: StoredLog, half: Path
) -> None:
    crafted(half, change)
    with pytest.raises(CheckpointError, match=r"is damaged .* fit again"):
        model().fit(log, METHOD, checkpoint=half)


def test_points_of_other_rows_are_refused(log: StoredLog, half: Path) -> None:
    for path in (half / "points").rglob("*.packet"):
        arrays = packets.read_packet(path)
        packets.write_packet(path, {n: v[:-1] for n, v in arrays.items()})
    with pytest.raises(CheckpointError, match="it is of other rows"):
        model().fit(log, METHOD, checkpoint=half)


@pytest.mark.parametrize("name", ["lock", "parts/00000/pages.packet"])
def test_links_are_not_written_through(log: StoredLog, half: Path, name: str) -> None:
    precious = half.with_name("precious")
    precious.write_text("for years")
    path = half / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(precious)
    with pytest.raises(CheckpointError, match="is a link"):
        model().fit(log, METHOD, checkpoint=half)
    assert precious.read_text() == "for years"


def test_an_empty_folder_with_a_link_for_a_lock(log: StoredLog, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("for years")
    for folder in ("fit", "new.gclog.part"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(CheckpointError, match="is a link"):
        model().fit(log, METHOD, checkpoint=tmp_path / "fit")
    with pytest.raises(ClickLogError, match="is a link"):
        ClickLog.ingest(frame(), tmp_path / "new.gclog")
    assert (tmp_path / "precious").read_text() == "for years"


def _anything(arrays: Any, words: Any, chance: random.Random) -> str:
    if chance.random() < 0.3:
        at: Any = words
        while isinstance(at, (dict, list)) and at:
            key = chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
            if not isinstance(at[key], (dict, list)) or not at[key] or chance.random() < 0.2:
                at[key] = chance.choice([None, -1, 0, 1, 3, 2**40, 0.5, "x", [], {}, [1], True])
                break
            at = at[key]
        return f"words {key!r}"
    name = chance.choice(list(arrays))
    array = arrays[name]
    how = chance.choice(["value", "value", "value", "short", "long", "type", "gone"])
    if how == "value" and array.size:
        value = chance.choice([-1, 0, 1, 2, 7, 255, 2**16, 2**31, 2**40, 0.5, np.nan, np.inf])
        if chance.random() < 0.5 and not isinstance(value, float):
            array = array.astype(np.int64 if value < 0 else np.uint64)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array.ravel()[chance.randrange(array.size)] = np.array(value).astype(array.dtype)
        arrays[name] = array
    elif how == "short":
        arrays[name] = array[: chance.choice([0, 1, -1])]
    elif how == "long":
        arrays[name] = np.append(array, array[:1])
    elif how == "type":
        arrays[name] = array.astype(chance.choice([np.int8, np.int64, np.float64, np.uint64]))
    else:
        del arrays[name]
    return f"{how} of {name}"


def test_crafted_checkpoints_end_in_words(log: StoredLog, half: Path, tmp_path: Path) -> None:
    seed = random.randrange(2**32) if IS_LONG else 5
    chance = random.Random(seed)
    n_refused, failures = 0, []
    for number in range(EXAMPLES):
        folder = shutil.copytree(half, tmp_path / "crafted")
        told: list[str] = []
        crafted(folder, lambda a, w, told=told: told.append(_anything(a, w, chance)), number % 2)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model().fit(open_log(log.path), METHOD, checkpoint=folder)
        except GecasmoError:
            n_refused += 1
        except Exception as problem:  # so that one failure does not hide others
            failures.append(f"seed {seed}, folder {number}: {told}: {problem!r}")
        shutil.rmtree(folder)
    assert not failures
    assert n_refused > EXAMPLES / 3


def test_numbers_far_apart_are_written_as_they_are(tmp_path: Path) -> None:
    """Found by a soak: their step is no number of 64 bits."""
    far = np.zeros(64, np.int64)
    far[0] = np.iinfo(np.int64).min
    part_files.write_pages(tmp_path / "pages", {}, {"far": far, "even": np.arange(100)})
    _, arrays = part_files.read_pages(tmp_path / "pages")
    np.testing.assert_array_equal(arrays["far"], far)
    np.testing.assert_array_equal(arrays["even"], np.arange(100))
