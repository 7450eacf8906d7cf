"""`gecasmo propensities FIT [LOG]`: how probable it is that a rank is looked at."""

from __future__ import annotations

from typing import Annotated

import typer

from gecasmo.cli.arguments import FitArgument
from gecasmo.cli.bundles import bundled
from gecasmo.cli.output import Output
from gecasmo.cli.reading import Reading


@bundled
def propensities(
    fit: FitArgument,
    reading: Reading,
    output: Output,
    log: Annotated[
        str | None,
        typer.Argument(
            metavar="[LOG]",
            help="Pages to average over, for models in which examination depends on clicks.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write them here: .csv, .tsv, .json, .ndjson or .parquet; - is standard output.",
        ),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", help="How probable it is that an interval holds the truth.")
    ] = 0.9,
) -> None:
    """Examination by rank, with intervals, for learners that correct for position.

    [bold]Examples[/bold]

    [cyan]gecasmo propensities pbm.fit -o propensities.csv[/cyan]

    [cyan]gecasmo propensities dbn.fit clicks.parquet[/cyan]
    """
    from gecasmo.cli.loading import load_fit
    from gecasmo.cli.tables import frame_table
    from gecasmo.cli.writing import PIPE, check_pipe, check_target, table_format, write_table
    from gecasmo.judgments import propensities as estimate

    check_target(target)
    check_pipe(target, output)
    if target is not None:
        table_format(target)
    model = load_fit(fit)
    clicks = None if log is None else reading.read_any(log, output).log
    with output.working("Estimating"):
        frame = estimate(model, clicks, level=level)
    if target is not None:
        write_table(frame, target)
    data = {"model": model.name, "level": level, "written": target, "propensities": frame}
    if target == PIPE:
        return
    table = frame_table(frame, f"How probable it is that a rank is looked at, under {model.name}")
    if target is None:
        output.show(data, table)
    else:
        output.summarise(data, table, f"Written to {target}.")
