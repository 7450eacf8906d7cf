"""`gecasmo check LOG`: what is wrong with a log, and what it can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gecasmo.cli.flags import AnyLogArgument, ModelFlag, Plotting, bundled
from gecasmo.cli.guard import FAULTY_LOG
from gecasmo.cli.log_flags import LogFlags, in_memory_sample
from gecasmo.cli.output import Output

if TYPE_CHECKING:
    from gecasmo.checks import LogCheck


@bundled
def check(
    log: AnyLogArgument,
    reading: LogFlags,
    output: Output,
    plotting: Plotting,
    model: ModelFlag = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also end with code 3 if there are warnings.")
    ] = False,
) -> None:
    """Look a log over before fitting: faults, click rates, what can be learned.

    [bold]Examples[/bold]

    [cyan]gecasmo check clicks.parquet[/cyan]

    [cyan]gecasmo check 'logs/*.csv.gz' --doc url --click clicked --model DBN[/cyan]

    [cyan]gecasmo check clicks.parquet --quiet --json | jq .findings[/cyan]

    Ends with code 3 if something is wrong that has to be mended first.
    """
    from gecasmo.checks import check as look_over
    from gecasmo.cli.lookup import find_model
    from gecasmo.plots import log_charts

    plotting.check()
    chosen = None if model is None else find_model(model)
    read = reading.read_any(log, output, notes=False)  # they are findings
    with output.working("Checking") as tell:
        found = look_over(read.log, chosen, tell=tell)
    drawn = plotting.draw(log_charts, output, in_memory_sample(None, read.log)[1])
    data = {**found.to_dict(), "plots": drawn, "reading": read.facts}
    output.show(data, found)
    if drawn:
        output.say(f"Charts: {', '.join(drawn)}.")
    if _is_bad(found, strict):
        raise typer.Exit(FAULTY_LOG)


def _is_bad(found: LogCheck, strict: bool) -> bool:
    bad = ("error", "warning") if strict else ("error",)
    return any(finding.severity in bad for finding in found.findings)
