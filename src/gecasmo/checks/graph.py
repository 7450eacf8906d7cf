"""The graph of rows that meet: estimates can be compared only as far as it hangs together.

Where two coins only appear as a product, a result tells the product of two rows. Results that share
a row tie their estimates together; rows that no chain of results connects can be scaled apart. In a
position-based model these are ranks and documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.checks.findings import Findings, Severity, row_text, rows_text
from gecasmo.checks.identified import Looked, Tangle, coins_of
from gecasmo.checks.subject import CheckedModel, coin_to_give, rows_at_results, totals
from gecasmo.encoding import EncodedLog
from gecasmo.errors import either, in_model_file
from gecasmo.kernels.machine import Machine
from gecasmo.language.parameter import HISTORY_KEYS
from gecasmo.report import counted, listed, percent

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def check_tangle(subject: CheckedModel, tangle: Tangle, looked: Looked, top: int) -> Findings:
    """What follows for this log from coins that no log can tell apart."""
    model = subject.model
    part = Findings()
    names = listed(tangle.coins)
    what = (
        f"{names} appear only as a product"
        if tangle.is_product
        else f"{names} can make up for each other"
    )
    numbered = model.counting_structure.traced.numbered_rows()
    forms = [model.forms[coin] for coin in tangle.coins]
    is_graph = len(tangle.coins) == 2 and all(form.row_by_row for form in forms)
    if not is_graph or any(coin in numbered for coin in tangle.coins):
        n_open = sum(
            block.dimension
            for block in looked.space.blocks
            if set(coins_of(block, looked.parameters)) <= set(tangle.coins)
        )
        own = map(list(model.forms).index, tangle.coins)
        if n_open == 0 and any(np.any(subject.fixed[coin]) for coin in own):
            part.add("info", "product", f"In {model.name}, {what}; what is given fixes them.")
            return part
        open_ = f"{counted(n_open, 'combination')} of them" if n_open else "their scale"
        part.add(
            "warning",
            "product",
            f"In {model.name}, {what}: {open_} cannot be estimated from any clicks unless "
            "something is given.",
            count=n_open,
            advice="Give some of their rows"
            f"{either('', ', in Python')}, with Table(fixed=...) or Fixed(...).",
        )
        return part
    first, second = (list(model.forms).index(coin) for coin in tangle.coins)
    plan = subject.encoded.plan
    structure = model.counting_structure.of_log(plan.unrecorded, plan.observed)
    met = meet(subject.encoded, structure.machine("minimal"), first, second)
    if met.n_components == 0:
        return part
    given = _anchored(met, subject)
    part.tables["components"] = _table(met, given, subject, top)
    part.facts |= {
        "components": met.n_components,
        "components_without_anchor": int((~given).sum()),
        "outside_largest": float(met.impressions[1:].sum() / max(met.impressions.sum(), 1e-300)),
    }
    _tell_anchor(part, subject, tangle, met, given, what)
    _tell_components(part, subject, tangle, met, given, top)
    return part


def _anchored(met: Meetings, subject: CheckedModel) -> NDArray[np.bool_]:
    """Which components hold a row that is given."""
    given = np.zeros(met.n_components, bool)
    for side, coin in enumerate(met.coins):
        where = met.component[side][subject.fixed[coin]]
        given[where[where >= 0]] = True
    return given


def _table(
    met: Meetings, given: NDArray[np.bool_], subject: CheckedModel, top: int
) -> pl.DataFrame:
    names = [list(subject.model.forms)[coin] for coin in met.coins]
    total = max(float(met.impressions.sum()), 1e-300)
    sizes = [np.bincount(side[side >= 0], minlength=met.n_components) for side in met.component]
    lines = []
    for number in range(min(met.n_components, max(top, 1))):
        line = {"component": number + 1, "share_of_impressions": met.impressions[number] / total}
        for side, name in enumerate(names):
            line[f"{name}_rows"] = int(sizes[side][number])
        line["anchored"] = bool(given[number])
        rows = subject.encoded.rows[met.coins[0]]
        line["such_as"] = rows_text(rows, met.members(0, number), 2) or names[0]
        lines.append(line)
    return pl.DataFrame(lines)


def _tell_anchor(
    part: Findings,
    subject: CheckedModel,
    tangle: Tangle,
    met: Meetings,
    given: NDArray[np.bool_],
    what: str,
) -> None:
    model = subject.model
    if given.all():
        part.add("info", "product", f"In {model.name}, {what}; given rows fix the scale of both.")
        return
    coin = coin_to_give(subject, tangle.coins)
    side = tangle.coins.index(coin)
    n_open = int((~given).sum())
    if given.any():
        part.add(
            "warning",
            "product",
            f"In {model.name}, {what}; given rows fix the scale of {counted(int(given.sum()))} of "
            f"{met.n_components:,} components, and {counted(n_open)} "
            f"{'has' if n_open == 1 else 'have'} none.",
            count=n_open,
        )
        return
    part.add(
        "warning",
        "product",
        f"In {model.name}, {what}: all {tangle.coins[0]} can go up and all {tangle.coins[1]} down "
        "without changing any click probability, and nothing is given that fixes the scale.",
        count=n_open,
        advice="Predictions and orderings are still right; levels are those of the prior. "
        f"Give one row{' of each component' if n_open > 1 else ''}"
        f": {in_model_file(f'{model.name}({coin}={_anchor(subject, met, side)})')}.",
    )


def _anchor(subject: CheckedModel, met: Meetings, side: int) -> str:
    """A table with its most used row given, the first one among equals."""
    rows = subject.encoded.rows[met.coins[side]]
    if not rows.keys:
        return "Fixed(1.0)"
    used = met.used[side]
    best = np.flatnonzero(used >= used.max() * (1 - 1e-12))
    keys = min((rows.frame.row(int(row)) for row in best), key=lambda key: tuple(map(_order, key)))
    return (
        f"Table(fixed={{{keys[0]!r}: 1.0}})"
        if len(keys) == 1
        else f"Table(fixed={{{keys!r}: 1.0}})"
    )


def _order(value: object) -> tuple[int, float, str]:
    """Numbers by size, before texts by letters."""
    if isinstance(value, (int, float)):
        return (0, float(value), "")
    return (1, 0.0, str(value))


def _tell_components(
    part: Findings,
    subject: CheckedModel,
    tangle: Tangle,
    met: Meetings,
    given: NDArray[np.bool_],
    top: int,
) -> None:
    total = float(met.impressions.sum())
    outside = float(met.impressions[1:].sum())
    names = tangle.coins
    if met.n_components == 1:
        part.add(
            "info",
            "connectivity",
            f"All rows of {names[0]} and {names[1]} are connected by results that share them, so "
            "their estimates can be compared.",
        )
        return
    if given.all():
        severity: Severity = "info"
    else:
        severity = "error" if outside > 0.1 * total else "warning"
    part.add(
        severity,
        "connectivity",
        f"The rows of {names[0]} and {names[1]} fall into {met.n_components:,} components that no "
        f"result connects; {percent(outside, total)} of the impressions are outside the largest. "
        "Estimates of different components cannot be compared"
        + (", except that each has a given row." if given.all() else "."),
        count=met.n_components,
        examples=[
            f"component {number + 1}: {names[0]} of {_some(subject, met, 0, number)} with "
            f"{names[1]} of {_some(subject, met, 1, number)}"
            for number in range(min(met.n_components, top))
        ],
        advice="" if given.all() else _linking_advice(subject, met),
    )
    if can_link(subject, met):
        part.tables["links"] = links(subject, met, top)


def _some(subject: CheckedModel, met: Meetings, side: int, component: int) -> str:
    rows = subject.encoded.rows[met.coins[side]]
    return rows_text(rows, met.members(side, component), 2) or "all pages"


def can_link(subject: CheckedModel, met: Meetings) -> bool:
    """Whether showing pages in another order can bring together rows that have never met."""
    placed = [
        any(key in ("rank", *HISTORY_KEYS) for key in subject.encoded.rows[coin].keys)
        for coin in met.coins
    ]
    return placed[0] != placed[1]


def _linking_advice(subject: CheckedModel, met: Meetings) -> str:
    if not can_link(subject, met):
        return (
            "Other pages would not change that, since the keys of both coins always go together: "
            "give one row of each component, or choose other keys."
        )
    missing = met.n_components - 1
    return (
        f"{counted(missing, 'result')} shown at another place would connect them all, if each "
        "joins two components; a few in random order do it sooner and better (see the table)."
    )


def links(subject: CheckedModel, met: Meetings, top: int) -> pl.DataFrame:
    """For each component but the largest, a row to bring together with the largest one."""
    placed = [
        any(key in ("rank", *HISTORY_KEYS) for key in subject.encoded.rows[coin].keys)
        for coin in met.coins
    ]
    place, other = (0, 1) if placed[0] else (1, 0)
    place_rows, other_rows = (subject.encoded.rows[met.coins[side]] for side in (place, other))
    target = row_text(place_rows, int(met.members(place, 0)[0]))
    return pl.DataFrame(
        [
            {
                "component": number + 1,
                "show": row_text(other_rows, int(met.members(other, number)[0])),
                "at": target,
            }
            for number in range(1, min(met.n_components, top + 1))
        ]
    )


@dataclass(frozen=True)
class Meetings:
    """How the rows of two coins meet at results.

    `component[side][row]` is the part of the graph that a row is in, the largest first; -1 for a
    row that never meets one of the other coin.
    """

    coins: tuple[int, int]
    component: tuple[Integers, Integers]
    impressions: Floats  # of each component
    used: tuple[Floats, Floats]  # impressions of each row

    @property
    def n_components(self) -> int:
        """Count the groups of pairs and ranks that nothing connects."""
        return len(self.impressions)

    def members(self, side: int, component: int) -> Integers:
        """The rows of one side in a component, those with the most impressions first."""
        rows = np.flatnonzero(self.component[side] == component)
        return rows[np.argsort(-self.used[side][rows], kind="stable")]


def meet(encoded: EncodedLog, machine: Machine, first: int, second: int) -> Meetings:
    """Which rows of two coins meet at results, and how that hangs together."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    sizes = len(encoded.rows[first]), len(encoded.rows[second])
    weight = np.repeat(encoded.weight, np.diff(encoded.obs_start))
    rows = [rows_at_results(encoded, coin) for coin in (first, second)]
    lists: tuple[list[Integers], list[Integers]] = ([], [])
    weights = []
    for case, lags in _meeting_cases(machine, first, second):
        here = np.flatnonzero(_cases(machine)[encoded.obs] == case)
        for lag in lags:
            keep = here[_within(encoded, here) >= max(lag)]
            for side in (0, 1):
                lists[side].append(rows[side][keep - lag[side]])
            weights.append(weight[keep])
    pairs = [np.concatenate([np.zeros(0, np.int64), *found]) for found in lists]
    amount = np.concatenate([np.zeros(0), *weights])
    counted_pairs = amount > 0
    pairs, amount = [side[counted_pairs] for side in pairs], amount[counted_pairs]
    n_nodes = sum(sizes)
    graph = coo_array((amount, (pairs[0], pairs[1] + sizes[0])), shape=(n_nodes, n_nodes))
    _, label = connected_components(graph, directed=False)
    used = totals(pairs[0], amount, sizes[0]), totals(pairs[1], amount, sizes[1])
    impressions = totals(label[pairs[0]], amount, n_nodes)
    order = np.argsort(-impressions, kind="stable")
    order = order[impressions[order] > 0]
    number = np.full(max(n_nodes, 1), -1)
    number[order] = np.arange(len(order))
    component = number[label[: sizes[0]]], number[label[sizes[0] :]]
    return Meetings((first, second), component, impressions[order], used)


def _meeting_cases(
    machine: Machine, first: int, second: int
) -> list[tuple[int, set[tuple[int, int]]]]:
    """The kinds of results (by guards) at which both coins are flipped, with the lags of both."""
    found = []
    for case, edges in enumerate(machine.edges_by_class):
        lags = set()
        for edge in edges:
            variables = [machine.variables[literal.variable] for literal in edge.literals]
            lags |= {
                (a.lag, b.lag)
                for a in variables
                if a.coin == first
                for b in variables
                if b.coin == second
            }
        if lags:
            found.append((case, lags))
    return found


def _cases(machine: Machine) -> Integers:
    return np.array([observation.case for observation in machine.observations], np.int64)


def _within(encoded: EncodedLog, places: Integers) -> Integers:
    """The place of results on their page, from 0."""
    page = np.searchsorted(encoded.obs_start, places, side="right") - 1
    return places - encoded.obs_start[page]
