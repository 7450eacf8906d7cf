"""`gecasmo update FIT LOG -o FILE`: merge a new log into a fit, such as yesterday's."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from gecasmo.cli.arguments import FitArgument, LogArgument
from gecasmo.cli.bundles import bundled
from gecasmo.cli.choices import Impossible, ImpossibleFlag
from gecasmo.cli.exits import INTERRUPTED, NOT_CONVERGED
from gecasmo.cli.output import Output
from gecasmo.cli.reading import Reading


@bundled
def update(
    fit: FitArgument,
    log: LogArgument,
    target: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to keep the updated model.")
    ],
    reading: Reading,
    output: Output,
    decay: Annotated[
        float, typer.Option("--decay", help="What the past counts now: above 0, at most 1.")
    ] = 0.98,
    max_iter: Annotated[
        int, typer.Option("--max-iter", min=1, help="The most iterations of EM.")
    ] = 500,
    tol: Annotated[
        float,
        typer.Option("--tol", min=0.0, help="Stop when an iteration gains less, per page."),
    ] = 1e-6,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="By default all processors.")
    ] = None,
    impossible: ImpossibleFlag = Impossible.refuse,
) -> None:
    """Merge a new log into a fit, without the old logs.

    [bold]Examples[/bold]

    [cyan]gecasmo update dbn.fit yesterday.parquet -o dbn.fit[/cyan]

    [cyan]gecasmo update dbn.fit day2.csv.gz --decay 1 -o dbn2.fit[/cyan]

    Ends with code 4 if EM did not converge, and 130 if it was interrupted; the file has then what
    was best until there.
    """
    from gecasmo.cli.fit import fit_facts
    from gecasmo.cli.loading import load_fit
    from gecasmo.cli.watching import WatchedEM, fit_bar
    from gecasmo.cli.writing import PIPE, check_target
    from gecasmo.errors import GecasmoError

    if target == PIPE:
        raise GecasmoError("A fitted model is no text for a pipe: name a file with --output.")
    check_target(target)
    model = load_fit(fit)
    read = reading.read(
        log,
        output,
        instead="Give it the files that were ingested, some at a time; or begin a new fit at the "
        f"parameters of this one, which forgets old pages: `gecasmo fit MODEL {log} -o FILE "
        f"--start {fit}`.",
    )
    began = time.perf_counter()
    with fit_bar(output, model.name, tol) as bar:
        method = WatchedEM(max_iter=max_iter, tol=tol, show=bar.show if bar else None)
        model.update(
            read.log,
            decay,
            method=method,
            threads=threads,
            progress=False,
            impossible=impossible.value,
        )
    seconds = time.perf_counter() - began
    model.save(target)
    facts = {
        **fit_facts(model, read.log),
        "new_sessions": read.log.n_sessions,
        "decay": decay,
        "seconds": seconds,
        "written": target,
        "reading": read.facts,
    }
    output.summarise(facts, *_summary(model.name, facts))
    assert model.report_ is not None
    if model.report_.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not model.report_.converged and tol > 0:
        raise typer.Exit(NOT_CONVERGED)


def _summary(name: str, facts: dict[str, Any]) -> list[Any]:
    from gecasmo.cli.tables import frame_table

    state = "converged" if facts["converged"] else "not converged"
    if facts["interrupted"]:
        state = "interrupted"
    lines = [
        f"{name}: {facts['new_sessions']:,} new sessions, {facts['sessions']:,} in all; {state} "
        f"after {facts['iterations']:,} iterations and {facts['seconds']:.1f} seconds",
        f"log-likelihood per session {facts['log_likelihood_per_session']:.4f}, of all sessions "
        "so far",
    ]
    return ["\n".join(lines), frame_table(facts["coins"]), f"Written to {facts['written']}."]
