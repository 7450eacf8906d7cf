"""What the package shows, what importing it does, and which module may know which."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import gecasmo
from gecasmo.models import CATALOGUE

ROOT = Path(gecasmo.__file__).parent

# From the bottom up: a module imports only what stands in its own layer or before it, at its top,
# inside functions and for type checkers alike. CONTRIBUTING.md shows these layers.
LAYERS = (
    ("errors",),
    ("files", "forks", "frames", "hashes", "parquet", "report"),
    ("language",),
    ("compiler",),
    ("kernels",),
    ("logs",),
    ("encoding",),
    ("forms",),
    ("estimation",),
    ("model",),
    ("matrices", "models"),
    ("evaluation",),
    ("simulation", "testing", "torch"),
    ("checks", "judgments", "pages"),
    ("spark",),
    ("plots",),
    ("browser", "experiments"),
    ("cli",),
)
LAYER = {name: number for number, layer in enumerate(LAYERS) for name in layer}
# Where a module knows a later layer all the same, and why. Nothing of it is imported before it is
# asked for.
UPWARD = {
    # Methods of a fitted model, where people look for answers; what makes them stands above.
    ("model/base.py", "evaluation"): "model.evaluate(log)",
    ("model/base.py", "judgments"): "model.judgments()",
    ("model/base.py", "pages"): "model.page_value(pages), best_page, what_if",
    ("model/base.py", "plots"): "model.plot",
    ("evaluation/comparison.py", "plots"): "comparison.plot",
    ("evaluation/fit_check.py", "plots"): "check.plot()",
    # Kernels that come with the package are those that fits turn out to need.
    ("kernels/shipped.py", "estimation"): "it runs E-steps",
    ("kernels/shipped.py", "testing"): "on random logs",
}
APART = [
    ("logs", "language"),
    ("logs", "compiler"),
    ("errors", "language"),
    ("forms", "logs"),
]


def unit(path: Path) -> str:
    """The folder or module of the package that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(nodes: Iterable[ast.AST]) -> set[str]:
    """The parts of the package that these nodes of a syntax tree import."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "gecasmo":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gecasmo."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("gecasmo.")}
    return found & set(LAYER)


def top_imports(path: Path) -> set[str]:
    """Parts of the package that a file imports when it is imported itself."""
    return imports(ast.parse(path.read_text(encoding="utf-8")).body)


def all_imports(path: Path) -> set[str]:
    """The same with what it imports inside functions, or for type checkers only."""
    return imports(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


MODULES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    own, name = unit(path), path.relative_to(ROOT).as_posix()
    upward = {other for other in all_imports(path) if LAYER[other] > LAYER[own]}
    assert upward == {other for file, other in UPWARD if file == name}, f"{name} knows {upward}"
    assert not upward & top_imports(path)


def classes() -> dict[str, list[tuple[Path, ast.ClassDef]]]:
    """Public classes of the package by their names."""
    found: dict[str, list[tuple[Path, ast.ClassDef]]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append((path, node))
    return found


def test_a_class_name_means_one_thing() -> None:
    assert not {name: found for name, found in classes().items() if len(found) > 1}


def test_public_methods_say_what_they_do() -> None:
    named = {name: found[0][1] for name, found in classes().items()}

    def is_told(owner: str, method: str) -> bool:
        """Whether a class or one that it derives from documents a method."""
        node = named.get(owner)
        if node is None:
            return False
        own = [f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == method]
        bases = [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]
        return any(map(ast.get_docstring, own)) or any(is_told(base, method) for base in bases)

    silent = [
        f"{name}.{method.name}"
        for name, node in named.items()
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        and not method.name.startswith("_")
        and not is_told(name, method.name)
    ]
    assert not silent


def test_the_layers_are_shown_to_contributors() -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    drawn = text.split("<!-- layers -->")[1]
    lines = [line.strip() for line in drawn.splitlines() if line.startswith("    ")]
    shown = [line.split("  ")[0].split() for line in lines]
    assert [set(layer) for layer in shown] == [set(layer) for layer in LAYERS]


def test_neighbours_that_must_not_know_each_other() -> None:
    for path in MODULES:
        for first, second in APART:
            assert not (unit(path) == first and second in top_imports(path)), path


def test_every_part_of_the_package_has_a_layer() -> None:
    assert {unit(path) for path in MODULES} == set(LAYER)


def test_the_catalogue_has_every_file_of_the_zoo() -> None:
    files = {path.stem for path in (ROOT / "models").glob("*.py")} - {"__init__"}
    modules = {model.__module__.rsplit(".", 1)[1] for model in CATALOGUE.values()}
    assert modules == files
    assert len(CATALOGUE) == len(files)


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_zoo_file_holds_a_program_and_nothing_else(name: str) -> None:
    model = CATALOGUE[name]
    own = {key for key in vars(model) if not key.startswith("__")}
    coins = {coin.partition("[")[0] for coin in model._parameters()} | model._densities().keys()
    assert own <= {*coins, "start", "browse", "next_page", "finish", "relevance", "view"}
    assert model.__doc__


NAMES = ["ClickModel", "Parameter", "flip", "EM", "Table", "Fixed", "ClickLog", "read_log", "load"]
ZOO = [
    "GCTR",
    "RCTR",
    "DCTR",
    "DRCTR",
    "PBM",
    "CM",
    "DCM",
    "SDBN",
    "DBN",
    "CZM",
    "CCM",
    "UBM",
    "CountingDCM",
    "CountingSDBN",
]


@pytest.mark.parametrize("name", NAMES + ZOO)
def test_public_names(name: str) -> None:
    assert name in gecasmo.__all__
    assert hasattr(gecasmo, name)


def test_all_names_exist_and_the_zoo_is_complete() -> None:
    assert all(hasattr(gecasmo, name) for name in gecasmo.__all__)
    assert set(CATALOGUE) <= set(gecasmo.__all__)
    assert gecasmo.CZM is gecasmo.DBN
    assert gecasmo.__version__ == "1.0.0.dev0"
    assert (ROOT / "py.typed").exists()


def test_importing_is_light_and_changes_nothing(tmp_path: Path) -> None:
    code = """
import json, os, sys, threading, warnings
import numpy, polars
filters, environment = list(warnings.filters), dict(os.environ)
threads = threading.active_count()
import gecasmo
heavy = [n for n in ("numba", "llvmlite", "scipy", "typer", "rich", "pandas", "pyarrow")
         if n in sys.modules]
print(json.dumps({
    "heavy": heavy,
    "filters": filters == list(warnings.filters),
    "environment": environment == dict(os.environ),
    "threads": threads == threading.active_count(),
}))
"""
    environment = os.environ | {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "xdg"),
        "GECASMO_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    said = json.loads(done.stdout)
    assert said == {"heavy": [], "filters": True, "environment": True, "threads": True}
    assert list(tmp_path.iterdir()) == []


def test_no_coverage_exemptions() -> None:
    assert not [path for path in MODULES if "pragma: no cover" in path.read_text()]
