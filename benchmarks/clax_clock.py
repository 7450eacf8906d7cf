"""A clock for CLAX's training, which knows when JAX compiles. Needs CLAX's own environment."""

from __future__ import annotations

import time
from typing import Any

import jax


class Clock:
    """Seconds between start and stop, those of compiling apart (as far as JAX reports them)."""

    def __init__(self) -> None:
        self.laps: list[float] = []
        self.compile_laps: list[float] = []
        self._began = 0.0
        self._compiled: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def start(self) -> None:
        self._compiled.clear()
        self._began = time.perf_counter()

    def stop(self) -> None:
        compiled = sum(end - began for began, end in self._compiled)
        self.laps.append(time.perf_counter() - self._began - compiled)
        self.compile_laps.append(compiled)

    def _note(self, event: str, seconds: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            end = time.perf_counter()
            while self._compiled and self._compiled[-1][0] >= end - seconds:
                self._compiled.pop()  # it was a part of this one
            self._compiled.append((end - seconds, end))
