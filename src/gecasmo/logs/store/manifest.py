"""The first file of a stored log: what is in it, and how its parts should look."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gecasmo.errors import ClickLogError, either
from gecasmo.logs.notes import Note

NAME = "manifest.json"
FORMAT = "gecasmo stored log"
VERSION = 1
_SUMS = ("sessions", "pages", "results", "queries", "docs", "clicks", "weight")
# The files of a partition, of which those of the first three are always there.
_NAMES = ("queries", "docs", "results", "pages", "page_columns", "result_columns", "escapes")
FILES = tuple(f"{name}.arrow" for name in _NAMES)
_LARGEST = 2**53
_NEEDED = {
    "format": str,
    "version": int,
    "columns": dict,
    "has_query": bool,
    "folded": bool,
    "notes": list,
    "partitions": list,
    **dict.fromkeys(_SUMS[:-1], int),
    "weight": float,
}


def sums_of(partitions: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts of all partitions together."""
    sums: dict[str, Any] = {
        name: sum(int(each[name]) for each in partitions) for name in _SUMS[:-1]
    }
    sums["weight"] = float(sum(each["weight"] for each in partitions))
    return sums


def read_manifest(path: Path) -> tuple[dict[str, Any], str]:
    """Read and check the manifest of the log in a folder; also tell its fingerprint.

    Raises
    ------
    ClickLogError
        When there is no stored log, or it cannot be read by this version.
    """
    file = path / NAME
    if not path.exists():
        raise ClickLogError(f"{path}: there is no such stored log.{_unfinished(path)}")
    if not file.is_file():
        raise ClickLogError(
            f"{path} is not a stored log: it has no {NAME}.{_unfinished(path)} "
            f"Stored logs are made by `gecasmo ingest`{either(' and ClickLog.ingest', '')}."
        )
    data = file.read_bytes()
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise ClickLogError(f"{file} is damaged: it is not JSON ({problem}).") from None
    _check(manifest, file)
    return manifest, hashlib.sha256(data).hexdigest()


def _check(manifest: Any, file: Path) -> None:
    if not isinstance(manifest, Mapping) or manifest.get("format") != FORMAT:
        raise ClickLogError(f"{file} does not describe a stored log.")
    if manifest.get("version") != VERSION:
        raise ClickLogError(
            f"{file} is of version {manifest.get('version')!r}, and this gecasmo reads version "
            f"{VERSION}; a newer gecasmo may read it."
        )
    for name, kind in _NEEDED.items():
        if not isinstance(manifest.get(name), kind):
            raise ClickLogError(
                f"{file} is damaged: it lacks {name!r}, or has a wrong value there."
            )
    partitions = manifest["partitions"]
    n = len(partitions)
    if n == 0 or n & (n - 1):
        raise ClickLogError(f"{file} is damaged: {n} is no number of partitions.")
    for number, entry in enumerate(partitions):
        if not _is_sound(entry):
            raise ClickLogError(f"{file} is damaged: what it says of partition {number} is odd.")
    sums = sums_of(partitions)
    if any(sums[name] != manifest[name] for name in sums):
        raise ClickLogError(f"{file} is damaged: its partitions do not add up.")
    try:
        roles = ["session", *(["query"] if manifest["has_query"] else []), "doc", "rank", "click"]
        columns = manifest["columns"]
        is_sound = list(columns)[: len(roles)] == roles
        is_sound &= all(isinstance(kind, str) for kind in columns.values())
        taken = manifest.get("source_columns", {}).values()
        is_sound &= all(isinstance(names, list) and len(names) > 0 for names in taken)
        is_sound &= all(isinstance(name, str) for names in taken for name in names)
        is_sound &= all(_is_note(note) for note in manifest["notes"])
        is_sound &= type(manifest.get("source_results", 0)) is int
        is_sound &= manifest.get("walk") in (None, *list(columns)[len(roles) :])
    except (AttributeError, KeyError, TypeError):
        is_sound = False
    if not is_sound:
        raise ClickLogError(f"{file} is damaged: what it says of columns or notes is odd.")


def _is_sound(entry: Any) -> bool:
    """Whether an entry has the numbers and files of a partition, as far as it alone can tell."""
    try:
        counts = [entry[name] for name in _SUMS[:-1]]
        counts.append(entry.get("source_results", 0))
        counts.append(entry["length"] or 0)
        files = entry["files"]
        counts += [about["bytes"] for about in files.values()]
        checksums = [about["sha256"] for about in files.values()]
        weight = entry["weight"]
    except (AttributeError, KeyError, TypeError):
        return False
    return (
        all(type(count) is int and 0 <= count <= _LARGEST for count in counts)
        and all(isinstance(checksum, str) for checksum in checksums)
        and isinstance(weight, int | float)
        and 0 <= weight < float("inf")
        and set(FILES[:3]) <= files.keys() <= set(FILES)
    )


def _is_note(note: Any) -> bool:
    texts = [note["kind"], note["what"], *note["examples"]]
    return type(note["count"]) is int and all(isinstance(text, str) for text in texts)


def _unfinished(path: Path) -> str:
    if path.with_name(f"{path.name}.part").exists():
        return " Its ingest has not finished; run the same again, and it is resumed."
    return ""


def notes_as_json(notes: Iterable[Note]) -> list[dict[str, Any]]:
    """Notes for a file."""
    return [
        {"kind": n.kind, "count": n.count, "what": n.what, "examples": list(n.examples)}
        for n in notes
    ]


def notes_from_json(content: Iterable[Mapping[str, Any]]) -> list[Note]:
    """Notes from a file."""
    return [Note(n["kind"], n["count"], n["what"], tuple(n["examples"])) for n in content]
