"""Compiled kernels are kept in a folder of the user's own, and never stand in the way."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gecasmo.kernels.cache import cache_folder

# Fits the smallest model and reports numbers, warnings and what Numba found in its cache.
CODE = """
import json, sys, warnings
import gecasmo
from gecasmo.kernels import cache
log = gecasmo.read_log({"session": [1, 1, 2], "doc": ["a", "b", "a"], "rank": [1, 2, 1],
                        "click": [1, 0, 0]})
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = gecasmo.GCTR().fit(log)
    clicks = model.predict_clicks(log)
kernels = list(cache._compiled.values())
print(json.dumps({
    "probability": model.parameters["click_rate"]["probability"][0],
    "clicks": clicks.tolist(),
    "warnings": [[w.category.__name__, str(w.message)] for w in caught],
    "hits": sum(sum(k.stats.cache_hits.values()) for k in kernels if hasattr(k, "stats")),
    "kernels": len(kernels),
}))
"""


def start(folder: Path, home: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"GECASMO_CACHE_DIR": str(folder), "HOME": str(home)}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", CODE]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str]) -> dict:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    said = json.loads(out)
    assert said["probability"] == pytest.approx(0.4)
    assert said["clicks"] == pytest.approx([0.4] * 3)
    assert said["kernels"] == 2
    return said


def run(folder: Path, home: Path) -> dict:
    return finish(start(folder, home))


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, dict]:
    """A cache folder that two processes filled at the same time, and what they said."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "deep" / "cache"
    first, second = start(folder, home), start(folder, home)
    return folder, finish(first), finish(second)


def test_two_processes_at_once_both_succeed(warm) -> None:
    folder, first, second = warm
    assert first["warnings"] == second["warnings"] == []
    sources = sorted(folder.glob("kernel_*.py"))
    assert len(sources) == 2
    assert not list(folder.glob("*.tmp"))


def test_the_folder_is_private(warm) -> None:
    folder, _, _ = warm
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_second_process_compiles_nothing(warm) -> None:
    folder, _, _ = warm
    before = files(folder)
    assert any(name.endswith(".nbc") for name in before)
    said = run(folder, folder.parent)
    assert said["warnings"] == []
    assert said["hits"] == said["kernels"]
    assert files(folder) == before


def test_nothing_is_written_elsewhere(warm) -> None:
    folder, _, _ = warm
    home = folder.parents[1]
    assert {path.name for path in home.iterdir()} == {"deep"}


@pytest.mark.parametrize("damage", ["garbage", "truncate", "empty"])
def test_damaged_files_are_replaced(warm, tmp_path: Path, damage: str) -> None:
    import shutil

    folder = tmp_path / "cache"
    shutil.copytree(warm[0], folder)
    damaged = [*folder.rglob("*.nbi"), *folder.rglob("*.nbc")]
    assert len(damaged) >= 4
    for path in damaged:
        data = path.read_bytes()
        changed = {"garbage": b"\x80garbage" * 9, "truncate": data[: len(data) // 2], "empty": b""}
        path.write_bytes(changed[damage])
    said = run(folder, tmp_path)
    assert said["warnings"] == []
    assert said["hits"] == 0
    healed = run(folder, tmp_path)
    assert healed["warnings"] == []
    assert healed["hits"] == healed["kernels"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    said = run(tmp_path / "file" / "cache", tmp_path)
    assert [kind for kind, _ in said["warnings"]] == ["KernelCacheWarning"]
    message = said["warnings"][0][1]
    assert "Compiled kernels cannot be kept in" in message
    assert "This process compiles them for itself." in message
    assert "GECASMO_CACHE_DIR" in message
    assert (tmp_path / "file").read_text() == "not a folder"


def test_a_changed_source_file_is_written_again(warm, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "cache"
    shutil.copytree(warm[0], folder)
    for path in folder.glob("kernel_*.py"):
        path.write_text("raise SystemExit('somebody else wrote this')\n")
    assert run(folder, tmp_path)["warnings"] == []
    assert not any("somebody" in path.read_text() for path in folder.glob("kernel_*.py"))


@pytest.mark.parametrize("below", ["", "__pycache__"])
def test_a_folder_open_to_others_is_not_trusted(below: str, warm, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "cache"
    shutil.copytree(warm[0], folder)
    (folder / below).chmod(0o777)
    answer = run(folder, tmp_path)
    assert any("others can write to" in text for _, text in answer["warnings"])
    assert stat.S_IMODE((folder / below).stat().st_mode) == 0o777  # it is not ours to close


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GECASMO_CACHE_DIR", str(tmp_path / "chosen"))
    assert cache_folder() == tmp_path / "chosen"
    monkeypatch.delenv("GECASMO_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "gecasmo"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "gecasmo"


def test_a_folder_of_somebody_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from gecasmo.kernels import cache

    monkeypatch.setattr(cache.os, "getuid", lambda: 12345)
    with pytest.raises(OSError, match="belongs to another user"):
        cache._check_private(tmp_path)
