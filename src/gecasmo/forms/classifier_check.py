"""Whether a scikit-learn classifier that was read from a file can be asked without harm.

Most of scikit-learn predicts with NumPy, which looks where it reads. Trees do not: compiled code
follows the numbers of children and features in their nodes wherever they lead, and writes answers
where ensembles say that these belong; and it follows the columns of sparse matrices, which encoders
make. So everything that a classifier consists of is gone through: only kinds that are known here
pass, and those that compiled code reads are held against what it will do with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import SavedModelError, extra

# What predicts with NumPy, or is looked at below. Not here: support vectors, neighbours, Gaussian
# processes, clusters and factorisations, whose compiled code trusts the arrays that it gets.
_KNOWN = tuple(
    f"sklearn.{name}."
    for name in """
        _loss calibration compose covariance cross_decomposition decomposition._base
        decomposition._factor_analysis decomposition._fastica decomposition._incremental_pca
        decomposition._pca decomposition._truncated_svd discriminant_analysis dummy ensemble
        feature_extraction feature_selection frozen impute isotonic kernel_approximation
        linear_model mixture model_selection multiclass multioutput naive_bayes neural_network
        pipeline preprocessing random_projection semi_supervised tree utils
    """.split()  # noqa: SIM905 - a list of them would be a page long
)
# Ensembles that only other tasks need, and whose members are not asked whether rows fit them.
_REFUSED = ("IsolationForest", "GradientBoostingRegressor")
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type, slice, range, np.generic)
# Made anew from checked numbers when an IsotonicRegression is read.
_REBUILT = "scipy.interpolate._interpolate.interp1d"
_BITS = 256  # of a set of categories


def check_classifier(classifier: Any) -> None:
    """Refuse a classifier that could lead compiled code out of its memory."""
    for part in _parts(classifier):
        kind = type(part)
        for name, check in _CHECKS.items():
            if any(base.__name__ == name for base in kind.__mro__):
                _checked(check, part)
        # Members are not asked again whether a row has all they need, but by bagging.
        members = getattr(part, "estimators_", ())
        if "BaseBagging" in [base.__name__ for base in kind.__mro__]:
            continue
        for member in np.ravel(np.array(members, dtype=object)):
            if hasattr(member, "tree_"):
                _require(member.n_features_in_ == part.n_features_in_)


def unknown_part(classifier: Any) -> str:
    """Name the first part of a classifier that is not known here; empty if all are."""
    try:
        for _ in _parts(classifier):
            pass
    except _UnknownPart as found:
        return str(found)
    return ""


class _UnknownPart(SavedModelError):
    """Something whose compiled code nobody has looked at."""


def _parts(classifier: Any) -> Iterator[Any]:
    """Go through all objects that a classifier is made of, itself first."""
    validation = extra("sklearn.utils.validation", "A saved classifier")
    seen: dict[int, Any] = {}  # kept, so that no other object gets the same number
    todo = [classifier]
    while todo:
        part = todo.pop()
        if isinstance(part, _PLAIN) or id(part) in seen:
            continue
        seen[id(part)] = part
        kind = type(part)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if isinstance(part, np.ndarray):
            todo += part.ravel().tolist() if part.dtype == object else ()
        elif isinstance(part, dict):
            todo += [*part.keys(), *part.values()]
        elif isinstance(part, (list, tuple, set)):
            todo += part
        elif isinstance(part, partial):
            todo += [part.func, part.args, part.keywords]
        elif isinstance(part, (np.random.RandomState, np.random.Generator)):
            _check_randomness(part)
        elif (
            isinstance(part, (np.ufunc, np.dtype))
            or part is validation.check_array
            or name == _REBUILT
        ):
            continue
        elif name.startswith(_KNOWN) and kind.__name__ not in _REFUSED:
            yield part
            todo += vars(part).values() if hasattr(part, "__dict__") else ()
        else:
            raise _UnknownPart(kind.__name__)


def _checked(check: Callable[[Any], None], part: Any) -> None:
    try:
        check(part)
    except SavedModelError:
        raise
    except Exception:  # whatever it is, this is not how it was written
        _require(False)


def _require(is_so: bool, what: str = "trees that no classifier has grown") -> None:
    if not is_so:
        raise SavedModelError(f"The file holds {what}; it is damaged.")


# -- trees -------------------------------------------------------------------------------------
def _check_tree(part: Any) -> None:
    """See that nodes of a tree lead to nodes, and ask for features that there are."""
    if not hasattr(part, "tree_"):
        return  # it was never fitted
    tree, n_features = part.tree_, part.n_features_in_
    _require(type(tree).__name__ == "Tree" and isinstance(n_features, int))
    # Of sparse rows the tree makes room for as many features as it says itself.
    _require(tree.n_features == n_features > 0 and tree.node_count == tree.capacity > 0)
    _require(tree.n_outputs == 1 == part.n_outputs_)
    _require(tree.value.shape == (tree.node_count, 1, tree.max_n_classes))
    _require(tree.max_n_classes >= 1 and bool(np.isfinite(tree.value).all()))
    left, right = tree.children_left, tree.children_right
    _check_nodes(left != -1, left, right, tree.feature, n_features)


def _check_gradient_boosting(part: Any) -> None:
    """See that there is one column of trees, since answers of two classes have one column."""
    if not hasattr(part, "estimators_"):
        return
    members = part.estimators_
    _require(isinstance(members, np.ndarray) and members.ndim == 2 and members.size > 0)
    _require(members.shape[1] == 1 == part.n_trees_per_iteration_ and len(part.classes_) == 2)
    _require(type(part._loss).__name__ in ("HalfBinomialLoss", "ExponentialLoss"))
    _require(not part._loss.is_multiclass)
    is_plain = isinstance(part.init_, str) and part.init_ == "zero"
    _require(
        is_plain or type(part.init_).__name__ == "DummyClassifier",
        "gradient boosting that begins with another classifier",
    )
    for member in members.ravel():
        _require(type(member).__name__ == "DecisionTreeRegressor")
        _require(member.tree_.max_n_classes == 1)


def _check_histogram_boosting(part: Any) -> None:
    if not hasattr(part, "_predictors"):
        return
    n_features, mapper = part.n_features_in_, part._bin_mapper
    is_categorical = np.asarray(mapper.is_categorical_)
    _require(is_categorical.dtype != object and is_categorical.shape == (n_features,))
    _require(len(mapper.bin_thresholds_) == n_features)
    for column in np.flatnonzero(is_categorical):
        known = np.asarray(mapper.bin_thresholds_[column], dtype=np.float64)
        _require(bool(np.all((known >= 0) & (known < _BITS))))
    for iteration in part._predictors:
        for predictor in iteration:
            _check_predictor(predictor, n_features, is_categorical.astype(bool))
    if getattr(part, "_preprocessor", None) is not None:
        _check_preprocessor(part._preprocessor, n_features)


def _check_predictor(predictor: Any, n_features: int, is_categorical: NDArray[np.bool_]) -> None:
    nodes, bits = predictor.nodes, predictor.raw_left_cat_bitsets
    _require(nodes.ndim == 1 and len(nodes) > 0 and bits.ndim == 2 and bits.shape[1] == 8)
    inner = nodes["is_leaf"] == 0
    _check_nodes(inner, nodes["left"], nodes["right"], nodes["feature_idx"], n_features)
    _require(bool(np.isfinite(nodes["value"]).all()))
    split = nodes[inner & (nodes["is_categorical"] != 0)]
    _require(bool(np.all(split["bitset_idx"] < len(bits))))
    _require(bool(np.all(is_categorical[split["feature_idx"]])))


def _check_preprocessor(columns: Any, n_features: int) -> None:
    """See that it puts categories first and leaves no column out, as the fit made it."""
    *made, rest = columns.transformers_
    if rest[0] == "remainder":
        _require(isinstance(rest[1], str) and rest[1] == "drop")
    else:
        made = columns.transformers_
    _require([name for name, _, _ in made] == ["encoder", "numerical"])
    kinds = ["OrdinalEncoder", "FunctionTransformer"]
    _require([type(one).__name__ for _, one, _ in made] == kinds)
    _require(isinstance(made[1][1].func, partial))
    masks = [np.asarray(mask) for _, _, mask in made]
    _require(all(mask.dtype == bool and mask.shape == (n_features,) for mask in masks))
    _require(bool(np.all(masks[0] ^ masks[1])) and columns.n_features_in_ == n_features)
    encoder = made[0][1]
    _require(len(encoder.categories_) == encoder.n_features_in_ == int(masks[0].sum()))


def _check_nodes(
    inner: NDArray[np.bool_], left: Any, right: Any, feature: Any, n_features: int
) -> None:
    """See that children come after their parents, which also rules out circles."""
    number = np.flatnonzero(inner)
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        _require(bool(np.all((child > number) & (child < len(inner)))))
    _require(bool(np.all((feature[inner] >= 0) & (feature[inner] < n_features))))


# -- what makes sparse matrices ----------------------------------------------------------------
_ENCODED = "categories that no encoder has learned"


def _check_one_hot(part: Any) -> None:
    """See that columns of an encoder are as many as its categories, but for those left out."""
    if not hasattr(part, "categories_"):
        return
    sizes = [len(own) for own in part.categories_]
    _require(len(sizes) == part.n_features_in_, _ENCODED)
    if part._infrequent_enabled:
        grouped = zip(
            part._default_to_infrequent_mappings, part._infrequent_indices, sizes, strict=True
        )
        for place, (mapping, rare, size) in enumerate(list(grouped)):
            _require((mapping is None) == (rare is None), _ENCODED)
            if mapping is not None:
                known, few = np.asarray(mapping), np.asarray(rare)
                _require(known.dtype.kind == few.dtype.kind == "i", _ENCODED)
                _require(known.shape == (size,) and few.ndim == 1 and len(few) > 0, _ENCODED)
                for numbers in (known, few):
                    _require(bool(np.all((numbers >= 0) & (numbers < size))), _ENCODED)
                sizes[place] = int(known.max()) + 1
    dropped = part._drop_idx_after_grouping
    if dropped is not None:
        _require(len(dropped) == len(sizes), _ENCODED)
        for place, drop in enumerate(dropped):
            if drop is not None:
                _require(0 <= drop < sizes[place] and drop == int(drop), _ENCODED)
                sizes[place] -= 1
    _require(list(part._n_features_outs) == sizes, _ENCODED)


def _check_vocabulary(part: Any) -> None:
    """See that words of a vocabulary are numbered one after the other."""
    numbers = getattr(part, "vocabulary_", {}).values()
    _require(sorted(numbers) == list(range(len(numbers))), _ENCODED)


def _check_powers(part: Any) -> None:
    """See that powers of columns can be worked out in a lifetime."""
    if hasattr(part, "n_output_features_"):
        _require(0 <= part._max_degree <= 64 and 0 <= part.n_output_features_ < 2**24, _ENCODED)


def _check_hashing(part: Any) -> None:
    _require(isinstance(part.n_features, int) and 0 < part.n_features < 2**31, _ENCODED)


def _check_randomness(source: Any) -> None:
    """See that a source of random numbers is somewhere in its own state."""
    bits = getattr(source, "bit_generator", None) or source._bit_generator
    state = bits.state
    name = state["bit_generator"]
    is_good = name == "PCG64" or (name == "MT19937" and 0 <= state["state"]["pos"] <= 624)
    _require(is_good, "a source of random numbers that makes no sense")


# By the name of a class; what derives from it is looked at likewise.
_CHECKS: dict[str, Callable[[Any], None]] = {
    "BaseDecisionTree": _check_tree,
    "GradientBoostingClassifier": _check_gradient_boosting,
    "BaseHistGradientBoosting": _check_histogram_boosting,
    "OneHotEncoder": _check_one_hot,
    "CountVectorizer": _check_vocabulary,
    "DictVectorizer": _check_vocabulary,
    "FeatureHasher": _check_hashing,
    "HashingVectorizer": _check_hashing,
    "PolynomialFeatures": _check_powers,
}
