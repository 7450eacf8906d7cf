"""Stored logs that somebody made on purpose: whatever they hold, their checksums are right."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

from gecasmo.logs.store.disk import arrow_bytes

Frames = dict[str, pl.DataFrame]
# What a number, or anything else in a manifest, may be instead.
ODD: list[Any] = [
    *(None, True, -1, 0, 1, 2, 7, 255, 256, 2**31 - 1, 2**31, 2**32, 2**53, 2**63, 10**30),
    *(0.5, -1.5, float("nan"), float("inf"), "", "x", "../x", [], {}, [1], {"a": 1}),
]


def craft(source: Path, target: Path, number: int, change: Callable[[Frames, Any], None]) -> None:
    """Copy a log, let `change` do what it likes to a partition and its entry, and sum up."""
    shutil.copytree(source, target)
    manifest = json.loads((target / "manifest.json").read_text())
    entry = manifest["partitions"][number]
    folder = target / f"partition-{number:05}"
    frames = {name.removesuffix(".arrow"): pl.read_ipc(folder / name) for name in entry["files"]}
    before = dict(frames)
    change(frames, entry)
    for name, frame in frames.items():
        if frame is not before.get(name):
            write(folder / f"{name}.arrow", arrow_bytes(frame), entry)
    for name in before.keys() - frames.keys():
        del entry["files"][f"{name}.arrow"]
    save(target, manifest)


def write(path: Path, data: bytes, entry: Any) -> None:
    path.write_bytes(data)
    checksum = hashlib.sha256(data).hexdigest()
    entry["files"][path.name] = {"bytes": len(data), "sha256": checksum}


def save(target: Path, manifest: Any) -> None:
    """Write a manifest whose sums are right, as far as there are any."""
    for name in ("sessions", "pages", "results", "queries", "docs", "clicks", "weight"):
        try:
            kind = float if name == "weight" else int
            manifest[name] = kind(sum(each[name] for each in manifest["partitions"]))
        except (TypeError, KeyError, ValueError, OverflowError):
            pass
    (target / "manifest.json").write_text(json.dumps(manifest))


def random_log(source: Path, target: Path, number: int, chance: Random) -> str:
    """A log in which something is otherwise, in a frame, in the manifest or in some bytes."""
    kind = chance.choice(["frame", "frame", "frame", "manifest", "bytes"])
    if kind == "manifest":
        shutil.copytree(source, target)
        manifest = json.loads((target / "manifest.json").read_text())
        where = _change_leaf(manifest, chance, number)
        save(target, manifest) if chance.random() < 0.7 else (target / "manifest.json").write_text(
            json.dumps(manifest)
        )
        return f"manifest: {where}"
    told: list[str] = []

    def change(frames: Frames, entry: Any) -> None:
        name = chance.choice(list(frames))
        if kind == "bytes":
            data = bytearray(arrow_bytes(frames.pop(name)))
            for _ in range(chance.choice([1, 1, 2, 8])):
                data[chance.randrange(len(data))] = chance.randrange(256)
            path = target / f"partition-{number:05}" / f"{name}.arrow"
            write(path, bytes(data), entry)
            about = entry["files"][path.name]
            told.append(f"bytes of {name}")
            after.append((path.name, about))
            return
        told.append(_change_frame(frames, name, chance))

    after: list[Any] = []
    craft(source, target, number, change)
    if after:  # the frame was taken out, lest it be written again
        manifest = json.loads((target / "manifest.json").read_text())
        manifest["partitions"][number]["files"] |= dict(after)
        save(target, manifest)
    return told[0]


def _change_leaf(manifest: Any, chance: Random, number: int) -> str:
    at = chance.choice([manifest, manifest["partitions"][number]])
    way = []
    while True:
        key = chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
        way.append(key)
        inner = at[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.7:
            at = inner
            continue
        value = chance.choice(ODD)
        if chance.random() < 0.2:
            del at[key]
        else:
            at[key] = value
        return f"{way} = {value!r}"


def _change_frame(frames: Frames, name: str, chance: Random) -> str:
    frame = frames[name]
    column = chance.choice(frame.columns)
    what = chance.choice(["cell", "cell", "cell", "cast", "rows", "drop", "move", "gone", "twice"])
    told = f"{what} {name}.{column}"
    values = frame[column]
    if what == "cell" and frame.height:
        row = chance.randrange(frame.height)
        value = chance.choice(ODD[:22])
        listed: list[Any] = values.to_list()
        listed[row] = value
        changed = pl.Series(column, listed, dtype=values.dtype, strict=False)
        if chance.random() < 0.7 or changed.equals(values):
            changed = pl.Series(column, listed, strict=False)
        frames[name] = frame.with_columns(changed)
        return f"{told}[{row}] = {value!r}"
    if what == "cast":
        kinds = [pl.Int64, pl.Float64, pl.String, pl.UInt8, pl.Int8, pl.Boolean, pl.Int128]
        kind = chance.choice(kinds)
        # Texts are not cast to yes and no, not even to nulls.
        by = pl.Int64 if values.dtype == pl.String and kind == pl.Boolean else values.dtype
        frames[name] = frame.with_columns(values.cast(by, strict=False).cast(kind, strict=False))
        return f"{told} to {kind}"
    if what == "rows":
        n = chance.choice([0, 1, max(frame.height - 1, 0)])
        frames[name] = frame.head(n)
    elif what == "drop":
        frames[name] = frame.drop(column)
    elif what == "move":
        frames[name] = frame.with_columns(values.shuffle(chance.randrange(9)))
    elif what == "gone" and frame.width:
        del frames[name]
    else:
        frames[name] = pl.concat([frame, frame.head(1)])
    return told
