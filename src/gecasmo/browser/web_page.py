"""One HTML file from the parts in this folder, with nothing to be fetched from anywhere."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from gecasmo.files import whole_file


def page_of(data: Mapping[str, Any]) -> str:
    """The page of a model, as HTML; `data` is what `model_data` says of it."""
    return filled(
        "page.html",
        title=html.escape(f"{data['name']} in the browser"),
        data=script_data(data),
        styles=("style.css",),
        scripts=("engine.js", "pages.js", "drawing.js", "app.js"),
    )


def filled(page: str, *, styles: Sequence[str], scripts: Sequence[str], **parts: str) -> str:
    """A page of this folder with its parts put in, styles and scripts from their files; scripts in
    the order in which they need each other."""
    parts["style"] = "\n".join(map(_part, styles))
    parts["script"] = bundled_script(scripts)
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _part(page))


def write_page(text: str, path: Any) -> None:
    """Write a page to a file, which any browser opens."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def bundled_script(names: Sequence[str]) -> str:
    """Modules as one script: what they import from each other stands above them."""
    parts = []
    for name in names:
        text = re.sub(r"^import [^;]*;\n", "", _part(name), flags=re.MULTILINE)
        parts.append(re.sub(r"^export ", "", text, flags=re.MULTILINE))
    return "\n".join(parts)


def script_data(data: Any) -> str:
    """Data as JSON that stands in a script element, whatever texts are in it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _part(name: str) -> str:
    return (files("gecasmo.browser") / name).read_text(encoding="utf-8")
