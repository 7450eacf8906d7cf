"""Which column of a stream of events plays which part, and what its events are called.

A role is played by a column, by a field inside of one ("properties.products.product_id"), or by
the first of several that is there ("products.product_id|product_id"). What nobody names is guessed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError, either, in_a_shell, option
from gecasmo.logs.formats.event_pages import kind_of_event
from gecasmo.logs.formats.moments import moments_of_texts
from gecasmo.logs.notes import Faults, Notebook
from gecasmo.logs.roles import (
    GUESSED,
    ONLY_CLICKS,
    SYNONYMS,
    TIMES,
    is_list,
    plain,
    quoted,
    synonym,
)
from gecasmo.logs.values import check_ids, check_ranks
from gecasmo.report import counted, listed

Names = str | Sequence[str] | None

OR = "|"
# Usual names of columns, the likeliest first. A page is rather a search than a visit.
USUAL = {
    "page": (
        "page page_id search_id query_id queryid serp_id request_id impression_id page_view_id "
        "session session_id sid visit_id"
    ),
    "event": "event event_name event_type action action_name eventname eventtype type",
    "doc": f"doc {SYNONYMS['doc']} objectids object_ids objectid",
    "position": "position positions rank pos ordinal result_position item_list_index index slot",
    "query": "query user_query search_term search_query term keyword keywords query_text q",
    "time": f"time {TIMES} event_timestamp created occurred_at received_at",
}
NEEDED = ("page", "event", "doc")


@dataclass(frozen=True)
class EventRoles:
    """What `read_events` was told: columns by role, and names of events.

    Attributes
    ----------
    columns
        Roles to columns. A role that is None has none; one that is not there, or played by a
        column of its own name, is guessed where there is no such column.
    impression, click
        Names of events; None guesses them.
    signals
        Names of events by the column that they become; None guesses carts and purchases.
    gap
        What time without an impression makes another list of the same page; None: nothing does.
    guessed
        What was guessed.
    """

    columns: Mapping[str, Names] = field(default_factory=dict)
    impression: Names = None
    click: Names = None
    signals: Mapping[str, Names] | None = None
    gap: str | float | None = None
    guessed: Mapping[str, str] = field(default_factory=dict)

    def names(self, role: str) -> list[str]:
        """Name the columns of a role."""
        return names_of(self.columns.get(role))

    def title(self, role: str) -> str:
        """Name the role, and its columns where these are called otherwise."""
        names = self.names(role)
        return role if names == [role] else f"{role} ({', '.join(map(repr, names))})"

    @property
    def id_columns(self) -> list[str]:
        """Names of columns at the top that hold ids, or may."""
        named = [name for role in ("page", "query", "doc") for name in self.names(role)]
        return list(dict.fromkeys(part for name in named for part in name.split(OR)))

    def guess(self, columns: Iterable[str]) -> EventRoles:
        """Take columns by their usual names for the roles that nobody named."""
        free = [name for name in columns if name not in self._taken()]
        by_plain = {plain(name): name for name in reversed(free)}
        guessed: dict[str, str] = {}
        for role, usual in USUAL.items():
            if self._is_named(role):
                continue
            names = [plain(name) for name in usual.split()]
            found = next((name for name in names if name in by_plain), None)
            if found is not None:
                guessed[role] = by_plain.pop(found)
            elif role == "query":
                # Where a visit has several searches, they make pages together.
                parts = {plain(name): name for name in self.names("page")}
                asked = [parts[name] for name in names if name in parts]
                guessed |= dict(zip([role], asked, strict=False))
        told = {role: name for role, name in guessed.items() if role != name}
        named = {role: names for role, names in self.columns.items() if self._is_named(role)}
        return replace(self, columns={**guessed, **named}, guessed=told)

    def _is_named(self, role: str) -> bool:
        """Whether somebody said what plays this role, or that nothing does."""
        return role in self.columns and self.columns[role] != role

    def _taken(self) -> set[str]:
        named = [name for role in self.columns if self._is_named(role) for name in self.names(role)]
        return {part for name in named for part in name.split(OR)}


def names_of(value: Names) -> list[str]:
    """Return one or several names as a list."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


class EventColumns:
    """The columns of a table of events by role, looked up and read.

    Parameters
    ----------
    table
        One row an event.
    roles
        Who plays which part.
    faults, notes
        Where faults, and what is odd, are noted.
    """

    def __init__(
        self, table: pl.DataFrame, roles: EventRoles, faults: Faults, notes: Notebook
    ) -> None:
        self.table, self.roles, self.faults, self.notes = table, roles, faults, notes
        self.used: set[str] = set()
        self._decoded: dict[str, pl.Series] = {}
        self._refuse_missing()

    def _refuse_missing(self) -> None:
        """Raise the error for roles that have no column, or one that is not there."""
        roles = self.roles
        lost = {role: n for role in USUAL for n in roles.names(role) if not self._is_there(n)}
        unsaid = [role for role in NEEDED if not roles.names(role)]
        if not lost and not unsaid:
            return
        said = [f"It has: {', '.join(self.table.columns) or 'no columns at all'}."]
        if unsaid:
            asked = listed(option(role, shown="...") for role in unsaid)
            said.append(f"Say which column it is: {asked}.")
            said.append(
                "A field inside a column is written with a dot, such as items.item_id. "
                "docs/events.md has recipes for Google Analytics, Snowplow, Segment, PostHog and "
                "Algolia."
            )
        if {"event_attributes", "action_name"} <= set(self.table.columns):
            such = option("format", shown='"ubi"')
            said.append(
                f"These are events of OpenSearch UBI: {either('read_log with ', '')}{such}."
            )
        elif "event" in unsaid and "page" not in unsaid:
            said.append(
                "A table with a row a result, which says what was clicked, is read by "
                + either("read_log.", "leaving out --events.")
            )
            if synonym("click", self.table.columns) is None:
                said.append(ONLY_CLICKS)
        elif "event" in unsaid:
            said.append(ONLY_CLICKS)
        self.faults.lacks([*lost.values(), *unsaid], said)
        self.faults.raise_if_any()

    def _is_there(self, name: str) -> bool:
        return any(self._find(part) is not None for part in self._alternatives(name))

    def _alternatives(self, name: str) -> list[str]:
        return [name] if name in self.table.columns else name.split(OR)

    def _find(self, path: str) -> pl.Series | None:
        """Find a column, or a field inside of one."""
        if path in self.table.columns:
            self.used.add(path)
            return self.table[path]
        parts = path.split(".")
        for n in range(len(parts) - 1, 0, -1):
            root = ".".join(parts[:n])
            if root in self.table.columns:
                found = _field(self._opened(root), parts[n:])
                if found is not None:
                    self.used.add(root)
                return found
        return None

    def _opened(self, root: str) -> pl.Series:
        """Return a column that has fields; one of JSON text is read."""
        column = self.table[root]
        if column.dtype != pl.String:
            return column
        if root not in self._decoded:
            paths = [part for role in USUAL for n in self.roles.names(role) for part in n.split(OR)]
            inside = [path[len(root) + 1 :] for path in paths if path.startswith(f"{root}.")]
            wanted = {path.split(".")[0] for path in inside}
            self._decoded[root] = _objects_of_texts(column, wanted, self.notes)
        return self._decoded[root]

    def column(self, name: str) -> pl.Series:
        """Return the column of a name; of several, each value is the first that is there."""
        found = [self._find(part) for part in self._alternatives(name)]
        there = [each for each in found if each is not None]
        if len(there) > 1 and any(is_list(each.dtype) for each in there):
            there = [_as_lists(each) for each in there]
        same = there[0].dtype if len({each.dtype for each in there}) == 1 else None
        if same is None:  # such as numbers here, and texts there
            inner = pl.List(pl.String) if is_list(there[0].dtype) else pl.String
            there = [each.cast(inner) for each in there]
        return pl.select(pl.coalesce(pl.lit(each) for each in there)).to_series().alias(name)

    def role(self, role: str) -> pl.Series | None:
        """Return the column of a role that has one column; None where it has none."""
        names = self.roles.names(role)
        if not names:
            return None
        found = self.column(names[0])
        return _lists_of_texts(found) if role in ("doc", "position") else found


def _decoded(texts: pl.Series) -> pl.Series | None:
    try:
        return texts.str.json_decode(infer_schema_length=None)
    except (pl.exceptions.PolarsError, ValueError, TypeError):
        return None


def _objects_of_texts(texts: pl.Series, wanted: Collection[str], notes: Notebook) -> pl.Series:
    """Read a column of JSON text; one that holds no objects stays as it is.

    What Polars cannot read at once is read text by text: empty texts and texts that are no JSON
    are missing, and fields that nobody asks for may differ from text to text.
    """
    found = _decoded(texts)
    if found is not None:
        return found
    values: list[Any] = []
    broken: list[int] = []
    for row, text in enumerate(texts):
        value = None
        if text is not None and text.strip():
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                broken.append(row)
        values.append(_only(value, wanted))
    if not any(value for value in values):
        return texts
    if any(isinstance(value, list) for value in values):
        values = [[value] if isinstance(value, dict) else value for value in values]
    again = [None if value is None else json.dumps(value) for value in values]
    found = _decoded(pl.Series(texts.name, again, pl.String))
    if found is None:
        return texts
    notes.add_rows(f"texts in {texts.name!r} that are no JSON", broken, "they count as missing")
    return found


def _only(value: Any, wanted: Collection[str]) -> Any:
    """Of an object, or of objects in a list, take the fields that are asked for."""
    if isinstance(value, dict):
        return {name: _filled(value[name]) for name in value if name in wanted}
    if isinstance(value, list):
        each = {*wanted, "key", "value"}
        return [_only(one, each) for one in value if isinstance(one, dict)] or None
    return None


def _filled(value: Any) -> Any:
    """The value with None for empty objects, which PHP and Lua write for empty lists."""
    if isinstance(value, dict):
        return {name: _filled(each) for name, each in value.items()} or None
    return [_filled(each) for each in value] if isinstance(value, list) else value


def _lists_of_texts(column: pl.Series) -> pl.Series:
    """Read lists that are written as JSON text, such as '["a", "b"]', as CSV has to have them.

    Where none has more or less than one member, as in "[1]", brackets are part of names.
    """
    if column.dtype != pl.String:
        return column
    texts = column.str.strip_chars()
    bracketed = (texts.str.starts_with("[") & texts.str.ends_with("]")).fill_null(False)
    if not bracketed.any():
        return column
    values = list(column)
    for row in bracketed.arg_true():
        try:
            found = json.loads(values[row])
        except (ValueError, RecursionError):
            return column  # the brackets are part of a name
        if any(isinstance(each, (list, dict)) for each in found):
            return column
        values[row] = [None if each is None else str(each) for each in found]
    if all(len(values[row]) == 1 for row in bracketed.arg_true()):
        return column
    as_lists = [[one] if isinstance(one, str) else one for one in values]
    return pl.Series(column.name, as_lists, pl.List(pl.String))


def _field(column: pl.Series, parts: Sequence[str]) -> pl.Series | None:
    """Find a field inside of a column: of objects, of lists of them, or of lists by key."""
    for n, part in enumerate(parts):
        dtype = column.dtype
        if isinstance(dtype, pl.Struct):
            if part not in column.struct.fields:
                return None
            column = column.struct.field(part)
            continue
        inner = dtype.inner if isinstance(dtype, pl.List) else None
        if not isinstance(inner, pl.Struct):
            return None
        fields = [each.name for each in inner.fields]
        if part in fields:
            column = column.list.eval(pl.element().struct.field(part))
        elif {"key", "value"} <= set(fields):
            # As analytics exports have it: [{"key": "search_term", "value": {...}}].
            chosen = pl.element().filter(pl.element().struct.field("key") == part)
            column = column.list.eval(chosen.struct.field("value")).list.first()
            return _only_value(_field(column, parts[n + 1 :]))
        else:
            return None
    return column


def _only_value(column: pl.Series | None) -> pl.Series | None:
    """Of {"string_value": ..., "int_value": ...}, of which one is there, take that one."""
    if column is None or not isinstance(column.dtype, pl.Struct):
        return column
    values = [column.struct.field(name) for name in column.struct.fields]
    there = [each for each in values if each.count()]
    if len(there) < 2:
        return (there or values)[0]
    texts = [each.cast(pl.String) for each in there]
    return pl.select(pl.coalesce(pl.lit(each) for each in texts)).to_series()


def _as_lists(column: pl.Series) -> pl.Series:
    """Make lists of one of values; nothing is nothing."""
    if is_list(column.dtype):
        has_any = column.list.len() > 0
        return pl.select(pl.when(pl.lit(has_any)).then(pl.lit(column))).to_series()
    lists = column.to_frame("value").select(pl.concat_list("value")).to_series()
    return pl.select(pl.when(pl.lit(column.is_not_null())).then(pl.lit(lists))).to_series()


def whole_ids(column: pl.Series, title: str, faults: Faults) -> pl.Series:
    """Read numbers of a column of ids that floats had to hold, as pandas does beside missing ones.

    Others than whole numbers are a fault.
    """
    if not column.dtype.is_float():
        return column
    known = column.fill_nan(None)
    if not ((known == known.round()) & (known.abs() < 2**53)).all():
        check_ids(known.drop_nulls(), title, faults)
        faults.raise_if_any()
    return known.cast(pl.Int64)


def role_option(role: str, *value: Any, **shown: Any) -> str:
    """Name a role in a message; on the command line --time is another thing in some commands."""
    return option(either(role, "event_time") if role == "time" else role, *value, **shown)


# -- what events are called ------------------------------------------------------------------
def kinds_by_name(names: pl.Series, roles: EventRoles, notes: Notebook) -> dict[str, str]:
    """Say what each name of an event stands for: "impression", or a signal; not for all others.

    `names` are those of all events. Names that were not given are guessed, and told.
    """
    there = names.drop_nulls().unique().sort().to_list()
    usual = {name: kind_of_event(name) for name in there}
    given = {"impression": roles.impression, "click": roles.click, **(roles.signals or {})}
    kinds: dict[str, str] = {}
    for kind, wanted in given.items():
        for name in names_of(wanted):
            if name not in usual:
                raise _no_such_event(kind, name, roles, names)
            if name in kinds:
                raise ClickLogError(
                    f"{_asked(kind, name, roles)}: an event has one role, and {name!r} is "
                    f"{kinds[name]!r} already."
                )
            kinds[name] = kind
    guessed: dict[str, list[str]] = {}
    wanted_kinds = ["impression", "click", *(("cart", "purchase") if roles.signals is None else ())]
    for kind in wanted_kinds:
        if given.get(kind) is None:
            found = [name for name in there if usual[name] == kind and name not in kinds]
            if kind == "impression" and not found:
                found = [name for name in there if usual[name] == "view" and name not in kinds]
            guessed[kind] = found
            kinds |= dict.fromkeys(found, kind)
    if "impression" not in kinds.values():
        raise _nothing_shown(names, kinds, roles)
    _note_guesses(roles, guessed, notes)
    return kinds


def _note_guesses(roles: EventRoles, guessed: Mapping[str, Sequence[str]], notes: Notebook) -> None:
    said = [role_option(role, name, shown=quoted(name)) for role, name in roles.guessed.items()]
    signals: dict[str, Any] = {}
    for kind, names in guessed.items():
        if list(names) != [kind] and names:
            one: Any = names[0] if len(names) == 1 else list(names)
            if kind in ("impression", "click"):
                said.append(option(kind, one, shown=quoted(one)))
            else:
                signals[kind] = one
    if signals:
        flags = (f"--signal {in_a_shell(f'{k}={v}')}" for k, v in signals.items())
        said.append(either(f"signals={signals}", " ".join(flags)))
    if said:
        notes.tell(GUESSED, len(said), f"guessed by their names: {', '.join(said)}.")


def _asked(kind: str, name: str, roles: EventRoles) -> str:
    if kind in ("impression", "click"):
        return option(kind, name, of="read_events")
    return either(f"read_events(signals={{{kind!r}: {name!r}}})", f"--signal {kind}={name}")


def _no_such_event(kind: str, name: str, roles: EventRoles, names: pl.Series) -> ClickLogError:
    return ClickLogError(
        f"{_asked(kind, name, roles)}: no event has that name. {roles.title('event')} has: "
        f"{_most(names)}."
    )


def _most(names: pl.Series) -> str:
    """Say which names events have, the most usual first."""
    counts = names.drop_nulls().alias("name").value_counts(sort=True, name="n")
    said = [f"{name!r} ({count:,})" for name, count in counts.head(10).rows()]
    return ", ".join(said) + (", ..." if counts.height > 10 else "") if said else "no value at all"


def _nothing_shown(names: pl.Series, kinds: Mapping[str, str], roles: EventRoles) -> ClickLogError:
    """Make the error for events that say what was clicked, and not what was shown."""
    clicks = int(names.is_in([name for name, kind in kinds.items() if kind == "click"]).sum())
    met = f"There {'is' if clicks == 1 else 'are'} {counted(clicks, 'click')}. " if clicks else ""
    return ClickLogError(
        "No event is an impression: nothing says what was shown, and a click model learns from "
        f"what people passed over as much as from what they clicked. {roles.title('event')} has: "
        f"{_most(names)}. {met}\n"
        f"  If impressions have another name, say it: {option('impression', shown='...')}.\n"
        "  If they are elsewhere, add them: one event per result, or one per page with a list "
        "of documents, with the same page id; the log of the search engine has them.\n"
        "  If only counts are known (query, doc, rank, impressions, clicks), "
        + either("read_counts", "--counts")
        + " reads these. From clicks alone, only the number of clicks of each query and "
        "document can be computed, which says more about ranks than about documents."
    )


# -- positions and times ---------------------------------------------------------------------
def read_positions(values: pl.Series, rows: pl.Series, title: str, faults: Faults) -> pl.Series:
    """Read positions: whole numbers from 0, also written as text; null where there is none."""
    if values.dtype == pl.Null:
        return values.cast(pl.Int64)
    there = (
        values.is_not_null() if not values.dtype.is_float() else ~values.is_nan().fill_null(True)
    )
    known = values.filter(there)
    if known.dtype == pl.String:
        numbers = known.str.strip_chars().cast(pl.Float64, strict=False)
        known = known if numbers.null_count() else numbers
    at = rows.filter(there)
    with faults.naming_rows(lambda index: int(at[index])):
        found, _ = check_ranks(known, title, faults)
        faults.raise_if_any()
    whole = pl.Series(np.asarray(found), dtype=pl.Int64, strict=False)
    places = pl.Series("position", [None], pl.Int64).new_from_index(0, len(values))
    return places.scatter(there.arg_true(), whole) if len(whole) else places


def read_times(values: pl.Series, rows: pl.Series, title: str, notes: Notebook) -> pl.Series:
    """Read times: numbers of any unit stay numbers; dates and texts are moments in UTC."""
    if values.dtype.is_integer() or values.dtype == pl.Null:
        return values.cast(pl.Int64)
    if values.dtype.is_float():
        return values.fill_nan(None)
    if values.dtype == pl.Date:
        values = values.cast(pl.Datetime("us"))
    if isinstance(values.dtype, pl.Datetime):
        here = values.dt.cast_time_unit("us")
        zone = values.dtype.time_zone
        return (
            here.dt.replace_time_zone("UTC") if zone is None else here.dt.convert_time_zone("UTC")
        )
    if values.dtype != pl.String:
        raise ClickLogError(f"{title}: the column holds {values.dtype}, and times are needed.")
    numbers = values.cast(pl.Int64, strict=False)
    if numbers.null_count() == values.null_count():
        return numbers
    spelt = values.str.strip_chars().str.replace(r"\s*UTC$", "Z")
    found = moments_of_texts(spelt.str.replace(r"^([0-9]{4}-[0-9]{2}-[0-9]{2})\s+", "${1}T"))
    unread = found.is_null() & values.is_not_null()
    if int(unread.sum()) == len(values) - values.null_count():
        first = int(unread.arg_true()[0])
        raise ClickLogError(
            f"{title}: no value is a time; row {rows[first]} has {values[first]!r}. Times are "
            "numbers, or dates such as 2026-03-01T10:00:00Z; "
            f"{role_option('time', None)} does without."
        )
    notes.add_rows("unreadable times", rows.filter(unread), "the events are kept without one")
    return found
