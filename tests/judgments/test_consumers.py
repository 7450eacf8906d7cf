"""Every tool that docs/consumers.md names reads our files: the library itself where there is one,
the schema from its source where it is a server."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import warnings
from importlib.util import find_spec

import consumer_schemas
import numpy as np
import polars as pl
import pytest
from jsonschema import Draft202012Validator, ValidationError
from judgment_examples import judged_like

from gecasmo.judgments import FORMATS, JudgmentsError, judge
from gecasmo.judgments.formats import ALIASES, format_of

QUERIES, DOCS = 7, 6


@pytest.fixture(scope="module")
def judgments():
    """Grades for most pairs of some queries; what is left lacks data."""
    rng = np.random.default_rng(4)
    n = QUERIES * DOCS
    trials = rng.choice([1.0, 200.0], n, p=[0.25, 0.75]).tolist()
    query = [f"query {number}" for number in range(QUERIES) for _ in range(DOCS)]
    docs = [f"d{number}" for number in range(n)]
    spread = np.where(np.array(trials) > 1, 0.01, 0.25).tolist()
    values = rng.uniform(0.02, 0.98, n).tolist()
    return judge(judged_like(values, query=query, doc=docs, trials=trials, spread=spread))


@pytest.fixture(scope="module")
def features(judgments):
    frame = judgments.frame.select("query", "doc")
    rng = np.random.default_rng(1)
    return frame.with_columns(
        bm25=pl.Series(rng.normal(size=len(frame))),
        price=pl.Series(rng.integers(0, 9, len(frame))),
    )


@pytest.fixture(scope="module")
def rows(judgments, features):
    """What every training file has to hold, line by line."""
    return judgments.judged.join(
        features, on=["query", "doc"], how="left", maintain_order="left"
    ).select("query", "doc", "grade", "bm25", "price")


def sizes(rows):
    return rows.select(pl.col("query").rle().struct.field("len")).to_series().to_list()


def assert_pairs_beside(path, rows):
    with open(f"{path}.pairs.csv", newline="", encoding="utf-8") as file:
        beside = [(line["query"], line["doc"], int(line["grade"])) for line in csv.DictReader(file)]
    assert beside == rows.select("query", "doc", "grade").rows()


# -- learners --------------------------------------------------------------------------------------
def test_xgboost_reads_rows_groups_and_labels_in_order(judgments, features, rows, tmp_path):
    xgboost = pytest.importorskip("xgboost")
    path = tmp_path / "train.libsvm"
    written = judgments.write(path, features=features)
    assert (written.format, written.judgments) == ("xgboost", len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # XGBoost has deprecated reading texts itself
        data = xgboost.DMatrix(f"{path}?format=libsvm")
    assert (data.num_row(), data.num_col()) == (len(rows), 2)
    assert data.get_label().tolist() == rows["grade"].to_list()
    assert data.get_group().tolist() == sizes(rows)
    np.testing.assert_allclose(
        data.get_data().toarray(), rows.select("bm25", "price").to_numpy(), rtol=1e-6
    )
    assert_pairs_beside(path, rows)
    model = xgboost.train({"objective": "rank:ndcg", "nthread": 1}, data, num_boost_round=2)
    assert model.num_boosted_rounds() == 2


def test_scikit_learn_reads_the_same_file(judgments, features, rows, tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    path = tmp_path / "train.svm"
    judgments.write(path, "sklearn", features=features)
    x, grade, qid = datasets.load_svmlight_file(str(path), query_id=True)
    np.testing.assert_allclose(x.toarray(), rows.select("bm25", "price").to_numpy())
    assert grade.tolist() == rows["grade"].to_list()
    assert np.unique(qid, return_counts=True)[1].tolist() == sizes(rows)
    assert (np.diff(qid) >= 0).all()


@pytest.mark.parametrize("has_position", [False, True])
def test_lightgbm_reads_rows_groups_and_positions(
    judgments, features, rows, has_position, tmp_path
):
    lightgbm = pytest.importorskip("lightgbm")
    path = tmp_path / "judgments.train"
    given = features
    if has_position:
        given = features.with_columns(position=pl.int_range(pl.len()) % 5 + 1)
    written = judgments.write(path, features=given)
    assert written.format == "lightgbm"
    assert f"beside it: {path.name}.query" in written.remarks
    options = {"verbose": -1, "min_data_in_bin": 1, "min_data_in_leaf": 1, "num_threads": 1}
    data = lightgbm.Dataset(str(path), params=options).construct()
    assert (data.num_data(), data.num_feature()) == (len(rows), 2)
    assert data.get_label().tolist() == rows["grade"].to_list()
    assert data.get_group().tolist() == sizes(rows)
    assert_pairs_beside(path, rows)
    table = np.loadtxt(path)
    np.testing.assert_allclose(table[:, 1:], rows.select("bm25", "price").to_numpy())
    if has_position:
        wanted = rows.join(given, on=["query", "doc"], how="left", maintain_order="left")
        places = wanted["position"].to_numpy()
        # LightGBM numbers positions as it meets them.
        _, first = np.unique(places, return_index=True)
        names = places[np.sort(first)]
        assert names[data.get_position()].tolist() == places.tolist()
    else:
        assert not path.with_name(path.name + ".position").exists()
    ranker = lightgbm.train({"objective": "lambdarank", **options}, data, num_boost_round=2)
    assert ranker.num_trees() == 2


def test_files_beside_from_before_do_not_mislead(judgments, features, tmp_path):
    path = tmp_path / "a.train"
    judgments.write(path, features=features.with_columns(position=1))
    with pytest.raises(JudgmentsError, match=r"a.train.position is from before"):
        judgments.write(path, features=features)


def test_training_files_want_features(judgments, tmp_path):
    for name in ("lightgbm", "xgboost"):
        with pytest.raises(JudgmentsError, match=rf"'{name}' files hold features.*features="):
            judgments.write(tmp_path / "x", name)
    assert list(tmp_path.iterdir()) == []


# -- evaluation ------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def qrels(judgments, tmp_path_factory):
    path = tmp_path_factory.mktemp("qrels") / "judgments.qrels"
    judgments.write(path, ids="encode")
    wanted = {}
    for query, doc, grade in judgments.judged.select("query", "doc", "grade").rows():
        wanted.setdefault(query.replace(" ", "%20"), {})[doc] = grade
    return path, wanted


def test_evaluators_read_the_same_qrels_and_agree(qrels):
    ir_measures = pytest.importorskip("ir_measures")
    pytrec_eval = pytest.importorskip("pytrec_eval")
    path, wanted = qrels
    with path.open() as file:
        read = pytrec_eval.parse_qrel(file)
    assert read == wanted
    by_line = [(q.query_id, q.doc_id, q.relevance) for q in ir_measures.read_trec_qrels(str(path))]
    assert by_line == [(q, d, grade) for q, docs in wanted.items() for d, grade in docs.items()]
    run = {q: {d: float(len(d) + int(d[1:]) % 7) for d in docs} for q, docs in wanted.items()}
    theirs = pytrec_eval.RelevanceEvaluator(read, {"ndcg_cut.5"}).evaluate(run)
    mean = np.mean([value["ndcg_cut_5"] for value in theirs.values()])
    scored = [
        ir_measures.ScoredDoc(q, d, score) for q, docs in run.items() for d, score in docs.items()
    ]
    qrel = list(ir_measures.read_trec_qrels(str(path)))
    found = ir_measures.calc_aggregate([ir_measures.nDCG @ 5], qrel, scored)
    assert found[ir_measures.nDCG @ 5] == pytest.approx(mean)


_RANX = """
import json, sys
from ranx import Qrels, Run, evaluate

qrels = Qrels.from_file(sys.argv[1], kind="trec")
read = {q: {str(d): int(grade) for d, grade in docs.items()} for q, docs in qrels.to_dict().items()}
run = {q: {d: float(grade) for d, grade in docs.items()} for q, docs in read.items()}
print(json.dumps([read, float(evaluate(qrels, Run.from_dict(run), "ndcg@5"))]))
"""


@pytest.mark.skipif(find_spec("ranx") is None, reason="needs ranx")
def test_ranx_reads_qrels(qrels):
    """In a process in which Numba compiles nothing: compiling ranx would take 20 seconds."""
    path, wanted = qrels
    run = [sys.executable, "-c", _RANX, str(path)]
    done = subprocess.run(
        run, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    read, ndcg = json.loads(done.stdout.splitlines()[-1])
    assert read == wanted
    assert ndcg == pytest.approx(1.0)  # the order of the grades themselves


# -- search tools ----------------------------------------------------------------------------------
def valid(path, schema):
    body = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(body)
    return body


def test_quepid_takes_the_rows_of_a_case(judgments, tmp_path):
    judgments.write(tmp_path / "a.quepid.csv")
    with open(tmp_path / "a.quepid.csv", newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    assert header == ["query", "docid", "rating"]
    found = [(line[0].strip(), line[1].strip(), int(line[2].strip())) for line in lines]
    assert found == judgments.judged.select("query", "doc", "grade").rows()


def test_quepid_takes_a_book_with_pairs_to_judge_later(judgments, tmp_path):
    written = judgments.write(tmp_path / "clicks.book.json", name="Clicks of May")
    body = valid(tmp_path / "clicks.book.json", consumer_schemas.QUEPID_BOOK)
    assert (written.format, written.judgments) == ("quepid-book", len(judgments))
    assert body["name"] == "Clicks of May"
    assert body["scale"] == ["0", "1", "2", "3"]
    grades = judgments.frame.select("query", "doc", "grade").rows()
    found = [
        (pair["query_text"], pair["doc_id"], pair["judgements"][0]["rating"])
        for pair in body["query_doc_pairs"]
    ]
    assert found == grades
    later = [p for p in body["query_doc_pairs"] if p["judgements"][0]["judge_later"]]
    assert len(later) == len(judgments) - judgments.n_judged > 0
    told = [pair["judgements"][0]["explanation"] for pair in body["query_doc_pairs"]]
    assert all("interval" in text and "examinations" in text for text in told)
    judgments.write(tmp_path / "floats.book.json", ratings="float")
    floats = valid(tmp_path / "floats.book.json", consumer_schemas.QUEPID_BOOK)
    ratings = [p["judgements"][0]["rating"] for p in floats["query_doc_pairs"]]
    assert any(rating is not None and not float(rating).is_integer() for rating in ratings)
    long = judge(judged_like([0.1, 0.2], query=["q" * 501, "q"], doc=["a", "b"]))
    with pytest.raises(JudgmentsError, match="of more than 500 characters"):
        long.write(tmp_path / "long.book.json")


def test_opensearch_takes_a_judgment_list(judgments, tmp_path):
    judgments.write(tmp_path / "a.json", ratings="float", include="ordered")
    body = valid(tmp_path / "a.json", consumer_schemas.OPENSEARCH)
    pairs = [(e["query"], r["docId"]) for e in body["judgmentRatings"] for r in e["ratings"]]
    assert len(pairs) == judgments.n_judged + judgments.n_ordered
    assert len({entry["query"] for entry in body["judgmentRatings"]}) == len(
        body["judgmentRatings"]
    )


def test_elasticsearch_takes_a_rank_eval_request(judgments, tmp_path):
    path = tmp_path / "a.rank_eval.json"
    with pytest.raises(JudgmentsError, match=r"name the index of each document.*index="):
        judgments.write(path)
    judgments.write(path, index="shop")
    body = valid(path, consumer_schemas.ELASTICSEARCH)
    found = [
        (request["params"]["query"], rated["_id"], rated["rating"])
        for request in body["requests"]
        for rated in request["ratings"]
    ]
    assert found == judgments.judged.select("query", "doc", "grade").rows()
    known = {template["id"] for template in body["templates"]}
    assert {request["template_id"] for request in body["requests"]} == known


def test_the_schemas_refuse_what_the_tools_refuse():
    """A schema that takes everything would say nothing."""
    unrated = {"rating": None, "judge_later": False, "unrateable": False, "explanation": ""}
    with pytest.raises(ValidationError):
        Draft202012Validator(consumer_schemas.QUEPID_JUDGEMENT).validate(unrated)
    rated = {"query": "q", "ratings": [{"docId": "d", "rating": 1.0}]}
    body = {"name": "n", "type": "IMPORT_JUDGMENT", "judgmentRatings": [rated]}
    with pytest.raises(ValidationError):
        Draft202012Validator(consumer_schemas.OPENSEARCH).validate(body)
    ratings = [{"_index": "", "_id": "d", "rating": 1}]
    request = {"id": "q", "template_id": "s", "params": {"query": "q"}, "ratings": ratings}
    body = {"requests": [request], "metric": {"dcg": {}}}
    with pytest.raises(ValidationError):
        Draft202012Validator(consumer_schemas.ELASTICSEARCH).validate(body)


# -- names -----------------------------------------------------------------------------------------
def test_formats_are_found_by_the_names_of_their_readers():
    assert not set(ALIASES) & set(FORMATS)
    for alias, name in ALIASES.items():
        assert format_of("x", alias).name == name
    with pytest.raises(JudgmentsError, match="by the name of a reader: trec"):
        format_of("x", "solr")
