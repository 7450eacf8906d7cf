"""Charts as files: pictures, pages that need no network, and specifications."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gecasmo.errors import GecasmoError
from gecasmo.files import whole_file
from gecasmo.forms.extras import extra
from gecasmo.plots.theme import Chart, altair

SCALE = 2  # pixels of a PNG per unit: sharp on today's screens, and about 1,600 wide


def save(chart: Chart, path: str | Path) -> Path:
    """Write a chart to a file.

    Parameters
    ----------
    chart : chart of Altair
    path : str or Path
        The suffix tells the format: .png, .svg, .html (interactive, works without a network) or
        .json (the Vega-Lite specification with its data).

    Returns
    -------
    The path that was written.
    """
    target = Path(path).expanduser()
    write = _writer(target.suffix, str(target))
    if not hasattr(chart, "to_dict"):
        raise GecasmoError(
            f"{target}: a chart is wanted, as gecasmo.plots and Altair make them, not "
            f"{type(chart).__name__}."
        )
    # Whatever the user chose for notebooks, a file has its data inside.
    with altair().data_transformers.enable("default", max_rows=None):
        content = write(chart)
    with whole_file(target, GecasmoError) as part:
        part.write_bytes(content)
    return target


def save_all(charts: Mapping[str, Chart], folder: str | Path, suffix: str = "png") -> list[Path]:
    """Write charts to a folder, which is made if need be, each under its name.

    Returns
    -------
    The paths that were written, in the order of the charts.
    """
    ending = "." + suffix.removeprefix(".")
    _writer(ending, f"suffix={suffix!r}")
    place = Path(folder).expanduser()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise GecasmoError(
            f"The folder {place} cannot be made: {problem.strerror or problem}."
        ) from problem
    return [save(chart, place / f"{name}{ending}") for name, chart in charts.items()]


def _writer(suffix: str, where: str) -> Callable[[Chart], bytes]:
    writers = {".png": _png, ".svg": _svg, ".html": _html, ".json": _json}
    if suffix.lower() not in writers:
        raise GecasmoError(
            f"{where}: a chart is saved as one of {', '.join(writers)}; the name has to end so."
        )
    return writers[suffix.lower()]


def _png(chart: Chart) -> bytes:
    picture = io.BytesIO()
    _converter()
    chart.save(picture, format="png", scale_factor=SCALE)
    return picture.getvalue()


def _svg(chart: Chart) -> bytes:
    picture = io.StringIO()
    _converter()
    chart.save(picture, format="svg")
    return picture.getvalue().encode()


def _html(chart: Chart) -> bytes:
    _converter()  # the scripts of the page come from there, not from the network
    page: str = chart.to_html(inline=True, json_kwds={"cls": _ScriptSafe})
    return page.encode()


def _json(chart: Chart) -> bytes:
    return (json.dumps(chart.to_dict(), indent=2, ensure_ascii=False) + "\n").encode()


def _converter() -> Any:
    return extra("vl_convert", "Saving charts", "gecasmo[plots]")


class _ScriptSafe(json.JSONEncoder):
    """JSON that can stand in a page: a query like "</script>" must not end the script."""

    def encode(self, o: Any) -> str:
        return super().encode(o).replace("<", "\\u003c")
