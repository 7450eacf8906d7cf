"""Quepid: CSV with the columns query, docid and rating, as its import of ratings reads it.

OpenSearch Dashboards reads the same file when judgments are imported by hand.
"""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl

from gecasmo.judgments.formats.format import (
    JudgmentFormat,
    WriteOptions,
    join_tables,
    without_breaks,
)
from gecasmo.judgments.judged import Judgments


def write(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write a rating for each pair; remarks tell what Quepid will drop."""
    for name in ("query", "doc"):
        without_breaks(pairs[name], "quepid")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("query", "docid", "rating"))
        writer.writerows(pairs.select("query", "doc", "written").iter_rows())
    remarks = []
    for name in ("query", "doc"):
        texts = pairs[name].unique(maintain_order=True)
        quoted = texts.filter(texts.str.contains('"', literal=True))
        if len(quoted):
            remarks.append(
                f"{len(quoted):,} of {name} hold a quotation mark, such as {quoted[0]!r}; Quepid's "
                "import by hand drops these marks"
            )
        padded = texts.filter(texts.str.strip_chars() != texts)
        if len(padded):
            remarks.append(
                f"{len(padded):,} of {name} begin or end with white space, such as {padded[0]!r}; "
                "Quepid drops it"
            )
    return remarks


QUEPID = JudgmentFormat(
    "quepid",
    "Quepid ratings, CSV",
    (".quepid.csv",),
    write,
    options=("query", "ratings", "include"),
    join=join_tables,
)
