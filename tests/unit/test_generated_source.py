"""Generated source holds integers and fixed names, whatever people call their coins."""

from __future__ import annotations

import ast

import pytest
from unit_examples import Buyer, Mixture

from gecasmo import DBN, UBM, ClickModel, Parameter, flip
from gecasmo.kernels.library import KERNELS
from gecasmo.models import CATALOGUE
from strategies.zoo import SHAPES

NASTY = 'x"\n"""\nimport os  # \\ \' {0} \r\x0c\u2028'


def executable(source: str) -> str:
    """What is left without comments."""
    return ast.unparse(ast.parse(source))


def dbn_with_names(a: str, b: str, c: str, title: str, key: str, signal: str) -> ClickModel:
    """The same structure under other names."""

    def browse(self, user, result):
        if flip(getattr(self, a)):
            user.emit(signal)
            if result_guard(result) and flip(getattr(self, b)):
                return user.leave()
        if not flip(getattr(self, c)):
            user.leave()
        return None

    def result_guard(result):
        return bool(getattr(result, key))

    coins = {a: Parameter("query", key), b: Parameter("query", key), c: Parameter()}
    return type(title, (ClickModel,), {**coins, "browse": browse})()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("model", [DBN, UBM, Mixture, Buyer])
def test_source_is_python_and_says_what_it_is(kernel: str, model: type[ClickModel]) -> None:
    source = model().source(kernel)
    assert source.startswith(f"# {kernel} of {model.__name__}\n")
    for number, coin in enumerate(model().forms):
        assert f"# coin {number}: {coin} (" in source
    functions = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert kernel.removesuffix("_scaled") in functions


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("augmentation", ["minimal", "full"])
def test_names_never_reach_the_executable_part(kernel: str, augmentation: str) -> None:
    harmless = dbn_with_names("a", "b", "c", "Plain", "shop", "sale")
    odd = [f"{NASTY}{n}" for n in range(5)]
    nasty = dbn_with_names(*odd[:3], "Nasty'''\"", odd[3], odd[4])
    sources = [model.source(kernel, augmentation) for model in (harmless, nasty)]
    assert executable(sources[0]) == executable(sources[1])
    # Not even as comments below the legend:
    assert sources[0].split("\n\n", 1)[1] == sources[1].split("\n\n", 1)[1]


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_user_name_appears_outside_of_the_legend(kernel: str) -> None:
    marked = dbn_with_names("zebra_a", "zebra_b", "zebra_c", "Zebra", "zebra_key", "zebra_signal")
    legend, body = marked.source(kernel).split("\n\n", 1)
    assert all(line.startswith("#") for line in legend.splitlines())
    assert "zebra" in legend
    assert "zebra" not in body.lower()


def test_only_numbers_and_fixed_names_are_used() -> None:
    for model in map(CATALOGUE.get, SHAPES):
        for kernel in KERNELS:
            tree = ast.parse(model().source(kernel))
            texts = [
                node.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]
            docstrings = [
                ast.get_docstring(n, clean=False)
                for n in tree.body
                if isinstance(n, ast.FunctionDef)
            ]
            assert set(texts) <= set(docstrings), (model, kernel)
            imported = [
                a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names
            ]
            assert set(imported) <= {"numpy", "math", "numba"}


def test_an_unknown_kernel() -> None:
    with pytest.raises(ValueError, match="There is no kernel 'g_step'; there are e_step"):
        DBN().source("g_step")


def test_full_augmentation_is_another_source() -> None:
    assert DBN().source("e_step") != DBN().source("e_step", "full")
