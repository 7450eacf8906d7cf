"""Before a fit: look a log over, and store one that is larger than memory.

`gecasmo check LOG` says what is wrong with a log, and what it can tell; `gecasmo ingest LOG -o
FOLDER` stores a log of any size on disk, with bounded memory.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.flags import (
    AnyLogArgument,
    LogArgument,
    LogFlags,
    ModelFlag,
    Plotting,
    bundled,
    in_memory_sample,
    is_stored_log,
    output_flag,
    tell_guesses,
)
from gecasmo.cli.guard import FAULTY_LOG, resumable
from gecasmo.cli.output import PIPE, Output, place_name
from gecasmo.errors import ClickLogWarning, GecasmoError
from gecasmo.files import STANDARD_OUTPUT, followed, is_stream
from gecasmo.report import counted, percent

if TYPE_CHECKING:
    from gecasmo.cli.progress import IngestTell
    from gecasmo.logs.store import StoredLog


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
    drop_suspicious: Annotated[
        bool,
        typer.Option(
            "--drop-suspicious", help="Write the log without pages of robots and tests to --output."
        ),
    ] = False,
    target: Annotated[
        str | None, output_flag("Where the log goes: .parquet, .csv, .tsv or .jsonl.")
    ] = None,
) -> None:
    """Look a log over before fitting: faults, click rates, what can be learned.

    [bold]Examples[/bold]

    [cyan]gecasmo check clicks.parquet[/cyan]

    [cyan]gecasmo check 'logs/*.csv.gz' --doc url --click clicked --model DBN[/cyan]

    [cyan]gecasmo check clicks.parquet --quiet --json | jq .findings[/cyan]

    [cyan]gecasmo check clicks.parquet --drop-suspicious -o clean.parquet[/cyan]

    Ends with code 3 if the log has errors that must be fixed first.
    """
    from gecasmo.checks import check as look_over
    from gecasmo.cli.lookup import find_model
    from gecasmo.logs.formats.table import kind_of_name
    from gecasmo.model.frame_files import KINDS
    from gecasmo.plots import log_charts

    if drop_suspicious != (target is not None):
        raise typer.BadParameter("--drop-suspicious and --output belong together: give both.")
    if target is not None and is_stored_log(log):
        raise GecasmoError(
            f"{log} is a stored log, of which some pages are looked at: check the file that it was "
            "made of with --drop-suspicious, and ingest what that writes."
        )
    place = None
    if target is not None:
        place = output.place(target, log, model)
        if kind_of_name(place.name) is None and not is_stream(place):
            raise GecasmoError(f"--output {target}: name a file that ends in {KINDS}.")
    plotting.check()
    chosen = None if model is None else find_model(model)
    read = reading.read_any(log, output, notes=False)  # they are findings
    with output.working("Checking") as tell:
        found = look_over(read.log, chosen, tell=tell).naming(reading.words(log))
    drawn = plotting.draw(log_charts, output, in_memory_sample(None, read.log)[1])
    data = {**found.to_dict(), "plots": drawn, "reading": read.facts}
    if place is None:
        output.show(data, found)
    else:
        clean = found.without_suspicious(read.log)
        clean.write(place)
        left_out = counted(len(found.suspicious), "suspicious page")
        share = percent(len(found.suspicious), read.log.n_sessions)
        said = f"{left_out} left out ({share}), {counted(clean.n_sessions, 'page')} written to"
        said += f" {place_name(place)}."
        if place == STANDARD_OUTPUT:
            output.summarise(place, data, found, said)
        else:  # the findings are a result, also of those who want no remarks
            output.show({**data, "written": str(place)}, found, said)
    if drawn:
        output.say(f"Charts: {', '.join(drawn)}.")
    bad = ("error", "warning") if strict else ("error",)
    if any(finding.severity in bad for finding in found.findings):
        raise typer.Exit(FAULTY_LOG)


@bundled
def ingest(
    log: LogArgument,
    target: Annotated[str, output_flag("Where the stored log goes: big.gclog.", "FOLDER")],
    reading: LogFlags,
    output: Output,
    memory: Annotated[
        str,
        typer.Option(
            metavar="AMOUNT", help="About how much memory to use, beside 100 MB; at least 64MB."
        ),
    ] = "4GB",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Also keep this column; several as a,b. 'session' keeps the ids of pages, 'all' "
            "keeps everything.",
        ),
    ] = None,
    view: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VIEW",
            help="For models of this view ('grids', 'tasks', 'walks'): keep its columns; for "
            "tasks, also keep all pages of a task together.",
        ),
    ] = None,
    fold: Annotated[
        bool | None,
        typer.Option(
            "--fold/--no-fold",
            help="Store equal pages only once, with a weight; by default if that at least halves "
            "the number of pages.",
        ),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="A power of two; by default chosen to fit the memory.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--no-resume", help="Resume an ingest that was interrupted, or start again."
        ),
    ] = True,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a stored log that is there already.")
    ] = False,
) -> None:
    """Store a log of any size on disk, so that it can be used without being in memory.

    [bold]Examples[/bold]

    [cyan]gecasmo ingest "logs/*.parquet" -o big.gclog --memory 4GB[/cyan]

    [cyan]gecasmo ingest clicks.csv.gz -o big.gclog --doc url --keep device,country[/cyan]

    [cyan]gecasmo ingest visits.parquet -o tasks.gclog --view tasks[/cyan]

    If it is interrupted or killed, the same command continues the work. You may change --memory;
    the number of partitions stays the same.
    """
    from gecasmo.cli.progress import ingest_bar
    from gecasmo.logs.store.ingest import ingest as store
    from gecasmo.logs.store.journal import IngestJournal

    if is_stored_log(log):
        raise GecasmoError(f"{log} is a stored log already, which other commands take as it is.")
    place = followed(output.place(target, log, is_file=False))
    if is_stream(place):
        raise GecasmoError(f"--output {target}: a stored log is a folder; name one: big.gclog.")
    how_read: dict[str, Any]
    told: set[str] = set()
    if reading.kind_of_stream(log) is not None:
        # Events of a page may lie anywhere, so all of them are needed to put one together.
        output.say(f"{log}: pages are put together in memory, and then stored.")
        source: Any = reading.read(log, output).log
        told = {note.what for note in source.notes}
        how_read = {}
    else:
        seen, roles, guessed = reading.look(log, output)
        tell_guesses(log, guessed, output)
        source = seen.source
        how_read = {**guessed, **roles, "format": seen.format, "max_line": reading.max_line}
        how_read["separator"] = seen.separator
    goes_on = resume and log != PIPE and IngestJournal(place).is_begun
    began = time.perf_counter()
    begun = place.with_name(f"{place.name}.part")
    how = (
        f"The same command{'' if resume else ' without --no-resume'} continues the work; what is "
        f"done so far is in {begun}. To give up, remove that folder."
    )
    with (
        resumable(None if log == PIPE else begun, how),
        ingest_bar(output) as tell,
        warnings.catch_warnings(),
    ):
        # It would point to log.notes; here they are told one by one.
        warnings.simplefilter("ignore", ClickLogWarning)
        stored = store(
            source,
            place,
            **how_read,
            keep=[name.strip() for each in keep or () for name in each.split(",") if name.strip()],
            view=view or (),
            memory=memory,
            partitions=partitions,
            fold="auto" if fold is None else fold,
            resume=resume,
            overwrite=force,
            progress=_saying_that_it_goes_on(place, output, tell) if goes_on else tell,
        )
    seconds = time.perf_counter() - began
    for note in stored.notes:
        if note.kind.endswith("not kept"):
            output.say(note.what)
        elif note.what not in told:
            warnings.warn(f"{log}: {note.what}", ClickLogWarning, stacklevel=2)
    facts = {**_facts(stored), "seconds": seconds}
    output.summarise(place, facts, f"{stored!r}\nWritten to {target} in {seconds:.1f} seconds.")


def _saying_that_it_goes_on(target: Path, output: Output, tell: IngestTell | None) -> IngestTell:
    """Say so when something is done, since what began can still be refused before."""
    is_said = False

    def told(stage: str, done: int, total: int | None) -> None:
        nonlocal is_said
        if not is_said:
            output.say(f"Resuming the ingest that began in {target}.part.")
            is_said = True
        if tell is not None:
            tell(stage, done, total)

    return told


def _facts(log: StoredLog) -> dict[str, Any]:
    return {
        "sessions": log.n_sessions,
        "results": log.n_source_results,
        "stored_pages": log.n_pages,
        "stored_results": log.n_results,
        "queries": log.n_queries,
        "pairs": log.n_pairs,
        "clicks": log.n_clicks,
        "weight": log.total_weight,
        "columns": log.columns,
        "source_columns": log.source_columns,
        "folded": log.is_folded,
        "partitions": log.n_partitions,
        "partitioned_by": log.partitioned_by,
        "bytes": log.bytes,
        "notes": log.notes,
    }
