"""Second derivatives at rows' means: how numbers that all pages share hang together with each
other, and with every row.

Each shared number is moved a little and pages are run again. Where results have nothing to do with
each other (one state, as in PBM and UBM), the numbers of one coin can be moved all at once: a
result has heard of one of them only, and which one it was is known. So a coin by rank and last
click takes one run over pages taken apart in place of fifty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.encoded import Apart
from gecasmo.estimation.expectation import Counts, Expectation
from gecasmo.forms import FormState
from gecasmo.kernels.threads import in_threads

if TYPE_CHECKING:
    from gecasmo.estimation.posteriors.joint import RowCoin, Shared

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STEP = 0.05  # by how much numbers are moved, in logits
# A run over pages taken apart costs as much as so many others.
_APART = 12


@dataclass
class Curvature:
    """Second derivatives at rows' means: of shared numbers, `[number, number]`, and of each coin's
    rows with these, `[row, number]` for the rows `read`."""

    held: Floats
    rows: dict[int, tuple[Integers, Floats]]


def curvature_of(
    shared: Shared,
    states: Sequence[FormState],
    coins: Sequence[RowCoin],
    n_buckets: int,
    chunks: Sequence[tuple[Integers, Apart | None]],
) -> Curvature:
    """At these states; `chunks` are the pages of the first buckets and, if somebody keeps them,
    those pages taken apart."""
    kept = [(pages, apart) for pages, apart in chunks if apart is not None]
    is_worth = shared.size > _APART * (1 + len(shared.ties)) and len(kept) == len(chunks)
    if is_worth and stand_alone(shared, [coin.number for coin in coins]):
        return all_at_once(shared, states, coins, kept)
    return one_by_one(shared, states, coins, n_buckets)


def stand_alone(shared: Shared, rows: Iterable[int]) -> bool:
    """Whether every result has one number of each shared coin, and all that it says depends on
    nothing else on the page."""
    part = shared.problem
    expectation = part.expectation
    machine, plans = expectation.machine, expectation.encoded.plan.coins
    if type(expectation) is not Expectation or machine.n_states > 1 or any(machine.initial[1:]):
        return False
    if any(edge.literals for start in machine.initial for edge in start):
        return False
    is_plain = all(one.lag == 0 and one.row is None for one in machine.variables)
    tables = [n for n, *others in shared.ties if not others and part.coins[n].form.has_posterior]
    by_result = all(plans[number].scope == "result" for number in (*tables, *rows))
    return is_plain and by_result and len(tables) == len(shared.ties)


def one_by_one(
    shared: Shared, states: Sequence[FormState], coins: Sequence[RowCoin], n_buckets: int
) -> Curvature:
    """By moving one number after the other."""
    n, part = shared.size, shared.problem
    held = np.zeros((n, n))
    at = part.expectation.run(part.weights(states), n_buckets)
    score = shared.score(states, at)
    changes: dict[int, list[Floats]] = {coin.number: [] for coin in coins}
    read = {coin.number: _read(coin, at.tables[coin.number]) for coin in coins}
    for place in range(n):
        moved = shared.moved(states, np.eye(n)[place] * STEP)
        there = part.expectation.run(part.weights(moved), n_buckets)
        held[:, place] = (score - shared.score(moved, there)) / STEP
        for coin in coins:
            own, p = read[coin.number], states[coin.number].probability
            change = (there.tables[coin.number] - at.tables[coin.number])[:, own]
            changes[coin.number].append((change[1] - change.sum(axis=0) * p[own]) / STEP)
    rows = {
        number: (
            read[number],
            np.stack(own, axis=1) if own else np.zeros((len(read[number]), 0)),
        )
        for number, own in changes.items()
    }
    return Curvature((held + held.T) / 2, rows)


def all_at_once(
    shared: Shared,
    states: Sequence[FormState],
    coins: Sequence[RowCoin],
    chunks: Sequence[tuple[Integers, Apart]],
) -> Curvature:
    """By moving all numbers of a coin, where `stand_alone` allows it."""
    n, part = shared.size, shared.problem
    expectation = part.expectation
    plans, every = expectation.encoded.plan.coins, expectation.encoded.weight
    ties = [tie[0] for tie in shared.ties]
    starts = dict(zip(ties, np.cumsum([0, *shared.sizes]), strict=False))
    every_way = [states]
    for number, size in zip(ties, shared.sizes, strict=True):
        by = np.zeros(n)
        by[starts[number] : starts[number] + size] = STEP
        every_way.append(shared.moved(states, by))
    weights = [part.weights(there) for there in every_way]

    def run(chunk: tuple[Integers, Apart]) -> list[list[Floats]]:
        pages, apart = chunk
        return [
            expectation.run_apart(apart, expectation.weights_apart(apart, own), every[pages])[0]
            for own in weights
        ]

    told = in_threads(run, chunks)
    # The row of each coin at every place, and what all places say, way by way.
    row = {
        number: np.concatenate([apart.rows[plans[number].codes] for _, apart in chunks])
        for number in (*ties, *(coin.number for coin in coins))
    }
    said = [
        {number: np.concatenate([one[way][number] for one in told], axis=1) for number in row}
        for way in range(len(every_way))
    ]
    held = np.zeros((n, n))
    scores = [
        shared.score(there, _summed(said[way], row, states)) for way, there in enumerate(every_way)
    ]
    blocks: dict[int, list[Floats]] = {coin.number: [] for coin in coins}
    read = {}
    for coin in coins:
        n_rows = len(states[coin.number].probability)
        read[coin.number] = _read(coin, _by_row(said[0][coin.number], row[coin.number], n_rows))
    room, _ = shared.rooms(states)
    for way, number in enumerate(ties, start=1):
        start, size = starts[number], shared.sizes[way - 1]
        own = slice(start, start + size)
        # Of its own coin a number meets itself alone.
        held[own, own] = np.diag((scores[0] - scores[way])[own] / STEP)
        for other, n_other in zip(ties, shared.sizes, strict=True):
            if other != number:
                change = _slope(said, way, row, states, other)
                both = _sums(row[other], row[number], change, n_other, size)
                to = slice(starts[other], starts[other] + n_other)
                held[to, own] = -both * (room[to] > 0)[:, None]
        for coin in coins:
            change = _slope(said, way, row, states, coin.number)
            among = np.full(len(states[coin.number].probability), -1)
            among[read[coin.number]] = np.arange(len(read[coin.number]))
            place = among[row[coin.number]]
            seen = place >= 0
            blocks[coin.number].append(
                _sums(place[seen], row[number][seen], change[seen], len(read[coin.number]), size)
            )
    rows = {number: (read[number], np.hstack(own)) for number, own in blocks.items()}
    return Curvature((held + held.T) / 2, rows)


def _read(coin: RowCoin, table: Floats) -> Integers:
    """The rows of a coin that pages may have flipped."""
    found: Integers = coin.met[table.sum(axis=0)[coin.met] > 0]
    return found


def _slope(
    said: Sequence[Mapping[int, Floats]],
    way: int,
    row: Mapping[int, NDArray[np.unsignedinteger]],
    states: Sequence[FormState],
    number: int,
) -> Floats:
    """How what each place says of the logit of a coin's row changes with one way."""
    tails, heads = said[way][number] - said[0][number]
    p: Floats = states[number].probability[row[number]]
    found: Floats = (heads - (heads + tails) * p) / STEP
    return found


def _sums(line: NDArray, column: NDArray, values: Floats, n_lines: int, n_columns: int) -> Floats:  # type: ignore[type-arg]
    """The sums of values by line and column."""
    place = line.astype(np.int64) * n_columns + column
    sums = np.bincount(place, values, n_lines * n_columns).astype(np.float64, copy=False)
    return sums.reshape(n_lines, n_columns)


def _by_row(table: Floats, rows: NDArray[np.unsignedinteger], n_rows: int) -> Floats:
    return np.stack([np.bincount(rows, side, n_rows) for side in table])


def _summed(
    said: Mapping[int, Floats],
    row: Mapping[int, NDArray[np.unsignedinteger]],
    states: Sequence[FormState],
) -> Counts:
    """Counts by row."""
    tables = [np.zeros((2, 0)) for _ in states]
    for number, table in said.items():
        tables[number] = _by_row(table, row[number], len(states[number].probability))
    return Counts(tables, 0.0, 0)
