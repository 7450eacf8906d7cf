"""The folder in which a fit over parts keeps everything until it is done."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from gecasmo.errors import CheckpointError, ModelError
from gecasmo.files import whole_file
from gecasmo.model.fit_identity import Identity, differences

_WORDS = "fit.json"


class FitFolder:
    """A folder that belongs to one fit.

    Parameters
    ----------
    path : folder, or None
        One that is given stays, and a fit that was killed goes on from there. Without one, a
        folder beside the log is used and removed when nobody needs it any more.
    beside : the log
    identity : what the fit is of; another one is refused
    """

    def __init__(self, path: Any, beside: Path, identity: Identity) -> None:
        self.is_kept = path is not None
        self.path = _temporary_folder(beside) if path is None else Path(path).expanduser()
        if not self.is_kept:
            weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
        self.words: dict[str, Any] = {"fit": identity}
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(
                f"{self.path} is a file. A fit keeps its progress in a folder: name one that does "
                "not exist yet, or that a fit has made."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise CheckpointError(f"{self.path} cannot be made: {problem.strerror}.") from None
        try:
            self._refuse_strangers()
            self._lock()
        except OSError as problem:
            raise CheckpointError(f"{self.path} cannot be used: {problem.strerror}.") from None
        self._go_on(identity)

    def _refuse_strangers(self) -> None:
        """A folder with other things in it is none of ours."""
        others = [path for path in self.path.iterdir() if path.name != "lock"]
        if others and not (self.path / _WORDS).exists():
            raise CheckpointError(
                f"{self.path} has files that are not of a fit. Name an empty folder, or one "
                "that does not exist yet."
            )

    def _lock(self) -> None:
        """Two fits in one folder would pull files from under each other."""
        self._locked = open(self.path / "lock", "w")  # noqa: SIM115 - held as long as the folder
        weakref.finalize(self, self._locked.close)
        if os.name == "posix":
            import fcntl

            try:
                fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CheckpointError(
                    f"{self.path} is in use by another fit at the moment."
                ) from None

    def release(self) -> None:
        """Let other fits use the folder."""
        self._locked.close()

    def __deepcopy__(self, memo: Any) -> FitFolder:
        return self  # the files are there once

    def __getstate__(self) -> dict[str, Any]:
        if not self.is_kept:
            raise ModelError(
                "The rows of this model are in a folder that goes with this process, so it cannot "
                "be pickled: save it with model.save(path), or fit with checkpoint=."
            )
        return {**self.__dict__, "_locked": None}

    def _go_on(self, identity: Identity) -> None:
        words = self.path / _WORDS
        if not words.exists():
            self.note()
            return
        try:
            self.words = json.loads(words.read_bytes())
            begun = self.words["fit"]
            if isinstance(begun, str):
                raise CheckpointError(
                    f"{self.path} is of a fit that an earlier version of gecasmo began, and cannot "
                    "be gone on with. Name another folder, or remove it."
                )
            different = differences(dict(begun), identity)
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointError(f"{words} is damaged. Remove {self.path}.") from None
        if different:
            raise CheckpointError(
                f"{self.path} belongs to another fit. What differs: {'; '.join(different)}. Name "
                "another folder, or remove it."
            )

    def note(self, **words: Any) -> None:
        """Keep some words, in one step."""
        self.words |= words
        with whole_file(self.path / _WORDS, CheckpointError) as temporary:
            temporary.write_text(json.dumps(self.words))

    def clear(self, *names: str) -> None:
        """Remove what is no longer needed."""
        for name in names:
            shutil.rmtree(self.path / name, ignore_errors=True)


def _temporary_folder(log: Path) -> Path:
    """Beside the log, where there is room for such things; else where the system wants it."""
    try:
        return Path(tempfile.mkdtemp(prefix=f".{log.name}.fit-", dir=log.parent))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="gecasmo-fit-"))
