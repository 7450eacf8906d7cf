"""Which parameters a log can tell apart, and which not, by the rank of its scores.

Two questions, one tool. *Could any log tell?* Pages of the log are put in random order and given
simulated clicks; what still cannot be told apart is a matter of the model and its keys. *Can this
log tell?* The same for the pages as they are. What cannot be told apart are the directions in which
the matrix of scores is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.checks.findings import Findings, summed_up
from gecasmo.checks.scores import Parameters, parameters_of, random_probabilities, score_results
from gecasmo.checks.subject import MOST_LOOKS, PageSample, begin, shuffled
from gecasmo.encoding import Rows
from gecasmo.errors import either
from gecasmo.logs import ClickLog
from gecasmo.model import Model
from gecasmo.report import counted, listed

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_IDEAL_PAGES = 300
_MOST_OF = 0.9

# Relative to the largest singular value, with columns of unit length.
_ZERO = 1e-7
_SILENT = 1e-9


@dataclass(frozen=True)
class Tangle:
    """Coins that no log can tell apart while none of their rows is given.

    `is_product` if only the product of their probabilities matters.
    """

    coins: tuple[str, ...]
    is_product: bool
    dimension: int


@dataclass(frozen=True)
class Looked:
    """The null space of a sample, with what its columns mean."""

    space: NullSpace
    parameters: Parameters
    probabilities: Floats


def find_tangles(model: Model, log: ClickLog, seed: int) -> list[Tangle]:
    """Coins that cannot be told apart however the results of these pages are arranged."""
    ideal = ideal_log(model, log, seed)
    looked = look(model, ideal, seed, everything_free=True)
    loud = np.setdiff1d(np.arange(len(looked.parameters.names)), looked.space.silent)
    by_coins: dict[tuple[str, ...], list[Block]] = {}
    for block in looked.space.blocks:
        by_coins.setdefault(coins_of(block, looked.parameters), []).append(block)
    tangles = []
    for coins, blocks in by_coins.items():
        inside = np.concatenate([block.columns for block in blocks])
        # Blocks of a few rows only come from pages too few to meet them often.
        if all(
            np.isin(_columns_of(coin, loud, looked.parameters), inside).mean() >= _MOST_OF
            for coin in coins
        ):
            is_product = all(_is_product(block, looked) for block in blocks)
            tangles.append(Tangle(coins, is_product, sum(block.dimension for block in blocks)))
    return tangles


def ideal_log(model: Model, log: ClickLog, seed: int) -> ClickLog:
    """Some pages of a log with their results in random order and simulated clicks."""
    looks = np.cumsum(log.lengths**2)
    n_pages = max(1, min(_IDEAL_PAGES // 2, int(np.searchsorted(looks, MOST_LOOKS // 2))))
    part = log.take(np.arange(min(n_pages, log.n_sessions)))
    affordable = 2 * MOST_LOOKS // int((part.lengths**2).sum())
    copies = int(np.clip(min(_IDEAL_PAGES // part.n_sessions, affordable), 2, 60))
    pages = shuffled(part, copies, seed)
    twin = model.copy()
    twin.states_ = begin(model, model.encode(pages, "e_step").rows)
    simulated: ClickLog = twin.simulate(pages, seed=seed)
    return simulated


def look(model: Model, log: ClickLog, seed: int, *, everything_free: bool = False) -> Looked:
    """The null space of the scores of a small log, at probabilities in the middle of nowhere."""
    kept: list[Floats] = []

    def probabilities(rows: Sequence[Rows]) -> list[Floats]:
        found, _ = random_probabilities(model, rows, seed, everything_free=everything_free)
        kept.extend(found)
        return found

    scores = score_results(model, log, probabilities)
    _, states = random_probabilities(model, scores.rows, seed, everything_free=everything_free)
    parameters = parameters_of(model, scores.rows, states, everything_free=everything_free)
    # At a generic point, how often a page occurs does not matter: only whether it does.
    space = null_space(scores.matrix @ parameters.design)
    at = np.concatenate([np.zeros(0), *kept]) @ parameters.design
    return Looked(space, parameters, at)


def check_identified(
    model: Model,
    sample: PageSample,
    looked: Looked,
    tangles: Sequence[Tangle],
    n_rows: Sequence[int],
) -> Findings:
    """What the pages of the sample cannot tell apart, beyond what no log could tell.

    `n_rows` is the number of rows of each coin in the whole log.
    """
    part = Findings()
    parameters = looked.parameters
    where = "in this log" if sample.is_whole else f"on {counted(sample.n_pages, 'page')} looked at"
    lines, others = [], []
    for block in looked.space.blocks:
        coins = coins_of(block, parameters)
        is_known = any(set(coins) <= set(tangle.coins) for tangle in tangles)
        lines.append(
            {
                "coins": ", ".join(coins),
                "parameters": len(block.columns),
                "free_directions": block.dimension,
                "first_of_them": "; ".join(parameters.names[c] for c in block.columns[:2]),
                "because": "only together, in any log" if is_known else "of the pages shown",
            }
        )
        if not is_known:
            others.append(block)
    if lines:
        part.tables["not_identified"] = pl.DataFrame(lines)
    part.facts |= {
        "free_directions": looked.space.dimension,
        "pages_looked_at": sample.n_pages,
        "looked_at_all": sample.is_whole,
    }
    local: list[Block] = []
    if not sample.is_whole:
        # Rows of single things may be told apart by the pages that were not looked at.
        touching = [_touches_shared(block, model, parameters, n_rows) for block in others]
        local = [block for block, touches in zip(others, touching, strict=True) if not touches]
        others = [block for block, touches in zip(others, touching, strict=True) if touches]
    if others:
        dimension = sum(block.dimension for block in others)
        part.add(
            "warning" if sample.is_whole else "info",
            "identified",
            f"{counted(sum(len(block.columns) for block in others), 'parameter')} of "
            f"{model.name} cannot be told apart {where}: {counted(dimension, 'combination')} of "
            "them can be moved without changing the probability of any click.",
            count=dimension,
            examples=[describe(block, parameters) for block in others[:3]],
            advice="More pages with these rows in other surroundings, fewer rows (a coarser key), "
            f"or giving some of them with Table(fixed=...){either('', ' in Python')} would help.",
        )
    elif not local:
        besides = ", beside the products named above" if looked.space.blocks else ""
        part.add(
            "info",
            "identified",
            f"All {len(parameters.names) - len(looked.space.silent):,} parameters of {model.name} "
            f"that are flipped {where} can be told apart{besides}, given enough of such pages.",
        )
    if local:
        dimension = sum(block.dimension for block in local)
        part.add(
            "info",
            "identified",
            f"{counted(sum(len(block.columns) for block in local), 'parameter')} of {model.name}, "
            f"all of single rows, cannot be told apart {where} "
            f"({counted(dimension, 'free direction')}); other pages of the log may tell.",
            count=dimension,
        )
    if parameters.opaque:
        part.add(
            "info",
            "identified",
            f"{listed(parameters.opaque)}: the form does not say what it estimates, so it was held "
            "fixed in this part of the check.",
        )
    return part


def describe(block: Block, parameters: Parameters, most: int = 4) -> str:
    """A block in words: who goes up while who goes down."""
    names = [parameters.names[column] for column in block.columns]
    if block.dimension > 1 or len(names) > 2 * most:
        return f"{summed_up(names, most)} ({counted(block.dimension, 'free direction')})"
    direction = block.directions[0] * np.sign(block.directions[0][0])
    sides = [
        [name for name, way in zip(names, direction, strict=True) if way * sign > 0]
        for sign in (1, -1)
    ]
    return listed(
        f"{summed_up(side)} {word}"
        for side, word in zip(sides, ("up", "down"), strict=True)
        if side
    )


def coins_of(block: Block, parameters: Parameters) -> tuple[str, ...]:
    """The coins that take part in a block, in the order of the model."""
    return tuple(dict.fromkeys(coin for c in block.columns for coin in parameters.coins[c]))


def _columns_of(coin: str, columns: NDArray[np.int64], parameters: Parameters) -> NDArray[np.int64]:
    return np.array([c for c in columns if coin in parameters.coins[c]], np.int64)


def _is_product(block: Block, looked: Looked) -> bool:
    """Whether a block is a common factor that some coins can hand to others.

    Multiplying a probability p by a factor f moves its logit by log(f) / (1 - p), about.
    """
    if block.dimension != 1:
        return False
    factor = block.directions[0] * (1 - looked.probabilities[block.columns])
    return bool(np.ptp(np.abs(factor)) < 1e-4 * np.abs(factor).max() and np.ptp(factor) > 0)


def _touches_shared(
    block: Block, model: Model, parameters: Parameters, n_rows: Sequence[int]
) -> bool:
    """Whether a block has a part in a coin with few rows, which the whole log shares."""
    sizes = dict(zip(model.forms, n_rows, strict=True))
    return any(sizes[coin] <= 100 for coin in coins_of(block, parameters))


@dataclass(frozen=True)
class Block:
    """Parameters that can only be moved together without anybody noticing.

    `columns` are their numbers; there are `dimension` independent ways to move them, the rows of
    `directions`.
    """

    columns: Integers
    dimension: int
    directions: Floats


@dataclass(frozen=True)
class NullSpace:
    """`silent` columns take no part in any score; `blocks` hold the other zero directions."""

    silent: Integers
    blocks: tuple[Block, ...]

    @property
    def dimension(self) -> int:
        """The number of zero directions among the columns that are not silent."""
        return sum(block.dimension for block in self.blocks)


def null_space(matrix: Floats) -> NullSpace:
    """The zero directions of a matrix with a column per parameter, split into blocks."""
    from scipy.sparse.csgraph import connected_components

    length = np.sqrt((matrix**2).sum(axis=0))
    loud = np.flatnonzero(length > _SILENT)
    silent = np.flatnonzero(length <= _SILENT)
    if not len(loud):
        return NullSpace(silent, ())
    unit = matrix[:, loud] / length[loud]
    if len(unit) < len(loud):
        unit = np.concatenate([unit, np.zeros((len(loud) - len(unit), len(loud)))])
    # The triangle of a QR decomposition has the same singular values, and is smaller.
    _, values, vectors = np.linalg.svd(np.linalg.qr(unit, mode="r"))
    zero = vectors[values <= _ZERO * max(values[0], 1e-300)]
    if not len(zero):
        return NullSpace(silent, ())
    together = zero.T @ zero
    _, number = connected_components(np.abs(together) > 1e-6, directed=False)
    blocks = []
    for label in np.unique(number):
        members = np.flatnonzero(number == label)
        dimension = round(float(np.trace(together[np.ix_(members, members)])))
        if dimension == 0:
            continue
        _, vectors_here = np.linalg.eigh(together[np.ix_(members, members)])
        directions = vectors_here[:, -dimension:].T / length[loud[members]]
        blocks.append(Block(loud[members], dimension, directions))
    blocks.sort(key=lambda block: -len(block.columns))
    return NullSpace(silent, tuple(blocks))
