"""What showing a few pages in random order would buy.

Pages of the log are shuffled and given clicks by the model; standard errors of shared parameters
are compared with those of the pages as they are. All other parameters are estimated at the same
time, which is where random order helps.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gecasmo.checkup.findings import Part
from gecasmo.checkup.information import Information
from gecasmo.checkup.sample import Sample
from gecasmo.checkup.subject import Subject
from gecasmo.checkup.traffic import pair_codes
from gecasmo.checkup.words import counted

# Gains below this are not worth anybody's while.
_HARDLY = 1.1
_FEW = 0.01


def check_randomising(
    subject: Subject, sample: Sample, known: Information, randomise: float, top: int
) -> Part:
    """Standard errors of shared parameters, now and with a share of the pages in random order."""
    part = Part()
    if int(sample.log.lengths.max(initial=0)) < 2:
        return part
    before = known.errors(known.now)
    after = known.errors((1 - randomise) * known.now + randomise * known.random)
    worth = (before / after) ** 2
    table = pl.DataFrame(
        {
            "parameter": [known.parameters.names[number] for number in known.shared],
            "error_now": before,
            "error_with_random_pages": after,
            "worth_so_many_logs": worth,
        }
    )
    part.tables["randomising"] = table
    part.facts["randomising_worth"] = float(np.median(worth))
    _tell(part, subject, sample, known, table, randomise, top)
    return part


def _why_hardly(subject: Subject, known: Information) -> str:
    """Why some random pages would not help: too few, not needed, or beside the point."""
    every = float(np.max((known.errors(known.now) / known.errors(known.random)) ** 2))
    if every >= _HARDLY:
        return (
            f"so few are not enough, while all pages in random order would be worth {every:.3g} "
            "logs like this one"
        )
    if _moves(subject):
        return "results move enough already, or order is not what is missing"
    return "results hardly ever change their place now, but order is not what is missing"


def _moves(subject: Subject) -> bool:
    """Whether more than a few of the results that are shown again stand at another rank then."""
    seen = pl.DataFrame({"pair": pair_codes(subject.log), "rank": subject.log.rank})
    again = seen.group_by("pair").agg(n=pl.len(), ranks=pl.n_unique("rank")).filter(pl.col("n") > 1)
    return bool(len(again)) and float((again["ranks"] > 1).mean() or 0.0) > _FEW  # type: ignore[arg-type]


def _tell(
    part: Part,
    subject: Subject,
    sample: Sample,
    known: Information,
    table: pl.DataFrame,
    randomise: float,
    top: int,
) -> None:
    table = table.sort("worth_so_many_logs", descending=True, maintain_order=True)
    best = table.row(0, named=True)
    percent = f"{100 * randomise:g} %"
    n_random = max(1, round(randomise * subject.log.n_sessions))
    looked = "" if sample.is_whole else f", judged by {counted(sample.n_pages, 'page')}"
    given = known.taken_as_known()
    if best["worth_so_many_logs"] < _HARDLY:
        why = _why_hardly(subject, known)
        part.add(
            "info",
            "randomising",
            f"Showing {percent} of the pages in random order would hardly sharpen the shared "
            f"parameters{given}{looked}: {why}.",
        )
        return
    part.add(
        "info",
        "randomising",
        f"With {percent} of the pages in random order (about {n_random:,}), the standard error of "
        f"{best['parameter']} would go from {best['error_now']:.2g} to "
        f"{best['error_with_random_pages']:.2g}{given}{looked}: as much as "
        f"{best['worth_so_many_logs']:.3g} logs like this one would give. The median over all "
        f"shared parameters is {part.facts['randomising_worth']:.3g} logs.",
        count=n_random,
        examples=[
            f"{row['parameter']}: {row['error_now']:.2g} to {row['error_with_random_pages']:.2g}"
            for row in table.head(top).to_dicts()[1:]
            if row["worth_so_many_logs"] >= _HARDLY
        ],
        advice="Shuffle the results of some pages, or swap neighbours on more of them, and log "
        "them as usual; remember which they were.",
    )
