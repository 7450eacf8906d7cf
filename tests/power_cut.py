"""What a disk may hold after the power is cut at any moment of some work.

Writes that were not pushed to the disk (`os.fsync`) are lost: a file is then what it was when it
was pushed last, or empty. Names in folders are told in two ways, and both have to do: as file
systems with a journal of them keep them, all in order; and only those that were pushed, too.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tree = dict[str, Any]  # a name, and the content of a file or another tree


class PowerCut:
    """Watches a folder; `states` are the trees that cuts may leave of it, each once."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.states: dict[str, Tree] = {}
        self._pushed: dict[int, bytes] = {}  # contents of files, by inode
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}  # of folders, by inode
        self._moved: dict[int, set[int]] = {}  # folders between which something was moved
        self._held: list[int] = []  # lest an inode be used again
        self._lock = threading.RLock()
        self._hold(os.open(root, os.O_RDONLY))
        patch.setattr(os, "fsync", self._push)
        for name in ("replace", "rename"):
            patch.setattr(os, name, self._watched(getattr(os, name), self._move))
        for name in ("unlink", "rmdir", "mkdir"):
            patch.setattr(os, name, self._watched(getattr(os, name)))

    def close(self) -> None:
        self._note()
        for handle in self._held:
            os.close(handle)

    def _watched(
        self, real: Callable[..., Any], also: Callable[..., None] | None = None
    ) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                self._note()
                if also is not None:
                    also(*arguments)
                return real(*arguments, **options)

        return call

    def _push(self, handle: int) -> None:
        with self._lock:
            self._note()
            self._hold(os.dup(handle))
            self._note()

    def _hold(self, handle: int) -> None:
        self._held.append(handle)
        about = os.fstat(handle)
        if not stat.S_ISDIR(about.st_mode):
            self._pushed[about.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()
            return
        self._names[about.st_ino] = _listed(handle)
        for other in self._moved.pop(about.st_ino, ()):
            # A move is one step for both folders.
            if self._moved.get(other):
                self._moved[other].discard(about.st_ino)
            found = [p for p in (self.root, *self.root.rglob("*")) if p.is_dir()]
            for path in (p for p in found if p.stat().st_ino == other):
                self._names[other] = _listed(path)

    def _move(self, source: Any, target: Any) -> None:
        one, other = (os.stat(Path(path).parent).st_ino for path in (source, target))
        if one != other:
            self._moved.setdefault(one, set()).add(other)
            self._moved.setdefault(other, set()).add(one)

    def _note(self) -> None:
        for tree in (self._now(self.root), self._then(self.root.stat().st_ino)):
            self.states.setdefault(repr(tree), tree)

    def _now(self, folder: Path) -> Tree:
        """All names as they are, with the contents that were pushed."""
        return {
            name: self._now(folder / name) if is_folder else self._pushed.get(inode, b"")
            for name, (inode, is_folder) in sorted(_listed(folder).items())
        }

    def _then(self, inode: int) -> Tree:
        """Only names that were pushed, too."""
        return {
            name: self._then(inode) if is_folder else self._pushed.get(inode, b"")
            for name, (inode, is_folder) in sorted(self._names.get(inode, {}).items())
        }


def _listed(folder: Any) -> dict[str, tuple[int, bool]]:
    with os.scandir(folder) as found:
        return {each.name: (each.inode(), each.is_dir(follow_symlinks=False)) for each in found}


def build(tree: Tree, folder: Path) -> Path:
    """Make a folder that holds a tree."""
    folder.mkdir()
    for name, content in tree.items():
        if isinstance(content, dict):
            build(content, folder / name)
        else:
            (folder / name).write_bytes(content)
    return folder
