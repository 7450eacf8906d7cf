"""Where the rows of a fit go: into a folder that all reach, or to the driver."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gecasmo.errors import SavedModelError
from gecasmo.estimation.part import Part, Points
from gecasmo.estimation.passes import finished
from gecasmo.estimation.tasks import Task
from gecasmo.forms import Table, TableState
from gecasmo.forms.parted_files import FolderSource, PartFile, Source
from gecasmo.forms.parted_table import PartedTable, write_part
from gecasmo.spark.session import SparkError

# What was written of a coin in one part: the file, and its content unless it is in a folder.
Written = Mapping[int, tuple[PartFile, bytes]]


@dataclass(frozen=True)
class InMemory:
    """Files in the memory of the driver."""

    content: Mapping[str, bytes]

    def read(self, name: str) -> bytes:
        return self.content[name]

    def where(self, name: str) -> str:
        return f"{name}, as executors sent it,"


@dataclass(frozen=True)
class Results:
    """Where rows go; `probe` is a file by which executors tell that they reach the folder."""

    n_parts: int
    folder: Path | None = None
    probe: str | None = None

    @classmethod
    def at(cls, path: Any, n_parts: int) -> Results:
        """Make sure that a folder can be written to, before a long fit begins."""
        if path is None:
            return cls(n_parts)
        folder = Path(path).expanduser().absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(not name.name.startswith(".gecasmo-") for name in folder.iterdir()):
                raise SavedModelError(
                    f"{folder} is not empty. Name a folder that does not exist yet, or remove it."
                )
            probe = folder / f".gecasmo-{uuid.uuid4().hex}"
            probe.touch()
        except OSError as problem:
            raise SavedModelError(
                f"{folder} cannot be written to: {problem.strerror or problem}."
            ) from None
        return cls(n_parts, folder, str(probe))

    def writing(self, task: Task) -> Callable[[Part, Points], Written]:
        """What executors do at the end."""
        folder = None if self.folder is None else str(self.folder)

        def write(part: Part, points: Points) -> Written:
            return write_rows(part, points, task, folder)

        return write

    def table(
        self,
        coin: int,
        form: Table,
        like: TableState,
        nothing: TableState,
        written: Sequence[Written | None],
    ) -> PartedTable:
        """The rows of a coin; parts without pages have none."""
        files, content = [], {}
        for part, found in enumerate(written):
            one = found[coin] if found is not None else self._empty(coin, part, form, nothing)
            files.append(one[0])
            content[one[0].name] = one[1]
        source: Source = InMemory(content) if self.folder is None else FolderSource(self.folder)
        return PartedTable(form, like, files, source)

    def _empty(
        self, coin: int, part: int, form: Table, nothing: TableState
    ) -> tuple[PartFile, bytes]:
        folder = None if self.folder is None else str(self.folder)
        return _write(folder, coin, part, form, nothing, np.zeros((2, 0)))

    def tidy(self) -> None:
        """Remove the probe."""
        if self.probe is not None:
            Path(self.probe).unlink(missing_ok=True)


def check_probe(probe: str | None) -> None:
    """Tell an executor that does not reach the folder of the model."""
    if probe is not None and not Path(probe).exists():
        raise SparkError(
            f"An executor does not reach {Path(probe).parent}, where the model is to be written. "
            "path= must be a folder that driver and executors have in common."
        )


def write_rows(part: Part, points: Points, task: Task, folder: str | None) -> Written:
    """The rows of the local coins of a part, as files."""
    states, counts = finished(part, points, task)
    return {
        coin: _write(folder, coin, part.number, part.coins[coin].form, state, counts.tables[coin])
        for coin, state in states.items()
    }


def _write(
    folder: str | None, coin: int, part: int, form: Any, state: TableState, counts: Any
) -> tuple[PartFile, bytes]:
    if folder is not None:
        return write_part(folder, coin, part, form, state, counts), b""
    with tempfile.TemporaryDirectory(prefix="gecasmo-") as own:
        file = write_part(own, coin, part, form, state, counts)
        return file, (Path(own) / file.name).read_bytes()
