"""Models that tell more than clicks are scored by what they say of the clicks."""

from __future__ import annotations

from gecasmo.compiler.hide import hide
from gecasmo.encoding.observations import LAST_CLICK
from gecasmo.kernels.library import Structure
from gecasmo.model.base import Model


def other_signals(model: Model) -> tuple[str, ...]:
    """What a model's answers are about beside clicks, such as purchases."""
    return tuple(name for name in model.structure.traced.signals if name != "click")


def clicks_only(model: Model) -> Model:
    """A copy that answers as if nobody saw any signal but clicks; the model itself if it has none.

    Its log-likelihood is log P(clicks), the sum over all that the other signals may have been, and
    so comparable with that of models which know clicks only.
    """
    others = other_signals(model)
    if not others:
        return model
    twin = model.copy()
    counting = model.counting_structure
    twin._structures = (Structure(hide(counting.traced, (*others, LAST_CLICK))), counting)
    twin._libraries = {}
    return twin
