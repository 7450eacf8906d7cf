"""The paper's explicit mappings of CZM and UBM (its section 4.2), for pages of any length.

Three things differ from its text, which has slips there: the satisfaction of a click belongs to the
result just left (`lag`), the first result is looked at by everybody (`t0_fixed`), and a click at
position t leads to block t and to no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gecasmo.matrices.definition import BY_LAST_CLICK, check_length

Cells = Sequence[tuple[list[int], list[int]]]  # from, to: every pair of them


def czm(list_size: int = 10) -> dict[str, Any]:
    """The paper's CZM (DBN), which has 7 states whatever the length of a page.

    A state is (satisfied by the result before, examined, attracted): 0 is 000, 1 is 001, 2 is 010,
    3 is 011, the click, 4 is 100 and 5 is 101. State 6 is that of users who have gone.
    """
    check_length(list_size)
    skipped, clicked = 2, 3
    going_on, tired, satisfied = [2, 3], [0, 1], [4, 5]
    looked = [skipped, clicked]
    gamma = _parameter(
        7,
        var_type="session",
        t0_fixed=1,
        pos=[(looked, going_on)],
        neg=[(looked, tired)],
        fixed=[([clicked], satisfied)],
    )
    phi_s = _parameter(
        7,
        var_type="item",
        lag=1,
        t0_fixed=0,
        pos=[([clicked], satisfied)],
        neg=[([clicked], going_on + tired)],
        fixed=[([skipped], going_on + tired)],
    )
    phi_a = _parameter(
        7,
        var_type="item",
        pos=[([skipped], [1, 3]), ([clicked], [1, 3, 5])],
        neg=[([skipped], [0, 2]), ([clicked], [0, 2, 4])],
    )
    return {
        "model": "CZM",
        "states": 7,
        "list_size": list_size,
        "click_state": [clicked] * (list_size + 1),
        "initial_state": clicked,
        "absorbing_state": 6,
        "parameters": {"gamma": gamma, "phi_S": phi_s, "phi_A": phi_a},
    }


def ubm(list_size: int = 10) -> dict[str, Any]:
    """The paper's UBM, with 4 (T + 1) + 1 states for pages of T results.

    A block of four states for each last click t' from 0 to T: neither examined nor attracted,
    examined, attracted, and both, which is the click at t'. The compiler needs T + 1 of them.
    """
    check_length(list_size)
    blocks = [list(range(4 * click, 4 * click + 4)) for click in range(list_size + 1)]
    stay = {place: [(block, [block[p] for p in place]) for block in blocks] for place in _PLACES}
    click = [
        (block, [after[3] for after in blocks[number + 1 :]]) for number, block in enumerate(blocks)
    ]
    n_states = 4 * len(blocks) + 1
    phi_a = _parameter(n_states, var_type="item", pos=stay[(2,)] + click, neg=stay[(0, 1)])
    gamma = _parameter(
        n_states,
        var_type="pos",
        tie=BY_LAST_CLICK,
        pos=stay[(1,)] + click,
        neg=stay[(0, 2)],
    )
    return {
        "model": "UBM",
        "states": n_states,
        "list_size": list_size,
        "click_state": [block[3] for block in blocks],
        "initial_state": 3,
        "absorbing_state": n_states - 1,
        "parameters": {"phi_A": phi_a, "gamma": gamma},
    }


_PLACES = ((2,), (0, 1), (1,), (0, 2))  # attracted or not, examined or not, without a click


def _parameter(
    n_states: int,
    *,
    pos: Cells,
    neg: Cells,
    fixed: Cells = (),
    **fields: Any,
) -> dict[str, Any]:
    """A parameter with ones in these cells of its matrices."""
    for name, cells in (("pos_mat", pos), ("neg_mat", neg), ("fixed_mat", fixed)):
        matrix = np.zeros((n_states, n_states), dtype=int)
        for sources, targets in cells:
            matrix[np.ix_(sources, targets)] = 1
        if cells:
            fields[name] = matrix.tolist()
    return fields
