"""Click probabilities of a log written to files, a partition at a time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from gecasmo.errors import GecasmoError, ModelError
from gecasmo.files import scratch_folder
from gecasmo.logs import ClickLog
from gecasmo.model.answers import conditional_frame, marginal_clicks
from gecasmo.model.frame_files import is_of_pieces, table_kind, write_frames, write_pieces
from gecasmo.model.impossible import Filtered, Tally, counts_of_source, n_source_results
from gecasmo.model.streaming import in_memory, is_stored, over_partitions

if TYPE_CHECKING:
    from gecasmo.model.base import Impossible, Model

Kind = Literal["conditional", "marginal"]
KINDS = ("conditional", "marginal")


@dataclass(frozen=True)
class Predicted:
    """What became of predictions that were written: the file or folder, and its rows.

    `n_results` counts results of the source, and so does `n_left_out` its sessions. Where equal
    pages are stored once there are fewer rows, each with the weight of its page.
    """

    path: Path
    n_results: int
    n_left_out: int = 0  # sessions
    n_rows: int = 0

    def __str__(self) -> str:
        text = f"{self.path}: click probabilities of {self.n_results:,} results"
        if self.n_rows != self.n_results:
            text += f", in {self.n_rows:,} rows with weights, since equal pages are stored once"
        if self.n_left_out:
            text += f"; {self.n_left_out:,} impossible sessions left out"
        return text


def predict_to(
    model: Model, log: Any, path: Any, kind: Kind = "conditional", impossible: Impossible = "raise"
) -> Predicted:
    """See `Model.predict`."""
    if kind not in KINDS:
        raise ModelError(f"kind={kind!r}: choose {' or '.join(map(repr, KINDS))}.")
    target = Path(path).expanduser()
    check_place(target)
    model.states(whole=False)
    told = _Told(kind, impossible)
    if not is_stored(log):
        frames: Iterator[pl.DataFrame] = iter([told(model, in_memory(log))])
    else:
        told.with_weight = True
        frames = over_partitions(model, log, told)
    table = _kind(target)
    n_rows = _write_folder(frames, target) if table is None else write_frames(frames, target, table)
    told.tally.tell(model.name)
    counts = counts_of_source(log, told.tally)
    n_results = told.n_results if counts is None else counts[1]
    return Predicted(target, n_results, told.tally.n_sessions - told.tally.n_kept, n_rows)


def check_place(target: Path) -> None:
    """Refuse a place for predictions where they would not be what the name says, or take the place
    of something else: files replace files, and folders of predictions such folders."""
    is_table = _kind(target) is not None
    if not is_table and target.is_symlink():
        raise GecasmoError(
            f"{target} is a link, and predictions go into a folder of this name: name the folder "
            "that it leads to, or choose another."
        )
    if is_table and target.is_dir():
        raise GecasmoError(f"{target}: that is a folder; name a file, or remove it.")
    if is_table or not target.exists():
        return
    if not target.is_dir():
        raise GecasmoError(
            f"{target} is a file, and predictions go into a folder of this name: let it end in "
            ".parquet or .csv for one file, or choose another."
        )
    if not is_of_pieces(target):
        raise GecasmoError(
            f"{target}: that is a folder with other files than predictions; choose another name."
        )


def _kind(target: Path) -> str | None:
    return table_kind(target, "predictions")


class _Told:
    """Makes the frame of a log, and counts."""

    def __init__(self, kind: Kind, impossible: Impossible) -> None:
        self.kind, self.impossible = kind, impossible
        self.tally = Tally()
        self.n_results = 0
        self.with_weight = False

    def __call__(self, model: Model, log: ClickLog) -> pl.DataFrame:
        kept = np.ones(log.n_sessions, bool)
        if self.kind == "marginal":
            frame: pl.DataFrame = marginal_clicks(model, log, frame=True)
        else:
            filtered = Filtered(model, log, self.impossible, warn=False)
            self.tally += filtered.tally
            kept = filtered.kept
            frame = conditional_frame(model, log, filtered)
        self.n_results += n_source_results(log, kept)
        if self.with_weight or not np.all(log.weight == 1):
            weight = log.weight[log.page][kept[log.page]]
            frame = frame.with_columns(weight=pl.Series(weight))
        return frame


def _write_folder(frames: Iterator[pl.DataFrame], target: Path) -> int:
    """A file for each partition, in a folder that appears when all are there."""
    with scratch_folder(target) as fresh:
        n_rows = write_pieces(frames, fresh, marked=True)
        _move(fresh, target)
    return n_rows


def _move(fresh: Path, target: Path) -> None:
    """Move a folder to its place; what was there goes when the new one stands."""
    check_place(target)  # much may have happened since it was checked
    if not target.is_dir():
        fresh.rename(target)
        return
    old = fresh.with_suffix(".old")
    target.rename(old)
    try:
        fresh.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
