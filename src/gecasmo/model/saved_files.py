"""The container of a saved model: one zip file, or a folder with the same members.

    manifest.json    format, version, SHA-256 of every other member
    parted/N/...     rows of tables that are too large to be read at once; looked at when needed

Whatever else there is, is read and checked as a whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gecasmo.errors import SavedModelError
from gecasmo.files import whole_file
from gecasmo.forms.parted_files import FolderSource, PartFile, Source, ZipSource, read_content

FORMAT = "gecasmo model"
# 1: everything is read at once. 2: some tables are in parts.
VERSION = 2
MANIFEST = "manifest.json"
PARTED = "parted/"


@dataclass
class Members:
    """What a saved model consists of: small members in memory, parts where they are."""

    small: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, tuple[Source, PartFile]] = field(default_factory=dict)

    def manifest(self) -> bytes:
        """The list of members with their SHA-256."""
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in self.small.items()}
        digests |= {name: file.sha256 for name, (_, file) in self.parts.items()}
        version = VERSION if self.parts else 1
        return as_json({"format": FORMAT, "version": version, "sha256": digests})


@dataclass(frozen=True)
class Saved:
    """A saved model that was opened: its small members, and how to get at its parts."""

    small: Mapping[str, bytes]
    parts: Mapping[str, str]  # SHA-256 by name
    source: Source


def as_json(data: Any) -> bytes:
    """JSON for a member."""
    return json.dumps(data, ensure_ascii=True, indent=1).encode()


def write_zip(members: Members, path: Any) -> None:
    """Write one file, whole or not at all; parts are copied one at a time."""
    with whole_file(path, SavedModelError) as temporary:
        with open(temporary, "xb") as file, zipfile.ZipFile(file, "w") as archive:
            _write(archive, MANIFEST, members.manifest())
            for name, data in members.small.items():
                _write(archive, name, data)
            for name, (source, part) in members.parts.items():
                # Parquet is compressed already.
                _write(archive, name, read_content(source, part), zipfile.ZIP_STORED)


def _write(
    archive: zipfile.ZipFile, name: str, data: bytes, method: int = zipfile.ZIP_DEFLATED
) -> None:
    # A fixed date, so that the same model always gives the same file.
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.compress_type = method
    archive.writestr(entry, data)


def write_folder(members: Members, path: Any) -> None:
    """Write a folder; it is a model as soon as its manifest is there, which comes last.

    Parts that are in this folder already stay as they are.
    """
    target = Path(path).expanduser()
    try:
        if all(_is_there(target, name, *part) for name, part in members.parts.items()) and (
            members.parts
        ):
            (target / MANIFEST).unlink(missing_ok=True)
            _fill(target, members, with_parts=False)
            return
        _check_replaceable(target)
        fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        try:
            fresh.mkdir()
            _fill(fresh, members, with_parts=True)
            _put_in_place(fresh, target)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    except OSError as problem:
        raise SavedModelError(
            f"{target} cannot be written: {problem.strerror or problem}."
        ) from problem


def _is_there(target: Path, name: str, source: Source, file: PartFile) -> bool:
    return (
        isinstance(source, FolderSource)
        and file.name == name
        and target.is_dir()
        and source.folder.resolve() == target.resolve()
    )


def _fill(folder: Path, members: Members, with_parts: bool) -> None:
    for name, data in members.small.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    for name, (source, file) in members.parts.items() if with_parts else ():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(read_content(source, file))
    with whole_file(folder / MANIFEST, SavedModelError) as temporary:
        temporary.write_bytes(members.manifest())


def _check_replaceable(target: Path) -> None:
    if not target.exists() or (target / MANIFEST).is_file():
        return
    if not target.is_dir() or any(target.iterdir()):
        raise SavedModelError(
            f"{target} is there already and is no folder of a saved model: choose another name."
        )


def _put_in_place(fresh: Path, target: Path) -> None:
    if not target.exists():
        fresh.rename(target)
        return
    old = target.with_name(f".{target.name}.{uuid.uuid4().hex}.old")
    target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def open_saved(path: Path) -> Saved:
    """Open a saved model and check all of it but its parts, which are checked when read."""
    if not path.exists():
        raise SavedModelError(f"There is no file {path}.")
    try:
        small, others, expected, version = _opened(path)
    except SavedModelError:
        raise
    except Exception as error:
        raise SavedModelError(
            f"{path} is not a saved gecasmo model, or it is damaged ({error})."
        ) from None
    if version > VERSION:
        raise SavedModelError(
            f"{path} was written by a newer gecasmo (format {version}; this one reads up to "
            f"{VERSION}). Upgrade gecasmo to load it."
        )
    found = {name: hashlib.sha256(data).hexdigest() for name, data in small.items()}
    found |= {name: expected.get(name, "") for name in others}
    wrong = [name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)]
    if wrong:
        raise SavedModelError(f"{path} is damaged: {', '.join(wrong)} is not what was saved.")
    source: Source = FolderSource(path) if path.is_dir() else ZipSource(path)
    return Saved(small, {name: expected[name] for name in others}, source)


def _opened(path: Path) -> tuple[dict[str, bytes], list[str], dict[str, str], int]:
    """Small members, names of parts, SHA-256 of all, and the version."""
    if path.is_dir():
        if not (path / MANIFEST).is_file():
            raise SavedModelError(
                f"{path} is a folder, not a saved gecasmo model: there is no {MANIFEST} in it, "
                "which is written last."
            )
        expected, version = _manifest((path / MANIFEST).read_bytes(), path)
        # Other files may lie about, but no name may lead out of the folder.
        names = [name for name in expected if _is_inside(name) and (path / name).is_file()]
        small = {name: (path / name).read_bytes() for name in names if not _is_part(name)}
        return small, list(filter(_is_part, names)), expected, version
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name != MANIFEST]
        if MANIFEST not in archive.namelist():
            raise SavedModelError(f"{path} is not a saved gecasmo model.")
        expected, version = _manifest(archive.read(MANIFEST), path)
        small = {name: archive.read(name) for name in names if not _is_part(name)}
    return small, list(filter(_is_part, names)), expected, version


def _manifest(data: bytes, path: Path) -> tuple[dict[str, str], int]:
    manifest = json.loads(data)
    if manifest["format"] != FORMAT:
        raise SavedModelError(f"{path} is not a saved gecasmo model.")
    return dict(manifest["sha256"]), int(manifest["version"])


def _is_part(name: str) -> bool:
    return name.startswith(PARTED)


def _is_inside(name: str) -> bool:
    steps = name.split("/")
    return not any(step in ("", ".", "..") or "\\" in step or ":" in step for step in steps)
