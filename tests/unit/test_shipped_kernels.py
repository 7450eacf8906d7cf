"""Kernels that come with the package: used where they fit, compiled again where they do not."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numba
import numpy as np
import pytest
from llvmlite import binding

from gecasmo import DBN
from gecasmo.estimation import Expectation
from gecasmo.estimation.coins import as_weights
from gecasmo.kernels import cache
from gecasmo.kernels.shipped import SMALL, ShippedJob, ship
from gecasmo.testing.subject import random_log

SOURCE = """
import math
import numpy as np
def total(x, table, factor, flag, out):
    scratch = np.empty(len(x))
    for i in range(len(x)):
        scratch[i] = math.log(x[i]) * factor
    for i in range(len(x)):
        out[0] += scratch[i] + table[i % table.shape[0], 1] + flag
"""


@pytest.fixture
def machine(compiled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A package with one kernel, on a machine that has compiled nothing. Asks for the kernel, and
    tells the answer, whether it came from a file, and how many files the user has."""
    monkeypatch.setenv("GECASMO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "SHIPPED", tmp_path / "shipped")
    cache.suits.cache_clear()
    (tmp_path / "shipped" / cache.family()).mkdir(parents=True)

    def ask(strided: bool = False) -> tuple[float, bool, int]:
        monkeypatch.setattr(cache, "_compiled", {})
        monkeypatch.setattr(cache, "_called", {})
        x = np.arange(1.0, 21.0)
        table = np.arange(6.0).reshape(2, 3).T if strided else np.arange(6.0).reshape(3, 2)
        arguments = [x, table, 2.0, True, np.zeros(1)]
        kernel = cache.compiled_kernel(SOURCE, "total", arguments)
        kernel(*arguments)
        own = list((tmp_path / "cache").rglob("*.kernel"))
        return float(arguments[-1][0]), kernel.is_from_file, len(own)

    monkeypatch.setattr(cache, "shipment", cache.Shipment(tmp_path / "shipped", set()))
    answer, *rest = ask()
    assert rest == [False, 0]
    monkeypatch.setattr(cache, "shipment", None)
    yield ask, answer, next((tmp_path / "shipped").rglob("*.kernel"))
    cache.suits.cache_clear()


def test_a_shipped_kernel_is_used_and_nothing_is_written(machine) -> None:
    ask, answer, _ = machine
    wanted = 2 * np.log(np.arange(1.0, 21.0)).sum() + sum(1 + 2 * (i % 3) for i in range(20)) + 20
    assert answer == pytest.approx(wanted, rel=1e-14)
    assert ask() == (answer, True, 0)


def test_one_for_other_arguments_is_compiled(machine) -> None:
    ask, *_ = machine
    assert ask(strided=True)[1:] == (False, 1)
    assert ask(strided=True)[1:] == (True, 1)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_a_damaged_one_is_compiled_again(machine, damage: str) -> None:
    ask, answer, path = machine
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        flipped = whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]
        path.write_bytes({"flip": flipped, "cut": whole[:-1], "empty": b""}[damage])
    assert ask() == (answer, False, 1)
    assert ask() == (answer, True, 1)  # from the folder of the user


def test_one_that_was_sealed_for_another_kernel_is_not_loaded(machine) -> None:
    ask, answer, path = machine
    other = cache.SealedFile(path.parent, cache.family(), "another source", is_private=False)
    other.keep(path.read_bytes()[32:])
    other.path.rename(path)
    assert ask() == (answer, False, 1)


def test_an_older_processor_compiles(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, answer, _ = machine
    able = binding.get_host_cpu_features()
    assert cache.suits() == all(able.get(name) for name in cache.level().features.split())
    cache.suits.cache_clear()
    monkeypatch.setattr(cache, "_LEVELS", {cache._machine(): cache.Level("x86-64-v3", "mmx-128")})
    assert not cache.suits()
    assert ask() == (answer, False, 1)


def test_another_kind_of_machine_compiles(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, answer, _ = machine
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "riscv64" in cache.family()
    assert ask() == (answer, False, 1)


@pytest.mark.parametrize("name", ["CPU_NAME", "BOUNDSCHECK"])
def test_what_numba_is_told_keeps_kernels_apart(machine, monkeypatch, name: str) -> None:
    ask, answer, _ = machine
    monkeypatch.setattr(numba.config, name, {"CPU_NAME": "generic", "BOUNDSCHECK": 1}[name])
    assert ask() == (answer, False, 1)
    assert ask() == (answer, True, 1)


def test_an_e_step_made_for_all_machines_counts_as_one_made_for_this(
    compiled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Bit by bit: no step is done in another order where more fits into a register."""
    before = dict(os.environ)
    assert ship(tmp_path / "shipped", [ShippedJob("DBN", SMALL, False)], processes=1) == 1
    assert dict(os.environ) == before
    monkeypatch.setenv("GECASMO_CACHE_DIR", str(tmp_path / "cache"))
    model = DBN()
    log = random_log(model, [10] * 200, seed=3, n_docs=30, click_rate=0.2)
    encoded = model.encode(log, "e_step")
    rng = np.random.default_rng(0)
    weights = [as_weights(rng.uniform(0.05, 0.95, len(rows))) for rows in encoded.rows]
    found = []
    for folder in ("shipped", "nothing"):
        monkeypatch.setattr(cache, "SHIPPED", tmp_path / folder)
        monkeypatch.setattr(cache, "_compiled", {})
        monkeypatch.setattr(cache, "_called", {})
        library = DBN().library(encoded.plan, counting=True)
        counts = Expectation(encoded, library, threads=1).run(weights)
        (kernel,) = cache._compiled.values()
        assert kernel.is_from_file == (folder == "shipped" and cache.suits())
        found.append([counts.log_likelihood, *counts.tables])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
