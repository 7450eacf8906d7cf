"""Put pages in order, and keep one of those that are the same in every way that counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.logs import ClickLog
from gecasmo.logs.hashing import Hashes, mix

Integers = NDArray[np.int64]
N_BUCKETS = 256
_FEW_PAGES = 50_000
_ODD = np.array([0x9E3779B97F4A7C15], np.uint64)


class Folded(NamedTuple):
    """Pages in the order of the kernels.

    `kept` are the sessions that stand for themselves and their likes; `page_of_session` is the
    place in `kept` of the session that stands for each. `group` numbers the kept pages by the
    results they show, whatever was clicked.
    """

    kept: Integers
    page_of_session: Integers
    group: Integers
    hashes: Hashes


def fold(
    log: ClickLog,
    page_hash: Hashes,
    columns: list[NDArray[np.unsignedinteger]],
    observations: NDArray[np.unsignedinteger],
    merge: bool,
) -> Folded:
    """Order pages by the hash of their query; fold and group them if that at least halves them.

    `columns` are the codes that decide which rows a result uses, in chain order, and
    `observations` what it shows; both must agree for two pages to be the same.
    """
    n_sessions = log.n_sessions
    if not (merge and _is_promising(log, page_hash, columns, observations)):
        kept = np.argsort(page_hash, kind="stable")
        return Folded(kept, _inverse(kept), np.arange(n_sessions), page_hash[kept])
    shown = _hash_pages(columns, log.lengths)
    seen = _hash_pages([observations], log.lengths)
    half = np.uint64(0xFFFFFFFF)
    key = (page_hash & ~half) | (shown & half)
    kept = np.lexsort((seen, key))
    same_page = _same_as_before(log, kept, key, columns)
    same_all = same_page & _same_as_before(log, kept, seen, [observations])
    is_new = ~same_all
    n_distinct = int(is_new.sum())
    number = np.cumsum(is_new) - 1
    if 2 * n_distinct > n_sessions:
        is_new = np.ones(n_sessions, bool)
        number = np.arange(n_sessions)
    page_of_session = np.empty(n_sessions, np.int64)
    page_of_session[kept] = number
    group = (np.cumsum(~same_page) - 1)[is_new]
    kept = kept[is_new]
    if len(kept) and 2 * (group[-1] + 1) > len(kept):
        group = np.arange(len(kept))
    return Folded(kept, page_of_session, group, page_hash[kept])


def bucket_starts(hashes: Hashes) -> Integers:
    """Where each of the 256 buckets begins among pages ordered by hash."""
    buckets = hashes >> np.uint64(56)
    return np.searchsorted(buckets, np.arange(N_BUCKETS + 1, dtype=np.uint64)).astype(np.int64)


def chain_places(starts: Integers, lengths: Integers, sessions: Integers) -> Integers:
    """The places in chain order of all results of these sessions, one after the other."""
    picked = lengths[sessions]
    ends = np.cumsum(picked)
    shift = np.repeat(starts[sessions] - (ends - picked), picked)
    return shift + np.arange(int(ends[-1]) if len(ends) else 0)


def _inverse(order: Integers) -> Integers:
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    return inverse


def _is_promising(
    log: ClickLog,
    page_hash: Hashes,
    columns: list[NDArray[np.unsignedinteger]],
    observations: NDArray[np.unsignedinteger],
) -> bool:
    """Whether a sixteenth of the queries says that merging may halve the pages."""
    if log.n_sessions < _FEW_PAGES:
        return True
    sample = np.flatnonzero(page_hash >> np.uint64(56) < 16)
    places = chain_places(log.starts, log.lengths, sample)
    picked = [column[places] for column in columns]
    shown = _hash_pages(picked, log.lengths[sample])
    both = _hash_pages([*picked, observations[places]], log.lengths[sample])
    n_shown, n_both = (len(np.unique(h ^ page_hash[sample])) for h in (shown, both))
    # A little more than half: the rest of the queries may repeat more.
    return len(sample) == 0 or n_both < 0.75 * len(sample) or n_shown < 0.75 * n_both


def _hash_pages(columns: list[NDArray[np.unsignedinteger]], lengths: Integers) -> Hashes:
    """One number per page from the codes of its results in order, pages one after the other."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    place = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(starts, lengths)
    combined = place.astype(np.uint64) * _ODD
    factor = _ODD
    for column in columns:
        factor = factor * _ODD  # arithmetic modulo 2**64, on purpose
        combined += column * factor
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix(combined))])
    return mix((total[ends] - total[starts]) + lengths.astype(np.uint64))


def _same_as_before(
    log: ClickLog, kept: Integers, hashes: Hashes, columns: list[NDArray[np.unsignedinteger]]
) -> NDArray[np.bool_]:
    """Which pages equal the page before them in `kept`; hashes only say where to look."""
    same = np.zeros(len(kept), bool)
    ordered, lengths = hashes[kept], log.lengths[kept]
    same[1:] = (ordered[1:] == ordered[:-1]) & (lengths[1:] == lengths[:-1])
    candidates = np.flatnonzero(same)
    if not len(candidates):
        return same
    here = chain_places(log.starts, log.lengths, kept[candidates])
    before = chain_places(log.starts, log.lengths, kept[candidates - 1])
    differ = np.zeros(len(here), bool)
    for column in columns:
        differ |= column[here] != column[before]
    total = np.concatenate([[0], np.cumsum(differ)])
    ends = np.cumsum(log.lengths[kept[candidates]])
    n_differ = total[ends] - total[ends - log.lengths[kept[candidates]]]
    same[candidates[n_differ > 0]] = False
    return same
