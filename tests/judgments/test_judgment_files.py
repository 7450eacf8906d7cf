"""Files are read back with the parsers of those who read them."""

from __future__ import annotations

import csv
import json
import os
import re
from urllib.parse import unquote

import ir_measures
import lightgbm
import numpy as np
import polars as pl
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from judgment_examples import judged_like
from sklearn.datasets import load_svmlight_file

from gecasmo.judgments import FORMATS, JudgmentsError, judge

MORE = int(os.environ.get("GECASMO_EXAMPLES", "1"))
GRADED = [name for name, format in FORMATS.items() if format.is_graded and not format.required]

TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
LINE = TEXT.filter(lambda text: text.splitlines() == [text])
WORD = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=8)
NUMBERS = st.integers(-(2**62), 2**62)


def some_judgments(queries, docs, seed=0):
    """Judgments over distinct pairs; about a third of them lack data."""
    pairs = sorted({*zip(queries, docs, strict=True)})
    rng = np.random.default_rng([seed, len(pairs)])
    n = len(pairs)
    trials = rng.choice([1.0, 100.0], n, p=[0.35, 0.65])
    trials[0] = 100.0
    model = judged_like(
        rng.uniform(0.01, 0.99, n).tolist(),
        query=[query for query, _ in pairs],
        doc=[doc for _, doc in pairs],
        trials=trials.tolist(),
    )
    return judge(model)


def expected(judgments):
    rows = judgments.judged.select("query", "doc", "grade").rows()
    return {(str(query), str(doc)): grade for query, doc, grade in rows}


def lists_of(ids):
    return st.lists(st.tuples(ids, ids), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("judgments")


# -- each format with its reader --------------------------------------------------------------
@given(lists_of(LINE) | lists_of(NUMBERS))
@settings(max_examples=20 * MORE, deadline=None)
def test_quepid_is_a_csv_of_query_docid_rating(folder, ids):
    judgments = some_judgments(*zip(*ids, strict=True))
    judgments.write(folder / "a.csv", "quepid")
    with open(folder / "a.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(set(row) == {"query", "docid", "rating"} for row in rows)
    found = {(row["query"], row["docid"]): int(row["rating"]) for row in rows}
    assert found == expected(judgments)
    assert len(rows) == judgments.n_judged


@given(lists_of(TEXT) | lists_of(NUMBERS))
@settings(max_examples=20 * MORE, deadline=None)
def test_opensearch_takes_the_body_of_its_import(folder, ids):
    judgments = some_judgments(*zip(*ids, strict=True))
    judgments.write(folder / "a.json")
    body = json.loads((folder / "a.json").read_text(encoding="utf-8"))
    assert body["type"] == "IMPORT_JUDGMENT"
    assert 0 < len(body["name"]) <= 50
    assert len(body["description"]) <= 250
    assert not re.search(r'["\\<>]', body["name"] + body["description"])
    found = {}
    for entry in body["judgmentRatings"]:
        assert set(entry) == {"query", "ratings"}
        for rating in entry["ratings"]:
            assert isinstance(rating["docId"], str)
            assert isinstance(rating["rating"], str)
            found[entry["query"], rating["docId"]] = float(rating["rating"])
    assert found == expected(judgments)
    queries = [entry["query"] for entry in body["judgmentRatings"]]
    assert len(set(queries)) == len(queries)


def read_qrels(path):
    found = {(q.query_id, q.doc_id): q.relevance for q in ir_measures.read_trec_qrels(str(path))}
    with open(path, encoding="utf-8") as file:
        nested = pytrec_eval.parse_qrel(file)
    assert {(q, d): grade for q, docs in nested.items() for d, grade in docs.items()} == found
    return found


@given(lists_of(WORD) | lists_of(NUMBERS))
@settings(max_examples=20 * MORE, deadline=None)
def test_qrels_are_what_trec_tools_read(folder, ids):
    judgments = some_judgments(*zip(*ids, strict=True))
    judgments.write(folder / "a.qrels")
    assert read_qrels(folder / "a.qrels") == expected(judgments)


@given(lists_of(TEXT))
@settings(max_examples=20 * MORE, deadline=None)
def test_qrels_encode_what_they_cannot_hold(folder, ids):
    judgments = some_judgments(*zip(*ids, strict=True))
    judgments.write(folder / "b.qrels", ids="encode")
    found = {
        (unquote(query), unquote(doc)): grade
        for (query, doc), grade in read_qrels(folder / "b.qrels").items()
    }
    assert found == expected(judgments)


def test_qrels_serve_as_judgments_of_a_run(folder):
    judgments = some_judgments([1, 1, 1, 1], [1, 2, 3, 4])
    judgments.write(folder / "c.qrels")
    qrels = list(ir_measures.read_trec_qrels(str(folder / "c.qrels")))
    best = judgments.judged.sort("relevance", descending=True)
    run = [
        ir_measures.ScoredDoc(str(query), str(doc), score)
        for query, doc, score in best.select("query", "doc", "relevance").rows()
    ]
    assert ir_measures.calc_aggregate([ir_measures.nDCG], qrels, run)[ir_measures.nDCG] == 1


def read_judgment_list(path):
    """As readers of judgment lists do: comments up to an empty line, then grade, qid and doc."""
    lines = path.read_text(encoding="utf-8").split("\n")
    split = lines.index("")
    assert all(line.startswith("#") for line in lines[:split])
    matches = [re.match(r"# qid:(\d+): (.*)", line) for line in lines[:split]]
    queries = {int(match[1]): match[2] for match in matches if match}
    found, last = {}, 0
    for line in lines[split + 1 : -1]:
        match = re.match(r"^(\d) qid:(\d+) (?:\d+:\S+ )*# (\S+)\t(.*)", line)
        assert match, line
        qid = int(match[2])
        assert qid >= last
        assert queries[qid] == match[4]
        last = qid
        found[queries[qid], match[3]] = int(match[1])
    return found


@given(st.lists(st.tuples(LINE, WORD), min_size=1, max_size=12) | lists_of(NUMBERS))
@settings(max_examples=20 * MORE, deadline=None)
def test_judgment_lists_without_features(folder, ids):
    judgments = some_judgments(*zip(*ids, strict=True))
    judgments.write(folder / "a.txt")
    assert read_judgment_list(folder / "a.txt") == expected(judgments)


@given(
    st.lists(st.tuples(LINE, LINE), min_size=1, max_size=12),
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=12, max_size=12),
)
@settings(max_examples=20 * MORE, deadline=None)
def test_libsvm_files_are_read_by_scikit_learn(folder, ids, numbers):
    judgments = some_judgments(*zip(*ids, strict=True))
    frame = judgments.frame
    features = frame.select("query", "doc").with_columns(
        pl.Series("score", numbers[: len(frame)], dtype=pl.Float64),
        pl.Series("number", np.arange(len(frame))),
        pl.Series("is_new", np.arange(len(frame)) % 2 == 0),
    )
    judgments.write(
        folder / "f.txt", features=features.sample(fraction=1, shuffle=True, seed=1), ids="encode"
    )
    x, y, qid = load_svmlight_file(str(folder / "f.txt"), query_id=True)
    judged = judgments.judged.join(features, on=["query", "doc"], maintain_order="left")
    assert y.tolist() == judged["grade"].to_list()
    np.testing.assert_array_equal(
        x.toarray(), judged.select("score", "number", "is_new").to_numpy()
    )
    groups = judged["query"].rle_id().to_numpy() + 1
    np.testing.assert_array_equal(qid, groups)
    decoded = {
        (query, unquote(doc)): grade
        for (query, doc), grade in read_judgment_list(folder / "f.txt").items()
    }
    assert decoded == expected(judgments)


def test_lightgbm_trains_on_a_libsvm_file(folder):
    rng = np.random.default_rng(0)
    ids = [(f"q{i}", f"d{j}") for i in range(20) for j in range(10)]
    judgments = some_judgments(*zip(*ids, strict=True))
    features = judgments.frame.select("query", "doc", good=pl.col("relevance")).with_columns(
        noise=pl.Series(rng.normal(size=len(ids)))
    )
    judgments.write(folder / "g.txt", features=features)
    x, y, qid = load_svmlight_file(str(folder / "g.txt"), query_id=True)
    group = np.unique(qid, return_counts=True)[1]
    data = lightgbm.Dataset(x.toarray(), label=y, group=group)
    options = {"objective": "lambdarank", "verbose": -1, "min_data_in_leaf": 1, "num_threads": 1}
    ranker = lightgbm.train(options, data, num_boost_round=10)
    assert np.corrcoef(ranker.predict(x.toarray()), y)[0, 1] > 0.8


@given(lists_of(TEXT) | lists_of(NUMBERS))
@settings(max_examples=15 * MORE, deadline=None)
def test_plain_files_hold_everything(folder, ids):
    judgments = some_judgments(*zip(*ids, strict=True))
    assert judgments.write(folder / "p.parquet").judgments == len(judgments)
    assert pl.read_parquet(folder / "p.parquet").equals(judgments.frame)
    judgments.write(folder / "p.csv")
    back = pl.read_csv(folder / "p.csv", schema=judgments.frame.schema)
    assert back.equals(judgments.frame)


def test_parquet_remembers_the_rule(folder):
    judgments = some_judgments(["a", "b"], ["c", "d"])
    judgments.write(folder / "m.parquet")
    kept = json.loads(pl.read_parquet_metadata(folder / "m.parquet")["gecasmo"])
    assert kept == judgments.to_dict()


# -- insufficient pairs ------------------------------------------------------------------------
@pytest.mark.parametrize("name", GRADED)
def test_insufficient_pairs_are_counted_and_not_written(name, folder):
    model = judged_like(
        [0.1, 0.2, 0.3, 0.4, 0.5],
        doc=["in1", "in2", "OUT1", "in3", "OUT2"],
        trials=[99.0, 99.0, 0.0, 99.0, 2.0],
    )
    for spread, left_out in ((0.0, (0, 2)), (0.2, (2, 0))):
        believed = model.tables["attraction"].with_columns(
            spread=pl.when(pl.col("doc").str.starts_with("OUT")).then(spread).otherwise(0.0)
        )
        model.tables["attraction"] = believed
        written = judge(model, min_order=0.9).write(folder / "x", name)
        text = (folder / "x").read_text()
        assert "OUT" not in text
        assert all(doc in text for doc in ("in1", "in2", "in3"))
        assert (written.judgments, written.format) == (3, name)
        assert (written.insufficient, written.ordered) == left_out
        assert "3 judgments" in str(written)
        assert "2 pairs left out" in str(written)
        assert ("(2 of them ordered)" in str(written)) == (spread == 0)


def rated(path):
    """What both kinds of files of ratings say of each document."""
    text = path.read_text()
    if path.suffix == ".json":
        lists = json.loads(text)["judgmentRatings"]
        return {each["docId"]: each["rating"] for entry in lists for each in entry["ratings"]}
    return {row["docid"]: row["rating"] for row in csv.DictReader(text.splitlines())}


@pytest.mark.parametrize("file", ["a.quepid.csv", "a.json"])
def test_ratings_are_expected_grades_and_ordered_pairs_can_be_included(file, folder):
    docs = ["low", "high", "between", "anywhere"]
    spread, trials = [0.02, 0.03, 0.07, 0.28], [99.0, 99.0, 3.0, 3.0]
    model = judged_like([0.1, 0.8, 0.4, 0.45], doc=docs, spread=spread, trials=trials)
    found = judge(model, rule="threshold", min_order=0.9)
    verdicts = dict(found.frame.select("doc", "verdict").rows())
    judged = ["judged", "judged"]
    assert verdicts == dict(zip(docs, [*judged, "ordered", "insufficient"], strict=True))
    found.write(folder / file)
    grades = {doc: float(grade) for doc, grade in rated(folder / file).items()}
    assert grades == {"low": 0, "high": 3}
    floats = dict(found.frame.select("doc", "rating").rows())
    for include, wanted in (("judged", docs[:2]), ("ordered", docs[:3])):
        written = found.write(folder / file, ratings="float", include=include)
        ratings = rated(folder / file)
        assert set(ratings) == set(wanted)
        for doc, rating in ratings.items():
            assert float(rating) == pytest.approx(floats[doc], abs=0.0006)
        assert written.judgments == len(wanted)
        assert written.insufficient + written.ordered == 4 - len(wanted)
    assert not float(rated(folder / file)["between"]).is_integer()


@pytest.mark.parametrize("name", GRADED)
def test_nothing_to_write_is_told(name, folder):
    judgments = judge(judged_like([0.1, 0.2], trials=[1.0, 2.0]))
    with pytest.raises(JudgmentsError, match=r"None of the 2 pairs.*max_width= .now 0\.4"):
        judgments.write(folder / "none", name)
    assert not (folder / "none").exists()


# -- judgments without queries -----------------------------------------------------------------
@pytest.mark.parametrize("name", GRADED)
def test_documents_without_queries_are_written_under_a_chosen_one(name, folder):
    model = judged_like([0.1, 0.2])
    model.tables["attraction"] = model.tables["attraction"].drop("query")
    model.keys["attraction"] = ("doc",)
    judgments = judge(model)
    with pytest.raises(JudgmentsError, match=r"know documents only.*query="):
        judgments.write(folder / "n", name)
    judgments.write(folder / "n", name, query="*")
    assert "*" in (folder / "n").read_text()
    assert judgments.write(folder / "n.csv").judgments == 2


# -- formats and options -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.csv", "csv"),
        ("a.quepid.csv", "quepid"),
        ("a.CSV", "csv"),
        ("a.json", "opensearch"),
        ("a.txt", "ranklib"),
        ("a.book.json", "quepid-book"),
        ("a.qrels", "qrels"),
        ("a.parquet", "parquet"),
    ],
)
def test_the_end_of_the_name_tells_the_format(file, name, folder):
    written = some_judgments(["a"], ["b"]).write(folder / file)
    assert written.format == name
    assert written.path.exists()


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("a.xlsx", {}, "is not that of a format.*quepid, opensearch"),
        ("a.csv", {"format": "excel"}, "format='excel': choose one of quepid"),
        ("a.qrels", {"ids": "drop"}, "choose 'refuse' or 'encode'"),
        ("a.csv", {"features": {"doc": ["b"], "x": [1]}}, "do not use features="),
        ("a.qrels", {"name": "x"}, "do not use name="),
        ("a.json", {"ids": "encode"}, "do not use ids="),
        ("a.csv", {"query": "*"}, "do not use query="),
        ("a.qrels", {"query": "*"}, "queries of their own"),
        ("a.json", {"name": "x" * 51}, "1 to 50 characters"),
        ("a.json", {"name": "<b>"}, "without"),
        ("nowhere/a.csv", {}, "there is no folder"),
        ("a.json", {"ratings": "real"}, "choose 'grade' or 'float'"),
        ("a.json", {"include": "all", "ratings": "float"}, "choose 'judged' or 'ordered'"),
        ("a.json", {"include": "ordered"}, "a rating and no grade, so also give ratings='float'"),
        ("a.qrels", {"ratings": "float"}, "'qrels' files do not use ratings="),
        ("a.txt", {"ratings": "float"}, "'ranklib' files do not use ratings="),
        ("a.csv", {"include": "ordered"}, "'csv' files do not use include="),
    ],
)
def test_faulty_requests_write_nothing(file, options, message, tmp_path):
    with pytest.raises(JudgmentsError, match=message):
        some_judgments(["a"], ["b"]).write(tmp_path / file, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_list_for_opensearch_has_the_name_it_is_given(folder):
    some_judgments(["a"], ["b"]).write(folder / "named.json", name="May 2026")
    assert json.loads((folder / "named.json").read_text())["name"] == "May 2026"


@pytest.mark.parametrize(
    ("query", "doc", "file", "message"),
    [
        ("red shoes", "d", "a.qrels", "query 'red shoes' holds white space.*red%20shoes"),
        ("q", "d\t1", "a.qrels", "doc 'd.*holds white space"),
        ("q", "d\u2003x", "a.txt", "holds white space"),
        ("two\nlines", "d", "a.txt", "holds a line break"),
        ("q", "two\nlines", "a.quepid.csv", "holds a line break"),
        ("", "d", "a.json", "empty text"),
    ],
)
def test_ids_that_a_format_cannot_hold_are_refused(query, doc, file, message, tmp_path):
    with pytest.raises(JudgmentsError, match=message):
        some_judgments([query], [doc]).write(tmp_path / file)
    assert list(tmp_path.iterdir()) == []


def test_ids_of_bytes_go_to_parquet_only(tmp_path):
    judgments = judge(judged_like([0.1, 0.2], doc=[b"a", b"b"]))
    judgments.write(tmp_path / "a.parquet")
    with pytest.raises(JudgmentsError, match="'doc' holds Binary"):
        judgments.write(tmp_path / "a.csv")


def test_quepid_remarks_on_what_its_import_changes(folder):
    model = judged_like([0.1, 0.2], query=['27" screen', "q"], doc=["a", " b"])
    written = judge(model).write(folder / "r.quepid.csv")
    assert len(written.remarks) == 2
    assert "quotation mark" in str(written)
    assert "' b'" in str(written)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"query": ["a"], "bm25": [1.0]}, "wants the columns query and doc"),
        ({"query": ["a"], "doc": ["b"]}, "at least one with"),
        ({"doc": ["b"], "brand": ["x"]}, "'brand' holds String"),
        ({"doc": ["b", None], "bm25": [1.0, 2.0]}, "rows without doc"),
        ({"doc": ["b", "b"], "bm25": [1.0, 2.0]}, "more than one row for"),
        ({"doc": ["c"], "bm25": [1.0]}, "no row for 1 of 1 judged pairs, such as"),
        ({"doc": ["b"], "bm25": [float("nan")]}, "no finite number"),
        ({"doc": ["b"], "bm25": pl.Series([None], dtype=pl.Float64)}, "no finite number"),
    ],
)
def test_faulty_features(features, message, tmp_path):
    with pytest.raises(JudgmentsError, match=message):
        some_judgments(["a"], ["b"]).write(tmp_path / "f.txt", features=features)
    assert list(tmp_path.iterdir()) == []


def test_features_of_documents_serve_all_queries(folder):
    judgments = some_judgments(["a", "b"], ["x", "x"])
    judgments.write(folder / "d.txt", features={"doc": ["x", "y"], "price": [7, 8]})
    text = (folder / "d.txt").read_text()
    assert "# features: 1 = 'price'" in text
    assert text.count(" 1:7 #") == judgments.n_judged


def test_the_rule_is_told_where_a_format_has_comments(folder):
    judgments = some_judgments(["a", "b"], ["x", "y"])
    judgments.write(folder / "rule.txt")
    assert f"# rule {judgments.grading}" in (folder / "rule.txt").read_text()
    judgments.write(folder / "rule.json")
    assert "rule informative" in json.loads((folder / "rule.json").read_text())["description"]
