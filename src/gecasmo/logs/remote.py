"""Tables that are elsewhere: addresses are handed on to Polars, which opens what it can."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import polars as pl

from gecasmo.errors import ClickLogError

# s3://, gs://, az://, abfss://, hf://, https://, file://, ...; not the letter of a drive.
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
_SCANS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv"}
_SCANS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "json")
_PACKED = ("", ".gz", ".zst")


def is_address(source: object) -> bool:
    """Whether a source is an address such as s3://bucket/clicks.parquet, and no path."""
    return isinstance(source, str) and _SCHEME.match(source) is not None


@dataclass(frozen=True)
class RemoteTable:
    """A table at an address; credentials are those that Polars finds in the environment."""

    address: str

    @property
    def kind(self) -> str:
        """What it holds: "parquet", "csv", "tsv" or "json"."""
        path = urlsplit(self.address).path.lower() or self.address.lower()
        for suffix, kind in _SCANS.items():
            if path.endswith(tuple(suffix + packing for packing in _PACKED)):
                return kind
        raise ClickLogError(
            f"{self.address} does not say what it holds; it should end in "
            f"{', '.join(_SCANS)} (text also .gz or .zst). Or open it with Polars, and pass the "
            f"data frame."
        )

    def scan(self, id_columns: Sequence[str] = ()) -> pl.LazyFrame:
        """Let Polars open it; columns of ids in text keep their exact text."""
        if self.kind == "parquet":
            return pl.scan_parquet(self.address)
        if self.kind == "json":
            return pl.scan_ndjson(self.address, infer_schema_length=None)
        return pl.scan_csv(
            self.address,
            separator="\t" if self.kind == "tsv" else ",",
            schema_overrides=dict.fromkeys(id_columns, pl.String),
            infer_schema_length=None,
        )
