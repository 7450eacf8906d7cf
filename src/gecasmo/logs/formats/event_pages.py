"""Pages put together from events: what was shown on them, and what was done to it, in any order.

Every reader of events brings two tables, of what was shown and of what was done, with the columns

    page, doc, position, time, row        and, of what was done, kind: the name of its signal

`row` is that of the source; positions and times may be missing. What is odd is counted in notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from gecasmo.logs.formats.format import code_of, note_shown_twice
from gecasmo.logs.notes import Notebook

CLICK_TIME = "click_time"
# What events are called that mean something to a click log, without what spellings differ in.
_NAMES = {
    "impression": (
        "impression impressions item_impression product_impression result_impression shown "
        "view_item_list product_list_viewed list_view search_results_viewed results_viewed"
    ),
    "view": "view views viewed item_view product_view viewed_object_ids",
    "click": (
        "click clicks clicked click_through clickthrough item_click product_click result_click "
        "select_item product_clicked result_clicked list_click clicked_object_ids_after_search"
    ),
    "cart": "add_to_cart cart cart_add item_add_to_cart product_added added_to_cart",
    "purchase": "purchase purchased buy order item_purchase order_completed transaction",
}
_KINDS = {name.replace("_", ""): kind for kind, names in _NAMES.items() for name in names.split()}
SIGNALS = ("click", "cart", "purchase")
_PLURALS = {"click": "clicks", "cart": "cart events", "purchase": "purchases"}
SHOWN = ("page", "doc", "position", "time", "row")


def kind_of_event(name: str) -> str:
    """Say what an event is to a click log: "impression", "view", one of `SIGNALS`, or "other"."""
    return _KINDS.get(re.sub(r"[^a-z]", "", name.lower()), "other")


def kinds_of(names: pl.Series, kinds: Mapping[str, str]) -> pl.Series:
    """Say what each event is; "other" where its name is not among the `kinds`."""
    known = pl.col("name").replace_strict(list(kinds), list(kinds.values()), default="other")
    return names.alias("name").to_frame().select(known.cast(pl.String).fill_null("other"))["name"]


def note_others(names: pl.Series, rows: pl.Series, kind: str, notes: Notebook) -> None:
    """Note events that play no part, with the names that they mostly have."""
    found = names.value_counts(sort=True, name="events")[names.name].head(5)
    notes.add_rows(kind, rows, f"left out; they are {', '.join(map(repr, found))}")


def without(
    events: pl.DataFrame, faults: Iterable[tuple[str, str, pl.Expr]], notes: Notebook
) -> pl.DataFrame:
    """Leave out events that cannot be placed; each fault is a note, what is done, and which."""
    for kind, done, wrong in faults:
        found = events.filter(wrong)
        if found.height:
            notes.add_rows(kind, found["row"], done)
            events = events.filter(~wrong)
    return events


def from_one(events: pl.DataFrame, are_shown: pl.Expr, notes: Notebook) -> pl.DataFrame:
    """Let positions start at 1, also where those of results that were shown start at 0."""
    lowest = events.filter(are_shown, position=0)
    notes.add("positions from 0", lowest.height, "positions start at 0 here; 1 was added to all")
    return events.with_columns(pl.col("position") + 1) if lowest.height else events


@dataclass(frozen=True)
class PutTogether:
    """Pages, and their results.

    Attributes
    ----------
    pages
        What was known of the pages, in their order.
    results
        One row a result, by page and rank: "number" (the row of its page), "doc", "rank", "row"
        (of what showed it), a boolean a signal, and `CLICK_TIME` where times are known.
    """

    pages: pl.DataFrame
    results: pl.DataFrame


def put_together(
    pages: pl.DataFrame,
    shown: pl.DataFrame,
    done: pl.DataFrame,
    signals: Iterable[str],
    notes: Notebook,
) -> PutTogether:
    """Make pages of what was shown, and find for all that was done the result it was done to.

    Parameters
    ----------
    pages
        One row a page, in the order of the log: "page", "row" and whatever is known of it. What
        was shown on other pages is left out without a note.
    shown, done
        See above.
    signals
        The kinds that become columns; "click" is one of them.
    notes
        Where it is noted what was met.
    """
    # Numbers for pages and documents are far faster to compare than their names.
    page = pl.concat([pages["page"], shown["page"], done["page"]])
    page = page if page.dtype == pl.UInt32 else code_of(page)
    doc = code_of(pl.concat([shown["doc"], done["doc"]]))
    n_pages, n_shown = pages.height, shown.height
    numbers = pl.DataFrame({"page_code": page.head(n_pages)}).with_row_index("number")
    shown = shown.select(
        "doc",
        "position",
        "time",
        "row",
        page_code=page.slice(n_pages, n_shown),
        doc_code=doc.head(n_shown),
    )
    done = done.select(
        "position",
        "time",
        "row",
        "kind",
        page_code=page.slice(n_pages + n_shown),
        doc_code=doc.slice(n_shown),
    )
    results = _ranked(shown, notes).join(numbers, on="page_code").sort("number", "rank")
    note_shown_twice(
        results.select("doc", page="number"),
        pages["row"],
        notes,
        "they stay on each position; an event without a position counts for the upper one",
    )
    done = done.join(numbers, on="page_code", how="semi", maintain_order="left")
    results = _with_signals(results, done, signals, notes)
    empty = numbers.filter(~pl.col("number").is_in(results["number"].unique().implode()))
    notes.add_rows("pages without results", pages["row"].gather(empty["number"]), "they are kept")
    return PutTogether(pages, results)


def _ranked(shown: pl.DataFrame, notes: Notebook) -> pl.DataFrame:
    """Give every result its rank: its position, or the order of the events where that fails."""
    is_first = pl.struct("page_code", "doc_code", "position").is_first_distinct()
    if not shown.select(is_first.all()).item():
        # The earliest of equal impressions stays, so that the order of the source plays no part.
        shown = _by_time(shown)
        repeats = shown.filter(~is_first)["row"].sort()
        notes.add_rows("duplicate impressions", repeats, "a result is shown once")
        shown = shown.filter(is_first)
    unplaced = _on_pages_with(pl.col("position").is_null(), shown)
    shared = _on_pages_with(pl.struct("page_code", "position").is_duplicated(), shown) & ~unplaced
    for kind, pages in (
        ("pages without positions", shown.filter(unplaced)),
        ("pages with two results on one position", shown.filter(shared)),
    ):
        if pages.height:
            firsts = pages.group_by("page_code").agg(pl.col("row").min())["row"].sort()
            notes.add_rows(kind, firsts, "their results are ranked in the order of the events")
    odd = shown.select(unplaced | shared).to_series()
    by_position = shown.with_columns(rank=pl.col("position"))
    if not odd.any():
        return by_position
    # A result that came again without a position is the same result.
    by_order = _by_time(shown.filter(odd))
    by_order = by_order.unique(["page_code", "doc_code"], keep="first", maintain_order=True)
    by_order = by_order.with_columns(
        rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("page_code")
    )
    return pl.concat([by_position.filter(~odd), by_order])


def _by_time(events: pl.DataFrame) -> pl.DataFrame:
    # Documents of one list have one row, and stay in its order.
    return events.sort("time", "row", nulls_last=True, maintain_order=True)


def _on_pages_with(found: pl.Expr, shown: pl.DataFrame) -> pl.Expr:
    """Say of each result whether it is on a page that has something."""
    pages = shown.filter(found)["page_code"].unique()
    return pl.col("page_code").is_in(pages.implode())


def _with_signals(
    results: pl.DataFrame, done: pl.DataFrame, signals: Iterable[str], notes: Notebook
) -> pl.DataFrame:
    """Add a boolean column a signal, finding each event's result by document and position."""
    results = results.with_row_index("result")
    done = done.sort("row")
    keys = ["page_code", "doc_code"]
    # Few results have any event, and only those need be looked for.
    places = results.join(done, on=keys, how="semi", maintain_order="left")
    upper = places.unique(keys, keep="first", maintain_order=True)
    upper = upper.select(*keys, "result", shown_at="time")
    exact = places.select(*keys, "position", exact="result").unique([*keys, "position"])
    done = done.join(upper, on=keys, how="left", maintain_order="left")
    done = done.join(exact, on=[*keys, "position"], how="left", maintain_order="left")
    done = done.with_columns(result=pl.coalesce("exact", "result"))
    early = done.filter(pl.col("time") < pl.col("shown_at"))
    notes.add_rows(
        "events out of order", early["row"], "dated before their result was shown; they count"
    )
    for signal in signals:
        plural = _PLURALS.get(signal, f"events '{signal}'")
        found = done.filter(kind=signal)
        unseen = found.filter(pl.col("result").is_null())
        notes.add_rows(f"{plural} on results never shown", unseen["row"], "left out")
        found = found.filter(pl.col("result").is_not_null())
        again = found.filter(~pl.col("result").is_first_distinct())
        notes.add_rows(f"duplicate {plural}", again["row"], f"a result has one {signal}")
        results = results.with_columns(
            pl.col("result").is_in(found["result"].unique().implode()).alias(signal)
        )
        if signal == "click" and found["time"].count():
            firsts = found.group_by("result").agg(pl.col("time").min().alias(CLICK_TIME))
            results = results.join(firsts, on="result", how="left", maintain_order="left")
    return results
