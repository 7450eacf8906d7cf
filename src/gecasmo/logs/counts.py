"""`read_counts`: a log from sums, how often each document was shown and clicked at each rank.

Which clicks happened together is lost in sums. So every result becomes a page of its own, at its
rank: all that a model can use which takes results of a page for independent, given their ranks.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError, ClickLogWarning, option
from gecasmo.forks import refuse_lost_fork
from gecasmo.logs.assembly import assemble
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.formats import ReadOptions
from gecasmo.logs.formats.table import TABLE, columns_of, source_label
from gecasmo.logs.inputs import MAX_LINE, naming
from gecasmo.logs.notes import Faults, Notebook, in_one_message
from gecasmo.logs.reader import recognise
from gecasmo.logs.roles import GUESSED, IMPRESSIONS, SYNONYMS, Roles, plain, quoted
from gecasmo.logs.values import check_ranks, check_weights
from gecasmo.report import counted, listed

COUNTS = "counts"  # a kind of note
CLICKS = "clicks clicked click_count n_clicks"


def read_counts(
    source: Any,
    *,
    query: str | None = "query",
    doc: str | Sequence[str] = "doc",
    rank: str | None = "rank",
    impressions: str = "impressions",
    clicks: str = "clicks",
    max_line: int = MAX_LINE,
    separator: str | None = None,
) -> ClickLog:
    """Read sums of impressions and clicks, by query, document and rank, as a log with weights.

    Every row becomes pages of one result at its rank: one that is clicked and weighs the number of
    clicks, and one that is not and weighs the rest. Nothing is lost for models that take the
    results of a page for independent (PBM, and click rates by rank or document). Cascade models and
    UBM need to know which results stood above, and what was clicked there: they can be fitted, but
    their answers mean nothing, which `check` tells.

    Parameters
    ----------
    source
        A table, as `read_log` takes it, with one row a query, document and rank.
    query, doc
        As in `read_log`.
    rank
        A whole number from 1 (or from 0). None where it was not counted: only click rates of
        documents can be told then. The average of ranks is none.
    impressions, clicks
        How often it was shown, and clicked.
    max_line, separator
        As in `read_log`.

    Returns
    -------
    ClickLog

    Raises
    ------
    ClickLogError
        With every fault found, such as more clicks than impressions.

    Warns
    -----
    ClickLogWarning
        That these are counts, and what else was met.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("ignore")
    >>> log = read_counts({"query": ["cats"], "doc": ["a"], "rank": [2], "impressions": [10],
    ...                    "clicks": [3]})
    >>> log.weight.tolist(), log.click.tolist(), log.rank.tolist()
    ([3.0, 7.0], [True, False], [2, 2])
    """
    refuse_lost_fork()
    source, _ = recognise(source, "table", separator=separator)
    label = source_label(source)
    given = {"session": "session", "query": query, "doc": doc, "rank": rank, "click": None}
    roles = Roles({**given, "weight": None})
    columns, lists = columns_of(source)
    shown_in = _guessed("impressions", impressions, IMPRESSIONS, columns)
    clicked_in = _guessed("clicks", clicks, CLICKS, columns)
    roles.guess([n for n in columns if n not in (shown_in, clicked_in, "session")], lists)
    roles.guessed.pop("session", None)
    notes = Notebook()
    wanted = {"impressions": impressions, "clicks": clicks}
    found = {"impressions": shown_in, "clicks": clicked_in}
    guesses = {**roles.guessed, **{r: n for r, n in found.items() if n != wanted[r]}}
    if guesses:
        said = ", ".join(option(role, n, shown=quoted(n)) for role, n in guesses.items())
        notes.tell(GUESSED, len(guesses), f"columns guessed by their names: {said}.")
    with naming(label):
        table = TABLE.read(source, ReadOptions(max_line, roles.id_columns), notes)
        faults = Faults(label)
        _refuse_missing(table, found, roles, faults)
        for name in roles.columns["rank"]:
            if name in table.columns:  # else the log lacks it
                averages = f"; an average of ranks is no rank: {option('rank', None)} does without"
                check_ranks(_numbers(table[name]), roles.title("rank"), faults, averages)
                table = table.with_columns(_numbers(table[name]).alias(name))
        pages, rows = _pages(table, shown_in, clicked_in, faults, notes)
        used = Roles({**roles.given, "session": "session", "click": "click", "weight": "weight"})
        if rank is None:
            pages = pages.with_columns(rank=pl.lit(1, pl.Int32))
            used = Roles({**used.given, "rank": "rank"})
            notes.tell("ranks left out", 1, "no column is a rank; all results have rank 1.")
        with faults.naming_rows(lambda index: int(rows[index])):
            log = assemble(pages, used, faults, notes.notes)
    warnings.warn(in_one_message(label, log.notes), ClickLogWarning, stacklevel=2)
    return log


def _guessed(role: str, name: str, usual: str, columns: Sequence[str]) -> str:
    """Find the column of a role: the one that was named, else one of a usual name."""
    if name in columns or name != role:
        return name
    by_plain = {plain(column): column for column in reversed(columns)}
    return next((by_plain[plain(n)] for n in usual.split() if plain(n) in by_plain), name)


def _refuse_missing(
    table: pl.DataFrame, found: Mapping[str, str], roles: Roles, faults: Faults
) -> None:
    asked = [name for role in ("query", "doc", "rank") for name in roles.columns[role]]
    # A table may lack queries, if nobody named them.
    needed = [name for name in asked if name != "query"]
    lost = [name for name in (*needed, *found.values()) if name not in table.columns]
    if lost:
        usual = [name for name in SYNONYMS["click"].split() if name in table.columns]
        advice = [f"It has: {', '.join(table.columns) or 'no columns at all'}."]
        if set(lost) <= {"doc", "rank", "impressions", "clicks"}:
            said = listed(option(name, shown="...") for name in lost)
            advice.append(f"Say which column it is: {said}.")
        if "rank" in lost:
            advice.append(
                f"Without ranks: {option('rank', None)} reads the counts; only click rates of "
                f"documents can be fitted then."
            )
        if "impressions" in lost and usual:
            advice.append(
                "Clicks alone are not enough: a document that was clicked 10 times may have been "
                "shown 20 times or 20,000 times."
            )
        faults.lacks(lost, advice)
        faults.raise_if_any()


def _pages(
    table: pl.DataFrame, impressions: str, clicks: str, faults: Faults, notes: Notebook
) -> tuple[pl.DataFrame, pl.Series]:
    """Make two pages of each row, one that is clicked and one that is not; also whose they are."""
    shown = pl.Series(check_weights(_numbers(table[impressions]), impressions, faults))
    clicked = pl.Series(check_weights(_numbers(table[clicks]), clicks, faults))
    more = (clicked > shown).arg_true()
    if len(more) and not faults:
        row = int(more[0])
        faults.add(
            f"{clicks}: {counted(len(more), 'row')} with more clicks than impressions, first: "
            f"{faults.row(row)} has {clicked[row]:g} of {shown[row]:g}; count a click on a page "
            f"once, and count impressions also if nothing was clicked"
        )
    taken = [name for name in ("session", "click", "weight") if name in table.columns]
    if taken:
        faults.add(
            f"{', '.join(map(repr, taken))}: counts have no such column; is this a log with a row "
            "a result? Rename it, or leave it out"
        )
    faults.raise_if_any()
    unseen = (shown == 0).arg_true()
    notes.add_rows("rows without impressions", unseen, "left out")
    n_shown, n_clicks = float(shown.sum()), float(clicked.sum())
    notes.add(
        COUNTS,
        round(n_shown),
        f"impressions, with {n_clicks:,.0f} click{'s' * (n_clicks != 1)}, read from counts: every "
        "result is a page of its own, so models by rank and click rates can be fitted, and cascade "
        "models and UBM cannot",
    )
    rest = table.drop(impressions, clicks).with_row_index("\0row")
    parts = [
        rest.with_columns(click=pl.lit(is_clicked), weight=weight)
        for is_clicked, weight in ((True, clicked), (False, shown - clicked))
    ]
    pages = pl.concat(parts).filter(pl.col("weight") > 0).sort("\0row", maintain_order=True)
    if not pages.height:
        raise ClickLogError(f"{faults.label}: nothing was ever shown: all impressions are 0.")
    session = pl.int_range(pl.len(), dtype=pl.Int64).alias("session")
    return pages.drop("\0row").select(session, pl.all()), pages["\0row"]


def _numbers(values: pl.Series) -> pl.Series:
    """Read numbers that are written as text, such as 1,234; others stay as they are."""
    if values.dtype != pl.String:
        return values
    numbers = values.str.strip_chars().str.replace_all(",", "").cast(pl.Float64, strict=False)
    return values if numbers.null_count() > values.null_count() else numbers
