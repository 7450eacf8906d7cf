"""How a model looks: in a terminal, in a notebook, and as generated source."""

from __future__ import annotations

import html
import textwrap
from typing import TYPE_CHECKING

from gecasmo.forms.table import NOT_IDENTIFIED, is_open
from gecasmo.kernels.library import COUNTING_KERNELS, LIFTED_KERNELS, Library
from gecasmo.kernels.plan import plan_of
from gecasmo.language.parameter import PAGE_KEYS
from gecasmo.logs.views import as_view
from gecasmo.report import Column, TextTable, printable, printable_lines, text_width

if TYPE_CHECKING:
    from gecasmo.model.base import Augmentation, Model

_MAX_EDGES = 24
_MAX_PROGRAM_LINES = 30


def as_text(model: Model) -> str:
    """Program, coins, automaton and fit, in at most a screenful."""
    lines = [f"{model.name}: {_summary(model)}", ""]
    program = model.program.strip().splitlines()
    if program:
        lines += ["  " + line for line in program[:_MAX_PROGRAM_LINES]]
        if len(program) > _MAX_PROGRAM_LINES:
            lines.append(f"  ... {len(program) - _MAX_PROGRAM_LINES} more lines")
        lines.append("")
    coins = _coins(model)
    width = max((len(coin) for coin, *_ in coins), default=0)
    lines.append("Coins")
    for coin, by, form, own in coins:
        lines += _folded(f"  {coin:<{width}}  by {by:<18}  {form}  {own}")
    lines.append("")
    automaton = str(model.automaton).splitlines()
    lines.append(f"Automaton: {automaton[0]}")
    for edge in automaton[1 : _MAX_EDGES + 1]:
        lines += _folded(edge)
    if len(automaton) > _MAX_EDGES + 1:
        lines.append(f"  ... {len(automaton) - _MAX_EDGES - 1} more edges")
    # Names and program may come from a file, which comes from anywhere.
    return printable_lines("\n".join(line.rstrip() for line in lines))


def _folded(line: str) -> list[str]:
    """A line that goes on below where the terminal has no room for it."""
    return textwrap.wrap(
        line.rstrip(),
        text_width(),
        subsequent_indent=" " * 6,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(model: Model) -> str:
    if not model.is_fitted:
        return "not fitted"
    return "with given values" if model.report_ is None else model.report_.summary


def _coins(model: Model) -> list[tuple[str, str, str, str]]:
    """Of each coin its name, what it is by, its form, and what was learned."""
    coins = []
    for coin, form in model.forms.items():
        keys = ", ".join(model.keys[coin]) or "one for all"
        own = ""
        if model.states_ is not None:
            own = f"{form.summary(model.states_[coin])}{_open_rows(model, coin)}"
        coins.append((coin, keys, repr(form), own))
    return coins


def _open_rows(model: Model, coin: str) -> str:
    """How many rows of a coin that all pages share the log has left open."""
    assert model.states_ is not None
    form, state = model.forms[coin], model.states_[coin]
    if not form.has_posterior or form.in_files(state) is not None:
        return ""
    spread = state.spread
    counts = None if model.report_ is None else model.report_.counts.get(coin)
    if spread is None or counts is None:
        return ""
    n_open = int((is_open(model.keys[coin], spread) & (counts.sum(axis=0) > 0)).sum())
    many = "" if n_open == len(spread) else f"{n_open:,} "
    return f", {many}{NOT_IDENTIFIED}" if n_open else ""


def as_html(model: Model) -> str:
    """The same for a notebook: a table of coins, with program and automaton folded away."""
    heads = ("coin", "by", "form", "learned") if model.is_fitted else ("coin", "by", "form")
    cells = zip(*_coins(model), strict=True)
    columns = [Column(head, own, True) for head, own in zip(heads, cells, strict=False)]
    told = html.escape(printable(_summary(model)))
    parts = [f"<b>{html.escape(printable(model.name))}</b>: {told}", TextTable(columns).html()]
    for title, text in (("program", model.program), ("automaton", str(model.automaton))):
        shown = f"<pre>{html.escape(printable_lines(text))}</pre>"
        parts.append(f"<details><summary>{title}</summary>{shown}</details>")
    return "".join(parts)


def explain_source(model: Model, kernel: str, augmentation: Augmentation) -> str:
    """A kernel's source under a legend. The legend is for reading; it is never executed."""
    counting = kernel in COUNTING_KERNELS
    structure = model.counting_structure if counting else model.structure
    # As for a log in which of all columns only these are the same all over a page.
    constant = [k for k in PAGE_KEYS if k != "query" or not as_view(model.view).spans_pages]
    plan, _ = plan_of(
        model.keys, structure.traced, lambda key: key in constant, kernel in LIFTED_KERNELS
    )
    library = Library(structure, plan)
    machine = library.machine(kernel, augmentation)
    names = model.structure.traced.parameters
    legend = [f"# {kernel} of {_safe(model.name)}", "#"]
    for number, name in enumerate(names):
        keys = ", ".join(map(_safe, model.keys[name])) or "one row"
        legend.append(f"# coin {number}: {_safe(name)} ({keys})")
    for number, (coin, lag, row) in enumerate(machine.variables):
        place = "" if row is None else f", row {row}"
        above = ", previous result" if lag else ""
        legend.append(f"# variable {number}: coin {coin}{above}{place}")
    for number, (case, symbol) in enumerate(machine.observations):
        shown = _safe(" + ".join(symbol)) or "nothing"
        legend.append(f"# observation {number}: {shown}, guards of class {case}")
    return "\n".join(legend) + "\n\n" + library.source(kernel, augmentation)


def _safe(name: str) -> str:
    """A name that cannot break out of a comment."""
    return "".join(c if c.isprintable() else "?" for c in name)
