"""Source of the E-step: expected heads and tails of every row, and the log-likelihood.

Four shapes, chosen from the machine and never from the model:

    one live state    the clicks above the last one are certain; only the tail is a chain
    several           backward over all states first, then the posterior forward
    looped            loops over matrices, dense or sparse, for machines with very many edges
    scaled            a plain scaled forward-backward that no page underflows

The first three are fast and unscaled. A page too unlikely for them (a long one, say) is flagged and
left to the last. `draw` has kernels that draw hidden paths instead, and count these.
"""

from __future__ import annotations

from gecasmo.kernels.e_step.chain import chain_source
from gecasmo.kernels.e_step.dense import Dense, is_dense
from gecasmo.kernels.e_step.draw import draw_source, scaled_draw_source
from gecasmo.kernels.e_step.live import can_be_live_source, live_source
from gecasmo.kernels.e_step.scaled import scaled_source
from gecasmo.kernels.e_step.sparse import Sparse
from gecasmo.kernels.e_step.text import e_step_arguments, is_small
from gecasmo.kernels.machine import Machine
from gecasmo.kernels.plan import Plan


def e_step_source(machine: Machine, plan: Plan) -> str:
    """The fastest shape that fits the machine."""
    if not is_small(machine):
        looped = Sparse(machine, plan)
        return (Dense(machine, plan) if is_dense(looped.matrices) else looped).source()
    if can_be_live_source(machine):
        return live_source(machine, plan)
    return chain_source(machine, plan)


__all__ = [
    "draw_source",
    "e_step_arguments",
    "e_step_source",
    "is_small",
    "scaled_draw_source",
    "scaled_source",
]
