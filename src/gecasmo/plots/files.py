"""Charts as files: pictures, pages that need no network, and specifications."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gecasmo.errors import GecasmoError, extra
from gecasmo.files import whole_file
from gecasmo.plots.theme import Chart, altair
from gecasmo.report import printable, printable_lines

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
        content = write(_harmless(chart))
    with whole_file(target, GecasmoError) as part:
        part.write_bytes(content)
    return target


def save_all(charts: Mapping[str, Chart], folder: str | Path, suffix: str = "png") -> list[Path]:
    """Write charts to a folder, which is made if need be, each under its name.

    A name may be any text, such as an id: "_" stands for what a file name had better not hold.

    Parameters
    ----------
    charts : dict of charts
    folder : str or Path
    suffix : str
        The format: "png", "svg", "html" or "json".

    Returns
    -------
    The paths that were written, in the order of the charts.
    """
    ending = "." + suffix.removeprefix(".")
    _writer(ending, f"suffix={suffix!r}")
    names = _file_names(charts)
    place = Path(folder).expanduser()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise GecasmoError(
            f"The folder {place} cannot be made: {problem.strerror or problem}."
        ) from problem
    return [
        save(chart, place / f"{name}{ending}")
        for name, chart in zip(names, charts.values(), strict=True)
    ]


def as_svg(chart: Chart) -> str:
    """Draw a chart as SVG, to be put into a page."""
    with altair().data_transformers.enable("default", max_rows=None):
        return _svg(_harmless(chart)).decode()


def _harmless(chart: Chart) -> Chart:
    """The chart without the characters that the converter dies of; mostly the chart itself."""
    specification = chart.to_dict()
    cleaned = _clean(specification)
    return chart if cleaned == specification else altair().Chart.from_dict(cleaned)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return printable_lines(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_clean, value))
    return value


def _file_names(names: Iterable[Any]) -> list[str]:
    """Each name as one of a file in the folder, whatever characters it has."""
    files = [re.sub(r"[?/\\]", "_", printable(name)) for name in names]
    if len(set(files)) < len(files):
        twice = next(name for name in files if files.count(name) > 1)
        raise GecasmoError(f"Two charts would be saved as {twice!r}; name them differently.")
    return files


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
