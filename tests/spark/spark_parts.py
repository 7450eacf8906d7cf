"""The parts of a fit on Spark, made by what executors run, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo import EM
from gecasmo.estimation.tasks import Recipe, Task
from gecasmo.model.part_builder import local_coins
from gecasmo.spark.executors import Job, SharedFolder, make_part
from gecasmo.spark.frame_log import FrameReading
from gecasmo.spark.shipped_model import ShippedModel

ROLES: dict[str, Any] = {
    **dict.fromkeys(("session", "query", "doc", "rank", "click")),
    "weight": None,
}
ROLES |= {name: name for name in ("session", "query", "doc", "rank", "click")}
ORDER = ("session", "rank", "doc", "click")


def reading(n_parts: int = 4, **others: Any) -> FrameReading:
    return FrameReading(ROLES, ("query",), ORDER, n_parts, **others)


def batches(frame: pl.DataFrame, size: int = 100) -> list[Any]:
    return frame.to_arrow().to_batches(max_chunksize=size)


def pieces_of(frame: pl.DataFrame, how: FrameReading) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for number, piece in how.cut(batches(frame)):
        found.setdefault(number, []).append(piece)
    return found


class Made:
    """The parts of a fit, made by what executors run."""

    def __init__(
        self, clicks: pl.DataFrame, model: Any, folder: Path, n_parts: int = 4, **others: Any
    ) -> None:
        self.model = model
        how = reading(n_parts)
        self.local = tuple(local_coins(model, True))
        shipped = ShippedModel.of(model, with_states=False)
        job = Job(shipped, EM(), None, "raise", self.local, how, str(folder), **others)
        pieces = pieces_of(clicks, how)
        self.made = {n: make_part(job, n, how.table(pieces[n])) for n in sorted(pieces)}
        self.logs = {n: how.log(how.table(pieces[n]), n) for n in self.made}
        self.job = job.for_passes({2: 1})
        for n in self.made:
            SharedFolder(str(folder)).write(f"{n}/index", {2: 0})


def beginning(made: Made, **others: Any) -> Task:
    priors = dict.fromkeys(made.local, (1.0, 1.0))
    return Task(Recipe("begin", **others), "a", {2: np.array([[0.1], [0.9]])}, priors)
