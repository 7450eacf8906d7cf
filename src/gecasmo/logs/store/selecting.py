"""Some of the pages of a partition, as if they were all of them, and their counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.logs.store.decoding import Decoder
from gecasmo.logs.store.slimming import smallest

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

# Documents are looked up for so many results at a time.
_RESULTS_AT_A_TIME = 1 << 20


def selected(partition: Decoder, chosen: Bools, weight: Floats | None = None) -> Decoder:
    """Take some of the pages of a partition.

    Nothing is decoded, so this takes little more memory than the files.

    Parameters
    ----------
    partition
        All of its pages.
    chosen
        Whether each of them is taken.
    weight
        What each of them weighs instead; None for what it did.

    Returns
    -------
    Decoder
        Its pages are called what they were.
    """
    frames, n_pages = dict(partition.frames), partition.n_pages
    rows = np.repeat(chosen, partition.lengths)
    pages = frames.get("pages", pl.DataFrame())
    columns = [column for column in pages if weight is None or column.name != "weight"]
    if weight is not None:
        columns.append(pl.Series("weight", weight))
    if "session" not in pages.columns:
        columns.append(partition.sessions(0, n_pages))
    frames["pages"] = pl.DataFrame(columns).filter(pl.Series(chosen, dtype=pl.Boolean))
    of_query = partition.queries(0, n_pages)[chosen]
    left = np.bincount(of_query, minlength=frames["queries"].height)
    frames["queries"] = frames["queries"].with_columns(pages=pl.Series(left.astype(np.uint32)))
    for name, kept in (("page_columns", chosen), ("results", rows), ("result_columns", rows)):
        if name in frames:
            frames[name] = frames[name].filter(pl.Series(kept, dtype=pl.Boolean))
    if "escapes" in frames:
        frames["escapes"] = _moved_escapes(frames["escapes"], rows)
    return partition.with_frames(frames, int(chosen.sum()))


def _moved_escapes(escapes: pl.DataFrame, rows: Bools) -> pl.DataFrame:
    """Those of the chosen results, by their new places."""
    places = escapes["result"].to_numpy().astype(np.int64)
    stays = rows[places]
    new = (np.cumsum(rows) - 1)[places[stays]]
    return pl.DataFrame({"result": smallest(new), "doc": escapes["doc"].filter(pl.Series(stays))})


def counts_of(partition: Decoder, is_counting: bool) -> dict[str, Any]:
    """Count what the manifest counts.

    Parameters
    ----------
    partition
        The pages.
    is_counting
        Whether the weight of a page says how many pages of the source it stands for.

    Returns
    -------
    dict
        "sessions" are the pages that are stored where it is not known how many they stand for.
    """
    n_pages = partition.n_pages
    weight = partition.weights(0, n_pages)
    times = weight if is_counting else np.ones(n_pages)
    n_queries = int((partition.frames["queries"]["pages"] > 0).sum())
    seen = np.zeros(partition.frames["docs"].height, np.bool_)
    n_clicks, first = 0.0, 0
    while first < n_pages:
        last = partition.last_page(first, _RESULTS_AT_A_TIME)
        seen[partition.docs(first, last)] = True
        clicks = partition.frames["results"]["click"][partition.rows(first, last)].to_numpy()
        n_clicks += np.repeat(times[first:last], partition.lengths[first:last])[clicks].sum()
        first = last
    return {
        "sessions": round(float(times.sum())),
        "pages": n_pages,
        "results": int(partition.lengths.sum()),
        "queries": n_queries if "query" in partition.frames["queries"].columns else 0,
        "docs": int(seen.sum()),
        "source_results": round(float((times * partition.lengths).sum())),
        "clicks": round(float(n_clicks)),
        "weight": float(weight.sum()),
    }
