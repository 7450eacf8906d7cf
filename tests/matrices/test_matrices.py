"""The paper's CZM and UBM, given as its matrices, are the programs DBN and UBM."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gecasmo
from gecasmo import DBN, EM, UBM, Table, matrices
from gecasmo.errors import ClickLogError, ModelError

FILE = Path(__file__).parent / "matrices.json"


def random_log(n_pages, longest, seed):
    """Pages of 1 to `longest` results with random clicks, documents shown at most once a page."""
    rng = np.random.default_rng(seed)
    rows = []
    for page in range(n_pages):
        docs = rng.permutation(12)[: rng.integers(1, longest + 1)]
        for rank, doc in enumerate(docs, start=1):
            rows.append((page, rank, f"d{doc}", int(rng.random() < 0.3)))
    return gecasmo.read_log(pl.DataFrame(rows, ["session", "rank", "doc", "click"], orient="row"))


def by_doc(seed):
    rng = np.random.default_rng(seed)
    return {f"d{doc}": float(rng.uniform(0.05, 0.95)) for doc in range(12)}


def test_czm_has_the_likelihood_of_dbn():
    czm = matrices.read(FILE, "czm")
    log = random_log(300, 10, seed=1)
    attraction, satisfaction = by_doc(2), by_doc(3)
    program = DBN.with_values(
        attraction=(Table(key="doc"), attraction),
        satisfaction=(Table(key="doc"), satisfaction),
        continuation=0.83,
    )
    matrix = czm.with_values(gamma=0.83, phi_S=satisfaction, phi_A=attraction)
    np.testing.assert_allclose(
        matrix.log_likelihood(log), program.log_likelihood(log), atol=1e-10, rtol=0
    )
    np.testing.assert_allclose(matrix.predict_clicks(log), program.predict_clicks(log), atol=1e-10)


def test_ubm_has_the_likelihood_of_the_program():
    ubm = matrices.read(FILE, "ubm")
    log = random_log(300, 4, seed=4)
    attraction = by_doc(5)
    rng = np.random.default_rng(6)
    cells = {(t, click): float(rng.uniform(0.1, 0.9)) for t in range(1, 5) for click in range(t)}
    program = UBM.with_values(attraction=(Table(key="doc"), attraction), examination=cells)
    rows = {t * (t - 1) // 2 + click: value for (t, click), value in cells.items()}
    matrix = ubm.with_values(phi_A=attraction, gamma=rows)
    np.testing.assert_allclose(
        matrix.log_likelihood(log), program.log_likelihood(log), atol=1e-10, rtol=0
    )
    np.testing.assert_allclose(matrix.predict_clicks(log), program.predict_clicks(log), atol=1e-10)


def test_states_after_minimising():
    assert matrices.read(FILE, "czm").automaton.n_states <= 4
    assert matrices.read(FILE, "ubm").automaton.n_states <= 4 + 2


@pytest.mark.parametrize("augmentation", ["minimal", "full"])
def test_czm_reaches_the_objective_of_dbn(augmentation):
    log = random_log(400, 6, seed=7)
    method = EM(tol=1e-16, max_iter=20_000, augmentation=augmentation)
    ones = Table(key="doc", pseudo_counts=(1, 1))
    czm = matrices.read(FILE, "czm", phi_A=ones, phi_S=ones).fit(log, method)
    dbn = DBN(attraction=ones, satisfaction=ones).fit(log, method)
    assert czm.report_.objective == pytest.approx(dbn.report_.objective, abs=1e-8)


def test_ubm_reaches_the_objective_of_the_program():
    log = random_log(400, 4, seed=8)
    method = EM(tol=1e-16, max_iter=20_000)
    ones = Table(key="doc", pseudo_counts=(1, 1))
    matrix = matrices.read(FILE, "ubm", phi_A=ones).fit(log, method)
    program = UBM(attraction=ones).fit(log, method)
    # A page of four has ten cells; the program has rows only for those that occur.
    assert len(program.parameters["examination"]) == 10
    assert matrix.report_.objective == pytest.approx(program.report_.objective, abs=1e-8)


def test_matrix_models_simulate_evaluate_save_and_load(tmp_path):
    log = random_log(200, 4, seed=9)
    model = matrices.read(FILE, "ubm").fit(log)
    simulated = model.simulate(log, seed=1)
    assert simulated.n_results == log.n_results
    assert model.evaluate(simulated).marginal.pooled > 1
    model.save(tmp_path / "ubm.gecasmo")
    again = gecasmo.load(tmp_path / "ubm.gecasmo")
    np.testing.assert_array_equal(again.log_likelihood(log), model.log_likelihood(log))
    assert model.posterior(log)["reached"].min() >= 0


def test_a_page_longer_than_the_matrices_is_refused():
    model = matrices.read(FILE, "ubm").with_values(phi_A=0.5, gamma=dict.fromkeys(range(10), 0.5))
    with pytest.raises(ClickLogError, match=r"at most 4 results, but session .* has"):
        model.log_likelihood(random_log(50, 8, seed=10))


def definition(name="czm"):
    return json.loads(FILE.read_text())[name]


def test_ties_can_be_an_array():
    ubm = definition("ubm")
    words = matrices.automaton(ubm)
    reader = matrices.definition._Matrices(ubm)
    ubm["parameters"]["gamma"]["tie"] = reader.ties["gamma"].tolist()
    assert matrices.automaton(ubm) == words


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("states"), "lacks states"),
        (lambda d: d["click_state"].pop(), "must name 11 states"),
        (lambda d: d.update(initial_state=99), "State 99 does not exist"),
        (lambda d: d["parameters"]["gamma"].update(var_type="?"), "var_type of 'gamma'"),
        (lambda d: d["parameters"]["gamma"].update(pos_mat=[[1]]), "pos_mat of 'gamma' must be"),
        (lambda d: d["parameters"]["phi_S"].update(lag=2), "lag of 'phi_S'"),
        (lambda d: d["parameters"]["phi_S"].pop("t0_fixed"), "give its t0_fixed"),
        (
            lambda d: d["parameters"]["phi_A"]["fixed_mat"][2].__setitem__(2, 1),
            "from state 2 add up to",
        ),
        (
            lambda d: d["parameters"]["gamma"].update(var_type="pos", tie=[[[0]]]),
            "must be an array of 10 positions",
        ),
    ],
)
def test_definitions_that_make_no_sense(change, message):
    czm = definition()
    change(czm)
    with pytest.raises(ModelError, match=message):
        matrices.read(czm)


def test_a_file_that_is_no_definition(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{")
    with pytest.raises(ModelError, match="cannot be read as a definition"):
        matrices.read(path)


def test_rows_by_position_and_by_state():
    czm = definition()
    czm["parameters"]["gamma"]["var_type"] = "pos"
    log = random_log(100, 5, seed=11)
    by_position = matrices.read(czm).fit(log)
    assert len(by_position.parameters["gamma"]) == 10
    czm["parameters"]["gamma"]["var_type"] = "state"
    by_state = matrices.read(czm).fit(log)
    assert len(by_state.parameters["gamma"]) == 2
    assert np.isfinite(by_state.score(log))


def full(definition):
    """A definition with every matrix written out, and defaults said."""
    shape = (definition["states"],) * 2
    for spec in definition["parameters"].values():
        spec.setdefault("lag", 0)
        for mat in ("pos_mat", "neg_mat", "fixed_mat"):
            spec.setdefault(mat, np.zeros(shape, dtype=int).tolist())
    definition.pop("only_reachable", None)
    return definition


@pytest.mark.parametrize(("name", "length"), [("czm", 10), ("ubm", 4)])
def test_the_mappings_are_those_written_out_by_hand(name, length):
    assert full(getattr(matrices, name)(length)) == full(definition(name))


def test_ubm_of_ten_results_needs_eleven_states():
    ubm = matrices.ubm(10)
    assert ubm["states"] == 45
    assert matrices.read(ubm).automaton.n_states == 11
    with pytest.raises(ModelError, match="list_size=0"):
        matrices.ubm(0)


def values_by_row(model, log, seed):
    """A number for every row that a log has, by the values of its key."""
    fitted = model.copy().fit(log, EM(max_iter=1, tol=0, accelerate=False), intervals=False)
    rng = np.random.default_rng(seed)
    found = {}
    for coin, frame in fitted.parameters.items():
        keys = model.keys[coin]
        numbers = rng.uniform(0.1, 0.9, frame.height)
        rows = frame.select(keys).rows() if keys else [()]
        found[coin] = dict(zip(rows, map(float, numbers), strict=True))
    return found


COUNTING = ("CountingDCM", "CountingSDBN")


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("name", [n for n in gecasmo.models.CATALOGUE if n not in COUNTING])
def test_what_is_written_and_read_is_the_same_model(name, tmp_path):
    model = gecasmo.models.CATALOGUE[name]()
    pages = random_log(60, 4, seed=12).to_frame().with_columns(query=pl.lit("q"))
    if name == "CM":  # which stops at the first click
        clicks_above = pl.col("click").cast(int).cum_sum().over("session")
        pages = pages.with_columns(click=pl.col("click") & (clicks_above == 1))
    log = gecasmo.read_log(pages)
    try:
        written = matrices.write(model, 4, tmp_path / "model.json")
    except ModelError as error:
        assert "cannot be written as the paper's matrices" in str(error)  # noqa: PT017
        assert name not in (
            "GCTR",
            "RCTR",
            "DCTR",
            "DRCTR",
            "PBM",
            "UBM",
            "CM",
            "DCM",
            "SDBN",
            "DBN",
        )
        return
    assert json.loads((tmp_path / "model.json").read_text()) == written
    again = matrices.read(tmp_path / "model.json")
    values = values_by_row(model, log, seed=13)
    numbered = {}
    for coin, own in values.items():
        spec = written["parameters"][coin]
        if "rows" in spec:
            numbers = {tuple(row): number for number, row in enumerate(spec["rows"])}
            own = {numbers[row]: value for row, value in own.items()}
        numbered[coin], values[coin] = own.get((), own), values[coin].get((), values[coin])
    given, read = type(model).with_values(**values), again.with_values(**numbered)
    np.testing.assert_allclose(read.log_likelihood(log), given.log_likelihood(log), atol=1e-10)


def test_what_the_paper_cannot_say_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"CountingDCM cannot be written .* more than clicks"):
        matrices.write(gecasmo.CountingDCM())
    with pytest.raises(ModelError, match=r"CCM .* flips 'attraction' more than once"):
        matrices.write(gecasmo.CCM())
    with pytest.raises(ModelError, match="read from such a definition"):
        matrices.write(matrices.read(FILE, "czm"))
    with pytest.raises(ModelError, match=r"needs .* states; 1,024 at most"):
        matrices.write(UBM(), list_size=350)
    with pytest.raises(ModelError, match="list_size=0"):
        matrices.write(DBN(), list_size=0)


def test_coins_by_clicks_above_and_distance_are_lifted():
    class Tired(gecasmo.ClickModel):
        attraction = gecasmo.Parameter("doc")
        tired = gecasmo.Parameter("clicks_above", "distance")

        def browse(self, user, result):
            if gecasmo.flip(self.attraction):
                user.click()
            if gecasmo.flip(self.tired):
                user.leave()

    written = matrices.write(Tired(), 3)
    log = random_log(60, 3, seed=14)
    values = values_by_row(Tired(), log, seed=15)
    rows = {tuple(row): n for n, row in enumerate(written["parameters"]["tired"]["rows"])}
    docs = {doc: value for (doc,), value in values["attraction"].items()}
    read = matrices.read(written).with_values(
        attraction=docs, tired={rows[row]: value for row, value in values["tired"].items()}
    )
    given = Tired.with_values(attraction=docs, tired=values["tired"])
    np.testing.assert_allclose(read.log_likelihood(log), given.log_likelihood(log), atol=1e-10)
    np.testing.assert_allclose(read.predict_clicks(log), given.predict_clicks(log), atol=1e-10)
