"""Run by test_bounded_memory: stream over a saved model in parts, and print peaks of memory in MB.

python memory_child.py MODEL FOLDER
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import polars as pl

import gecasmo
from gecasmo.forms.parted_table import PartedTable
from gecasmo.logs import ClickLog

LENGTH = 4


class Pages:
    """A page of four documents for each query of a table, made when a partition is asked for."""

    def __init__(self, table: PartedTable) -> None:
        self.table, self.n_partitions = table, table.n_parts

    def partition(self, number: int) -> ClickLog:
        rows = self.table.between(number, number + 1)[0].rows.frame
        shown = rows.filter(pl.col("doc") < LENGTH).sort("query", "doc")
        page = np.repeat(np.arange(len(shown) // LENGTH), LENGTH)
        clicks = np.random.default_rng(number).random(len(page)) < 0.2
        frame = pl.DataFrame(
            {
                "session": page,
                "query": shown["query"],
                "doc": shown["doc"],
                "rank": shown["doc"] + 1,
                "click": clicks,
            }
        )
        sessions = pl.Series("session", np.arange(len(page) // LENGTH))
        return ClickLog(frame, page.astype(np.uint32), sessions, np.ones(len(sessions)))


def peak() -> float:
    """The most memory that this program had; what getrusage tells includes who started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def main(model_path: str, folder: Path) -> None:
    model = gecasmo.load(model_path)
    table = model.states_["attraction"]
    log = Pages(table)
    peaks = {"loaded": peak()}
    model.score(log)
    peaks["score"] = peak()
    model.predict(log, folder / "predicted")
    peaks["predict"] = peak()
    model.save(folder / "copy")
    peaks["save"] = peak()
    model.judgments(rule="threshold", min_examinations=1e9).write(folder / "judgments.csv")
    peaks["judgments"] = peak()
    # What all rows would take, which need not show in a peak: there may be room that was freed.
    state, counts = table.whole()
    peaks["rows"] = (state.rows.frame.estimated_size() + state.probability.nbytes) / 2**20
    peaks["rows"] += counts.nbytes / 2**20
    print(json.dumps(peaks))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
