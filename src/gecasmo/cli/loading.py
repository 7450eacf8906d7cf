"""From FIT on the command line to a fitted model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gecasmo.cli.reading import is_stored_log
from gecasmo.errors import SavedModelError

if TYPE_CHECKING:
    from gecasmo.model.base import Model


def load_fit(path: str) -> Model:
    """The model in a file that `gecasmo fit` has written."""
    from gecasmo import load

    if is_stored_log(path):
        raise SavedModelError(
            f"{path} is a stored log, and a fit is wanted here: a file that `gecasmo fit` wrote."
        )
    file = Path(path).expanduser()
    if file.is_dir() and not (file / "manifest.json").is_file():
        raise SavedModelError(f"{path} is a folder; name the file that `gecasmo fit` wrote.")
    if not file.exists():
        raise SavedModelError(
            f"{path}: there is no such file. `gecasmo fit MODEL LOG -o {path}` would write it."
        )
    return load(file)
