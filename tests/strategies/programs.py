"""Strategies that invent click-model programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from strategies.trees import (
    Ask,
    Bump,
    Count,
    Done,
    Emit,
    Flip,
    Leave,
    Observe,
    Program,
    Set,
    Shown,
    ShownPage,
    Test,
    as_story,
    columns_of,
    signals_of,
)

RESULT_KEYS = [
    (),
    ("rank",),
    ("query", "doc"),
    ("doc",),
    ("last_click",),
    ("clicks_above",),
    ("distance",),
    ("rank", "last_click"),
    ("doc", "clicks_above"),
    ("device",),
    ("page_length",),
    ("query",),
]
PAGE_KEYS = [(), ("device",), ("query",), ("page_length",), ("query", "device")]
SIGNALS = ["click", "click", "click", "buy"]
COLUMNS = ["is_ad", "is_new"]
COINS = ["a", "b", "c"]
ATTRIBUTES = {"mood": False, "count": 0}


@st.composite
def trees(draw: Any, flips: int, attributes: tuple[str, ...], n_other: int = 3) -> Any:
    """A tree with at most `flips` flips on a path."""
    kinds = ["done"]
    if flips > 0:
        kinds += ["flip"] * 5
    if flips > 1:
        kinds += ["count", "pointless", "swapped"]
    if n_other > 0:
        kinds += ["emit", "emit", "leave"]
        if attributes:
            kinds += ["set", "bump", "test", "test"]
        kinds += ["ask"]
    kind = draw(st.sampled_from(kinds))
    coin = st.sampled_from([*COINS, "s"])  # "s" may be flipped in start as well

    def sub(fewer: int = 0, other: int = 0) -> Any:
        return draw(trees(flips - fewer, attributes, n_other - other))

    if kind == "flip":
        return Flip(draw(coin), sub(1), sub(1))
    if kind == "count":
        n = draw(st.integers(2, min(flips, 3)))
        coins = tuple(draw(coin) for _ in range(n))
        return Count(coins, draw(st.integers(0, n)), sub(n), sub(n))
    if kind == "pointless":  # an eager flip that only matters on one side, or not at all
        same = sub(1)
        return Flip(draw(coin), same, draw(st.sampled_from([same, Emit("click", same)])))
    if kind == "swapped":  # two flip orders that lead to the same places
        one, two = draw(coin), draw(coin)
        both, neither = sub(2), sub(2)
        first = Flip(one, Flip(two, both, neither), neither)
        second = Flip(two, Flip(one, both, neither), neither)
        attribute = "mood" if "mood" in attributes else None
        return Test(attribute, True, first, second) if attribute else first
    if kind == "emit":
        return Emit(draw(st.sampled_from(SIGNALS)), sub(0, 1))
    if kind == "leave":
        return Leave(sub(0, 1) if draw(st.integers(0, 3)) == 0 else Done())
    if kind == "set":
        name = draw(st.sampled_from(attributes))
        value = draw(st.booleans() if name == "mood" else st.integers(0, 2))
        return Set(name, value, sub(0, 1))
    if kind == "bump":
        name = "count" if "count" in attributes else attributes[0]
        return Bump(name, sub(0, 1))
    if kind == "test":
        name = draw(st.sampled_from(attributes))
        value = draw(st.booleans() if name == "mood" else st.integers(0, 2))
        return Test(name, value, sub(0, 1), sub(0, 1))
    if kind == "ask":
        return Ask(draw(st.sampled_from(COLUMNS)), sub(0, 1), sub(0, 1))
    return Done()


@st.composite
def endings(draw: Any, attributes: tuple[str, ...]) -> Any:
    """What a page shows at its end, mostly nothing."""
    if draw(st.integers(0, 3)):
        return Done()
    tree: Any = Flip(draw(st.sampled_from(["s", "t"])), Emit("back", Done()), Done())
    if attributes:
        other = draw(st.sampled_from([Done(), Emit("back", Done()), Flip("s", Done(), tree)]))
        name = attributes[0]
        tree = Test(name, draw(st.booleans() if name == "mood" else st.integers(0, 2)), tree, other)
    return tree


@st.composite
def programs(draw: Any, max_flips: int = 3) -> Program:
    """A program whose every declared coin is flipped somewhere, and that can click."""
    names = draw(st.sampled_from([(), ("mood",), ("count",), ("mood", "count")]))
    attributes = {name: ATTRIBUTES[name] for name in names}
    browse = draw(trees(max_flips, names))
    start: Any = Done()
    if names and draw(st.booleans()):
        coin, set_one = draw(st.sampled_from(["s", "s", "t"])), names[0]
        other = Set(set_one, 1 if set_one == "count" else True, Done())
        start = Flip(coin, other, draw(st.sampled_from([Done(), Leave(Done())])))
        if draw(st.booleans()):
            start = Flip("s", start, Done())
    keys = {coin: draw(st.sampled_from(RESULT_KEYS)) for coin in COINS}
    keys |= {coin: draw(st.sampled_from(PAGE_KEYS)) for coin in ("s", "t")}
    if "click" not in signals_of(browse):
        browse = Flip("a", Emit("click", browse), browse)
    program = Program(keys, attributes, browse, start, draw(endings(names)))
    flipped = reached_coins(program)
    if not flipped:
        program = replace(program, browse=Flip("a", Emit("click", browse), browse))
        flipped = reached_coins(program)
    return replace(program, keys={coin: keys[coin] for coin in keys if coin in flipped})


def reached_coins(program: Program) -> set[str]:
    """The coins that some path really flips, found by walking over hidden states."""
    seen: set[Any] = set()
    flipped: set[str] = set()

    def walk(tree: Any, memory: dict[str, Any], gone: bool) -> list[tuple[dict[str, Any], bool]]:
        match tree:
            case Done():
                return [(memory, gone)]
            case Flip(coin, heads, tails):
                flipped.add(coin)
                return walk(heads, memory, gone) + walk(tails, memory, gone)
            case Count(coins, _, yes, no):
                flipped.update(coins)
                ends = walk(yes, memory, gone)
                return ends + walk(no, memory, gone)
            case Ask(column, yes, no):
                key = f"result.{column}"  # a column has one value at a result
                if key in memory:
                    return walk(yes if memory[key] else no, memory, gone)
                ends = walk(yes, memory | {key: True}, gone)
                return ends + walk(no, memory | {key: False}, gone)
            case Emit(_, then):
                return walk(then, memory, gone)
            case Set(name, value, then):
                return walk(then, memory | {name: value}, gone)
            case Bump(name, then):
                return walk(then, memory | {name: min(int(memory[name]) + 1, 2)}, gone)
            case Test(name, value, yes, no):
                return walk(yes if memory[name] == value else no, memory, gone)
            case Leave(then):
                return walk(then, memory, True)
            case Observe(_, density, _, then):
                flipped.add(density)
                return walk(then, memory, gone)
        raise AssertionError

    starts = walk(program.start, dict(program.attributes), False)
    frontier = [(memory, gone, False) for memory, gone in starts]
    while frontier:
        memory, gone, has_seen = frontier.pop()
        memory = {name: memory[name] for name in program.attributes}
        state = tuple(sorted(memory.items()))
        if gone or has_seen:  # nobody is at the end of a page of which he has seen nothing yet
            walk(program.finish, memory, gone)
        if gone or state in seen:
            continue
        seen.add(state)
        frontier += [(*end, True) for end in walk(program.browse, memory, False)]
    return flipped


@st.composite
def pages(draw: Any, max_results: int = 4) -> ShownPage:
    """A page; documents may repeat, ranks may have gaps."""
    n = draw(st.integers(1, max_results))
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=n, max_size=n))
    rank, results = 0, []
    for gap in gaps:
        rank += gap
        guards = {column: draw(st.booleans()) for column in COLUMNS}
        results.append(Shown(draw(st.sampled_from([10, 11, 12])), rank, guards))
    query = draw(st.sampled_from(["q1", "q2"]))
    return ShownPage(query, draw(st.sampled_from(["phone", "desk"])), tuple(results))


__all__ = ["COLUMNS", "as_story", "columns_of", "pages", "programs", "reached_coins", "trees"]


@st.composite
def programs_of_kinds(draw: Any) -> Program:
    """A program whose users are of two or three kinds, with a coin that depends on them."""
    program = draw(programs(max_flips=2))
    n_kinds = draw(st.integers(2, 3))
    keys = {coin: keys for coin, keys in program.keys.items() if coin != "a"}
    if "a" in program.keys:
        keys |= {f"a[{kind}]": program.keys["a"] for kind in range(n_kinds)}
    shares = draw(st.sampled_from(PAGE_KEYS))
    keys |= {f"kind[{kind}]": shares for kind in range(n_kinds - 1)}
    return replace(program, keys=keys, n_kinds=n_kinds)


# The columns that numbers are in, each with the densities that they may have.
NUMBERS = {"dwell": ("reading", "skimming"), "mouse": ("moving",)}


@st.composite
def observing(draw: Any, tree: Any, attributes: dict[str, Any], left: tuple[str, ...]) -> Any:
    """A tree in which numbers are seen here and there, each of them once on a path at most."""
    if left and draw(st.integers(0, 2)) == 0:
        column = draw(st.sampled_from(left))
        density = draw(st.sampled_from(NUMBERS[column]))
        attribute = draw(st.sampled_from([None, attributes[density], attributes[density]]))
        others = tuple(name for name in left if name != column)
        return Observe(column, density, attribute, draw(observing(tree, attributes, others)))
    below = [name for name in ("heads", "tails", "yes", "no", "then") if hasattr(tree, name)]
    made = {name: draw(observing(getattr(tree, name), attributes, left)) for name in below}
    return replace(tree, **made) if made else tree


@st.composite
def observing_programs(draw: Any) -> Program:
    """A program that lets numbers be seen."""
    program = draw(programs(max_flips=2))
    asked = st.sampled_from([None, *program.attributes])
    attributes = {name: draw(asked) for names in NUMBERS.values() for name in names}
    browse = draw(observing(program.browse, attributes, tuple(NUMBERS)))
    program = replace(program, browse=browse)
    met = reached_coins(program)
    found = [name for names in NUMBERS.values() for name in names if name in met]
    if not found:
        program = replace(program, browse=Observe("dwell", "reading", None, program.browse))
        if draw(st.booleans()):
            program = replace(program, browse=Flip("a", program.browse, Done()))
            program = replace(program, keys={**program.keys, "a": ()})
        found = ["reading"]
    return replace(program, densities=tuple(found))
