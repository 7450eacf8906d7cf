"""Judgment files, a small module for each kind of reader."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gecasmo.errors import either, option
from gecasmo.files import is_stream, scratch_folder, whole_file
from gecasmo.judgments.formats.format import (
    JudgmentFormat,
    WriteOptions,
    Written,
    graded_pairs,
    nothing_graded,
)
from gecasmo.judgments.formats.opensearch import OPENSEARCH
from gecasmo.judgments.formats.plain import CSV, PARQUET, QRELS
from gecasmo.judgments.formats.quepid import QUEPID
from gecasmo.judgments.formats.ranklib import RANKLIB
from gecasmo.judgments.grades import JudgmentsError
from gecasmo.judgments.judged import pairs_name

if TYPE_CHECKING:
    from gecasmo.judgments.judged import Judgments

FORMATS: dict[str, JudgmentFormat] = {
    format.name: format for format in (QUEPID, OPENSEARCH, RANKLIB, QRELS, CSV, PARQUET)
}

__all__ = [
    "FORMATS",
    "JudgmentFormat",
    "WriteOptions",
    "Written",
    "format_of",
    "write_judgments",
]


def format_of(path: Any, name: str | None = None) -> JudgmentFormat:
    """The format of this name, or else the one that the end of the path tells."""
    if name is not None:
        if name not in FORMATS:
            raise JudgmentsError(f"{option('format', name)}: choose one of {', '.join(FORMATS)}.")
        return FORMATS[name]
    end = Path(path).name.lower()
    suffixes = [(suffix, format) for format in FORMATS.values() for suffix in format.suffixes]
    # ".quepid.csv" before ".csv"
    for suffix, format in sorted(suffixes, key=lambda known: -len(known[0])):
        if end.endswith(suffix):
            return format
    if is_stream(path):
        return CSV  # names of pipes and devices tell nothing
    such = either('.write(path, format="quepid")', "--format quepid")
    raise JudgmentsError(
        f"{path}: the end of the name does not tell a format. Choose one of {', '.join(FORMATS)}, "
        f"as in {such}."
    )


def write_judgments(
    judgments: Judgments, path: Any, format: str | None, options: WriteOptions
) -> Written:
    """Write judgments as a whole file or not at all; several parts one by one, then together."""
    chosen = format_of(path, format)
    options.check(chosen)
    left_out = options.left_out(judgments) if chosen.is_graded else (0, 0)
    if chosen.is_graded and sum(left_out) == len(judgments):
        raise nothing_graded(judgments, chosen)
    target = Path(path).expanduser()
    n_written, pieces, remarks = 0, list[Path](), list[str]()
    with scratch_folder(target, JudgmentsError) as folder:
        for part in judgments.parts():
            pairs = graded_pairs(part.frame, chosen, options) if chosen.is_graded else part.frame
            if len(pairs) or len(judgments.numbers) == 1:
                pieces.append(folder / pairs_name(part.number))
                said = chosen.write(judgments, pairs, pieces[-1], options)
                remarks = remarks or said
                n_written += len(pairs)
        with whole_file(target, JudgmentsError) as temporary:
            if len(pieces) == 1:
                pieces[0].replace(temporary)
            else:
                chosen.join(pieces, temporary, judgments)
    if len(pieces) > 1:
        remarks = [f"{remark} (and perhaps more in other parts)" for remark in remarks]
    told = (*judgments.remarks, *remarks)
    return Written(Path(path), chosen.name, n_written, *left_out, told)
