"""Decide: what pages would bring.

`gecasmo whatif FIT LOG --order-by score` says what users would do if pages of a log were others,
and `gecasmo best FIT CANDIDATES -o FILE` writes the best page of each query.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.flags import (
    AnyLogArgument,
    FitArgument,
    LevelFlag,
    LogFlags,
    bundled,
    is_stored_log,
    output_flag,
    tell_guesses,
)
from gecasmo.cli.output import Output, place_name, table_format, write_table
from gecasmo.errors import ClickLogWarning
from gecasmo.report import wrapped

if TYPE_CHECKING:
    from gecasmo.pages import Change

_CHANGES = "What to change"
_RULES = "What is asked of pages"

WorthFlag = Annotated[
    list[str] | None,
    typer.Option(
        metavar="EVENT[=PRICE]",
        help="What counts: a signal (click, purchase), a coin that comes up heads (satisfaction), "
        "reached, or abandonment; with a price, which is a number or a column: purchase=margin. "
        "Can be repeated.",
    ),
]
SeedFlag = Annotated[int, typer.Option(help="Seed of draws, and of how a log is cut in two.")]


@bundled
def whatif(
    fit: FitArgument,
    log: AnyLogArgument,
    reading: LogFlags,
    output: Output,
    order_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Put results in the order of this column, such as another ranker's score.",
            rich_help_panel=_CHANGES,
        ),
    ] = None,
    ascending: Annotated[
        bool,
        typer.Option(
            "--ascending",
            help="With --order-by: the smallest comes first, as for ranks.",
            rich_help_panel=_CHANGES,
        ),
    ] = False,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DOC",
            help="Take a document away. Can be repeated.",
            rich_help_panel=_CHANGES,
        ),
    ] = None,
    move: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DOC=RANK",
            help="Put a document at a rank, wherever it is shown. Can be repeated.",
            rich_help_panel=_CHANGES,
        ),
    ] = None,
    swap: Annotated[
        str | None,
        typer.Option(metavar="RANK,RANK", help="Exchange two ranks.", rich_help_panel=_CHANGES),
    ] = None,
    cut: Annotated[
        int | None,
        typer.Option(metavar="LENGTH", help="Show only so many results.", rich_help_panel=_CHANGES),
    ] = None,
    worth: WorthFlag = None,
    randomised: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that says which pages had a random order: their clicks then tell how "
            "far the model is off.",
        ),
    ] = None,
    propensity: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="With --randomised: the probability that a result stands where it does; by "
            "default all orders of a page are as likely.",
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(
            min=0,
            help="For intervals: how many sets of probabilities to draw that fit the log; 0 for "
            "none.",
        ),
    ] = 100,
    level: LevelFlag = 0.9,
    seed: SeedFlag = 0,
) -> None:
    """What users would do on other pages than those of a log: clicks, satisfaction, abandonment.

    [bold]Examples[/bold]

    [cyan]gecasmo whatif dbn.fit clicks.parquet --order-by score --worth satisfaction[/cyan]

    [cyan]gecasmo whatif dbn.fit clicks.parquet --swap 2,5[/cyan]

    [cyan]gecasmo whatif dbn.fit clicks.parquet --drop ad-17 --cut 8[/cyan]

    Several changes are made in the order of the flags above: the order, then what is dropped,
    moved and swapped, then the length.
    """
    from gecasmo.cli.lookup import load_fit
    from gecasmo.model.answers import told_unseen, unseen_shares

    changes = _changes(order_by, ascending, drop, move, swap, cut)
    if propensity is not None and randomised is None:
        raise typer.BadParameter("--propensity is about pages that --randomised names.")
    model = load_fit(fit)
    read = reading.read_any(log, output, clicks=randomised is not None)
    with output.working(f"Asking {model.name}"):
        found = model.what_if(
            read.log,
            changes,
            worth=_worth(worth),
            randomised=randomised,
            propensity=propensity,
            draws=draws,
            level=level,
            seed=seed,
        )
    unseen = unseen_shares(model, read.log)
    data = {**found.to_dict(), "unseen": unseen, "reading": read.facts}
    output.show(data, str(found), *wrapped(told_unseen(unseen)))


@bundled
def best(
    fit: FitArgument,
    candidates: Annotated[
        str,
        typer.Argument(
            metavar="CANDIDATES",
            help="A table with a row for each candidate: query, doc, what the model reads of "
            "results, and its rank on the page that is shown now (empty if it is not there). Or a "
            "log: then the results that it has shown, and for each query the page shown most.",
        ),
    ],
    target: Annotated[
        str, output_flag("The table to write: .parquet, .csv, .tsv, .json or .ndjson.")
    ],
    reading: LogFlags,
    output: Output,
    size: Annotated[int, typer.Option(min=1, help="How long pages are, at most.")] = 10,
    same_size: Annotated[
        bool,
        typer.Option("--same-size", help="Make each page as long as the one that is shown now."),
    ] = False,
    worth: WorthFlag = None,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="LOG",
            help="The log of the fit, for a lift that can be relied on: orders from one half of it "
            "are valued by the other. 'none' for none; by default CANDIDATES if that is a log.",
        ),
    ] = None,
    quantile: Annotated[
        float,
        typer.Option(
            help="Each result counts with this quantile of what it may bring; 0.5 is what is "
            "expected, less is cautious."
        ),
    ] = 0.25,
    min_examinations: Annotated[
        float,
        typer.Option(
            help="Leave out candidates with fewer expected examinations, unless they are shown "
            "now, or pinned."
        ),
    ] = 10.0,
    pinned: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column with the rank at which a result has to stand; empty for anywhere.",
            rich_help_panel=_RULES,
        ),
    ] = None,
    at_most: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=N",
            help="At most so many results of a kind, such as brand=2. Can be repeated.",
            rich_help_panel=_RULES,
        ),
    ] = None,
    apart: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="No two results of the same kind one below the other. Can be repeated.",
            rich_help_panel=_RULES,
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(
            min=0,
            help="Also find the best page under so many draws from the posterior, for exploration "
            "(Thompson sampling).",
        ),
    ] = 0,
    draws_output: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where the pages of --draws go.")
    ] = None,
    effort: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many steps to take, for a query, to prove that no page is better; 0 is "
            "fastest.",
        ),
    ] = 200,
    samples: Annotated[
        int,
        typer.Option(
            min=0, help="For intervals: how many sets of probabilities to draw that fit the log."
        ),
    ] = 100,
    level: LevelFlag = 0.9,
    seed: SeedFlag = 0,
) -> None:
    """Write the best page of each query: which results to show, and in which order.

    [bold]Examples[/bold]

    [cyan]gecasmo best dbn.fit candidates.parquet -o pages.parquet --log clicks.parquet[/cyan]

    [cyan]gecasmo best dbn.fit clicks.parquet -o pages.csv --worth satisfaction[/cyan]

    [cyan]gecasmo best shop.fit candidates.csv -o pages.csv --worth purchase=margin
    --at-most brand=2 --apart brand --pinned slot[/cyan]
    """
    from gecasmo.cli.lookup import load_fit
    from gecasmo.logs import ClickLog
    from gecasmo.model.answers import told_unseen, unseen_shares

    if (draws > 0) != (draws_output is not None):
        raise typer.BadParameter("--draws and --draws-output belong together.")
    limits, counted = _limits(at_most), _worth(worth)
    table_format(target)
    of_log = None if log is None or log.lower() == "none" else log
    place = output.place(target, fit, candidates, of_log)
    drawn_place = None
    if draws_output is not None:
        table_format(draws_output, "--draws-output")
        inputs, first = (fit, candidates, of_log), {"--output": target}
        drawn_place = output.place(draws_output, *inputs, flag="--draws-output", besides=first)
    model = load_fit(fit)
    # A column with a rule of its own is not what is shown now, whatever its name.
    ruled = {*(limits or ()), *(apart or ()), *([] if pinned is None else [pinned])}
    given, facts = _candidates(candidates, model, reading, output, ruled)
    history: Any = None if log is None else False
    if of_log is not None:
        history = reading.read(of_log, output).log
    elif log is None and isinstance(given, ClickLog) and not given.click.any():
        text = f"{candidates}: no result is clicked, so that no lift can be measured with it."
        warnings.warn(text, ClickLogWarning, stacklevel=2)
        history = False
    with output.working(f"Ordering by {model.name}"):
        found = model.best_page(
            given,
            None if same_size else size,
            counted or "click",
            log=history,
            quantile=quantile,
            min_examinations=min_examinations,
            pinned=pinned,
            at_most=limits,
            apart=apart or (),
            draws=draws,
            effort=effort,
            samples=samples,
            level=level,
            seed=seed,
        )
    write_table(found.frame, place)
    if drawn_place is not None and found.explored is not None:
        write_table(found.explored, drawn_place)
    unseen = {} if facts["format"] == "candidates" else unseen_shares(model, given)
    data = {**found.to_dict(), "queries": found.queries, "unseen": unseen, "reading": facts}
    said = (str(found), *wrapped(told_unseen(unseen)), f"\nPages: {place_name(place)}.")
    output.summarise(place, data, *said, also=drawn_place)


def _candidates(
    source: str, model: Any, reading: LogFlags, output: Output, ruled: Collection[str]
) -> tuple[Any, dict[str, Any]]:
    """The candidates, from a log or from a table, and how they were read."""
    from gecasmo.cli.judgments import read_table, text_ids

    is_stored = is_stored_log(source)
    columns = None if is_stored else reading.of_candidates(source, ruled)
    if columns is None:
        read: Any = reading.read_any if is_stored else reading.read
        found = read(source, output, clicks=False)
        return found.log, found.facts
    tell_guesses(source, columns, output)
    texts = [columns.get(role, role) for role in text_ids(model)]
    frame = read_table(Path(source).expanduser(), "CANDIDATES", texts)
    renamed = {name: role for role, name in columns.items()}
    return frame.rename(renamed), {"format": "candidates", "guessed": columns}


def _changes(
    order_by: str | None,
    ascending: bool,
    drop: list[str] | None,
    move: list[str] | None,
    swap: str | None,
    cut: int | None,
) -> list[Change]:
    """What flags ask for, in the order in which it is done."""
    from gecasmo.pages import Cut, Drop, Move, OrderBy, Swap

    found: list[Change] = []
    if order_by is not None:
        found.append(OrderBy(order_by, descending=not ascending))
    elif ascending:
        raise typer.BadParameter("--ascending belongs to --order-by.")
    found += [Drop(doc) for doc in drop or ()]
    for text in move or ():
        doc, rank = _parted(text, "--move", "DOC=RANK, such as a17=1")
        found.append(Move(doc, _whole(rank, f"--move {text}")))
    if swap is not None:
        ranks = [_whole(text, f"--swap {swap}") for text in swap.split(",")]
        if len(ranks) != 2:
            raise typer.BadParameter(f"--swap {swap}: two ranks are wanted, such as 2,5.")
        found.append(Swap(*ranks))
    if cut is not None:
        found.append(Cut(cut))
    if not found:
        raise typer.BadParameter("Say what to change: --order-by, --drop, --move, --swap or --cut.")
    return found


def _worth(given: list[str] | None) -> dict[str, float | str] | None:
    """Events with prices, from EVENT or EVENT=PRICE."""
    if not given:
        return None
    found: dict[str, float | str] = {}
    for text in given:
        event, equals, price = text.partition("=")
        if (equals and not price) or not event:
            raise typer.BadParameter(f"--worth {text}: write EVENT or EVENT=PRICE.")
        try:
            found[event] = float(price) if price else 1.0
        except ValueError:
            found[event] = price
    return found


def _limits(given: list[str] | None) -> dict[str, int] | None:
    if not given:
        return None
    pairs = [_parted(text, "--at-most", "COLUMN=N, such as brand=2") for text in given]
    return {column: _whole(n, f"--at-most {column}={n}") for column, n in pairs}


def _parted(text: str, flag: str, wanted: str) -> tuple[str, str]:
    before, equals, after = text.rpartition("=")
    if not equals or not before:
        raise typer.BadParameter(f"{flag} {text}: write {wanted}.")
    return before, after


def _whole(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{where}: '{text}' is no whole number.") from None
