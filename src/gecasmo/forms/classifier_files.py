"""Keep a classifier as data: skops for scikit-learn, its own text for LightGBM. Never pickle.

A file names types, and skops looks every one of them up before it makes anything. Which may be
made is decided here, by what skops trusts and the list below, never by the file. What cannot be
loaded like that is refused when it is saved, so that nobody finds out a year later.

scikit-learn and LightGBM follow the numbers of children and features in the nodes of trees without
looking whether there is such a child or feature. In a damaged or made-up file that would crash the
process, so trees are looked at first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import ModelError, SavedModelError, extra
from gecasmo.forms.form import Floats

# Parts of scikit-learn's own classifiers that skops leaves for us to judge. Making one runs no
# code from a file: skops sets attributes that it has looked up in turn.
TRUSTED = (
    # Arrays of nodes, which prediction follows without looking: `check_trees` looks.
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    # How HistGradientBoostingClassifier checks numbers beside categories.
    "functools.partial",
    "sklearn.utils.validation.check_array",
    # Plain attributes: numbers, arrays and other classifiers.
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
    # The type of numbers that an imputer or encoder writes; read from an empty array.
    "numpy.dtype",
)


def write_classifier(classifier: Any, fitted: Any) -> tuple[dict[str, Any], bytes]:
    """Write a classifier, fitted or not (then `fitted` is None), as JSON and bytes."""
    described: dict[str, Any] = {"is_fitted": fitted is not None, "versions": _versions()}
    if _is_lightgbm(classifier):
        described |= {"format": "lightgbm", "options": _plain_options(classifier)}
        text = "" if fitted is None else fitted.booster_.model_to_string()
        return described, text.encode()
    described["format"] = "skops"
    return described, _dumped(classifier if fitted is None else fitted)


def read_classifier(described: dict[str, Any], content: bytes) -> tuple[Any, Any]:
    """Read the classifier that was written, to be fitted again, and the fitted one or None."""
    is_fitted = bool(described["is_fitted"])
    if described["format"] == "lightgbm":
        lightgbm = _needed("lightgbm", "lightgbm")
        classifier = lightgbm.LGBMClassifier(**described["options"])
        return classifier, SavedBooster(classifier, content.decode()) if is_fitted else None
    if described["format"] != "skops":
        raise SavedModelError(f"The format {described['format']!r} of a classifier is not known.")
    clone = _needed("sklearn.base").clone
    loaded = _loaded(content, described["versions"])
    return clone(loaded), loaded if is_fitted else None


class SavedBooster:
    """The trees of a LightGBM classifier, without the classifier around them."""

    def __init__(self, classifier: Any, text: str) -> None:
        booster = _needed("lightgbm", "lightgbm").Booster
        check_lightgbm(text)
        try:
            self.booster_ = booster(model_str=text)
        except Exception as error:
            raise SavedModelError(f"LightGBM cannot read its trees ({error}).") from None
        self.importance_type = classifier.get_params()["importance_type"]

    @property
    def feature_importances_(self) -> Any:
        return self.booster_.feature_importance(self.importance_type)

    def predict_proba(self, features: Any) -> Floats:
        heads = np.asarray(self.booster_.predict(features), dtype=np.float64)
        return np.column_stack([1.0 - heads, heads])


# -- scikit-learn ------------------------------------------------------------------------------
def _dumped(classifier: Any) -> bytes:
    skops = _needed("skops.io")
    name = " ".join(repr(classifier).split())
    try:
        content: bytes = skops.dumps(classifier)
        odd = [it for it in skops.get_untrusted_types(data=content) if it not in TRUSTED]
    except Exception as error:
        raise SavedModelError(f"{name} cannot be saved without pickle: {error}") from error
    unchecked = _unchecked(classifier)
    if unchecked:
        raise SavedModelError(
            f"{name} cannot be saved: it contains {unchecked}, whose compiled code follows numbers "
            "of a file without checking them. Linear models, trees, forests, boosting, naive Bayes "
            "and small networks can be saved."
        )
    if odd:
        raise SavedModelError(
            f"{name} cannot be saved: it contains {', '.join(odd)}, and loading that could run "
            "anybody's code. Most of what scikit-learn itself provides can be saved, and an "
            "LGBMClassifier that stands alone; functions and classes of your own cannot. Compute "
            "such features before the fit and give them as columns."
        )
    _loaded(content, _versions())  # what cannot be read back is not worth keeping
    return content


def _loaded(content: bytes, versions: dict[str, str]) -> Any:
    try:
        loaded = _needed("skops.io").loads(content, trusted=list(TRUSTED))
        check_trees(loaded)
        unchecked = _unchecked(loaded)
        if unchecked:
            raise SavedModelError(f"A classifier contains {unchecked}, which is not loaded here.")
    except SavedModelError:
        raise
    except Exception as error:
        saved = ", ".join(f"{name} {number}" for name, number in versions.items())
        raise SavedModelError(
            f"A classifier cannot be read: {error} It was saved with {saved}; here is "
            f"{', '.join(f'{name} {number}' for name, number in _versions().items())}."
        ) from error
    return loaded


# Families whose prediction is compiled code that trusts its arrays.
_UNCHECKED = ("sklearn.svm.", "sklearn.neighbors.", "sklearn.gaussian_process.")


def _unchecked(classifier: Any) -> str:
    """Find the first part of a classifier that could crash on a bad file."""
    seen: set[int] = set()
    todo = [classifier]
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        kind = type(part)
        if kind.__module__.startswith(_UNCHECKED):
            return kind.__name__
        if isinstance(part, (list, tuple, set)):
            todo += part
        elif isinstance(part, dict):
            todo += part.values()
        elif isinstance(part, np.ndarray) and part.dtype == object:
            todo += part.ravel().tolist()
        elif kind.__module__.startswith("sklearn.") and hasattr(part, "__dict__"):
            todo += vars(part).values()
    return ""


def _versions() -> dict[str, str]:
    versions = {}
    for name in ("scikit-learn", "skops", "lightgbm"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _needed(module: str, package: str = "gecasmo[sklearn]") -> Any:
    try:
        return extra(module, "A saved classifier", package)
    except ModelError as error:
        raise SavedModelError(str(error)) from None


# -- LightGBM ----------------------------------------------------------------------------------
def _is_lightgbm(classifier: Any) -> bool:
    kind = type(classifier)
    return kind.__module__ == "lightgbm.sklearn" and kind.__name__ == "LGBMClassifier"


def _plain_options(classifier: Any) -> dict[str, Any]:
    options = dict(classifier.get_params())
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        if not all(it is None or isinstance(it, (bool, int, float, str)) for it in values):
            raise SavedModelError(
                f"LGBMClassifier({name}={value!r}) cannot be saved: only numbers, texts and truth "
                "values have a place in a file."
            )
    return options


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
    """See that children come after their parents, which also rules out circles."""
    number = np.flatnonzero(inner)
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        _require(bool(np.all((child > number) & (child < len(inner)))))
    _require(bool(np.all((feature[inner] >= 0) & (feature[inner] < n_features))))


def _parts(it: Any, seen: set[int]) -> Iterator[Any]:
    """Go through everything that a classifier is made of, itself first."""
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


def check_lightgbm(text: str) -> None:
    """Refuse trees that lead out of their arrays or round in circles."""
    header, *trees = re.split(r"^Tree=", text, flags=re.MULTILINE)
    n_features = _whole(header, "max_feature_idx") + 1
    if _whole(header, "num_tree_per_iteration") != 1:
        _refuse("it is no classifier of two classes")
    for number, tree in enumerate(trees):
        try:
            _check_lightgbm_tree(tree.split("\nend of trees")[0], n_features)
        except SavedModelError:
            raise
        except (KeyError, ValueError, IndexError) as error:
            _refuse(f"tree {number} cannot be read ({error})")


def _check_lightgbm_tree(text: str, n_features: int) -> None:
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
