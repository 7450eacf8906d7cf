"""Judgments of a model in parts, or about a stored log, are those made in memory."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from stored_examples import fitted, parted

from gecasmo import DBN, Logistic, Table
from gecasmo.judgments import Judgments, JudgmentsError, judge
from gecasmo.judgments.grades import Relevances, quantile_cuts

KEYS = ["query", "doc"]
RULES = [
    {"rule": "informative"},
    {"rule": "quantile"},
    {"rule": "quantile-per-query", "grades": 3},
    {"rule": "threshold", "thresholds": [0.2, 0.5, 0.6]},
    {"rule": "interval", "max_width": 0.6},
]


def assert_same(found, wanted: Judgments) -> None:
    assert found.rows.path is not None
    left, right = found.frame.sort(KEYS), wanted.frame.sort(KEYS)
    assert left.columns == right.columns
    for name in left.columns:
        if left[name].dtype == pl.Float64:
            ours, theirs = (frame[name].fill_null(-1).to_numpy() for frame in (left, right))
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
        else:
            assert left[name].equals(right[name]), name
    ours, theirs = found.to_dict(), wanted.to_dict()
    for name in ("cuts", "examinations_insufficient", "grade_probability", "order"):
        if theirs[name] is not None:
            assert ours.pop(name) == pytest.approx(theirs.pop(name), rel=1e-12), name
    assert ours == theirs


@pytest.mark.parametrize("options", RULES, ids=lambda options: options["rule"])
def test_all_rules(split, model, options):
    options = {"min_examinations": 3.0, **options}
    assert_same(judge(split, **options), judge(model, **options))


def test_in_words(split, model):
    assert str(judge(split)) == str(judge(model))
    assert judge(split)._repr_html_() == judge(model)._repr_html_()


@pytest.mark.parametrize("in_files", [False, True])
def test_the_pairs_of_a_stored_log(split, model, log, store, in_files):
    asked = split if in_files else model
    assert_same(judge(asked, pairs=store), judge(model, pairs=log))


def test_pairs_in_memory_are_judged_at_once(split, model, log):
    found, wanted = judge(split, pairs=log), judge(model, pairs=log)
    assert found.rows.path is None
    assert found.frame.sort(KEYS).equals(wanted.frame.sort(KEYS))


def test_a_table_that_is_in_memory_beside_one_in_parts(model, tmp_path):
    twin = parted(model, tmp_path, 4)
    twin.relevance = wanted_coins = ("attraction", "satisfaction")
    twin.states_["satisfaction"] = model.states()["satisfaction"]
    twin.report_.counts["satisfaction"] = model.report_.counts["satisfaction"]
    whole = model.copy()
    whole.relevance = wanted_coins
    assert judge(twin).frame.sort(KEYS).equals(judge(whole).frame.sort(KEYS))


@pytest.mark.parametrize("n_parts", [1, 16])
def test_both_coins_in_parts(model, tmp_path, n_parts):
    twin, whole = parted(model, tmp_path, n_parts), model.copy()
    twin.relevance = whole.relevance = ("attraction", "satisfaction")
    assert_same(judge(twin), judge(whole))


def lines_of(path: Path) -> list[str]:
    return sorted(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("format", ["csv", "qrels", "quepid"])
def test_text_files_have_the_same_lines(split, model, tmp_path, format):
    files = [tmp_path / "parts", tmp_path / "whole"]
    options = {} if format != "qrels" else {"ids": "encode"}
    told = [
        judge(each).write(file, format, **options)
        for each, file in zip((split, model), files, strict=True)
    ]
    assert lines_of(files[0]) == lines_of(files[1])
    assert files[0].read_text().splitlines()[0] == files[1].read_text().splitlines()[0] or (
        format == "qrels"
    )
    assert told[0].judgments == told[1].judgments
    assert told[0].insufficient == told[1].insufficient
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("format", ["opensearch", "quepid"])
def test_ratings_of_ordered_pairs(split, model, tmp_path, format):
    options = {"format": format, "ratings": "float", "include": "ordered"}
    told = []
    for each in (split, model):
        found = judge(each, min_examinations=1e9, min_order=1)  # nothing is judged, or ordered
        with pytest.raises(JudgmentsError, match="None of the"):
            found.write(tmp_path / "none", **options)
        found = judge(each, min_examinations=40, min_order=0.5)
        assert found.n_ordered > 0
        told.append(found.write(tmp_path / str(len(told)), **options))
        assert told[-1].judgments == found.n_judged + found.n_ordered
        assert told[-1].ordered == 0
    words = [sorted((tmp_path / str(n)).read_text().split()) for n in (0, 1)]
    assert len(words[0]) == len(words[1])
    if format == "quepid":
        assert words[0] == words[1]


def test_parquet(split, model, tmp_path):
    judge(split).write(tmp_path / "parts.parquet")
    found = pl.read_parquet(tmp_path / "parts.parquet").sort(KEYS)
    assert found.equals(judge(model).frame.sort(KEYS))
    told = json.loads(pl.read_parquet_metadata(tmp_path / "parts.parquet")["gecasmo"])
    assert told == judge(split).to_dict()


def test_opensearch(split, model, tmp_path):
    bodies = []
    for each in (split, model):
        judge(each).write(tmp_path / "j.json", name="mine")
        body = json.loads((tmp_path / "j.json").read_text())
        ratings = body.pop("judgmentRatings")
        by_query = {r["query"]: sorted(map(tuple, map(dict.items, r["ratings"]))) for r in ratings}
        assert len(by_query) == len(ratings)
        bodies.append((body, by_query))
    assert bodies[0] == bodies[1]


def test_ranklib(split, model, tmp_path):
    features = judge(model).frame.select("query", "doc", size=pl.col("doc") * 2)
    files = []
    for each in (split, model):
        judge(each).write(tmp_path / "j.txt", features=features)
        head, body = (tmp_path / "j.txt").read_text().split("\n\n")
        comments = head.splitlines()
        queries = dict(line[2:].split(": ", 1) for line in comments if line.startswith("# qid:"))
        assert list(queries) == [f"qid:{n + 1}" for n in range(len(queries))]
        lines = []
        for line in body.splitlines():
            grade, qid, rest = line.split(" ", 2)
            assert rest.endswith(f"\t{queries[qid]}")
            lines.append((grade, rest))
        plain = [line for line in comments if not line.startswith("# qid:")]
        files.append((plain, sorted(queries.values()), sorted(lines)))
    assert files[0] == files[1]


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_training_files_and_those_beside_them(split, model, tmp_path, name):
    """Groups follow each other as parts do; each has the lines that it has in memory."""
    features = judge(model).frame.select("query", "doc", size=pl.col("doc") * 2, position=3)
    found = []
    for number, each in enumerate((split, model)):
        path = tmp_path / f"{number}.train"
        judge(each).write(path, name, features=features)
        lines = path.read_text().splitlines()
        pairs = pl.read_csv(f"{path}.pairs.csv", infer_schema=False)
        sizes = pairs.select(pl.col("query").rle().struct.field("len")).to_series().to_list()
        if name == "lightgbm":
            assert Path(f"{path}.query").read_text() == "".join(f"{size}\n" for size in sizes)
            assert Path(f"{path}.position").read_text() == "3\n" * len(pairs)
        else:
            groups = [int(line.split()[1].removeprefix("qid:")) for line in lines]
            assert groups == [n + 1 for n, size in enumerate(sizes) for _ in range(size)]
            lines = [" ".join((line.split()[0], *line.split()[2:])) for line in lines]
        found.append(sorted(zip(pairs["query"], pairs["doc"], lines, strict=True)))
    assert found[0] == found[1]


def test_requests_and_books(split, model, tmp_path):
    for name, entries, options in (
        ("elasticsearch", "requests", {"index": "shop"}),
        ("quepid-book", "query_doc_pairs", {}),
    ):
        bodies = []
        for each in (split, model):
            judge(each).write(tmp_path / "j.json", name, **options)
            body = json.loads((tmp_path / "j.json").read_text())
            bodies.append((sorted(map(json.dumps, body.pop(entries))), body))
        assert bodies[0] == bodies[1]


def test_nothing_to_write_is_told_of_all_parts(split, tmp_path):
    found = judge(split, min_examinations=1e9)
    with pytest.raises(JudgmentsError, match=rf"None of the {len(found):,} pairs has enough data"):
        found.write(tmp_path / "j.qrels")
    assert found.write(tmp_path / "j.csv").judgments == len(found)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["j.csv"]


def test_what_is_worth_judging(split, model, log, store):
    for traffic, theirs in ((None, None), (store, log), (log, log)):
        found = judge(split, rule="quantile-per-query").worth_judging(6, log=traffic)
        wanted = judge(model, rule="quantile-per-query").worth_judging(6, log=theirs)
        for ours, others in zip(found, wanted, strict=True):
            assert ours.select("query").equals(others.select("query"))
            np.testing.assert_allclose(ours["worth"], others["worth"], rtol=1e-12)
    plain = judge(model).worth_judging(5, log=store)
    np.testing.assert_allclose(
        plain.pairs["traffic"], judge(model).worth_judging(5, log=log).pairs["traffic"]
    )
    assert len(judge(split).worth_judging(3).pairs) == 3


def test_features_are_judged_on_the_pairs_of_a_stored_log(log, store):
    """Relevance by features has its intervals, in parts as in memory."""
    model = DBN(attraction=Logistic("doc"), satisfaction=0.5).fit(log, progress=False)
    found, wanted = judge(model, pairs=store), judge(model, pairs=log)
    assert_same(found, wanted)
    assert found.n_judged
    assert not found.n_without_interval


def test_rows_that_were_given_are_counted(log, tmp_path):
    model = fitted(log, attraction=Table(fixed={("question 0", 1): 0.5, ("question 1", 2): 0.1}))
    found, wanted = judge(parted(model, tmp_path, 4)), judge(model)
    assert_same(found, wanted)
    assert found.n_given == wanted.n_given == 2


def test_scratch_files_go_with_the_judgments(split):
    found = judge(split)
    folder = found.rows.path
    assert folder.is_dir()
    del found
    gc.collect()
    assert not folder.exists()


def test_there_is_nothing_to_judge(model, log):
    from stored_examples import FakeStore

    with pytest.raises(JudgmentsError, match="has no pairs to be judged"):
        judge(model, pairs=FakeStore(log.take([]), 2))


@pytest.mark.parametrize("grades", [2, 5])
def test_cut_points_of_very_many_pairs(grades):
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.beta(1, 4, 60_000), np.full(9_000, 0.125)])
    rng.shuffle(values)
    exact, about = Relevances(), Relevances(most=10_000)
    for some in np.array_split(values, 7):
        exact.add(some)
        about.add(some)
    assert exact.is_exact
    assert not about.is_exact
    np.testing.assert_array_equal(exact.cuts(grades), quantile_cuts(values, grades))
    ranks = [np.searchsorted(np.sort(values), each.cuts(grades)) for each in (exact, about)]
    np.testing.assert_allclose(about.cuts(grades), exact.cuts(grades), atol=3e-5)
    assert np.all(np.abs(ranks[0] - ranks[1]) <= 3)


def test_judges_are_heard_in_parts_as_in_memory(model, split):
    known = judge(model).frame.select("query", "doc", "relevance")
    level = pl.col("relevance").rank("ordinal").cast(pl.Int64) * 4 // (pl.len() + 1)
    grades = known.select("query", "doc", grade=level.cast(pl.Int64))
    queries = [grades["query"][0], "a", "b"]
    new = pl.DataFrame({"query": queries, "doc": [901, 901, 902], "grade": [0, 3, 0]})
    grades = pl.concat([grades, new.cast(dict(grades.schema))])
    whole, parted = (judge(one, grades_from={"llm": grades}) for one in (model, split))
    assert len(whole) == len(parted) == len(grades)
    keys = ["query", "doc"]
    one, other = (found.frame.sort(keys) for found in (whole, parted))
    assert one.select(keys).equals(other.select(keys))
    assert one["rests_on"].equals(other["rests_on"])
    assert one["relevance"].to_list() == pytest.approx(other["relevance"].to_list(), rel=1e-6)
    ours, theirs = (found.judges.trust["agreement"][0] for found in (whole, parted))
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert whole.disagreements(5)["doc"].to_list() == parted.disagreements(5)["doc"].to_list()
    run = grades.select("query", "doc", score="grade")
    for found in (whole, parted):
        assert len(found.ndcg(run).queries) == grades["query"].n_unique()
