"""What an ingest has done so far, so that another process can go on after it was killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gecasmo.errors import ClickLogError, either, option
from gecasmo.files import link_in, locked_file, synced
from gecasmo.logs.store.disk import telling_full_disk, write_json

VERSION = 3
_NAME = "ingest.json"


def signature(paths: Sequence[Path]) -> list[list[Any]]:
    """What tells whether files are still the same: name, size and time of the last change."""
    found = []
    for path in paths:
        try:
            about = path.stat()
        except OSError as problem:
            raise ClickLogError(
                f"{path} cannot be read: {problem.strerror or problem}."
            ) from problem
        found.append([str(path.absolute()), about.st_size, about.st_mtime_ns])
    return found


class IngestJournal:
    """The working folder of an ingest, beside the place where the log is to be."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.with_name(f"{target.name}.part")
        self.spill = self.folder / "spill"
        self.log = self.folder / "log"
        self.done = self.folder / "done"
        self.content: dict[str, Any] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from working here at the same time."""
        with telling_full_disk(self.folder):
            self.folder.mkdir(exist_ok=True)
            if link := link_in(self.folder):
                raise ClickLogError(
                    f"{link} is a link, which no ingest has made; remove {self.folder}, or name "
                    "another place."
                )
            lock = locked_file(self.folder / "lock")
        if lock is None:
            raise ClickLogError(
                f"{self.target}: another process is ingesting it at the moment; wait for it, or "
                "name another place."
            )
        with lock:
            yield

    @property
    def is_begun(self) -> bool:
        """Whether there is something to resume, if files and wishes are the same."""
        found = self._read()
        return found is not None and found["inputs"] is not None and self.log.is_dir()

    def begin(
        self,
        inputs: list[list[Any]] | None,
        wishes: dict[str, Any],
        resume: bool,
        memory: int,
    ) -> bool:
        """Resume what is there, if `resume` says so, or start anew; say which it is.

        `inputs` is the signature of the input files, None for what cannot be read again. The work
        is planned for the least memory that any process was granted, so that who goes on without a
        word about it, before there is a plan, makes that of the first.

        Raises
        ------
        ClickLogError
            When input files or wishes are not those of the ingest that began here.
        """
        before = self._read()
        if not self.log.is_dir():
            before = None  # it was finished, and only some of the work was not removed yet
        new = {"version": VERSION, "inputs": inputs, "wishes": wishes, "memory": memory}
        if resume and before is not None and inputs is not None and before["inputs"] is not None:
            self._refuse_change(before, new)
            self.content = before
            self.save(memory=min(before.get("memory") or memory, memory))
            return True
        self._clear()
        self.content = new
        self.save()
        return False

    def save(self, **changes: Any) -> None:
        """Write down what is known by now."""
        self.content |= changes
        write_json(self.folder / _NAME, self.content)

    def publish(self) -> None:
        """Move the finished log to its place, and remove everything else."""
        with telling_full_disk(self.target):
            old = self.target.with_name(f"{self.target.name}.old")
            if self.target.exists():
                shutil.rmtree(old, ignore_errors=True)
                self.target.replace(old)
            self.log.replace(self.target)
            synced(self.target.parent)
        shutil.rmtree(old, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a process left that was killed after all was done."""
        if self.folder.is_dir() and self.target.exists() and not self.log.exists():
            self.abandon()

    def abandon(self) -> None:
        """Remove what was done so far, since nobody could resume it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.folder / _NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if found.get("version") == VERSION else None

    def _clear(self) -> None:
        for folder in (self.spill, self.log, self.done):
            shutil.rmtree(folder, ignore_errors=True)
        with telling_full_disk(self.folder):
            for folder in (self.spill, self.log, self.done):
                folder.mkdir()

    def _refuse_change(self, before: dict[str, Any], new: dict[str, Any]) -> None:
        how = f"; to start again, pass {either('resume=False', '--no-resume')}"
        there = {name: rest for name, *rest in before["inputs"]}
        now = {name: rest for name, *rest in new["inputs"]}
        for name in [*there, *now]:
            if name not in now or name not in there:
                then, today = ("an", "none") if name in there else ("no", "one")
                raise ClickLogError(
                    f"{name} was {then} input when the ingest into {self.target} began, and is "
                    f"{today} now; it cannot be resumed with other files{how}."
                )
            if there[name] != now[name]:
                raise ClickLogError(
                    f"{name} was changed since the ingest into {self.target} began, so it cannot "
                    f"be resumed{how}."
                )
        then_asked, now_asked = _one_by_one(before["wishes"]), _one_by_one(new["wishes"])
        for name, value in now_asked.items():
            if then_asked.get(name) != value:
                raise ClickLogError(
                    f"{self.target}: an ingest began here {_asked(name, then_asked.get(name))}, "
                    f"and cannot be resumed {_asked(name, value)}{how}."
                )


def _one_by_one(wishes: dict[str, Any]) -> dict[str, Any]:
    """Wishes by the name of their argument."""
    return {**{n: w for n, w in wishes.items() if n != "columns"}, **wishes["columns"]}


def _asked(name: str, value: Any) -> str:
    """A wish in words."""
    if name == "fold":
        words = {None: "with fold='auto'", True: "with fold=True", False: "with fold=False"}
        flags = {None: "without --fold or --no-fold", True: "with --fold", False: "with --no-fold"}
        return either(words[value], flags[value])
    is_given = value or value is False
    return f"with {option(name, value)}" if is_given else f"without {either(name, f'--{name}')}"
