"""Parquet files as a stream of batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.inputs import Opened
from gecasmo.logs.store.batches import Batch, Place, Schema, Segment, joined
from gecasmo.logs.store.parquet_footer import largest_row_group
from gecasmo.logs.table_files import first_line

# What Polars needs to read a byte of a row group, measured: the pages, and what is made of them.
MEMORY_OF_A_BYTE = 2


class ParquetFiles:
    """Parquet files with the same columns.

    Parameters
    ----------
    inputs
        The files.
    """

    can_resume = True

    def __init__(self, inputs: Opened) -> None:
        self.label = inputs.label
        self.files: Sequence[str] = [file.name for file in inputs]
        self._inputs = inputs

    def schema(self) -> Schema:
        """The columns of the first file."""
        return self._schema(0)

    def n_rows(self) -> int:
        """The rows of all files, as their footers say."""
        total = 0
        for number in range(len(self.files)):
            with self._telling(number):
                total += int(self._scan(number).select(pl.len()).collect().item())
        return total

    def largest_row_group(self, columns: Sequence[str]) -> tuple[str, int]:
        """About what it takes to read some columns of a row group, of the largest file."""
        paths = [file.path for file in self._inputs if file.path is not None]
        sizes = [(path.stat().st_size, path) for path in paths if path.is_file()]
        if not sizes:
            return self.label, 0
        path = max(sizes)[1]
        return str(path), MEMORY_OF_A_BYTE * largest_row_group(path, columns)

    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Iterator[Batch]:
        """Read columns in batches, from a place on."""
        return joined(self._parts(columns, rows, after or {"file": 0, "row": 0}), rows)

    def _parts(self, columns: Sequence[str], rows: int, start: Place) -> Iterator[Batch]:
        wanted = {name: dtype for name, dtype in self.schema().items() if name in columns}
        for number in range(start["file"], len(self.files)):
            first = start["row"] if number == start["file"] else 0
            self._check_columns(number, wanted)
            while True:
                # Slices take less memory than a stream, which reads many row groups ahead.
                with self._telling(number):
                    frame = self._scan(number).select(columns).slice(first, rows).collect()
                if not frame.height:
                    break
                segment = Segment(number, first, frame.height)
                first += frame.height
                yield Batch(frame, (segment,), {"file": number, "row": first})

    def _scan(self, number: int) -> pl.LazyFrame:
        # A name such as a[1].parquet is a name, and no pattern.
        content = self._inputs[number].for_parquet()
        return pl.scan_parquet(content, glob=False, hive_partitioning=False)

    def _schema(self, number: int) -> Schema:
        with self._telling(number):
            return dict(self._scan(number).collect_schema())

    def _check_columns(self, number: int, wanted: Schema) -> None:
        there = self._schema(number)
        for name, dtype in wanted.items():
            if there.get(name) != dtype:
                has = f"holds {there[name]} there" if name in there else "is not there"
                raise ClickLogError(
                    f"{self.files[number]} has other columns than {self.files[0]}: {name!r} "
                    f"holds {dtype} in the first, and {has}."
                )

    def _telling(self, number: int) -> _Telling:
        return _Telling(self.files[number])


class _Telling:
    """Within this block, what Polars says is told with the name of the file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pl.exceptions.PolarsError | OSError):
            raise ClickLogError(f"{self.name} cannot be read: {first_line(error)}") from error
