"""The charts behind --plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.errors import GecasmoError

if TYPE_CHECKING:
    from gecasmo.cli.output import Output


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
        typer.Option("--plots", metavar="FOLDER", help="Draw charts into this folder."),
    ] = None
    plots_format: Annotated[
        ChartFormat,
        typer.Option("--plots-format", help="Pictures, or pages that can be looked around in."),
    ] = ChartFormat.png

    def check(self) -> None:
        """Complain before the work, not after it."""
        if self.plots is None:
            return
        from gecasmo.forms.extras import extra

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
