"""Which column of a table plays which part in a log: told, or guessed by its name.

Columns that play none keep their own names.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import polars as pl

from gecasmo.errors import ClickLogError, either, option
from gecasmo.logs.notes import Faults, Notebook

DEFAULTS: dict[str, str | None] = {
    "session": "session",
    "query": "query",
    "doc": "doc",
    "rank": "rank",
    "click": "click",
    "weight": None,
}
SEVERAL_COLUMNS = ("session", "doc")

SYNONYMS = {
    "session": (
        "session_id sid impression impression_id serp serp_id page_id page_view_id search_id "
        "request_id visit_id"
    ),
    "query": "user_query query_id qid q search_term search_query term keyword keywords query_text",
    "doc": (
        "url document document_id doc_id docid docno item item_id product product_id result "
        "result_id object_id sku asin docs urls documents doc_ids document_ids item_ids product_ids"
    ),
    "rank": "position pos rnk result_rank result_position slot",
    "click": "clicked is_click is_clicked clicks click_count was_clicked has_click",
    "weight": "weights count n frequency",
}
# Columns that tell pages of one visit apart, beside those that a page may be called by.
TIMES = "timestamp time datetime date_time event_time search_time created_at ts starttime"
# Words in the names of columns that say what was searched for.
_SEARCH = ("query", "search", "keyword", "phrase")
# Names of columns that say what an event is.
_EVENTS = ("event", "eventname", "eventtype", "action", "actionname", "type")
# Names of columns that count how often a result was shown.
IMPRESSIONS = "impressions shown views exposures displays served impression_count n_impressions"
GUESSED = "columns guessed"  # a kind of note
# What to say where a table may have one row a click.
ONLY_CLICKS = (
    "Is every row a click? Then impressions are missing: a click model learns from what was shown "
    "and not clicked. Join the results that were shown, from the log of the search engine. Clicks "
    "alone can only be counted."
)
# What such columns hold when they hold lists; with one row a result they would be numbers.
LISTS = {"doc": "results items products hits", "rank": "ranks positions"}

Given = str | Sequence[str] | None
CANONICAL = ("session", "query", "doc", "rank", "click")


class Roles:
    """The columns of a source by the part they play.

    Parameters
    ----------
    given
        The arguments of `read_log`, by role.
    """

    def __init__(self, given: Mapping[str, Given]) -> None:
        self.given = dict(given)
        self.guessed: dict[str, str] = {}
        self.columns = {role: _names(role, value) for role, value in given.items()}
        if not self.columns["doc"]:
            raise ClickLogError(
                f"{option('doc', None, of='read_log')}: every result needs a document; name a "
                "column."
            )

    def guess(self, columns: Iterable[str], lists: Collection[str] | None = None) -> None:
        """Take columns by their names for the roles that nobody named and no column is called."""
        named = {role: given for role, given in self.given.items() if self._is_named(role)}
        found = guess_roles(columns, named, lists)
        self.guessed |= found
        self.given |= found
        self.columns |= {role: (name,) for role, name in found.items()}

    def note_guesses(self, notebook: Notebook) -> None:
        """Note which arguments would do what was guessed."""
        if self.guessed:
            said = (option(role, name, shown=quoted(name)) for role, name in self.guessed.items())
            what = f"columns guessed by their names: {', '.join(said)}."
            notebook.tell(GUESSED, len(self.guessed), what)

    @property
    def id_columns(self) -> list[str]:
        """Names of the columns that hold ids."""
        names = [name for role in ("session", "query", "doc") for name in self.columns[role]]
        return list(dict.fromkeys(names))

    @property
    def name_a_table(self) -> bool:
        """Whether columns are named, as only those of tables need be."""
        return any(self._is_named(role) for role in ("session", "query", "doc", "rank"))

    def is_struct(self, role: str) -> bool:
        """Whether the id of this role is made of a list of columns."""
        return self.given[role] is not None and not isinstance(self.given[role], str)

    def title(self, role: str) -> str:
        """Name the role, and its column where that is called otherwise."""
        names = self.columns.get(role, ())  # or a further column
        if names in ((), (role,)):
            return role
        return f"{role} ({', '.join(map(repr, names))})"

    def is_nested(self, schema: Mapping[str, pl.DataType]) -> bool:
        """Whether the source has one row a page, with lists of results."""
        names = [*self.columns["click"], *self.columns["doc"]]
        return any(name in lists_of(schema) for name in names)

    def settle(self, schema: Mapping[str, pl.DataType], nested: bool, faults: Faults) -> None:
        """Drop the roles that may be absent, and note the columns that may not."""
        columns = list(schema)
        optional = {"query", "session", "rank"} if nested else {"query"}
        missing: dict[str, list[str]] = {}
        for role, names in self.columns.items():
            absent = [name for name in names if name not in columns]
            if absent and role in optional and not self._is_named(role):
                self.columns[role] = ()
            elif absent:
                missing[role] = absent
        if missing:
            meant = self._meant(missing, schema)
            needed = self._needed(missing, meant, schema)
            absent = list(dict.fromkeys(name for names in needed.values() for name in names))
            faults.lacks(absent, self._advice(needed, meant, columns, faults.label))
        if not nested and self.given["session"] is None:
            faults.add("session: a log with one row a result needs a session column")
        for role in missing:
            self.columns[role] = ()

    def _is_named(self, role: str) -> bool:
        return self.given[role] != DEFAULTS[role]

    def _free(self, columns: Iterable[str]) -> list[str]:
        used = {name for names in self.columns.values() for name in names}
        return [name for name in columns if name not in used]

    def _meant(
        self, missing: Mapping[str, Sequence[str]], schema: Mapping[str, pl.DataType]
    ) -> dict[str, str]:
        """Guess which columns were meant by names that are not there."""
        free, lists = self._free(schema), lists_of(schema)
        meant: dict[str, str] = {}
        for role, names in missing.items():
            for name in names:
                found = guess(role, name, free, lists)
                if found is None and role == "doc" and lists & set(self.columns["click"]):
                    # Where clicks are lists, the only other list has the documents.
                    others = [column for column in free if column in lists]
                    found = others[0] if len(others) == 1 else None
                if found is not None:
                    meant[name] = found
                    free.remove(found)
        return meant

    def _needed(
        self,
        missing: Mapping[str, Sequence[str]],
        meant: Mapping[str, str],
        schema: Mapping[str, pl.DataType],
    ) -> dict[str, Sequence[str]]:
        """Leave out what is not needed if the log has one row a page, as it was probably meant."""
        is_nested = any(name in lists_of(schema) for name in meant.values())
        spared = {"session", "rank"} if is_nested else set()
        return {
            role: names
            for role, names in missing.items()
            if role not in spared or names[0] in meant or self._is_named(role)
        }

    def _advice(
        self,
        missing: Mapping[str, Sequence[str]],
        meant: Mapping[str, str],
        columns: Sequence[str],
        label: str,
    ) -> list[str]:
        lines = [f"It has: {', '.join(columns) or 'no columns at all'}."]
        by_plain = {plain(name) for name in columns}
        free = [name for name in self._free(columns) if name not in meant.values()]
        unknown = [role for role in missing if not set(missing[role]) <= set(meant)]
        taken = {role: self.given[role] for role in DEFAULTS if role not in missing}
        taken = {role: value for role, value in taken.items() if value and self._is_named(role)}
        if unknown and taken:
            # Not what was said on purpose alone: the command line guesses, and passes it on.
            said = ", ".join(
                option(role, value, shown=quoted(value)) for role, value in taken.items()
            )
            lines.append(f"Taken: {said}.")
        call = {
            role: _replaced(value, meant)
            for role, value in self.given.items()
            if value != DEFAULTS[role] or value in meant
        }
        query = synonym("query", free) if not self.columns["query"] else None
        if query is not None and self.given["query"] is not None and "query" not in missing:
            call["query"] = query
        if meant:
            call = {role: call[role] for role in DEFAULTS if role in call}
            named = [option(role, value, shown=quoted(value)) for role, value in call.items()]
            first = "data" if label.startswith("the ") else quoted(label)
            python = f"read_log({', '.join([first, *named])})"
            lines.append(f"Perhaps: {either(python, ' '.join(named))}")
        free = [name for name in free if name not in call.values()]
        if unknown and free:
            arguments = ", ".join(option(role, shown="...") for role in unknown)
            lines.append(f"Say which column it is: {arguments}; not taken are {', '.join(free)}.")
        if any(name not in meant for name in missing.get("rank", ())):
            lines.append(f"Without ranks: {option('rank', None)} takes the order of the rows.")
        if any(name not in meant for name in missing.get("click", ())):
            lines.append(f"Without clicks: {option('click', None)} reads the pages alone.")
            if by_plain & set(_EVENTS):
                such = either("read_events", "--events")
                lines.append(
                    f"Is a row an event, such as an impression or a click? {such} reads it."
                )
            else:
                lines.append(ONLY_CLICKS)
        sums = {plain(name) for name in IMPRESSIONS.split()} if "session" in missing else set()
        such = either("read_counts", "--counts")
        if by_plain & {"impressions", *sums}:
            lines.append(f"Are these counts of impressions and clicks? {such} reads them.")
        elif "session" in missing and "clicks" in by_plain:
            lines.append(
                "Are these counts of clicks? Then impressions are missing: a document that was "
                "clicked 10 times may have been shown 20 times or 20,000 times. Count impressions, "
                f"too: {such} reads both."
            )
        return lines


def is_list(dtype: pl.DataType) -> bool:
    """Whether a column of this data type holds several values a row."""
    return isinstance(dtype, pl.List | pl.Array)


def lists_of(schema: Mapping[str, pl.DataType]) -> set[str]:
    """Name the columns that hold lists."""
    return {name for name, dtype in schema.items() if is_list(dtype)}


def _names(role: str, value: Given) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if role not in SEVERAL_COLUMNS:
        raise ClickLogError(
            f"{option(role, value, of='read_log')}: {role} is one column name; "
            "only session and doc can be lists of columns."
        )
    names = tuple(value)
    if not names or not all(isinstance(name, str) for name in names):
        raise ClickLogError(
            f"{option(role, value, of='read_log')}: the list should hold column names."
        )
    return tuple(dict.fromkeys(names))


def _replaced(value: Given, meant: Mapping[str, str]) -> Given:
    if value is None or isinstance(value, str):
        return meant.get(value, value) if value is not None else None
    return [meant.get(name, name) for name in value]


def quoted(value: Given) -> str:
    """Write columns as they would stand in a call."""
    if value is None:
        return "None"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return f"[{', '.join(map(quoted, value))}]"


def extra_columns(columns: Sequence[str], roles: Roles) -> tuple[list[str], list[str]]:
    """Say which columns are kept under their own names, and what to know of those that are not.

    Columns that are one part of an id are kept, because they can be of use by themselves (a user
    id, for example).
    """
    reserved = CANONICAL + (("weight",) if roles.columns["weight"] else ())
    renamed = {
        names[0]
        for role, names in roles.columns.items()
        if len(names) == 1 and not roles.is_struct(role)
    }
    used = {name for names in roles.columns.values() for name in names}
    kept = [name for name in columns if name not in renamed and name not in reserved]
    notes = [
        f"the column {name!r} was left out, because {roles.title(name)} took its name; "
        "rename it to keep it."
        for name in columns
        if name in reserved and name not in used and roles.given[name] is not None
    ]
    return kept, notes


def plain(name: str) -> str:
    """Write a name without what different spellings differ in."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def synonym(role: str, columns: Iterable[str], lists: Collection[str] = ()) -> str | None:
    """Find a column whose name is a usual name for the role.

    `columns` are those that nothing else uses, and `lists` those of them that may hold lists.
    """
    by_plain = {plain(column): column for column in reversed(list(columns))}
    for name in (role, *SYNONYMS[role].split()):
        if plain(name) in by_plain:
            return by_plain[plain(name)]
    for name in LISTS.get(role, "").split():
        if by_plain.get(name) in lists:
            return by_plain[name]
    return None


def search_column(schema: Mapping[str, pl.DataType]) -> str | None:
    """Find a column that seems to say what was searched for, in a log that has no query."""
    others = {plain(name) for name in f"{SYNONYMS['session']} {TIMES}".split()}
    spelt = (
        name
        for name, dtype in schema.items()
        if dtype == pl.String
        and plain(name) not in others
        and any(word in plain(name) for word in _SEARCH)
    )
    return synonym("query", schema) or next(spelt, None)


def guess(
    role: str, wanted: str, columns: Iterable[str], lists: Collection[str] = ()
) -> str | None:
    """Find the column that was probably meant by `wanted`, a name that is not there."""
    names = list(columns)
    lookalike = {plain(name): name for name in reversed(names)}
    exact = lookalike.get(plain(wanted))
    if exact is not None:
        return exact
    # A name the user chose says more than the role does, so spelling comes before synonyms there.
    close = difflib.get_close_matches(plain(wanted), lookalike, n=1, cutoff=0.75)
    if wanted != role and close:
        return lookalike[close[0]]
    found = synonym(role, names, lists)
    if found is None and close:
        found = lookalike[close[0]]
    return found


def guess_roles(
    columns: Iterable[str],
    named: Mapping[str, Given] | None = None,
    lists: Collection[str] | None = None,
) -> dict[str, str]:
    """Guess the column of each role whose own name is not among the columns.

    Parameters
    ----------
    columns
        The columns of a table.
    named
        Roles whose columns are known, which are not guessed; these columns are taken. Only the
        query may be one of several that make the id of a page.
    lists
        The columns that hold lists, where that is known.

    Returns
    -------
    dict
        Roles to columns. Roles that have a column of their name, or that no column looks like, are
        not in it. No column has two roles. A weight is never guessed: a column called "count" or
        "n" is too often something else, and would change every estimate. "results", "items",
        "products" and "hits" are documents only where they hold lists; where nobody knows, where
        no column is a rank: beside one they are rather numbers.

    Examples
    --------
    >>> guess_roles(["sid", "query", "url", "position", "clicked", "price"])
    {'session': 'sid', 'doc': 'url', 'rank': 'position', 'click': 'clicked'}
    """
    named = named or {}
    names = list(columns)
    roles = [role for role in SYNONYMS if role != "weight"]
    taken = {name for role in named for name in _names(role, named[role])}
    free = [name for name in names if name not in roles and name not in taken]
    parts = [] if isinstance(named.get("session"), str) else _names("session", named.get("session"))
    if lists is None:
        has_ranks = "rank" in {*names, *named} or synonym("rank", free) is not None
        lists = [] if has_ranks else free
    guessed = {}
    for role in roles:
        if role in named or role in names:
            continue
        found = synonym(role, free, lists)
        if found is None and role == "query":
            # Where a visit has several searches, they make pages together.
            found = synonym(role, parts)
        elif found is not None:
            free.remove(found)
        if found is not None:
            guessed[role] = found
    return guessed
