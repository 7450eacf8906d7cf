"""The trees of a LightGBM classifier as text: read by a strict grammar, and written anew.

LightGBM believes its text: a lying size, a field that comes twice or a child that is not there lead
it out of its memory. So it never sees a text from a file. What we read are a few lines of known
names, each once, with as many numbers as belong there; what it gets is written from these numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import SavedModelError

# What is said of all trees, in this order; other lines of the header are not needed.
_HEADER = (
    "version",
    "num_class",
    "num_tree_per_iteration",
    "label_index",
    "max_feature_idx",
    "objective",
    "average_output",
    "feature_names",
    "monotone_constraints",
    "feature_infos",
)
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_OBJECTIVE = re.compile(rf"binary sigmoid:{_NUMBER}|cross_entropy(_lambda)?")
_INFO = re.compile(rf"none|\[{_NUMBER}:{_NUMBER}\]|-?\d+(:-?\d+)*")
# Fields of a tree: how many numbers they have (of leaves, of nodes), and of which kind.
_OF_LEAVES = {"leaf_value": float, "leaf_weight": float, "leaf_count": int}
_OF_NODES = {
    "split_feature": int,
    "split_gain": float,
    "threshold": float,
    "decision_type": int,
    "left_child": int,
    "right_child": int,
    "internal_value": float,
    "internal_weight": float,
    "internal_count": int,
}
_SINGLE = {"num_leaves": int, "num_cat": int, "is_linear": int, "shrinkage": float}
_CATEGORIES = {"cat_boundaries": int, "cat_threshold": int}
_FIELDS = {**_SINGLE, **_OF_LEAVES, **_OF_NODES, **_CATEGORIES}
_MOST_LEAVES = 131_072  # as LightGBM allows

Fields = dict[str, list[Any]]


def rewritten(text: str) -> str:
    """Write the trees that a text describes; refuse what describes none."""
    # Nothing but spaces and ends of lines separates, whatever a library may think of it.
    odd = re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    if odd is not None:
        _refuse(f"there is a {odd.group()!r} in it")
    lines = iter(text.split("\n"))
    if next(lines) != "tree":
        _refuse("it does not begin with 'tree'")
    header, n_features = _header(lines)
    trees = list(_trees(lines, n_features))
    written = [_written(number, tree) for number, tree in enumerate(trees)]
    sizes = " ".join(str(len(tree.encode())) for tree in written)
    return "\n".join(
        [
            "tree",
            *header,
            f"tree_sizes={sizes}",
            "",
            f"{''.join(written)}end of trees",
            "",
            f"pandas_categorical:{_categories(text)}",
            "",
        ]
    )


def _header(lines: Iterator[str]) -> tuple[list[str], int]:
    found: dict[str, str] = {}
    for line in lines:
        if not line:
            break
        name, _, value = line.partition("=")
        if name in found:
            _refuse(f"it says {name} twice")
        found[name] = value
    n_features = int(_matching(found, "max_feature_idx", r"\d{1,8}")) + 1
    _matching(found, "version", r"v[234]")
    _matching(found, "label_index", r"\d{1,8}")
    for name in ("num_class", "num_tree_per_iteration"):
        if _matching(found, name, r"\d+") != "1":
            _refuse("it is not a classifier with two classes")
    _matching(found, "objective", _OBJECTIVE)
    if found.get("average_output"):
        _refuse("average_output has a value")
    lists: tuple[tuple[str, Callable[[str], Any]], ...] = (
        ("feature_names", lambda name: name),
        ("feature_infos", _INFO.fullmatch),
        ("monotone_constraints", re.compile(r"-1|0|1").fullmatch),
    )
    for name, is_good in lists:
        values = found.get(name, "").split(" ")
        is_optional = name == "monotone_constraints" and name not in found
        if not is_optional and not (len(values) == n_features and all(map(is_good, values))):
            _refuse(f"{name} does not fit {n_features:,} features")
    if len(set(found["feature_names"].split(" "))) < n_features:
        _refuse("two features have the same name")
    header = [f"{n}={found[n]}" if found[n] else n for n in _HEADER if n in found]
    return header, n_features


def _matching(found: dict[str, str], name: str, pattern: str | re.Pattern[str]) -> str:
    if name not in found:
        _refuse(f"it does not say {name}")
    if not re.fullmatch(pattern, found[name]):
        _refuse(f"{name} is {found[name][:40]!r}")
    return found[name]


def _trees(lines: Iterator[str], n_features: int) -> Iterator[Fields]:
    number = 0
    for line in lines:
        if line == "end of trees":
            return
        if not line:
            continue
        if line != f"Tree={number}":
            _refuse(f"where tree {number} should be there is {line[:40]!r}")
        tree = _tree(lines, f"tree {number}")
        _check_tree(tree, n_features, f"tree {number}")
        yield tree
        number += 1
    _refuse("its trees have no end")


def _tree(lines: Iterator[str], told: str) -> Fields:
    """Read the fields of a tree, up to an empty line."""
    tree: Fields = {}
    for line in lines:
        if not line:
            return tree
        name, separator, values = line.partition("=")
        if name not in _FIELDS or not separator:
            _refuse(f"{told} has a line {line[:40]!r}")
        if name in tree:
            _refuse(f"{told} says {name} twice")
        kind, words = _FIELDS[name], values.split(" ") if values else []
        pattern = re.compile(r"-?\d{1,19}" if kind is int else _NUMBER)
        if not all(map(pattern.fullmatch, words)):
            _refuse(f"{told} cannot be read: {name} are not all numbers")
        tree[name] = [kind(word) for word in words]
    _refuse(f"{told} has no end")


def _check_tree(tree: Fields, n_features: int, told: str) -> None:
    for name in _SINGLE:
        if name == "is_linear" and name not in tree:  # as older versions have it
            tree[name] = [0]
        if len(tree.get(name, ())) != 1:
            _refuse(f"{told} does not say {name}")
    n_leaves, n_categorical = tree["num_leaves"][0], tree["num_cat"][0]
    if tree["is_linear"][0]:
        _refuse("it has linear trees")
    if not 1 <= n_leaves <= _MOST_LEAVES or len(tree.get("leaf_value", ())) != n_leaves:
        _refuse(f"{told} has another number of leaves than it says")
    if not np.isfinite([*tree["leaf_value"], *tree["shrinkage"]]).all():
        _refuse(f"{told} has numbers that are too large")
    if n_leaves == 1:
        return
    sizes = dict.fromkeys(_OF_LEAVES, n_leaves) | dict.fromkeys(_OF_NODES, n_leaves - 1)
    for name, size in sizes.items():
        if len(tree.get(name, ())) != size:
            _refuse(f"{told} has another number of nodes than it says ({name})")
    values: dict[str, NDArray[Any]] = {
        name: np.array(tree[name], dtype=_FIELDS[name]) for name in sizes
    }
    if not all(np.isfinite(own).all() for own in values.values()):
        _refuse(f"{told} has numbers that are too large")
    if any(np.abs(own).max() >= 2**31 for own in values.values() if own.dtype == np.int64):
        _refuse(f"{told} has numbers that are too large")
    if not _is_within(values["split_feature"], n_features):
        _refuse(f"{told} asks for a feature that is not there")
    if not _is_within(values["decision_type"], 12):
        _refuse(f"{told} decides in a way that is not known")
    _check_shape(values["left_child"], values["right_child"], told)
    is_categorical = (values["decision_type"] & 1) == 1
    if is_categorical.any() or n_categorical:
        _check_categories(tree, values["threshold"][is_categorical], n_categorical, told)


def _check_shape(left: NDArray[np.int64], right: NDArray[np.int64], told: str) -> None:
    """See that all nodes but the first, and all leaves, are the child of one node before them."""
    n_nodes = len(left)
    children = np.stack([left, right])
    inner = children >= 0
    if np.any(inner & ((children <= np.arange(n_nodes)) | (children >= n_nodes))):
        _refuse(f"{told} leads out of itself or in circles")
    if np.any(~inner & (~children > n_nodes)):
        _refuse(f"{told} leads to a leaf that is not there")
    if len(np.unique(children)) < 2 * n_nodes:
        _refuse(f"{told} leads to one place in two ways")


def _check_categories(
    tree: Fields, place: NDArray[np.float64], n_categorical: int, told: str
) -> None:
    if not 0 <= n_categorical < tree["num_leaves"][0]:
        _refuse(f"{told} has more categories than nodes")
    borders = np.array(tree.get("cat_boundaries", ()), dtype=np.int64)
    bits = np.array(tree.get("cat_threshold", ()), dtype=np.int64)
    fits = len(borders) == n_categorical + 1 and borders[0] == 0 and borders[-1] == len(bits)
    if not (fits and np.all(np.diff(borders) >= 0) and _is_within(bits, 2**32)):
        _refuse(f"{told} has categories that do not fit their table")
    if np.any(place != np.floor(place)) or not _is_within(place, n_categorical):
        _refuse(f"{told} asks for categories that are not there")


def _is_within(values: NDArray[Any], end: int) -> bool:
    return bool(np.all((values >= 0) & (values < end)))


def _written(number: int, tree: Fields) -> str:
    is_leaf = tree["num_leaves"][0] == 1
    names: Sequence[str] = ("num_leaves", "num_cat", *_OF_NODES, *_OF_LEAVES)
    if is_leaf:
        names = ("num_leaves", "num_cat", "leaf_value")
        tree = {**tree, "num_cat": [0]}
    elif tree["num_cat"][0]:
        names = (*names, *_CATEGORIES)
    lines = [f"{name}={' '.join(map(repr, tree[name]))}" for name in names]
    lines += [f"is_linear=0\nshrinkage={tree['shrinkage'][0]!r}"]
    return "\n".join([f"Tree={number}", *lines, "", "", ""])


def _categories(text: str) -> str:
    """Read the categories of columns of a data frame, which stand in the last line."""
    last = text.rstrip("\n").rpartition("\n")[2]
    if not last.startswith("pandas_categorical:"):
        return "null"
    try:
        found = json.loads(last.removeprefix("pandas_categorical:"))
    except (ValueError, RecursionError):
        _refuse("the categories of its columns cannot be read")
    is_good = found is None or (
        isinstance(found, list)
        and all(isinstance(own, list) for own in found)
        and all(isinstance(it, (str, int, float, bool)) for own in found for it in own)
    )
    if not is_good:
        _refuse("the categories of its columns cannot be read")
    return json.dumps(found)


def _refuse(why: str) -> NoReturn:
    raise SavedModelError(f"The trees of a LightGBM classifier make no sense: {why}.")
