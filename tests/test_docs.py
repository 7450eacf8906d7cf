"""What the pages of docs show runs as it stands."""

import ast
import builtins
import re
from fractions import Fraction
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import gecasmo
from gecasmo import DBN, read_log
from gecasmo.testing import plain_python

DOCS = Path(__file__).parents[1] / "docs"
NEEDS = {
    "bayes.md": ("arviz",),
    "browser.md": (),
    "constraints.md": (),
    "events.md": (),
    "forms.md": ("sklearn", "torch"),
    "hypotheses.md": (),
    "judges.md": (),
    "language.md": (),
    "notation.md": (),
    "pages.md": (),
    "paper.md": (),
    "readers.md": (),
    "coming-from.md": (),
    "scikit-learn.md": ("sklearn",),
    "consumers.md": ("lightgbm", "sklearn", "ir_measures"),
    "uncertainty.md": (),
    "updates.md": (),
    "stored-answers.md": (),
    "stored-fits.md": (),
    "stored-logs.md": (),
    "views.md": (),
}


@pytest.mark.parametrize("page", NEEDS)
def test_every_python_block_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    for package in NEEDS[page]:
        pytest.importorskip(package)
    text = (DOCS / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    (tmp_path / "tests").symlink_to(DOCS.parent / "tests")
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "page.py"
    # Empty lines in place of the text: a traceback then shows the line of the page.
    program.write_text(
        re.sub(
            r"(?s)(\A|```\n)(.*?)(```python\n|\Z)", lambda m: "\n" * m.group(0).count("\n"), text
        )
    )
    namespace = {"__name__": "page", "__file__": str(program)}
    exec(compile(program.read_text(), str(DOCS / page), "exec"), namespace)
    assert capsys.readouterr().out


# -- names of functions, classes and files that prose mentions ---------------------------------
ROOT = DOCS.parent
SOURCE = ROOT / "src" / "gecasmo"
# What a page calls an object of a class.
CALLED = {"model": "Model", "user": "User", "result": "Result"}


@cache
def known_names() -> dict[str, set[str]]:
    """By class, module or "" (for all modules): the names that are defined there."""
    known: dict[str, set[str]] = {"": set()}
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        name = path.parent.name if path.stem == "__init__" else path.stem
        own = _defined(tree.body)
        known[""] |= own | {name}
        known.setdefault(name, set()).update(own)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                known.setdefault(node.name, set()).update(_members(node) | {f"<{b}" for b in bases})
    return known


def _defined(nodes: list[ast.stmt]) -> set[str]:
    found = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {
                name.id for target in targets for name in ast.walk(target) if hasattr(name, "id")
            }
    return found


def _members(node: ast.ClassDef) -> set[str]:
    set_on_self = {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)
    }
    return _defined(node.body) | set_on_self


def exists(name: str) -> bool:
    """Whether there is something of a name such as `Part`, `Part.run` or `passes.evaluate`."""
    *owners, last = name.removeprefix("gecasmo.").split(".")
    known = known_names()
    if not owners:
        return last in known[""] or hasattr(builtins, last)
    owner = CALLED.get(owners[-1], owners[-1])
    if last in known.get(owner, ()):
        return True
    bases = [base[1:] for base in known.get(owner, ()) if base.startswith("<")]
    return any(exists(f"{base}.{last}") for base in bases)


@pytest.mark.parametrize("page", ["docs/how-it-works.md", "CONTRIBUTING.md"])
def test_names_that_a_page_mentions_exist(page):
    prose = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    mentioned = re.findall(r"`([^`\n]+)`", prose)
    files = [name for name in mentioned if re.fullmatch(r"[\w.-]+(/[\w.*-]+)+", name)]
    assert [
        name for name in files if not (ROOT / name).exists() and not (SOURCE / name).exists()
    ] == []
    names = [re.match(r"([A-Za-z_][\w.]*)(\(.*)?$", name) for name in mentioned]
    dotted = [
        m[1] for m in names if m and (m[2] or "." in m[1]) and not m[1].endswith((".py", ".md"))
    ]
    assert dotted
    assert [name for name in dotted if not exists(name)] == []


def test_what_pages_call_by_its_full_name_can_be_had():
    pages = [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    lost = []
    for name in sorted(set(re.findall(r"\bgecasmo((?:\.[A-Za-z_]\w*)+)", text)) - {".toml"}):
        found = gecasmo
        for part in name[1:].split("."):
            if not hasattr(found, part) and find_spec(f"{found.__name__}.{part}"):
                import_module(f"{found.__name__}.{part}")
            found = getattr(found, part, None)
            if found is None:
                lost.append(name)
                break
    assert lost == []


@pytest.mark.parametrize(
    "name", ["Problem.evaluates", "run_passes", "passes.run", "nowhere.run_pass"]
)
def test_a_name_that_is_not_there_is_found(name):
    assert not exists(name)
    assert exists("Problem.evaluate")


def test_the_page_that_is_walked_gives_the_counts_that_are_shown():
    text = (DOCS / "how-it-works.md").read_text()
    csv = re.search(r"( {4}session,query.*\n(?: {4}s1.*\n)+)", text)[1]
    rows = [line.split(",") for line in csv.split()]
    table = dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
    table |= {name: list(map(int, table[name])) for name in ("rank", "click")}
    model = DBN.with_values(attraction=0.5, satisfaction=0.5, continuation=0.5)
    with plain_python():
        counts = model.expected_counts(read_log(table))
    shown = re.findall(r"^\| (\w+) \| (\w+), (\w+) \| ([\d/]+) \| ([\d/]+) \|", text, re.MULTILINE)
    assert len(shown) == 4
    for coin, query, doc, *sides in shown:
        row = counts[coin].filter(query=query, doc=doc)
        found = row["heads"].item(), row["tails"].item()
        assert found == pytest.approx([float(Fraction(side)) for side in sides])


PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def anchors(path: Path) -> set[str]:
    """The headings of a page, as links name them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*PAGES, "../README.md", "../CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for address in re.findall(r"\]\(([^)\s]+)\)", text):
        if ":" in address:
            continue
        path, _, anchor = address.partition("#")
        target = (DOCS / page).parent / path if path else DOCS / page
        assert target.exists(), f"{page}: {address}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page}: {address}"


def test_the_site_has_every_page():
    nav = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page for page in PAGES if page not in nav] == []


def test_the_reference_has_every_public_name():
    import gecasmo
    from gecasmo.models import CATALOGUE

    pages = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    listed = set(re.findall(r"^::: ([\w.]+)$", pages, flags=re.M))
    public = [name for name in gecasmo.__all__ if name not in {*CATALOGUE, "CZM", "matrices"}]
    # `gecasmo.evaluation.compare` is a module, so that its function goes by its whole path.
    known = {path.rsplit(".", 1)[1] for path in listed if path.count(".") in (1, 3)}
    assert [name for name in public if name not in known] == []
    for name in listed:
        module, _, last = name.rpartition(".")
        assert hasattr(__import__(module, fromlist=[last]), last), name


def test_messages_of_the_questions_are_ours():
    page = (DOCS / "faq.md").read_text(encoding="utf-8")
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (DOCS.parent / "src").rglob("*.py")
    )
    rows = re.findall(r"^\| `([^`]+)` \|", page, flags=re.M)
    assert len(rows) > 5
    assert [message for message in rows if message not in sources] == []


def test_the_promises_of_best_pages_are_those_that_were_measured():
    measured = (ROOT / "benchmarks" / "results" / "pages.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in measured.splitlines()]
    found = {tuple(row[1:5]): row for row in rows if len(row) > 13}
    page = (DOCS / "pages.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| (UBM|DBN) \| (UBM|DBN) \| ([\d,]+) \| (.*) \|$", page, flags=re.M)
    assert {(users, model, pages) for users, model, pages, _ in shown} >= {
        ("DBN", "DBN", pages) for pages in ("3,000", "30,000", "300,000")
    }
    for users, model, pages, cells in shown:
        row = found[users, model, pages, "30"]
        assert cells.split(" | ") == [row[5], row[8], row[10], row[11], row[13]]
        share, error = (int(figure) for figure in re.findall(r"(\d+)%", row[13]))
        assert users != model or 85 - 2 * error <= share <= 95 + 2 * error
    share = re.search(r"as the model says: (\d+)%", measured)
    assert share is not None
    assert 85 <= int(share[1]) <= 95


def test_intervals_of_propensities_are_those_that_were_measured():
    measured = (ROOT / "benchmarks" / "results" / "propensities.md").read_text(encoding="utf-8")
    page = (DOCS / "uncertainty.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:random|good) \| (?:DBN|PBM|UBM) \| .*$", page, flags=re.M)
    assert len(rows) == 6
    assert [row for row in rows if row not in measured] == []
