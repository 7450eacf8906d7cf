"""What `make docs` does to pages that are written to be read in the repository, too."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the first page, which is the README, and a model that runs in the browser."""
    from mkdocs.structure.files import File

    from gecasmo import DBN
    from gecasmo.browser import model_data, page_of

    home = (ROOT / "README.md").read_text(encoding="utf-8")
    home = re.sub(r"\]\(docs/", "](", home)
    files.append(File.generated(config, "index.md", content=home))
    live = page_of(model_data(DBN()))
    files.append(File.generated(config, "live-dbn.html", content=live))
    # Diagrams are drawn by a script that stands beside the page, not by one from elsewhere.
    drawing = ROOT / ".docs" / "mermaid.min.js"
    if drawing.is_file():
        files.append(File.generated(config, "mermaid.min.js", abs_src_path=str(drawing)))
        config.extra_javascript.append("mermaid.min.js")
    return files


def _titles(nav: Any) -> Iterator[tuple[str, str]]:
    """The pages of the site with their titles."""
    for entry in nav:
        for title, inside in entry.items():
            if isinstance(inside, str):
                yield inside, title
            else:
                yield from _titles(inside)


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Name files of the repository that the site does not have, instead of linking to them; and
    call pages by their titles, where the repository says which file they are."""
    titles = dict(_titles(config.nav))

    def local(found: re.Match[str]) -> str:
        is_image, words, address = found[1], found[2], found[3]
        path = address.split("#")[0]
        folder = posixpath.dirname(page.file.src_uri)
        inside = posixpath.normpath(posixpath.join(folder, path)) if path else ""
        is_elsewhere = inside.startswith("../") or (
            page.file.src_uri == "index.md" and not (ROOT / "docs" / inside).exists()
        )
        if ":" in address or not path or is_image:
            return found[0]
        if not is_elsewhere:
            is_file_name = words in (path, f"docs/{inside}", posixpath.basename(inside))
            return f"[“{titles[inside]}”]({address})" if is_file_name else found[0]
        name = inside.removeprefix("../")
        return words if words in (name, posixpath.basename(name)) else f"{words} (`{name}`)"

    live = (
        "Here is one that runs: DBN, with numbers that are made up.\n\n"
        '<iframe src="live-dbn.html" title="DBN in the browser" '
        'style="width: 100%; height: 900px; border: 1px solid #ccc"></iframe>'
    )
    return _LINK.sub(local, markdown.replace("<!-- live -->", live))
