"""What can be told apart, on logs for which the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from checked_logs import by_doc, dbn_users, pages_log, pbm_users, random_clicks, shelves
from hypothesis import given, settings
from hypothesis import strategies as st

from gecasmo import CCM, CM, DBN, DCM, PBM, SDBN, UBM, ClickModel, Fixed, Parameter, Table, flip
from gecasmo.checks import check
from gecasmo.checks.graph import meet
from gecasmo.checks.identified import find_tangles, look, null_space
from gecasmo.checks.subject import choose_pages

ANCHOR = Table(fixed={1: 1.0})


class SameKey(ClickModel):
    """Two coins with one key: nothing can ever part them."""

    one = Parameter("doc")
    other = Parameter("doc")

    def browse(self, user, result):  # type: ignore[no-untyped-def]
        if flip(self.one) and flip(self.other):
            user.click()


class Triple(ClickModel):
    first = Parameter("rank")
    second = Parameter("doc")
    third = Parameter("device")

    def browse(self, user, result):  # type: ignore[no-untyped-def]
        if flip(self.first) and flip(self.second) and flip(self.third):
            user.click()


def shuffled_pages(n_pages: int, docs: str, length: int, seed: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[str(d) for d in rng.permutation(list(docs))[:length]] for _ in range(n_pages)]


# -- components against union-find ------------------------------------------------------------
def components_by_hand(pages: list[list[str]]) -> list[set[tuple[str, object]]]:
    parts: list[set[tuple[str, object]]] = []
    for page in pages:
        for rank, doc in enumerate(page, start=1):
            new = {("rank", rank), ("doc", doc)}
            touching = [part for part in parts if part & new]
            parts = [part for part in parts if not part & new]
            parts.append(new.union(*touching))
    return parts


random_pages = st.lists(
    st.lists(st.sampled_from(list("abcdefgh")), min_size=1, max_size=4, unique=True),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(random_pages, st.integers(0, 1000))
def test_components_and_null_space_of_pbm_are_those_of_a_plain_search(
    pages: list[list[str]], seed: int
) -> None:
    log = pages_log(pages, random_clicks(pages, 0.4, seed))
    model = by_doc(PBM)
    machine = model.counting_structure.machine("minimal")
    found = meet(model.encode(log, "e_step"), machine, 0, 1)
    wanted = components_by_hand(pages)
    assert found.n_components == len(wanted)
    sizes = sorted(
        (sum(len(side[side == n]) for side in found.component)) for n in range(len(wanted))
    )
    assert sizes == sorted(map(len, wanted))
    shown = [sum((("doc", doc) in part) for page in pages for doc in page) for part in wanted]
    assert sorted(found.impressions) == pytest.approx(sorted(shown))
    # Without an anchor, each component has one free scale.
    assert look(model, log, seed).space.dimension == len(wanted)
    # With rank 1 given, the components that hold it have none left: it is on every page.
    anchored = by_doc(PBM, examination=ANCHOR)
    assert look(anchored, log, seed).space.dimension == len(wanted) - 1


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 6), st.integers(0, 1000))
def test_null_space_has_the_dimension_that_was_built_in(
    n_rows: int, n_columns: int, n_free: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n_free = min(n_free, n_columns)
    basis = rng.normal(size=(n_rows, n_columns - n_free))
    matrix = basis @ rng.normal(size=(n_columns - n_free, n_columns))
    space = null_space(matrix)
    rank = min(n_rows, n_columns - n_free)
    assert space.dimension + len(space.silent) == n_columns - rank
    for block in space.blocks:
        moved = matrix[:, block.columns] @ block.directions.T
        assert np.abs(moved).max() < 1e-6 * (1 + np.abs(block.directions).max())


# -- structure --------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [PBM, UBM])
def test_products_are_found_without_knowing_the_model(model: type) -> None:
    pages = shuffled_pages(40, "abcdef", 4, 0)
    (tangle,) = find_tangles(by_doc(model), pages_log(pages, random_clicks(pages, 0.3, 1)), 0)
    assert tangle.coins == ("examination", "attraction")
    assert tangle.is_product
    assert tangle.dimension == 1


@pytest.mark.parametrize("model", [DBN, SDBN, DCM, CM, CCM])
def test_cascade_models_have_no_such_product(model: type) -> None:
    pages = shuffled_pages(40, "abcdef", 4, 0)
    assert find_tangles(by_doc(model), pages_log(pages, random_clicks(pages, 0.2, 1)), 0) == []


def test_a_product_stays_one_when_rows_are_given() -> None:
    pages = shuffled_pages(40, "abcdef", 4, 0)
    log = pages_log(pages, random_clicks(pages, 0.3, 1))
    for form in (ANCHOR, Fixed(0.5)):
        (tangle,) = find_tangles(by_doc(PBM, examination=form), log, 0)
        assert tangle.coins == ("examination", "attraction")


def test_coins_with_the_same_key_can_never_be_parted() -> None:
    log = pbm_users(shuffled_pages(60, "abcd", 3, 0), 1)
    checked = check(log, SameKey)
    (finding,) = checked.about("connectivity")
    assert finding.count == checked.facts["components"] == 4
    assert "Other pages would not change that" in finding.advice
    assert "links" not in checked.tables


def test_three_coins_need_two_anchors() -> None:
    pages = shuffled_pages(60, "abcd", 3, 0)
    log = pages_log(pages, random_clicks(pages, 0.2, 1), device=["x", "y"] * 30)
    (open_,) = check(log, Triple).about("product")
    assert (open_.severity, open_.count) == ("warning", 2)
    (half,) = check(log, Triple(first=ANCHOR)).about("product")
    assert (half.severity, half.count) == ("warning", 1)
    (shut,) = check(log, Triple(first=ANCHOR, third=Table(fixed={"x": 0.9}))).about("product")
    assert shut.severity == "info"


# -- logs -------------------------------------------------------------------------------------
def test_connected_and_anchored() -> None:
    log = pbm_users(shuffled_pages(300, "abcdef", 4, 0), 1)
    checked = check(log, by_doc(PBM, examination=ANCHOR))
    assert checked.facts["components"] == 1
    assert checked.facts["components_without_anchor"] == 0
    assert checked.facts["free_directions"] == 0
    assert {f.severity for f in checked.about("product") + checked.about("connectivity")} == {
        "info"
    }
    (finding,) = checked.about("identified")
    assert finding.message.startswith("All 9 parameters")  # 6 documents, ranks 2 to 4


def test_connected_without_anchor_names_one() -> None:
    log = pbm_users(shuffled_pages(300, "abcdef", 4, 0), 1)
    checked = check(log, by_doc(PBM))
    (product,) = checked.about("product")
    assert product.severity == "warning"
    assert "PBM(examination=Table(fixed={1: 1.0}))" in product.advice
    assert checked.about("connectivity")[0].severity == "info"
    assert checked.facts["free_directions"] == 1
    ubm = check(log, by_doc(UBM))
    assert "UBM(examination=Table(fixed={(1, 0): 1.0}))" in ubm.about("product")[0].advice


def test_two_components() -> None:
    rng = np.random.default_rng(0)
    pages = [
        [*map(str, rng.permutation(["a", "b"])), *map(str, rng.permutation(["c", "d"]))]
        for _ in range(100)
    ]
    log = pbm_users(pages, 1)
    checked = check(log, by_doc(PBM, examination=ANCHOR))
    (finding,) = checked.about("connectivity")
    assert finding.severity == "error"
    assert finding.count == 2
    assert "50 % of the impressions are outside the largest" in finding.message
    assert "1 result shown at another place" in finding.advice
    components = checked.tables["components"]
    assert components["examination_rows"].to_list() == [2, 2]
    assert components["attraction_rows"].to_list() == [2, 2]
    assert components["anchored"].to_list() == [True, False]
    (link,) = checked.tables["links"].to_dicts()
    assert link["show"] in ("doc 'c'", "doc 'd'")
    assert link["at"] in ("rank 1", "rank 2")
    assert checked.facts["free_directions"] == 1
    both = check(log, by_doc(PBM, examination=Table(fixed={1: 1.0, 3: 0.7})))
    assert both.about("connectivity")[0].severity == "info"
    assert both.facts["free_directions"] == 0


def test_doing_what_the_links_say_connects_the_log() -> None:
    pages = [["a", "b", "c", "d"]] * 30
    checked = check(pages_log(pages, random_clicks(pages, 0.3, 1)), by_doc(PBM))
    assert checked.facts["components"] == 4
    links = checked.tables["links"].to_dicts()
    assert len(links) == 3
    for link in links:
        doc, rank = link["show"].split("'")[1], int(link["at"].split()[1])
        page = [d for d in "abcd" if d != doc]
        page.insert(rank - 1, doc)
        pages.append(page)
    after = check(pages_log(pages, random_clicks(pages, 0.3, 1)), by_doc(PBM))
    assert after.facts["components"] == 1


def test_every_document_at_its_own_rank() -> None:
    log = pbm_users(shelves(200, 3, 4, 0.0, 0), 1)
    checked = check(log, by_doc(PBM, examination=ANCHOR))
    assert checked.facts["components"] == 4
    assert checked.facts["components_without_anchor"] == 3
    assert checked.facts["free_directions"] == 3
    assert checked.worst == "error"
    moved = pbm_users(shelves(200, 3, 4, 0.5, 0), 1)
    assert check(moved, by_doc(PBM, examination=ANCHOR)).facts["free_directions"] == 0


def test_dbn_needs_results_that_move() -> None:
    """On pages that are always the same, only gamma times alpha of the second result shows."""
    checked = check(dbn_users([["a", "b"]] * 300, 1), by_doc(DBN))
    assert checked.facts["free_directions"] == 1
    (finding,) = [f for f in checked.about("identified") if f.severity == "warning"]
    (example,) = finding.examples
    assert "attraction of doc 'b'" in example
    assert "continuation" in example
    assert "doc 'a'" not in example
    moving = check(dbn_users([["a", "b"], ["b", "a"]] * 150, 1), by_doc(DBN))
    assert moving.facts["free_directions"] == 0


def test_the_sample_has_pages_of_several_queries() -> None:
    pages = shuffled_pages(300, "abcdefghijklmnopqrst", 20, 0)
    queries = ["often"] * 240 + ["seldom"] * 60
    sample = choose_pages(PBM(), pages_log(pages, random_clicks(pages, 0.1, 1), queries))
    assert sample is not None
    assert not sample.is_whole
    assert sample.n_pages < 300
    assert set(sample.log.session_column("query")) == {"often", "seldom"}


def test_a_sample_stands_for_all_pages_that_are_alike() -> None:
    pages = shuffled_pages(100, "abc", 2, 0)
    sample = choose_pages(by_doc(PBM), pages_log(pages, random_clicks(pages, 0.3, 1)))
    assert sample is not None
    assert sample.is_whole
    assert sample.n_pages <= 24  # six orders, four patterns of clicks
    assert sample.weight.sum() == pytest.approx(100)


def test_only_pages_that_differ_are_looked_at() -> None:
    checked = check(dbn_users([["a", "b"]] * 300, 1), by_doc(DBN))
    assert checked.facts["pages_looked_at"] <= 4  # none, first, second, both
    assert checked.facts["looked_at_all"]
