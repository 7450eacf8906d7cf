"""What a fitted model says about a log.

`gecasmo evaluate FIT LOG` says how well it predicts the log, `gecasmo explain FIT LOG --session ID`
what probably happened on one page, `gecasmo predict FIT LOG -o FILE` how probable a click is,
result by result, and `gecasmo simulate FIT PAGES -o FILE` has simulated users click.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.flags import (
    AnyLogArgument,
    FitArgument,
    Impossible,
    ImpossibleFlag,
    LogArgument,
    LogFlags,
    OnePageFlags,
    bundled,
    output_flag,
)
from gecasmo.cli.output import Output, place_name, result_console
from gecasmo.errors import ClickLogError, GecasmoError
from gecasmo.report import Column, TextTable, bar, printable, wrapped

if TYPE_CHECKING:
    from gecasmo.logs import ClickLog

_BAR = 8  # characters of a bar
_LEAST = 16  # of an id; in less room it would go on for too many lines


@bundled
def evaluate(
    fit: FitArgument,
    log: AnyLogArgument,
    reading: LogFlags,
    output: Output,
    impossible: ImpossibleFlag = Impossible.refuse,
) -> None:
    """Score a fitted model on a log: log-likelihood, and perplexity by rank.

    [bold]Example[/bold]

    [cyan]gecasmo evaluate dbn.fit next_week.parquet[/cyan]

    A model looks too good on the log that it was fitted to. To choose a model, use
    [cyan]gecasmo compare[/cyan], which scores models on pages that they have not seen.
    """
    from gecasmo.cli.lookup import load_fit

    model = load_fit(fit)
    read = reading.read_any(log, output)
    with output.working(f"Evaluating {model.name}"):
        found = model.evaluate(read.log, impossible=impossible.value)
    data = {
        "model": found.model,
        "sessions": found.n_sessions,
        "results": found.n_results,
        "impossible_sessions": found.n_impossible,
        **found.to_dict(),
        "unseen": found.unseen,
        "by_rank": found.by_rank,
        "reading": read.facts,
    }
    output.show(data, str(found))


@bundled
def explain(
    fit: FitArgument,
    log: LogArgument,
    which: Annotated[
        str, typer.Option("--session", metavar="ID", help="The page to explain, by its id.")
    ],
    reading: OnePageFlags,
    output: Output,
) -> None:
    """Tell the story of one page: what the user probably saw, liked and did.

    [bold]Example[/bold]

    [cyan]gecasmo explain dbn.fit clicks.parquet --session 4711[/cyan]

    P(click) is the probability of a click: without any click known, and given the clicks above.
    The columns after it are probabilities given all clicks of the page: that the user reached
    the result, and that each coin came up heads there.
    """
    from gecasmo.cli.lookup import load_fit
    from gecasmo.model.answers import unseen_coins
    from gecasmo.model.stories import story_frame

    model = load_fit(fit)
    read = reading.read(
        log,
        output,
        instead="Give it a file that was ingested and has the page, or one with this page only.",
    )
    page = read.log.take([_place(read.log, which)])
    story = story_frame(model, page)
    data = {
        "model": model.name,
        "session": page.sessions[0],
        "query": page.session_column("query")[0] if page.has_query else None,
        "log_likelihood": float(model.log_likelihood(page)[0]),
        "unseen": {coin: float(new.mean()) for coin, new in unseen_coins(model, page).items()},
        "results": story,
        "reading": read.facts,
    }
    output.show(data, *_told(data))


def _place(log: ClickLog, which: str) -> int:
    """The number of the session with this id; ids are compared as text."""
    import polars as pl

    from gecasmo.model.stories import ids_as_text

    texts = ids_as_text(log.sessions)
    found = (texts == which).arg_true()
    if len(found):
        return int(found[0])
    near = texts.filter(texts.str.contains(which, literal=True)).head(5)
    some = pl.concat([near, texts.head(5)]).unique(maintain_order=True).head(5)
    raise ClickLogError(
        f"--session {printable(which)}: the log has no such session. It has {log.n_sessions:,}, "
        f"such as {', '.join(map(printable, some))}."
    )


def _told(data: dict[str, Any]) -> list[Any]:
    from gecasmo.model.answers import told_unseen

    story = data["results"]
    query = "" if data["query"] is None else f", query {data['query']}"
    title = (
        f"Session {data['session']}{query}, as {data['model']} sees it "
        f"(log-likelihood {data['log_likelihood']:.3f})"
    )
    shares = [name for name in story.columns if name not in ("rank", "doc", "click")]
    docs = [printable(doc) for doc in story["doc"]]
    console = result_console()
    room = console.width - len("rank") - len("click") - min(max(map(len, docs)), 24) - 8
    headers = [_header(printable(name)) for name in shares]
    width, encoding = _bar_width(headers, room), console.encoding

    def cell(share: float) -> str:
        return f"{share:.2f} {bar(share, width, encoding) if width else ''}".rstrip()

    columns = [
        Column("rank", [str(rank) for rank in story["rank"]]),
        Column("doc", docs, is_text=True, least=_LEAST, wraps=True),
        Column("click", ["click" if click else "" for click in story["click"]], is_text=True),
    ]
    for name, header in zip(shares, headers, strict=True):
        columns.append(Column(header, list(map(cell, story[name])), is_text=True))
    said = "; ".join(filter(None, [title, told_unseen(data["unseen"])]))
    heading = "\n".join(wrapped(printable(said), width=console.width))
    return [heading, "", TextTable(columns, keys=2), ""]


def _header(name: str) -> str:
    names = {"expected": "P(click)", "expected_given_above": "P(click)\ngiven\nabove"}
    return names.get(name, name.removesuffix("_heads").replace("_", "\n"))


def _bar_width(headers: list[str], room: int) -> int:
    """The width of bars with which columns take no more than the room: 0 where numbers must do."""

    def taken(width: int) -> int:
        cell = 5 + width if width else 4
        return sum(2 + max(cell, *map(len, name.split("\n"))) for name in headers)

    return next((width for width in (_BAR, 6, 4) if taken(width) <= room), 0)


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
        output_flag(
            "The file to write: .parquet, .csv, .tsv or .jsonl (text also with .gz or .zst). "
            "Names of "
            "other tables, such as .xlsx, are refused; a name without an ending becomes a "
            "folder, with a Parquet file for each partition of a stored log. What predict wrote "
            "before is replaced. - is standard output, as CSV."
        ),
    ],
    reading: LogFlags,
    output: Output,
    kind: Annotated[
        Kind,
        typer.Option(help="Given the clicks above each result, or without any click (marginal)."),
    ] = Kind.conditional,
    impossible: ImpossibleFlag = Impossible.refuse,
) -> None:
    """Write the probability of a click on every result of a log, of any size.

    [bold]Examples[/bold]

    [cyan]gecasmo predict dbn.fit clicks.parquet -o predicted.parquet[/cyan]

    [cyan]gecasmo predict dbn.fit big.gclog -o predicted --kind marginal[/cyan]

    If a stored log has equal pages only once, the output has one row per stored result, and
    [cyan]weight[/cyan] says how often its page occurred.
    """
    from gecasmo.cli.lookup import load_fit
    from gecasmo.model.answers import check_place

    place = output.place(target, fit, log, is_file=False)
    check_place(place)
    model = load_fit(fit)
    read = reading.read_any(log, output)
    with output.working(f"Predicting with {model.name}"):
        written = model.predict(read.log, place, kind=kind.value, impossible=impossible.value)
    facts = {
        "model": model.name,
        "kind": kind.value,
        "results": written.n_results,
        "rows": written.n_rows,
        "left_out_sessions": written.n_left_out,
        "unseen": written.unseen,
        "reading": read.facts,
    }
    output.summarise(place, facts, str(written))


@bundled
def simulate(
    fit: FitArgument,
    pages: Annotated[
        str,
        typer.Argument(
            metavar="PAGES",
            help="A log whose pages are shown again; its clicks are ignored. - is standard input; "
            "it can also be a stored log such as big.gclog.",
        ),
    ],
    target: Annotated[
        str,
        output_flag(
            "The file to write; the name gives the format: .parquet, .csv, .tsv, .jsonl. For a "
            "stored log, any other name becomes a stored log. - is standard output, as CSV."
        ),
    ],
    reading: LogFlags,
    output: Output,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a stored log that is there already.")
    ] = False,
) -> None:
    """Simulate clicks on given pages.

    [bold]Examples[/bold]

    [cyan]gecasmo simulate dbn.fit pages.parquet -o clicks.parquet --seed 7[/cyan]

    [cyan]gecasmo simulate dbn.fit pages.csv -o - | gecasmo check -[/cyan]

    [cyan]gecasmo simulate dbn.fit big.gclog -o made.gclog[/cyan]
    """
    from gecasmo.cli.lookup import load_fit
    from gecasmo.model.answers import told_unseen, unseen_shares
    from gecasmo.model.frame_files import KINDS, table_kind
    from gecasmo.model.log_parts import is_stored
    from gecasmo.model.stories import Made, simulate_table

    place = output.place(target, fit, pages, is_file=False)
    kind = table_kind(place, "clicks")
    if kind is not None and place.is_dir():
        raise GecasmoError(f"--output {target}: that is a folder; name a file.")
    model = load_fit(fit)
    read = reading.read_any(pages, output, clicks=False)
    is_large = is_stored(read.log)
    if not is_large and kind is None:
        raise GecasmoError(f"--output {target}: name a file that ends in {KINDS}.")
    with output.working(f"Simulating {model.name}"):
        unseen = unseen_shares(model, read.log)
        if is_large and kind is not None:
            made = simulate_table(model, read.log, place, kind, seed)
        elif is_large:
            clicked: Any = model.simulate(read.log, seed=seed, path=place, overwrite=force)
            made = Made(clicked.n_sessions, clicked.n_source_results, clicked.n_clicks)
        else:
            clicked = model.simulate(read.log, seed=seed)
            clicked.write(place)
            made = Made(clicked.n_sessions, clicked.n_results, int(clicked.click.sum()))
    facts = {"model": model.name, **made._asdict(), "seed": seed, "unseen": unseen}
    text = f"{made.clicks:,} clicks on {made.sessions:,} pages of {made.results:,} results"
    told = [f"{text}, written to {place_name(place)}.", *wrapped(told_unseen(unseen), "  ", "  ")]
    output.summarise(place, {**facts, "reading": read.facts}, "\n".join(told))
