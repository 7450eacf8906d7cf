"""The rows of coins that parts share, in files of a fit that can be gone on with."""

from __future__ import annotations

import polars as pl

from gecasmo.encoding import Rows
from gecasmo.errors import CheckpointError
from gecasmo.logs.store.writing import telling_full_disk
from gecasmo.model.fit_folder import FitFolder


def write_shared_rows(folder: FitFolder, number: int, rows: Rows) -> None:
    """Keep the rows of a shared coin, for a fit that is gone on with."""
    own = folder.path / "shared"
    columns = [] if not rows.keys else rows.frame.get_columns()
    columns += [column.alias(f"*{name}*") for name, column in rows.attached.items()]
    advice = "make room and fit again with the same checkpoint folder."
    with telling_full_disk(own, CheckpointError, CheckpointError, advice):
        own.mkdir(exist_ok=True)
        if columns:
            pl.DataFrame(columns).write_ipc(own / f"{number}.arrow")
    folder.note(**{f"rows{number}": [list(rows.keys), len(rows), list(rows.attached)]})


def read_shared_rows(folder: FitFolder, number: int) -> Rows:
    """The rows of a shared coin, as they were kept."""
    keys, n_rows, attached = folder.words[f"rows{number}"]
    if not keys and not attached:
        return Rows((), (), n_rows)
    frame = pl.read_ipc(folder.path / "shared" / f"{number}.arrow")
    return Rows(
        keys,
        [frame[key] for key in keys],
        n_rows,
        {name: frame[f"*{name}*"].alias(name) for name in attached},
    )
