"""Make the arrays of one log for one machine and one choice of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler.automaton import Automaton
from gecasmo.encoding.columns import coded, in_chain, is_page_constant, labels, require_columns
from gecasmo.encoding.encoded import EncodedLog
from gecasmo.encoding.features import Wanted, check_features
from gecasmo.encoding.folds import fold, order_pages
from gecasmo.encoding.layout import Layout
from gecasmo.encoding.observations import check_lengths, observe
from gecasmo.encoding.rows import ONE_ROW, Rows
from gecasmo.encoding.tables import NO_ROWS, RowTable, RowTables, count_shift
from gecasmo.errors import ModelError
from gecasmo.kernels.machine import Machine
from gecasmo.kernels.plan import Plan, plan_of
from gecasmo.language.parameter import HISTORY_KEYS
from gecasmo.logs import ClickLog

Keys = Mapping[str, tuple[str, ...]]


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
    observed: tuple[str, ...] | None = None,
) -> EncodedLog:
    """Make the arrays of a log.

    Parameters
    ----------
    keys : the key columns of each coin, in the order of the automaton's parameters
    merge : fold and group equal pages where that pays
    lifted : leave the click history out of the row numbers; the kernel adds it
    missing : results whose signals are not to be looked at
    wanted : the feature columns that the rows of a coin carry
    observed : the columns of numbers that the automaton was made for
    """
    how = (merge, lifted, missing, wanted or {}, observed)
    return _Encoder(log, automaton, machine, keys, *how).encode()


@dataclass
class _Encoder:
    log: ClickLog
    automaton: Automaton
    machine: Machine
    keys: Keys
    merge: bool
    lifted: bool
    missing: NDArray[np.bool_] | None
    wanted: Mapping[str, Wanted]
    observed: tuple[str, ...] | None

    def __post_init__(self) -> None:
        log, automaton, keys, wanted = self.log, self.automaton, self.keys, self.wanted
        check_lengths(log, automaton)
        self.numbered = {
            coin: Rows(("row",), [pl.Series("row", range(n))], n)
            for coin, n in automaton.numbered_rows().items()
        }
        by_key = {c: listed for c, listed in keys.items() if c not in self.numbered}
        self.coin_of_key = {key: coin for coin, listed in by_key.items() for key in listed}
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
        order = order_pages(log)
        folded = fold(log, order, *self._what_counts(observations))
        layout = Layout(log, order, folded)
        make = RowTables(log, layout, self.keys, self.wanted, self.nullable)
        plan, rows, tables, coin_tables = self._coins(make)
        if folded.group is None and len(folded.kept) == log.n_sessions:
            weight = log.weight[folded.kept].astype(np.float64, copy=False)
        else:
            weight = np.bincount(
                folded.page_of_session, weights=log.weight, minlength=len(folded.kept)
            ).astype(np.float64)
        ranks = np.zeros(0, np.int32)
        if self.lifted:
            ranks = layout.pick(in_chain(log, log.rank), layout.by_page_shown)
        return EncodedLog(
            log=log,
            plan=plan.with_based(n for n, table in enumerate(tables) if len(table.first_rows)),
            rows=rows,
            codes=[layout.with_empty(table.codes, table.level) for table in tables],
            first_rows=[table.first_rows for table in tables],
            obs=self._observed(observations, layout),
            obs_start=layout.obs_start,
            row_start=layout.row_start,
            weight=weight,
            bucket_start=layout.bucket_start,
            shifts=[
                count_shift(len(found), True) if table is None else table.shift
                for found, table in zip(rows, coin_tables, strict=True)
            ],
            ranks=_writable(ranks),
            page_of_session=folded.page_of_session,
            bucket_rows=[NO_ROWS if table is None else table.bucket_rows for table in coin_tables],
        )

    def _observed(
        self, observations: NDArray[np.unsignedinteger], layout: Layout
    ) -> NDArray[np.unsignedinteger]:
        """The observations page by page; mostly these are just clicks."""
        if observations.dtype == np.uint8 and np.shares_memory(observations, self.log.click):
            picked = layout.clicks(layout.by_pattern).view(np.uint8)
        else:
            picked = layout.pick(observations, layout.by_pattern)
        return _writable(np.ascontiguousarray(picked))

    # -- pages ---------------------------------------------------------------------------------
    def _what_counts(
        self, observations: NDArray[np.unsignedinteger]
    ) -> tuple[list[NDArray[Any]], list[NDArray[Any]], bool]:
        """The columns that say what pages show, those that say what was seen, in chain order, and
        whether pages that agree in them may be one."""
        log = self.log
        static = [k for k in self.coin_of_key if k not in HISTORY_KEYS]
        if not self.merge or "result" in static or "session" in static:
            return [], [], False
        # Pages that are compared have one query and one length. Those that differ in a feature are
        # kept apart, so that rows which disagree come to light.
        features = [name for name in self._log_features() if name not in static]
        told = [k for k in static if k not in ("query", "page_length", "rank")]
        shown = [labels(log, key, self.coin_of_key[key], key in self.nullable) for key in told]
        shown += [labels(log, name, "", nullable=True) for name in features if name != "rank"]
        seen = [observations]
        has_history = any(k in HISTORY_KEYS for k in self.coin_of_key)
        if (has_history or "rank" in [*static, *features]) and not log.has_plain_ranks:
            shown.append(in_chain(log, log.rank))
        if has_history and not np.shares_memory(observations, log.click):
            # Histories are made of ranks and clicks; two odd observations may share a number.
            seen.append(in_chain(log, log.click))
        return shown, seen, True

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
    def _coins(
        self, make: RowTables
    ) -> tuple[Plan, list[Rows], list[RowTable], list[RowTable | None]]:
        """The plan, the rows of each coin, the tables of row numbers, and the one of each coin."""
        plan, arrays = plan_of(
            self.keys,
            self.automaton,
            partial(is_page_constant, self.log),
            self.lifted,
            self.observed,
        )
        tables = [make.table(array.coin, array.keys, array.scope) for array in arrays]
        rows: list[Rows] = []
        coin_tables: list[RowTable | None] = []
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
            coin_tables.append(table)
        return plan, rows, tables, coin_tables

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


def _writable(values: NDArray[Any]) -> NDArray[Any]:
    """Kernels are compiled for arrays that can be written to; Polars' own memory cannot."""
    return values if values.flags.writeable else values.copy()
