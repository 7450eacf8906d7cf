"""`gecasmo predict FIT LOG -o FILE`: how probable a click is, result by result."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gecasmo.cli.arguments import AnyLogArgument, FitArgument
from gecasmo.cli.bundles import bundled
from gecasmo.cli.choices import Impossible, ImpossibleFlag
from gecasmo.cli.output import Output
from gecasmo.cli.reading import Reading


class Kind(StrEnum):
    """What is known when a click is predicted."""

    conditional = "conditional"
    marginal = "marginal"


@bundled
def predict(
    fit: FitArgument,
    log: AnyLogArgument,
    target: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to: .parquet, .csv, .tsv or .jsonl (text also with .gz or .zst). Names of "
            "other tables, such as .xlsx, are refused; a name without an ending becomes a "
            "folder, with a Parquet file for each partition of a stored log. What predict wrote "
            "before is replaced.",
        ),
    ],
    reading: Reading,
    output: Output,
    kind: Annotated[
        Kind,
        typer.Option(
            "--kind", help="Given the clicks above a result, or when no click is known (marginal)."
        ),
    ] = Kind.conditional,
    impossible: ImpossibleFlag = Impossible.refuse,
) -> None:
    """Write the probability of a click on every result of a log, of any size.

    [bold]Examples[/bold]

    [cyan]gecasmo predict dbn.fit clicks.parquet -o predicted.parquet[/cyan]

    [cyan]gecasmo predict dbn.fit big.gclog -o predicted --kind marginal[/cyan]

    Of a stored log whose equal pages are stored once, there is a row for each stored result, and
    [cyan]weight[/cyan] says how often its page occurred.
    """
    from gecasmo.cli.loading import load_fit
    from gecasmo.cli.writing import PIPE, check_parent
    from gecasmo.errors import GecasmoError
    from gecasmo.model.predicting import check_place

    if target == PIPE:
        raise GecasmoError("--output -: predictions are not for a pipe; name a file.")
    place = Path(target).expanduser()
    check_place(place)
    check_parent(place, target)
    model = load_fit(fit)
    read = reading.read_any(log, output)
    with output.working(f"Predicting with {model.name}"):
        written = model.predict(read.log, target, kind=kind.value, impossible=impossible.value)
    facts = {
        "model": model.name,
        "kind": kind.value,
        "results": written.n_results,
        "rows": written.n_rows,
        "left_out_sessions": written.n_left_out,
        "written": target,
        "reading": read.facts,
    }
    output.summarise(facts, str(written))
