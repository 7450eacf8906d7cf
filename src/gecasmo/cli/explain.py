"""`gecasmo explain FIT LOG --session ID`: what probably happened on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.flags import FitArgument, LogArgument, bundled
from gecasmo.cli.log_flags import OnePageFlags
from gecasmo.cli.output import Output, result_console
from gecasmo.report import Column, TextTable, bar, printable, text_width

if TYPE_CHECKING:
    import polars as pl

    from gecasmo.logs import ClickLog
    from gecasmo.model.base import Model

_BAR = 8  # characters of a bar


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

    P(click) is what the model expected before anything was known, and given what happened above.
    The columns after it are probabilities given everything seen on the page: that the user reached
    the result, and that each coin came up heads there.
    """
    from gecasmo.cli.lookup import load_fit

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
        "results": story,
        "reading": read.facts,
    }
    output.show(data, *_told(data))


def _place(log: ClickLog, which: str) -> int:
    """The number of the session with this id; ids are compared as text."""
    import polars as pl

    from gecasmo.errors import ClickLogError

    texts = _as_text(log.sessions)
    found = (texts == which).arg_true()
    if len(found):
        return int(found[0])
    near = texts.filter(texts.str.contains(which, literal=True)).head(5)
    some = pl.concat([near, texts.head(5)]).unique(maintain_order=True).head(5)
    raise ClickLogError(
        f"--session {printable(which)}: the log has no such session. It has {log.n_sessions:,}, "
        f"such as {', '.join(map(printable, some))}."
    )


def _as_text(ids: pl.Series) -> pl.Series:
    import polars as pl

    if isinstance(ids.dtype, pl.Struct):  # an id of several columns, as they were named
        parts = ids.struct.unnest()
        return parts.select(pl.concat_str(pl.all().cast(pl.String), separator=",")).to_series()
    return ids.cast(pl.String)


def story_frame(model: Model, page: ClickLog) -> pl.DataFrame:
    """One row a result from the top: click, what was expected, and what lay behind it."""
    import polars as pl

    behind = model.posterior(page)
    kept = [c for c in behind.columns if c == "reached" or c.endswith("_heads")]
    return (
        pl.DataFrame(
            {
                "rank": page.rank,
                "doc": _as_text(page.column("doc")),
                "click": page.click,
                "expected": model.predict_clicks(page),
                "expected_given_above": model.predict_conditional_clicks(page),
            }
        )
        .with_columns(behind.select(kept))
        .sort("rank")
    )


def _told(data: dict[str, Any]) -> list[Any]:
    story = data["results"]
    query = "" if data["query"] is None else f", query {data['query']}"
    title = (
        f"Session {data['session']}{query}, as {data['model']} sees it "
        f"(log-likelihood {data['log_likelihood']:.3f})"
    )
    shares = [name for name in story.columns if name not in ("rank", "doc", "click")]
    docs = [printable(doc) for doc in story["doc"]]
    room = text_width() - len("rank") - len("click") - min(max(map(len, docs)), 24) - 8
    headers, width = _fitting([_header(printable(name)) for name in shares], room)
    encoding = result_console().encoding

    def cell(share: float) -> str:
        return f"{share:.2f} {bar(share, width, encoding) if width else ''}".rstrip()

    columns = [
        Column("rank", [str(rank) for rank in story["rank"]]),
        Column("doc", docs, is_text=True, least=8, wraps=True),
        Column("click", ["click" if click else "" for click in story["click"]], is_text=True),
    ]
    for name, header in zip(shares, headers, strict=True):
        columns.append(Column(header, list(map(cell, story[name])), is_text=True))
    return [printable(title), "", TextTable(columns), ""]


def _header(name: str) -> str:
    names = {"expected": "P(click)", "expected_given_above": "P(click)\ngiven\nabove"}
    return names.get(name, name.removesuffix("_heads").replace("_", "\n"))


def _fitting(headers: list[str], room: int) -> tuple[list[str], int]:
    """Headers and a width of bars with which the columns take no more than the room.

    Bars are for looks: where they would squeeze the rest out, numbers will do.
    """

    def taken(names: list[str], width: int) -> int:
        cell = 5 + width if width else 4
        return sum(2 + max(cell, *map(len, name.split("\n"))) for name in names)

    for width in (_BAR, 6, 4, 0):
        if taken(headers, width) <= room:
            return headers, width
    return ["\n".join(_broken(line) for line in name.split("\n")) for name in headers], 0


def _broken(line: str, length: int = 8) -> str:
    """A word in pieces, as in a dictionary."""
    pieces = [line[i : i + length] for i in range(0, len(line), length)]
    return "-\n".join(pieces)
