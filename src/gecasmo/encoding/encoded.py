"""The arrays of one log for one machine and one choice of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler.automaton import Automaton
from gecasmo.encoding.columns import (
    coded,
    in_chain,
    is_page_constant,
    require_columns,
)
from gecasmo.encoding.features import (
    Wanted,
    check_features,
)
from gecasmo.encoding.folding import Folded, bucket_starts, chain_places, fold
from gecasmo.encoding.observations import check_lengths, observe
from gecasmo.encoding.rows import ONE_ROW, Rows
from gecasmo.encoding.tables import Places, RowTables, chain_codes, count_shift
from gecasmo.errors import ModelError
from gecasmo.kernels.machine import Machine
from gecasmo.kernels.plan import Plan, plan_of
from gecasmo.language.parameter import HISTORY_KEYS
from gecasmo.logs import ClickLog
from gecasmo.logs.hashing import Hashes, hash_values, mix

Codes = NDArray[np.uint32]
Keys = Mapping[str, tuple[str, ...]]


@dataclass
class EncodedLog:
    """What kernels read. Pages are in the order of their query's hash, like pages folded."""

    log: ClickLog
    plan: Plan
    rows: list[Rows]
    codes: list[Codes]
    obs: NDArray[np.unsignedinteger]
    obs_start: NDArray[np.int64]
    row_start: NDArray[np.int64]
    weight: NDArray[np.float64]
    bucket_start: NDArray[np.int64]
    shifts: list[int]
    ranks: NDArray[np.int32]  # only where the kernel adds the click history
    page_of_session: NDArray[np.int64]

    @property
    def n_pages(self) -> int:
        return len(self.weight)

    @property
    def n_results(self) -> int:
        return len(self.obs)

    @property
    def max_length(self) -> int:
        return int(np.diff(self.obs_start).max(initial=1))

    def page_arguments(self, first: int, last: int) -> list[object]:
        return [first, last, self.obs_start, self.row_start, self.obs, *self.codes]

    def result_places(self) -> NDArray[np.int64]:
        """Where the answer for each result stands, in the order of the log's rows."""
        log = self.log
        place = np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)
        places = np.empty(log.n_results, np.int64)
        places[log.order] = np.repeat(self.obs_start[self.page_of_session], log.lengths) + place
        return places


def encode(
    log: ClickLog,
    automaton: Automaton,
    machine: Machine,
    keys: Keys,
    *,
    merge: bool = True,
    lifted: bool = False,
    missing: NDArray[np.bool_] | None = None,
    wanted: Mapping[str, Wanted] | None = None,
) -> EncodedLog:
    """Make the arrays of a log.

    Parameters
    ----------
    keys : the key columns of each coin, in the order of the automaton's parameters
    merge : fold and group equal pages where that pays
    lifted : leave the click history out of the row numbers; the kernel adds it
    missing : results whose signals are not to be looked at
    wanted : the feature columns that the rows of a coin carry
    """
    return _Encoder(log, automaton, machine, keys, merge, lifted, missing, wanted or {}).encode()


class _Encoder:
    def __init__(
        self,
        log: ClickLog,
        automaton: Automaton,
        machine: Machine,
        keys: Keys,
        merge: bool,
        lifted: bool,
        missing: NDArray[np.bool_] | None,
        wanted: Mapping[str, Wanted],
    ) -> None:
        check_lengths(log, automaton)
        self.log, self.automaton, self.machine, self.keys = log, automaton, machine, keys
        self.merge, self.lifted, self.missing, self.wanted = merge, lifted, missing, wanted
        self.numbered = {
            coin: Rows(("row",), [pl.Series("row", range(n))], n)
            for coin, n in automaton.numbered_rows().items()
        }
        self.coin_of_key = {
            key: coin
            for coin, listed in keys.items()
            if coin not in self.numbered
            for key in listed
        }
        by_key = {c: listed for c, listed in keys.items() if c not in self.numbered}
        check_features(log, keys, wanted)
        require_columns(log, by_key)
        # Missing values count as a value where each coin with that key reads it as a feature.
        self.nullable = {
            key
            for key in self.coin_of_key
            if all(
                c in wanted and wanted[c].allow_missing and key in wanted[c].columns
                for c, listed in by_key.items()
                if key in listed
            )
        }
        self._check_start_keys()
        self._check_lags()

    def encode(self) -> EncodedLog:
        log = self.log
        observations = in_chain(log, observe(log, self.automaton, self.machine, self.missing))
        static = [k for k in self.coin_of_key if k not in HISTORY_KEYS]
        # Pages that differ in a feature are kept apart, so that rows which disagree come to light.
        features = [name for name in self._log_features() if name not in static]
        shown = [
            chain_codes(log, key, self.coin_of_key[key], key in self.nullable) for key in static
        ]
        shown += [chain_codes(log, name, "", nullable=True) for name in features]
        seen = observations
        history = [k for k in self.coin_of_key if k in HISTORY_KEYS]
        if history:
            # Histories are made of ranks and clicks; two odd observations may share a number.
            shown.append(in_chain(log, coded(log, "rank", "").codes))
            seen = 2 * observations.astype(np.uint32) + in_chain(log, log.click)
        folded = fold(
            log,
            self._page_hashes(),
            shown,
            seen,
            self.merge and "result" not in static and "session" not in static,
        )
        lengths = log.lengths[folded.kept]
        obs_start = _offsets(lengths)
        places = chain_places(log.starts, log.lengths, folded.kept)
        is_first = np.r_[True, folded.group[1:] != folded.group[:-1]] if len(lengths) else []
        firsts = folded.kept[is_first]
        group_start = _offsets(log.lengths[firsts])
        group_places = chain_places(log.starts, log.lengths, firsts)
        buckets = (folded.hashes >> np.uint64(56)).astype(np.uint8)
        found = Places(
            kept=folded.kept,
            lengths=lengths,
            by_pattern=places,
            buckets=buckets,
            group_lengths=log.lengths[firsts],
            by_page_shown=group_places,
            group_buckets=buckets[is_first],
        )
        plan, rows, codes, shifts = self._coins(
            RowTables(log, found, self.keys, self.wanted, self.nullable)
        )
        weight = np.bincount(folded.page_of_session, weights=log.weight, minlength=len(folded.kept))
        return EncodedLog(
            log=log,
            plan=plan,
            rows=rows,
            codes=codes,
            obs=np.ascontiguousarray(observations[places]),
            obs_start=obs_start,
            row_start=group_start[folded.group] if len(lengths) else np.zeros(0, np.int64),
            weight=weight.astype(np.float64),
            bucket_start=bucket_starts(folded.hashes),
            shifts=shifts,
            ranks=in_chain(log, log.rank)[group_places] if self.lifted else np.zeros(0, np.int32),
            page_of_session=folded.page_of_session,
        )

    # -- pages ---------------------------------------------------------------------------------
    def _page_hashes(self) -> Hashes:
        log = self.log
        if not log.has_query:
            return hash_values(log.sessions)
        query = coded(log, "query", "query")
        hashes = hash_values(query.values)
        result = mix(np.arange(log.n_sessions))  # pages without results have no query of their own
        filled = log.lengths > 0
        result[filled] = hashes[query.codes[log.order[log.starts[:-1][filled]]]]
        return result

    def _log_features(self) -> list[str]:
        """Columns that rows get from the log beside their keys."""
        found = [
            name
            for coin, need in self.wanted.items()
            if "result" not in self.keys[coin]
            for name in need.from_log(self.keys[coin])
        ]
        return list(dict.fromkeys(found))

    # -- coins ---------------------------------------------------------------------------------
    def _coins(self, make: RowTables) -> tuple[Plan, list[Rows], list[Codes], list[int]]:
        plan, arrays = plan_of(
            self.keys, self.automaton, partial(is_page_constant, self.log), self.lifted
        )
        tables = [make.table(array.coin, array.keys, array.scope) for array in arrays]
        rows: list[Rows] = []
        shifts: list[int] = []
        featured: dict[tuple[Wanted, int], Rows] = {}
        for coin, planned in zip(self.keys, plan.coins, strict=True):
            table = tables[planned.codes] if planned.codes >= 0 else None
            found = self.numbered.get(coin, ONE_ROW) if table is None else table.rows
            if coin in self.wanted:
                # Coins that share a form share its rows, unless their keys differ.
                shared = (self.wanted[coin], planned.codes)
                if shared not in featured:
                    featured[shared] = make.with_features(coin, found, table, planned.scope)
                found = featured[shared]
            rows.append(found)
            shifts.append(count_shift(len(found), True) if table is None else table.shift)
        return plan, rows, [table.codes for table in tables], shifts

    def _check_lags(self) -> None:
        for edge in self.automaton.edges:
            for name, _, lag, _ in edge.literals:
                history = [key for key in self.keys[name] if key in HISTORY_KEYS]
                if lag and history:
                    raise ModelError(
                        f"The coin '{name}' belongs to the previous result (lag 1) and so cannot "
                        f"be keyed by the clicks above this one ('{history[0]}')."
                    )

    def _check_start_keys(self) -> None:
        for coin in self.automaton.start_parameters():
            for key in self.keys[coin]:
                if not is_page_constant(self.log, key):
                    coded(self.log, key, coin)  # says so if the column is not there at all
                    raise ModelError(
                        f"The coin '{coin}' is flipped in start(), before any result is seen, so "
                        f"its key must have one value on a page; '{key}' varies within pages."
                    )


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


__all__ = ["EncodedLog", "Folded", "encode"]
