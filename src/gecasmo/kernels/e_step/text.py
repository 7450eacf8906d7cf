"""What the shapes of the E-step share: arguments, fetching weights, adding up counts.

Recursion values live in local scalars; each weight is fetched once per result and only if used.
A variable n of the machine with side h (1 heads, 0 tails) is called

    g{n}_{h}  the same everywhere, fetched once     its count is the scalar n{n}_{h}
    p{n}_{h}  one per page, fetched once a page     its count is the scalar m{n}_{h}
    w{n}_{h}  one per result                        its count is a cell of the table c{coin}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from gecasmo.kernels.machine import IMPOSSIBLE, Machine, MachineEdge, MachineLiteral
from gecasmo.kernels.plan import Plan
from gecasmo.kernels.text import MAX_UNROLLED_EDGES, Text, number, product

# A page less likely than this is left to the scaled kernel; products of two such still exist.
SMALLEST_PAGE = 1e-200
SMALLEST_PRODUCT = 1e-100


def e_step_arguments(plan: Plan, packed: bool = False) -> list[str]:
    """The arguments of every E-step kernel, in order."""
    return [
        *["first", "last", "bucket_start", "obs_start", "row_start", "obs", "weight"],
        *plan.codes_arguments(),
        *plan.coin_arguments("W", packed),
        *plan.coin_arguments("C", packed),
        *plan.coin_arguments("shift", packed),
        *["log_likelihood", "n_impossible", "careful", "max_length"],
    ]


def is_small(machine: Machine) -> bool:
    """Whether the edges are few enough to be spelt out."""
    return machine.n_edges <= MAX_UNROLLED_EDGES


class Group:
    """The edges of one state for one observation, with the literals they all share."""

    def __init__(self, edges: Sequence[MachineEdge]) -> None:
        self.edges = list(edges)
        shared = Counter(edges[0].literals)
        for edge in edges[1:]:
            shared &= Counter(edge.literals)
        self.common = _ordered(shared, edges[0].literals)
        self.rests = [
            _ordered(Counter(edge.literals) - shared, edge.literals) for edge in self.edges
        ]

    def literals(self) -> list[MachineLiteral]:
        """All literals of the group, common ones first."""
        return [*self.common, *(literal for rest in self.rests for literal in rest)]


def _ordered(
    wanted: Counter[MachineLiteral], order: Iterable[MachineLiteral]
) -> list[MachineLiteral]:
    left = Counter(wanted)
    kept = []
    for literal in order:
        if left[literal] > 0:
            left[literal] -= 1
            kept.append(literal)
    return kept


class EStepText:
    """Lines of source about the coins of one machine under one plan."""

    name = "e_step"
    more: tuple[str, ...] = ()  # arguments beyond those of an E-step

    def __init__(self, machine: Machine, plan: Plan) -> None:
        self.machine = machine
        self.plan = plan
        self.text = Text()
        self.coins = range(machine.n_coins)

    # -- names ---------------------------------------------------------------------------------
    def scope(self, literal: MachineLiteral) -> str:
        """Tell whether the coin of a literal has a row for the log, the page or the result."""
        return self.plan.scope(self.machine, literal.variable)

    def value(self, literal: MachineLiteral) -> str:
        """Name the variable that holds the weight of a literal."""
        prefix = {"global": "g", "page": "p", "result": "w"}[self.scope(literal)]
        return f"{prefix}{literal.variable}_{literal.heads}"

    def values(self, literals: Iterable[MachineLiteral], multiplicity: float = 1.0) -> list[str]:
        """Name the factors of an edge's weight."""
        factors = [] if multiplicity == 1 else [number(multiplicity)]
        return factors + [self.value(literal) for literal in literals]

    def _all(self, scope: str) -> list[MachineLiteral]:
        """Every literal of this scope that some edge carries."""
        edges = [e for step in self.machine.steps() for edges in step.edges for e in edges]
        edges += [e for edges in self.machine.initial for e in edges]
        literals = {literal for edge in edges for literal in edge.literals}
        return sorted(literal for literal in literals if self.scope(literal) == scope)

    def key(self, literal: MachineLiteral) -> str:
        """The name of the row number of a literal of scope result."""
        coin, lag, _ = self.machine.variables[literal.variable]
        return f"k{self.plan.coins[coin].codes}" + ("_above" if lag else "")

    # -- fetching ------------------------------------------------------------------------------
    def fetch_global(self) -> None:
        """Write the loads of coins that have one row for the whole log."""
        for literal in self._all("global"):
            coin, _, row = self.machine.variables[literal.variable]
            self.text(f"{self.value(literal)} = W{coin}[{literal.heads}, {row or 0}]")

    def fetch_page(self) -> None:
        """Write the loads of coins that have one row a page."""
        fetched = set()
        for literal in self._all("page"):
            coin = self.machine.variables[literal.variable].coin
            codes = self.plan.coins[coin].codes
            if codes not in fetched:
                self.text(f"k{codes} = codes{codes}[i]")
                fetched.add(codes)
            self.text(f"{self.value(literal)} = W{coin}[{literal.heads}, k{codes}]")

    def fetch_rows(self, literals: Iterable[MachineLiteral]) -> None:
        """The row numbers at result t."""
        done = set()
        for literal in literals:
            if self.scope(literal) != "result" or self.key(literal) in done:
                continue
            done.add(self.key(literal))
            coin, lag, _ = self.machine.variables[literal.variable]
            plan = self.plan.coins[coin]
            start = "base" if plan.history else "row"
            # A lag cannot be meant at the first result; the index only has to exist there.
            place = "t - 1 if t > 0 else 0" if lag else "t"
            code = f"codes{plan.codes}[{start} + index({place})]"
            # Unsigned, as are all row numbers here.
            first = f"from{plan.codes} + " if plan.based else ""
            self.text(f"{self.key(literal)} = {first}{code}")

    def fetch_weights(self, literals: Iterable[MachineLiteral]) -> None:
        """The weights at result t; their row numbers must have been fetched."""
        for literal in dict.fromkeys(literals):
            if self.scope(literal) == "result":
                coin = self.machine.variables[literal.variable].coin
                self.text(f"{self.value(literal)} = W{coin}[{literal.heads}, {self.key(literal)}]")

    # -- counting ------------------------------------------------------------------------------
    def count(self, literal: MachineLiteral, amount: str) -> None:
        """Write the addition of an expected count, to its row or to a scalar."""
        variable = self.machine.variables[literal.variable]
        scope = self.scope(literal)
        if scope == "result":
            self.text(f"c{variable.coin}[{literal.heads}, {self.key(literal)}] += {amount}")
        else:
            prefix = "n" if scope == "global" else "m"
            self.text(f"{prefix}{literal.variable}_{literal.heads} += {amount}")

    def count_all(self, amounts: Iterable[tuple[MachineLiteral, str]]) -> None:
        """Add amounts, those of one literal together."""
        sums: dict[MachineLiteral, list[str]] = {}
        for literal, amount in amounts:
            sums.setdefault(literal, []).append(amount)
        for literal, listed in sums.items():
            repeated = Counter(listed)
            terms = [a if times == 1 else f"{times}.0 * {a}" for a, times in repeated.items()]
            self.count(literal, " + ".join(terms))

    def clear_counts(self, scope: str) -> None:
        """Write that the scalar counts of a scope begin at 0."""
        prefix = "n" if scope == "global" else "m"
        for literal in self._all(scope):
            self.text(f"{prefix}{literal.variable}_{literal.heads} = 0.0")

    def flush_counts(self, scope: str) -> None:
        """Write the additions of the scalar counts of a scope to their rows."""
        prefix = "n" if scope == "global" else "m"
        for literal in self._all(scope):
            coin, _, row = self.machine.variables[literal.variable]
            place = str(row or 0) if scope == "global" else f"k{self.plan.coins[coin].codes}"
            amount = f"{prefix}{literal.variable}_{literal.heads}"
            self.text(f"c{coin}[{literal.heads}, {place}] += {amount}")

    # -- frame ---------------------------------------------------------------------------------
    def header(self) -> str:
        """The line that begins the kernel's function."""
        return f"def {self.name}({', '.join([*e_step_arguments(self.plan), *self.more])}):"

    def begin_bucket(self) -> None:
        """Write what comes before the pages of a bucket."""
        text = self.text
        for coin in self.coins:
            text(f"c{coin} = C{coin}[bucket >> shift{coin}]")
        self.clear_counts("global")
        text("total = 0.0", "running = 1.0", "impossible = 0")

    def end_bucket(self) -> None:
        """Write what comes after the pages of a bucket."""
        self.flush_counts("global")
        self.text("total += math.log(running)")
        self.text("log_likelihood[bucket] += total", "n_impossible[bucket] += impossible")

    def begin_page(self) -> None:
        """Write what comes before the results of a page."""
        text = self.text
        text("q = weight[i]")
        with text.block("if q == 0.0:"):
            text("continue")
        text("length = obs_start[i + 1] - obs_start[i]")
        text("base = index(obs_start[i])", "row = index(row_start[i])")
        with text.block("if length == 0:"):
            text("continue")
        for array in self.plan.based:
            text(f"from{array} = index(first_row{array}[i])")
        self.fetch_page()
        self.clear_counts("page")

    def add_likelihood(self, page: str) -> None:
        """One logarithm per underflow instead of one per page."""
        text = self.text
        with text.block("if q == 1.0:"):
            text(f"running *= {page}")
            with text.block(f"if running < {SMALLEST_PRODUCT}:"):
                text("total += math.log(running)", "running = 1.0")
        with text.block("else:"):
            text(f"total += q * math.log({page})")

    def branch(self, observations: Iterable[int], emit: Callable[[int], None]) -> None:
        """Write what `emit` says for each observation under its own condition on `o`.

        Impossible observations never get here: such pages are set aside before a kernel runs.
        """
        listed = [o for o in observations if self.machine.observations[o].symbol != IMPOSSIBLE]
        for observation in listed:
            header = f"{'if' if observation == listed[0] else 'elif'} o == {observation}:"
            if len(listed) == 1:
                emit(observation)
                continue
            with self.text.block("else:" if observation == listed[-1] else header):
                emit(observation)

    def imports(self) -> None:
        """Write the imports, and the type of places."""
        self.text("import math", "", "import numpy as np", "")
        # A signed place would be checked for being negative at every access, at a fifth of the
        # speed of the whole kernel.
        self.text("index = np.uint64", "", "")


__all__ = [
    "SMALLEST_PAGE",
    "SMALLEST_PRODUCT",
    "EStepText",
    "Group",
    "e_step_arguments",
    "is_small",
    "product",
]
