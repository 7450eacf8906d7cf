"""Look at LightGBM's trees before LightGBM does: it follows the numbers of a file unchecked."""

from __future__ import annotations

import re

import numpy as np

from gecasmo.errors import SavedModelError


def check_lightgbm(text: str) -> None:
    """Refuse trees that lead out of their arrays or round in circles."""
    header, *trees = re.split(r"^Tree=", text, flags=re.MULTILINE)
    n_features = _whole(header, "max_feature_idx") + 1
    if _whole(header, "num_tree_per_iteration") != 1:
        _refuse("it is no classifier of two classes")
    for number, tree in enumerate(trees):
        try:
            _check_tree(tree.split("\nend of trees")[0], n_features)
        except SavedModelError:
            raise
        except (KeyError, ValueError, IndexError) as error:
            _refuse(f"tree {number} cannot be read ({error})")


def _check_tree(text: str, n_features: int) -> None:
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    n_leaves, n_categorical = int(fields["num_leaves"]), int(fields["num_cat"])
    if int(fields.get("is_linear", "0")):
        _refuse("it has linear trees")
    if n_leaves < 1 or len(_numbers(fields, "leaf_value", float)) != n_leaves:
        _refuse("a tree has another number of leaves than it says")
    if n_leaves == 1:
        return
    n_nodes = n_leaves - 1
    feature, kind = _numbers(fields, "split_feature"), _numbers(fields, "decision_type")
    threshold = _numbers(fields, "threshold", float)
    children = np.stack([_numbers(fields, "left_child"), _numbers(fields, "right_child")])
    if not len(feature) == len(kind) == len(threshold) == children.shape[1] == n_nodes:
        _refuse("a tree has another number of nodes than it says")
    if feature.min() < 0 or feature.max() >= n_features:
        _refuse("a tree asks for a feature that is not there")
    # A node stands before its children, and leaves are counted down from -1.
    inner = children >= 0
    if np.any(inner & ((children <= np.arange(n_nodes)) | (children >= n_nodes))):
        _refuse("a tree leads out of itself or round in circles")
    if np.any(~inner & (~children >= n_leaves)):
        _refuse("a tree leads to a leaf that is not there")
    is_categorical = (kind & 1) == 1
    if is_categorical.any() or n_categorical:
        _check_categories(fields, threshold[is_categorical], n_categorical)


def _check_categories(fields: dict[str, str], place: np.ndarray, n_categorical: int) -> None:
    borders, bits = _numbers(fields, "cat_boundaries"), _numbers(fields, "cat_threshold")
    is_ordered = len(borders) == n_categorical + 1 and np.all(np.diff(borders) >= 0)
    if not is_ordered or borders[0] != 0 or borders[-1] != len(bits):
        _refuse("a tree has categories that do not fit their table")
    if np.any(place != np.floor(place)) or np.any((place < 0) | (place >= n_categorical)):
        _refuse("a tree asks for categories that are not there")


def _numbers(fields: dict[str, str], name: str, kind: type = int) -> np.ndarray:
    return np.array([kind(value) for value in fields[name].split()])


def _whole(header: str, name: str) -> int:
    found = re.search(rf"^{name}=(\d+)$", header, flags=re.MULTILINE)
    if found is None:
        _refuse(f"it does not say {name}")
    assert found is not None
    return int(found.group(1))


def _refuse(why: str) -> None:
    raise SavedModelError(f"The trees of a LightGBM classifier make no sense: {why}.")
