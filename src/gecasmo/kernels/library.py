"""The kernels of one model: sources on demand, compiled on demand, run on threads."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import numpy as np

from gecasmo.compiler import Automaton, Staircase, full, minimal
from gecasmo.compiler.hide import hide_where_unobserved, hide_where_unrecorded
from gecasmo.compiler.prune import prune
from gecasmo.errors import ModelError
from gecasmo.kernels import page
from gecasmo.kernels.cache import compiled_kernel, plain_kernel
from gecasmo.kernels.e_step import (
    draw_source,
    e_step_arguments,
    e_step_source,
    is_small,
    scaled_draw_source,
    scaled_source,
)
from gecasmo.kernels.machine import Machine, lower
from gecasmo.kernels.machine_code import Kernel
from gecasmo.kernels.packing import Packing
from gecasmo.kernels.plan import Plan

# Those that count flips, on the automaton that fits run on.
COUNTING_KERNELS = ("e_step", "e_step_scaled", "draw", "draw_scaled")
# Those that tell of all flips that a program makes.
FULL_KERNELS = ("smooth", "decode", "sample", "stories", "expected", "chains")
KERNELS = (*COUNTING_KERNELS, "filter", "marginal", *FULL_KERNELS)
# Those that walk over click histories, since no clicks are known to them.
LIFTED_KERNELS = ("marginal", "sample", "expected", "chains")


# Signals that are not recorded everywhere, and numbers that are there; see `Structure.of_log`.
LogColumns = tuple[tuple[str, ...], tuple[str, ...] | None]


class Structure:
    """An automaton with everything that follows from it alone: staircases and machines."""

    def __init__(self, traced: Automaton) -> None:
        self.traced = prune(traced)
        self._of_logs: dict[LogColumns, Structure] = {((), None): self}

    def of_log(
        self, unrecorded: tuple[str, ...], observed: tuple[str, ...] | None = None
    ) -> Structure:
        """The same for logs that have not recorded some signals everywhere, and have numbers in
        these columns of those that users are seen through. None: whatever is drawn from densities
        is all there, as for simulated users."""
        if not self.traced.observes:
            observed = None
        if (unrecorded, observed) not in self._of_logs:
            automaton = hide_where_unrecorded(self.traced, unrecorded)
            if observed is not None:
                automaton = hide_where_unobserved(automaton, observed)
            self._of_logs[unrecorded, observed] = Structure(automaton)
        return self._of_logs[unrecorded, observed]

    @cached_property
    def minimal(self) -> Staircase:
        """The smallest automata with the same likelihood, by distance from the end of a page."""
        return minimal(self.traced)

    @cached_property
    def full(self) -> Staircase:
        """The automaton that counts every flip of the program."""
        return full(self.traced)

    @cached_property
    def _machines(self) -> dict[tuple[str, bool], Machine]:
        return {}

    def machine(self, augmentation: str, with_missing: bool = False) -> Machine:
        """The numbers behind the "minimal" or the "full" automaton."""
        if augmentation not in ("minimal", "full"):
            raise ModelError(f"augmentation={augmentation!r}: choose 'minimal' or 'full'.")
        key = (augmentation, with_missing)
        if key not in self._machines:
            staircase = self.minimal if augmentation == "minimal" else self.full
            self._machines[key] = lower(staircase, with_missing)
        return self._machines[key]


# Whether kernels are compiled; `gecasmo.testing.plain_python` turns it off for a while.
compiling: ContextVar[bool] = ContextVar("compiling", default=True)


class Library:
    """Kernels for one structure under one plan.

    `compiled=False` runs the generated source as plain Python, which gives the same numbers;
    None leaves it to `compiling`.
    """

    def __init__(self, structure: Structure, plan: Plan, compiled: bool | None = None) -> None:
        self.structure = structure
        self.plan = plan
        self.compiled = compiled
        self._kernels: dict[tuple[Any, ...], Kernel] = {}

    def machine(
        self, kernel: str, augmentation: str = "minimal", with_missing: bool = False
    ) -> Machine:
        """The machine that a kernel runs on."""
        if kernel in FULL_KERNELS:
            augmentation = "full"
        return self.structure.machine(augmentation, with_missing)

    def source(self, kernel: str, augmentation: str = "minimal", with_missing: bool = False) -> str:
        """The generated source of a kernel."""
        machine = self.machine(kernel, augmentation, with_missing)

        def full() -> Automaton:
            return self.structure.full.body

        writers: dict[str, Callable[[], str]] = {
            "e_step": lambda: e_step_source(machine, self.plan),
            "e_step_scaled": lambda: scaled_source(machine, self.plan),
            "draw": lambda: draw_source(machine, self.plan),
            "draw_scaled": lambda: scaled_draw_source(machine, self.plan),
            "filter": lambda: page.Filter(machine, self.plan).source(),
            "marginal": lambda: page.Marginal(machine, self.plan).source(),
            "smooth": lambda: page.Smooth(machine, self.plan, full()).source(),
            "decode": lambda: page.Decode(machine, self.plan).source(),
            "sample": lambda: page.Sample(machine, self.plan).source(),
            "stories": lambda: page.Stories(machine, self.plan).source(),
            "expected": lambda: page.Expected(machine, self.plan, full()).source(),
            "chains": lambda: page.PageChains(machine, self.plan, full()).source(),
        }
        if kernel not in writers:
            raise ModelError(f"There is no kernel {kernel!r}; there are {', '.join(KERNELS)}.")
        return writers[kernel]()

    def get(
        self, kernel: str, arguments: list[Any], augmentation: str, with_missing: bool
    ) -> Kernel:
        """A kernel ready to be called with such arguments; it writes into the arrays it gets."""
        is_compiled = compiling.get() if self.compiled is None else self.compiled
        types = [a.dtype for a in arguments if isinstance(a, np.ndarray)]
        key = (kernel, augmentation, with_missing, is_compiled, *types)
        if key not in self._kernels:
            source = self.source(kernel, augmentation, with_missing)
            name = kernel.removesuffix("_scaled")
            packing = self._packing(kernel, augmentation, with_missing)
            if packing is not None:
                arguments = packing.arguments(arguments)
            if is_compiled:
                made = compiled_kernel(source, name, arguments)
            else:
                made = plain_kernel(source, name)
            self._kernels[key] = made if packing is None else packing.around(made)
        return self._kernels[key]

    def _packing(self, kernel: str, augmentation: str, with_missing: bool) -> Packing | None:
        """What goes between a kernel and its callers, if it loops and has many coins."""
        is_counting = kernel in COUNTING_KERNELS
        is_spelt_out = kernel in ("e_step", "draw") and self.is_small(augmentation, with_missing)
        if not self.plan.packed or is_spelt_out:
            return None
        listed = e_step_arguments(self.plan) if is_counting else page.page_arguments(self.plan)
        machine = self.machine(kernel, augmentation, with_missing)
        n_first = min(n for n, name in enumerate(listed) if name.startswith("W"))
        return Packing(machine, self.plan, n_first, is_counting)

    def is_small(self, augmentation: str, with_missing: bool) -> bool:
        """Whether the fast E-step is spelt out, and so may leave pages to the scaled one."""
        return is_small(self.structure.machine(augmentation, with_missing))


def observation_dtype(machine: Machine) -> type[np.unsignedinteger[Any]]:
    """The smallest integers that can number the machine's observations."""
    sizes: tuple[type[np.unsignedinteger[Any]], ...] = (np.uint8, np.uint16, np.uint32)
    return next(size for size in sizes if machine.n_observations <= np.iinfo(size).max + 1)
