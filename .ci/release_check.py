"""Try the wheel and the source distribution as a new user would: `make release-check`.

Both are built, looked into, and installed into an empty environment each. There the Python blocks
of the README and its `gecasmo` commands are run twice in one folder, which is not the checkout.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIELDS = (
    "Name",
    "Version",
    "Summary",
    "License-Expression",
    "Requires-Python",
    "Description-Content-Type",
    "Project-URL",
)
# A first fit finds its kernels in the package, so that nothing is compiled.
FIRST_FIT = """
import sys
import gecasmo
gecasmo.DBN().fit(gecasmo.read_log("examples/shop.csv.gz"), progress=False)
assert "numba" not in sys.modules, "kernels were compiled"
"""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def run(*command: str | Path, **options: object) -> None:
    """Run a command; if it fails, this one does."""
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True, **options)  # type: ignore[call-overload]


def blocks(language: str) -> list[str]:
    """Return the blocks of the README in a language."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands() -> list[list[str]]:
    """Return the `gecasmo` commands of the README, without their comments."""
    lines = "".join(blocks("console")).splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("gecasmo ")]


def look_into(wheel: Path, source: Path) -> None:
    """Check what is in both files, and what the wheel says of itself."""
    names = zipfile.ZipFile(wheel).namelist()
    assert "gecasmo/py.typed" in names, "the wheel lacks py.typed"
    outside = {name.split("/")[0] for name in names} - {"gecasmo"}
    assert [name for name in outside if not name.endswith(".dist-info")] == [], outside
    assert not [name for name in names if "test_" in name or "conftest" in name]
    assert [name for name in names if name.endswith(".kernel")], "the wheel lacks kernels"
    metadata = next(name for name in names if name.endswith("/METADATA"))
    fields = Parser().parsestr(zipfile.ZipFile(wheel).read(metadata).decode())
    missing = [name for name in FIELDS if not fields[name]]
    assert not missing, f"the metadata lack {missing}"
    extras = fields.get_all("Provides-Extra")
    assert set(extras) == set(PROJECT["optional-dependencies"]), extras
    with tarfile.open(source) as archive:
        inside = {name.split("/", 1)[-1] for name in archive.getnames()}
    # Tests of the source distribution read these, too.
    tested = ("tests/conftest.py", ".github/workflows/ci.yml", "mkdocs.yml")
    for name in ("README.md", "CITATION.cff", "LICENSE", "Makefile", *tested):
        assert name in inside, f"the source distribution lacks {name}"


def try_out(package: Path, folder: Path) -> None:
    """Install a file into an empty environment, and do there what the README says, twice."""
    venv.create(folder / "venv", with_pip=True)
    bin = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(bin / "python", "-m", "pip", "install", "--quiet", package)
    run(bin / "python", "-m", "pip", "check")
    work = folder / "work"
    (work / "examples").mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "shop.csv.gz", work / "examples")
    program = work / "readme.py"
    program.write_text("\n".join(blocks("python")), encoding="utf-8")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    new_machine = environment | {"GECASMO_CACHE_DIR": str(folder / "cache")}
    run(bin / "python", "-c", FIRST_FIT, cwd=work, env=new_machine)
    for _ in range(2):
        for name, *words in commands():
            done = subprocess.run([bin / name, *words], cwd=work, env=environment, check=False)
            # `check` ends with 3 where it finds faults, and the example has some on purpose.
            wanted = (0, 3) if words[0] == "check" else (0,)
            assert done.returncode in wanted, (words, done.returncode)
        run(bin / "python", "-W", "error", program.name, cwd=work, env=environment)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT)
        (wheel,), (source,) = ((folder / "dist").glob(end) for end in ("*.whl", "*.tar.gz"))
        run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
        look_into(wheel, source)
        for package in (wheel, source):
            print(f"\n{package.name}, {package.stat().st_size:,} bytes")
            (folder / package.suffix).mkdir()
            try_out(package, folder / package.suffix)
    print("\nWheel and source distribution can be released.")


if __name__ == "__main__":
    main()
