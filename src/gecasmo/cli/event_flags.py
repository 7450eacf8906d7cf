"""Flags of logs that are no tables of results yet: streams of events, and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.config import from_config
from gecasmo.errors import GecasmoError

if TYPE_CHECKING:
    from gecasmo.logs import ClickLog

_PANEL = "How to read events and counts"
# Flags that only mean something with --events, and with --counts.
OF_EVENTS = ("page", "event", "position", "event_time", "impression", "signal", "gap")
OF_COUNTS = ("impressions", "clicks")
EVENT_FLAGS = ("events", "counts", *OF_EVENTS, *OF_COUNTS)
# Flags of tables that are called otherwise here.
_INSTEAD = {"session": "--page", "rank": "--position", "weight": None, "format": None}


def _flag(name: str, help: str, metavar: str = "COLUMN") -> Any:
    return typer.Option(f"--{name}", metavar=metavar, help=help, rich_help_panel=_PANEL)


@dataclass(frozen=True)
class EventFlags:
    """The role of each column in a stream of events, or in a table of counts."""

    events: Annotated[
        bool,
        typer.Option(
            "--events",
            help="One row per impression, click or cart event, in any order.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    counts: Annotated[
        bool,
        typer.Option(
            "--counts",
            help="One row per query, document and rank, with counts of impressions and clicks.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    page: Annotated[
        str | None, _flag("page", "Which list of results an event belongs to; several as a,b.")
    ] = None
    event: Annotated[str | None, _flag("event", "The name of the event.")] = None
    position: Annotated[
        str | None, _flag("position", "The position of a result; 'none' takes the order.")
    ] = None
    event_time: Annotated[
        str | None, _flag("event-time", "The time of the event; 'none' if there is none.")
    ] = None
    impression: Annotated[
        str | None,
        _flag("impression", "The event for a result that was shown; several as a,b.", "NAME"),
    ] = None
    signal: Annotated[
        list[str] | None,
        _flag("signal", "Make a column from other events: cart=add_to_cart.", "COLUMN=NAME"),
    ] = None
    gap: Annotated[
        str | None,
        _flag("gap", "A new page begins with another query, or after this time: 30m.", "TIME"),
    ] = None
    impressions: Annotated[
        str | None, _flag("impressions", "With --counts: how often it was shown.")
    ] = None
    clicks: Annotated[str | None, _flag("clicks", "With --counts: how often it was clicked.")] = (
        None
    )

    def stream(self, named: Sequence[str], columns: Sequence[str]) -> str | None:
        """Whether to read "events", "counts", or neither.

        `named` are flags of tables that somebody named, and `columns` those of the log.
        """
        chosen = [name for name in ("events", "counts") if getattr(self, name)]
        if len(chosen) > 1:
            raise GecasmoError("--events and --counts: choose one of them.")
        kind = chosen[0] if chosen else None
        for of_kind, flags in (("events", OF_EVENTS), ("counts", OF_COUNTS)):
            for name in flags:
                is_said = getattr(self, name) and name not in from_config()
                if is_said and kind != of_kind:
                    raise GecasmoError(f"--{name.replace('_', '-')} needs --{of_kind}.")
        # A file speaks for many logs, among them such as gecasmo writes.
        if kind in from_config() and {"session", "doc", "rank", "click"} <= set(columns):
            return None
        for name in named if kind else ():
            if name in _INSTEAD and not (kind == "counts" and name == "rank"):
                instead = _INSTEAD[name] if kind == "events" else None
                raise GecasmoError(
                    f"--{name}: with --{kind} use {instead} instead."
                    if instead
                    else f"--{name}: {kind} have none; leave it out."
                )
        return kind

    def read_stream(
        self, kind: str, source: Any, given: dict[str, str | None], options: dict[str, Any]
    ) -> ClickLog:
        """Read events or counts; `given` are the flags of tables: query, doc, rank, click."""
        from gecasmo.logs import read_counts, read_events

        texts = {name: given[name] for name in ("query", "doc")}
        if kind == "counts":
            texts |= {name: getattr(self, name) for name in OF_COUNTS} | {"rank": given["rank"]}
        else:
            texts |= {name: getattr(self, name) for name in ("page", "event", "position")}
            texts |= {"time": self.event_time, "click": given["click"]}
            texts |= {"impression": self.impression}
            options = options | {"gap": self.gap}
            options["signals"] = None if self.signal is None else _signals(self.signal)
        for name, text in texts.items():
            if text is not None:
                several = name in ("page", "impression", "click")
                optional = name in ("query", "position", "time", "rank")
                options = options | {name: _names(text, several, optional)}
        return (read_counts if kind == "counts" else read_events)(source, **options)


def _names(text: str, several: bool, optional: bool) -> Any:
    if optional and text.lower() == "none":
        return None
    if several and "," in text:
        return [name.strip() for name in text.split(",") if name.strip()]
    return text


def _signals(said: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in said:
        column, equals, names = each.partition("=")
        if not equals or not column.strip() or not names.strip():
            raise GecasmoError(
                f"--signal {each}: a column and the event that makes it, such as cart=add_to_cart."
            )
        found[column.strip()] = _names(names.strip(), True, False)
    return found
