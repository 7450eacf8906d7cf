"""`gecasmo ingest LOG -o FOLDER`: store a log of any size on disk, with bounded memory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.flags import LogArgument, bundled
from gecasmo.cli.guard import INTERRUPTED
from gecasmo.cli.log_flags import LogFlags, is_stored_log, tell_guesses
from gecasmo.cli.output import PIPE, Output, check_parent, write_remark

if TYPE_CHECKING:
    from gecasmo.logs.store import StoredLog

Tell = Callable[[str, int, int | None], None]
_WORDS = {"reading": "Reading rows", "writing": "Writing partitions"}


@bundled
def ingest(
    log: LogArgument,
    target: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Where the stored log goes: big.gclog."
        ),
    ],
    reading: LogFlags,
    output: Output,
    memory: Annotated[
        str,
        typer.Option(metavar="AMOUNT", help="About the most memory, beside 100 MB; 64MB at least."),
    ] = "4GB",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Keep this column, too; several as a,b. 'session' keeps the ids of pages, 'all' "
            "everything.",
        ),
    ] = None,
    fold: Annotated[
        bool | None,
        typer.Option(
            "--fold/--no-fold",
            help="Store pages that are the same once, with a weight; by default where that "
            "halves them.",
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="A power of two; by default what memory needs."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--no-resume", help="Go on with an ingest that was interrupted, or start anew."
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

    Interrupted, or killed? The same command goes on where it was; --memory may be another one, but
    partitions stay as many as the first planned.
    """
    from gecasmo.errors import ClickLogWarning, GecasmoError
    from gecasmo.logs.store.ingest import ingest as store
    from gecasmo.logs.store.journal import IngestJournal

    if is_stored_log(log):
        raise GecasmoError(f"{log} is a stored log already, which other commands take as it is.")
    place = Path(target).expanduser()
    check_parent(place, target)
    seen, roles, guessed = reading.look(log)
    tell_guesses(log, guessed, output)
    goes_on = resume and log != PIPE and IngestJournal(place).is_begun
    began = time.perf_counter()
    with (
        _saying_how_to_go_on(place, log, resume),
        ingest_bar(output) as tell,
        warnings.catch_warnings(),
    ):
        # It would point to log.notes; here they are told one by one.
        warnings.simplefilter("ignore", ClickLogWarning)
        stored = store(
            seen.source,
            target,
            **{**guessed, **roles},
            keep=[name.strip() for each in keep or () for name in each.split(",") if name.strip()],
            memory=memory,
            partitions=partitions,
            fold="auto" if fold is None else fold,
            resume=resume,
            overwrite=force,
            progress=_saying_that_it_goes_on(place, output, tell) if goes_on else tell,
            format=seen.format,
            max_line=reading.max_line,
        )
    seconds = time.perf_counter() - began
    for note in stored.notes:
        if note.kind.endswith("not kept"):
            output.say(note.what)
        else:
            warnings.warn(f"{log}: {note.what}", ClickLogWarning, stacklevel=2)
    facts = {**_facts(stored), "seconds": seconds, "written": target}
    output.summarise(facts, f"{stored!r}\nWritten to {target} in {seconds:.1f} seconds.")


def _saying_that_it_goes_on(target: Path, output: Output, tell: Tell | None) -> Tell:
    """Say so when something is done, since what began can still be refused before."""
    is_said = False

    def told(stage: str, done: int, total: int | None) -> None:
        nonlocal is_said
        if not is_said:
            output.say(f"Going on with the ingest that began in {target}.part.")
            is_said = True
        if tell is not None:
            tell(stage, done, total)

    return told


@contextmanager
def _saying_how_to_go_on(target: Path, log: str, resume: bool) -> Iterator[None]:
    """Say what an interrupted ingest leaves, and what to do with it."""
    try:
        yield
    except KeyboardInterrupt:
        begun = target.with_name(f"{target.name}.part")
        if not begun.is_dir() or log == PIPE:
            raise
        how = "The same command" if resume else "The same command without --no-resume"
        write_remark(
            f"Interrupted. {how} goes on where it was; what is done so far is in {begun}. To give "
            "up, remove that folder."
        )
        raise typer.Exit(INTERRUPTED) from None


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
        "bytes": log.bytes,
        "notes": log.notes,
    }


@contextmanager
def ingest_bar(output: Output) -> Iterator[Tell | None]:
    """A bar on standard error, if somebody is there to look at it."""
    if not output.has_progress:
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from gecasmo.cli.output import error_console

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=error_console(), transient=True) as bars:
        lines: dict[str, Any] = {}

        def tell(stage: str, done: int, total: int | None) -> None:
            if stage not in lines:
                lines[stage] = bars.add_task(_WORDS[stage], total=total)
            bars.update(lines[stage], completed=done, total=total)

        yield tell
