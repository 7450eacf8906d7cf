"""Arguments and flags that several commands have, described once."""

from __future__ import annotations

from typing import Annotated

import typer


def _complete_model(incomplete: str) -> list[tuple[str, str]]:
    from gecasmo.cli.finding import complete_model

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
