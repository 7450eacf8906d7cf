"""Look at the trees of a classifier that comes from a file.

scikit-learn follows the numbers of children and features in a node without looking whether there
is such a child or feature. In a damaged or made-up file that would crash the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import SavedModelError
from gecasmo.forms.extras import extra

_CONTAINERS = (list, tuple, set)


def check_trees(classifier: Any) -> None:
    """Refuse a classifier with trees that lead nowhere, or ask for features that are not there."""
    ensemble = extra("sklearn.ensemble", "A saved classifier")
    bagging = (ensemble.BaggingClassifier, ensemble.BaggingRegressor)
    for part in _parts(classifier, set()):
        tree = getattr(part, "tree_", None)
        if tree is not None:
            _check_tree(tree, int(part.n_features_in_))
        for iteration in getattr(part, "_predictors", ()):
            for predictor in iteration:
                _check_predictor(predictor, part)
        # Members are not asked again whether a row has all they need, but by bagging.
        if isinstance(part, bagging):
            continue
        for member in np.ravel(np.array(getattr(part, "estimators_", ()), dtype=object)):
            if hasattr(member, "tree_"):
                _require(member.n_features_in_ == part.n_features_in_)


def _check_tree(tree: Any, n_features: int) -> None:
    _require(tree.node_count == tree.capacity > 0)
    _require(tree.value.shape[0] == tree.node_count and tree.value.size >= tree.node_count)
    left, right = tree.children_left, tree.children_right
    inner = left != -1
    _check_nodes(inner, left, right, tree.feature, n_features)


def _check_predictor(predictor: Any, part: Any) -> None:
    nodes, bitsets = predictor.nodes, predictor.raw_left_cat_bitsets
    n_features = int(part.n_features_in_)
    is_categorical = np.asarray(part._bin_mapper.is_categorical_, dtype=bool)
    inner = nodes["is_leaf"] == 0
    _require(len(nodes) > 0 and is_categorical.shape == (n_features,))
    _check_nodes(inner, nodes["left"], nodes["right"], nodes["feature_idx"], n_features)
    split = nodes[inner & (nodes["is_categorical"] != 0)]
    _require(bitsets.shape[1:] == (8,) and bool(np.all(split["bitset_idx"] < len(bitsets))))
    _require(bool(np.all(is_categorical[split["feature_idx"]])))


def _check_nodes(
    inner: NDArray[np.bool_], left: Any, right: Any, feature: Any, n_features: int
) -> None:
    """Children come after their parents, which also rules out circles."""
    number = np.flatnonzero(inner)
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        _require(bool(np.all((child > number) & (child < len(inner)))))
    _require(bool(np.all((feature[inner] >= 0) & (feature[inner] < n_features))))


def _parts(it: Any, seen: set[int]) -> Iterator[Any]:
    """Everything that a classifier is made of, itself first."""
    if id(it) in seen or isinstance(it, (str, bytes, int, float, type)):
        return
    seen.add(id(it))
    if isinstance(it, np.ndarray):
        children: Any = it.ravel().tolist() if it.dtype == object else ()
    elif isinstance(it, dict):
        children = list(it.values())
    elif isinstance(it, _CONTAINERS):
        children = list(it)
    else:
        yield it
        children = list(getattr(it, "__dict__", {}).values())
    for child in children:
        yield from _parts(child, seen)


def _require(is_so: bool) -> None:
    if not is_so:
        raise SavedModelError("The file holds trees that no classifier has grown; it is damaged.")
