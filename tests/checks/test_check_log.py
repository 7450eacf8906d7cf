"""What the check says of a log by itself."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from checked_logs import pages_log, random_clicks

import gecasmo
from gecasmo import ClickLog, read_log
from gecasmo.checks import LogCheck, check
from gecasmo.errors import ClickLogError, ModelError


def messages(checked: LogCheck, severity: str | None = None) -> str:
    return "\n".join(
        f.message for f in checked.findings if severity is None or f.severity == severity
    )


def test_numbers_of_a_log_by_hand() -> None:
    log = pages_log(
        [["a", "b"], ["a", "b"], ["b", "a", "c"], ["a", "b"]],
        [[1, 0], [0, 0], [1, 1, 0], [1, 0]],
        ["q", "q", "p", "q"],
    )
    checked = check(log, few=2)
    facts = checked.facts
    assert (facts["pages"], facts["results"], facts["queries"], facts["documents"]) == (4, 9, 2, 3)
    assert facts["clicks"] == 4
    assert facts["pages_without_clicks"] == 1
    assert facts["pages_with_several_clicks"] == 1
    assert facts["distinct_pages"] == 2  # (q: a b) three times, (p: b a c) once
    assert facts["distinct_pages_with_clicks"] == 3
    assert facts["pairs"] == 5
    assert facts["pairs_with_enough"] == 2  # (q, a) and (q, b)
    assert facts["pairs_clicked"] == 3
    rates = checked.tables["ctr_by_rank"]
    assert rates["results"].to_list() == [4, 4, 1]
    assert rates["ctr"].to_list() == [0.75, 0.25, 0.0]
    pairs = checked.tables["pairs"]
    assert pairs["shown"].to_list() == ["1", "2-9", "10-99", "100+"]
    assert pairs["pairs"].to_list() == [3, 2, 0, 0]
    assert pairs["share_of_impressions"].to_list() == pytest.approx([3 / 9, 6 / 9, 0, 0])
    assert checked.tables["page_lengths"].rows() == [(2, 3), (3, 1)]
    assert checked.tables["clicks_per_page"].rows() == [(0, 1), (1, 2), (2, 1)]


def test_weights_count_in_rates_and_impressions() -> None:
    log = pages_log([["a", "b"], ["a", "b"]], [[1, 0], [0, 0]], weight=[3.0, 1.0])
    checked = check(log)
    rates = checked.tables["ctr_by_rank"]
    assert rates["impressions"].to_list() == [4.0, 4.0]
    assert rates["ctr"].to_list() == [0.75, 0.0]
    assert checked.facts["total_weight"] == 4.0


@pytest.mark.parametrize("clicked", [0, 1])
def test_one_result(clicked: int) -> None:
    checked = check(pages_log([["a"]], [[clicked]]))
    assert checked.worst == "error"
    expected = "Every result is clicked" if clicked else "no click on any of 1 page"
    assert expected in messages(checked, "error")
    assert "No page has more than one result" in messages(checked)


def test_no_results_and_no_weight() -> None:
    empty = pages_log([["a", "b"]]).take(np.zeros(1, bool))
    checked = check(empty, "PBM")
    assert "no results" in messages(checked, "error")
    assert str(checked)
    weightless = pages_log([["a", "b"]], [[1, 0]], weight=[0.0])
    assert "All pages weigh 0" in messages(check(weightless, "PBM"), "error")


def test_ranks_with_gaps_and_late_beginnings() -> None:
    log = read_log(
        {
            "session": ["x", "x", "y", "y", "z", "z"],
            "doc": list("abcdef"),
            "rank": [1, 3, 1, 2, 4, 5],
            "click": [0, 1, 0, 0, 1, 0],
        }
    )
    checked = check(log)
    late, gaps = checked.about("ranks")
    assert (late.count, gaps.count) == (1, 1)
    assert late.examples == ("session 'z' begins at rank 4",)
    assert gaps.examples == ("session 'x' has ranks 1, 3",)


def test_documents_shown_twice() -> None:
    log = pages_log([["a", "b", "a"], ["a", "b", "c"]], [[1, 0, 0], [0, 0, 0]])
    (finding,) = check(log).about("documents")
    assert finding.severity == "warning"
    assert finding.count == 1
    assert finding.examples == ("session 's0' shows 'a' 2 times",)


def rates_log(rates: list[float], n_pages: int = 400) -> ClickLog:
    """Pages on which rank r is clicked at exactly this rate."""
    pages = [[f"d{r}" for r in range(len(rates))]] * n_pages
    clicks = [[int(page < rate * n_pages) for rate in rates] for page in range(n_pages)]
    return pages_log(pages, clicks)


def test_a_click_rate_that_rises_with_the_rank() -> None:
    assert not check(rates_log([0.5, 0.3, 0.2])).about("click rates")
    (finding,) = check(rates_log([0.2, 0.4, 0.6])).about("click rates")
    assert finding.severity == "warning"
    assert "from 0.2 at rank 1 to 0.4 at rank 2" in finding.message
    # A rise that chance explains is none.
    assert not check(rates_log([0.30, 0.31, 0.2])).about("click rates")


def test_pages_without_clicks_left_out() -> None:
    pages = [["a", "b", "c"]] * 60
    checked = check(pages_log(pages, [[1, 0, 0], [0, 1, 0], [0, 1, 0]] * 20))
    assert "pages without clicks seem to have been left out" in messages(checked, "warning")
    assert "No page has more than one click" in messages(checked)


def test_pages_cut_after_the_last_click() -> None:
    pages = [["a"], ["a", "b"], ["a", "b", "c"]] * 40
    checked = check(pages_log(pages, [[1], [0, 1], [0, 0, 1]] * 40))
    assert "100 % of the clicked pages end with a click" in messages(checked, "warning")


def test_all_clicks_on_the_first_result() -> None:
    pages = [["a", "b", "c"]] * 120
    checked = check(pages_log(pages, [[1, 0, 0], [0, 0, 0]] * 60))
    assert "All 60 clicks on longer pages are on their first result" in messages(checked)


def test_a_robot_and_an_endless_page() -> None:
    pages = [["a", "b", "c"]] * 200 + [[f"x{i}" for i in range(150)]]
    clicks = [*random_clicks(pages[:200], 0.2, 0), [1] * 150]
    checked = check(pages_log(pages, clicks))
    (robot,) = checked.about("suspicious")
    assert robot.examples[0] == "session 's200' has 150 clicks on 150 results"
    (long,) = [f for f in checked.about("pages") if "far longer" in f.message]
    assert long.examples == ("session 's200' has 150 results",)


def test_one_user_with_most_pages() -> None:
    pages = [["a", "b"]] * 200
    users = ["robot"] * 120 + [f"u{i}" for i in range(80)]
    checked = check(pages_log(pages, random_clicks(pages, 0.3, 0), user=users))
    (finding,) = checked.about("suspicious")
    assert "One user has 60 % of all pages" in finding.message
    assert finding.examples[0] == "user 'robot': 120 pages"
    traffic = checked.tables["traffic"].filter(pl.col("which") == "seen once")
    assert traffic["number"].to_list() == [80]


def test_notes_of_the_reader_are_told() -> None:
    log = pages_log([["a", "b"]] * 5, [[1, 0]] * 5)
    log.notes = (  # type: ignore[attr-defined]
        SimpleNamespace(kind="duplicates", count=3, what="3 clicks came twice.", examples=("s1",)),
    )
    (finding,) = check(log).about("reading")
    assert (finding.severity, finding.count, finding.examples) == ("warning", 3, ("s1",))


def test_sparse_pairs_are_a_warning() -> None:
    pages = [[f"a{i}", f"b{i}"] for i in range(100)]
    checked = check(pages_log(pages, random_clicks(pages, 0.3, 0)))
    (finding,) = checked.about("pairs")
    assert finding.severity == "warning"
    assert "0 of 200 documents were shown at least 10 times" in finding.message
    assert "0 were seen at more than one rank" in finding.message


def test_documents_that_never_move_are_a_warning() -> None:
    pages = [[f"a{i}", f"b{i}"] for i in range(10)] * 12
    clicks = random_clicks(pages, 0.3, 0)
    assert "always shown at one and the same rank" in messages(check(pages_log(pages, clicks)))
    pages[0] = pages[0][::-1]
    assert "always shown at one" not in messages(check(pages_log(pages, clicks)))


def test_counts_agree_with_a_plain_loop() -> None:
    rng = np.random.default_rng(3)
    pages = [[f"d{d}" for d in rng.integers(0, 6, rng.integers(1, 5))] for _ in range(80)]
    queries = [f"q{q}" for q in rng.integers(0, 3, 80)]
    clicks = random_clicks(pages, 0.3, 4)
    checked = check(pages_log(pages, clicks, queries), few=4)
    shown: dict[tuple[str, str], int] = {}
    for query, page in zip(queries, pages, strict=True):
        for doc in page:
            shown[query, doc] = shown.get((query, doc), 0) + 1
    twice = sum(len(set(page)) < len(page) for page in pages)
    whole = {(q, *p, *c) for q, p, c in zip(queries, pages, clicks, strict=True)}
    assert checked.facts["pairs"] == len(shown)
    assert checked.facts["pairs_with_enough"] == sum(n >= 4 for n in shown.values())
    assert checked.facts["distinct_pages"] == len(
        {(q, *p) for q, p in zip(queries, pages, strict=True)}
    )
    assert checked.facts["distinct_pages_with_clicks"] == len(whole)
    assert checked.about("documents")[0].count == twice


def test_refusals() -> None:
    log = pages_log([["a", "b"]], [[1, 0]])
    with pytest.raises(ClickLogError, match="read_log"):
        check(17)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="few=0"):
        check(log, few=0)
    with pytest.raises(ModelError, match="randomise=2"):
        check(log, randomise=2)
    with pytest.raises(ModelError, match="There is no model 'NOPE'"):
        check(log, "NOPE")
    with pytest.raises(ModelError, match="a model is wanted"):
        check(log, 3)


def test_a_model_that_does_not_fit_the_log_is_a_finding() -> None:
    checked = check(pages_log([["a", "b"]] * 3, [[1, 0]] * 3), gecasmo.PBM)
    (finding,) = checked.about("model")
    assert finding.severity == "error"
    assert "the log has no such column" in finding.message
    assert 'attraction=Table(key="doc")' in finding.advice
    assert checked.model == "PBM"


def test_it_tells_what_it_does() -> None:
    heard: list[str] = []
    check(pages_log([["a", "b"]] * 3, [[1, 0]] * 3), tell=heard.append)
    assert heard[0] == "looking at pages and clicks"


def test_searches_read_without_queries_are_told() -> None:
    columns = {"session": [1, 1, 2], "doc": list("aba"), "rank": [1, 2, 1], "click": [0, 1, 1]}
    typed = {"typed_phrase": ["red boots", "red boots", "hats"]}
    found = [f for f in check(read_log(columns | typed)).findings if f.topic == "queries"]
    assert [f.severity for f in found] == ["warning"]
    assert "query='typed_phrase'" in found[0].advice
    read = read_log(columns | typed, query="typed_phrase")
    others = columns | {"search_id": list("xxy"), "search_time": ["a", "a", "b"]}
    for log in (read, read_log(columns), read_log(others)):
        assert not [f for f in check(log).findings if f.topic == "queries"]
    with pytest.raises(ClickLogError, match="should be read with query='typed_phrase'; else all"):
        gecasmo.DBN().fit(read_log(columns | typed))


def test_what_is_suspicious_can_be_left_out() -> None:
    pages = [["a", "b", "c"]] * 200 + [[f"x{i}" for i in range(150)]]
    clicks = [*random_clicks(pages[:200], 0.2, 0), [1] * 150]
    log = pages_log(pages, clicks)
    checked = check(log)
    assert checked.suspicious.tolist() == [200]
    assert checked.to_dict()["suspicious_pages"] == 1
    clean = checked.without_suspicious(log)
    assert clean.sessions.to_list() == log.sessions.to_list()[:200]
    again = check(clean)
    assert len(again.suspicious) == 0
    assert not again.about("suspicious")
    assert again.without_suspicious(clean).n_sessions == 200
    with pytest.raises(ClickLogError, match="201 pages; this is another one"):
        checked.without_suspicious(clean)


def test_all_pages_of_a_robot_are_left_out_and_none_of_a_frequent_query() -> None:
    pages = [["a", "b"]] * 200
    users = ["robot"] * 120 + [f"u{i}" for i in range(80)]
    log = pages_log(pages, random_clicks(pages, 0.3, 0), user=users)
    clean = check(log).without_suspicious(log)
    assert sorted(clean.session_column("user")) == sorted(users[120:])
    asked = ["q"] * 120 + [f"q{i}" for i in range(80)]
    log = pages_log(pages, random_clicks(pages, 0.3, 0), query=asked)
    checked = check(log)
    assert checked.about("suspicious")
    assert checked.without_suspicious(log).n_sessions == 200
