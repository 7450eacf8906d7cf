"""Arguments and flags that several commands have, described once.

Some are one argument or flag each. Others belong together and are the fields of a class, which a
command takes as a parameter; on the command line its fields are flags:

    @bundled
    def check(log: Log, reading: LogFlags, output: Output) -> None: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gecasmo.errors import GecasmoError

if TYPE_CHECKING:
    from gecasmo.cli.output import Output


def _complete_model(incomplete: str) -> list[tuple[str, str]]:
    from gecasmo.cli.lookup import complete_model

    return complete_model(incomplete)


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
        metavar="LOG", help="A file, a pattern such as 'logs/*.parquet', or - for standard input."
    ),
]
AnyLogArgument = Annotated[
    str,
    typer.Argument(
        metavar="LOG",
        help="A file, a pattern such as 'logs/*.parquet', - for standard input, or a stored log "
        "such as big.gclog.",
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
        help="Pages that cannot happen under the model: an error, left out, or counted as 1e-8.",
    ),
]


MaxIterFlag = Annotated[int, typer.Option("--max-iter", min=1, help="The most iterations of EM.")]
TolFlag = Annotated[
    float, typer.Option("--tol", min=0.0, help="Stop when an iteration gains less, per page.")
]
ThreadsFlag = Annotated[
    int | None, typer.Option("--threads", min=1, help="By default all processors.")
]
LevelFlag = Annotated[
    float, typer.Option("--level", help="How probable it is that an interval holds the truth.")
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
        Path | None,
        typer.Option(metavar="FOLDER", help="Draw charts into this folder."),
    ] = None
    plots_format: Annotated[
        ChartFormat,
        typer.Option(help="Pictures, or pages that can be looked around in."),
    ] = ChartFormat.png

    def check(self) -> None:
        """Complain before the work, not after it."""
        if self.plots is None:
            return
        from gecasmo.errors import extra

        for module in ("altair", "vl_convert"):
            extra(module, "--plots", "gecasmo[plots]")
        if self.plots.exists() and not self.plots.is_dir():
            raise GecasmoError(f"--plots {self.plots}: that is a file; name a folder.")

    def draw(self, make: Callable[..., Mapping[str, Any]], output: Output, *of: Any) -> list[str]:
        """Save what `make` draws of some things; the files that were written."""
        if self.plots is None:
            return []
        from gecasmo.plots import save_all

        with output.working("Drawing"):
            saved = save_all(make(*of), self.plots, self.plots_format.value)
        return [str(path) for path in saved]


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

    def run(**values: Any) -> None:
        for name, kind in bundles.items():
            mine = {field.name: values.pop(field.name) for field in fields(kind)}
            values[name] = kind(**mine)
        command(**values)

    run.__name__, run.__doc__, run.__module__ = (
        command.__name__,
        command.__doc__,
        command.__module__,
    )
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


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
