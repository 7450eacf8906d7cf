"""What a release needs: lowest versions, metadata, packages that are not there, encodings."""

import ast
import mmap
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gecasmo import read_log
from gecasmo.estimation import packets

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def name_of(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0]


def test_the_lowest_versions_are_those_of_the_project():
    told = subprocess.run(
        [sys.executable, ROOT / ".ci" / "lowest.py"], capture_output=True, text=True, check=True
    )
    pinned = dict(line.split("==") for line in told.stdout.split())
    for requirement in PROJECT["project"]["dependencies"]:
        name = name_of(requirement)
        assert re.search(rf">={re.escape(pinned[name])}(,|$)", requirement), requirement
    assert set(pinned) - set(map(name_of, PROJECT["project"]["dependencies"])) == {"click"}


def test_the_extra_of_all_has_all_but_development():
    extras = dict(PROJECT["project"]["optional-dependencies"])
    (everything,) = extras.pop("all")
    extras.pop("dev")
    assert set(re.search(r"\[(.*)\]", everything)[1].split(",")) == set(extras)


def test_development_has_what_all_extras_need():
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {
        name_of(one) for name, some in extras.items() if name not in ("all", "dev") for one in some
    }
    wanted |= set(map(name_of, PROJECT["dependency-groups"]["test"]))
    assert wanted - set(map(name_of, extras["dev"])) == set()


def test_versions_agree():
    version = PROJECT["project"]["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    matrix = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    tried = re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", matrix)[1])
    prefix = "Programming Language :: Python :: 3."
    named = [
        one.split(" :: ")[-1] for one in PROJECT["project"]["classifiers"] if one.startswith(prefix)
    ]
    assert tried == named
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"


@pytest.mark.parametrize(("module", "extra"), [("gecasmo.torch", "torch")])
def test_a_package_that_is_not_there_is_an_import_error(module, extra):
    code = f"""
import sys
sys.modules["{extra}"] = None  # as if it were not installed
try:
    import {module}
except ImportError as error:
    print(error.name, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{extra} ")
    assert f'pip install "gecasmo[{extra}]"' in done.stdout


@pytest.mark.parametrize("can_be_removed", [True, False])
def test_no_file_is_mapped_where_it_could_not_be_removed(can_be_removed, tmp_path, monkeypatch):
    monkeypatch.setattr(packets, "_CAN_BE_REMOVED", can_be_removed)
    packets.write_packet(tmp_path / "a.packet", np.arange(5))
    array = packets.read_packet(tmp_path / "a.packet", is_mapped=True)
    base = array
    while getattr(base, "base", None) is not None or isinstance(base, memoryview):
        base = base.obj if isinstance(base, memoryview) else base.base
    assert array.tolist() == [0, 1, 2, 3, 4]
    assert isinstance(base, mmap.mmap) == can_be_removed


def test_parquet_is_read_where_nobody_tells_the_memory(tmp_path, monkeypatch):
    """As on Windows, which has no os.sysconf."""
    monkeypatch.delattr(os, "sysconf", raising=False)
    rows = {"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2], "click": [0, 1]}
    pl.DataFrame(rows).write_parquet(tmp_path / "log.parquet")
    assert read_log(tmp_path / "log.parquet").n_results == 2


def without_encoding(source: str) -> list[int]:
    """Lines that open, read or write text in whatever encoding the system has."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        words = [str(one.value) for one in given if isinstance(one, ast.Constant)]
        modes = [word for word in words if re.fullmatch(r"[rwax]b?\+?b?", word)]
        # Other things than paths have a method `open`; those are not called with a mode.
        is_opened = name == "open" and (isinstance(call.func, ast.Name) or bool(modes))
        is_text = name in ("read_text", "write_text") or (
            is_opened and not any("b" in mode for mode in modes)
        )
        if is_text and "encoding" not in {keyword.arg for keyword in call.keywords}:
            found.append(call.lineno)
    return found


def test_a_text_without_an_encoding_is_found():
    source = "p.read_text()\nopen(p)\nopen(p, 'rb')\np.open('w', encoding='utf-8')\np.open('w')"
    assert without_encoding(source) == [1, 2, 5]


def test_every_text_of_ours_is_utf_8():
    """On Windows the default is another encoding."""
    own = [path for part in ("src", "examples", ".ci") for path in (ROOT / part).rglob("*.py")]
    assert len(own) > 200
    wrong = {path.name: without_encoding(path.read_text(encoding="utf-8")) for path in own}
    assert {name: lines for name, lines in wrong.items() if lines} == {}
