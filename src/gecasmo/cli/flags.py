"""Arguments and flags that several commands have, described once.

Some are one argument or flag each. Others belong together and are the fields of a class, which a
command takes as a parameter; on the command line its fields are flags:

    @bundled
    def check(log: Log, reading: LogFlags, output: Output) -> None: ...
"""

from __future__ import annotations

import inspect
import shlex
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, get_type_hints

import typer

from gecasmo.cli.config import config_path, config_used, from_config
from gecasmo.cli.event_flags import EVENT_FLAGS, EventFlags
from gecasmo.errors import ClickLogWarning, GecasmoError, extra, of_command

if TYPE_CHECKING:
    from gecasmo.cli.output import Output
    from gecasmo.logs import ClickLog, Note, Peek
    from gecasmo.logs.store import StoredLog

_PANEL = "How to read the log"
ROLES = ("session", "query", "doc", "rank", "click", "weight")
# What the table [log] of gecasmo.toml may have.
LOG_FLAGS = (*ROLES, "format", "separator", "max_line", *EVENT_FLAGS)
PIPE = "-"
_OF_FILES = "Give it the files that were ingested, or some of them."


def _complete_model(incomplete: str) -> list[tuple[str, str]]:
    from gecasmo.cli.lookup import complete_model

    return complete_model(incomplete)


def output_flag(help: str, metavar: str = "FILE") -> Any:
    """The flag --output of a command."""
    return typer.Option("--output", "-o", metavar=metavar, help=help)


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A name that `gecasmo models` lists, or path/to/file.py:ClassName.",
        autocompletion=_complete_model,
    ),
]
ModelFlag = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Also say what this model can learn from the log.",
        autocompletion=_complete_model,
    ),
]
ModelsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        help="Names that `gecasmo models` lists, or path/to/file.py:ClassName.",
        autocompletion=_complete_model,
    ),
]
LogArgument = Annotated[
    str,
    typer.Argument(
        metavar="LOG",
        help="A file, a pattern such as 'logs/*.parquet', an address such as "
        "s3://bucket/log.parquet, or - for standard input.",
    ),
]
AnyLogArgument = Annotated[
    str,
    typer.Argument(
        metavar="LOG",
        help="A file, a pattern such as 'logs/*.parquet', an address such as "
        "s3://bucket/log.parquet, - for standard input, or a stored log such as big.gclog.",
    ),
]
FitArgument = Annotated[
    str, typer.Argument(metavar="FIT", help="A file that `gecasmo fit` has written.")
]


class Impossible(StrEnum):
    """What to do with pages of probability zero."""

    refuse = "raise"
    drop = "drop"
    floor = "floor"


ImpossibleFlag = Annotated[
    Impossible,
    typer.Option(
        "--impossible",
        help="What to do with pages that cannot happen under the model: raise an error, drop them, "
        "or count the impossible click as 1e-8 (floor).",
    ),
]


MaxIterFlag = Annotated[
    int, typer.Option("--max-iter", min=1, help="At most so many steps of the estimation.")
]
TolFlag = Annotated[
    float,
    typer.Option(
        "--tol", min=0.0, help="Stop when a step gains less log-likelihood than this per page."
    ),
]
ThreadsFlag = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="How many threads to use; by default all processors."),
]
LevelFlag = Annotated[
    float, typer.Option("--level", help="The probability that an interval contains the truth.")
]


class ChartFormat(StrEnum):
    """How a chart is kept."""

    png = "png"
    svg = "svg"
    html = "html"


@dataclass(frozen=True)
class Plotting:
    """Whether to draw, and where to."""

    plots: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Draw charts into this folder.")
    ] = None
    plots_format: Annotated[
        ChartFormat, typer.Option(help="Pictures (png, svg), or interactive pages (html).")
    ] = ChartFormat.png

    def check(self) -> None:
        """Complain before the work, not after it."""
        if self.plots is None:
            return
        for module in ("altair", "vl_convert"):
            extra(module, "--plots", "gecasmo[plots]")
        from gecasmo.cli.output import check_new_folder

        check_new_folder(self.plots, f"--plots {self.plots}")

    def draw(self, make: Callable[..., Mapping[str, Any]], output: Output, *of: Any) -> list[str]:
        """Save what `make` draws of some things; the files that were written."""
        if self.plots is None:
            return []
        from gecasmo.plots import save_all

        with output.working("Drawing"):
            saved = save_all(make(*of), self.plots, self.plots_format.value)
        return [str(path) for path in saved]


# -- how a log is read ----------------------------------------------------------------------
def is_stored_log(source: str) -> bool:
    """Whether LOG on the command line is the folder of a stored log."""
    from gecasmo.logs.store.manifest import FORMAT, NAME

    manifest = Path(source).expanduser() / NAME
    # A fit can be a folder with a manifest, too, and people mix up arguments.
    return manifest.is_file() and FORMAT.encode() in manifest.read_bytes()


def _complete_format(incomplete: str) -> list[tuple[str, str]]:
    from gecasmo.logs import FORMATS

    return [(name, f.title) for name, f in FORMATS.items() if name.startswith(incomplete)]


def _column(help: str, *flags: str) -> Any:
    return typer.Option(*flags, metavar="COLUMN", help=help, rich_help_panel=_PANEL)


@dataclass(frozen=True)
class LogFlags(EventFlags):
    """Which column is what, and of which format the file is."""

    session: Annotated[
        str | None, _column("Which page a result is on; several as a,b.", "--session")
    ] = None
    query: Annotated[
        str | None, _column("The query of the page; 'none' if there is none.", "--query")
    ] = None
    doc: Annotated[str | None, _column("The document; several as a,b.", "--doc")] = None
    rank: Annotated[
        str | None, _column("The rank on the page; 'none' takes the order of the rows.", "--rank")
    ] = None
    click: Annotated[
        str | None,
        _column(
            "Whether it was clicked; 'none' if unknown. With --events, the name of the event.",
            "--click",
        ),
    ] = None
    weight: Annotated[
        str | None, _column("How often the page counts; 'none' if each counts once.", "--weight")
    ] = None
    format: Annotated[
        str | None,
        typer.Option(
            help="The format of the log; by default recognised from its name and first lines.",
            autocompletion=_complete_format,
            rich_help_panel=_PANEL,
        ),
    ] = None
    separator: Annotated[
        str | None,
        typer.Option(
            metavar="CHARACTER",
            help="What separates the fields of a text file, such as ';' or tab; by default "
            "recognised from its first line.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    max_line: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="Refuse text files with a longer line.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def read(
        self,
        source: str,
        output: Output,
        *,
        clicks: bool = True,
        notes: bool = True,
        instead: str = "",
    ) -> Read[ClickLog]:
        """The log; what was guessed and what the reader met is told on standard error.

        `clicks=False` also reads pages without clicks; `notes=False` is for who tells
        himself what the reader met; `instead` is what to do with a stored log, which is refused.
        """
        from gecasmo import read_log

        if is_stored_log(source):
            raise GecasmoError(
                f"{source} is a stored log, and this command takes logs that fit into memory. "
                f"{instead or _OF_FILES}"
            )
        options: dict[str, Any] = {}
        if self.max_line is not None:
            options["max_line"] = self.max_line
        if (kind := self.kind_of_stream(source)) is not None:
            if self.separator is not None:
                options["separator"] = self.separator
            return self._read_stream(kind, source, output, notes, options)
        with output.working(f"Reading {source}"):
            seen, roles, guessed = self.look(source, output)
            # Clicks that are there are read all the same: others take their place.
            if not clicks and "click" not in {*roles, *guessed, *seen.columns}:
                options["click"] = None
            with warnings.catch_warnings():
                # It would point to log.notes; here they are told one by one.
                warnings.simplefilter("ignore", ClickLogWarning)
                log = read_log(seen.source, format=seen.format, **{**guessed, **roles, **options})
        tell_guesses(source, guessed, output)
        for note in log.notes if notes else ():
            warnings.warn(_told(note, source), ClickLogWarning, stacklevel=2)
        if clicks and notes and log.n_results and not log.click.any():
            # Pages "without clicks" are no different from pages that nobody clicked.
            text = "no result is clicked, and that is what is taken as known: that nobody clicks."
            warnings.warn(f"{Path(source).name}: {text}", ClickLogWarning, stacklevel=2)
        return Read(log, {"format": seen.format, "guessed": guessed, "notes": log.notes})

    def kind_of_stream(self, source: str) -> str | None:
        """Whether a log is "events" or "counts"; None for tables, and for other formats."""
        from gecasmo.logs import peek

        if not (self.events or self.counts):
            return self.stream((), ())
        named = [n for n in (*ROLES, "format") if getattr(self, n) and n not in from_config()]
        columns = () if source == PIPE else peek(source, "table", self.separator).columns
        return self.stream(named, columns)

    def _read_stream(
        self, kind: str, source: str, output: Output, notes: bool, options: dict[str, Any]
    ) -> Read[ClickLog]:
        from gecasmo.logs.roles import GUESSED

        given = {name: getattr(self, name) for name in ("query", "doc", "rank", "click")}
        with output.working(f"Reading {source}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", ClickLogWarning)  # told one by one below
            log = self.read_stream(kind, source, given, options)
        for note in log.notes:
            if note.kind == GUESSED:
                output.say(f"{source}: {note.what}")
            elif notes:
                warnings.warn(_told(note, source), ClickLogWarning, stacklevel=3)
        return Read(log, {"format": kind, "guessed": {}, "notes": log.notes})

    def look(self, source: str, output: Output) -> tuple[Any, dict[str, Any], dict[str, str]]:
        """Look at the beginning of a log: what it is, which columns were named, and guessed."""
        from gecasmo.logs import peek

        named = self._named()
        of_config = {role: named.pop(role) for role in ROLES if role in {*named} & from_config()}
        # Who names columns means a table; other formats have columns of their own.
        format = self.format or ("table" if named else None)
        is_of_config = "separator" in from_config()
        seen = peek(source, format, None if is_of_config else self.separator)
        # A file speaks for many logs, among them such as gecasmo writes, with names of its own.
        meant: dict[str, Any] = {}
        said = []
        if is_of_config and seen.has_separator(self.separator):
            seen = peek(seen.source, "table", self.separator)
            said.append("separator")
        for role, names in of_config.items() if seen.format == "table" else ():
            columns = [names] if isinstance(names, str) else names or ()
            if role not in seen.columns or set(columns) <= set(seen.columns):
                meant[role] = names
        if said := [*meant, *said]:
            flags = " ".join(_as_flag(name, getattr(self, name)) for name in said)
            output.say(f"{source}: columns named by {config_path()}: {flags}")
        roles = {**meant, **named}
        return seen, roles, guess(seen, roles)

    def of_candidates(self, source: str, ruled: Collection[str]) -> dict[str, str] | None:
        """The columns of query, doc and rank of a table that is no log, since it has no sessions;
        None for a log. Columns that are `ruled` are not guessed to be any of these."""
        from gecasmo.logs import guess_roles, peek

        if source == PIPE or self.kind_of_stream(source) is not None:
            return None
        seen = peek(source, self.format, self.separator)
        named = {role: name for role, name in self._named().items() if name in seen.columns}
        free = [name for name in seen.columns if name not in ruled]
        roles = {**named, **guess_roles(free, named, seen.lists)}
        if seen.format != "table" or "session" in {*roles, *seen.columns}:
            return None
        return {role: roles[role] for role in ("query", "doc", "rank") if role in roles}

    def _named(self) -> dict[str, Any]:
        """The columns that somebody named, by role."""
        given = {role: getattr(self, role) for role in ROLES}
        return {role: _names(role, text) for role, text in given.items() if text is not None}

    def words(self, source: str) -> str:
        """The log and the flags to read it, as they are typed once more."""
        said = [name for name in LOG_FLAGS if getattr(self, name) and name not in from_config()]
        return " ".join([shlex.quote(source), *(_as_flag(n, getattr(self, n)) for n in said)])

    def read_any(
        self, source: str, output: Output, *, clicks: bool = True, notes: bool = True
    ) -> Read[ClickLog | StoredLog]:
        """The same, for commands that also take a stored log, which is only opened."""
        if not is_stored_log(source):
            return self.read(source, output, clicks=clicks, notes=notes)
        from gecasmo.logs.store import open_log

        named = [role for role in self._named() if role not in from_config()]
        named += [name for name in EVENT_FLAGS if getattr(self, name) and name not in from_config()]
        if named:
            raise GecasmoError(
                f"--{named[0]}: {source} is a stored log, whose columns were named by ingest."
            )
        for name in ("format", "separator", "max_line"):
            if getattr(self, name) is not None and name not in from_config():
                flag = name.replace("_", "-")
                raise GecasmoError(f"--{flag}: {source} is a stored log, which ingest has read.")
        log = open_log(Path(source).expanduser())
        return Read(log, {"format": "stored log", "guessed": {}, "notes": log.notes})


Log = TypeVar("Log", bound="ClickLog | StoredLog", covariant=True)


@dataclass(frozen=True)
class Read(Generic[Log]):
    """A log, and how it was read: what machines are told of it."""

    log: Log
    facts: dict[str, Any]


def in_memory_sample(model: Any, log: ClickLog | StoredLog) -> tuple[Any, ClickLog]:
    """What charts are drawn of: of a stored log, the pages of some queries."""
    from gecasmo.logs import ClickLog
    from gecasmo.model.log_parts import some_partitions

    return (model, log) if isinstance(log, ClickLog) else some_partitions(model, log, 20_000)


def guess(seen: Peek, roles: Mapping[str, Any]) -> dict[str, str]:
    """Columns for the roles that nobody named and no column carries the name of."""
    from gecasmo.logs import guess_roles

    guessed = guess_roles(seen.columns, roles, seen.lists)
    # Other names, such as "n", may mean anything; this one is what a log is written with.
    if "weight" in seen.columns and "weight" not in roles:
        guessed["weight"] = "weight"
    return guessed


def tell_guesses(source: str, guessed: Mapping[str, str], output: Output) -> None:
    """Say which flags would do what was guessed."""
    if guessed:
        flags = " ".join(map(_as_flag, guessed, guessed.values()))
        output.say(f"{source}: columns guessed by their names: {flags}")


def _told(note: Note, source: str) -> str:
    """A note with an example; the file is named once, and shortly."""
    text = f"{Path(source).name}: {note.what}"
    if note.examples:
        text += f" First: {note.examples[0].removeprefix(f'{source}, ')}."
    return text


def seen_as(view: Any, log: Any, source: str) -> Any:
    """A log in memory as a model reads it, to be held while the model does; what the view notes is
    told one by one, beside what it warns of."""
    from gecasmo.logs import ClickLog
    from gecasmo.logs.views import as_view
    from gecasmo.logs.views.view import ViewedLog

    if not isinstance(log, ClickLog):
        return None
    viewed = as_view(view).apply(log)
    if isinstance(viewed, ViewedLog):
        for note in viewed.walks.notes:
            warnings.warn(_told(note, source), ClickLogWarning, stacklevel=2)
    return viewed


def _names(role: str, text: str) -> str | list[str] | None:
    """A column, or several that mean something together."""
    if role != "doc" and text.lower() == "none":
        return None
    if role in ("session", "doc") and "," in text:
        return [name.strip() for name in text.split(",") if name.strip()]
    return text


@dataclass(frozen=True)
class OnePageFlags(LogFlags):
    """The same for a command whose --session names a page, not a column."""

    session: Annotated[
        str | None, _column("Which page a result is on; several as a,b.", "--session-column")
    ] = None


# -- bundles --------------------------------------------------------------------------------
Command = Callable[..., None]


def bundled(command: Command) -> Command:
    """The command with a flag for each field of the dataclasses that it takes."""
    hints = get_type_hints(command, include_extras=True)
    bundles: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if isinstance(kind, type) and is_dataclass(kind):
            bundles[parameter.name] = kind
            parameters += _flags(kind)
        else:
            parameters.append(
                parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)
            )

    def run(context: typer.Context, **values: Any) -> None:
        used = [name for name in values if _is_of_config(context, name)]
        reads = any(issubclass(kind, LogFlags) for kind in bundles.values())
        of_logs = (*ROLES, "separator") if reads else ()  # told by who looks at a log
        said = {name: values[name] for name in used if name not in of_logs}
        for name, kind in bundles.items():
            mine = {field.name: values.pop(field.name) for field in fields(kind)}
            values[name] = kind(**mine)
        with config_used(used) as path, of_command([each.name for each in parameters]):
            if said:
                values["output"].say(f"{path}: {' '.join(map(_as_flag, said, said.values()))}")
            command(**values)

    run.__name__, run.__doc__, run.__module__ = (
        command.__name__,
        command.__doc__,
        command.__module__,
    )
    own = inspect.Parameter.KEYWORD_ONLY
    parameters.append(inspect.Parameter("context", own, annotation=typer.Context))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _is_of_config(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


_FLAG_OF = {"target": "output", "mail": "report"}  # parameters that have another name


def _as_flag(name: str, value: Any) -> str:
    flag = f"--{_FLAG_OF.get(name, name).replace('_', '-')}"
    if isinstance(value, bool):
        return flag if value else f"--no-{flag[2:]}"
    several = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"{flag} {shlex.quote(str(each))}" for each in several)


def _flags(kind: type) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]
