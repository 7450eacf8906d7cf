"""Compiled kernels are kept in a folder of the user's own, and never stand in the way."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gecasmo.errors import KernelCacheWarning
from gecasmo.kernels import cache
from gecasmo.kernels.cache import cache_folder

MORE = int(os.environ.get("GECASMO_EXAMPLES", "1"))

# Fits the smallest model and reports numbers, warnings and how many kernels came from files.
CODE = """
import json, sys, warnings
import gecasmo
from gecasmo.kernels import cache
cache._shipped_file = lambda text, settings: None  # as where `make kernels` was not run
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
    "hits": sum(k.is_from_file for k in kernels),
    "kernels": len(kernels),
    "compiler": "numba" in sys.modules,
}))
"""


def start(folder: Path, home: Path) -> subprocess.Popen[str]:
    # Whoever sets anything of Numba's makes the package ask Numba what it means.
    own = {name: text for name, text in os.environ.items() if not name.startswith("NUMBA_")}
    environment = own | {"GECASMO_CACHE_DIR": str(folder), "HOME": str(home)}
    command = [sys.executable, "-c", CODE]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str]) -> dict:
    out, err = process.communicate(timeout=600)
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
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict]]:
    """A cache folder that several processes filled at the same time, and what they said."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "deep" / "cache"
    processes = [start(folder, home) for _ in range(2 if MORE == 1 else 16)]
    return folder, [finish(process) for process in processes]


def test_processes_that_begin_at_once_all_succeed(warm) -> None:
    folder, said = warm
    assert all(one["warnings"] == [] for one in said)
    assert len(list((folder / "kernels").glob("*.kernel"))) == 2
    assert not list(folder.rglob("*.tmp"))


def test_the_folder_is_private(warm, tmp_path: Path) -> None:
    folder = warm[0]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "kernels").stat().st_mode) == 0o700
    for path in (folder / "kernels").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_process_compiles_nothing(warm) -> None:
    folder = warm[0]
    before = files(folder)
    assert any(name.endswith(".kernel") for name in before)
    said = run(folder, folder.parent)
    assert said["warnings"] == []
    assert said["hits"] == said["kernels"]
    assert not said["compiler"]  # nor does it import what it would compile with
    assert files(folder) == before


def test_nothing_is_written_elsewhere(warm) -> None:
    home = warm[0].parents[1]
    assert {path.name for path in home.iterdir()} == {"deep"}


def test_damaged_files_are_replaced(warm, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    shutil.copytree(warm[0], folder)
    for path in folder.rglob("*.kernel"):
        path.write_bytes(damaged(path.read_bytes(), np.random.default_rng(0), "flip"))
    said = run(folder, tmp_path)
    assert said["warnings"] == []
    assert said["hits"] == 0
    healed = run(folder, tmp_path)
    assert healed["warnings"] == []
    assert healed["hits"] == healed["kernels"]


DAMAGES = ("flip", "zero", "truncate", "empty", "garbage", "longer")


def damaged(content: bytes, rng: np.random.Generator, damage: str) -> bytes:
    """A file with a few bytes changed, a stretch of zeros, an end cut off or another content."""
    numbers = np.frombuffer(content, np.uint8).copy()
    place = int(rng.integers(len(numbers)))
    if damage == "flip":
        chosen = rng.choice(len(numbers), int(rng.integers(1, 5)), replace=False)
        numbers[chosen] ^= rng.integers(1, 256, len(chosen)).astype(np.uint8)
    elif damage == "zero":
        begin = place // 2
        numbers[begin : begin + 1 + int(rng.integers(4096))] = 0
    elif damage == "longer":
        return content + content[place:] + b"\0"
    else:
        return {"truncate": content[:place], "empty": b"", "garbage": b"\x80garbage" * 9}[damage]
    return numbers.tobytes()


@pytest.fixture
def kept(compiled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Asks a new process, as far as kernels are concerned, for a kernel that adds up; says what it
    answers, whether it came from the folder, and where it is kept."""
    monkeypatch.setenv("GECASMO_CACHE_DIR", str(tmp_path / "cache"))
    source = "def add(x, out):\n    for i in range(len(x)):\n        out[0] += x[i]\n"

    def ask() -> tuple[float, bool, Path]:
        monkeypatch.setattr(cache, "_compiled", {})
        monkeypatch.setattr(cache, "_called", {})
        x, out = np.arange(10.0), np.zeros(1)
        kernel = cache.compiled_kernel(source, "add", (x, out))
        kernel(x, out)
        (path,) = (tmp_path / "cache" / "kernels").iterdir()
        return float(out[0]), kernel.is_from_file, path

    return ask


def test_nothing_of_a_damaged_file_is_loaded(kept) -> None:
    """About one in ten such files ended the process before there were checksums."""
    *_, path = kept()
    whole, rng = path.read_bytes(), np.random.default_rng(1)
    assert kept() == (45.0, True, path)
    for number in range(20 * MORE):
        path.write_bytes(damaged(whole, rng, DAMAGES[number % len(DAMAGES)]))
        assert kept() == (45.0, False, path)
        assert kept() == (45.0, True, path)


def test_no_file_stands_in_for_another(kept, warm, tmp_path: Path) -> None:
    *_, path = kept()
    other = next((warm[0] / "kernels").iterdir())
    shutil.copy(other, path)
    assert kept() == (45.0, False, path)


def test_links_and_files_of_others_are_not_loaded(kept, monkeypatch, tmp_path: Path) -> None:
    *_, path = kept()
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert kept() == (45.0, False, path)
    assert not path.is_symlink()
    path.chmod(0o666)
    assert kept() == (45.0, False, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = elsewhere.read_bytes()
    path.unlink()
    os.mkfifo(path)  # nobody would ever write into it
    assert kept() == (45.0, False, path)
    assert elsewhere.read_bytes() == before


def test_a_folder_that_others_can_read_is_closed(kept) -> None:
    *_, path = kept()
    path.parent.chmod(0o755)
    assert kept() == (45.0, True, path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_full_disk_costs_nothing_but_a_warning(kept, monkeypatch) -> None:
    def full(*_):
        raise OSError(28, "No space left on device")

    *_, path = kept()
    path.write_bytes(b"")
    monkeypatch.setattr(cache.os, "replace", full)
    monkeypatch.setattr(cache, "_warned", set())
    with pytest.warns(KernelCacheWarning, match="No space left"):
        assert kept() == (45.0, False, path)


def test_a_file_that_another_process_reads_may_stay(kept, monkeypatch) -> None:
    """Windows does not replace it; what is there is the same kernel, so nobody is warned."""

    def in_use(*_):
        raise PermissionError(13, "Access is denied")

    *_, path = kept()
    path.write_bytes(b"")
    monkeypatch.setattr(cache.os, "replace", in_use)
    monkeypatch.setattr(cache, "_warned", set())
    assert kept() == (45.0, False, path)
    path.unlink()
    with pytest.raises(ValueError, match="unpack"), pytest.warns(match="Access is denied"):
        kept()  # nothing is there, so its one file is not found


BEYOND = """
import numpy as np
from gecasmo.kernels import cache
x, out = np.arange(10.0), np.zeros(1)
kernel = cache.compiled_kernel("def read(x, out):\\n    out[0] = x[10]\\n", "read", (x, out))
try:
    kernel(x, out)
except IndexError:
    print("beyond", end=" ")
print(kernel.is_from_file)
"""


def test_kernels_that_check_every_index_have_files_of_their_own(tmp_path: Path) -> None:
    environment = os.environ | {"GECASMO_CACHE_DIR": str(tmp_path)}
    said = []
    for checked in ("", "1", "1", ""):
        environment |= {"NUMBA_BOUNDSCHECK": checked or "0"}
        told = subprocess.run(
            [sys.executable, "-c", BEYOND], env=environment, capture_output=True, text=True
        )
        assert told.returncode == 0, told.stderr
        said.append(told.stdout.strip())
    assert said == ["False", "beyond False", "beyond True", "True"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    said = run(tmp_path / "file" / "cache", tmp_path)
    assert [kind for kind, _ in said["warnings"]] == ["KernelCacheWarning"]
    message = said["warnings"][0][1]
    assert "Compiled kernels cannot be kept in" in message
    assert "This process compiles them for itself." in message
    assert "GECASMO_CACHE_DIR" in message
    assert (tmp_path / "file").read_text() == "not a folder"


@pytest.mark.parametrize("below", ["", "kernels"])
def test_a_folder_open_to_others_is_not_trusted(below: str, warm, tmp_path: Path) -> None:
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
    monkeypatch.setenv("GECASMO_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache.os, "getuid", lambda: 12345)
    with pytest.raises(OSError, match="belongs to another user"):
        cache._private_folder()
