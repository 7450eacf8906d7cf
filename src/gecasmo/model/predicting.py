"""Click probabilities of a log written to Parquet, a partition at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from gecasmo.errors import GecasmoError, ModelError
from gecasmo.files import scratch_folder, whole_file
from gecasmo.logs import ClickLog
from gecasmo.model.answers import conditional_frame, marginal_clicks
from gecasmo.model.impossible import Filtered, Tally
from gecasmo.model.streaming import in_memory, is_stored, over_partitions

if TYPE_CHECKING:
    from gecasmo.model.base import Impossible, Model

Kind = Literal["conditional", "marginal"]
KINDS = ("conditional", "marginal")


@dataclass(frozen=True)
class Predicted:
    """What became of predictions that were written: the file or folder, and its rows."""

    path: Path
    n_results: int
    n_left_out: int = 0  # sessions

    def __str__(self) -> str:
        text = f"{self.path}: click probabilities of {self.n_results:,} results"
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
    model.states(whole=False)
    told = _Told(kind, impossible)
    if not is_stored(log):
        frames: Iterator[pl.DataFrame] = iter([told(model, in_memory(log))])
    else:
        told.with_weight = True
        frames = over_partitions(model, log, told)
    write = _write_file if target.suffix.lower() == ".parquet" else _write_folder
    n_results = write(frames, target)
    told.tally.tell(model.name)
    return Predicted(target, n_results, told.tally.n_sessions - told.tally.n_kept)


class _Told:
    """Makes the frame of a log, and counts."""

    def __init__(self, kind: Kind, impossible: Impossible) -> None:
        self.kind, self.impossible = kind, impossible
        self.tally = Tally()
        self.with_weight = False

    def __call__(self, model: Model, log: ClickLog) -> pl.DataFrame:
        kept = np.ones(log.n_results, bool)
        if self.kind == "marginal":
            frame: pl.DataFrame = marginal_clicks(model, log, frame=True)
        else:
            filtered = Filtered(model, log, self.impossible, warn=False)
            self.tally += filtered.tally
            kept = filtered.kept[log.page]
            frame = conditional_frame(model, log, filtered)
        if self.with_weight or not np.all(log.weight == 1):
            frame = frame.with_columns(weight=pl.Series(log.weight[log.page][kept]))
        return frame


def _write_folder(frames: Iterator[pl.DataFrame], target: Path) -> int:
    """A file for each partition, in a folder that appears when all are there."""
    if target.exists():
        raise GecasmoError(f"{target} is there already: choose another name, or remove it.")
    with scratch_folder(target) as fresh:
        n_results = _write_pieces(frames, fresh)
        fresh.rename(target)
    return n_results


def _write_file(frames: Iterator[pl.DataFrame], target: Path) -> int:
    """One file, put together from a file for each partition without reading any of them whole."""
    with scratch_folder(target) as fresh, whole_file(target) as temporary:
        n_results = _write_pieces(frames, fresh)
        pieces = sorted(fresh.iterdir())
        if len(pieces) == 1:
            pieces[0].rename(temporary)
        else:
            # Row groups as large as a partition would have to be held in memory.
            pl.scan_parquet(pieces, glob=False).sink_parquet(temporary, row_group_size=250_000)
    return n_results


def _write_pieces(frames: Iterator[pl.DataFrame], folder: Path) -> int:
    n_results = 0
    for number, frame in enumerate(frames):
        frame.write_parquet(folder / f"part-{number:05d}.parquet")
        n_results += len(frame)
    return n_results
