"""The files of one partition: written whole, checked when read."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Note
from gecasmo.logs.store.compacting import ESCAPE, Compact, ranks_by_length
from gecasmo.logs.store.writing import arrow_bytes, sync_folder, telling_full_disk, write_whole

FACTS = "facts"
# Pages without an id of their own are numbered within the partition, above this place.
PAGE_BITS = 32


def folder_of(log: Path, number: int) -> Path:
    """Where a partition is."""
    return log / f"partition-{number:05}"


def write_partition(folder: Path, compact: Compact) -> dict[str, Any]:
    """Write a partition; it appears under its name when all of it is on the disk.

    Parameters
    ----------
    folder
        Where to.
    compact
        What it holds.

    Returns
    -------
    dict
        The counts, and the size and checksum of each file, for the manifest.
    """
    temporary = folder.with_name(f"{folder.name}.part")
    with telling_full_disk(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    files = {}
    for field in fields(compact):
        frame = getattr(compact, field.name)
        # What is not there is the same for all, or not there: the facts tell.
        if isinstance(frame, pl.DataFrame) and frame.width and not _is_left_out(field.name, frame):
            data = arrow_bytes(frame)
            name = f"{field.name}.arrow"
            write_whole(temporary / name, data)
            files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    with telling_full_disk(folder):
        sync_folder(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.replace(folder)
        sync_folder(folder.parent)
    return {**compact.facts, "files": files}


def _is_left_out(name: str, frame: pl.DataFrame) -> bool:
    return name == "escapes" and frame.height == 0


def checked_file(folder: Path, name: str, entry: Mapping[str, Any]) -> bytes:
    """The content of a file of a partition, if it is what was written."""
    path = folder / name
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise ClickLogError(
            f"{path} cannot be read: {problem.strerror or problem}. It is a part of a stored log; "
            "ingest the log again."
        ) from problem
    if len(data) != entry["bytes"]:
        raise ClickLogError(
            f"{path} has {len(data):,} bytes instead of {entry['bytes']:,}: it was cut off or "
            "changed. It is a part of a stored log; ingest the log again."
        )
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise ClickLogError(
            f"{path} was changed since it was written: its checksum differs. It is a part of a "
            "stored log; ingest the log again."
        )
    return data


def read_partition(
    folder: Path, number: int, entry: Mapping[str, Any], columns: list[str], notes: list[Note]
) -> ClickLog:
    """Read a partition as a log.

    Parameters
    ----------
    folder
        Where it is.
    number
        Which one it is.
    entry
        What the manifest says about it.
    columns
        The columns of the log, in order.
    notes
        The notes of the whole log.

    Returns
    -------
    ClickLog
        Pages in order of the hash of their query.
    """
    files = {
        name.removesuffix(".arrow"): pl.read_ipc(checked_file(folder, name, about))
        for name, about in entry["files"].items()
    }
    n_pages, n_results = int(entry["pages"]), int(entry["results"])
    queries, results = files["queries"], files["results"]
    of_pages = files.get("pages", pl.DataFrame())
    if "length" in of_pages.columns:
        lengths = of_pages["length"].to_numpy().astype(np.int64)
    else:
        lengths = np.full(n_pages, entry["length"] or 0, np.int64)
    page = np.repeat(np.arange(n_pages, dtype=np.uint32), lengths)
    query_of_page = np.repeat(np.arange(queries.height), queries["pages"].to_numpy())
    doc = _docs(results["doc"], files, queries, query_of_page, lengths)
    weight = np.ones(n_pages)
    if "weight" in of_pages.columns:
        weight = of_pages["weight"].to_numpy().astype(np.float64)
    if "session" in of_pages.columns:
        sessions = of_pages["session"]
    else:
        first = number << PAGE_BITS
        sessions = pl.Series("session", np.arange(first, first + n_pages, dtype=np.int64))
    rank = results["rank"] if "rank" in results.columns else pl.Series(ranks_by_length(lengths))
    single = files.get("page_columns", pl.DataFrame()).get_columns()
    if "query" in queries.columns:
        single.append(queries["query"].gather(query_of_page))
    found = {"doc": doc, "rank": rank.cast(pl.Int32), "click": results["click"]}
    found["session"] = sessions.gather(page)
    found |= {column.name: column.gather(page) for column in single}
    found |= {column.name: column for column in files.get("result_columns", pl.DataFrame())}
    frame = pl.DataFrame([found[name].alias(name) for name in columns])
    return ClickLog(
        frame,
        page,
        sessions,
        weight,
        pages=pl.DataFrame(single),
        order=np.arange(n_results, dtype=np.int64),
        notes=notes,
    )


def _docs(
    numbers: pl.Series,
    files: Mapping[str, pl.DataFrame],
    queries: pl.DataFrame,
    query_of_page: np.ndarray,
    lengths: np.ndarray,
) -> pl.Series:
    """The documents by their numbers."""
    of_query = queries["docs"].to_numpy().astype(np.int64)
    start_of_query = np.cumsum(of_query) - of_query
    number = numbers.to_numpy().astype(np.int64)
    if numbers.dtype == pl.UInt8 and "escapes" in files:
        escapes = files["escapes"]
        assert (number[escapes["result"].to_numpy()] == ESCAPE).all()
        number[escapes["result"].to_numpy()] = escapes["doc"].to_numpy()
    number += np.repeat(start_of_query[query_of_page], lengths)
    return files["docs"]["doc"].gather(number)
