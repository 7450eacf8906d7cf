"""Whatever can be wrong with features: every message says what, where and what to do."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo import DBN, EM, PBM, UBM, ClickModel, Logistic, Parameter, Sum, Table, flip, read_log
from gecasmo.errors import (
    ClickLogError,
    GecasmoWarning,
    ModelError,
    NotFittedError,
    SavedModelError,
)
from gecasmo.forms.features import FeatureCoding
from gecasmo.logs import ClickLog

ONCE = EM(max_iter=1, tol=0)


def log_with(**columns: Any) -> ClickLog:
    """Twenty pages of three results."""
    rng = np.random.default_rng(0)
    table = {
        "session": np.repeat(np.arange(20), 3),
        "query": np.repeat(np.arange(20) % 2, 3),
        "doc": np.concatenate([rng.permutation(8)[:3] for _ in range(20)]),
        "rank": np.tile([1, 2, 3], 20),
        "click": rng.random(60) < 0.4,
        "x": rng.normal(size=60).round(3),
    }
    return read_log(pl.DataFrame({**table, **columns}, strict=False))


ITEMS = pl.DataFrame({"doc": range(8), "size": [0.1 * n for n in range(8)]})


def fit(form: Any, log: ClickLog | None = None, **options: Any) -> DBN:
    return DBN(attraction=form).fit(log or log_with(), ONCE, **options)


def complaint(action: Any, kind: type[Exception] = ClickLogError) -> str:
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value)


# -- columns that are not there --------------------------------------------------------------------
@pytest.mark.parametrize("form", [Logistic("pric", "x"), Logistic("pric", key="doc")])
def test_a_column_that_the_log_does_not_have(form: Logistic) -> None:
    message = complaint(lambda: fit(form))
    assert "The form of 'attraction' reads the column 'pric', and the log has no such column." in (
        message
    )
    assert "It has: session, query, doc, rank, click, x." in message
    assert 'Perhaps a table of features: fit(log, features={"attraction": frame})' in message


def test_a_column_that_neither_frame_nor_log_has() -> None:
    form = Logistic("size", "colour")
    message = complaint(lambda: fit(form, features={"attraction": ITEMS}))
    assert "reads the column 'colour', and the log has no such column" in message


@pytest.mark.parametrize("form", [Logistic("distance", key="doc"), Sum(Logistic("distance"))])
def test_what_clicks_say_must_be_part_of_the_key(form: Any) -> None:
    message = complaint(lambda: fit(form), ModelError)
    assert "The form of 'attraction' reads 'distance', which depends on the clicks above" in message
    keys = '"doc", "distance"' if form.key else '"query", "doc", "distance"'
    assert message.endswith(f"must be part of its key: key=({keys}).")


def test_ranks_and_page_lengths_need_no_column() -> None:
    log = log_with()
    frame = log.to_frame().filter(~((pl.col("session") == 3) & (pl.col("rank") == 3)))
    model = fit(Logistic("rank", "page_length"), read_log(frame))
    assert model.coefficients["attraction"]["term"].to_list() == [
        "intercept",
        "rank",
        "page_length",
    ]


# -- values that no form can use -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "holds"),
    [
        ([datetime.date(2020, 1, 1)] * 60, "Date"),
        ([datetime.timedelta(1)] * 60, "Duration"),
        ([[1, 2]] * 60, "List"),
        ([{"a": 1}] * 60, "Struct"),
        ([b"x"] * 60, "Binary"),
    ],
)
def test_columns_that_are_neither_numbers_nor_texts(values: list, holds: str) -> None:
    message = complaint(lambda: fit(Logistic("f"), log_with(f=values)))
    assert f"The column 'f' cannot be a feature of 'attraction': it holds {holds}" in message
    assert message.endswith("A feature is a number, a text or a truth value.")


@pytest.mark.parametrize(
    ("broken", "counts", "first"),
    [
        ({3: None, 10: None}, "2 missing values", 3),
        ({59: np.nan}, "1 missing values", 59),
        ({0: np.inf, 1: -np.inf}, "2 infinite values", 0),
        ({7: np.inf, 9: None, 11: np.nan}, "2 missing and 1 infinite values", 7),
    ],
)
@pytest.mark.parametrize("key", [None, "result"])
def test_missing_and_infinite_numbers_are_counted(broken, counts: str, first: int, key) -> None:
    values: list[Any] = [broken.get(n, float(n)) for n in range(60)]
    message = complaint(lambda: fit(Logistic("f", key=key), log_with(f=values)))
    assert f"The column 'f', a feature of 'attraction', has {counts} in 60 results" in message
    assert f"(first: row {first})" in message
    assert "Fill them, or let the form put in the mean (for texts: a level of their own)" in message
    assert 'with missing="mean".' in message
    fit(Logistic("f", key=key, missing="mean"), log_with(f=values))


def test_missing_texts_are_counted() -> None:
    values = ["a", None, "b"] * 20
    assert "has 20 missing values in 60 results (first: row 1)" in complaint(
        lambda: fit(Logistic("f"), log_with(f=values))
    )
    nothing = log_with(f=[None] * 60)
    assert "has 60 missing values in 60 results" in complaint(lambda: fit(Logistic("f"), nothing))


def test_a_table_by_a_column_with_holes_is_refused_even_if_a_form_would_take_it() -> None:
    log = log_with(f=[None, 1, 2] * 20)
    forms = {"attraction": Logistic("f", missing="mean"), "satisfaction": Table(key="f")}
    assert "'satisfaction' has a row per 'f', but 20 of 60 results have none" in complaint(
        lambda: DBN(**forms).fit(log)
    )


def test_two_forms_may_differ_in_what_they_take() -> None:
    log = log_with(f=[None, 1, 2] * 20)
    forms = {"attraction": Logistic("f", missing="mean"), "satisfaction": Logistic("f")}
    assert "a feature of 'satisfaction', has 20 missing" in complaint(lambda: DBN(**forms).fit(log))


# -- features that disagree ------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["doc", ("query", "doc"), "query", "session", ("rank", "doc")])
@pytest.mark.parametrize("summed", [False, True])
def test_features_that_differ_within_a_key(key: Any, summed: bool) -> None:
    form = Sum(Logistic("x"), key=key) if summed else Logistic("x", key=key)
    log = log_with()
    message = complaint(lambda: fit(form, log))
    assert "The column 'x', a feature of 'attraction', is not the same wherever its key is: " in (
        message
    )
    shown, values = message.split("is: ")[1].split(".\n")[0].split(" has ")
    # The key that is shown has both of the values that are shown.
    part = log.to_frame()
    for piece in shown.split(", "):
        name, value = piece.split(" ")
        part = part.filter(pl.col(name) == int(value))
    first, second = (float(value) for value in values.split(" and "))
    assert first != second
    assert {first, second} <= set(part["x"])
    assert 'Perhaps key="result", by which every shown result is a row of its own, or no key' in (
        message
    )


def test_texts_and_holes_disagree_too() -> None:
    log = log_with(f=["a"] * 59 + ["b"], g=[1.0] * 59 + [None])
    assert "has 'a' and 'b'." in complaint(lambda: fit(Logistic("f", key="query"), log))
    message = complaint(lambda: fit(Logistic("g", key="query", missing="mean"), log))
    assert "has 1.0 and None." in message


def test_pages_that_look_alike_but_for_a_feature_are_kept_apart() -> None:
    """Folding equal pages must not hide that their features differ."""
    log = read_log(
        {
            "session": [1, 1, 2, 2],
            "query": [1, 1, 1, 1],
            "doc": [5, 6, 5, 6],
            "rank": [1, 2, 1, 2],
            "click": [0, 1, 0, 1],
            "f": [1.0, 2.0, 1.0, 3.0],
        }
    )
    message = complaint(lambda: fit(Logistic("f", key="doc"), log))
    assert "doc 6 has" in message
    assert "2.0" in message
    assert "3.0" in message


def test_what_clicks_above_say_may_not_decide_a_feature() -> None:
    """Constant within (rank, last click) of this log, but unknown where clicks are not known."""
    log = read_log(
        {
            "session": [1, 1, 2, 2],
            "doc": [5, 6, 5, 6],
            "rank": [1, 2, 1, 2],
            "click": [0, 0, 1, 0],
            "f": [1.0, 2.0, 1.0, 3.0],
        }
    )
    form = Logistic("f", key=("rank", "last_click"))
    message = complaint(lambda: UBM(examination=form, attraction=Table(key="doc")).fit(log))
    assert "rank 2 has" in message


class Kinds(ClickModel):
    """A coin that is flipped before any result is seen."""

    kind = Parameter()
    taste = Parameter("doc")

    def start(self, user):
        user.is_keen = flip(self.kind)

    def browse(self, user, result):
        if user.is_keen and flip(self.taste):
            user.click()


def test_coins_of_start_only_know_what_holds_all_over_the_page() -> None:
    log = log_with(age=np.repeat(np.arange(20) % 3, 3))
    assert Kinds(kind=Logistic("age")).fit(log, ONCE).keys["kind"] == ("age",)
    message = complaint(lambda: Kinds(kind=Logistic("x")).fit(log), ModelError)
    assert "flipped in start()" in message
    assert "'x' varies within pages" in message
    holes = log_with(age=[None if n // 3 % 4 == 0 else float(n // 12) for n in range(60)])
    model = Kinds(kind=Logistic("age", missing="mean")).fit(holes, ONCE)
    assert model.coefficients["kind"]["coefficient"].is_finite().all()


def test_one_row_for_the_whole_log_has_no_features() -> None:
    message = complaint(lambda: DBN(continuation=Sum(Logistic("x"))).fit(log_with()), ModelError)
    assert "The coin 'continuation' has 1 row for the whole log, which cannot have 'x'" in message


# -- features beside the log -----------------------------------------------------------------------
def test_a_frame_serves_by_the_keys_that_the_model_declares() -> None:
    model = fit(Logistic("size"), features={"attraction": ITEMS})
    assert model.keys["attraction"] == ("doc",)
    both = ITEMS.join(pl.DataFrame({"query": [0, 1]}), how="cross")
    assert fit(Logistic("size"), features={"attraction": both}).keys["attraction"] == (
        *("query", "doc"),
    )
    mixed = fit(Logistic("size", "x"), features={"attraction": ITEMS})
    assert mixed.keys["attraction"] == ("doc", "x")
    np.testing.assert_allclose(
        mixed.probability("attraction", {"doc": [3], "x": [0.5]}),
        mixed.probability("attraction", {"size": [ITEMS["size"][3]], "x": [0.5]}),
    )


def test_a_frame_has_precedence_over_the_log() -> None:
    log = log_with(size=np.zeros(60))
    model = fit(Logistic("size"), log, features={"attraction": ITEMS})
    assert model.coefficients["attraction"]["coefficient"][1] != 0


@pytest.mark.parametrize(
    "given",
    [ITEMS, ITEMS.lazy(), ITEMS.to_pandas(), ITEMS.to_arrow(), ITEMS.to_dict(as_series=False)],
    ids=lambda given: type(given).__name__,
)
def test_frames_of_any_kind(given: Any) -> None:
    usual = fit(Logistic("size"), features={"attraction": ITEMS})
    model = fit(Logistic("size"), features={"attraction": given})
    assert model.coefficients["attraction"].equals(usual.coefficients["attraction"])


def test_a_frame_that_lacks_rows() -> None:
    message = complaint(lambda: fit(Logistic("size"), features={"attraction": ITEMS.head(5)}))
    assert "The features of 'attraction' lack 3 of 8 rows (first: doc 5)." in message
    assert "Add them to the frame; for answers about new rows: model.with_features(attraction=" in (
        message
    )


def test_a_frame_that_has_rows_twice() -> None:
    twice = pl.concat([ITEMS, ITEMS.slice(2, 2)])
    message = complaint(lambda: fit(Logistic("size"), features={"attraction": twice}), ModelError)
    assert "have 4 rows with a key that occurs more than once (first: doc 2)" in message


def test_a_frame_without_a_key() -> None:
    alone = ITEMS.select("size")
    message = complaint(lambda: fit(Logistic("size"), features={"attraction": alone}), ModelError)
    assert "have no column by which to find a row; the frame has: size." in message
    clicked = pl.DataFrame({"last_click": [0, 1, 2, 3], "size": [1.0, 2.0, 3.0, 4.0]})
    model = PBM(examination=Logistic("size", key="last_click"))
    message = complaint(
        lambda: model.fit(log_with(), features={"examination": clicked}), ModelError
    )
    assert "have no column by which to find a row; the frame has: last_click, size." in message


def test_a_frame_by_a_key_that_the_log_does_not_have() -> None:
    frame = ITEMS.rename({"doc": "item"})
    message = complaint(lambda: fit(Logistic("size"), features={"attraction": frame}))
    assert "The features of 'attraction' are taken to be by item, and the log has no column" in (
        message
    )
    assert "It has: session, query, doc, rank, click, x." in message
    more = ITEMS.with_columns(brand=pl.lit("b"))
    model = DBN(continuation=Logistic("size"))
    message = complaint(lambda: model.fit(log_with(), features={"continuation": more}))
    assert "are taken to be by doc, brand, and the log has no column 'brand'" in message
    assert 'name the key in the form: key="doc"' in message
    keyed = DBN(continuation=Logistic("size", key="doc"))
    keyed.fit(log_with(), ONCE, features={"continuation": more})


def test_a_frame_with_ids_of_another_type() -> None:
    frame = ITEMS.with_columns(pl.col("doc").cast(pl.String))
    message = complaint(lambda: fit(Logistic("size"), features={"attraction": frame}), ModelError)
    assert "The key 'doc' holds String in the model and Int64 in the log" in message


@pytest.mark.parametrize(
    ("value", "counts"), [(None, "1 missing"), (np.inf, "1 infinite"), (np.nan, "1 missing")]
)
def test_a_frame_with_holes(value: Any, counts: str) -> None:
    frame = ITEMS.with_columns(size=pl.Series([0.0, 1.0, value, 3.0, 4.0, 5.0, 6.0, 7.0]))
    message = complaint(lambda: fit(Logistic("size"), features={"attraction": frame}))
    assert f"has {counts} values in 8 rows of its frame (first: row 2)" in message
    model = fit(Logistic("size", missing="mean"), features={"attraction": frame})
    mean = pl.Series([0.0, 1, 3, 4, 5, 6, 7]).mean()
    np.testing.assert_allclose(
        model.probability("attraction", {"doc": [2]}),
        model.probability("attraction", {"size": [mean]}),
    )


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ([ITEMS], r'features are given by coin: features=\{"attraction": frame\}'),
        (ITEMS, "features are given by coin"),
        ({"attractoin": ITEMS}, "DBN has no coin 'attractoin'. Its coins are: attraction, "),
        ({"satisfaction": ITEMS}, r"the form Table\(\) of 'satisfaction' reads no features"),
        ({"attraction": [1, 2]}, "A data frame is wanted for 'attraction' .*, not list"),
        ({"attraction": None}, "A data frame is wanted for 'attraction' .*, not NoneType"),
    ],
)
def test_features_that_make_no_sense(features: Any, says: str) -> None:
    model = DBN(attraction=Logistic("size"))
    with pytest.raises(ModelError, match=says):
        model.fit(log_with(), features=features)
    assert not model.is_fitted
    assert model.features_ == {}


def test_a_failed_fit_keeps_the_old_features() -> None:
    model = fit(Logistic("size"), features={"attraction": ITEMS})
    before = model.probability("attraction", {"doc": [1]})
    with pytest.raises(ClickLogError):
        model.fit(log_with(), features={"attraction": ITEMS.head(2)})
    assert model.probability("attraction", {"doc": [1]}) == before


# -- with_features ---------------------------------------------------------------------------------
def test_with_features_answers_about_new_rows_and_leaves_the_model_alone() -> None:
    model = fit(Logistic("size"), features={"attraction": ITEMS})
    more = pl.DataFrame({"doc": [100], "size": [0.3]})
    twin = model.with_features(attraction=more)
    np.testing.assert_allclose(
        twin.probability("attraction", {"doc": [100]}),
        model.probability("attraction", {"doc": [3]}),
    )
    message = complaint(lambda: model.probability("attraction", {"doc": [3, 100]}))
    assert "lack 1 of 2 rows (first: doc 100)" in message


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        ({"clicks": ITEMS}, "DBN has no coin 'clicks'"),
        ({"continuation": ITEMS}, r"the form Table\(\) of 'continuation' reads no features"),
        ({"attraction": 7}, "A data frame is wanted for 'attraction' .*, not int"),
    ],
)
def test_with_features_that_make_no_sense(frames: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        DBN(attraction=Logistic("size")).with_features(**frames)


def test_a_model_of_given_values_reads_no_features() -> None:
    model = DBN.with_values(attraction=0.5, satisfaction=0.5, continuation=0.5)
    with pytest.raises(ModelError, match="reads no features"):
        model.with_features(attraction=ITEMS)
    with pytest.raises(ModelError, match=r"must be a number, a dictionary .*, not Logistic"):
        DBN.with_values(attraction=Logistic("x"), satisfaction=0.5, continuation=0.5)


# -- model.probability -----------------------------------------------------------------------------
def test_probability_of_a_coin_that_is_not_there() -> None:
    message = complaint(lambda: fit(Logistic("x")).probability("attr", {"x": [1.0]}), ModelError)
    assert (
        message == "DBN has no coin 'attr'. Its coins are: attraction, satisfaction, continuation."
    )


@pytest.mark.parametrize(
    ("coin", "rows", "says"),
    [
        (
            "attraction",
            {"rank": [1]},
            "The frame lacks x, which are in the key of 'attraction'; it",
        ),
        (
            "satisfaction",
            {"doc": [1]},
            "The frame lacks query, which are in the key of 'satisfaction'",
        ),
        ("satisfaction", {"x": [1]}, "The frame lacks query, doc, which are .* it has: x."),
        ("attraction", [1.0], "A data frame is wanted for 'attraction' .* not list"),
        ("attraction", {"x": ["text"]}, "'x' was numeric in the fit and now holds texts"),
    ],
)
def test_probability_of_rows_that_say_too_little(coin: str, rows: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        fit(Logistic("x")).probability(coin, rows)


def test_probability_of_rows_that_say_too_little_for_a_frame_of_features() -> None:
    model = fit(Logistic("size"), features={"attraction": ITEMS})
    message = complaint(lambda: model.probability("attraction", {"rank": [1]}), ModelError)
    assert message == (
        "The frame lacks doc, by which the features of 'attraction' are found; it has: rank."
    )


def test_probability_of_a_sum_wants_key_and_features() -> None:
    model = fit(Sum(Logistic("size")), log_with(size=0.5 * log_with().column("doc")))
    for rows, lost in (
        ({"query": [0], "doc": [1]}, "size"),
        ({"doc": [1], "size": [0.5]}, "query"),
        ({"size": [0.5]}, "query, doc"),
    ):
        message = complaint(lambda rows=rows: model.probability("attraction", rows), ModelError)
        assert message.startswith(f"The frame lacks {lost}, which are in the key of 'attraction'")


def test_probability_of_rows_with_holes() -> None:
    model = fit(Logistic("x"))
    message = complaint(lambda: model.probability("attraction", {"x": [1.0, np.inf, np.nan]}))
    assert "has 1 missing and 1 infinite values in 3 rows (first: row 1)" in message


def test_probability_before_a_fit() -> None:
    with pytest.raises(NotFittedError, match="has no probabilities yet"):
        DBN(attraction=Logistic("x")).probability("attraction", {"x": [1.0]})


def test_probability_of_no_rows_and_of_coins_without_a_key() -> None:
    model = fit(Logistic("x"))
    assert len(model.probability("attraction", {"x": []})) == 0
    assert len(model.probability("continuation", {"x": [1, 2, 3]})) == 3


def test_levels_of_another_type() -> None:
    model = fit(Logistic("f"), log_with(f=["a", "b", "c"] * 20))
    message = complaint(lambda: model.probability("attraction", {"f": [1, 2]}), ModelError)
    assert "'f' holds String in the model and Int64 in the log" in message


# -- forms that make no sense ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: Logistic(),
            r'^Logistic takes the names of columns, such as Logistic\("price"\)\.$',
        ),
        (lambda: Logistic(3), r'such as Logistic\("price"\), not 3\.'),
        (lambda: Logistic("a", ["b"]), r"not \['b'\]"),
        (lambda: Logistic("a", "a"), "A key is named twice: a, a"),
        (lambda: Logistic(""), "A key is the name of a column"),
        (lambda: Logistic("heads"), "'heads' would be mistaken for the heads of a row"),
        (lambda: Logistic("a", key=("b", "b")), "A key is named twice: b, b"),
        (lambda: Logistic("a", l2=-1), r"Logistic\(l2=-1\): a number that is not negative"),
        (lambda: Logistic("a", l2=float("inf")), r"Logistic\(l2=inf\)"),
        (lambda: Logistic("a", l2=float("nan")), r"Logistic\(l2=nan\)"),
        (
            lambda: Logistic("a", "b", categorical="c"),
            r"Logistic\(categorical='c'\) is none of its columns: a, b\.",
        ),
        (lambda: Logistic("a", categorical=("a", "z")), r"categorical='z'"),
        (
            lambda: Logistic("a", missing="drop"),
            r"""Logistic\(missing='drop'\): choose "raise" or "mean"\.""",
        ),
    ],
)
def test_arguments_that_make_no_sense(make: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        make()


def test_a_class_is_no_form() -> None:
    with pytest.raises(ModelError, match="a form is wanted"):
        DBN(attraction=Logistic)  # type: ignore[arg-type]


def test_coins_that_share_a_form_need_the_same_rows() -> None:
    form = Logistic("size")
    model = DBN(attraction=form, continuation=form)
    assert model.fit(log_with(), ONCE, features={"continuation": ITEMS}).keys == {
        "attraction": ("doc",),
        "satisfaction": ("query", "doc"),
        "continuation": ("doc",),
    }
    both = ITEMS.join(pl.DataFrame({"query": [0, 1]}), how="cross").select("doc", "query", "size")
    with pytest.raises(ModelError) as caught:
        model.fit(log_with(), features={"attraction": both})
    assert str(caught.value) == (
        "The coins 'attraction' and 'continuation' share a form but have rows by different keys; "
        "give the form a key=, or each coin its own form."
    )


# -- remarks ---------------------------------------------------------------------------------------
def test_warnings_point_to_the_line_that_fitted() -> None:
    with pytest.warns(GecasmoWarning, match="'f' is constant, so it says nothing") as caught:
        DBN(attraction=Logistic("f")).fit(log_with(f=[1.0] * 60), ONCE)
    assert caught[0].filename == __file__


# -- files that make no sense ----------------------------------------------------------------------
def test_scales_that_do_not_fit_their_columns_are_refused() -> None:
    coding = fit(Logistic("x")).states()["attraction"].coding
    data, parts = coding.to_data()
    FeatureCoding.from_data(data, parts)
    for wrong, told in (
        ({"scale": [0.0]}, "scale of a form's columns has 1 of 1 numbers that are no number above"),
        ({"scale": [-1.0]}, "first: number 1 is -1"),
        ({"mean": [1.0, 2.0]}, r"mean of a form's columns: numbers of shape \(1,\) are wanted"),
        ({"shift": [np.nan]}, "shift of a form's columns has 1 of 1 numbers that are no finite"),
        ({"numeric": []}, "columns of a form are not those that it turns"),
    ):
        with pytest.raises(SavedModelError, match=told):
            FeatureCoding.from_data({**data, **wrong}, parts)


def test_coefficients_that_do_not_fit_their_columns_are_refused() -> None:
    form = Logistic("x")
    data, parts = form.to_data(fit(form).states()["attraction"])
    for wrong in ([1.0], [1.0, 2.0, 3.0], [1.0, float("nan")]):
        broken = {**parts, "coefficients": pl.DataFrame({"coefficient": wrong})}
        with pytest.raises(SavedModelError, match="'coefficient' of the coefficients of a regress"):
            Logistic.from_data(data, broken)


def test_effects_that_are_no_numbers_are_refused() -> None:
    form = Sum(Logistic("rank"), key=("doc", "rank"))
    data, parts = form.to_data(fit(form).states()["attraction"])
    effects = parts["effects_0"]
    assert isinstance(effects, pl.DataFrame)
    broken = {**parts, "effects_0": effects.with_columns(pl.lit(np.inf).alias("*effect*"))}
    with pytest.raises(SavedModelError, match="of the effects of a sum"):
        Sum.from_data(data, broken)
    with pytest.raises(SavedModelError, match="The spread of a sum"):
        Sum.from_data({**data, "spreads": [0.0]}, parts)
    with pytest.raises(SavedModelError, match="'Mystery' is not known to this version"):
        Sum.from_data({**data, "covariates": "Mystery"}, parts)
