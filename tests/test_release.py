"""What a release needs: lowest versions, metadata, packages that are not there, encodings."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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
