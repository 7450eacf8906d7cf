"""Which columns of a source go into a stored log, and which are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.extras import extra_columns
from gecasmo.logs.faults import Faults, in_words
from gecasmo.logs.notes import Note
from gecasmo.logs.roles import Roles
from gecasmo.logs.store.options import SESSION, Wishes

NO_SESSIONS = "session ids not kept"  # a kind of note


@dataclass(frozen=True)
class Layout:
    """The columns of the rows on their way into a stored log.

    Attributes
    ----------
    nested
        Whether the source has one row a page.
    whole
        Whether pages come whole; else rows of one session can be far from each other.
    has_query, has_rank, has_weight
        Whether the source has them.
    has_session
        Whether pages have ids, which say what belongs together.
    keeps_session
        Whether the ids of sessions are kept in the log.
    kept
        Names of further columns that are kept.
    left_out
        Names of columns that are not kept.
    taken
        What is to be said about columns that lost their name to a role.
    """

    nested: bool
    whole: bool
    has_query: bool
    has_rank: bool
    has_weight: bool
    has_session: bool
    keeps_session: bool
    kept: tuple[str, ...]
    left_out: tuple[str, ...]
    taken: tuple[str, ...] = ()

    @property
    def carries_session(self) -> bool:
        """Whether the ids of sessions are needed until the pages are put together."""
        return self.keeps_session or not self.whole

    def as_json(self) -> dict[str, Any]:
        """For the journal."""
        return asdict(self)

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Layout:
        """From the journal."""
        lists = {name: tuple(content[name]) for name in ("kept", "left_out", "taken")}
        return Layout(**{**content, **lists})

    def notes(self) -> list[Note]:
        """What is to be said about columns that are not in the log."""
        notes = [Note("columns left out", 1, what) for what in self.taken]
        if self.left_out:
            names = in_words([repr(name) for name in self.left_out])
            noun = "column" if len(self.left_out) == 1 else "columns"
            what = f"not kept: the {noun} {names} (name them in keep to have them)."
            notes.append(Note("columns not kept", len(self.left_out), what))
        if self.has_session and not self.keeps_session:
            what = (
                "not kept: the ids of sessions (ingest with keep='session' has them); pages are "
                "numbered."
            )
            notes.append(Note(NO_SESSIONS, 1, what))
        return notes


def lay_out(
    schema: Mapping[str, pl.DataType], roles: Roles, wishes: Wishes, faults: Faults
) -> Layout:
    """Decide about the columns of a source.

    Parameters
    ----------
    schema
        The columns of the source, and their data types.
    roles
        Which column plays which part; settled here.
    wishes
        What was asked for.
    faults
        Where missing columns are noted; they are raised.

    Returns
    -------
    Layout
    """
    nested = roles.is_nested(schema)
    roles.settle(schema, nested, faults)
    faults.raise_if_any()
    extras, taken = extra_columns(list(schema), roles)
    kept = kept_columns(extras, wishes, schema)
    has_query = bool(roles.columns["query"])
    return Layout(
        nested=nested,
        whole=nested,
        has_query=has_query,
        has_rank=bool(roles.columns["rank"]),
        has_weight=bool(roles.columns["weight"]),
        has_session=bool(roles.columns["session"]),
        keeps_session=not has_query or wishes.keep_all or SESSION in wishes.keep,
        kept=tuple(kept),
        left_out=tuple(name for name in extras if name not in kept),
        taken=tuple(taken),
    )


def lay_out_log(log: ClickLog, wishes: Wishes) -> Layout:
    """Decide about the columns of logs that were read already; a weight is always taken over."""
    at = log.columns.index("click") + 1
    extras = log.columns[at:]
    kept = kept_columns(extras, wishes, log.columns)
    return Layout(
        nested=False,
        whole=True,
        has_query=log.has_query,
        has_rank=True,
        has_weight=True,
        has_session=True,
        keeps_session=not log.has_query or wishes.keep_all or SESSION in wishes.keep,
        kept=tuple(kept),
        left_out=tuple(name for name in extras if name not in kept),
    )


def kept_columns(extras: Iterable[str], wishes: Wishes, there: Iterable[str]) -> list[str]:
    """The further columns that are kept; names that are not there are refused."""
    extras = list(extras)
    if wishes.keep_all:
        return extras
    roles = ("query", "doc", "rank", "click", "weight")
    used = {name for role in roles for name in _as_list(wishes.given[role])}
    asked = [name for name in wishes.keep if name not in (SESSION, *roles) and name not in used]
    absent = [name for name in asked if name not in extras]
    if absent:
        raise ClickLogError(
            f"ingest(keep=...): there is no column {in_words([repr(name) for name in absent])} "
            f"to keep. The source has: {', '.join(there)}."
        )
    return asked


def _as_list(names: Any) -> list[str]:
    if names is None:
        return []
    return [names] if isinstance(names, str) else list(names)
