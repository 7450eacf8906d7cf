"""TREC qrels, as trec_eval, pytrec_eval and ir_measures read them: query 0 doc grade."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from gecasmo.judgments.counting import Told
from gecasmo.judgments.formats.writing import JudgmentFormat, Options, without_spaces


def write(judgments: Told, pairs: pl.DataFrame, path: Path, options: Options) -> list[str]:
    columns = [without_spaces(pairs[name], "qrels", options.ids) for name in ("query", "doc")]
    lines = pl.DataFrame([*columns, pairs["grade"]]).select(
        pl.format("{} 0 {} {}", "query", "doc", "grade").alias("line")
    )
    path.write_bytes("".join(f"{line}\n" for line in lines["line"]).encode())
    return []


QRELS = JudgmentFormat("qrels", "TREC qrels", (".qrels", ".qrel"), write, options=("query", "ids"))
