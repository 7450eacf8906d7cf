"""How a model looks: in a terminal, in a notebook, and as generated source."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from gecasmo.forms.table import NOT_IDENTIFIED, is_open
from gecasmo.kernels.library import LIFTED_KERNELS, Library
from gecasmo.kernels.plan import plan_of
from gecasmo.language.parameter import PAGE_KEYS

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
    lines += ["Coins"] + ["  " + line for line in _coins(model)] + [""]
    automaton = str(model.automaton).splitlines()
    lines.append(f"Automaton: {automaton[0]}")
    lines += automaton[1 : _MAX_EDGES + 1]
    if len(automaton) > _MAX_EDGES + 1:
        lines.append(f"  ... {len(automaton) - _MAX_EDGES - 1} more edges")
    return "\n".join(line.rstrip() for line in lines)


def _summary(model: Model) -> str:
    report = model.report_
    if not model.is_fitted:
        return "not fitted"
    if report is None:
        return "with given values"
    state = "converged" if report.converged else "not converged"
    if report.interrupted:
        state = "interrupted"
    text = (
        f"fitted to {report.n_sessions:,} sessions in {report.history[-1].iteration} iterations "
        f"({state}), log-likelihood per session "
        f"{report.log_likelihood / max(report.total_weight, 1e-300):.4f}"
    )
    if report.n_dropped:
        text += f"; {report.n_dropped:,} impossible sessions left out"
    if report.n_floored:
        text += f"; {report.n_floored:,} impossible observations floored"
    return text


def _coins(model: Model) -> list[str]:
    width = max(map(len, model.forms), default=0)
    lines = []
    for coin, form in model.forms.items():
        keys = ", ".join(model.keys[coin]) or "one for all"
        line = f"{coin:<{width}}  by {keys:<18}  {form!r}"
        if model.states_ is not None:
            line += f"  {form.summary(model.states_[coin])}{_open_rows(model, coin)}"
        lines.append(line.rstrip())
    return lines


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
    """The same for a notebook, with the program folded away."""
    parts = [
        f"<b>{html.escape(model.name)}</b>: {html.escape(_summary(model))}",
        f"<pre>{html.escape(chr(10).join(_coins(model)))}</pre>",
        f"<details><summary>program</summary><pre>{html.escape(model.program)}</pre></details>",
        f"<details><summary>automaton</summary><pre>{html.escape(str(model.automaton))}</pre>"
        "</details>",
    ]
    return "".join(parts)


def explain_source(model: Model, kernel: str, augmentation: Augmentation) -> str:
    """A kernel's source under a legend. The legend is for reading; it is never executed."""
    counting = kernel.startswith("e_step")
    structure = model.counting_structure if counting else model.structure
    # As for a log in which of all columns only these are the same all over a page.
    plan, _ = plan_of(
        model.keys, structure.traced, lambda key: key in PAGE_KEYS, kernel in LIFTED_KERNELS
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
