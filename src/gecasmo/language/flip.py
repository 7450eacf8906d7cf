"""`flip`, and the hook through which the compiler decides how each flip comes up."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from gecasmo.language.density import Density
from gecasmo.language.parameter import Parameter
from gecasmo.language.place import mistake


class Chooser(Protocol):
    """Whoever runs a program decides here what its flips and its guards are, and hears what it
    observes."""

    def flip(self, parameter: Parameter) -> bool:
        """Decide a flip of a coin."""

    def guard(self, column: str) -> bool:
        """Decide the value of a yes/no column."""

    def observe(self, column: str, density: Density, given: Any) -> None:
        """Hear that a number can be seen, and how it is spread."""


running: ContextVar[Chooser | None] = ContextVar("running", default=None)
# The user whose program is running: coins may have a row per hidden state.
present: ContextVar[Any] = ContextVar("present", default=None)


def flip(parameter: Parameter) -> bool:
    """Flip the coin `parameter`: True is heads. Each call is an independent flip.

    A model's program calls this; it only means something while the program is being compiled.
    """
    chooser = running.get()
    if chooser is None:
        raise mistake(
            "flip() only works inside the browse or start program of a model, "
            "which the compiler runs; to draw clicks use model.simulate(pages)."
        )
    if not isinstance(parameter, Parameter):
        kind = "a number" if isinstance(parameter, (int, float)) else f"{parameter!r}"
        raise mistake(
            f"flip() takes a Parameter of the model, not {kind}.\n"
            '  Perhaps: patience = Parameter("rank") in the class, then flip(self.patience)'
        )
    return chooser.flip(parameter.given(present.get()))
