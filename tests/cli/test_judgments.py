"""`gecasmo judgments`: files that other tools read."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pytest
from command_line import fail, run, succeed, succeed_with_json

import gecasmo
from gecasmo.errors import GecasmoWarning
from gecasmo.judgments import judge

SURE = ("--max-width", "0.6", "--min-examinations", "5")


def test_everything_as_csv(folder: Path, fit_file: Path) -> None:
    text = succeed("judgments", fit_file, "-o", "judgments.csv").stdout
    own = judge(gecasmo.load(fit_file))
    frame = pl.read_csv("judgments.csv")
    assert frame["relevance"].to_list() == pytest.approx(own.frame["relevance"].to_list())
    assert frame["grade"].to_list() == own.frame["grade"].to_list()
    assert "relevance is attraction x satisfaction" in text
    assert f"judgments.csv: {len(own):,} judgments (csv)" in text


def test_flags_reach_the_grading(folder: Path, fit_file: Path) -> None:
    data = succeed_with_json(
        *("judgments", fit_file, "-o", "j.parquet", "--rule", "threshold", "--grades", "3"),
        *("--thresholds", "0.1,0.4", "--level", "0.8", *SURE),
    )
    own = judge(
        gecasmo.load(fit_file),
        grades=3,
        rule="threshold",
        thresholds=[0.1, 0.4],
        level=0.8,
        max_width=0.6,
        min_examinations=5,
    )
    assert data["judged"] == own.n_judged
    assert data["by_grade"] == {str(grade): n for grade, n in own.by_grade.items()}
    assert data["writing"]["format"] == "parquet"
    assert pl.read_parquet("j.parquet")["grade"].to_list() == own.frame["grade"].to_list()


def test_no_width_can_be_asked_for(folder: Path, fit_file: Path) -> None:
    data = succeed_with_json("judgments", fit_file, "-o", "j.csv", "--max-width", "None")
    own = judge(gecasmo.load(fit_file), max_width=None)
    assert data["max_width"] is None
    assert data["judged"] == own.n_judged
    said = fail("judgments", fit_file, "-o", "j.csv", "--max-width", "wide", code=2)
    assert "--max-width wide: write a number such as 0.4, or none." in said


def test_a_fit_that_did_not_converge_gives_no_grades(folder: Path, log_file: Path) -> None:
    succeed("fit", "DBN", log_file, "-o", "few.fit", "--max-iter", "2", "--tol", "0")
    why = "the fit did not converge, so there are no intervals"
    assert why in succeed("judgments", "few.fit", "-o", "j.csv").stdout
    assert set(pl.read_csv("j.csv")["verdict"]) == {"insufficient"}
    assert why in fail("judgments", "few.fit", "-o", "j.qrels")


def test_qrels_are_read_by_ir_measures(folder: Path, fit_file: Path) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    succeed("judgments", fit_file, "-o", "clicks.qrels", *SURE)
    own = judge(gecasmo.load(fit_file), max_width=0.6, min_examinations=5).judged
    read = {
        (q.query_id, q.doc_id): q.relevance for q in ir_measures.read_trec_qrels("clicks.qrels")
    }
    assert read == {(str(q), str(d)): g for q, d, g in own.select("query", "doc", "grade").rows()}


def test_ranklib_with_features_is_read_by_lightgbm_and_sklearn(
    folder: Path, fit_file: Path
) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    own = judge(gecasmo.load(fit_file), max_width=0.6, min_examinations=5).judged
    own.select("query", "doc").with_columns(
        length=pl.col("doc") * 2.0, age=pl.col("query") + 0.5
    ).write_csv("features.csv")
    succeed(
        *("judgments", fit_file, "-o", "train.txt", "--format", "ranklib", *SURE),
        *("--features", "features.csv"),
    )
    features, grades = datasets.load_svmlight_file("train.txt", n_features=2)[:2]
    assert sorted(grades) == sorted(own["grade"].to_list())
    assert features.shape == (len(own), 2)


def test_lightgbm_files_and_a_request_for_elasticsearch(folder: Path, fit_file: Path) -> None:
    own = judge(gecasmo.load(fit_file), max_width=0.6, min_examinations=5).judged
    own.select("query", "doc").with_columns(age=pl.col("query") + 0.5).write_csv("features.csv")
    told = succeed(
        *("judgments", fit_file, "-o", "j.train", "--format", "lightgbm", *SURE),
        *("--features", "features.csv"),
    ).stdout
    assert "beside it: j.train.query" in told
    sizes = list(map(int, Path("j.train.query").read_text().split()))
    assert sum(sizes) == len(own) == len(Path("j.train").read_text().splitlines())
    assert "so give the name of a file" in fail(
        *("judgments", fit_file, "-o", "-", "--format", "lightgbm", "--features", "features.csv")
    )
    assert "--index" in fail("judgments", fit_file, "-o", "r.json", "--format", "elasticsearch")
    succeed(
        *("judgments", fit_file, "-o", "r.json", "--format", "elasticsearch", "--index", "shop"),
        *SURE,
    )
    assert '"_index": "shop"' in Path("r.json").read_text()


def test_pairs_and_features_of_a_fit_by_features(folder: Path) -> None:
    """Also pairs never shown; ids that look like numbers stay texts, as they are in the fit."""
    from gecasmo import DBN, Logistic, Sum, read_log
    from gecasmo.simulation import demo_log

    frame = demo_log(n_pages=300, seed=2)[0].to_frame()
    frame = frame.with_columns(
        doc=pl.format("0{}", "doc"), price=(pl.col("doc") % 5).cast(pl.Float64)
    )
    model = DBN(attraction=Sum(Logistic("price")), satisfaction=0.5)
    with pytest.warns(GecasmoWarning, match="the ranker knows what the other parts"):
        model.fit(read_log(frame), progress=False).save("by_features.fit")
    asked = frame.select("query", "doc").unique(maintain_order=True).head(3)
    query = asked["query"][0]
    Path("pairs.csv").write_text(asked.write_csv() + f"{query},00001\n")
    prices = [*asked["doc"], "00001"]
    pl.DataFrame({"doc": prices, "price": range(len(prices))}).write_parquet("prices.parquet")
    succeed("judgments", "by_features.fit", "-o", "all.csv")
    everything = pl.read_csv("all.csv", schema_overrides={"doc": pl.String})
    assert len(everything) == frame.select("query", "doc").n_unique()
    assert everything["low"].null_count() == 0
    flags = ("--pairs", "pairs.csv", "--features", "prices.parquet")
    succeed("judgments", "by_features.fit", "-o", "some.csv", *flags)
    some = pl.read_csv("some.csv", schema_overrides={"doc": pl.String})
    assert sorted(some["doc"]) == sorted(prices)
    examined = dict(zip(some["doc"], some["examinations"], strict=True))
    assert examined.pop("00001") == 0 < min(examined.values())
    told = fail("judgments", "by_features.fit", "-o", "some.csv", "--pairs", "pairs.csv")
    assert "The pairs lack price" in told
    assert "--features" in told


def test_pipes(fit_file: Path) -> None:
    done = run("judgments", fit_file, "-o", "-", "--format", "quepid", *SURE)
    assert done.returncode == 0, done.stderr
    frame = pl.read_csv(io.BytesIO(done.stdout))
    assert frame.columns == ["query", "docid", "rating"]
    assert b"standard output: " in done.stderr
    piped = succeed("judgments", fit_file, "-o", "-", "--quiet").stdout
    assert pl.read_csv(io.StringIO(piped)).height > 0
    packed = run("judgments", fit_file, "-o", "-", "--format", "parquet", "--quiet").stdout
    assert pl.read_parquet(io.BytesIO(packed)).height == pl.read_csv(io.StringIO(piped)).height


def test_opensearch(folder: Path, fit_file: Path) -> None:
    succeed("judgments", fit_file, "-o", "j.json", "--name", "from clicks", *SURE)
    assert "from clicks" in json.dumps(json.loads(Path("j.json").read_text(encoding="utf-8")))


def test_ratings_and_ordered_pairs(folder: Path, fit_file: Path) -> None:
    limits = ("--min-probability", "0.6", "--min-order", "0.55")
    own = judge(gecasmo.load(fit_file), min_probability=0.6, min_order=0.55)
    assert own.n_ordered > 0
    data = succeed_with_json(
        *("judgments", fit_file, "-o", "j.csv", "--format", "quepid", *limits),
        *("--ratings", "float", "--include", "ordered"),
    )
    numbers = {"judged": own.n_judged, "ordered": own.n_ordered, "insufficient": own.n_insufficient}
    assert {name: data[name] for name in numbers} == numbers
    assert data["order"] == pytest.approx(own.to_dict()["order"])
    assert data["writing"]["judgments"] == own.n_judged + own.n_ordered
    assert (data["writing"]["insufficient"], data["writing"]["ordered"]) == (own.n_insufficient, 0)
    rated = own.frame.filter(pl.col("verdict") != "insufficient")
    assert pl.read_csv("j.csv")["rating"].to_list() == pytest.approx(
        rated["rating"].to_list(), abs=0.0006
    )
    text = succeed("judgments", fit_file, "-o", "j.csv", "--format", "quepid", *limits).stdout
    left_out = f"{own.n_ordered + own.n_insufficient:,} pairs left out, for lack of data"
    assert f"{left_out} ({own.n_ordered:,} of them ordered)" in " ".join(text.split())
    said = fail("judgments", fit_file, "-o", "j.json", "--include", "ordered")
    assert "so also give --ratings float" in said


def test_worth_judging(folder: Path, fit_file: Path) -> None:
    own = judge(gecasmo.load(fit_file)).worth_judging(3)
    data = succeed_with_json("judgments", fit_file, "-o", "j.csv", "--worth-judging", "3")
    pairs = [(row["query"], row["doc"]) for row in data["worth_judging"]["pairs"]]
    assert pairs == own.pairs.select("query", "doc").rows()
    text = succeed("judgments", fit_file, "-o", "j.csv", "--worth-judging", "3").stdout
    assert "pairs most worth judging by hand" in text
    succeed(
        *("judgments", fit_file, "-o", "j.csv", "--worth-judging", "3"),
        *("--worth-output", "worth.csv"),
    )
    assert pl.read_csv("worth.csv").height == 3
    text = succeed(
        *("judgments", fit_file, "-o", "j.csv", "--worth-judging", "9"),
        *("--worth-output", "worth.csv"),
    ).stdout
    assert "pairs most worth judging by hand" in text
    assert "  ... and 4 more" in text
    assert "worth: traffic x wrong" in " ".join(text.split())


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--format", "excel"), 1, "choose one of quepid"),
        (("--rule", "guess"), 2, "--rule"),
        (("--thresholds", "a,b"), 2, "write numbers with commas"),
        (("--rule", "threshold", "--thresholds", "0.5,0.1,0.2"), 1, "thresholds"),
        (("--grades", "1"), 1, "grades"),
        (("--level", "3"), 1, "level"),
        (("--features", "gone.csv", "--format", "ranklib"), 1, "gone.csv: there is no such file"),
        (("--features", "gone.xml", "--format", "ranklib"), 1, "gone.xml: there is no such file"),
        (("--features", "odd.xml", "--format", "ranklib"), 1, "a .csv, .tsv, .jsonl or .parquet"),
        (("--features", "torn.csv", "--format", "ranklib"), 1, "torn.csv cannot be read"),
        (("--max-width", "0", "--format", "qrels"), 1, "--max-width (now 0)"),
        (("--min-probability", "2"), 1, "--min-probability 2.0: a probability from 0 to 1"),
        (("--ratings", "float"), 1, "'csv' files do not use --ratings"),
        (("--ratings", "real"), 2, "--ratings"),
        (("--include", "all"), 2, "--include"),
        (("--worth-output", "a.xlsx"), 1, "--worth-output a.xlsx: the name has to end in"),
        (("--worth-output", "no/a.csv"), 1, "there is no folder"),
    ],
)
def test_bad_input(
    folder: Path, fit_file: Path, flags: tuple[str, ...], code: int, words: str
) -> None:
    Path("torn.csv").write_bytes(b"query,doc,length\n1,2,3\n1,2,3,4,5\n")
    Path("odd.xml").write_text("<features/>\n")
    said = fail("judgments", fit_file, "-o", "j.csv", *flags, code=code)
    assert words in said
    assert sorted(path.name for path in folder.iterdir()) == ["odd.xml", "torn.csv"]


def test_a_model_that_names_no_relevance(folder: Path, log_file: Path) -> None:
    succeed("fit", "RCTR", log_file, "-o", "rctr.fit")
    assert "relevance" in fail("judgments", "rctr.fit", "-o", "j.csv")
